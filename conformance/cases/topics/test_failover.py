"""Failover: acknowledged records survive a change of leader, and all replicas have the same log afterwards."""

from contextlib import suppress

import pytest

from highwater.conformance.cases.support.admin import controller
from highwater.conformance.cases.support.offsets import epoch_end
from highwater.conformance.cases.support.reassignments import await_replicas, elect_preferred, reassign
from highwater.conformance.cases.support.replicas import (
    FAILOVER_S,
    await_isr,
    controller_last,
    create_replicated_topic,
    expect_values,
    fail_over,
    log_of,
    produce_acknowledged,
    replica_shows,
    values_at,
)
from highwater.conformance.cases.topics.test_replicas import delete_records
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import EARLIEST, LATEST, Topic, batch, records_of
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import GuardOff, Reply, Request, decrement, defect, increment, without_error
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Disconnected, NoReply
from highwater.conformance.targets.base import STOP_NODE
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.metadata import MetadataRequest
from highwater.reference.wire.messages.offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from highwater.reference.wire.messages.replicas import ElectLeadersRequest, TopicPartitions

pytestmark = [pytest.mark.cluster_fault, pytest.mark.slow]

NO_LEADER = -1
LONG_PRODUCE_MS = 30_000
RECORDS = "responses.partitions.records"
VALUES = [b"%d" % number for number in range(20)]


@pytest.fixture
def topic(cluster: Cluster) -> Topic:
    """Return a topic with three replicas in sync on nodes that can be stopped."""
    cluster.need(STOP_NODE)
    return create_replicated_topic(cluster)


@clause("REP-24")
@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
@defect(Reply(FetchRequest, RECORDS, b""))
def test_what_was_acknowledged_outlives_the_leader(cluster: Cluster, topic: Topic, kill: bool) -> None:
    produce_acknowledged(cluster, topic, *VALUES)
    after = fail_over(cluster, topic, kill=kill)
    leader = cluster.leader(after)
    cluster.eventually(
        "the end of the log", lambda: leader.list_offset(after, LATEST).offset == len(VALUES), FAILOVER_S
    )
    expect_values("values at the new leader", VALUES, values_at(leader, after))


@clause("REP-14")
@defect(Reply(FetchRequest, "responses.partitions.high_watermark", 0))
def test_the_high_watermark_does_not_go_back_behind_what_was_acknowledged(cluster: Cluster, topic: Topic) -> None:
    produce_acknowledged(cluster, topic, *VALUES)
    after = fail_over(cluster, topic)
    leader = cluster.leader(after)
    cluster.eventually("the high watermark", lambda: leader.fetch(after, 0).high_watermark >= len(VALUES), FAILOVER_S)
    observed = [leader.fetch(after, 0).high_watermark]
    for value in VALUES[:5]:
        leader.produce(after, batch(value))
        observed.append(leader.fetch(after, 0).high_watermark)
    expect("the high watermark never decreases", True, observed == sorted(observed) and observed[-1] == len(VALUES) + 5)


@clause("FET-16", "failover")
@defect(Reply(FetchRequest, RECORDS, lambda data: data[:-1] + b"x" if data else data))
def test_what_was_read_reads_the_same_under_the_next_leader(cluster: Cluster, topic: Topic) -> None:
    produce_acknowledged(cluster, topic, *VALUES)
    before = log_of(cluster.leader(topic), topic)
    cluster_sees = [(record.offset, record.value) for record in before]
    expect("values under the first leader", True, cluster_sees == list(enumerate(VALUES)))
    after = fail_over(cluster, topic)
    leader = cluster.leader(after)
    cluster.eventually(
        "the end of the log", lambda: leader.list_offset(after, LATEST).offset == len(VALUES), FAILOVER_S
    )
    expect("the same records", True, log_of(leader, after) == before)


@clause("REP-8")
@defect(Reply(OffsetForLeaderEpochRequest, "topics.partitions.end_offset", increment))
def test_each_epoch_ends_where_the_next_begins(cluster: Cluster, topic: Topic) -> None:
    ends, current = dict[int, int](), topic
    for number in range(3):
        produce_acknowledged(cluster, current, *VALUES[: number + 1])
        ends[current.leader_epoch] = cluster.leader(current).end_offset(current)
        if number < 2:
            gone, current = current.leader_id, fail_over(cluster, current)
            cluster.start(gone)
            await_isr(cluster, current, 3)
    current = cluster.topic(current.name)
    leader = cluster.leader(current)
    for epoch, end in ends.items():
        answer = epoch_end(leader, current, epoch)
        expect(f"end of epoch {epoch}", (epoch, end), (answer.leader_epoch, answer.end_offset))


@clause("LST-11", "earlier epoch")
@defect(Reply(ListOffsetsRequest, "topics.partitions.leader_epoch", increment))
def test_a_record_of_the_last_leader_has_its_epoch(cluster: Cluster, topic: Topic) -> None:
    produce_acknowledged(cluster, topic, b"old")
    after = fail_over(cluster, topic)
    produce_acknowledged(cluster, after, b"new")
    leader = cluster.leader(after)
    leader.version_of(ListOffsetsRequest, 4)
    for timestamp, epoch in ((EARLIEST, topic.leader_epoch), (LATEST, after.leader_epoch)):
        answer = leader.list_offset(after, timestamp)
        expect(f"error code and leader epoch for {timestamp}", (0, epoch), (answer.error_code, answer.leader_epoch))


@clause("REP-23", "behind the start")
@defect(Reply(FetchRequest, RECORDS, b""))
def test_a_follower_that_lacks_deleted_records_has_all_others(cluster: Cluster) -> None:
    """While it was down, the log start moved beyond its log end; it continues there and not at the end of the log."""
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    follower, leader_id = controller_last(cluster)[:2]
    topic = cluster.create_topic(assignment=[leader_id, follower])
    await_isr(cluster, topic, 2)
    produce_acknowledged(cluster, topic, *VALUES[:2])
    cluster.stop(follower)
    await_isr(cluster, topic, 1)
    produce_acknowledged(cluster, topic, *VALUES[2:8])
    expect("error code of DeleteRecords", 0, delete_records(cluster.leader(topic), topic, 4).error_code)
    cluster.start(follower)
    await_isr(cluster, topic, 2)
    after = fail_over(cluster, topic)
    expect("leader", follower, after.leader_id)
    leader = cluster.leader(after)
    cluster.eventually("the end of the log", lambda: leader.list_offset(after, LATEST).offset == 8, FAILOVER_S)
    expect("start of the log", 4, leader.list_offset(after, EARLIEST).offset)
    values = [record.value for record in records_of(leader.fetch(after, 4).records)]
    expect_values("values from the start on", VALUES[4:5], values[:1])


@clause("REP-25")
@defect(Reply(MetadataRequest, "topics.partitions.isr_nodes", (1, 2, 3)))
def test_who_stops_leaves_the_isr_and_comes_back(cluster: Cluster, topic: Topic) -> None:
    """The controller continues to run, so that what it remembers of the stopped broker counts after the restart."""
    follower = next(node for node in controller_last(cluster) if node != topic.leader_id)
    cluster.stop(follower)
    await_isr(cluster, topic, 2)
    expect("the stopped broker is in the ISR", False, follower in cluster.isr_of(topic))
    produce_acknowledged(cluster, topic, *VALUES)
    cluster.start(follower)
    await_isr(cluster, topic, 3)
    produce_acknowledged(cluster, topic, b"later")
    whole = [*VALUES, b"later"]
    cluster.eventually(
        "the complete log at the restarted follower", lambda: replica_shows(cluster, topic, follower, whole), FAILOVER_S
    )


@clause("REP-25", "dead leader")
@defect(Reply(MetadataRequest, "topics.partitions.isr_nodes", (1, 2, 3)))
def test_a_leader_that_died_is_not_in_the_isr_of_the_next(cluster: Cluster) -> None:
    """The next leader could remove it only after replica.lag.time.max.ms; until then acks=all would wait.

    The leader is not the controller, which decides about the ISR when it sees the leader die.
    """
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    topic = cluster.create_topic(assignment=controller_last(cluster))
    await_isr(cluster, topic, 3)
    cluster.kill(topic.leader_id)

    def isr_of_next_leader() -> tuple[int, ...] | None:
        found = cluster.describe(topic.name)
        part = only(found.partitions) if found and not found.error_code else None
        return part.isr_nodes if part and part.leader_id not in (NO_LEADER, topic.leader_id) else None

    isr = cluster.eventually("another leader", isr_of_next_leader, FAILOVER_S)
    expect(f"the dead broker {topic.leader_id} is in the first ISR {isr}", False, topic.leader_id in isr)


@clause("REP-25", "dead controller")
@defect(Reply(MetadataRequest, "topics.partitions.isr_nodes", lambda nodes: tuple({*nodes, 1, 2, 3})))
def test_a_controller_that_died_is_not_in_the_isr(cluster: Cluster) -> None:
    """The next controller removes it: its leader would wait for it only once records are written."""
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    *_, leader, active = controller_last(cluster)
    topic = cluster.create_topic(assignment=[leader, active])
    await_isr(cluster, topic, 2)
    produce_acknowledged(cluster, topic, b"before")
    cluster.kill(active)
    cluster.eventually("an ISR of the leader", lambda: cluster.isr_of(topic) == (leader,), FAILOVER_S)
    expect("leader", leader, cluster.topic(topic.name).leader_id)
    produce_acknowledged(cluster, topic, b"after")
    cluster.start(active)
    await_isr(cluster, topic, 2)
    whole = [b"before", b"after"]
    cluster.eventually("all records at the follower", lambda: replica_shows(cluster, topic, active, whole), FAILOVER_S)


@clause("MD-19")
@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
@defect(Reply(MetadataRequest, "topics.partitions.offline_replicas", ()))
def test_the_replicas_of_a_stopped_broker_are_offline(cluster: Cluster, kill: bool) -> None:
    """All partitions at every broker: a broker that stops leaves the ISR first, and lives on for a moment."""
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    cluster.connect().version_of(MetadataRequest, 5)
    topic = cluster.create_topic(partitions=6, replicas=3)
    stopped = controller_last(cluster)[0]

    def offline() -> set[tuple[int, ...]]:
        found = set[tuple[int, ...]]()
        for node, address in cluster.target.addresses.items():
            with suppress(NoReply):
                if node != stopped:
                    described = only(cluster.connect(address).metadata(topic.name).topics)
                    found |= {part.offline_replicas for part in described.partitions}
        return found

    expect("no replica is offline", True, offline() == {()})
    (cluster.kill if kill else cluster.stop)(stopped)
    cluster.eventually("the replicas to be offline", lambda: offline() == {(stopped,)}, FAILOVER_S)
    cluster.start(stopped)
    cluster.eventually("the replicas to be back", lambda: offline() == {()}, FAILOVER_S)


@clause("REP-11")
@defect(GuardOff("ElectFromIsr"), Reply(MetadataRequest, "topics.partitions.error_code", 0))
def test_only_who_is_in_sync_may_lead(cluster: Cluster) -> None:
    """The only in-sync replica is down and the other one lacks records, so the partition has no leader."""
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    nodes = sorted(cluster.target.addresses)[1:]
    topic = cluster.create_topic(assignment=nodes, configs={"min.insync.replicas": "1"})
    await_isr(cluster, topic, 2)
    follower = only(tuple(node for node in nodes if node != topic.leader_id))
    cluster.stop(follower)
    await_isr(cluster, topic, 1)
    produce_acknowledged(cluster, topic, *VALUES)
    cluster.stop(topic.leader_id)
    cluster.start(follower)

    def state() -> tuple[int, int]:
        part = only(found.partitions) if (found := cluster.describe(topic.name)) else None
        return (part.leader_id, part.error_code) if part else (0, 0)

    cluster.eventually("no leader", lambda: state() == (NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE), FAILOVER_S)
    cluster.start(topic.leader_id)
    again = cluster.topic(topic.name, timeout_s=FAILOVER_S)
    leader = cluster.leader(again)
    cluster.eventually("all acknowledged records", lambda: values_at(leader, again) == VALUES, FAILOVER_S)


@clause("REP-26")
@defect(Reply(MetadataRequest, "topics.partitions.leader_id", NO_LEADER))
def test_a_topic_may_be_led_by_a_replica_that_lacks_records(cluster: Cluster) -> None:
    """The only in-sync replica is down; the broker's default does not allow the election, the topic does."""
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    nodes = sorted(cluster.target.addresses)[1:]
    topic = cluster.create_topic(
        assignment=nodes, configs={"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    )
    await_isr(cluster, topic, 2)
    produce_acknowledged(cluster, topic, b"common")
    follower = only(tuple(node for node in nodes if node != topic.leader_id))
    cluster.stop(follower)
    await_isr(cluster, topic, 1)
    produce_acknowledged(cluster, topic, b"lost")
    cluster.stop(topic.leader_id)
    cluster.start(follower)
    after = cluster.topic(topic.name, excluded_leader=topic.leader_id, timeout_s=FAILOVER_S)
    expect("leader", follower, after.leader_id)
    # The other has records that this one lacks: it must fetch from it before it may be elected again.
    expect("in-sync replicas", (follower,), cluster.isr_of(after))
    leader = cluster.leader(after)
    cluster.eventually("the records of this replica", lambda: values_at(leader, after) == [b"common"], FAILOVER_S)


@clause("LST-4", "new leader")
@defect(Reply(ListOffsetsRequest, "topics.partitions.offset", decrement))
def test_the_end_is_returned_only_when_the_new_leader_knows_it(cluster: Cluster, topic: Topic) -> None:
    """Earlier replies have OFFSET_NOT_AVAILABLE, or LEADER_NOT_AVAILABLE before version 5 (KIP-207)."""
    produce_acknowledged(cluster, topic, *VALUES)
    after = fail_over(cluster, topic, kill=True)
    leader = cluster.leader(after)
    not_yet = (
        ErrorCode.OFFSET_NOT_AVAILABLE if leader.version_of(ListOffsetsRequest) >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
    )
    answers = list[tuple[int, int]]()

    def end_is_known() -> bool:
        answer = leader.list_offset(after, LATEST)
        answers.append((answer.error_code, answer.offset))
        return answer.error_code == 0

    cluster.eventually("the end of the log", end_is_known, FAILOVER_S)
    expect("error code and end offset", (0, len(VALUES)), answers[-1])
    expect(
        "earlier replies have errors that clients retry",
        True,
        all(
            error in (not_yet, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
            for error, _ in answers[:-1]
        ),
    )


@clause("LST-5", "older")
@defect(Reply(ListOffsetsRequest, "topics.partitions.error_code", without_error(ErrorCode.FENCED_LEADER_EPOCH)))
def test_an_older_leader_epoch_is_fenced(cluster: Cluster, topic: Topic) -> None:
    produce_acknowledged(cluster, topic, b"v")
    after = fail_over(cluster, topic)
    leader = cluster.leader(after)
    version = leader.version_of(ListOffsetsRequest, 4)

    def error(epoch: int) -> int:
        return leader.list_offset(after, EARLIEST, version=version, leader_epoch=epoch).error_code

    cluster.eventually("no error in the new epoch", lambda: error(after.leader_epoch) == 0, FAILOVER_S)
    expect("error code in the old epoch", ErrorCode.FENCED_LEADER_EPOCH, error(topic.leader_epoch))


@clause("CTL-14")
@defect(Reply(MetadataRequest, "topics.partitions.leader_id", lambda leader: {3: 2}.get(leader, leader)))
def test_the_first_replica_in_sync_leads_next(cluster: Cluster) -> None:
    topic, second = _rejoined(cluster)
    expect("next leader", second, fail_over(cluster, topic).leader_id)


@clause("CTL-14", "killed")
@defect(Reply(MetadataRequest, "topics.partitions.leader_id", lambda leader: {3: 2}.get(leader, leader)))
def test_the_first_replica_in_sync_leads_after_the_leader_is_killed(cluster: Cluster) -> None:
    topic, second = _rejoined(cluster)
    expect("next leader", second, fail_over(cluster, topic, kill=True).leader_id)


def _rejoined(cluster: Cluster) -> tuple[Topic, int]:
    """Return a topic and its second replica, which has left the ISR and come back: that may change the ISR's order."""
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    first, third, second = sorted(cluster.target.addresses)[:3]
    topic = cluster.create_topic(assignment=[first, second, third])
    await_isr(cluster, topic, 3)
    cluster.stop(second)
    await_isr(cluster, topic, 2)
    cluster.start(second)
    await_isr(cluster, topic, 3)
    expect("leader", first, cluster.topic(topic.name).leader_id)
    return topic, second


@clause("CTL-9")
@defect(Request(ElectLeadersRequest, "topic_partitions", ()))
def test_the_preferred_replica_leads_again_when_asked_for(cluster: Cluster) -> None:
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    nodes = sorted(cluster.target.addresses, reverse=True)
    topic = cluster.create_topic(assignment=nodes)
    await_isr(cluster, topic, 3)
    expect("the first replica leads", nodes[0], topic.leader_id)
    after = fail_over(cluster, topic)
    cluster.start(nodes[0])
    await_isr(cluster, after, 3)
    expect("leader", nodes[0], elect_preferred(cluster, after).leader_id)


@clause("ADM-34", "next controller")
@defect(Request(ElectLeadersRequest, "topic_partitions", ()))
def test_the_next_controller_knows_the_order_of_the_replicas(cluster: Cluster) -> None:
    """The first replica of a reassignment is the preferred leader, which only the controller stores."""
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    first, second, last = controller_last(cluster)
    topic = cluster.create_topic(assignment=[first, second])
    await_isr(cluster, topic, 2)
    expect("error code of the reassignment", 0, reassign(cluster, topic.name, (second, first)))
    await_replicas(cluster, topic, (second, first))
    expect("leader after the reassignment", first, cluster.topic(topic.name).leader_id)
    cluster.stop(last)

    def is_elected() -> bool:
        with suppress(NoReply, Disconnected), controller(cluster) as broker:
            requested = (TopicPartitions(topic=topic.name, partitions=(0,)),)
            broker.call(ElectLeadersRequest(topic_partitions=requested, timeout_ms=1_000))
            return cluster.topic(topic.name).leader_id == second
        return False

    cluster.eventually("the preferred leader", is_elected, FAILOVER_S)
    found = cluster.describe(topic.name)
    expect("replicas", (second, first), only(found.partitions).replica_nodes if found else ())
