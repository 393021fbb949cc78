"""Replies that name another broker: the new leader (KIP-951), and the replica in the consumer's rack (KIP-392)."""

from collections.abc import Callable
from typing import Any

import pytest

from highwater.conformance.cases.support.admin import create, new_topic
from highwater.conformance.cases.support.consumer_members import topic_id
from highwater.conformance.cases.support.offsets import epoch_end
from highwater.conformance.cases.support.reassignments import move_leader as move_leader_to
from highwater.conformance.cases.support.reassignments import reassign, replicas_of
from highwater.conformance.cases.support.replicas import FAILOVER_S, create_assigned_topic, produce_acknowledged
from highwater.conformance.clause import clause, sweep
from highwater.conformance.client.broker import LATEST, Broker, Topic, batch, produce_request, records_of
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, decrement, defect, increment, without_error
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Unsupported
from highwater.conformance.targets.base import STOP_NODE
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from highwater.reference.wire.messages.metadata import DescribeClusterRequest, MetadataRequest
from highwater.reference.wire.messages.offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.messages.topics import CreateTopicsRequest

NONE = -1
LEADER_SINCE, BY_ID_SINCE, RACKS_SINCE = 16, 13, 11
PART = "responses.partitions"
UNUSED_RACK = "hw-no-such-rack"
SPREAD_PARTITIONS = 6
"""Enough that an assignment without racks would place some partition in a single rack."""
WAIT_S = 15.0


def fetch_reply(
    broker: Broker, topic: Topic, version: int, offset: int = 0, *, leader_epoch: int = NONE, rack: str = ""
) -> tuple[Any, PartitionData]:
    """Fetch one partition, by the topic's id in versions that have no names; return the reply and its partition."""
    part = FetchPartition(
        partition=topic.partition, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=leader_epoch
    )
    named = (
        FetchTopic(topic_id=topic_id(broker, topic), partitions=(part,))
        if version >= BY_ID_SINCE
        else FetchTopic(topic=topic.name, partitions=(part,))
    )
    reply = broker.call(FetchRequest(max_wait_ms=0, topics=(named,), rack_id=rack), version)
    return reply, only(only(reply.responses).partitions)


# -- the leader epoch at a follower ------------------------------------------------------------------


EPOCHS = pytest.mark.parametrize("is_older", [pytest.param(False, id="newer"), pytest.param(True, id="older")])


def expect_epoch_compared(cluster: Cluster, asked: Callable[[Broker, Topic, int], int], *, is_older: bool) -> None:
    """Check that a follower compares the epoch before it says that it does not lead; `asked` returns an error."""
    cluster.need_brokers(2)
    topic = cluster.create_topic(replicas=2)
    following = next((node for node in replicas_of(cluster, topic) if node != topic.leader_id), None)
    if following is None:
        raise Unsupported("a topic with two replicas has one")
    if is_older:
        following, topic = topic.leader_id, move_leader_to(cluster, topic, following)
    follower = cluster.connect(cluster.target.addresses[following])
    epoch, error = topic.leader_epoch + 100, ErrorCode.UNKNOWN_LEADER_EPOCH
    if is_older:
        epoch, error = topic.leader_epoch - 1, ErrorCode.FENCED_LEADER_EPOCH

    def is_compared() -> bool:  # Metadata may be ahead of the follower
        return asked(follower, topic, epoch) == error

    cluster.eventually(error.name, is_compared, WAIT_S)


@clause("FET-8", "follower")
@EPOCHS
@defect(Request(FetchRequest, "topics.partitions.current_leader_epoch", NONE))
def test_a_follower_compares_the_leader_epoch_of_a_fetch(cluster: Cluster, is_older: bool) -> None:
    def asked(broker: Broker, topic: Topic, epoch: int) -> int:
        version = broker.version_of(FetchRequest, 9)
        return broker.fetch(topic, 0, version=version, leader_epoch=epoch).error_code

    expect_epoch_compared(cluster, asked, is_older=is_older)


@clause("LST-5", "follower")
@EPOCHS
@defect(Request(ListOffsetsRequest, "topics.partitions.current_leader_epoch", NONE))
def test_a_follower_compares_the_leader_epoch_of_a_lookup(cluster: Cluster, is_older: bool) -> None:
    def asked(broker: Broker, topic: Topic, epoch: int) -> int:
        version = broker.version_of(ListOffsetsRequest, 4)
        return broker.list_offset(topic, LATEST, version=version, leader_epoch=epoch).error_code

    expect_epoch_compared(cluster, asked, is_older=is_older)


@clause("LST-6", "follower")
@EPOCHS
@defect(Request(OffsetForLeaderEpochRequest, "topics.partitions.current_leader_epoch", NONE))
def test_a_follower_compares_the_leader_epoch_of_an_epochs_end(cluster: Cluster, is_older: bool) -> None:
    def asked(broker: Broker, topic: Topic, epoch: int) -> int:
        return epoch_end(broker, topic, 0, epoch).error_code

    expect_epoch_compared(cluster, asked, is_older=is_older)


# -- the new leader ---------------------------------------------------------------------------------


def move_leader(cluster: Cluster) -> tuple[Topic, Topic]:
    """Return partition 2 of a topic before and after a reassignment from its only replica to another broker."""
    cluster.need_brokers(2)
    first, second = sorted(cluster.target.addresses)[:2]
    before = create_assigned_topic(cluster, [second], [second], [first])
    produce_acknowledged(cluster, before, b"v")
    error = reassign(cluster, before.name, (second,), before.partition)
    expect("error code of the reassignment", 0, error)

    def is_moved() -> bool:
        """The leader epoch increases again when the old replica is removed."""
        found = cluster.describe(before.name)
        parts = [part for part in found.partitions if part.partition_index == before.partition] if found else []
        return [(part.leader_id, part.replica_nodes) for part in parts] == [(second, (second,))]

    cluster.eventually(f"broker {second} as leader and only replica", is_moved, FAILOVER_S)
    return before, cluster.topic(before.name, partition=before.partition)


def expect_leader(cluster: Cluster, reply: Any, answer: Any, topic: Topic) -> None:
    """Check the leader, its epoch and its address; raise Unsupported if the reply has none of them."""
    if answer.current_leader.leader_id == NONE and not reply.node_endpoints:
        raise Unsupported("the error reply has no leader")
    named = (answer.current_leader.leader_id, answer.current_leader.leader_epoch)
    expect("leader and leader epoch in the reply", (topic.leader_id, topic.leader_epoch), named)
    addresses = {node.node_id: f"{node.host}:{node.port}" for node in reply.node_endpoints}
    expect(f"addresses in the reply: {addresses}", True, addresses == {topic.leader_id: topic.leader})


NO_LEADER_IN_FETCH = defect(
    Reply(FetchRequest, f"{PART}.current_leader.leader_id", increment),
    Reply(FetchRequest, f"{PART}.current_leader.leader_epoch", decrement),
    Reply(FetchRequest, "node_endpoints", ()),
    Reply(FetchRequest, "node_endpoints.port", increment),
)


@clause("FET-40", "former leader")
@sweep(FetchRequest, LEADER_SINCE)
@NO_LEADER_IN_FETCH
def test_a_former_leader_names_its_successor(cluster: Cluster, version: int) -> None:
    cluster.connect().need(FetchRequest, version)
    before, after = move_leader(cluster)
    broker = cluster.connect(before.leader)

    def is_refused() -> bool:
        return fetch_reply(broker, after, version)[1].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    cluster.eventually("NOT_LEADER_OR_FOLLOWER", is_refused, WAIT_S)
    reply, answer = fetch_reply(broker, after, version)
    expect_leader(cluster, reply, answer, after)


@clause("FET-40", "old epoch")
@sweep(FetchRequest, LEADER_SINCE)
@NO_LEADER_IN_FETCH
def test_a_fetch_with_an_old_epoch_is_answered_with_the_leader(cluster: Cluster, version: int) -> None:
    cluster.connect().need(FetchRequest, version)
    after = move_leader(cluster)[1]
    leader, old = cluster.leader(after), after.leader_epoch - 1

    def is_fenced() -> bool:
        answer = fetch_reply(leader, after, version, leader_epoch=old)[1]
        return answer.error_code == ErrorCode.FENCED_LEADER_EPOCH

    cluster.eventually("FENCED_LEADER_EPOCH", is_fenced, WAIT_S)  # Metadata may be ahead of the leader
    reply, answer = fetch_reply(leader, after, version, leader_epoch=old)
    expect_leader(cluster, reply, answer, after)


@clause("FET-40", "other replies")
@sweep(FetchRequest, LEADER_SINCE)
@defect(Reply(FetchRequest, f"{PART}.current_leader.leader_id", 1))
@pytest.mark.parametrize(
    ("offset", "error"), [(0, 0), (9, ErrorCode.OFFSET_OUT_OF_RANGE)], ids=["records", "out of range"]
)
def test_a_reply_of_the_leader_names_no_leader(cluster: Cluster, version: int, offset: int, error: int) -> None:
    cluster.connect().need(FetchRequest, version)
    first = min(cluster.target.addresses)
    topic = create_assigned_topic(cluster, [first], [first], [first])
    produce_acknowledged(cluster, topic, b"v")
    reply, answer = fetch_reply(cluster.leader(topic), topic, version, offset, leader_epoch=topic.leader_epoch)
    expect("error code", error, answer.error_code)
    expect("leader and number of addresses", (NONE, 0), (answer.current_leader.leader_id, len(reply.node_endpoints)))


@clause("PRD-30", "former leader")
@sweep(ProduceRequest, 10, 12)
@defect(
    Reply(ProduceRequest, "responses.partition_responses.current_leader.leader_epoch", decrement),
    Reply(ProduceRequest, "node_endpoints.port", increment),
)
def test_a_former_leader_names_its_successor_to_a_producer(cluster: Cluster, version: int) -> None:
    cluster.connect().need(ProduceRequest, version)
    before, after = move_leader(cluster)
    broker = cluster.connect(before.leader)

    def produce() -> tuple[Any, Any]:
        reply = broker.call(produce_request(after, batch(b"v")), version)
        return reply, only(only(reply.responses).partition_responses)

    cluster.eventually(
        "NOT_LEADER_OR_FOLLOWER", lambda: produce()[1].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, WAIT_S
    )
    reply, answer = produce()
    expect_leader(cluster, reply, answer, after)


# -- racks ------------------------------------------------------------------------------------------


def racks_of(cluster: Cluster) -> dict[int, str]:
    """Return the racks of the brokers; raises Unsupported unless the target selects replicas by rack."""
    cluster.need_brokers(2)
    with cluster.connect() as broker:
        found = {node.node_id: node.rack for node in broker.metadata().brokers}
    if cluster.reported("replica_selector_class") in (None, "", "leader"):
        raise Unsupported("the target has no replica.selector.class")
    if not all(found.values()) or len(set(found.values())) < 2:
        raise Unsupported(f"the brokers are not in two racks: {found}")
    return {node: str(rack) for node, rack in found.items()}


def create_across_racks(cluster: Cluster) -> tuple[Topic, int, dict[int, str]]:
    """Return partition 2 of a topic with three records, its follower in another rack, and the racks of all brokers."""
    racks = racks_of(cluster)
    leader = min(racks)
    follower = next(node for node in sorted(racks) if racks[node] != racks[leader])
    topic = create_assigned_topic(cluster, [follower, leader], [follower, leader], [leader, follower])
    produce_acknowledged(cluster, topic, b"a", b"b", b"c")
    return topic, follower, racks


def outcome(answer: PartitionData) -> tuple[int, int, int]:
    """Return error code, preferred replica and number of records."""
    return answer.error_code, answer.preferred_read_replica, len(records_of(answer.records))


@clause("FET-41")
@sweep(FetchRequest, RACKS_SINCE)
@defect(
    Request(FetchRequest, "rack_id", ""),
    Reply(FetchRequest, f"{PART}.preferred_read_replica", increment),
    Reply(FetchRequest, f"{PART}.records", batch(b"v")),
)
def test_a_consumer_is_sent_to_the_replica_in_its_rack(cluster: Cluster, version: int) -> None:
    cluster.connect().need(FetchRequest, version)
    topic, follower, racks = create_across_racks(cluster)
    leader, near = cluster.leader(topic), cluster.connect(cluster.target.addresses[follower])

    def at_leader() -> tuple[int, int, int]:
        return outcome(fetch_reply(leader, topic, version, 1, rack=racks[follower])[1])

    def at_follower() -> tuple[int, int, int]:
        return outcome(fetch_reply(near, topic, version, 1, rack=racks[follower])[1])

    cluster.eventually(f"error 0, preferred replica {follower}, 0 records", lambda: at_leader() == (0, follower, 0))
    cluster.eventually("error 0, no preferred replica, 2 records", lambda: at_follower() == (0, NONE, 2))


@clause("FET-42")
@sweep(FetchRequest, RACKS_SINCE)
@pytest.mark.parametrize("place", ["the leader's rack", "a rack without a replica"])
@defect(Reply(FetchRequest, f"{PART}.preferred_read_replica", 1), Reply(FetchRequest, f"{PART}.records", b""))
def test_other_consumers_are_served_by_the_leader(cluster: Cluster, version: int, place: str) -> None:
    cluster.connect().need(FetchRequest, version)
    racks = racks_of(cluster)
    nodes = sorted(racks)  # with three brokers in two racks, a follower is in the leader's rack
    topic = create_assigned_topic(cluster, nodes[::-1], nodes[::-1], nodes)
    produce_acknowledged(cluster, topic, b"a", b"b", b"c")
    rack = racks[topic.leader_id] if place == "the leader's rack" else UNUSED_RACK
    found = outcome(fetch_reply(cluster.leader(topic), topic, version, rack=rack)[1])
    expect("error code, preferred replica and number of records", (0, NONE, 3), found)


@clause("FET-43", "offset")
@sweep(FetchRequest, RACKS_SINCE)
@defect(
    Request(FetchRequest, "topics.partitions.fetch_offset", 0),
    Reply(FetchRequest, f"{PART}.error_code", without_error(ErrorCode.OFFSET_OUT_OF_RANGE)),
    Reply(FetchRequest, f"{PART}.preferred_read_replica", 2),
)
def test_an_offset_that_no_replica_has_is_out_of_range(cluster: Cluster, version: int) -> None:
    """Sent to the follower, the consumer would ask for the offset there again, and be sent back."""
    cluster.connect().need(FetchRequest, version)
    topic, follower, racks = create_across_racks(cluster)
    found = outcome(fetch_reply(cluster.leader(topic), topic, version, 4, rack=racks[follower])[1])
    expect("error code, preferred replica, records", (ErrorCode.OFFSET_OUT_OF_RANGE, NONE, 0), found)


@clause("FET-43", "stopped")
@pytest.mark.cluster_fault
@pytest.mark.slow
@defect(Reply(FetchRequest, f"{PART}.preferred_read_replica", 2), Reply(FetchRequest, f"{PART}.records", b""))
def test_a_stopped_replica_is_not_preferred(cluster: Cluster) -> None:
    cluster.need(STOP_NODE)
    topic, follower, racks = create_across_racks(cluster)
    leader = cluster.leader(topic)
    version = leader.version_of(FetchRequest, RACKS_SINCE)

    def fetch() -> tuple[int, int, int]:
        return outcome(fetch_reply(leader, topic, version, rack=racks[follower])[1])

    cluster.eventually("a redirection while it runs", lambda: fetch()[1] == follower)
    cluster.stop(follower)
    cluster.eventually("error 0, no preferred replica, 3 records", lambda: fetch() == (0, NONE, 3), FAILOVER_S)


# -- where replicas are (KIP-36) --------------------------------------------------------------------


@clause("MD-20")
@sweep(MetadataRequest, 1)
@defect(Reply(MetadataRequest, "brokers.rack", None), Reply(DescribeClusterRequest, "brokers.rack", "r"))
def test_metadata_and_describe_cluster_return_the_same_racks(cluster: Cluster, version: int) -> None:
    with cluster.connect() as broker:
        listed = {node.node_id: node.rack for node in broker.call(MetadataRequest(topics=()), version).brokers}
        described = {node.broker_id: node.rack for node in broker.call(DescribeClusterRequest()).brokers}
    if not any(listed.values()) and not any(described.values()):
        raise Unsupported("no broker of the target has a rack")
    expect(f"every broker has a rack: {listed}", True, all(listed.values()))
    expect(f"racks in DescribeCluster: {described}, in Metadata: {listed}", True, described == listed)


@clause("ADM-43")
@sweep(CreateTopicsRequest, 4)
@pytest.mark.parametrize("factor", [2, 3])
@defect(Reply(MetadataRequest, "topics.partitions.replica_nodes", (1, 3)))
def test_replicas_are_spread_over_the_racks(cluster: Cluster, version: int, factor: int) -> None:
    cluster.connect().need(CreateTopicsRequest, version)
    cluster.need_brokers(factor)
    racks, name = racks_of(cluster), cluster.topic_name()
    created = create(cluster, new_topic(name, SPREAD_PARTITIONS, factor), version=version)
    expect("error code of CreateTopics", 0, created[name].error_code)

    def replicas() -> list[tuple[int, ...]] | None:
        found = cluster.describe(name)
        listed = [part.replica_nodes for part in found.partitions] if found else []
        return listed if len(listed) == SPREAD_PARTITIONS else None

    for nodes in cluster.eventually(f"{SPREAD_PARTITIONS} partitions", replicas):
        used = {racks[node] for node in nodes}
        expect(f"racks of the replicas {nodes}", min(factor, len(set(racks.values()))), len(used))
