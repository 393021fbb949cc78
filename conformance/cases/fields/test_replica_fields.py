"""Fields of requests about reassignments of partitions, elections of leaders, and folders of logs."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pytest

from highwater.conformance.broker import Broker, Topic, expect
from highwater.conformance.cases.fields.partitions import INT32_MAX, PARTITIONS, Item, by_topic, item, somewhere
from highwater.conformance.cases.fields.table import Answers, Api, Call, Row, changed, check_all, no_items, shared
from highwater.conformance.cases.support.admin import TIMEOUT_MS, controller
from highwater.conformance.cases.support.reassignments import WAIT_S
from highwater.conformance.clause import clause
from highwater.conformance.cluster import Cluster
from highwater.conformance.defects import Reply, defect, increment
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)

UNKNOWN, ASSIGNMENT, NOT_MOVING, NOT_NEEDED, NO_FOLDER, INVALID, LATE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.LOG_DIR_NOT_FOUND,
    ErrorCode.INVALID_REQUEST, ErrorCode.REQUEST_TIMED_OUT,
)  # fmt: skip
NO_BROKER: Final = 999


@dataclass
class World:
    """A topic of three partitions, each with one replica on the same broker, which is `OWN` in a row."""

    cluster: Cluster

    def __post_init__(self) -> None:
        self.node = min(self.cluster.target.addresses)
        self.others: Iterator[int] = itertools.cycle([1, 2])

    @cached_property
    def topic(self) -> Topic:
        return self.cluster.create_topic(partitions=PARTITIONS, assignment=[self.node])

    @cached_property
    def controller(self) -> Broker:
        return controller(self.cluster)

    @cached_property
    def leader(self) -> Broker:
        return self.cluster.leader(self.topic)


@pytest.fixture
def world(cluster: Cluster) -> World:
    return World(cluster)


def number_key(each: Item) -> tuple[str, int]:
    return each[0], each[1]


def call_controller(world: World, request: Any, version: int) -> Any:
    return world.controller.call(request, version, WAIT_S)


# -- AlterPartitionReassignments ---------------------------------------------------------------------------

OWN: Final = 0
"""In a row, the broker that has the replica."""


def moved(partition: int, replicas: Sequence[int] | None = (OWN,)) -> Callable[[World], ReassignablePartition]:
    def build(world: World) -> ReassignablePartition:
        chosen = None if replicas is None else tuple(world.node if each == OWN else each for each in replicas)
        return ReassignablePartition(partition_index=partition, replicas=chosen)

    return build


def move(replicas: Sequence[int] | None) -> Callable[[World], Item]:
    """Return a builder of an item for the first partition."""
    return lambda world: (world.topic.name, moved(0, replicas)(world))


def moves(*wanted: tuple[int, Sequence[int] | None], together: bool = True, **fields: Any) -> Callable[[World], Any]:
    """Return a builder of a request for partitions, each in a struct of its own unless `together`."""

    def build(world: World) -> AlterPartitionReassignmentsRequest:
        parts = [moved(*each)(world) for each in wanted]
        groups = [tuple(parts)] if together else [(part,) for part in parts]
        topics = tuple(ReassignableTopic(name=world.topic.name, partitions=group) for group in groups)
        return AlterPartitionReassignmentsRequest(**changed({"topics": topics, "timeout_ms": TIMEOUT_MS}, fields))

    return build


def send_moves(world: World, items: Sequence[Item], version: int) -> Answers:
    topics = by_topic(items, ReassignableTopic, "name")
    reply = call_controller(world, AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=TIMEOUT_MS), version)
    expect("error code of AlterPartitionReassignments", 0, reply.error_code)
    return {
        (topic.name, part.partition_index): part.error_code for topic in reply.responses for part in topic.partitions
    }


def read_moves(reply: Any) -> tuple[Any, ...]:
    """Return the error code, then partition and error code of each answer, by partition."""
    found = sorted((part.partition_index, part.error_code) for topic in reply.responses for part in topic.partitions)
    return reply.error_code, *found


def keeps_replica(world: World, sent: Any) -> None:
    """Check that the replica of each partition is where it was."""
    found = world.cluster.describe(world.topic.name)
    replicas = {part.replica_nodes for part in found.partitions} if found else set()
    expect("replicas of the partitions", str({(world.node,)}), str(replicas))


REASSIGN: Final = Api(
    AlterPartitionReassignmentsRequest,
    lambda world: (world.topic.name, moved(next(world.others))(world)),
    send_moves,
    lambda each: (each[0], each[1].partition_index),
    call=call_controller,
)


def elsewhere(partition: int) -> ReassignablePartition:
    return ReassignablePartition(partition_index=partition, replicas=(1,))


MOVED: Final[list[Row | Call]] = [
    *somewhere(elsewhere, UNKNOWN),
    Row("replicas null", move(None), NOT_MOVING),
    Row("replicas as they are", move([OWN]), stored=keeps_replica),
    Row("replicas empty", move([]), ASSIGNMENT, keeps_replica),
    Row("replicas with a broker twice", move([OWN, OWN]), ASSIGNMENT, keeps_replica),
    Row("replicas with an unknown broker", move([NO_BROKER]), ASSIGNMENT, keeps_replica),
    Row("replicas with an unknown broker too", move([OWN, NO_BROKER]), ASSIGNMENT, keeps_replica),
    Row("replicas negative", move([-1]), ASSIGNMENT, keeps_replica),
    Row("replicas with a negative one too", move([OWN, -1]), ASSIGNMENT, keeps_replica),
    Row("replicas largest", move([INT32_MAX]), ASSIGNMENT, keeps_replica),
    Call("topics empty", moves(topics=()), (0,), read_moves),
    Call("partitions empty", moves(), (0,), read_moves),
    Call("timeout 0", moves((0, [OWN]), timeout_ms=0), frozenset({(0, (0, 0)), (LATE, (0, LATE))}), read_moves),
    Call("topic twice", moves((0, []), (1, [OWN]), together=False), (0, (0, ASSIGNMENT), (1, 0)), read_moves),
    Call("partition twice", moves((0, [OWN]), (0, [OWN])), frozenset({(0, (0, 0)), (0, (0, 0), (0, 0))}), read_moves),
    Call(
        "as many replicas", moves((0, [OWN]), allow_replication_factor_change=False), (0, (0, 0)), read_moves, (1, None)
    ),
]  # fmt: skip


@clause("FLD-10", "AlterPartitionReassignments")
@defect(Reply(AlterPartitionReassignmentsRequest, "responses.partitions.error_code", increment))
@pytest.mark.parametrize("rows", shared(*MOVED))
def test_fields_of_a_reassignment(world: World, rows: Sequence[Row | Call]) -> None:
    check_all(REASSIGN, rows, world, world.controller)


# -- ListPartitionReassignments ----------------------------------------------------------------------------


def listing(*partitions: int, name: str | None = None, **fields: Any) -> Callable[[World], Any]:
    def build(world: World) -> ListPartitionReassignmentsRequest:
        topic = ListPartitionReassignmentsTopics(name=name or world.topic.name, partition_indexes=partitions)
        return ListPartitionReassignmentsRequest(**changed({"topics": (topic,), "timeout_ms": TIMEOUT_MS}, fields))

    return build


def read_list(reply: Any) -> tuple[int, int]:
    """Return the error code and the number of topics."""
    return reply.error_code, len(reply.topics)


NONE_MOVES: Final = (0, 0)
LISTED: Final = [
    Call("topics empty", listing(topics=()), NONE_MOVES, read_list),
    Call("topics null", listing(topics=None), 0, lambda reply: reply.error_code),
    Call("partitions empty", listing(), NONE_MOVES, read_list),
    Call("partition that does not move", listing(0), NONE_MOVES, read_list),
    Call("partition twice", listing(0, 0), NONE_MOVES, read_list),
    Call("partition negative", listing(-1), NONE_MOVES, read_list),
    Call("partition largest", listing(INT32_MAX), NONE_MOVES, read_list),
    Call("topic unknown", listing(0, name="none"), NONE_MOVES, read_list),
    Call("topic invalid", listing(0, name="a b"), NONE_MOVES, read_list),
    Call("timeout 0", listing(0, timeout_ms=0), NONE_MOVES, read_list),
]


@clause("FLD-10", "ListPartitionReassignments")
@defect(Reply(ListPartitionReassignmentsRequest, "error_code", increment))
@pytest.mark.parametrize("rows", shared(*LISTED))
def test_fields_of_a_list_of_reassignments(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(ListPartitionReassignmentsRequest, call_controller), rows, world, world.controller)


# -- ElectLeaders ------------------------------------------------------------------------------------------

TYPED: Final = (1, None)


def election(*partitions: int, together: bool = True, **fields: Any) -> Callable[[World], Any]:
    def build(world: World) -> ElectLeadersRequest:
        groups = [partitions] if together else [(partition,) for partition in partitions]
        topics = tuple(TopicPartitions(topic=world.topic.name, partitions=group) for group in groups)
        return ElectLeadersRequest(**changed({"topic_partitions": topics, "timeout_ms": TIMEOUT_MS}, fields))

    return build


def send_elections(world: World, items: Sequence[Item], version: int) -> Answers:
    parts = by_topic(items, TopicPartitions, "topic")
    reply = call_controller(world, ElectLeadersRequest(topic_partitions=parts, timeout_ms=TIMEOUT_MS), version)
    return {
        (topic.topic, part.partition_id): part.error_code
        for topic in reply.replica_election_results
        for part in topic.partition_result
    }


def read_elections(reply: Any) -> tuple[Any, ...]:
    """Return the error code, then partition and error code of each answer, by partition."""
    return reply.error_code, *sorted(
        (part.partition_id, part.error_code)
        for topic in reply.replica_election_results
        for part in topic.partition_result
    )


ELECT: Final = Api(
    ElectLeadersRequest, lambda world: item(next(world.others))(world), send_elections, number_key, NOT_NEEDED,
    call_controller,
)  # fmt: skip
IN_NO_TIME: Final = frozenset({(0, (0, NOT_NEEDED)), (0, (0, LATE)), (LATE, (0, LATE))})
NO_TYPE: Final = (INVALID, (0, INVALID))
OBSERVED: Final = "3.9"
"""The first release that was seen to answer so; 2.8 does not."""
TWICE: Final = frozenset({(0, (0, NOT_NEEDED)), (0, (0, NOT_NEEDED), (0, NOT_NEEDED))})
ELECTED: Final[list[Row | Call]] = [
    *somewhere(int, UNKNOWN, frozenset({UNKNOWN, ErrorCode.INVALID_TOPIC_EXCEPTION})),
    Row("partition whose leader is preferred", item(0), NOT_NEEDED),
    Call("topic_partitions empty", election(topic_partitions=()), (0,), read_elections),
    Call("partitions empty", election(), (0,), read_elections),
    Call("topic twice", election(0, 1, together=False), (0, (0, NOT_NEEDED), (1, NOT_NEEDED)), read_elections),
    Call("timeout 0", election(0, timeout_ms=0), IN_NO_TIME, read_elections),
    Call("unclean, with a leader", election(0, election_type=1), (0, (0, NOT_NEEDED)), read_elections, TYPED),
    Call("election_type 2", election(0, election_type=2), NO_TYPE, read_elections, TYPED, OBSERVED),
    Call("election_type negative", election(0, election_type=-1), NO_TYPE, read_elections, TYPED, OBSERVED),
    Call("partition twice", election(0, 0), TWICE, read_elections),
]


@clause("FLD-10", "ElectLeaders")
@defect(Reply(ElectLeadersRequest, "replica_election_results.partition_result.error_code", increment))
@pytest.mark.parametrize("rows", shared(*ELECTED))
def test_fields_of_an_election(world: World, rows: Sequence[Row | Call]) -> None:
    check_all(ELECT, rows, world, world.controller)


# -- DescribeLogDirs, AlterReplicaLogDirs ------------------------------------------------------------------


def folders(*partitions: int, name: str | None = None, **fields: Any) -> Callable[[World], Any]:
    def build(world: World) -> DescribeLogDirsRequest:
        topic = DescribableLogDirTopic(topic=world.topic.name if name is None else name, partitions=partitions)
        return DescribeLogDirsRequest(**{"topics": (topic,)} | fields)

    return build


def call_folders(world: World, request: Any, version: int) -> tuple[Any, ...]:
    """Return the error codes, then the described partitions of the topic, and whether there are other topics."""
    reply = world.leader.call(request, version)
    topics = [topic for found in reply.results for topic in found.topics]
    own = [part.partition_index for topic in topics if topic.name == world.topic.name for part in topic.partitions]
    errors = {reply.error_code, *(found.error_code for found in reply.results)}
    return max(errors), tuple(sorted(own)), any(topic.name != world.topic.name and topic.partitions for topic in topics)


FOLDERS: Final = [
    Call("topics empty", folders(topics=()), (0, (), False)),
    Call("partitions empty", folders(), (0, (), False)),
    Call("partition twice", folders(1, 1), (0, (1,), False)),
    Call("partition negative beside another", folders(-1, 1), (0, (1,), False)),
    Call("partition one too large beside another", folders(PARTITIONS, 2), (0, (2,), False)),
    Call("partition largest", folders(INT32_MAX), (0, (), False)),
    Call("topic unknown", folders(0, name="none"), (0, (), False)),
    Call("topic invalid", folders(0, name="a b"), (0, (), False)),
    Call("topic without a name", folders(0, name=""), (0, (), False)),
    Call("topics null", folders(topics=None), frozenset({(0, (0, 1, 2), True), (0, (0, 1, 2), False)})),
]


@dataclass
class FolderWorld(World):
    """Also the path of the folder that has the replicas."""

    @cached_property
    def path(self) -> str:
        request = folders(0)(self)
        return next(
            str(found.log_dir)
            for found in self.leader.call(request).results
            if any(topic.name == self.topic.name for topic in found.topics)
        )


def placed(path: Callable[[str], str], *partitions: int, name: str | None = None) -> Callable[[FolderWorld], Any]:
    """Return a builder of a request to move partitions to a folder, which `path` derives from the present one."""

    def build(world: FolderWorld) -> AlterReplicaLogDirsRequest:
        topic = AlterReplicaLogDirTopic(name=world.topic.name if name is None else name, partitions=partitions)
        return AlterReplicaLogDirsRequest(dirs=(AlterReplicaLogDir(path=path(world.path), topics=(topic,)),))

    return build


def placed_elsewhere(world: FolderWorld) -> AlterReplicaLogDirsRequest:
    """Return a request for a replica that the broker does not have."""
    world.cluster.need_brokers(2)
    other = world.cluster.create_topic(assignment=[max(world.cluster.target.addresses)])
    request: AlterReplicaLogDirsRequest = placed(str, 0, name=other.name)(world)
    return request


def read_placed(reply: Any) -> tuple[tuple[int, int], ...]:
    """Return partition and error code of each answer, by partition."""
    return tuple(
        sorted((part.partition_index, part.error_code) for topic in reply.results for part in topic.partitions)
    )


PLACED: Final = [
    Call("dirs empty", lambda world: AlterReplicaLogDirsRequest(), (), read_placed),
    Call("partitions empty", placed(str), (), read_placed),
    Call("folder as it is", placed(str, 0, 2), ((0, 0), (2, 0)), read_placed),
    Call("folder unknown", placed(lambda path: path + "-none", 0, 2), ((0, NO_FOLDER), (2, NO_FOLDER)), read_placed),
    Call("folder without a path", placed(lambda path: "", 0), ((0, NO_FOLDER),), read_placed),
    Call("folder inside of another", placed(lambda path: path + "/x", 0), ((0, NO_FOLDER),), read_placed),
    Call("partition negative", placed(str, -1, 0), ((-1, UNKNOWN), (0, 0)), read_placed),
    Call("partition one too large", placed(str, PARTITIONS, 0), ((0, 0), (PARTITIONS, UNKNOWN)), read_placed),
    Call("partition of another broker", placed_elsewhere, ((0, ErrorCode.REPLICA_NOT_AVAILABLE),), read_placed),
    Call("topic unknown", placed(str, 0, name="none"), ((0, UNKNOWN),), read_placed),
    Call("topic invalid", placed(str, 0, name="a b"), ((0, UNKNOWN),), read_placed),
]


@pytest.fixture
def folder_world(cluster: Cluster) -> FolderWorld:
    return FolderWorld(cluster)


@clause("FLD-10", "DescribeLogDirs")
@defect(Reply(DescribeLogDirsRequest, "results.error_code", increment))
@pytest.mark.parametrize("rows", shared(*FOLDERS))
def test_fields_of_a_description_of_log_folders(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(DescribeLogDirsRequest, call_folders), rows, world, world.leader)


@clause("FLD-10", "AlterReplicaLogDirs")
@defect(Reply(AlterReplicaLogDirsRequest, "results.partitions.error_code", increment))
@pytest.mark.parametrize("rows", shared(*PLACED))
def test_fields_of_a_move_to_another_log_folder(folder_world: FolderWorld, rows: Sequence[Call]) -> None:
    check_all(no_items(AlterReplicaLogDirsRequest), rows, folder_world, folder_world.leader)
