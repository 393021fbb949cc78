"""Probes of members of a group: what JoinGroup, SyncGroup, LeaveGroup and commits say in each state of the group."""

from collections.abc import Sequence
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.members import (
    ARRIVAL_MS,
    Group,
    Member,
    beat,
    join_all,
    leader_of,
    rejoin,
    stable,
    subscription,
    sync_all,
)
from highwater.fuzz.simulator.probes.client.session import E, Session
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.offsets import Key, commit, committed_ok

SOON_MS: Final = 250
SHORT_MS: Final = 900
NO_GROUP: Final = {version: E.GROUP_ID_NOT_FOUND if version >= 9 else E.ILLEGAL_GENERATION for version in range(2, 10)}
"""What a commit with a generation to a group that does not exist gets, by version of OffsetCommit (KIP-848)."""


async def keep(group: Group) -> None:
    """Commit an offset, so that the group is not removed while it has no members."""
    await committed_ok(group, {(await group.session.create_topic("keeps"), 0): 1})


def listed(leader: Member) -> dict[str, tuple[str | None, bytes]]:
    """Return the members that the leader received, with instance id and metadata."""
    return {each.member_id: (each.group_instance_id, each.metadata) for each in leader.joined.members}


@fields("GRP-7", "GRP-10", "GRP-35", "GRP-43")
async def changes_of_members(session: Session) -> None:
    """The leader receives the newest metadata of each member; only a change of it begins a rebalance."""
    group = await Group.found(session)
    members = [group.member("a"), group.member("b", instance="fixed"), group.member("c")]
    await stable(group, *members)
    for step in range(5):
        leader = leader_of(members)
        changed = session.one_of(*[each for each in members if each is not leader])
        before = changed.generation
        what = session.one_of("metadata", "metadata", "protocols", "nothing") if step else "metadata"
        if what == "metadata":
            changed.metadata = subscription(f"topic {step}", "b")
        elif what == "protocols":
            changed.protocols = (f"own {step}", "range")
        pending = changed.begin_join()
        await session.sleep(ARRIVAL_MS)
        session.equal(pending.done, what == "nothing", f"whether JoinGroup with changed {what} is answered at once")
        if what == "nothing":
            await changed.end_join(pending)
            session.equal(changed.generation, before, "the generation after a JoinGroup without changes")
            continue
        waiting = [(each, each.begin_join()) for each in members if each is not changed]
        for each, join in [(changed, pending), *waiting]:
            await each.end_join(join)
        expected = {each.id: (each.instance, each.metadata) for each in members}
        session.equal(listed(leader_of(members)), expected, f"the members that the leader receives after new {what}")
        session.equal({each.generation for each in members}, {before + 1}, f"the generation after new {what}")
        await sync_all(members)


@fields("GRP-7", "GRP-16", "GRP-44")
async def restarted_static_leader(session: Session) -> None:
    """A static leader that joins again with JoinGroup 9 receives all members and leaves the assignment as it is."""
    group = await Group.found(session)
    first, others = group.member("a", instance="leads"), [group.member("b"), group.member("c", instance="follows")]
    await join_all([first])
    await sync_all([first])
    given = await stable(group, first, *others)
    for _ in range(2):
        again = group.member("a", instance="leads")
        assignment = given.pop(first.id)
        await again.end_join(again.begin_join(9))
        session.expect(again.leads and again.joined.skip_assignment, "a static leader that restarts does not lead on")
        expected = {each.id: (each.instance, each.metadata) for each in (again, *others)}
        session.equal(listed(again), expected, "the members that a static leader receives when it restarts")
        await again.synced(assignment)
        await beat([again, *others])
        given[again.id] = assignment
        first = again


@fields("GRP-9", "GRP-16", "GRP-44")
async def replaced_static_members(session: Session) -> None:
    """A static member that waits in JoinGroup or SyncGroup is fenced at once when its instance id is taken over."""
    group = await Group.found(session)
    leader, static, other = group.member(), group.member(instance="one"), group.member()
    await stable(group, leader, static, other)
    for request_of in ("SyncGroup", "JoinGroup"):
        await rejoin(leader, static, other)
        old = static
        if request_of == "SyncGroup":
            pending = old.begin_sync()
        else:
            await sync_all([leader, static, other])
            opening = leader.begin_join()
            await session.sleep(ARRIVAL_MS)
            pending = old.begin_join()
        await session.sleep(ARRIVAL_MS)
        session.expect(not pending.done, f"{request_of} of a static member is answered without waiting")
        static = group.member(instance="one")
        joining, began_ms = static.begin_join(), session.now_ms
        answer = await pending
        session.error(
            answer.error_code, E.FENCED_INSTANCE_ID, f"a waiting {request_of} whose instance id is taken over"
        )
        session.expect(session.now_ms - began_ms < SOON_MS, f"a waiting {request_of} is fenced late")
        if request_of == "SyncGroup":
            opening = leader.begin_join()
            await session.sleep(ARRIVAL_MS)
        waiting = [(leader, opening), (static, joining), (other, other.begin_join())]
        for member, join in waiting:
            await member.end_join(join)
        await sync_all([leader, static, other])
    await beat([leader, static, other])


@fields("GRP-2", "GRP-5", "GRP-15", "GRP-17")
async def leaving_before_joining(session: Session) -> None:
    """A member that leaves before it joins gives its id back, and its place in the group (KIP-394)."""
    group = await Group.found(session)
    members = [group.member() for _ in range(4)]
    for member in members:
        await member.take_id()
    await group.member().refused(E.GROUP_MAX_SIZE_REACHED, "JoinGroup of a fifth member")
    session.equal(await group.leave(members[0]), [0], "the error of LeaveGroup before JoinGroup")
    session.equal(await group.leave(members[0]), [E.UNKNOWN_MEMBER_ID], "the error of a second LeaveGroup")
    await members[0].end_join(members[0].begin_join(), E.UNKNOWN_MEMBER_ID)
    last = group.member()
    await last.take_id()
    session.equal(await group.leave(*members[2:]), [0, 0], "the errors of LeaveGroup of two that have not joined")
    await rejoin(members[1], last)
    await sync_all([members[1], last])


@fields("GRP-18", "GRP-40", "GRP-42")
async def types_of_protocols(session: Session) -> None:
    """A group with members has one protocol type, and an empty one any."""
    group = await Group.found(session)
    await keep(group)
    types = ("consumer", "connect", "sr", "consumer")
    for number, kind in enumerate(types):
        members = [group.member(protocol_type=kind) for _ in range(2)]
        await stable(group, *members)
        session.equal((await group.describe()).protocol_type, kind, "the protocol type in DescribeGroups")
        other = next(each for each in types if each != kind)
        await group.member(protocol_type=other).refused(E.INCONSISTENT_GROUP_PROTOCOL, f"a {other} among {kind}")
        for sent, name, error in (
            (kind, "range", E.NONE), (other, "range", E.INCONSISTENT_GROUP_PROTOCOL),
            (kind, "other", E.INCONSISTENT_GROUP_PROTOCOL), (None, "range", E.INCONSISTENT_GROUP_PROTOCOL),
        ):  # fmt: skip
            answer = await members[0].begin_sync(version=5, protocol_type=sent, protocol_name=name)
            session.error(answer.error_code, error, f"SyncGroup 5 with {sent} and {name} in a group of {kind}")
            found = answer.protocol_type, answer.protocol_name
            if error is E.NONE:
                session.equal(found, (kind, "range"), "protocol type and name in SyncGroup")
        if number < len(types) - 1:
            await group.leave(*members)


@fields("GRP-14", "OFF-3")
async def requests_that_keep_a_session(session: Session) -> None:
    """Each request of a member extends its session, and the timeout is that of its last JoinGroup."""
    topic = await session.create_topic("session")
    group = await Group.found(session)
    members = [group.member(topic, session_ms=SHORT_MS) for _ in range(3)]
    await stable(group, *members)
    key = (topic, 0)
    end_ms = session.now_ms + 2 * SHORT_MS + SOON_MS
    while session.now_ms < end_ms:
        await session.sleep(SHORT_MS // 3)
        await beat(members[:1])
        session.equal(await commit(group, {key: 7}, members[1]), {key: 0}, "a commit of a member that only commits")
        answer = await members[2].begin_sync()
        session.ok(answer.error_code, "SyncGroup of a member that only sends SyncGroup")
    await beat(members)
    await _timeout_changes(session, group, members)


async def _timeout_changes(session: Session, group: Group, members: Sequence[Member]) -> None:
    """Join again with other session timeouts: the longer one lasts, the shorter one ends the membership."""
    longer, shorter, other = members
    longer.session_ms, shorter.session_ms, other.session_ms = 6_000, 600, 6_000
    opening = leader_of(members)
    await rejoin(opening, *[each for each in members if each is not opening])
    await sync_all(members)
    end_ms = session.now_ms + 600 + 2 * SOON_MS
    while session.now_ms < end_ms:
        await session.sleep(100)
        if await other.heartbeat() == E.REBALANCE_IN_PROGRESS:
            break
    found = await shorter.heartbeat(), await longer.heartbeat()
    expected = E.UNKNOWN_MEMBER_ID, E.REBALANCE_IN_PROGRESS
    session.equal(found, expected, "the heartbeats of silent members that joined again with 600 and 6000 ms")


@fields("OFF-3", "GRP-5")
async def commits_to_unknown_groups(session: Session) -> None:
    """A commit with a generation to an unknown group is refused as its version says; one without creates the group."""
    topic = await session.create_topic("none")
    place: Key = (topic, 0)
    group = await Group.found(session)
    for version, error in NO_GROUP.items():
        found = await _commit(group, place, version, generation_id_or_member_epoch=3, member_id="m")
        session.error(found, error, f"OffsetCommit {version} with a generation to a group that does not exist")
    session.equal((await group.describe()).group_state, "Dead", "the state of the group after refused commits")
    await committed_ok(group, {place: 4})
    for version in NO_GROUP:
        found = await _commit(group, place, version, generation_id_or_member_epoch=3, member_id="m")
        session.error(found, E.UNKNOWN_MEMBER_ID, f"OffsetCommit {version} of a stranger to an empty group")


async def _commit(group: Group, place: Key, version: int, **by: Any) -> int:
    part = {"partition_index": place[1], "committed_offset": 9}
    answer = await group.ask("OffsetCommit", version, topics=[{"name": place[0], "partitions": [part]}], **by)
    return int(answer.topics[0].partitions[0].error_code)
