"""What each action does to the messages between a client and a broker that is real."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from highwater.conformance.targets.reference import ReferenceCluster
from highwater.fuzz.proxy.run import FaultProxy
from highwater.fuzz.proxy.tests.client import VERSION, WAIT_S, Client
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from highwater.reference.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from highwater.reference.wire.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from highwater.reference.wire.registry import APIS

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(120)]
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
OFFSETS_VERSION = 5


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with ReferenceCluster(1) as found:
        client = Client(found.bootstrap)
        topics = tuple(CreatableTopic(name=name, num_partitions=3, replication_factor=1) for name in ("a", "b"))
        client.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
        client.close()
        yield found.bootstrap


@pytest.fixture
def proxy(cluster: str) -> Iterator[FaultProxy]:
    with FaultProxy(cluster) as found:
        yield found


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[Client]:
    found = Client(proxy.bootstrap)
    yield found
    found.close()


PING = MetadataRequest(topics=())
CREATION = "CreateTopics version 2 of client app"
COORDINATOR = FindCoordinatorRequest(key="g")


def offsets(*partitions: tuple[str, int]) -> ListOffsetsRequest:
    topics = dict.fromkeys(topic for topic, _ in partitions)
    return ListOffsetsRequest(
        topics=tuple(
            ListOffsetsTopic(
                name=topic,
                partitions=tuple(
                    ListOffsetsPartition(partition_index=number, timestamp=-1)
                    for name, number in partitions
                    if name == topic
                ),
            )
            for topic in topics
        )
    )


def new_topic(name: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=(CreatableTopic(name=name, num_partitions=partitions, replication_factor=1),))


def errors(response: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, entry.partition_index): entry.error_code for topic in response.topics for entry in topic.partitions
    }


ALL = offsets(("a", 0), ("a", 1), ("b", 0))


def test_a_request_is_answered_with_an_error(proxy: FaultProxy, client: Client) -> None:
    proxy.add("ListOffsets: answer NOT_LEADER_OR_FOLLOWER once")
    assert set(errors(client.ask(ALL, OFFSETS_VERSION)).values()) == {NOT_LEADER}
    assert set(errors(client.ask(ALL, OFFSETS_VERSION)).values()) == {0}


@pytest.mark.parametrize("side", ["request", "response"])
def test_only_the_named_partitions_have_the_error(proxy: FaultProxy, client: Client, side: str) -> None:
    proxy.add(f"ListOffsets {side} topic=a partition=1: answer NOT_LEADER_OR_FOLLOWER")
    found = errors(client.ask(ALL, OFFSETS_VERSION))
    assert found == {("a", 0): 0, ("a", 1): NOT_LEADER, ("b", 0): 0}
    assert errors(client.ask(offsets(("b", 0)), OFFSETS_VERSION)) == {("b", 0): 0}


def test_a_request_that_is_answered_does_not_reach_the_broker(proxy: FaultProxy, client: Client) -> None:
    proxy.add("CreateTopics: answer REQUEST_TIMED_OUT")
    proxy.add("DeleteTopics response: answer REQUEST_TIMED_OUT")
    creation = new_topic("new")
    assert client.ask(creation).topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "new" not in {topic.name for topic in client.ask(MetadataRequest(topics=None)).topics}
    deleted = client.ask(DeleteTopicsRequest(topic_names=("b",), timeout_ms=10_000))
    assert [(each.name, each.error_code) for each in deleted.responses] == [("b", ErrorCode.REQUEST_TIMED_OUT)]
    named = {topic.name: topic.error_code for topic in client.ask(MetadataRequest(topics=None)).topics}
    assert "b" not in named
    creation = new_topic("b", 3)
    proxy.remove(proxy._faults.lines[0])
    assert client.ask(creation).topics[0].error_code == 0


def test_answers_keep_their_order(proxy: FaultProxy, client: Client) -> None:
    """Although the proxy has an answer at once, the client gets it after those to its earlier requests."""
    proxy.add("FindCoordinator: answer GROUP_AUTHORIZATION_FAILED")
    sent = [client.send(message) for message in (PING, COORDINATOR, PING, COORDINATOR)]
    received = [client.receive() for _ in sent]
    assert [found[0] for found in received if found] == sent
    assert [getattr(found[1], "error_code", 0) for found in received if found] == [0, 30, 0, 30]


@pytest.mark.parametrize("line", ["FindCoordinator: delay 400 ms once", "FindCoordinator response: delay 400 ms once"])
def test_a_delay_holds_back_what_follows(proxy: FaultProxy, client: Client, line: str) -> None:
    proxy.add(line)
    client.ask(PING)
    started = time.monotonic()
    client.send(COORDINATOR)
    client.send(PING)
    assert [found[0] for found in (client.receive(), client.receive()) if found] == [2, 3]
    assert time.monotonic() - started >= 0.4


@pytest.mark.parametrize("side", ["request", "response"])
def test_what_follows_a_lost_message_is_lost(proxy: FaultProxy, client: Client, side: str) -> None:
    proxy.add(f"FindCoordinator {side}: drop")
    client.ask(PING)
    client.send(COORDINATOR)
    client.send(PING)
    assert client.is_silent()
    other = Client(proxy.bootstrap)
    other.ask(PING)
    other.close()


@pytest.mark.parametrize("side", ["request", "response"])
def test_the_connection_ends(proxy: FaultProxy, client: Client, side: str) -> None:
    proxy.add(f"FindCoordinator {side}: close")
    client.ask(PING)
    client.send(COORDINATOR)
    assert client.receive() is None


def test_a_duplicate_arrives_twice_and_has_one_reply(proxy: FaultProxy, client: Client) -> None:
    """The second time the topic exists, and the client gets one response."""
    proxy.add("CreateTopics: duplicate")
    seen = proxy.add("CreateTopics response: delay 0 ms")
    creation = new_topic("twice")
    assert client.ask(creation).topics[0].error_code == 0
    client.ask(PING)
    assert seen.matched == 1


def test_a_copy_arrives_later_on_a_connection_of_its_own(proxy: FaultProxy, client: Client) -> None:
    proxy.add("CreateTopics: repeat 200 ms")
    creation = new_topic("again")
    assert client.ask(creation).topics[0].error_code == 0
    client.close()
    assert wait_for(lambda: proxy.late) == [
        "CreateTopics version 2 of client app, 200 ms late: answered TOPIC_ALREADY_EXISTS"
    ]


def test_a_request_arrives_after_its_connection_has_ended(proxy: FaultProxy, client: Client) -> None:
    proxy.add("CreateTopics: late 300 ms once")
    creation = new_topic("late")
    client.send(creation)
    assert client.receive() is None
    assert wait_for(lambda: proxy.late) == [f"{CREATION}, 300 ms late: answered NONE"]


def wait_for(condition: Any) -> Any:
    """Return what `condition` returns once it is true."""
    end = time.monotonic() + WAIT_S
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return found


def test_a_request_is_overtaken_by_the_next_one(proxy: FaultProxy, client: Client) -> None:
    """The broker creates the topic before it is asked to delete it; responses keep the order of the requests."""
    proxy.add("DeleteTopics: swap once")
    client.ask(PING)
    deletion = client.send(DeleteTopicsRequest(topic_names=("swapped",), timeout_ms=10_000))
    creation = client.send(new_topic("swapped"))
    received = [client.receive(), client.receive()]
    assert [found[0] for found in received if found] == [deletion, creation]
    assert received[0] is not None
    assert received[0][1].responses[0].error_code == 0


def test_the_last_request_is_not_held_back_for_ever(proxy: FaultProxy, client: Client) -> None:
    proxy.add("Metadata: swap")
    client.ask(PING)


def test_a_connection_stands_still(proxy: FaultProxy, client: Client) -> None:
    proxy.add("FindCoordinator: stall 400 ms once")
    started = time.monotonic()
    client.ask(COORDINATOR)
    assert time.monotonic() - started >= 0.4


def test_a_client_hears_nothing_on_any_connection(proxy: FaultProxy, client: Client) -> None:
    proxy.add("FindCoordinator client=app: black-hole 2000 ms")
    client.send(COORDINATOR)
    assert client.is_silent()
    again, neighbour = Client(proxy.bootstrap), Client(proxy.bootstrap, "neighbour")
    again.send(PING)
    assert again.is_silent()
    neighbour.ask(PING)
    assert wait_for(lambda: hears(proxy))
    for each in (again, neighbour):
        each.close()


def hears(proxy: FaultProxy) -> bool:
    """Return whether a new connection of the client gets a response."""
    client = Client(proxy.bootstrap)
    client.send(PING)
    silent = client.is_silent()
    client.close()
    return not silent


def test_addresses_are_those_of_the_proxy(proxy: FaultProxy, client: Client, cluster: str) -> None:
    brokers = client.ask(MetadataRequest(topics=None)).brokers
    assert [f"{broker.host}:{broker.port}" for broker in brokers] != [cluster]
    inner = Client(f"{brokers[0].host}:{brokers[0].port}")
    proxy.add("FindCoordinator: answer COORDINATOR_NOT_AVAILABLE")
    assert inner.ask(COORDINATOR).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    inner.close()


def test_a_reply_is_written_by_the_test(proxy: FaultProxy, client: Client) -> None:
    def reply(request: Any, version: int) -> MetadataResponse:
        assert (version, request.topics) == (VERSION, (MetadataRequestTopic(name="a"),))
        return MetadataResponse(controller_id=77)

    armed = proxy.script("Metadata", reply, "once")
    asked = MetadataRequest(topics=(MetadataRequestTopic(name="a"),))
    assert client.ask(asked).controller_id == 77
    assert client.ask(asked).controller_id != 77
    assert armed.struck == 1


def test_only_versions_that_the_proxy_knows_are_announced(client: Client) -> None:
    announced = client.ask(ApiVersionsRequest(), 0)
    assert announced.error_code == 0
    assert all(each.max_version <= APIS[each.api_key].max_version for each in announced.api_keys)
