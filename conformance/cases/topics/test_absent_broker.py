"""While a broker is down: reassignments wait, deletions are completed later, and min ISR limits the high watermark."""

from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from highwater.conformance.cases.support.admin import TIMEOUT_MS, change_configs, controller, need_feature
from highwater.conformance.cases.support.reassignments import await_replicas, reassign, replicas_of
from highwater.conformance.cases.support.replicas import (
    FAILOVER_S,
    await_isr,
    controller_last,
    create_replicated_topic,
    expect_values,
    produce_acknowledged,
    replica_shows,
    values_at,
)
from highwater.conformance.cases.topics.test_failover import VALUES
from highwater.conformance.cases.topics.test_replicas import log_sizes
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import EARLIEST, NOW_MS, Broker, Topic, batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import GuardOff, Reply, Request, defect, increment
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import NoReply, Unsupported
from highwater.conformance.models.settings import SET
from highwater.conformance.targets.base import PAUSE_NODE, STOP_NODE
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.metadata import MetadataRequest
from highwater.reference.wire.messages.offsets import ListOffsetsRequest
from highwater.reference.wire.messages.replicas import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from highwater.reference.wire.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic
from highwater.reference.wire.records import build_batch

pytestmark = [pytest.mark.cluster_fault, pytest.mark.slow]

CONTROLLER_TIMEOUT_S = 60.0
"""Longer than a broker waits for a paused controller before it finds the next: controller.socket.timeout.ms, 30 s.

With KRaft, Metadata names any broker as the controller, so the paused one may be the active controller.
"""
DAY_MS, COMMITTED = 86_400_000, 3
LONGEST_INTERVAL_MS = 5_000
CLEANED_S = 60.0
"""Log cleaners of Apache Kafka run every 15 seconds by default."""
QUIET_S = 3.0
"""Longer than a follower needs to fetch and a controller to complete a reassignment."""


@clause("CTL-6", "waits")
@defect(
    GuardOff("AwaitTargetInSync"),
    Reply(ListPartitionReassignmentsRequest, "topics.partitions.adding_replicas", ()),
)
def test_who_holds_the_records_stays_until_the_new_replica_has_them(cluster: Cluster) -> None:
    cluster.need(PAUSE_NODE)
    cluster.need_brokers(3)
    new, first, old = controller_last(cluster)
    topic = cluster.create_topic(assignment=[first, old])
    await_isr(cluster, topic, 2)
    produce_acknowledged(cluster, topic, *VALUES)
    cluster.pause(new)
    cluster.eventually(
        "the start of the reassignment", lambda: _try_to_reassign(cluster, topic, first, new), CONTROLLER_TIMEOUT_S
    )
    leader = cluster.leader(topic)
    leader.expect_silence(QUIET_S)
    _expect_listed(cluster, topic, adding=(new,), removing=(old,))
    expect("the old replica is in sync", True, old in cluster.isr_of(topic))
    cluster.resume(new)
    await_replicas(cluster, topic, (first, new))
    await_isr(cluster, topic, 2)
    whole = [*VALUES, b"later"]
    produce_acknowledged(cluster, topic, b"later")
    cluster.eventually(
        "all records at the new replica", lambda: replica_shows(cluster, topic, new, whole), CONTROLLER_TIMEOUT_S
    )
    _await_no_log(cluster, topic, old)


@clause("CTL-6", "next controller")
@defect(Reply(MetadataRequest, "topics.partitions.replica_nodes", lambda nodes: nodes[::-1]))
def test_a_reassignment_that_waits_is_completed_by_the_next_controller(cluster: Cluster) -> None:
    """It waits for a broker that is down while the controller changes; the leader stays if it remains a replica."""
    cluster.need(STOP_NODE)
    topic, new, (first, active) = _topic_that_moves(cluster, *VALUES)
    cluster.stop(active)
    cluster.start(active)
    expect("replicas before the new one is back", True, active in (replicas_of(cluster, topic) or (active,)))
    _expect_listed(cluster, topic, adding=(new,), removing=(active,))
    cluster.resume(new)
    cluster.eventually(
        "the end of the reassignment", lambda: replicas_of(cluster, topic) == (first, new), CONTROLLER_TIMEOUT_S
    )
    await_isr(cluster, topic, 2)
    found = cluster.topic(topic.name, timeout_s=FAILOVER_S)
    expect("leader", first, found.leader_id)
    produce_acknowledged(cluster, found, b"later")
    whole = [*VALUES, b"later"]
    cluster.eventually(
        "all records at the new replica", lambda: replica_shows(cluster, found, new, whole), CONTROLLER_TIMEOUT_S
    )
    _await_no_log(cluster, topic, active)


def _try_to_reassign(cluster: Cluster, topic: Topic, *replicas: int) -> bool:
    """Start a reassignment; return False if the broker does not answer, since it has no running controller yet."""
    with suppress(NoReply):
        return reassign(cluster, topic.name, replicas) == 0
    return False


@clause("FLD-10", "ListPartitionReassignments while one waits")
@defect(Request(ListPartitionReassignmentsRequest, "topics", None))
def test_only_the_partitions_that_a_list_names_are_in_it(cluster: Cluster) -> None:
    topic, new, _ = _topic_that_moves(cluster)
    for partitions, count in (((), 0), ((0,), 1), ((1, 0, -1), 1), ((1,), 0), (None, 0)):
        named = () if partitions is None else (_listed(topic, *partitions),)
        found = cluster.eventually(
            "a list of reassignments", partial(_try_to_list, cluster, named), CONTROLLER_TIMEOUT_S
        )
        listed = [part for each in found.topics for part in each.partitions]
        expect(f"reassignments of partitions {partitions}", (0, count), (found.error_code, len(listed)))
    cluster.resume(new)


def _try_to_list(cluster: Cluster, topics: tuple[ListPartitionReassignmentsTopics, ...]) -> Any:
    """Return a reply, or None if the broker still waits for the paused controller."""
    with suppress(NoReply), controller(cluster) as broker:
        return broker.call(ListPartitionReassignmentsRequest(topics=topics, timeout_ms=TIMEOUT_MS))
    return None


def _expect_listed(cluster: Cluster, topic: Topic, *, adding: tuple[int, ...], removing: tuple[int, ...]) -> None:
    """Compare a running reassignment; a broker may wait for a paused controller before it finds the next."""
    listed = cluster.eventually(
        "a list of reassignments", partial(_try_to_list, cluster, (_listed(topic, 0),)), CONTROLLER_TIMEOUT_S
    )
    moving = only(only(listed.topics).partitions)
    expect("adding and removing replicas", (adding, removing), (moving.adding_replicas, moving.removing_replicas))


def _listed(topic: Topic, *partitions: int) -> ListPartitionReassignmentsTopics:
    return ListPartitionReassignmentsTopics(name=topic.name, partition_indexes=partitions)


@clause("FLD-2", "while it moves")
@pytest.mark.parametrize("grows", [False, True], ids=["to another broker", "to more brokers"])
@defect(Reply(CreatePartitionsRequest, "results.error_code", 0))
def test_a_topic_that_is_reassigned_gets_no_more_partitions(cluster: Cluster, grows: bool) -> None:
    """With ZooKeeper the reassignment is the reason (KIP-455), with KRaft that one of its brokers is down."""
    topic, new, _ = _topic_that_moves(cluster, grows=grows)
    wanted = CreatePartitionsTopic(name=topic.name, count=3)

    def ask() -> int | None:
        with suppress(NoReply), controller(cluster) as broker:
            reply = broker.call(CreatePartitionsRequest(topics=(wanted,), timeout_ms=TIMEOUT_MS))
            return int(only(reply.results).error_code)
        return None

    refusals = {ErrorCode.REASSIGNMENT_IN_PROGRESS, ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    expect("error code", refusals, cluster.eventually("a reply", ask, CONTROLLER_TIMEOUT_S))
    cluster.resume(new)
    found = cluster.describe(topic.name)
    expect("number of partitions", 1, len(found.partitions) if found else None)


@clause("ADM-45")
@defect(Reply(MetadataRequest, "topics.partitions.replica_nodes", (1, 2, 3)))
def test_a_cancelled_reassignment_leaves_the_replicas_as_they_were(cluster: Cluster) -> None:
    """The cancellation does not wait for the broker that the reassignment named, which is dead."""
    topic, new, replicas = _topic_that_moves(cluster)
    cluster.kill(new)
    cluster.eventually("the cancellation", lambda: _try_to_cancel(cluster, topic), CONTROLLER_TIMEOUT_S)
    await_replicas(cluster, topic, replicas)
    expect("error code of a second one", ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, reassign(cluster, topic.name, None))
    cluster.start(new)
    await_replicas(cluster, topic, replicas)


@clause("ADM-45", "next controller")
@defect(Reply(MetadataRequest, "topics.partitions.replica_nodes", (1, 2, 3)))
def test_a_reassignment_is_cancelled_by_the_next_controller(cluster: Cluster) -> None:
    """It knows which replicas the reassignment adds, and which it began with."""
    topic, new, (first, active) = _topic_that_moves(cluster, *VALUES)
    cluster.stop(active)
    cluster.start(active)
    cluster.eventually("the cancellation", lambda: _try_to_cancel(cluster, topic), CONTROLLER_TIMEOUT_S)
    await_replicas(cluster, topic, (first, active))
    cluster.resume(new)
    _await_no_log(cluster, topic, new)
    expect("replicas", (first, active), replicas_of(cluster, topic))


@clause("ADM-34", "replaced")
@defect(
    Reply(ListPartitionReassignmentsRequest, "topics.partitions.removing_replicas", ()),
    Reply(FetchRequest, "responses.partitions.records", b""),
)
def test_a_reassignment_that_waits_is_replaced_by_the_next(cluster: Cluster) -> None:
    """The next one, which begins while the new broker is dead, removes the leader instead of the other replica."""
    topic, new, (first, old) = _topic_that_moves(cluster, *VALUES)
    cluster.kill(new)
    cluster.eventually(
        "the start of the next reassignment", lambda: _try_to_reassign(cluster, topic, old, new), CONTROLLER_TIMEOUT_S
    )
    _expect_listed(cluster, topic, adding=(new,), removing=(first,))
    cluster.start(new)
    await_replicas(cluster, topic, (old, new))
    moved = cluster.topic(topic.name, excluded_leader=first, timeout_s=FAILOVER_S)
    whole = [*VALUES, b"later"]
    produce_acknowledged(cluster, moved, b"later")
    cluster.eventually("all records at the new replica", lambda: replica_shows(cluster, moved, new, whole), FAILOVER_S)
    _await_no_log(cluster, topic, first)


def _topic_that_moves(cluster: Cluster, *values: bytes, grows: bool = False) -> tuple[Topic, int, tuple[int, int]]:
    """Start a reassignment; return the topic, the new replica, which is paused so that it goes on, and the old ones.

    The second of the old ones, which goes unless the topic only `grows`, is the controller.
    """
    cluster.need(PAUSE_NODE)
    cluster.need_brokers(3)
    new, first, old = controller_last(cluster)
    topic = cluster.create_topic(assignment=[first, old])
    await_isr(cluster, topic, 2)
    produce_acknowledged(cluster, topic, *values)
    cluster.pause(new)
    wanted = (first, old, new) if grows else (first, new)
    cluster.eventually(
        "the start of the reassignment", lambda: _try_to_reassign(cluster, topic, *wanted), CONTROLLER_TIMEOUT_S
    )
    return topic, new, (first, old)


def _try_to_cancel(cluster: Cluster, topic: Topic) -> bool:
    with suppress(NoReply):
        return reassign(cluster, topic.name, None) == 0
    return False


@clause("CTL-8", "away")
@defect(GuardOff("DeletionAwaitsReplicas"), Reply(DescribeLogDirsRequest, "results.topics", ()))
def test_a_replica_that_was_away_goes_with_its_topic(cluster: Cluster) -> None:
    """A log that is not deleted would reappear in the next topic of that name."""
    cluster.need(STOP_NODE)
    topic = create_replicated_topic(cluster)
    produce_acknowledged(cluster, topic, *VALUES)
    away = next(node for node in controller_last(cluster) if node != topic.leader_id)
    requested = DescribableLogDirTopic(topic=topic.name, partitions=(0,))
    with cluster.connect(cluster.target.addresses[away]) as broker:
        expect("the broker has a log of the topic", True, (topic.name, 0) in log_sizes(broker, requested))
    cluster.stop(away)
    await_isr(cluster, topic, 2)
    cluster.delete_topics(topic.name)
    cluster.start(away)
    _await_no_log(cluster, topic, away)


@clause("ADM-31", "stray")
@defect(Reply(DescribeLogDirsRequest, "results.topics", ()))
def test_a_replica_that_moved_while_its_broker_was_away_is_removed(cluster: Cluster) -> None:
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    away, leader, new = controller_last(cluster)
    topic = cluster.create_topic(assignment=[leader, away])
    await_isr(cluster, topic, 2)
    produce_acknowledged(cluster, topic, *VALUES)
    requested = DescribableLogDirTopic(topic=topic.name, partitions=(0,))
    with cluster.connect(cluster.target.addresses[away]) as broker:
        expect("the broker has a log of the topic", True, (topic.name, 0) in log_sizes(broker, requested))
    cluster.stop(away)
    await_isr(cluster, topic, 1)
    expect("error code of the reassignment", 0, reassign(cluster, topic.name, (leader, new)))
    await_replicas(cluster, topic, (leader, new))
    cluster.start(away)
    _await_no_log(cluster, topic, away)
    whole = [*VALUES, b"later"]
    produce_acknowledged(cluster, topic, b"later")
    cluster.eventually("all records at the new replica", lambda: replica_shows(cluster, topic, new, whole), FAILOVER_S)


@clause("CTL-8", "reassigned")
@defect(Reply(MetadataRequest, "topics.error_code", 0))
def test_a_topic_that_is_deleted_while_it_moves_is_removed(cluster: Cluster) -> None:
    topic, new, _ = _topic_that_moves(cluster)
    cluster.eventually("the request to delete it", lambda: _try_to_delete(cluster, topic), CONTROLLER_TIMEOUT_S)
    cluster.resume(new)
    for node, address in cluster.target.addresses.items():
        with cluster.connect(address) as broker:
            cluster.eventually(
                f"the deletion of the topic at broker {node}", partial(_is_unknown, broker, topic), CONTROLLER_TIMEOUT_S
            )


def _try_to_delete(cluster: Cluster, topic: Topic) -> bool:
    with suppress(NoReply):
        cluster.delete_topics(topic.name)
        return True
    return False


def _is_unknown(broker: Broker, topic: Topic) -> bool:
    return only(broker.metadata(topic.name).topics).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _await_no_log(cluster: Cluster, topic: Topic, node: int) -> None:
    requested = DescribableLogDirTopic(topic=topic.name, partitions=(0,))

    def is_gone() -> bool:
        with cluster.connect(cluster.target.addresses[node]) as broker:
            return log_sizes(broker, requested) == {}

    cluster.eventually(f"the deletion of the log at broker {node}", is_gone, FAILOVER_S)


@pytest.fixture
def lonely_leader(cluster: Cluster) -> Topic:
    """Return a topic whose only in-sync replica holds a record more than min.insync.replicas allows to commit."""
    topic = _create_for_two(cluster)
    produce_acknowledged(cluster, topic, *VALUES)
    _leave_alone(cluster, topic)
    with cluster.leader(topic) as leader:
        expect("error code with acks 1", 0, leader.produce(topic, batch(b"alone"), acks=1).error_code)
    return topic


def _create_for_two(cluster: Cluster, **configs: str) -> Topic:
    """Create a topic with two replicas, which commits nothing unless both are in sync."""
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    need_feature(cluster.connect(), "eligible.leader.replicas.version", 1)
    topic = cluster.create_topic(
        assignment=controller_last(cluster)[:2], configs={"min.insync.replicas": "2", **configs}
    )
    await_isr(cluster, topic, 2)
    return topic


def _leave_alone(cluster: Cluster, topic: Topic) -> None:
    """Stop the follower, and wait until the leader is alone in the ISR."""
    cluster.stop(next(node for node in cluster.isr_of(topic) if node != topic.leader_id))
    await_isr(cluster, topic, 1)


def _write_segments(cluster: Cluster, topic: Topic, *records: tuple[bytes, bytes]) -> None:
    """Write three records in a segment each, the follower stops, and write the others, which are not committed."""
    leader = cluster.leader(topic)
    for number, (key, value) in enumerate(records):
        if number == COMMITTED:
            _leave_alone(cluster, topic)
        data = build_batch([(NOW_MS + 2 * DAY_MS * number, key, value, ())])
        answer = leader.produce(topic, data, acks=-1 if number < COMMITTED else 1)
        expect("error code of Produce", 0, answer.error_code)


@clause("FET-44", "not committed")
@defect(Reply(ListOffsetsRequest, "topics.partitions.offset", increment))
def test_retention_deletes_no_record_that_is_not_committed(cluster: Cluster) -> None:
    """All records are older than the limit, and the last two are not committed."""
    if cluster.setting("log_retention_check_interval_ms") > LONGEST_INTERVAL_MS:
        raise Unsupported("the target's log.retention.check.interval.ms is above 5 s")
    topic = _create_for_two(cluster, **{"segment.ms": str(DAY_MS), "retention.ms": "-1"})
    _write_segments(cluster, topic, *((b"k", b"%d" % number) for number in range(COMMITTED + 2)))
    expect("error code", 0, change_configs(controller(cluster), topic.name, ("retention.ms", SET, "1000")))
    leader = cluster.leader(topic)
    start = cluster.eventually("a deletion", lambda: leader.list_offset(topic, EARLIEST).offset or None, FAILOVER_S)
    expect("start of the log", COMMITTED, start)
    expect("high watermark", COMMITTED, leader.fetch(topic, COMMITTED).high_watermark)
    cluster.start(follower_of(cluster, topic))
    cluster.eventually(
        "the deletion of the others, once committed",
        lambda: leader.list_offset(topic, EARLIEST).offset == COMMITTED + 2,
        FAILOVER_S,
    )


@clause("FET-36", "not committed")
@defect(Reply(FetchRequest, "responses.partitions.records", b""))
def test_compaction_keeps_a_value_until_a_newer_one_is_committed(cluster: Cluster) -> None:
    """The newer value of key `b` could still be lost; consumers would then find none."""
    topic = _create_for_two(cluster, **{"segment.ms": str(DAY_MS), "min.cleanable.dirty.ratio": "0.01"})
    _write_segments(cluster, topic, (b"a", b"0"), (b"a", b"1"), (b"b", b"2"), (b"b", b"3"), (b"c", b"4"))
    expect("error code", 0, change_configs(controller(cluster), topic.name, ("cleanup.policy", SET, "compact")))
    leader = cluster.leader(topic)

    def is_compacted() -> bool:
        return b"0" not in values_at(leader, topic)

    cluster.eventually("the removal of the first value", is_compacted, CLEANED_S)
    expect_values("committed values", [b"1", b"2"], values_at(leader, topic))


@clause("REP-3")
@defect(GuardOff("HwNeedsMinIsr"))
def test_what_too_few_hold_is_not_committed(cluster: Cluster, lonely_leader: Topic) -> None:
    topic, leader = lonely_leader, cluster.leader(lonely_leader)
    high_watermark = len(VALUES)
    leader.expect_silence(QUIET_S)
    expect("high watermark", high_watermark, leader.fetch(topic, 0).high_watermark)
    expect("the values are the same", True, values_at(leader, topic) == VALUES)
    cluster.start(follower_of(cluster, topic))
    whole = [*VALUES, b"alone"]
    cluster.eventually("the last record too", lambda: values_at(leader, topic) == whole, FAILOVER_S)


def follower_of(cluster: Cluster, topic: Topic) -> int:
    found = cluster.describe(topic.name)
    replicas = only(found.partitions).replica_nodes if found else ()
    return next(node for node in replicas if node != topic.leader_id)


@clause("REP-15", "restarted leader")
@defect(Reply(FetchRequest, "responses.partitions.records", b""))
def test_what_is_not_committed_is_not_read_after_a_restart(cluster: Cluster, lonely_leader: Topic) -> None:
    follower = follower_of(cluster, lonely_leader)
    cluster.stop(lonely_leader.leader_id)
    cluster.start(lonely_leader.leader_id)
    topic = cluster.topic(lonely_leader.name, timeout_s=FAILOVER_S)
    expect("leader", lonely_leader.leader_id, topic.leader_id)
    leader = cluster.leader(topic)
    cluster.eventually("a fetch without an error", lambda: leader.fetch(topic, 0).error_code == 0, FAILOVER_S)
    leader.expect_silence(QUIET_S)
    expect("the uncommitted record can be read", False, b"alone" in values_at(leader, topic))
    cluster.start(follower)
    whole = [*VALUES, b"alone"]
    cluster.eventually("all records", lambda: values_at(leader, topic) == whole, FAILOVER_S)
