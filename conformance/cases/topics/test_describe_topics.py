"""Descriptions of topics: pages, many topics, unusual names, and DescribeCluster."""

from collections.abc import Iterator

import pytest

from highwater.conformance.clause import clause, era, sweep
from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.requests import message
from highwater.conformance.defects import Reply, Request, defect
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import TargetFailure, Unsupported
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import (
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    TopicRequest,
)
from highwater.reference.wire.messages.topics import CreateTopicsRequest

NOT_REQUESTED = -(2**31)
MANY, AT_ONCE = 100, 10
PARTITIONS = 5
LONGEST = 249
PartitionKey = tuple[str, int]


def page(
    broker: Broker, names: list[str], limit: int, at: PartitionKey | None = None
) -> DescribeTopicPartitionsResponse:
    requested = tuple(TopicRequest(name=name) for name in names)
    request = message(DescribeTopicPartitionsRequest, topics=requested, response_partition_limit=limit, cursor=at)
    reply: DescribeTopicPartitionsResponse = broker.call(request)
    return reply


def places(reply: DescribeTopicPartitionsResponse) -> list[PartitionKey]:
    return [(str(topic.name), part.partition_index) for topic in reply.topics for part in topic.partitions]


def pages(broker: Broker, names: list[str], limit: int) -> Iterator[list[PartitionKey]]:
    """Yield the pages, following the cursor; raises TargetFailure after 100 pages."""
    at: PartitionKey | None = None
    for _ in range(100):
        reply = page(broker, names, limit, at)
        yield places(reply)
        if reply.next_cursor is None:
            return
        at = (reply.next_cursor.topic_name, reply.next_cursor.partition_index)
    raise TargetFailure("expected a last page without cursor, actual more than 100 pages")


@pytest.fixture
def names(cluster: Cluster) -> list[str]:
    cluster.connect().version_of(DescribeTopicPartitionsRequest)
    return sorted(cluster.create_topic(partitions=PARTITIONS).name for _ in range(2))


@clause("MD-10", "pages")
@pytest.mark.parametrize("limit", [1, 2, 5, 7, 1000])
@defect(
    Request(DescribeTopicPartitionsRequest, "response_partition_limit", 3),
    Reply(DescribeTopicPartitionsRequest, "next_cursor", None),
)
def test_pages_hold_each_partition_once_in_order(broker: Broker, names: list[str], limit: int) -> None:
    found = list(pages(broker, names[::-1], limit))  # the reply is sorted by name
    for full_page in found[:-1]:
        expect("partitions on a full page", limit, len(full_page))
    everything = [(name, number) for name in names for number in range(PARTITIONS)]
    expect("all pages together", True, [place for entry in found for place in entry] == everything)


@clause("MD-10", "unknown")
@defect(Reply(DescribeTopicPartitionsRequest, "topics.error_code", 0))
def test_an_unknown_topic_is_told_on_its_page(cluster: Cluster, broker: Broker) -> None:
    name = cluster.name()
    found = only(page(broker, [name], 10).topics)
    expect(
        "name, error code and partitions",
        (name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
        (found.name, found.error_code, len(found.partitions)),
    )


@clause("MD-10", "same")
@defect(Reply(DescribeTopicPartitionsRequest, "topics.partitions.leader_id", 1000))
def test_pages_and_metadata_agree(broker: Broker, names: list[str]) -> None:
    paged = only(page(broker, names[:1], 100).topics)
    whole = only(broker.metadata(names[0]).topics)
    expect("leaders", True, _leaders(paged) == _leaders(whole))


def _leaders(topic: object) -> dict[int, tuple[int, tuple[int, ...]]]:
    parts = topic.partitions  # type: ignore[attr-defined]
    return {part.partition_index: (part.leader_id, part.replica_nodes) for part in parts}


@clause("MD-12")
@sweep(DescribeClusterRequest)
@defect(
    Reply(DescribeClusterRequest, "cluster_id", "another"),
    Reply(DescribeClusterRequest, "brokers", ()),
    Reply(DescribeClusterRequest, "cluster_authorized_operations", 0),
)
def test_describe_cluster_says_what_metadata_says(broker: Broker, version: int) -> None:
    found = broker.call(DescribeClusterRequest(), version)
    known = broker.call(MetadataRequest(topics=()), broker.version_of(MetadataRequest, 2))
    expect("error code and cluster id", (0, known.cluster_id), (found.error_code, found.cluster_id))
    listed = {(node.broker_id, node.host, node.port) for node in found.brokers}
    expect("brokers", True, listed == {(node.node_id, node.host, node.port) for node in known.brokers})
    expect("authorized operations when not requested", NOT_REQUESTED, found.cluster_authorized_operations)


@clause("MD-13")
@sweep(MetadataRequest, 1)
@defect(Reply(MetadataRequest, "topics.is_internal", False), Reply(MetadataRequest, "topics.is_internal", True))
def test_the_topic_of_offsets_is_internal(cluster: Cluster, broker: Broker, version: int) -> None:
    cluster.coordinator(cluster.group())
    report_owned = cluster.create_topic()
    reply = broker.call(MetadataRequest(topics=None), version)
    internal = {topic.name for topic in reply.topics if topic.is_internal}
    expect("another topic is internal", False, report_owned.name in internal)
    if "__consumer_offsets" not in {topic.name for topic in reply.topics}:
        raise Unsupported("committed offsets are in no topic that Metadata shows")
    expect("__consumer_offsets is internal", True, "__consumer_offsets" in internal)


@pytest.fixture
def hundred_topics(cluster: Cluster) -> list[str]:
    """Create a hundred topics, ten in a request, because a busy broker is slow at it."""
    cluster.connect().version_of(CreateTopicsRequest)
    names = [cluster.topic_name() for _ in range(MANY)]
    for start in range(0, MANY, AT_ONCE):
        wanted = [[name, 1, 1] for name in names[start : start + AT_ONCE]]
        cluster.call_controller(message(CreateTopicsRequest, topics=wanted, timeout_ms=30_000))
    return names


@clause("MD-14")
@defect(Reply(MetadataRequest, "topics", lambda topics: topics[:50]))
def test_a_hundred_topics_are_described_at_once(cluster: Cluster, hundred_topics: list[str]) -> None:
    def all_led() -> bool:
        with cluster.connect() as broker:
            found = broker.metadata(*hundred_topics).topics
        expect("number of topics in the reply", MANY, len(found))
        expect("names", True, {entry.name for entry in found} == set(hundred_topics))
        return all(part.leader_id >= 0 for entry in found for part in entry.partitions if not entry.error_code)

    cluster.eventually("leaders of a hundred topics", all_led, 20.0)


LONGEST_NAME = pytest.param("longest", marks=era("2.8"))
"""The deletion of such a topic stopped a broker of 1.1.1, since the deletion folder has a longer name (KAFKA-4893)."""


@clause("MD-15")
@pytest.mark.parametrize("kind", [LONGEST_NAME, "dots", "dashes", "digits", "capitals"])
@defect(Reply(MetadataRequest, "topics.error_code", ErrorCode.INVALID_TOPIC_EXCEPTION))
def test_every_legal_name_is_a_topic(cluster: Cluster, kind: str) -> None:
    start = cluster.name()
    shapes = {"longest": start.ljust(LONGEST, "x"), "dots": f"...{start}...", "dashes": f"-{start}-"}
    name = {**shapes, "digits": f"0{start.partition('-')[2]}", "capitals": start.upper()}[kind]
    topic = cluster.create_topic(name=name)
    expect("error code and name", (0, name), _described(cluster.connect(), topic.name))


def _described(broker: Broker, name: str) -> tuple[int, str]:
    found = only(broker.metadata(name).topics)
    return found.error_code, str(found.name)


@clause("MD-9", "asked")
@sweep(MetadataRequest, 8)
@defect(Reply(MetadataRequest, "topics.topic_authorized_operations", NOT_REQUESTED))
def test_operations_are_told_when_asked_for(cluster: Cluster, broker: Broker, version: int) -> None:
    topic = cluster.create_topic()
    requested = message(MetadataRequest, topics=[{"name": topic.name}], include_topic_authorized_operations=True)
    found = only(broker.call(requested, version).topics)
    expect("some operation is allowed", True, found.topic_authorized_operations > 0)


@clause("MD-16")
@defect(Reply(MetadataRequest, "topics", lambda topics: topics * 2))
def test_a_topic_that_is_asked_for_twice_is_described_once(broker: Broker, cluster: Cluster) -> None:
    name = cluster.create_topic().name
    expect("name", name, only(broker.metadata(name, name).topics).name)


@clause("MD-17")
@defect(Reply(MetadataRequest, "brokers", ()))
def test_every_broker_is_listed_with_an_address_that_answers(cluster: Cluster, broker: Broker) -> None:
    reply = broker.call(MetadataRequest(topics=()), 1)
    expect("there are brokers", True, bool(reply.brokers))
    for node in reply.brokers:
        with cluster.connect(f"{node.host}:{node.port}") as other:
            again = other.call(MetadataRequest(topics=()), 1)
        expect("the broker lists itself", True, node.node_id in {one.node_id for one in again.brokers})


@clause("MD-18")
@defect(Reply(MetadataRequest, "topics.error_code", 0))
def test_errors_and_topics_stand_side_by_side(cluster: Cluster, broker: Broker) -> None:
    good, unknown = cluster.create_topic().name, cluster.name()
    found = {topic.name: topic.error_code for topic in broker.metadata(good, unknown, "a b").topics}
    expect(
        "error codes",
        True,
        found == {good: 0, unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "a b": ErrorCode.INVALID_TOPIC_EXCEPTION},
    )
