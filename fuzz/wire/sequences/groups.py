"""A classic group: generations never go back, one leader, assignments arrive as handed in, commits stay."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from highwater.fuzz.wire.sequences.context import TOPICS, Abandoned, Stage
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
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
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
ONE_BY_ONE_UNTIL: Final = 2  # version of LeaveGroup
STABLE_SINCE, BATCHED_SINCE = 7, 8  # versions of OffsetFetch


@dataclass(eq=False)
class Member:
    line: Connection
    id: str = ""
    generation: int = -1
    metadata: bytes = b"fuzz"


@dataclass
class Group:
    """The model: who is a member, the newest generation, and what was committed."""

    name: str
    members: list[Member] = field(default_factory=list)
    generation: int = 0
    committed: int = -1
    leader: str = ""
    settled: bool = True


def play(stage: Stage) -> None:
    """A walk through joins, rebalances, commits and departures."""
    group = begin(stage)
    for _ in stage.steps(*STEPS):
        step(stage, group, stage.chance.choice(list(STEPS_OF_A_GROUP)))
    end(stage, group)


def begin(stage: Stage) -> Group:
    name = f"fuzz-model-group-{stage.chance.getrandbits(40):x}"
    line = stage.line()
    stage.call(line, FindCoordinatorRequest(key=name))
    if stage.speaks(2, 19):
        stage.topic(line, TOPICS[0])
    return Group(name)


def step(stage: Stage, group: Group, name: str) -> None:
    """One step, if the group is in a state for it."""
    if group.members or name == "join":
        STEPS_OF_A_GROUP[name](stage, group)


def end(stage: Stage, group: Group) -> None:
    for member in list(group.members):
        _leave(stage, group, member)


def join(stage: Stage, group: Group) -> None:
    """A new member: since version 4 it is told its id first, and comes back with it (KIP-394)."""
    if len(group.members) >= MEMBERS_MAX:
        return
    member = Member(stage.line())
    version = stage.version(JoinGroupRequest, at_least=MEMBER_ID_SINCE)
    answer = stage.call(member.line, join_request(group, member), version)
    if stage.accepted(answer.error_code, ErrorCode.MEMBER_ID_REQUIRED):
        raise Abandoned("strangers may join at once")
    stage.require(answer.member_id != "", "no member id to come back with")
    member.id = answer.member_id
    group.members.insert(0, member)
    _all_join(stage, group)


def join_request(group: Group, member: Member) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group.name, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS, member_id=member.id,
        protocol_type="consumer", protocols=(JoinGroupRequestProtocol(name="range", metadata=member.metadata),),
    )  # fmt: skip


def rebalance(stage: Stage, group: Group) -> None:
    """The leader joins again, which makes everybody join; of anybody else that would mean nothing in a stable group."""
    group.members.sort(key=lambda member: member.id != group.leader)
    _all_join(stage, group)


def change(stage: Stage, group: Group) -> None:
    """Who follows joins again with other metadata, which the leader must hear of."""
    followers = [member for member in group.members if member.id != group.leader]
    if followers:
        first = stage.chance.choice(followers)
        first.metadata = stage.chance.randbytes(5)
        group.members.sort(key=lambda member: member is not first)
        _all_join(stage, group)


def _all_join(stage: Stage, group: Group) -> None:
    """The first member begins; the others hear of it by heartbeat. One leads, all get what the leader handed in."""
    first, *others = group.members
    asked = [stage.ask(first.line, join_request(group, first))]
    for member in others:
        _hear_of_rebalance(stage, group, member)
        asked.append(stage.ask(member.line, join_request(group, member)))
    answers = []
    for member, version in zip(group.members, asked, strict=True):
        answer = stage.answer(member.line, JoinGroupRequest, version)
        stage.accepted(answer.error_code)
        answers.append(answer)
    generations = {answer.generation_id for answer in answers}
    stage.require(len(generations) == 1, f"one rebalance ends in generations {sorted(generations)}")
    (generation,) = generations
    stage.require(generation > group.generation, f"generation {generation} after {group.generation}")
    group.generation = generation
    for member, answer in zip(group.members, answers, strict=True):
        stage.require(answer.member_id == member.id, f"member {answer.member_id} joined as {member.id}")
        member.generation = generation
    _sync(stage, group, answers)


def _hear_of_rebalance(stage: Stage, group: Group, member: Member) -> None:
    for _ in range(HEARTBEATS_MAX):
        if not stage.accepted(beat(stage, group, member, member.generation), ErrorCode.REBALANCE_IN_PROGRESS):
            return
    stage.violates("a member joins, and the others do not hear of the rebalance")


def _sync(stage: Stage, group: Group, answers: list[Any]) -> None:
    ids = {member.id for member in group.members}
    leaders = {answer.leader for answer in answers}
    stage.require(len(leaders) == 1 and leaders <= ids, f"leaders {sorted(leaders)} of members {sorted(ids)}")
    (leader,) = leaders
    group.leader = leader
    told = next(
        {each.member_id: each.metadata for each in answer.members} for answer in answers if answer.member_id == leader
    )
    stage.require(told.keys() == ids, f"the leader is told of {len(told)} members, {len(ids)} joined")
    known = all(told[member.id] == member.metadata for member in group.members)
    stage.require(known, "the leader is told other metadata than the member's last JoinGroup bore")
    shares = {each: stage.chance.randbytes(6) for each in sorted(ids)}
    asked = []
    for member in group.members:
        asked.append(stage.ask(member.line, sync_request(group, member, shares if member.id == leader else {})))
    for member, version in zip(group.members, asked, strict=True):
        answer = stage.answer(member.line, SyncGroupRequest, version)
        stage.accepted(answer.error_code)
        stage.require(
            answer.assignment == shares[member.id], "a member is given what the leader did not hand in for it"
        )
    group.settled = True


def sync_request(group: Group, member: Member, shares: Mapping[str, bytes]) -> SyncGroupRequest:
    """`shares` by member id: what a leader hands in."""
    handed_in = tuple(SyncGroupRequestAssignment(member_id=each, assignment=share) for each, share in shares.items())
    return SyncGroupRequest(
        group_id=group.name, generation_id=member.generation, member_id=member.id, protocol_type="consumer",
        protocol_name="range", assignments=handed_in,
    )  # fmt: skip


def beat(stage: Stage, group: Group, member: Member, generation: int) -> int:
    request = HeartbeatRequest(group_id=group.name, generation_id=generation, member_id=member.id)
    return int(stage.call(member.line, request).error_code)


def heartbeat(stage: Stage, group: Group) -> None:
    member = stage.chance.choice(group.members)
    done = stage.accepted(beat(stage, group, member, member.generation), ErrorCode.REBALANCE_IN_PROGRESS)
    stage.require(done or not group.settled, "a settled group is said to rebalance")


def stale_heartbeat(stage: Stage, group: Group) -> None:
    """A generation that has not come yet, or is over."""
    member = stage.chance.choice(group.members)
    wrong = stage.chance.choice((member.generation + 1, member.generation - 1, 2**31 - 1))
    done = stage.accepted(beat(stage, group, member, wrong), *STALE)
    stage.require(not done, f"a heartbeat of generation {wrong} is taken in generation {group.generation}")


def commit(stage: Stage, group: Group) -> None:
    member, offset = stage.chance.choice(group.members), stage.chance.randrange(1 << 40)
    if commit_of(stage, group, member, member.generation, offset):
        group.committed = offset
    fetch(stage, group)


def stale_commit(stage: Stage, group: Group) -> None:
    """Of a member that missed a rebalance: it must change nothing."""
    member = stage.chance.choice(group.members)
    wrong = stage.chance.choice((member.generation - 1, member.generation + 1))
    if wrong >= 0:
        done = commit_of(stage, group, member, wrong, 7)
        stage.require(not done, f"a commit of generation {wrong} is taken in generation {group.generation}")
    fetch(stage, group)


def commit_of(stage: Stage, group: Group, member: Member, generation: int, offset: int) -> bool:
    part = OffsetCommitRequestPartition(committed_offset=offset, committed_metadata=said_with(offset))
    topic = OffsetCommitRequestTopic(name=TOPICS[0], partitions=(part,))
    answer = stage.call(
        member.line,
        OffsetCommitRequest(
            group_id=group.name, generation_id_or_member_epoch=generation, member_id=member.id, topics=(topic,)
        ),
    )
    return stage.accepted(answer.topics[0].partitions[0].error_code, *STALE)


def fetch(stage: Stage, group: Group) -> None:
    check_committed(stage, group, stage.chance.choice(group.members).line)


def said_with(offset: int) -> str:
    """What a member says with a commit."""
    return f"of {offset}"


def check_committed(stage: Stage, group: Group, line: Connection) -> None:
    """What is fetched is what was committed last."""
    code, part = committed(stage, group, line)
    stage.accepted(code)
    seen = part.committed_offset if part is not None else -1
    stage.require(seen == group.committed, f"committed offset {seen}, {group.committed} was accepted")
    if part is not None and seen >= 0:
        stage.require(part.metadata == said_with(seen), f"offset {seen} with the metadata {part.metadata!r}")


def committed(stage: Stage, group: Group, line: Connection, *, stable: bool = False) -> tuple[int, Any]:
    """The error code of the whole, and what is told of the partition, if anything."""
    version = stage.version(OffsetFetchRequest, at_least=STABLE_SINCE if stable else 0)
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
    answer = stage.call(line, request, version)
    whole = answer.groups[0] if version >= BATCHED_SINCE else answer
    return whole.error_code, whole.topics[0].partitions[0] if whole.topics else None


def leave(stage: Stage, group: Group) -> None:
    _leave(stage, group, stage.chance.choice(group.members))
    group.settled = not group.members


def _leave(stage: Stage, group: Group, member: Member) -> None:
    for code in leave_of(stage, group, member):
        stage.accepted(code)
    group.members.remove(member)
    alive = stage.accepted(beat(stage, group, member, member.generation), *STALE, ErrorCode.GROUP_ID_NOT_FOUND)
    stage.require(not alive, "a member that has left is still one")


def leave_of(stage: Stage, group: Group, member: Member) -> list[int]:
    """The error codes."""
    version = stage.version(LeaveGroupRequest)
    request = (
        LeaveGroupRequest(group_id=group.name, member_id=member.id)
        if version <= ONE_BY_ONE_UNTIL
        else LeaveGroupRequest(group_id=group.name, members=(MemberIdentity(member_id=member.id),))
    )
    answer = stage.call(member.line, request, version)
    return [answer.error_code, *(each.error_code for each in answer.members)]


STEPS_OF_A_GROUP: Final = {
    "join": join, "rebalance": rebalance, "change": change, "heartbeat": heartbeat, "stale heartbeat": stale_heartbeat,
    "commit": commit, "stale commit": stale_commit, "fetch": fetch, "leave": leave,
}  # fmt: skip
