"""A classic group whose members stay silent, depart or start again during a rebalance, with a short rebalance timeout.

In each round all members are stable, then one starts a rebalance, and each other one may join again, depart, lose its
connection or do nothing. Every JoinGroup that waits must be answered once the rebalance timeout is over: the dynamic
members that did nothing are removed by then, the static ones stay (KIP-345, GroupCoordinator.onCompleteJoin). The time
passes within the sequence, so what a timer does wrong shows in it.

Deliberately absent: a dynamic member that joins over a second connection while its first JoinGroup waits. Apache Kafka
never answers the first one (ClassicGroup.updateMember), so no answer can be required.
"""

import time
from dataclasses import dataclass, field
from typing import Any, Final

from highwater.fuzz.wire.sequences.context import SequenceAbandoned, SequenceContext
from highwater.fuzz.wire.sequences.groups import await_coordinator
from highwater.reference.client.connection import Connection
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.groups import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

ROUNDS: Final = (1, 2)
ATTEMPTS: Final = 3
SHORT_METADATA: Final = 5  # bytes
SESSION_MS, REBALANCE_MS = 10_000, 40
OVER_S: Final = REBALANCE_MS / 1000 + 0.02
"""After that the timer of a rebalance has fired."""
UNNAMED_SHARES: Final = (0.0, 0.0, 0.5, 1.0)
"""Probabilities that the leader does not name a member."""
STATIC_SINCE, LEAVE_BATCH_SINCE, SYNC_STATIC_SINCE = 5, 3, 3  # versions of JoinGroup, LeaveGroup, SyncGroup
LEAVE_VERSION_MAX: Final = 5
STATIC_SHARE, NEWCOMER_SHARE, IDLE_SHARE, GIVE_UP_SHARE = 0.6, 0.7, 0.6, 0.6
WAIT_SHARE: Final = 0.3
"""How often to wait for a timer that must do nothing; the other sequences of a run wait for this one."""
DISTURBED: Final = (
    ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED,
)  # fmt: skip
"""What a member gets that was too late, or replaced, or one too many."""


@dataclass(eq=False)
class Joiner:
    """A member; `waiting` is the version of the JoinGroup that it waits for, None if it waits for none."""

    connection: Connection
    instance: str | None
    id: str = ""
    waiting: int | None = None


@dataclass
class Rebalancing:
    """The model: the members that must be in the group, and those that left it."""

    name: str
    members: list[Joiner] = field(default_factory=list)
    departed: list[Joiner] = field(default_factory=list)


def run(context: SequenceContext) -> None:
    """Run rounds with one or two members; then all depart, and the group is empty."""
    connection, group = context.connect(), Rebalancing(f"fuzz-rebalance-{context.rng.getrandbits(40):x}")
    await_coordinator(context, connection, group.name)
    for _ in range(context.rng.choice((1, 1, 2))):
        _enter(context, group)
    _settle(context, group)
    for _ in context.steps(*ROUNDS):
        _disturb(context, group)
        if all(member.waiting is None for member in group.members):
            time.sleep(OVER_S)  # with no member that waits, only the timer ends the rebalance
        _settle(context, group)
    _leave_all(context, connection, group)


# -- one round ---------------------------------------------------------------------------------------


def _disturb(context: SequenceContext, group: Rebalancing) -> None:
    """Start a rebalance, by a newcomer or a member; what the others do is random, often all do nothing."""
    others = list(group.members)
    if context.rng.random() < NEWCOMER_SHARE or not others:
        starter = _enter(context, group)
        gives_up = context.rng.random() < GIVE_UP_SHARE
    else:
        starter, gives_up = others.pop(context.rng.randrange(len(others))), False
        _rejoin(context, group, starter)
    actions = (_rejoin, _depart, _start_again, _nothing)
    all_idle = context.rng.random() < IDLE_SHARE
    for member in others:
        (_nothing if all_idle else context.rng.choice(actions))(context, group, member)
    if gives_up:
        _depart(context, group, starter)


def _enter(context: SequenceContext, group: Rebalancing) -> Joiner:
    """Send the JoinGroup of a new member; a dynamic one gets its id first (KIP-394)."""
    is_static = context.rng.random() < STATIC_SHARE
    instance = f"{group.name}-{context.rng.getrandbits(40):x}" if is_static else None
    member = Joiner(context.connect(), instance)
    if instance is None:
        answer = context.call(member.connection, _join_request(context, group, member), _join_version(context))
        if context.accepted(answer.error_code, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.GROUP_MAX_SIZE_REACHED):
            raise SequenceAbandoned("the broker does not require member ids")
        if answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED:
            raise SequenceAbandoned("the group is full")
        member.id = answer.member_id
    group.members.append(member)
    _rejoin(context, group, member)
    return member


def _rejoin(context: SequenceContext, group: Rebalancing, member: Joiner) -> None:
    if member.waiting is None:
        member.waiting = context.send(member.connection, _join_request(context, group, member), _join_version(context))


def _depart(context: SequenceContext, group: Rebalancing, member: Joiner) -> None:
    """Leave the group, also while a JoinGroup waits: that is answered at once.

    A static member that has no id yet leaves by its instance id alone (KIP-345).
    """
    group.members.remove(member)
    group.departed.append(member)
    _leave(context, context.connect(), group, [member])


def _start_again(context: SequenceContext, group: Rebalancing, member: Joiner) -> None:
    """Lose the connection; a static member joins again over a new one, and its first JoinGroup is fenced."""
    first, waiting = member.connection, member.waiting
    member.connection, member.waiting = context.connect(), None
    if member.instance is None:
        first.close()
        return
    member.id = ""
    _rejoin(context, group, member)
    if waiting is not None:
        answer = context.receive(first, JoinGroupRequest, waiting)
        context.accepted(answer.error_code, *DISTURBED)


def _nothing(context: SequenceContext, group: Rebalancing, member: Joiner) -> None:
    """Stay silent: a dynamic member is removed when the rebalance timeout is over."""


# -- the end of a rebalance --------------------------------------------------------------------------


def _settle(context: SequenceContext, group: Rebalancing) -> None:
    """Receive every pending response; all that have joined then synchronise in one generation."""
    is_over = not _any_departed_has_joined(context, group)
    for _ in range(ATTEMPTS):
        answers = _receive_joins(context, group)
        if is_over and len({answer.generation_id for _, answer in answers}) <= 1:
            break
        is_over = True
        for member, _ in answers:  # a join that was complete before another member joined or departed
            _rejoin(context, group, member)
    else:
        raise SequenceAbandoned("the members do not join in one rebalance")  # other clients keep the broker busy
    if answers:
        _synchronise(context, group, answers)


def _any_departed_has_joined(context: SequenceContext, group: Rebalancing) -> bool:
    """Receive what the departed members wait for; True if one joined before it left: then another rebalance follows."""
    codes = [
        context.receive(member.connection, JoinGroupRequest, member.waiting).error_code
        for member in group.departed
        if member.waiting is not None
    ]
    group.departed.clear()
    return any(context.accepted(code, *DISTURBED) for code in codes)


def _receive_joins(context: SequenceContext, group: Rebalancing) -> list[tuple[Joiner, Any]]:
    """Return the members that have joined, with the responses; dynamic members that have not are no members then."""
    joined = [(member, _joined(context, member)) for member in group.members if member.waiting is not None]
    answers = [(member, answer) for member, answer in joined if answer is not None]
    refused = {member for member, answer in joined if answer is None}
    stay = {member for member, _ in answers} | {member for member in group.members if member.instance is not None}
    group.members = [member for member in group.members if member in stay - refused]
    return answers


def _joined(context: SequenceContext, member: Joiner) -> Any | None:
    """Return the response to the JoinGroup, None if the member was too late."""
    assert member.waiting is not None
    answer = context.receive(member.connection, JoinGroupRequest, member.waiting)
    member.waiting = None
    if not context.accepted(answer.error_code, *DISTURBED):
        return None
    member.id = answer.member_id
    return answer


def _synchronise(context: SequenceContext, group: Rebalancing, answers: list[tuple[Joiner, Any]]) -> None:
    """The leader is one that has joined; after its SyncGroup the group is stable, whatever timers ran before.

    A member that the leader does not name receives an empty assignment, as in Apache Kafka (GroupMetadataManager).
    """
    generation, leader = answers[0][1].generation_id, answers[0][1].leader
    ids = {member.id for member, _ in answers}
    context.require(leader in ids, f"member {leader} leads, {sorted(ids)} have joined")
    named = [name for name in sorted(ids) if context.rng.random() > context.rng.choice(UNNAMED_SHARES)]
    shares = tuple(SyncGroupRequestAssignment(member_id=name, assignment=name.encode()) for name in named)
    sent = [_sync(context, group, member, generation, shares if member.id == leader else ()) for member, _ in answers]
    for (member, _), version in zip(answers, sent, strict=True):
        answer = context.receive(member.connection, SyncGroupRequest, version)
        if not context.accepted(answer.error_code, *DISTURBED):
            raise SequenceAbandoned("another rebalance has begun")
        due = member.id.encode() if member.id in named else b""
        context.require(answer.assignment == due, f"a member receives {answer.assignment!r} instead of {due!r}")
    if context.rng.random() < WAIT_SHARE:
        time.sleep(OVER_S)
        for member, _ in answers:
            _check_alive(context, group, member, generation)


def _check_alive(context: SequenceContext, group: Rebalancing, member: Joiner, generation: int) -> None:
    """The coordinator still answers after the timeout of the rebalance.

    It may have begun another one, as Apache Kafka did in one of 60 sequences after a member had departed; so the error
    code decides nothing.
    """
    beat = HeartbeatRequest(
        group_id=group.name, generation_id=generation, member_id=member.id, group_instance_id=member.instance
    )
    version = context.version(HeartbeatRequest, at_least=SYNC_STATIC_SINCE)
    context.accepted(context.call(member.connection, beat, version).error_code, *DISTURBED)


def _sync(
    context: SequenceContext, group: Rebalancing, member: Joiner, generation: int,
    shares: tuple[SyncGroupRequestAssignment, ...],
) -> int:  # fmt: skip
    request = SyncGroupRequest(
        group_id=group.name, generation_id=generation, member_id=member.id, group_instance_id=member.instance,
        protocol_type="consumer", protocol_name="range", assignments=shares,
    )  # fmt: skip
    return context.send(member.connection, request, context.version(SyncGroupRequest, at_least=SYNC_STATIC_SINCE))


# -- the end -----------------------------------------------------------------------------------------


def _leave_all(context: SequenceContext, connection: Connection, group: Rebalancing) -> None:
    """All members depart: the group has no member left, neither at once nor after the timeout."""
    known = [member for member in group.members if member.id]
    _leave(context, connection, group, known)
    if len(known) < len(group.members):
        return
    for pause_s in (0.0, *((OVER_S,) if context.rng.random() < WAIT_SHARE else ())):
        time.sleep(pause_s)
        (found,) = context.call(connection, DescribeGroupsRequest(groups=(group.name,))).groups
        context.accepted(found.error_code, ErrorCode.GROUP_ID_NOT_FOUND)
        left = [member.member_id for member in found.members]
        gone = {member.id for member in known}
        context.require(not gone & set(left), f"{left} are members, and all have left")


def _leave(context: SequenceContext, connection: Connection, group: Rebalancing, members: list[Joiner]) -> None:
    identities = tuple(MemberIdentity(member_id=member.id, group_instance_id=member.instance) for member in members)
    if not identities:
        return
    version = context.version(LeaveGroupRequest, at_least=LEAVE_BATCH_SINCE, at_most=LEAVE_VERSION_MAX)
    answer = context.call(connection, LeaveGroupRequest(group_id=group.name, members=identities), version)
    context.accepted(answer.error_code)
    for result in answer.members:
        context.accepted(result.error_code, *DISTURBED)


def _join_version(context: SequenceContext) -> int:
    return context.version(JoinGroupRequest, at_least=STATIC_SINCE)


def _join_request(context: SequenceContext, group: Rebalancing, member: Joiner) -> JoinGroupRequest:
    """Return a JoinGroup with other metadata than the last one: equal ones start no rebalance.

    They are too short for a subscription: Apache Kafka 4.3.1 never answered a JoinGroup whose metadata were six random
    bytes, which its decoder takes for a list of topics that is longer than what follows.
    """
    return JoinGroupRequest(
        group_id=group.name, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS, member_id=member.id,
        group_instance_id=member.instance, protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=context.rng.randbytes(SHORT_METADATA)),),
    )  # fmt: skip
