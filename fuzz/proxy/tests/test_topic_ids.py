"""The proxy learns names of topics from a cluster: a topic that does not exist, and one that is created again."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from highwater.conformance.targets.reference import ReferenceCluster
from highwater.fuzz.proxy.faults import parse_fault
from highwater.fuzz.proxy.matching import Armed, Faults, Subject
from highwater.fuzz.proxy.run import FaultProxy
from highwater.fuzz.proxy.summary import table
from highwater.fuzz.proxy.tests.client import Client
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from highwater.reference.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from highwater.reference.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from highwater.reference.wire.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(120)]
BY_NAME, BY_ID, METADATA, OLD_METADATA = 12, 13, 12, 9


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultProxy]:
    with ReferenceCluster(1) as cluster, FaultProxy(cluster.bootstrap) as found:
        yield found


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[Client]:
    found = Client(proxy.bootstrap)
    yield found
    found.close()


def create(client: Client, name: str) -> None:
    """Create a topic, or create it again, with a version that returns no topic id."""
    client.ask(DeleteTopicsRequest(topic_names=(name,), timeout_ms=10_000))
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    assert client.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=10_000)).topics[0].error_code == 0


def topic_id(client: Client, name: str, version: int = METADATA) -> bytes:
    asked = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=False)
    found: bytes = client.ask(asked, version).topics[0].topic_id
    return found


def produce(name: str) -> ProduceRequest:
    data = TopicProduceData(name=name, partition_data=(PartitionProduceData(index=0, records=None),))
    return ProduceRequest(acks=1, timeout_ms=1_000, topic_data=(data,))


def fetch(**topic: Any) -> FetchRequest:
    return FetchRequest(topics=(FetchTopic(**topic, partitions=(FetchPartition(partition=0),)),), max_wait_ms=0)


def struck(proxy: FaultProxy, armed: Armed) -> tuple[int, int]:
    proxy.remove(armed)
    return armed.struck, sum(armed.undecided.values())


@pytest.mark.parametrize("version", [OLD_METADATA, METADATA])
def test_a_topic_that_does_not_exist_teaches_nothing(proxy: FaultProxy, client: Client, version: int) -> None:
    """The id of such a topic, and of every topic below version 10, is zero: it is no id."""
    create(client, "orders")
    topic_id(client, "orders", OLD_METADATA)
    assert topic_id(client, "missing", version) == bytes(16)
    lines = [proxy.add(f"Produce topic={name}: delay 1 ms") for name in ("missing", "orders")]
    for _ in range(5):
        client.ask(produce("orders"), BY_NAME)
    assert [struck(proxy, armed) for armed in lines] == [(0, 0), (5, 0)]


def test_what_an_incremental_fetch_names_is_not_all_that_it_fetches(proxy: FaultProxy, client: Client) -> None:
    create(client, "session")
    line = proxy.add("Fetch topic=session partition=0: delay 1 ms")
    session = client.ask(replace(fetch(topic="session"), session_epoch=0), BY_NAME).session_id
    assert session
    for epoch in (1, 2):
        client.ask(FetchRequest(session_id=session, session_epoch=epoch, max_wait_ms=0), BY_NAME)
    forgotten = (ForgottenTopic(topic="other", partitions=(0,)), ForgottenTopic(topic="session", partitions=(1,)))
    last = FetchRequest(session_id=session, session_epoch=3, max_wait_ms=0, forgotten_topics_data=forgotten)
    client.ask(last, BY_NAME)
    unknown = FetchRequest(session_id=session + 1, session_epoch=4, max_wait_ms=0)
    client.ask(unknown, BY_NAME)
    assert struck(proxy, line) == (4, 1)


def test_an_error_in_a_fetch_session_is_of_the_partitions_of_the_line(proxy: FaultProxy, client: Client) -> None:
    create(client, "failing")
    session = client.ask(replace(fetch(topic="failing"), session_epoch=0), BY_NAME).session_id
    line = proxy.add("Fetch topic=failing: answer NOT_LEADER_OR_FOLLOWER")
    found = client.ask(FetchRequest(session_id=session, session_epoch=1, max_wait_ms=0), BY_NAME)
    errors = [(each.topic, entry.error_code) for each in found.responses for entry in each.partitions]
    assert errors == [("failing", ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert struck(proxy, line) == (1, 0)


OLD, NEW, NEIGHBOUR = (bytes([number] * 16) for number in (1, 2, 3))


def test_a_topic_is_known_by_its_ids_before_and_after_it_was_created_again() -> None:
    """A client that has learned of the new topic and one that has not are both about the topic of this name."""
    faults = Faults()
    for name, id_, error in [
        ("again", OLD, 0),
        ("neighbour", NEIGHBOUR, 0),
        ("missing", bytes(16), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("neighbour", OLD, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, OLD, ErrorCode.UNKNOWN_TOPIC_ID),
        ("again", NEW, 0),
    ]:
        faults.learn(MetadataResponse(topics=(MetadataResponseTopic(name=name, topic_id=id_, error_code=error),)))
    assert faults.topics == {OLD: "again", NEW: "again", NEIGHBOUR: "neighbour"}
    line = faults.add(parse_fault("Fetch topic=again: close"))
    requests = [fetch(topic_id=id_) for id_ in (OLD, NEW, NEIGHBOUR, bytes(range(16)))]
    found = [faults.strike(Subject("Fetch", BY_ID, "request", "app", lambda: each)) for each in requests]  # noqa: B023
    assert [fault is not None for fault in found] == [True, True, False, False]
    assert list(table(faults)) == [
        "     2 of 2 matching messages: Fetch topic=again: close",
        "     1 more not struck: the request or response states an id of a topic that no response has named",
    ]
    assert line.struck == 2
