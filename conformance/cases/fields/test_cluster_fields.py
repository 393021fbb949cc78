"""Fields of DeleteTopics, Metadata, DescribeTopicPartitions, DescribeCluster and DescribeQuorum."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import pytest

from highwater.conformance.broker import AUTO_CREATION_FLAG_SINCE, Broker, Topic, expect, only
from highwater.conformance.cases.fields.partitions import INT32_MAX, INT32_MIN, PARTITIONS
from highwater.conformance.cases.fields.table import (
    Answers,
    Api,
    Call,
    Row,
    changed,
    check_all,
    later,
    no_items,
    shared,
)
from highwater.conformance.cases.support.admin import TIMEOUT_MS, controller, create, new_topic
from highwater.conformance.clause import clause
from highwater.conformance.cluster import Cluster
from highwater.conformance.defects import Reply, defect, increment
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import (
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from highwater.reference.wire.messages.quorum import DescribeQuorumRequest, QuorumPartition, QuorumTopic
from highwater.reference.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState

UNKNOWN, UNKNOWN_ID, NO_NAME, INVALID, TIMED_OUT = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.INVALID_REQUEST, ErrorCode.REQUEST_TIMED_OUT,
)  # fmt: skip
OTHER_ID: Final = b"\1" * 16
"""An id that no topic has."""
POOL: Final = 20


@dataclass
class World:
    """A topic of three partitions, topics to delete, and the controller."""

    cluster: Cluster

    def __post_init__(self) -> None:
        self._pool: list[str] = []

    @cached_property
    def topic(self) -> Topic:
        return self._topic()

    @cached_property
    def others(self) -> Iterator[Topic]:
        """Return two more topics, again and again, for ordinary items."""
        return itertools.cycle([self._topic(), self._topic()])

    def _topic(self) -> Topic:
        return self.cluster.create_topic(partitions=PARTITIONS, assignment=[min(self.cluster.target.addresses)])

    @cached_property
    def broker(self) -> Broker:
        return self.cluster.connect()

    @cached_property
    def controller(self) -> Broker:
        return controller(self.cluster)

    @cached_property
    def topic_id(self) -> bytes:
        return self.broker.topic_id(self.topic)

    def new_name(self) -> str:
        """Return the name of a topic that exists, and is for one row; several are created at once."""
        if not self._pool:
            names = [self.cluster.topic_name() for _ in range(POOL)]
            found = create(self.cluster, *(new_topic(name) for name in names))
            expect("error codes of CreateTopics", [0] * POOL, [result.error_code for result in found.values()])
            self.cluster.eventually("the topics at the controller", lambda: self.exist(*names))
            self._pool = names
        return self._pool.pop()

    def exist(self, *names: str) -> bool:
        return not any(found.error_code for found in self.controller.metadata(*names).topics)


@pytest.fixture
def world(cluster: Cluster) -> World:
    return World(cluster)


# -- DeleteTopics ------------------------------------------------------------------------------------------

KRAFT_SINCE: Final = "3.3"
"""The controller that used ZooKeeper has other answers for some rows."""
BY_STATE: Final = (6, None)
"""The versions that name topics by name or id."""


def deletion(change: Callable[[str], str] = str) -> Callable[[World], str]:
    return lambda world: change(world.new_name())


def delete(world: World, names: Sequence[str], version: int) -> Answers:
    states = tuple(DeleteTopicState(name=name) for name in names)
    request = DeleteTopicsRequest(topics=states, topic_names=tuple(names), timeout_ms=TIMEOUT_MS)
    reply = call_controller(world, request, version)
    return {result.name: result.error_code for result in reply.responses}


def still_exists(restore: Callable[[str], str]) -> Callable[[World, str], None]:
    """Return a check that the topic whose name a row has changed was not deleted."""
    return lambda world, name: expect("the other topic exists", True, world.exist(restore(name)))


def by_name(*names: int | str, **fields: Any) -> Callable[[World], Any]:
    """Return a builder of a request for new topics, which equal numbers stand for, and for other names."""

    def build(world: World) -> DeleteTopicsRequest:
        new = {each: world.new_name() for each in set(names) if isinstance(each, int)}
        chosen = tuple(new[each] if isinstance(each, int) else each for each in names)
        usual = {
            "topics": tuple(DeleteTopicState(name=name) for name in chosen), "topic_names": chosen,
            "timeout_ms": TIMEOUT_MS,
        }  # fmt: skip
        return DeleteTopicsRequest(**changed(usual, fields))

    return build


NAME, ID, BOTH, NEITHER = "name", "id", "both", "neither"


def by_state(*kinds: str | bytes) -> Callable[[World], Any]:
    """Return a builder of a request for a new topic, named in these ways; other ids are sent as they are."""

    def build(world: World) -> DeleteTopicsRequest:
        name = world.new_name()
        topic_id = only(world.controller.metadata(name, version=10).topics).topic_id
        states = {
            NAME: DeleteTopicState(name=name), ID: DeleteTopicState(topic_id=topic_id), NEITHER: DeleteTopicState(),
            BOTH: DeleteTopicState(name=name, topic_id=topic_id),
        }  # fmt: skip
        return DeleteTopicsRequest(
            topics=tuple(states[each] if isinstance(each, str) else DeleteTopicState(topic_id=each) for each in kinds),
            timeout_ms=TIMEOUT_MS,
        )

    return build


def read_deletions(reply: Any) -> tuple[int, ...]:
    """Return the error code of each answer, in order."""
    return tuple(sorted(result.error_code for result in reply.responses))


def call_controller(world: World, request: Any, version: int) -> Any:
    """Send a request; a version without states has only the names."""
    sent = request if version >= BY_STATE[0] else replace(request, topics=())
    return world.controller.call(sent, version, TIMEOUT_MS / 1000 + 5)


DELETE_TOPICS: Final = Api(DeleteTopicsRequest, deletion(), delete, str, call=call_controller)
DELETED: Final[list[Row | Call]] = [
    Row("name in upper case", deletion(str.upper), UNKNOWN, still_exists(str.lower)),
    Row("name with a blank", deletion(lambda name: name + " "), UNKNOWN, still_exists(str.strip)),
    Row("name empty", lambda world: "", UNKNOWN),
    Row("name invalid", lambda world: "a b", UNKNOWN),
    Row("name of a dot", lambda world: ".", UNKNOWN),
    Row("name too long", lambda world: "x" * 250, UNKNOWN),
    Call("topics empty", by_name(), (), read_deletions),
    Call("timeout 0", by_name(1, timeout_ms=0), frozenset({(0,), (TIMED_OUT,)}), read_deletions),
    Call("timeout negative", by_name(1, timeout_ms=-1), frozenset({(0,), (TIMED_OUT,)}), read_deletions),
    Call("id", by_state(ID), (0,), read_deletions, BY_STATE),
    Call("id unknown", by_state(OTHER_ID), (UNKNOWN_ID,), read_deletions, BY_STATE),
    Call("id unknown beside another", by_state(OTHER_ID, ID), (0, UNKNOWN_ID), read_deletions, BY_STATE),
    Call("name and id", by_state(BOTH), (INVALID,), read_deletions, BY_STATE),
    *later(
        KRAFT_SINCE,
        Call("name twice", by_name(1, 1), (INVALID,), read_deletions),
        Call("name twice among others", by_name(1, 2, 1, 3), (0, 0, INVALID), read_deletions),
        Call("name unknown twice", by_name("none", "none", 1), (0, INVALID), read_deletions),
        Call("id twice", by_state(ID, ID), (INVALID,), read_deletions, BY_STATE),
        Call("id unknown twice", by_state(OTHER_ID, OTHER_ID), (INVALID,), read_deletions, BY_STATE),
        Call("neither name nor id", by_state(NEITHER), (INVALID,), read_deletions, BY_STATE),
        Call("neither beside an id", by_state(NEITHER, ID, NEITHER), (0, INVALID, INVALID), read_deletions, BY_STATE),
        Call("name beside the id of the same topic", by_state(NAME, ID), (INVALID,), read_deletions, BY_STATE),
    ),
]


@clause("FLD-10", "DeleteTopics")
@defect(Reply(DeleteTopicsRequest, "responses.error_code", increment))
@pytest.mark.parametrize("rows", shared(*DELETED))
def test_fields_of_a_deletion_of_topics(world: World, rows: Sequence[Row | Call]) -> None:
    check_all(DELETE_TOPICS, rows, world, world.controller)


# -- Metadata ----------------------------------------------------------------------------------------------

WITHOUT_CREATION: Final = (4, None)
WITH_ID: Final = (12, None)


def topic_name(change: Callable[[str], str]) -> Callable[[World], str]:
    return lambda world: change(world.topic.name)


def send_metadata(world: World, request: Any, version: int) -> Any:
    """Send a request that creates no topic, if the version can say so."""
    return world.broker.call(replace(request, allow_auto_topic_creation=version < AUTO_CREATION_FLAG_SINCE), version)


def described_by_name(world: World, names: Sequence[str], version: int) -> Answers:
    request = MetadataRequest(topics=tuple(MetadataRequestTopic(name=name) for name in names))
    reply = send_metadata(world, request, version)
    return {found.name: (found.error_code, len(found.partitions)) for found in reply.topics}


def metadata(*kinds: str | bytes | None, **fields: Any) -> Callable[[World], Any]:
    """Return a builder of a request for the topic, named in these ways; other names and ids are sent as they are."""

    def build(world: World) -> MetadataRequest:
        ways = {
            NAME: MetadataRequestTopic(name=world.topic.name), NEITHER: MetadataRequestTopic(name=None),
            **({ID: MetadataRequestTopic(name=None, topic_id=world.topic_id)} if ID in kinds else {}),
            **({BOTH: MetadataRequestTopic(name=world.topic.name, topic_id=world.topic_id)} if BOTH in kinds else {}),
        }  # fmt: skip
        topics = tuple(
            MetadataRequestTopic(name=None, topic_id=each) if isinstance(each, bytes)
            else ways.get(each or NEITHER, MetadataRequestTopic(name=each)) for each in kinds
        )  # fmt: skip
        return MetadataRequest(**{"topics": topics} | fields)

    return build


def call_metadata(world: World, request: Any, version: int) -> Any:
    """Return error code and kind of each answer: "own" for the topic of the case; other topics only if requested."""
    reply = send_metadata(world, request, version)
    answers = [
        (found.error_code, "own" if found.name == world.topic.name else found.name or "")
        for found in reply.topics
        if request.topics or found.name == world.topic.name
    ]
    return tuple(sorted(answers))


METADATA: Final = Api(
    MetadataRequest, lambda world: next(world.others).name, described_by_name, str, (0, PARTITIONS), call_metadata
)
OWN: Final = ((0, "own"),)
TOPICS: Final[list[Row | Call]] = [
    Row("name in upper case", topic_name(str.upper), (UNKNOWN, 0), versions=WITHOUT_CREATION),
    Row("name with a blank", topic_name(lambda name: name + " "), (NO_NAME, 0), versions=WITHOUT_CREATION),
    Row("name empty", lambda world: "", (NO_NAME, 0), versions=WITHOUT_CREATION),
    Row("name invalid", lambda world: "a b", (NO_NAME, 0), versions=WITHOUT_CREATION),
    Row("name of a dot", lambda world: ".", (NO_NAME, 0), versions=WITHOUT_CREATION),
    Row("name of two dots", lambda world: "..", (NO_NAME, 0), versions=WITHOUT_CREATION),
    Row("name too long", lambda world: "x" * 250, (NO_NAME, 0), versions=WITHOUT_CREATION),
    Call("topics empty, for all", metadata(), OWN, versions=(0, 0)),
    Call("topics empty", metadata(), (), versions=(1, None)),
    Call("topics null", metadata(topics=None), OWN, versions=(1, None)),
    Call("name twice", metadata(NAME, NAME), OWN),
    Call("id", metadata(ID), OWN, versions=WITH_ID),
    Call("id twice", metadata(ID, ID), OWN, versions=WITH_ID),
    Call("id unknown", metadata(OTHER_ID), ((UNKNOWN_ID, ""),), versions=WITH_ID),
    Call("id unknown beside another", metadata(OTHER_ID, ID), ((0, "own"), (UNKNOWN_ID, "")), versions=WITH_ID),
    Call("id and name", metadata(BOTH), OWN, versions=WITH_ID),
]


@clause("FLD-10", "Metadata")
@defect(Reply(MetadataRequest, "topics.error_code", increment))
@pytest.mark.parametrize("rows", shared(*TOPICS))
def test_fields_of_a_request_for_metadata(world: World, rows: Sequence[Row | Call]) -> None:
    check_all(METADATA, rows, world, world.broker)


# -- DescribeTopicPartitions -------------------------------------------------------------------------------


def pages(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Callable[[World], Any]:
    """Return a builder of a request for the topic, for which the name "own" stands, and for others."""

    def build(world: World) -> DescribeTopicPartitionsRequest:
        def actual(name: str) -> str:
            return world.topic.name if name == "own" else name

        first = (
            DescribeTopicPartitionsRequestCursor(topic_name=actual(cursor[0]), partition_index=cursor[1])
            if cursor
            else None
        )
        return DescribeTopicPartitionsRequest(
            topics=tuple(TopicRequest(name=actual(name)) for name in names),
            response_partition_limit=limit,
            cursor=first,
        )

    return build


def call_pages(world: World, request: Any, version: int) -> Any:
    """Return error code, kind and partitions of each topic, and the partition of the next cursor."""
    reply = world.broker.call(request, version)
    answers = [
        (found.error_code, "own" if found.name == world.topic.name else found.name or "",
         tuple(part.partition_index for part in found.partitions))
        for found in reply.topics
    ]  # fmt: skip
    return tuple(answers), reply.next_cursor.partition_index if reply.next_cursor else None


ALL: Final = (((0, "own", (0, 1, 2)),), None)
FIRST: Final = (((0, "own", (0,)),), 1)
REFUSED: Final = (((INVALID, "own", ()),), None)
# Apache Kafka 4.3.1 returns a negative cursor for the largest one, and UNKNOWN_SERVER_ERROR for an empty name.
PAGES: Final = [
    Call("name twice", pages("own", "own"), ALL),
    Call("limit 0", pages("own", limit=0), FIRST),
    Call("limit 1", pages("own", limit=1), FIRST),
    Call("limit negative", pages("own", limit=-1), FIRST),
    Call("limit smallest", pages("own", limit=INT32_MIN), FIRST),
    Call("limit of all", pages("own", limit=3), ALL),
    Call("limit largest", pages("own", limit=INT32_MAX), ALL),
    Call("cursor at the first", pages("own", cursor=("own", 0)), ALL),
    Call("cursor at the last", pages("own", cursor=("own", 2)), (((0, "own", (2,)),), None)),
    Call("cursor behind the last", pages("own", cursor=("own", 3)), (((0, "own", ()),), None)),
    Call("cursor negative", pages("own", cursor=("own", -1)), REFUSED),
    Call("cursor of another topic", pages("own", cursor=("zz", 0)), REFUSED),
    Call("cursor of an earlier topic", pages("own", cursor=("0", 0)), REFUSED),
    Call("cursor without a name", pages("own", cursor=("", 0)), REFUSED),
    Call("cursor and limit", pages("own", limit=1, cursor=("own", 1)), (((0, "own", (1,)),), 2)),
    Call("name unknown", pages("own", "zz"), (((0, "own", (0, 1, 2)), (UNKNOWN, "zz", ())), None)),
    Call("name invalid", pages("own", "z z"), (((0, "own", (0, 1, 2)), (NO_NAME, "z z", ())), None)),
]


@clause("FLD-10", "DescribeTopicPartitions")
@defect(Reply(DescribeTopicPartitionsRequest, "topics.error_code", increment))
@pytest.mark.parametrize("rows", shared(*PAGES))
def test_fields_of_a_request_for_pages_of_partitions(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(DescribeTopicPartitionsRequest, call_pages), rows, world, world.broker)


# -- DescribeCluster, DescribeQuorum -----------------------------------------------------------------------

METADATA_TOPIC: Final = "__cluster_metadata"
TYPED: Final = (1, None)
MISMATCHED, UNSUPPORTED = ErrorCode.MISMATCHED_ENDPOINT_TYPE, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


def of_endpoints(endpoint_type: int) -> Callable[[World], Any]:
    return lambda world: DescribeClusterRequest(endpoint_type=endpoint_type)


def read_error(reply: Any) -> int:
    return int(reply.error_code)


CLUSTERS: Final = [
    Call("endpoint_type 0", of_endpoints(0), UNSUPPORTED, read_error, TYPED),
    Call("endpoint_type of controllers", of_endpoints(2), MISMATCHED, read_error, TYPED),
    Call("endpoint_type 3", of_endpoints(3), UNSUPPORTED, read_error, TYPED),
    Call("endpoint_type negative", of_endpoints(-1), UNSUPPORTED, read_error, TYPED),
]


def quorum(*topics: tuple[str, Sequence[int]]) -> Callable[[World], Any]:
    return lambda world: DescribeQuorumRequest(
        topics=tuple(
            QuorumTopic(topic_name=name, partitions=tuple(QuorumPartition(partition_index=each) for each in parts))
            for name, parts in topics
        )
    )


def read_quorum(reply: Any) -> tuple[Any, ...]:
    """Return the error code, then partition and error code of each answer."""
    return reply.error_code, *((part.partition_index, part.error_code) for t in reply.topics for part in t.partitions)


QUORUMS: Final = [
    Call("without changes", quorum((METADATA_TOPIC, [0])), (0, (0, 0)), read_quorum),
    Call("topics empty", quorum(), (0,), read_quorum),
    Call("partitions empty", quorum((METADATA_TOPIC, [])), (0,), read_quorum),
    Call("partition 1", quorum((METADATA_TOPIC, [1])), (0, (1, UNKNOWN)), read_quorum),
    Call("partition negative", quorum((METADATA_TOPIC, [-1])), (0, (-1, UNKNOWN)), read_quorum),
    Call("partition twice", quorum((METADATA_TOPIC, [0, 0])), (0, (0, UNKNOWN), (0, UNKNOWN)), read_quorum),
    Call("topic unknown", quorum(("none", [0])), (0, (0, UNKNOWN)), read_quorum),
    Call("topic without a name", quorum(("", [0])), (0, (0, UNKNOWN)), read_quorum),
    Call(
        "topic unknown beside the right one",
        quorum((METADATA_TOPIC, [0]), ("none", [0])),
        (0, (0, UNKNOWN), (0, UNKNOWN)),
        read_quorum,
    ),
]


@clause("FLD-10", "DescribeCluster")
@defect(Reply(DescribeClusterRequest, "error_code", increment))
@pytest.mark.parametrize("rows", shared(*CLUSTERS))
def test_fields_of_a_description_of_the_cluster(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(DescribeClusterRequest), rows, world, world.broker)


@clause("FLD-10", "DescribeQuorum")
@defect(Reply(DescribeQuorumRequest, "topics.partitions.error_code", increment))
@pytest.mark.parametrize("rows", shared(*QUORUMS))
def test_fields_of_a_description_of_the_quorum(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(DescribeQuorumRequest), rows, world, world.broker)
