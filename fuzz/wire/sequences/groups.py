"""A classic group: generations ascend, one member leads, assignments arrive unchanged, commits persist."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from highwater.fuzz.wire.sequences.context import TOPICS, SequenceAbandoned, SequenceContext
from highwater.reference.client.connection import Connection
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from highwater.reference.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest

STEPS: Final = (3, 8)
MEMBERS_MAX: Final = 3
HEARTBEATS_MAX: Final = 1_000
MEMBER_ID_SINCE: Final = 4  # version of JoinGroup
SESSION_MS, REBALANCE_MS = 10_000, 3_000
STALE: Final = (
    ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
)  # fmt: skip
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS = 15, 16, 42
NO_SUCH_MEMBER: Final = "fuzz-unknown-member"
NO_COORDINATOR: Final = frozenset({
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
})  # fmt: skip
POLLS_MAX: Final = 200
POLL_S: Final = 0.01
PREPARING, COMPLETING, STABLE = "PreparingRebalance", "CompletingRebalance", "Stable"
"""States of a group as DescribeGroups returns them (ClassicGroupState)."""
INSPECT_SHARE: Final = 0.25
READ_FIRST_SHARE: Final = 0.3
ONE_BY_ONE_UNTIL: Final = 2  # version of LeaveGroup
STABLE_SINCE, BATCHED_SINCE = 7, 8  # versions of OffsetFetch


@dataclass(eq=False)
class Member:
    connection: Connection
    id: str = ""
    generation: int = -1
    metadata: bytes = b"fuzz"


@dataclass
class Group:
    """The model: members, newest generation, and last committed offset."""

    name: str
    members: list[Member] = field(default_factory=list)
    generation: int = 0
    committed: int = -1
    leader: str = ""
    is_stable: bool = True


def run(context: SequenceContext) -> None:
    """Random joins, rebalances, commits and departures."""
    group = begin(context)
    for _ in context.steps(*STEPS):
        step(context, group, context.rng.choice(list(STEPS_OF_A_GROUP)))
    end(context, group)


def begin(context: SequenceContext) -> Group:
    name = f"fuzz-model-group-{context.rng.getrandbits(40):x}"
    connection = context.connect()
    await_coordinator(context, connection, name)
    if context.supports(2, 19):
        context.topic(connection, TOPICS[0])
    group = Group(name)
    if context.supports(LIST_GROUPS, 19) and context.rng.random() < READ_FIRST_SHARE:
        _read_unknown(context, group, connection)
    return group


def await_coordinator(context: SequenceContext, connection: Connection, name: str) -> None:
    """Wait until the group has a coordinator: a replay begins with a broker that has just started."""
    request = HeartbeatRequest(group_id=name, generation_id=1, member_id=NO_SUCH_MEMBER)
    for _ in range(POLLS_MAX):
        context.call(connection, FindCoordinatorRequest(key=name))
        if context.call(connection, request).error_code not in NO_COORDINATOR:
            return
        time.sleep(POLL_S)
    raise SequenceAbandoned("there is no coordinator")


def _read_unknown(context: SequenceContext, group: Group, connection: Connection) -> None:
    """Fetch offsets of a group that does not exist: there are none, and there still is no such group."""
    check_committed(context, group, connection)
    answer = context.call(connection, ListGroupsRequest())
    context.accepted(answer.error_code)
    listed = {found.group_id for found in answer.groups}
    context.require(group.name not in listed, f"{group.name} exists because its offsets were asked for")


def step(context: SequenceContext, group: Group, name: str) -> None:
    """Run one step, if the group's state allows it."""
    if group.members or name in {"join", "join inconsistent"}:
        STEPS_OF_A_GROUP[name](context, group)


def end(context: SequenceContext, group: Group) -> None:
    """Let all members leave; then the group can be deleted, and has no offsets any more."""
    for member in list(group.members):
        _leave(context, group, member)
    if group.generation and context.supports(DELETE_GROUPS) and context.rng.random() < INSPECT_SHARE:
        connection = context.connect()
        answer = context.call(connection, DeleteGroupsRequest(groups_names=(group.name,)))
        context.accepted(answer.results[0].error_code)
        group.committed = -1
        check_committed(context, group, connection)


def inspect(context: SequenceContext, group: Group, state: str) -> None:
    """Sometimes describe the group, whose state is known, and try to delete it, which its members prevent."""
    if context.rng.random() >= INSPECT_SHARE or not context.supports(DESCRIBE_GROUPS, DELETE_GROUPS):
        return
    connection = context.connect()
    answer = context.call(connection, DeleteGroupsRequest(groups_names=(group.name,)))
    done = context.accepted(answer.results[0].error_code, ErrorCode.NON_EMPTY_GROUP)
    context.require(not done, f"a group with {len(group.members)} members is deleted, its state is {state}")
    (found,) = context.call(connection, DescribeGroupsRequest(groups=(group.name,))).groups
    context.accepted(found.error_code)
    context.require(found.group_state == state, f"described as {found.group_state}, {state} expected")
    described, ids = {member.member_id for member in found.members}, {member.id for member in group.members}
    context.require(described == ids, f"{len(described)} members are described, {len(ids)} have joined")


def join(context: SequenceContext, group: Group) -> None:
    """Add a member; since version 4 it first receives its id and joins again with it (KIP-394)."""
    if len(group.members) >= MEMBERS_MAX:
        return
    member = Member(context.connect())
    version = context.version(JoinGroupRequest, at_least=MEMBER_ID_SINCE)
    answer = context.call(member.connection, join_request(group, member), version)
    if context.accepted(answer.error_code, ErrorCode.MEMBER_ID_REQUIRED):
        raise SequenceAbandoned("the broker does not require member ids")
    context.require(answer.member_id != "", "no member id is returned")
    member.id = answer.member_id
    group.members.insert(0, member)
    _all_join(context, group)


def join_inconsistent(context: SequenceContext, group: Group) -> None:
    """A newcomer without protocols or type is refused; in a group with members also one that shares none with them."""
    none_in_common = (JoinGroupRequestProtocol(name="fuzz-no-other-has-it", metadata=b"fuzz"),)
    wrong: tuple[dict[str, Any], ...] = ({"protocols": ()}, {"protocol_type": ""})
    if group.members:
        wrong += ({"protocols": none_in_common}, {"protocol_type": "fuzz-other-type"})
    newcomer = Member(context.connect())
    version = context.version(JoinGroupRequest, at_least=MEMBER_ID_SINCE)
    asked = replace(join_request(group, newcomer), **context.rng.choice(wrong))
    answer = context.call(newcomer.connection, asked, version)
    done = context.accepted(answer.error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    context.require(not done, f"a member with type {asked.protocol_type!r} and {asked.protocols} joins")


def join_request(group: Group, member: Member) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group.name, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS, member_id=member.id,
        protocol_type="consumer", protocols=(JoinGroupRequestProtocol(name="range", metadata=member.metadata),),
    )  # fmt: skip


def rebalance(context: SequenceContext, group: Group) -> None:
    """Let the leader join again, which starts a rebalance; from a follower it would not in a stable group."""
    group.members.sort(key=lambda member: member.id != group.leader)
    _all_join(context, group)


def change(context: SequenceContext, group: Group) -> None:
    """Let a follower join again with other metadata, which the leader must receive."""
    followers = [member for member in group.members if member.id != group.leader]
    if followers:
        first = context.rng.choice(followers)
        first.metadata = context.rng.randbytes(5)
        group.members.sort(key=lambda member: member is not first)
        _all_join(context, group)


def _all_join(context: SequenceContext, group: Group) -> None:
    """Start a rebalance; the other members join after a heartbeat. One leads, all receive its assignments."""
    first, *others = group.members
    versions = [context.send(first.connection, join_request(group, first))]
    for member in others:
        _await_rebalance(context, group, member)
        inspect(context, group, PREPARING)
        versions.append(context.send(member.connection, join_request(group, member)))
    answers = []
    for member, version in zip(group.members, versions, strict=True):
        answer = context.receive(member.connection, JoinGroupRequest, version)
        context.accepted(answer.error_code)
        answers.append(answer)
    generations = {answer.generation_id for answer in answers}
    context.require(len(generations) == 1, f"one rebalance ends in generations {sorted(generations)}")
    (generation,) = generations
    context.require(generation > group.generation, f"generation {generation} after {group.generation}")
    group.generation = generation
    for member, answer in zip(group.members, answers, strict=True):
        context.require(answer.member_id == member.id, f"member {answer.member_id} joined as {member.id}")
        member.generation = generation
    inspect(context, group, COMPLETING)
    _sync(context, group, answers)
    inspect(context, group, STABLE)


def _await_rebalance(context: SequenceContext, group: Group, member: Member) -> None:
    for _ in range(HEARTBEATS_MAX):
        if not context.accepted(
            send_heartbeat(context, group, member, member.generation), ErrorCode.REBALANCE_IN_PROGRESS
        ):
            return
    context.violates("a member joins, but the heartbeats of others do not report the rebalance")


def _sync(context: SequenceContext, group: Group, answers: list[Any]) -> None:
    ids = {member.id for member in group.members}
    leaders = {answer.leader for answer in answers}
    context.require(len(leaders) == 1 and leaders <= ids, f"leaders {sorted(leaders)} of members {sorted(ids)}")
    (leader,) = leaders
    group.leader = leader
    reported = next(
        {member_id.member_id: member_id.metadata for member_id in answer.members}
        for answer in answers
        if answer.member_id == leader
    )
    context.require(reported.keys() == ids, f"the leader receives {len(reported)} members, {len(ids)} joined")
    known = all(reported[member.id] == member.metadata for member in group.members)
    context.require(known, "the leader receives other metadata than the member's last JoinGroup contained")
    shares = {member_id: context.rng.randbytes(6) for member_id in sorted(ids)}
    versions = []
    for member in group.members:
        versions.append(
            context.send(member.connection, sync_request(group, member, shares if member.id == leader else {}))
        )
    for member, version in zip(group.members, versions, strict=True):
        answer = context.receive(member.connection, SyncGroupRequest, version)
        context.accepted(answer.error_code)
        context.require(
            answer.assignment == shares[member.id], "a member receives another assignment than the leader sent for it"
        )
    group.is_stable = True


def sync_request(group: Group, member: Member, shares: Mapping[str, bytes]) -> SyncGroupRequest:
    """Return a SyncGroup; `shares` are the leader's assignments by member id."""
    assignments = tuple(
        SyncGroupRequestAssignment(member_id=member_id, assignment=share) for member_id, share in shares.items()
    )
    return SyncGroupRequest(
        group_id=group.name, generation_id=member.generation, member_id=member.id, protocol_type="consumer",
        protocol_name="range", assignments=assignments,
    )  # fmt: skip


def send_heartbeat(context: SequenceContext, group: Group, member: Member, generation: int) -> int:
    request = HeartbeatRequest(group_id=group.name, generation_id=generation, member_id=member.id)
    return int(context.call(member.connection, request).error_code)


def heartbeat(context: SequenceContext, group: Group) -> None:
    member = context.rng.choice(group.members)
    done = context.accepted(send_heartbeat(context, group, member, member.generation), ErrorCode.REBALANCE_IN_PROGRESS)
    context.require(done or not group.is_stable, "a stable group reports a rebalance")


def stale_heartbeat(context: SequenceContext, group: Group) -> None:
    """Send a heartbeat with a future or past generation."""
    member = context.rng.choice(group.members)
    wrong = context.rng.choice((member.generation + 1, member.generation - 1, 2**31 - 1))
    done = context.accepted(send_heartbeat(context, group, member, wrong), *STALE)
    context.require(not done, f"a heartbeat of generation {wrong} is accepted in generation {group.generation}")


def commit(context: SequenceContext, group: Group) -> None:
    member, offset = context.rng.choice(group.members), context.rng.randrange(1 << 40)
    if send_commit(context, group, member, member.generation, offset):
        group.committed = offset
    fetch(context, group)


def stale_commit(context: SequenceContext, group: Group) -> None:
    """Commit with the generation of a past rebalance, which must change nothing."""
    member = context.rng.choice(group.members)
    wrong = context.rng.choice((member.generation - 1, member.generation + 1))
    if wrong >= 0:
        done = send_commit(context, group, member, wrong, 7)
        context.require(not done, f"a commit of generation {wrong} is accepted in generation {group.generation}")
    fetch(context, group)


def commit_unknown(context: SequenceContext, group: Group) -> None:
    """Commit for a partition that the topic does not have, which must be refused."""
    member, number = context.rng.choice(group.members), context.rng.choice((-1, 99, 2**31 - 1))
    done = send_commit(context, group, member, member.generation, 7, number)
    context.require(not done, f"a commit for partition {number} is accepted, and {TOPICS[0]} has one partition")


def send_commit(
    context: SequenceContext, group: Group, member: Member, generation: int, offset: int, number: int = 0
) -> bool:
    part = OffsetCommitRequestPartition(
        partition_index=number, committed_offset=offset, committed_metadata=commit_metadata(offset)
    )
    topic = OffsetCommitRequestTopic(name=TOPICS[0], partitions=(part,))
    answer = context.call(
        member.connection,
        OffsetCommitRequest(
            group_id=group.name, generation_id_or_member_epoch=generation, member_id=member.id, topics=(topic,)
        ),
    )
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,) if number else ()
    return context.accepted(answer.topics[0].partitions[0].error_code, *STALE, *unknown)


def fetch(context: SequenceContext, group: Group) -> None:
    check_committed(context, group, context.rng.choice(group.members).connection)


def commit_metadata(offset: int) -> str:
    """Return the metadata that belongs to a committed offset."""
    return f"of {offset}"


def check_committed(context: SequenceContext, group: Group, connection: Connection) -> None:
    """The fetched offset must be the last committed one."""
    code, part = committed(context, group, connection)
    context.accepted(code)
    offset = part.committed_offset if part is not None else -1
    context.require(offset == group.committed, f"committed offset {offset}, {group.committed} was accepted")
    if part is not None and offset >= 0:
        context.require(
            part.metadata == commit_metadata(offset), f"offset {offset} with the metadata {part.metadata!r}"
        )


def committed(
    context: SequenceContext, group: Group, connection: Connection, *, stable: bool = False
) -> tuple[int, Any]:
    """Return the error code of the response, and its partition if any."""
    version = context.version(OffsetFetchRequest, at_least=STABLE_SINCE if stable else 0)
    if version >= BATCHED_SINCE:
        topics = (OffsetFetchRequestTopics(name=TOPICS[0], partition_indexes=(0,)),)
        request = OffsetFetchRequest(
            groups=(OffsetFetchRequestGroup(group_id=group.name, topics=topics),), require_stable=stable
        )
    else:
        request = OffsetFetchRequest(
            group_id=group.name,
            topics=(OffsetFetchRequestTopic(name=TOPICS[0], partition_indexes=(0,)),),
            require_stable=stable,
        )
    answer = context.call(connection, request, version)
    whole = answer.groups[0] if version >= BATCHED_SINCE else answer
    return whole.error_code, whole.topics[0].partitions[0] if whole.topics else None


def leave(context: SequenceContext, group: Group) -> None:
    _leave(context, group, context.rng.choice(group.members))
    group.is_stable = not group.members


def _leave(context: SequenceContext, group: Group, member: Member) -> None:
    for code in send_leave(context, group, member):
        context.accepted(code)
    group.members.remove(member)
    alive = context.accepted(
        send_heartbeat(context, group, member, member.generation), *STALE, ErrorCode.GROUP_ID_NOT_FOUND
    )
    context.require(not alive, "the heartbeat of a member that has left is accepted")


def send_leave(context: SequenceContext, group: Group, member: Member) -> list[int]:
    """Send a LeaveGroup; return its error codes."""
    version = context.version(LeaveGroupRequest)
    request = (
        LeaveGroupRequest(group_id=group.name, member_id=member.id)
        if version <= ONE_BY_ONE_UNTIL
        else LeaveGroupRequest(group_id=group.name, members=(MemberIdentity(member_id=member.id),))
    )
    answer = context.call(member.connection, request, version)
    return [answer.error_code, *(identity.error_code for identity in answer.members)]


STEPS_OF_A_GROUP: Final = {
    "join": join, "join inconsistent": join_inconsistent, "rebalance": rebalance, "change": change,
    "heartbeat": heartbeat, "stale heartbeat": stale_heartbeat,
    "commit": commit, "stale commit": stale_commit, "commit unknown": commit_unknown, "fetch": fetch, "leave": leave,
}  # fmt: skip
