"""What a new leader has and says after the one before has ended, and replicas that were away meanwhile."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import pytest

from highwater.conformance.cases.support.offsets import delete_records
from highwater.conformance.cases.support.reassignments import move_leader
from highwater.conformance.cases.support.replicas import (
    FAILOVER_S,
    await_isr,
    controller_last,
    create_assigned_topic,
    expect_values,
    values_at,
)
from highwater.conformance.cases.support.transactions import ABORT, Transactional, eventually_stable, fetch_committed
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import LATEST, Topic, batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, decrement, defect
from highwater.conformance.expectations import expect
from highwater.conformance.failures import Disconnected, NoReply, TargetFailure
from highwater.conformance.targets.base import STOP_NODE
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.offsets import ListOffsetsRequest

pytestmark = [pytest.mark.cluster_fault, pytest.mark.slow]

ERRORS_WHILE_LEADING_CHANGES: Final = frozenset({
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH,
})  # fmt: skip


def create_led_topic(cluster: Cluster) -> Topic:
    """Create a topic with three replicas whose leader is not the controller, and can be stopped."""
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    return create_assigned_topic(cluster, controller_last(cluster))


def acknowledge(cluster: Cluster, topic: Topic, *values: bytes) -> None:
    """Produce one batch of these values with acks=all."""
    expect("error code of Produce", 0, cluster.leader(topic).produce(topic, batch(*values)).error_code)


@clause("LST-4", "after an election")
@defect(Reply(ListOffsetsRequest, "topics.partitions.offset", decrement))
def test_the_log_end_does_not_fall_when_a_leader_dies(cluster: Cluster) -> None:
    """Until the next leader knows that its log is committed it returns an error (KIP-207)."""
    topic = create_led_topic(cluster)
    for _ in range(5):
        acknowledge(cluster, topic, b"a", b"b")
    end, others = 10, [node for node in cluster.target.addresses if node != topic.leader_id]
    cluster.kill(topic.leader_id)

    def answered() -> bool:
        for node in others:
            with suppress(Disconnected, NoReply), cluster.connect(cluster.target.addresses[node]) as broker:
                found = broker.list_offset(topic, LATEST)
                if found.error_code == 0:
                    expect("log end after the election", end, found.offset)
                    return True
                expect("error code while a leader is elected", ERRORS_WHILE_LEADING_CHANGES, found.error_code)
        return False

    _poll_at_once(cluster, answered)


def _poll_at_once(cluster: Cluster, answered: Callable[[], bool]) -> None:
    """Poll without a pause: what a new leader says first is gone after a few milliseconds."""
    deadline = cluster.clock.monotonic() + FAILOVER_S
    while not answered():
        if cluster.clock.monotonic() > deadline:
            raise TargetFailure("polling", expected=f"a new leader within {FAILOVER_S:g} s", actual="none")


@clause("REP-20", "last member")
@defect(Reply(FetchRequest, "responses.partitions.records", b""))
def test_an_eligible_replica_is_elected_when_the_last_member_of_the_isr_is_gone(cluster: Cluster) -> None:
    """A follower leaves an ISR that is then below min.insync.replicas; it has all that was ever committed (KIP-966)."""
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    leader, follower, _ = controller_last(cluster)
    topic = cluster.create_topic(assignment=[leader, follower], configs={"min.insync.replicas": "2"})
    await_isr(cluster, topic, 2)
    acknowledge(cluster, topic, b"committed")
    cluster.stop(follower)
    await_isr(cluster, topic, 1)
    cluster.stop(leader)
    cluster.target.start_node(follower)
    after = cluster.topic(topic.name, excluded_leader=leader, timeout_s=FAILOVER_S)
    expect("leader", follower, after.leader_id)
    cluster.start(follower)
    cluster.start(leader)
    await_isr(cluster, after, 2)
    expect_values("values at the new leader", [b"committed"], values_at(cluster.leader(after), after))


@clause("REP-23", "emptied")
@defect(Reply(FetchRequest, "responses.partitions.last_stable_offset", decrement))
def test_a_replica_that_missed_deleted_records_forgets_their_transactions(cluster: Cluster) -> None:
    """The marker of a transaction that was open when it stopped is among the deleted records."""
    topic = create_led_topic(cluster)
    away = next(node for node in controller_last(cluster) if node != topic.leader_id)
    producer = Transactional.initialize(cluster)
    producer.begin(topic)
    producer.write(topic, 0, b"deleted")
    cluster.clock.sleep(0.5)  # the follower has the record
    cluster.stop(away)
    await_isr(cluster, topic, 2)
    leader = cluster.leader(topic)
    producer.end(commit=ABORT)
    eventually_stable(cluster, leader, topic, 2, FAILOVER_S)
    acknowledge(cluster, topic, b"a", b"b")
    expect("error code and log start of DeleteRecords", (0, 3), delete_records(leader, topic, 3))
    cluster.start(away)
    await_isr(cluster, topic, 3)
    topic = move_leader(cluster, topic, away)
    leader = cluster.leader(topic)
    ends = lambda: fetch_committed(leader, topic, 3).last_stable_offset == 4  # noqa: E731
    cluster.eventually("the last stable offset 4 at the replica that was away", ends, FAILOVER_S)
