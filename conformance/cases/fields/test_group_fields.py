"""Fields of requests about groups without members, their offsets and their coordinators."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from highwater.conformance.broker import Broker, Topic, expect
from highwater.conformance.cases.fields.partitions import INT32_MAX, INT32_MIN, PARTITIONS, by_topic, item, somewhere
from highwater.conformance.cases.fields.table import Answers, Api, Call, Row, check_all, no_items, shared
from highwater.conformance.cases.support.committed_offsets import MANY_GROUPS, commit, committed_topics
from highwater.conformance.cases.support.members import GroupDriver
from highwater.conformance.clause import clause, era
from highwater.conformance.cluster import Cluster
from highwater.conformance.defects import Reply, defect, increment
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from highwater.reference.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest

UNKNOWN, NO_GROUP_NAME, NO_GROUP, NO_MEMBER, INVALID = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.INVALID_REQUEST,
)  # fmt: skip
OFFSET: Final = 5
NAMED: Final = 9
"""The last version of OffsetCommit and OffsetFetch that names topics."""
EMPTY: Final = "Empty"


@dataclass
class World:
    """A group without members, which has committed an offset for each partition of a topic."""

    cluster: Cluster
    topic: Topic = field(init=False)
    group: str = field(init=False)
    coordinator: Broker = field(init=False)
    others: Iterator[int] = field(init=False)

    def __post_init__(self) -> None:
        self.topic, self.group = self._topic(), self.cluster.group()
        self.coordinator, self.others = self.cluster.coordinator(self.group), itertools.cycle([1, 2])
        self.cluster.eventually("offsets of the group", lambda: not any(map(self.commit, range(PARTITIONS))))

    def _topic(self) -> Topic:
        return self.cluster.create_topic(partitions=PARTITIONS, assignment=[min(self.cluster.target.addresses)])

    def commit(self, partition: int) -> int:
        """Commit an offset, which creates the group if it does not exist, and return the error code."""
        return commit(self.coordinator, self.group, replace(self.topic, partition=partition), OFFSET)


@pytest.fixture
def world(cluster: Cluster) -> World:
    return World(cluster)


# -- OffsetCommit ------------------------------------------------------------------------------------------


def offset(partition: int, committed: int = OFFSET, **fields: Any) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(partition_index=partition, committed_offset=committed, **fields)


def commits(*parts: OffsetCommitRequestPartition, together: bool = True, **fields: Any) -> Callable[[World], Any]:
    """Return a builder of a request for partitions of the topic, each in a struct of its own unless `together`."""

    def build(world: World) -> OffsetCommitRequest:
        groups = [parts] if together else [(part,) for part in parts]
        topics = tuple(OffsetCommitRequestTopic(name=world.topic.name, partitions=group) for group in groups)
        return OffsetCommitRequest(**{"group_id": world.group, "topics": topics, **fields})

    return build


def read_commits(reply: Any) -> list[tuple[int, int]]:
    """Return partition and error code of each answer, by partition."""
    return sorted((part.partition_index, part.error_code) for topic in reply.topics for part in topic.partitions)


def send_commits(world: World, items: Sequence[Any], version: int) -> Answers:
    request = OffsetCommitRequest(group_id=world.group, topics=by_topic(items, OffsetCommitRequestTopic, "name"))
    return {
        (topic.name, part.partition_index): part.error_code
        for topic in world.coordinator.call(request, version).topics
        for part in topic.partitions
    }


def partition_key(each: Any) -> tuple[str, int]:
    return each[0], each[1].partition_index


def has_committed(committed: int, epoch: int, metadata: str) -> Callable[[World, Any], None]:
    """Return a check of what is stored for the first partition."""

    def stored(world: World, part: Any) -> None:
        (topic,) = committed_topics(world.coordinator, world.group, replace(world.topic, partition=0))
        (found,) = topic.partitions
        actual = (found.committed_offset, found.committed_leader_epoch, found.metadata)
        expect("offset, leader epoch and metadata", (committed, epoch, metadata), actual)

    return stored


OFFSET_COMMIT: Final = Api(
    OffsetCommitRequest, lambda world: item(offset(next(world.others)))(world), send_commits, partition_key
)
NO_MEMBERSHIP: Final = [(0, 0)]
COMMITS: Final[list[Row | Call]] = [
    *(replace(row, versions=(2, NAMED)) for row in somewhere(offset, UNKNOWN)),
    Row("committed_leader_epoch -2", item(offset(0, committed_leader_epoch=-2)), 0, versions=(6, NAMED)),
    Row(
        "committed_leader_epoch largest",
        item(offset(0, committed_leader_epoch=INT32_MAX)),
        stored=has_committed(OFFSET, INT32_MAX, ""),
        versions=(6, NAMED),
    ),
    Row(
        "committed_metadata with a line break",
        item(offset(0, committed_metadata="a\n\0b")),
        stored=has_committed(OFFSET, -1, "a\n\0b"),
        versions=(2, NAMED),
    ),
    Call("generation_id -2", commits(offset(0), generation_id_or_member_epoch=-2), NO_MEMBERSHIP, read_commits, (2, 9)),
    Call(
        "generation_id smallest",
        commits(offset(0), generation_id_or_member_epoch=INT32_MIN),
        NO_MEMBERSHIP,
        read_commits,
        (2, NAMED),
    ),
    Call("topics empty", commits(topics=()), [], read_commits, (2, NAMED)),
    Call("partitions empty", commits(), [], read_commits, (2, NAMED)),
    Call("topic twice", commits(offset(0), offset(1), together=False), [(0, 0), (1, 0)], read_commits, (2, NAMED)),
    Call("partition twice", commits(offset(0, 7), offset(0, 6)), [(0, 0), (0, 0)], read_commits, (2, 9), since="4.0"),
]


@clause("FLD-7", "OffsetCommit")
@defect(Reply(OffsetCommitRequest, "topics.partitions.error_code", increment))
@pytest.mark.parametrize("rows", shared(*COMMITS))
def test_fields_of_a_commit(world: World, rows: Sequence[Row | Call]) -> None:
    check_all(OFFSET_COMMIT, rows, world, world.coordinator)


@clause("FLD-7", "last commit")
@defect(Reply(OffsetFetchRequest, "groups.topics.partitions.committed_offset", increment))
def test_of_two_commits_of_a_partition_the_last_one_counts(world: World) -> None:
    for first, last in ((7, 6), (6, 7)):
        version = min(world.coordinator.version_of(OffsetCommitRequest, 2), NAMED)
        world.coordinator.call(commits(offset(0, first), offset(0, last))(world), version)
        has_committed(last, -1, "")(world, None)


# -- OffsetFetch -------------------------------------------------------------------------------------------


def fetch_request(group: str, topics: Sequence[tuple[str, Sequence[int]]] | None, version: int) -> OffsetFetchRequest:
    """Return a request for a group in the layout of the version; topics are pairs of a name and partitions."""
    kind: type[Any] = OffsetFetchRequestTopics if version >= MANY_GROUPS else OffsetFetchRequestTopic
    wanted: Any = None if topics is None else tuple(kind(name=name, partition_indexes=tuple(p)) for name, p in topics)
    if version < MANY_GROUPS:
        return OffsetFetchRequest(group_id=group, topics=wanted)
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=wanted),))


def read_offsets(reply: Any) -> list[Any]:
    """Return for each group its error code, and partition, error code and offset of each answer."""
    return [
        [group.error_code, *(
            (part.partition_index, part.error_code, part.committed_offset)
            for topic in group.topics
            for part in sorted(topic.partitions, key=lambda each: each.partition_index)
        )]
        for group in reply.groups or (reply,)
    ]  # fmt: skip


def send_offset_fetch(world: World, items: Sequence[Any], version: int) -> Answers:
    topics = [(name, [each]) for name, each in items]
    reply = world.coordinator.call(fetch_request(world.group, topics, version), version)
    (group,) = reply.groups if version >= MANY_GROUPS else (reply,)
    return {
        (topic.name, part.partition_index): (part.error_code, part.committed_offset, part.committed_leader_epoch)
        for topic in group.topics
        for part in topic.partitions
    }


def fetched_groups(*groups: Any) -> Callable[[World], Any]:
    """Return a builder of a request for groups, each a function that builds it for a group id and a topic."""
    return lambda world: OffsetFetchRequest(groups=tuple(build(world.group, world.topic.name) for build in groups))


def of_group(*partitions: int, **fields: Any) -> Callable[[str, str], OffsetFetchRequestGroup]:
    def build(group: str, topic: str) -> OffsetFetchRequestGroup:
        topics = (OffsetFetchRequestTopics(name=topic, partition_indexes=partitions),)
        return OffsetFetchRequestGroup(**{"group_id": group, "topics": topics, **fields})

    return build


OFFSET_FETCH: Final = Api(
    OffsetFetchRequest, lambda world: item(next(world.others))(world), send_offset_fetch,
    lambda each: each, (0, OFFSET, -1),
)  # fmt: skip
GROUPED: Final = (MANY_GROUPS, NAMED)
FETCHED: Final[list[Row | Call]] = [
    *(replace(row, versions=(1, NAMED)) for row in somewhere(int, (0, -1, -1))),
    Call("groups empty", fetched_groups(), [], lambda reply: list(reply.groups), GROUPED, since="4.0"),
    Call(
        "group twice", fetched_groups(of_group(0), of_group(1)), [[0, (0, 0, 5)], [0, (1, 0, 5)]], read_offsets, GROUPED
    ),
    Call(
        "topics null, empty and given",
        fetched_groups(of_group(topics=None), of_group(topics=()), of_group(1)),
        [[0, (0, 0, 5), (1, 0, 5), (2, 0, 5)], [0], [0, (1, 0, 5)]],
        read_offsets,
        GROUPED,
    ),
    Call("partition_indexes empty", fetched_groups(of_group()), [[0]], read_offsets, GROUPED),
    Call(
        "partition twice",
        fetched_groups(of_group(1, 1)),
        [[0, (1, 0, 5), (1, 0, 5)]],
        read_offsets,
        GROUPED,
        since="4.0",
    ),
    Call("member_epoch -2", fetched_groups(of_group(1, member_epoch=-2)), [[0, (1, 0, 5)]], read_offsets, (9, 9)),
    Call("member_id empty", fetched_groups(of_group(1, member_id="")), [[0, (1, 0, 5)]], read_offsets, (9, 9)),
]


@clause("FLD-7", "OffsetFetch")
@defect(Reply(OffsetFetchRequest, "groups.topics.partitions.error_code", increment))
@pytest.mark.parametrize("rows", shared(*FETCHED))
def test_fields_of_a_request_for_committed_offsets(world: World, rows: Sequence[Row | Call]) -> None:
    check_all(OFFSET_FETCH, rows, world, world.coordinator)


# -- OffsetDelete ------------------------------------------------------------------------------------------


def deletion(partition: int) -> OffsetDeleteRequestPartition:
    return OffsetDeleteRequestPartition(partition_index=partition)


def deletions(*partitions: int, **fields: Any) -> Callable[[World], Any]:
    def build(world: World) -> OffsetDeleteRequest:
        topics = (OffsetDeleteRequestTopic(name=world.topic.name, partitions=tuple(map(deletion, partitions))),)
        return OffsetDeleteRequest(**{"group_id": world.group, "topics": topics, **fields})

    return build


def read_deletions(reply: Any) -> list[Any]:
    return [reply.error_code, *read_commits(reply)]


def send_deletions(world: World, items: Sequence[Any], version: int) -> Answers:
    request = OffsetDeleteRequest(group_id=world.group, topics=by_topic(items, OffsetDeleteRequestTopic, "name"))
    reply = world.coordinator.call(request, version)
    expect("error code of OffsetDelete", 0, reply.error_code)
    return {(topic.name, part.partition_index): part.error_code for topic in reply.topics for part in topic.partitions}


OFFSET_DELETE: Final = Api(
    OffsetDeleteRequest, lambda world: item(deletion(next(world.others)))(world), send_deletions, partition_key
)
DELETIONS: Final[list[Row | Call]] = [
    *somewhere(deletion, UNKNOWN),
    Call("topics empty", deletions(topics=()), [0], read_deletions),
    Call("partitions empty", deletions(), [0], read_deletions),
    Call("group_id empty", deletions(0, group_id=""), [NO_GROUP_NAME], read_deletions),
    Call("partition with an unknown one", deletions(0, 999, 1), [0, (0, 0), (1, 0), (999, UNKNOWN)], read_deletions),
]


@clause("FLD-7", "OffsetDelete")
@defect(Reply(OffsetDeleteRequest, "topics.partitions.error_code", increment))
@pytest.mark.parametrize("rows", shared(*DELETIONS))
def test_fields_of_a_deletion_of_offsets(world: World, rows: Sequence[Row | Call]) -> None:
    world.commit(2)
    check_all(OFFSET_DELETE, rows, world, world.coordinator)


# -- ListGroups, DescribeGroups, DeleteGroups --------------------------------------------------------------


@dataclass(frozen=True)
class ListRow:
    """Filters of ListGroups, and how often the group is in the list."""

    name: str
    count: int
    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        return 5 if self.types else 4


IN_ANOTHER_CASE: Final = [ListRow("state in two cases", 1, states=("EMPTY", "empty"))]
WITH_BLANKS: Final = [
    ListRow("state with a blank", 1, states=(EMPTY + " ",)),
    ListRow("state with a blank before it", 1, states=("no such", " " + EMPTY)),
]
FILTERS: Final = [
    ListRow("state twice", 1, states=(EMPTY, EMPTY)),
    ListRow("state unknown", 0, states=("no such",)),
    ListRow("state unknown beside a known one", 1, states=("no such", EMPTY)),
    ListRow("state without a name", 0, states=("",)),
    ListRow("states of others", 0, states=("Stable", "Dead", "PreparingRebalance")),
    ListRow("type twice", 1, types=("classic", "classic")),
    ListRow("type in another case", 1, types=("CLASSIC",)),
    ListRow("type unknown", 0, types=("no such",)),
    ListRow("type unknown beside a known one", 1, types=("no such", "classic")),
    ListRow("type without a name", 0, types=("",)),
    ListRow("type of another", 0, types=("consumer", "share")),
    ListRow("state and type", 1, states=(EMPTY,), types=("classic",)),
    ListRow("state and type of another", 0, states=(EMPTY,), types=("consumer",)),
    ListRow("type and state of another", 0, states=("Stable",), types=("classic",)),
]


@clause("FLD-7", "ListGroups")
@defect(Reply(ListGroupsRequest, "groups", ()))
@pytest.mark.parametrize("rows", [
    pytest.param([row for row in FILTERS if not row.types], id="states"),
    pytest.param([row for row in FILTERS if row.types], id="types"),
    pytest.param(IN_ANOTHER_CASE, id="cases", marks=[era("3.9")]),
    pytest.param(WITH_BLANKS, id="blanks", marks=[era("4.0")]),
])  # fmt: skip
def test_filters_of_a_list_of_groups(world: World, rows: Sequence[ListRow]) -> None:
    for row in rows:
        request = ListGroupsRequest(states_filter=row.states, types_filter=row.types)
        reply = world.coordinator.call(request, world.coordinator.version_of(ListGroupsRequest, row.version))
        found = [group.group_id for group in reply.groups].count(world.group)
        expect(f"{row.name}: error code, and number of entries", (0, row.count), (reply.error_code, found))


def described(*groups: str | None) -> Callable[[World], Any]:
    """Return a builder of a request for groups; None is the group of the case."""
    return lambda world: DescribeGroupsRequest(groups=tuple(world.group if each is None else each for each in groups))


def read_descriptions(reply: Any) -> tuple[tuple[int, str], ...]:
    """Return error code and state of each answer."""
    return tuple(sorted((group.error_code, group.group_state) for group in reply.groups))


def deleted(*groups: str | None) -> Callable[[World], Any]:
    """Return a builder of a request for groups; None is the group of the case, which exists then."""

    def build(world: World) -> DeleteGroupsRequest:
        world.commit(0)
        return DeleteGroupsRequest(groups_names=tuple(world.group if each is None else each for each in groups))

    return build


def read_results(reply: Any) -> tuple[int, ...]:
    """Return the error code of each answer."""
    return tuple(sorted(result.error_code for result in reply.results))


NAMELESS: Final = frozenset({((0, EMPTY), (ErrorCode.NOT_COORDINATOR, ""))})
"""The group without a name may have another coordinator."""


DESCRIPTIONS: Final = [
    Call("groups empty", described(), (), read_descriptions),
    Call("group twice", described(None, None), ((0, EMPTY), (0, EMPTY)), read_descriptions),
    Call(
        "group without a name", described(None, ""), NAMELESS | {((0, "Dead"), (0, EMPTY))}, read_descriptions, (0, 5)
    ),
    Call(
        "group without a name, with an error",
        described(None, ""),
        NAMELESS | {((0, EMPTY), (NO_GROUP, "Dead"))},
        read_descriptions,
        (6, None),
    ),
]
DELETED: Final = [
    Call("groups empty", deleted(), (), read_results),
    Call("group twice", deleted(None, None), (0,), read_results),
    Call(
        "group without a name",
        deleted("", None),
        frozenset({(0, NO_GROUP), (0, ErrorCode.NOT_COORDINATOR)}),
        read_results,
    ),
]


@clause("FLD-7", "DescribeGroups")
@defect(Reply(DescribeGroupsRequest, "groups.error_code", increment))
@pytest.mark.parametrize("rows", shared(*DESCRIPTIONS))
def test_fields_of_a_description_of_groups(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(DescribeGroupsRequest), rows, world, world.coordinator)


@clause("FLD-7", "DeleteGroups")
@defect(Reply(DeleteGroupsRequest, "results.error_code", increment))
@pytest.mark.parametrize("rows", shared(*DELETED))
def test_fields_of_a_deletion_of_groups(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(DeleteGroupsRequest), rows, world, world.coordinator)


# -- FindCoordinator ---------------------------------------------------------------------------------------

GROUP_KEY, TRANSACTION_KEY = 0, 1


def searched(*keys: str, kind: int = GROUP_KEY) -> Callable[[World], Any]:
    return lambda world: FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)


def read_coordinators(reply: Any) -> list[tuple[str, int]]:
    """Return key and error code of each answer, in their order."""
    return [(found.key, found.error_code) for found in reply.coordinators]


SEARCHED: Final = [
    Call("keys empty", searched(), [], read_coordinators, (4, None)),
    Call("key twice", searched("a", "b", "a"), [("a", 0), ("b", 0), ("a", 0)], read_coordinators, (4, None)),
    Call("key empty", searched("a", ""), [("a", 0), ("", 0)], read_coordinators, (4, None)),
    Call(
        "key_type negative", searched("a", "b", kind=-1), [("a", INVALID), ("b", INVALID)], read_coordinators, (4, None)
    ),
    Call("key_type largest", searched("a", kind=127), [("a", INVALID)], read_coordinators, (4, None)),
]


@clause("FLD-7", "FindCoordinator")
@defect(Reply(FindCoordinatorRequest, "coordinators.error_code", increment))
@pytest.mark.parametrize("rows", shared(*SEARCHED))
def test_fields_of_a_search_for_coordinators(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(FindCoordinatorRequest), rows, world, world.coordinator)


# -- SyncGroup, Heartbeat, LeaveGroup ----------------------------------------------------------------------


def heartbeat(**fields: Any) -> Callable[[World], Any]:
    return lambda world: HeartbeatRequest(**{"group_id": world.group, "generation_id": 1, "member_id": "m", **fields})


def sync(**fields: Any) -> Callable[[World], Any]:
    named = {"generation_id": 1, "member_id": "m", "protocol_type": "consumer", "protocol_name": "range"}
    return lambda world: SyncGroupRequest(**{"group_id": world.group, **named, **fields})


def leave(*members: tuple[str, str | None], **fields: Any) -> Callable[[World], Any]:
    """Return a builder of a request for members, each with its id and its instance id."""
    listed = tuple(MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in members)
    return lambda world: LeaveGroupRequest(**{"group_id": world.group, "members": listed, **fields})


def read_error(reply: Any) -> int:
    return int(reply.error_code)


def read_left(reply: Any) -> list[Any]:
    """Return the error code, then member id, instance id and error code of each answer."""
    return [reply.error_code, *((each.member_id, each.group_instance_id, each.error_code) for each in reply.members)]


MEMBERS: Final = [
    (HeartbeatRequest, Call("Heartbeat, group_id empty", heartbeat(group_id=""), NO_GROUP_NAME, read_error)),
    (HeartbeatRequest, Call("Heartbeat, member_id empty", heartbeat(member_id=""), NO_MEMBER, read_error)),
    (HeartbeatRequest, Call("Heartbeat, generation_id -1", heartbeat(generation_id=-1), NO_MEMBER, read_error)),
    (SyncGroupRequest, Call("SyncGroup, group_id empty", sync(group_id=""), NO_GROUP_NAME, read_error)),
    (SyncGroupRequest, Call("SyncGroup, member_id empty", sync(member_id=""), NO_MEMBER, read_error)),
    (SyncGroupRequest, Call("SyncGroup, generation_id -1", sync(generation_id=-1), NO_MEMBER, read_error)),
    (LeaveGroupRequest, Call("group_id empty", leave(("m", None), group_id=""), NO_GROUP_NAME, read_error, (3, None))),
    (LeaveGroupRequest, Call("members empty", leave(), [0], read_left, (3, None))),
    (
        LeaveGroupRequest,
        Call(
            "member unknown twice, empty and by instance",
            leave(("m", None), ("m", None), ("", None), ("", "i")),
            [0, ("m", None, NO_MEMBER), ("m", None, NO_MEMBER), ("", None, NO_MEMBER), ("", "i", NO_MEMBER)],
            read_left,
            (3, None),
        ),
    ),
]


@clause("FLD-7", "members")
@defect(Reply(HeartbeatRequest, "error_code", increment), Reply(SyncGroupRequest, "error_code", increment))
@defect(Reply(LeaveGroupRequest, "error_code", increment))
def test_fields_of_requests_of_members(world: World) -> None:
    for request in dict.fromkeys(kind for kind, _ in MEMBERS):
        rows = [row for kind, row in MEMBERS if kind is request]
        check_all(no_items(request), rows, world, world.coordinator)


@clause("FLD-7", "leaving twice")
@defect(Reply(LeaveGroupRequest, "members.error_code", increment))
def test_a_member_that_a_request_names_twice_leaves_once(cluster: Cluster) -> None:
    driver = GroupDriver(cluster, cluster.group())
    member = driver.stable_member()
    named = MemberIdentity(member_id=member.member_id)
    version = member.broker.version_of(LeaveGroupRequest, 3)
    reply = member.broker.call(LeaveGroupRequest(group_id=driver.group, members=(named, named)), version)
    expect("error codes", [0, NO_MEMBER], [each.error_code for each in reply.members])
