"""DeleteRecords, log directories, elections, reassignments, DescribeCluster and ACLs."""

from collections import Counter
from typing import Any

import pytest

from highwater.conformance.cases.support.admin import TIMEOUT_MS, controller
from highwater.conformance.cases.support.reassignments import (
    PREFERRED,
    UNCLEAN,
    await_replicas,
    elect,
    ongoing_reassignments,
    reassign,
)
from highwater.conformance.cases.support.replicas import expect_values, produce_acknowledged, values_at
from highwater.conformance.clause import clause, era, sweep
from highwater.conformance.client.broker import EARLIEST, NOW_MS, Broker, Topic, batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import GuardOff, Reply, Request, defect
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Unsupported
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.metadata import DescribeClusterRequest, MetadataRequest
from highwater.reference.wire.messages.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from highwater.reference.wire.messages.security import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)

UNKNOWN_BROKER, MISSING = 999, 1000
DAY_MS = 86_400_000
WITH_KIND = 1
NOT_REQUESTED = -(1 << 31)


@pytest.fixture
def topic(cluster: Cluster) -> Topic:
    """Return a topic with one partition: the cases name partition 0 in requests about replicas."""
    return cluster.create_topic()


# -- records (KIP-107) -----------------------------------------------------------------------------------


def delete_records(
    broker: Broker, topic: Topic, offset: int, *, partition: int | None = None, version: int | None = None
) -> Any:
    """Delete records and return the result of the partition."""
    part = DeleteRecordsPartition(partition_index=topic.partition if partition is None else partition, offset=offset)
    topics = (DeleteRecordsTopic(name=topic.name, partitions=(part,)),)
    reply = broker.call(DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS), version, TIMEOUT_MS / 1000 + 5)
    return only(only(reply.topics).partitions)


def answer(result: Any) -> tuple[int, int]:
    return result.error_code, result.low_watermark


@pytest.fixture
def filled_leader(leader: Broker, topic: Topic) -> Broker:
    """Return a connection to the leader of a topic with five records."""
    for _ in range(5):
        expect("error code of Produce", 0, leader.produce(topic, batch(b"v")).error_code)
    return leader


@clause("ADM-6")
@defect(Reply(DeleteRecordsRequest, "topics.partitions.low_watermark", 0))
@sweep(DeleteRecordsRequest)
def test_records_before_an_offset_go(filled_leader: Broker, topic: Topic, version: int) -> None:
    expect("error code and low watermark", (0, 3), answer(delete_records(filled_leader, topic, 3, version=version)))
    expect("start of the log", 3, filled_leader.list_offset(topic, EARLIEST).offset)
    expect(
        "error code of a fetch below the start", ErrorCode.OFFSET_OUT_OF_RANGE, filled_leader.fetch(topic, 2).error_code
    )
    expect("error code of a fetch at the start", 0, filled_leader.fetch(topic, 3).error_code)
    expect("end offset", 5, filled_leader.end_offset(topic))


@clause("ADM-6", "all")
@defect(Reply(DeleteRecordsRequest, "topics.partitions.low_watermark", -1))
def test_minus_one_is_the_high_watermark(filled_leader: Broker, topic: Topic) -> None:
    expect("error code and low watermark", (0, 5), answer(delete_records(filled_leader, topic, -1)))
    expect("start of the log", 5, filled_leader.list_offset(topic, EARLIEST).offset)
    expect("offset of the next record", 5, filled_leader.produce(topic, batch(b"v")).base_offset)


@clause("ADM-6", "two policies")
@pytest.mark.parametrize("policies", ["compact,delete", "compact, delete", "delete ,compact"])
@defect(Reply(DeleteRecordsRequest, "topics.partitions.error_code", ErrorCode.POLICY_VIOLATION))
def test_records_go_if_deletion_is_one_of_two_policies(cluster: Cluster, policies: str) -> None:
    """Blanks around the items of a list do not belong to them."""
    topic = cluster.create_topic(configs={"cleanup.policy": policies})
    leader = cluster.leader(topic)
    expect("error code of Produce", 0, leader.produce(topic, batch(b"v")).error_code)
    expect("error code and low watermark", (0, 1), answer(delete_records(leader, topic, 1)))


@clause("ADM-6", "again")
@defect(Reply(DeleteRecordsRequest, "topics.partitions.low_watermark", 1))
def test_the_start_of_a_log_does_not_fall(filled_leader: Broker, topic: Topic) -> None:
    expect("error code and low watermark", (0, 3), answer(delete_records(filled_leader, topic, 3)))
    expect(
        "error code and low watermark for an earlier offset", (0, 3), answer(delete_records(filled_leader, topic, 1))
    )


@clause("ADM-29")
@defect(Reply(DeleteRecordsRequest, "topics.partitions.error_code", 0))
@pytest.mark.parametrize("offset", [6, -2], ids=["beyond", "negative"])
def test_records_that_are_not_there_cannot_go(filled_leader: Broker, topic: Topic, offset: int) -> None:
    expect("error code", ErrorCode.OFFSET_OUT_OF_RANGE, delete_records(filled_leader, topic, offset).error_code)
    expect("start of the log", 0, filled_leader.list_offset(topic, EARLIEST).offset)


@clause("ADM-29", "unknown partition")
@defect(Reply(DeleteRecordsRequest, "topics.partitions.error_code", 0))
def test_a_partition_that_is_not_there_loses_none(leader: Broker, topic: Topic) -> None:
    expect(
        "error code",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        delete_records(leader, topic, 0, partition=MISSING).error_code,
    )


@clause("ADM-29", "not the leader")
@defect(Reply(DeleteRecordsRequest, "topics.partitions.error_code", 0))
def test_only_the_leader_deletes_records(cluster: Cluster, topic: Topic) -> None:
    cluster.need_brokers(2)
    other = next(address for node, address in cluster.target.addresses.items() if node != topic.leader_id)
    expect("error code", ErrorCode.NOT_LEADER_OR_FOLLOWER, delete_records(cluster.connect(other), topic, 0).error_code)


@clause("ADM-30")
@defect(Reply(DeleteRecordsRequest, "topics.partitions.error_code", 0))
def test_a_compacted_topic_keeps_its_records(cluster: Cluster) -> None:
    topic = cluster.create_topic(configs={"cleanup.policy": "compact"})
    leader = cluster.leader(topic)
    expect("error code of Produce", 0, leader.produce(topic, batch(b"v")).error_code)
    expect("error code", ErrorCode.POLICY_VIOLATION, delete_records(leader, topic, 1).error_code)
    expect("start of the log", 0, leader.list_offset(topic, EARLIEST).offset)


# -- log directories (KIP-113) ------------------------------------------------------------------------------


def log_sizes(
    broker: Broker, *topics: DescribableLogDirTopic, version: int | None = None
) -> dict[tuple[str, int], int]:
    """Return log sizes in bytes by partition; without topics, of all."""
    reply = broker.call(DescribeLogDirsRequest(topics=topics or None), version)
    expect("error codes", True, {0} == {reply.error_code, *(result.error_code for result in reply.results)})
    return {
        (topic.name, part.partition_index): part.partition_size
        for result in reply.results
        for topic in result.topics
        for part in topic.partitions
    }


@clause("ADM-31")
@defect(Reply(DescribeLogDirsRequest, "results.topics.partitions.partition_size", 0))
@sweep(DescribeLogDirsRequest, 0, 4)
def test_the_size_of_a_log_is_told(leader: Broker, topic: Topic, version: int) -> None:
    requested = DescribableLogDirTopic(topic=topic.name, partitions=(topic.partition,))
    before = log_sizes(leader, requested, version=version)
    expect("error code of Produce", 0, leader.produce(topic, batch(b"v" * 1000)).error_code)
    after = log_sizes(leader, requested, version=version)
    replica = (topic.name, topic.partition)
    expect("replicas", [[replica], [replica]], [list(before), list(after)])
    # How a batch is stored is left to the broker, but it takes some bytes.
    expect("the size has grown", True, 0 <= before[replica] < after[replica])


@clause("ADM-31", "all")
@defect(Reply(DescribeLogDirsRequest, "results.topics", ()))
def test_null_asks_for_all_logs(leader: Broker, topic: Topic) -> None:
    expect("the topic is among them", True, (topic.name, 0) in log_sizes(leader))


@clause("ADM-31", "none")
@era(since="3.9")  # 2.8.2 returns all logs
@defect(Request(DescribeLogDirsRequest, "topics", None))
def test_an_empty_list_asks_for_no_log(leader: Broker, topic: Topic) -> None:
    reply = leader.call(DescribeLogDirsRequest(topics=()))
    expect("error codes", True, {0} == {reply.error_code, *(result.error_code for result in reply.results)})
    expect("number of topics", 0, sum(len(result.topics) for result in reply.results))


@clause("ADM-31", "segments")
@defect(Reply(DescribeLogDirsRequest, "results.topics.partitions.partition_size", lambda size: min(size, 1000)))
def test_all_segments_of_a_log_count(cluster: Cluster) -> None:
    """A record that is two days newer than the first one of its segment begins the next segment."""
    topic = cluster.create_topic(configs={"segment.ms": str(DAY_MS)})
    leader, sizes = cluster.leader(topic), list[int]()
    requested = DescribableLogDirTopic(topic=topic.name, partitions=(topic.partition,))
    for number in range(3):
        data = batch(b"v" * 1000, timestamp_ms=NOW_MS + 2 * DAY_MS * number)
        expect("error code of Produce", 0, leader.produce(topic, data).error_code)
        sizes += log_sizes(leader, requested).values()
    expect(f"the sizes {sizes} grow", True, len(sizes) == 3 and sizes[0] < sizes[1] < sizes[2])


@clause("ADM-31", "unknown")
@defect(Request(DescribeLogDirsRequest, "topics", None))
def test_a_log_that_is_not_there_is_left_out(cluster: Cluster, leader: Broker) -> None:
    requested = DescribableLogDirTopic(topic=cluster.name(), partitions=(0,))
    expect("log sizes", True, log_sizes(leader, requested) == {})


# -- leaders (KIP-460) -----------------------------------------------------------------------------------


@clause("ADM-32")
@defect(Reply(ElectLeadersRequest, "replica_election_results.partition_result.error_code", 0))
@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN], ids=["preferred", "unclean"])
def test_a_leader_that_is_right_stays(cluster: Cluster, broker: Broker, topic: Topic, kind: int) -> None:
    version = broker.version_of(ElectLeadersRequest, WITH_KIND)
    expect("error code", ErrorCode.ELECTION_NOT_NEEDED, elect(cluster, topic.name, kind=kind, version=version))


@clause("ADM-32", "unknown")
@defect(Reply(ElectLeadersRequest, "replica_election_results.partition_result.error_code", 0))
def test_a_partition_that_is_not_there_elects_nobody(cluster: Cluster, topic: Topic) -> None:
    expect("error code of a partition", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, elect(cluster, topic.name, MISSING))
    expect("error code of a topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, elect(cluster, cluster.name()))


@clause("ADM-33")
@defect(
    Reply(ElectLeadersRequest, "replica_election_results.partition_result.error_code", ErrorCode.ELECTION_NOT_NEEDED)
)
@sweep(ElectLeadersRequest)
def test_the_preferred_replica_comes_to_lead(cluster: Cluster, version: int) -> None:
    cluster.need_brokers(2)
    first, second = sorted(cluster.target.addresses)[:2]
    topic = cluster.create_topic(assignment=[first, second])
    cluster.eventually("both to be in sync", lambda: set(cluster.isr_of(topic)) == {first, second}, 15.0)
    expect("error code of the reassignment", 0, reassign(cluster, topic.name, (second, first)))
    await_replicas(cluster, topic, (second, first))
    expect("error code", 0, elect(cluster, topic.name, version=version))
    cluster.eventually("the preferred leader", lambda: cluster.topic(topic.name).leader_id == second)


# -- reassignment (KIP-455) ------------------------------------------------------------------------------


@clause("ADM-34")
@defect(
    GuardOff("AnnounceBothReplicaSets"),
    GuardOff("MoveLeaderToTarget"),
    Reply(AlterPartitionReassignmentsRequest, "responses.partitions.error_code", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
)
def test_a_replica_moves_with_its_records(cluster: Cluster) -> None:
    cluster.need_brokers(2)
    first, second = sorted(cluster.target.addresses)[:2]
    topic = cluster.create_topic(assignment=[first])
    expect("error code of Produce", 0, cluster.leader(topic).produce(topic, batch(b"v")).error_code)
    expect("error code", 0, reassign(cluster, topic.name, (second,)))
    await_replicas(cluster, topic, (second,))
    moved = cluster.topic(topic.name, excluded_leader=first)
    expect("in-sync replicas", (second,), cluster.isr_of(moved))
    leader = cluster.leader(moved)
    cluster.eventually("the record", lambda: bool(leader.fetch(moved, 0).records))


@clause("ADM-34", "back")
@defect(
    Reply(AlterPartitionReassignmentsRequest, "responses.partitions.error_code", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    Reply(FetchRequest, "responses.partitions.records", b""),
)
def test_a_replica_moves_away_and_back_with_its_records(cluster: Cluster) -> None:
    """A broker that gave up its replica takes it again, with the records that were written meanwhile."""
    cluster.need_brokers(2)
    first, second = sorted(cluster.target.addresses)[:2]
    topic, values = cluster.create_topic(assignment=[first]), [b"0"]
    produce_acknowledged(cluster, topic, *values)
    for number, node in enumerate((second, first, second, first), start=1):
        expect("error code", 0, reassign(cluster, topic.name, (node,)))
        await_replicas(cluster, topic, (node,))
        topic = cluster.topic(topic.name, excluded_leader=topic.leader_id)
        values.append(b"%d" % number)
        produce_acknowledged(cluster, topic, values[-1])
        expect_values(f"values at broker {node}", values, values_at(cluster.leader(topic), topic))


@clause("ADM-35")
@defect(Reply(AlterPartitionReassignmentsRequest, "responses.partitions.error_code", 0))
@pytest.mark.parametrize(
    "replicas", [(UNKNOWN_BROKER,), (), (1, 1), (-1,)], ids=["unknown", "nobody", "twice", "negative"]
)
def test_replicas_that_cannot_be_are_refused(cluster: Cluster, topic: Topic, replicas: tuple[int, ...]) -> None:
    ids = tuple(topic.leader_id if node == 1 else node for node in replicas)
    before = cluster.describe(topic.name)
    expect("error code", ErrorCode.INVALID_REPLICA_ASSIGNMENT, reassign(cluster, topic.name, ids))
    after = cluster.describe(topic.name)
    placed = [only(description.partitions).replica_nodes for description in (before, after) if description]
    expect("replicas afterwards", placed[0], placed[1])


@clause("ADM-35", "unknown partition")
@defect(Reply(AlterPartitionReassignmentsRequest, "responses.partitions.error_code", 0))
def test_a_partition_that_is_not_there_does_not_move(cluster: Cluster, topic: Topic) -> None:
    node = topic.leader_id
    expect(
        "error code of a partition",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        reassign(cluster, topic.name, (node,), MISSING),
    )
    expect("error code of a topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reassign(cluster, cluster.name(), (node,)))


@clause("ADM-35", "factor")
@defect(Reply(AlterPartitionReassignmentsRequest, "responses.partitions.error_code", 0))
def test_the_number_of_replicas_may_be_held(cluster: Cluster, broker: Broker) -> None:
    cluster.need_brokers(2)
    broker.version_of(AlterPartitionReassignmentsRequest, 1)
    first, second = sorted(cluster.target.addresses)[:2]
    topic = cluster.create_topic(assignment=[first])
    error = reassign(cluster, topic.name, (first, second), allow_replication_factor_change=False)
    expect("error code", ErrorCode.INVALID_REPLICATION_FACTOR, error)


@clause("ADM-36")
@defect(Reply(AlterPartitionReassignmentsRequest, "responses.partitions.error_code", 0))
def test_there_is_nothing_to_cancel(cluster: Cluster, topic: Topic) -> None:
    expect("error code", ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, reassign(cluster, topic.name, None))


@clause("ADM-37")
@defect(Reply(ListPartitionReassignmentsRequest, "error_code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
def test_nothing_moves(cluster: Cluster, topic: Topic) -> None:
    expect("reassignments of the topic", (), ongoing_reassignments(cluster, topic.name))
    expect("reassignments of an unknown topic", (), ongoing_reassignments(cluster, cluster.name()))
    expect(
        "the topic is not in the list of all reassignments",
        True,
        topic.name not in {moving_topic.name for moving_topic in ongoing_reassignments(cluster)},
    )


@clause("ADM-50")
@defect(Reply(MetadataRequest, "topics.partitions.leader_id", 1))
def test_the_leaders_of_a_new_topic_are_spread(cluster: Cluster) -> None:
    cluster.need_brokers(2)
    brokers = len(cluster.target.addresses)
    found = cluster.describe(cluster.create_topic(partitions=2 * brokers, replicas=1).name)
    leaders = Counter(part.leader_id for part in found.partitions) if found else Counter()
    expect(f"several brokers lead: partitions by leader {dict(leaders)}", True, len(leaders) > 1)


# -- the cluster (KIP-700) -------------------------------------------------------------------------------


@clause("ADM-38")
@defect(Reply(DescribeClusterRequest, "brokers", ()), Reply(DescribeClusterRequest, "cluster_id", "another"))
@sweep(DescribeClusterRequest, 0, 1)
def test_the_cluster_is_as_metadata_tells_it(broker: Broker, version: int) -> None:
    found = broker.call(DescribeClusterRequest(), version)
    known = broker.call(MetadataRequest(topics=()), 8)
    expect("error code", 0, found.error_code)
    expect("cluster id", known.cluster_id, found.cluster_id)
    reported = {(node.broker_id, node.host, node.port) for node in found.brokers}
    expect("brokers", True, reported == {(node.node_id, node.host, node.port) for node in known.brokers})
    expect("the controller is one of them", True, found.controller_id in {node for node, *_ in reported})
    expect("authorized operations when not requested", NOT_REQUESTED, found.cluster_authorized_operations)


# -- access control lists (KIP-140) ----------------------------------------------------------------------


ACL = AclCreation(resource_type=2, resource_name="hw-t", principal="User:hw", host="*", operation=3, permission_type=3)


@clause("ADM-39")
@defect(Reply(CreateAclsRequest, "results.error_code", 0), Reply(DeleteAclsRequest, "filter_results.error_code", 0))
def test_without_an_authorizer_there_are_no_lists(cluster: Cluster) -> None:
    any_of_it: dict[str, Any] = {"resource_name_filter": "hw-t", "principal_filter": None, "host_filter": None}
    wanted = DescribeAclsRequest(resource_type_filter=2, operation=1, permission_type=1, **any_of_it)
    acl_filter = DeleteAclsFilter(resource_type_filter=2, operation=1, permission_type=1, **any_of_it)
    with controller(cluster) as broker:
        if broker.call(wanted).error_code != ErrorCode.SECURITY_DISABLED:
            raise Unsupported("the target has an authorizer")
        created = only(broker.call(CreateAclsRequest(creations=(ACL,))).results).error_code
        deleted = only(broker.call(DeleteAclsRequest(filters=(acl_filter,))).filter_results).error_code
    expect("error codes", (ErrorCode.SECURITY_DISABLED, ErrorCode.SECURITY_DISABLED), (created, deleted))


@clause("ADM-20", "moved")
@defect(Reply(ProduceRequest, "responses.partition_responses.error_code", ErrorCode.NOT_LEADER_OR_FOLLOWER))
def test_a_former_replica_serves_a_new_topic_of_the_same_name(cluster: Cluster) -> None:
    """The broker gave up its replica before the first topic of this name was deleted."""
    cluster.need_brokers(2)
    first, second = sorted(cluster.target.addresses)[:2]
    topic = cluster.create_topic(assignment=[first])
    expect("error code of Produce", 0, cluster.leader(topic).produce(topic, batch(b"old")).error_code)
    expect("error code of the reassignment", 0, reassign(cluster, topic.name, (second,)))
    await_replicas(cluster, topic, (second,))
    cluster.delete_topics(topic.name)

    def is_deleted() -> bool:
        with cluster.connect() as broker:
            return only(broker.metadata(topic.name).topics).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    cluster.eventually("the deletion", is_deleted, 20.0)
    again = cluster.create_topic(name=topic.name, assignment=[first])
    answer = cluster.leader(again).produce(again, batch(b"new"))
    expect("error code and base offset", (0, 0), (answer.error_code, answer.base_offset))
