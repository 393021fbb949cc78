"""Probes of members in each state of a group when another client removes them, or they return with other protocols."""

from typing import Final

from highwater.fuzz.simulator.probes.client.members import (
    ARRIVAL_MS,
    Group,
    Member,
    beat,
    rebalancing,
    rejoin,
    stable,
    sync_all,
)
from highwater.fuzz.simulator.probes.client.requests import request
from highwater.fuzz.simulator.probes.client.session import E, Session
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.fields.members import keep
from highwater.fuzz.simulator.probes.fields.parts import shuffled
from highwater.fuzz.simulator.probes.offsets import commit
from highwater.reference.procedures import Pending

SOON_MS: Final = 250
STORED_MS: Final = 300
"""Longer than a request that the coordinator stores before it answers takes."""
LONG_MS: Final = 20_000
"""A rebalance timeout that no probe waits for."""


async def _removed(group: Group, member: Member) -> None:
    """Remove a member as an administrator does, a static one by its instance id alone."""
    by_instance = member.instance is not None and group.session.draw(2)
    identity = {"member_id": "" if by_instance else member.id, "group_instance_id": member.instance}
    answer = await group.ask("LeaveGroup", members=[identity])
    found = answer.error_code, [each.error_code for each in answer.members]
    group.session.equal(found, (0, [0]), "the errors of LeaveGroup")


async def _soon(session: Session, pending: Pending[object], error: E, what: str) -> None:
    """Expect the answer to a request at once."""
    began_ms = session.now_ms
    answer = await pending
    session.error(answer.error_code, error, what)  # type: ignore[attr-defined]
    took_ms = session.now_ms - began_ms
    session.expect(took_ms < SOON_MS, f"{what} is answered after {took_ms} ms")


def _members(group: Group) -> tuple[Member, Member, Member]:
    """Return a leader, one that will be removed, and another member."""
    instance = group.session.one_of(None, "one")
    return (
        group.member("a", rebalance_ms=LONG_MS), group.member("a", rebalance_ms=LONG_MS, instance=instance),
        group.member("a", rebalance_ms=LONG_MS),
    )  # fmt: skip


@fields("GRP-9", "GRP-15", "GRP-33", "GRP-34", "GRP-38")
async def removed_while_they_wait(session: Session) -> None:
    """A member that is removed while it waits gets UNKNOWN_MEMBER_ID at once; the others go on without it."""
    group = await Group.found(session)
    leader, gone, other = _members(group)
    await stable(group, leader, gone, other)
    before = leader.generation
    opening = leader.begin_join()
    await session.sleep(ARRIVAL_MS)
    waiting = gone.begin_join()
    await session.sleep(ARRIVAL_MS)
    await _removed(group, gone)
    await _soon(session, waiting, E.UNKNOWN_MEMBER_ID, "a waiting JoinGroup of a member that is removed")
    session.expect(not opening.done, "JoinGroup is answered before every member has joined")
    await other.end_join(other.begin_join())
    await leader.end_join(opening)
    found = leader.generation, other.generation, leader.listed
    session.equal(found, (before + 1, before + 1, sorted((leader.id, other.id))), "generations and members without it")
    await _removed_in_sync(group, leader, other)


async def _removed_in_sync(group: Group, leader: Member, other: Member) -> None:
    """Remove a member that waits for the assignment."""
    session, (_, gone, _) = group.session, _members(group)
    await sync_all([leader, other])
    if gone.instance is None:
        await gone.take_id()
    opening = gone.begin_join()
    await session.sleep(ARRIVAL_MS)
    waiting = [(gone, opening), (leader, leader.begin_join()), (other, other.begin_join())]
    for member, join in waiting:
        await member.end_join(join)
    syncs = gone.begin_sync(), other.begin_sync()
    await session.sleep(ARRIVAL_MS)
    await _removed(group, gone)
    await _soon(session, syncs[0], E.UNKNOWN_MEMBER_ID, "a waiting SyncGroup of a member that is removed")
    await _soon(session, syncs[1], E.REBALANCE_IN_PROGRESS, "a waiting SyncGroup beside a member that is removed")
    await rebalancing([leader, other])
    await beat([gone], E.UNKNOWN_MEMBER_ID)
    await rejoin(leader, other)
    await sync_all([leader, other])
    await beat([leader, other])


@fields("GRP-2", "GRP-15", "GRP-35")
async def removed_while_others_wait(session: Session) -> None:
    """A rebalance ends at once when the last member, or member id, that it waits for is removed."""
    group = await Group.found(session)
    await keep(group)
    leader, gone, other = _members(group)
    await stable(group, leader, gone, other)
    waiting = [(leader, leader.begin_join()), (other, other.begin_join())]
    await session.sleep(ARRIVAL_MS)
    session.expect(not waiting[0][1].done, "JoinGroup of the leader is answered without the other members")
    await _removed(group, gone)
    await _all_soon(session, waiting, [leader, other], "the last member that it waits for was removed")
    ghost = group.member("a", rebalance_ms=LONG_MS, session_ms=LONG_MS)
    await ghost.take_id()
    waiting = [(leader, leader.begin_join()), (other, other.begin_join())]
    await session.sleep(ARRIVAL_MS)
    session.expect(not waiting[0][1].done, "a rebalance does not wait for a member id that was given out (KIP-394)")
    session.equal(await group.leave(ghost), [0], "the error of LeaveGroup with a member id that has not joined")
    await _all_soon(session, waiting, [leader, other], "the member id that it waits for was given back")
    opening = leader.begin_join()
    await session.sleep(ARRIVAL_MS)
    await _removed(group, other)
    await _all_soon(session, [(leader, opening)], [leader], "the other member was removed")
    await _removed(group, leader)
    await stable(group, group.member("b"))


async def _all_soon(
    session: Session, waiting: list[tuple[Member, Pending[object]]], members: list[Member], why: str
) -> None:
    """Expect that JoinGroup is answered at once with these members, and let them sync."""
    began_ms = session.now_ms
    for member, pending in waiting:
        await member.end_join(pending)
    took_ms = session.now_ms - began_ms
    session.expect(took_ms < SOON_MS, f"JoinGroup is answered {took_ms} ms after {why}")
    listed = [member.listed for member in members if member.leads]
    session.equal(listed, [sorted(each.id for each in members)], "the members that the leader receives")
    await sync_all(members)


# -- what each state answers -------------------------------------------------------------------------------------------

SESSION_MS: Final = 700


@fields("GRP-12", "GRP-14", "GRP-35", "GRP-36", "GRP-47", "GRP-66", "GRP-69", "OFF-21")
async def requests_in_each_state(session: Session) -> None:
    """What members and others get, and what is described, while a group waits for members and for the assignment."""
    group, place = await Group.found(session), ((await session.create_topic("place")), 0)
    members = [group.member(name, rebalance_ms=LONG_MS) for name in ("a", "b", "c")]
    leader, silent, last = members
    given = await stable(group, *members)
    await _described(group, "Stable", {each.id: (each.metadata, given[each.id]) for each in members})
    silent.session_ms = SESSION_MS
    waiting = [(leader, leader.begin_join())]
    await session.sleep(ARRIVAL_MS)
    waiting.append((silent, silent.begin_join()))
    await session.sleep(SESSION_MS + SOON_MS)  # a session does not expire while its member waits
    await _described(group, "PreparingRebalance", {each.id: (b"", None) for each in members})
    await _answers(group, last, heartbeat=E.REBALANCE_IN_PROGRESS, sync=E.REBALANCE_IN_PROGRESS)
    session.equal(await commit(group, {place: 5}, last), {place: 0}, "a commit while a group waits for members")
    for member, join in [*waiting, (last, last.begin_join())]:
        await member.end_join(join)
    session.equal(leader.listed, sorted(each.id for each in members), "the members after a long wait in JoinGroup")
    await _described(group, "CompletingRebalance", {each.id: (b"", None) for each in members})
    await _answers(group, last, heartbeat=E.NONE)
    found = await commit(group, {place: 6}, last)
    session.equal(found, {place: E.REBALANCE_IN_PROGRESS}, "a commit before the assignment")
    await _same_generation(leader, last)
    syncs = [(each, each.begin_sync()) for each in (silent, last)]
    await session.sleep(SESSION_MS + SOON_MS)
    given = {each.id: b"to " + each.id.encode() for each in members}
    session.ok((await leader.begin_sync(given)).error_code, "SyncGroup of the leader")
    for member, sync in syncs:
        answer = await sync
        what = "error and assignment after a long wait in SyncGroup"
        session.equal((answer.error_code, answer.assignment), (0, given[member.id]), what)
    await beat(members)
    await _described(group, "Stable", {each.id: (each.metadata, given[each.id]) for each in members})


async def _same_generation(*members: Member) -> None:
    """JoinGroup without a change is answered at once before the assignment, also that of the leader."""
    for member in members:
        before, listed = member.generation, member.listed
        await member.end_join(member.begin_join())
        found = member.generation, member.listed
        member.session.equal(found, (before, listed), "generation and members of a repeated JoinGroup")


async def _answers(group: Group, member: Member, heartbeat: E, sync: E | None = None) -> None:
    """What a member, a stranger and an administrator get."""
    session = group.session
    session.error(await member.heartbeat(), heartbeat, "a heartbeat")
    if sync is not None:
        session.error((await member.begin_sync()).error_code, sync, "SyncGroup")
    stranger = await member.begin_sync(member_id="stranger")
    session.error(stranger.error_code, E.UNKNOWN_MEMBER_ID, "SyncGroup of a stranger")
    session.error(
        await member.heartbeat(generation_id=member.generation + 1), E.ILLEGAL_GENERATION, "a newer generation"
    )
    session.error(await group.delete(), E.NON_EMPTY_GROUP, "DeleteGroups of a group with members")
    await group.member(protocols=["none"]).refused(E.INCONSISTENT_GROUP_PROTOCOL, "JoinGroup with another protocol")


async def _described(group: Group, state: str, members: dict[str, tuple[bytes, bytes | None]]) -> None:
    """Expect state, protocol and members with metadata and assignment (None: any), in versions of DescribeGroups."""
    session = group.session
    await group.state(state)
    for version in (0, 3, 4, 5, 6):
        answer = await session.ask(group.coordinator, request("DescribeGroups", groups=[group.name]), version)
        (found,) = answer.groups
        head = found.error_code, found.group_state, found.protocol_type, found.protocol_data
        expected = 0, state, "consumer", "range" if state == "Stable" else ""
        session.equal(head, expected, f"error, state, type and protocol in DescribeGroups {version}")
        listed = {
            each.member_id: (each.member_metadata, each.member_assignment if state == "Stable" else None)
            for each in found.members
        }
        session.equal(listed, members, f"the members in DescribeGroups {version} of a group that is {state}")
        clients = {(each.client_id, each.client_host[:1]) for each in found.members}
        session.equal(clients, {(session.client_id, "/")}, "the client ids and hosts of the members")


@fields("GRP-13", "GRP-26")
async def members_without_sync(session: Session) -> None:
    """A member that sends no SyncGroup within the rebalance timeout is removed; the others join again."""
    group = await Group.found(session)
    leader, other = group.member("a", rebalance_ms=600), group.member("a", rebalance_ms=600)
    await stable(group, leader, other)
    await rejoin(*sorted((leader, other), key=lambda each: not each.leads))
    first, second = sorted((leader, other), key=lambda each: not each.leads)
    pending, began_ms = second.begin_sync(), session.now_ms
    answer = await pending
    took_ms = session.now_ms - began_ms
    session.error(answer.error_code, E.REBALANCE_IN_PROGRESS, "SyncGroup whose leader does not assign")
    session.expect(400 <= took_ms < 600 + SOON_MS, f"SyncGroup without an assignment is answered after {took_ms} ms")
    await beat([first], E.UNKNOWN_MEMBER_ID)
    await second.end_join(second.begin_join())
    session.equal(second.listed, [second.id], "the members after one sent no SyncGroup")
    await sync_all([second])


# -- static members that return ----------------------------------------------------------------------------------------

RETURNS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("a", "b"), "a"), (("b", "a"), "b"), (("a",), "a"), (("b",), "b"), (("c", "a", "b"), "a"), (("b", "c", "a"), "b"),
)  # fmt: skip
"""Protocols of a static member that returns, and the one that the group chooses then; one other votes for each."""


@fields("GRP-8", "GRP-16", "GRP-43", "GRP-44", "GRP-46")
async def static_members_with_other_protocols(session: Session) -> None:
    """A static member that returns keeps its assignment unless the group would choose another protocol (KIP-345)."""
    group = await Group.found(session)
    leader, other = group.member("t", protocols=("a", "b")), group.member("t", protocols=("b", "a"))
    static = group.member("t", protocols=("a", "b"), instance="one")
    members = [leader, static, other]
    given = await stable(group, *members)
    chosen = leader.joined.protocol_name
    session.equal(chosen, "a", "the protocol that two of three members prefer")
    for names, expected in shuffled(session, RETURNS):
        again = group.member("t", protocols=names, instance="one")
        if not {"a", "b"} & set(names) & set(static.protocols):  # the old member still counts (supportsProtocols)
            await again.refused(
                E.INCONSISTENT_GROUP_PROTOCOL, f"{names} of a static member that had {static.protocols}"
            )
            continue
        before, assignment = leader.generation, given[static.id]
        pending = again.begin_join(session.one_of(5, 7, 9))
        await session.sleep(STORED_MS)
        what = f"a static member returns with {names} to a group that uses {chosen}"
        session.equal(pending.done, expected == chosen, f"whether JoinGroup is answered at once when {what}")
        if pending.done:
            await again.end_join(pending)
            session.equal(
                (again.generation, again.joined.protocol_name), (before, chosen), f"generation, protocol: {what}"
            )
            await again.synced(assignment)
            given[again.id] = assignment
        else:
            given = await _next_generation([again, leader, other], pending, expected)
        await beat([static], E.FENCED_INSTANCE_ID)
        await beat([leader, again, other])
        static, chosen = again, expected


async def _next_generation(members: list[Member], pending: Pending[object], protocol: str) -> dict[str, bytes]:
    """Let the others join a rebalance that the first member began; return the new assignments."""
    first, *others = members
    session, before = first.session, others[0].generation
    await rebalancing(others)
    for member, join in [(first, pending), *((each, each.begin_join()) for each in others)]:
        await member.end_join(join)
        found = member.generation, member.joined.protocol_name
        session.equal(found, (before + 1, protocol), "generation and protocol after a static member returned")
    return await sync_all(members)


# -- several groups ----------------------------------------------------------------------------------------------------


@fields("GRP-20", "GRP-48", "GRP-49", "GRP-50", "GRP-70")
async def requests_about_several_groups(session: Session) -> None:
    """Each group of DescribeGroups and DeleteGroups is answered by itself, whatever the others are."""
    found = [await Group.found(session, f"g{number}") for number in range(9)]
    coordinator = max({each.coordinator for each in found}, key=[g.coordinator for g in found].count)
    here = [each for each in found if each.coordinator == coordinator]
    elsewhere = [each for each in found if each.coordinator != coordinator][:1]
    empty, active, fresh = here[:3]
    await keep(empty)
    await stable(active, active.member("a"))
    expected = {
        empty.name: (0, "Empty"), active.name: (0, "Stable"), fresh.name: (E.GROUP_ID_NOT_FOUND, "Dead"),
        **{each.name: (E.NOT_COORDINATOR, "") for each in elsewhere},
    }  # fmt: skip
    for version in (5, 6):
        order = shuffled(session, list(expected))
        answer = await session.ask(coordinator, request("DescribeGroups", groups=order), version)
        states = [(each.group_id, each.error_code, each.group_state) for each in answer.groups]
        unknown = E.GROUP_ID_NOT_FOUND if version >= 6 else E.NONE
        wanted = [(name, unknown if name == fresh.name else expected[name][0], expected[name][1]) for name in order]
        session.equal(states, wanted, f"the groups in DescribeGroups {version}")
    errors = {empty.name: 0, active.name: E.NON_EMPTY_GROUP, fresh.name: E.GROUP_ID_NOT_FOUND}
    errors |= {each.name: E.NOT_COORDINATOR for each in elsewhere}
    order = shuffled(session, list(errors))
    answer = await session.ask(coordinator, request("DeleteGroups", groups_names=order), session.one_of(0, 1, 2))
    results = {each.group_id: each.error_code for each in answer.results}
    session.equal(results, errors, f"the errors of DeleteGroups of {order}")
    session.equal((await empty.describe()).group_state, "Dead", "the state of a deleted group")
    await active.state("Stable")
