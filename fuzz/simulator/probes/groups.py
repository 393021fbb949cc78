"""Probes of the classic group protocol: rebalances, timeouts, static members, generations."""

from typing import Final

from highwater.fuzz.simulator.probes.client.members import (
    ARRIVAL_MS,
    REBALANCE_MS,
    Group,
    Member,
    beat,
    join_all,
    leader_of,
    rebalancing,
    rejoin,
    stable,
    sync_all,
)
from highwater.fuzz.simulator.probes.client.node import probe
from highwater.fuzz.simulator.probes.client.session import E, Session

SESSION_MS: Final = 900
SLACK_MS: Final = 250
"""More than messages, and the checks that brokers make at intervals, add to a timeout."""


@probe("GRP-7", "GRP-9", "GRP-10", "GRP-11", "GRP-12", "GRP-15", "GRP-20", "GRP-33", "GRP-35", "GRP-36", "GRP-38")
async def life_of_a_group(session: Session) -> None:
    """Members join, leave and return; only the leader assigns."""
    group = await Group.found(session)
    first, second, third = (group.member("a") for _ in range(3))
    given = await stable(group, first, second)
    before = first.generation
    leader, follower = sorted((first, second), key=lambda m: not m.leads)
    described = await group.describe()
    found = {m.member_id: (m.member_assignment, m.member_metadata) for m in described.members}
    session.equal(found, {m: (a, first.metadata) for m, a in given.items()}, "the members in DescribeGroups")
    await follower.synced(given[follower.id], assignments={follower.id: b"mine"})
    await follower.end_join(follower.begin_join())
    session.equal(follower.generation, before, "the generation after a JoinGroup of a follower without a change")
    await beat((leader, follower))
    pending = leader.begin_join()
    await session.sleep(ARRIVAL_MS)
    session.expect(not pending.done, "a JoinGroup of the leader is answered without a rebalance")
    await rebalancing([follower])
    session.error(await group.delete(), E.NON_EMPTY_GROUP, "DeleteGroups of a group that rebalances")
    await follower.end_join(follower.begin_join())
    await leader.end_join(pending)
    session.equal(leader.generation, before + 1, "the generation after a JoinGroup of the leader")
    await sync_all([leader, follower])
    await third.take_id()
    await rejoin(third, first, second)
    session.equal(third.generation, before + 2, "the generation after two more rebalances")
    await sync_all([first, second, third], {first.id: b"only one"})
    await _stale_generations(group, second)
    session.equal(await group.leave(third, group.member()), [0, E.UNKNOWN_MEMBER_ID], "the errors of LeaveGroup")
    await beat([third], E.UNKNOWN_MEMBER_ID)
    await rebalancing((first, second))
    await stable(group, first, second)
    session.error(await group.delete(), E.NON_EMPTY_GROUP, "DeleteGroups of a stable group")
    session.equal(await group.leave(first, second), [0, 0], "the errors of LeaveGroup")
    left = (await group.describe()).group_state  # a group without members and offsets may be removed at any time
    session.expect(left in {"Empty", "Dead"}, f"a group without members is {left}")
    await beat((first, second), E.UNKNOWN_MEMBER_ID)


async def _stale_generations(group: Group, member: Member) -> None:
    """Requests with another generation are rejected (GRP-11)."""
    session = group.session
    for generation in (member.generation - 1, member.generation + 1):
        error = await member.heartbeat(generation_id=generation)
        errors = {error, (await member.begin_sync(generation_id=generation)).error_code}
        what = f"Heartbeat and SyncGroup of generation {generation} of {member.generation}"
        session.equal(errors, {E.ILLEGAL_GENERATION}, f"the errors of {what}")
    session.error(await member.heartbeat(member_id="unknown"), E.UNKNOWN_MEMBER_ID, "a heartbeat of an unknown member")


@probe("GRP-12", "GRP-37", "GRP-38", "GRP-42")
async def assignments_of_a_follower(session: Session) -> None:
    """Assignments of a follower are ignored, and members without one get an empty one."""
    group = await Group.found(session)
    members = [group.member() for _ in range(3)]
    await stable(group, *members)
    await join_all(members)
    followers = [m for m in members if not m.leads]
    waiting = [m.begin_sync({each.id: b"from a follower" for each in members}) for m in followers]
    await session.sleep(ARRIVAL_MS)
    session.expect(not any(each.done for each in waiting), "SyncGroup is answered before the leader assigns")
    await group.state("CompletingRebalance")
    await beat(followers)
    session.ok((await leader_of(members).begin_sync({})).error_code, "SyncGroup of a leader that assigns nothing")
    for pending in waiting:
        answer = await pending
        session.equal((answer.error_code, answer.assignment), (0, b""), "what a member without an assignment receives")
    await followers[0].synced(b"")


@probe("GRP-33", "GRP-34")
async def leaving_before_the_assignment(session: Session) -> None:
    """A member that leaves between JoinGroup and SyncGroup starts a rebalance."""
    group = await Group.found(session)
    members = [group.member() for _ in range(3)]
    await stable(group, *members)
    await join_all(members)
    leader = leader_of(members)
    others = [m for m in members if not m.leads]
    waiting = [m.begin_sync() for m in others]
    await session.sleep(40)
    session.equal(await group.leave(leader), [0], "the error of LeaveGroup")
    began_ms = session.now_ms
    for pending in waiting:
        error = (await pending).error_code
        session.error(error, E.REBALANCE_IN_PROGRESS, "a SyncGroup that waits for a leader that left")
    session.expect(session.now_ms - began_ms < SLACK_MS, "the members wait for a leader that left")
    await stable(group, *others)


@probe("GRP-14")
async def session_expiry(session: Session) -> None:
    """A silent member is removed after its session timeout, and the group rebalances."""
    group = await Group.found(session)
    lasting, silent = group.member(), group.member(session_ms=SESSION_MS)
    await stable(group, lasting, silent)
    await session.sleep(SESSION_MS // 2)
    await beat((lasting, silent))
    renewed_ms = session.now_ms
    while session.now_ms < renewed_ms + SESSION_MS - SLACK_MS:
        await beat([lasting])
        await session.sleep(100)
    await session.sleep(2 * SLACK_MS)
    await rebalancing([lasting])
    await beat([silent], E.UNKNOWN_MEMBER_ID)
    await stable(group, lasting)


@probe("GRP-12", "GRP-13")
async def heartbeats_in_a_rebalance(session: Session) -> None:
    """A rebalance waits for the longest rebalance timeout; heartbeats extend sessions meanwhile."""
    group = await Group.found(session)
    slow, quick = group.member(session_ms=SESSION_MS, rebalance_ms=2_400), group.member(rebalance_ms=700)
    await stable(group, slow, quick)
    new = group.member(rebalance_ms=700)
    await new.take_id()
    begun = new.begin_join()
    await session.sleep(ARRIVAL_MS)
    pending = begun, quick.begin_join()
    end_ms = session.now_ms + 1_900
    while session.now_ms < end_ms:
        await rebalancing([slow])
        await session.sleep(200)
    session.expect(not any(each.done for each in pending), "a rebalance ends before the longest rebalance timeout")
    last = slow.begin_join()
    for member, joined in zip((new, quick, slow), (*pending, last), strict=True):
        await member.end_join(joined)
    session.equal(len({m.generation for m in (new, quick, slow)}), 1, "the number of generations")
    await sync_all([new, quick, slow])


@probe("GRP-13", "GRP-67")
async def rebalance_timeout(session: Session) -> None:
    """The rebalance timeout removes dynamic members that do not join, and no static one."""
    group = await Group.found(session)
    gone, fixed, active, new = group.member(), group.member(instance="fixed"), group.member(), group.member()
    await stable(group, gone, fixed, active)
    await new.take_id()
    began_ms = session.now_ms
    await rejoin(new, active)
    took_ms = session.now_ms - began_ms
    session.expect(REBALANCE_MS - 5 <= took_ms < REBALANCE_MS + SLACK_MS, f"the rebalance takes {took_ms} ms")
    listed = leader_of((active, new)).listed
    session.equal(listed, sorted((active.id, new.id, fixed.id)), "the members after the rebalance timeout")
    await beat([gone], E.UNKNOWN_MEMBER_ID)


@probe("GRP-2", "GRP-13")
async def pending_members(session: Session) -> None:
    """A member id that is never used does not prolong a rebalance beyond its session timeout (KIP-394)."""
    group = await Group.found(session)
    member, ghost = group.member(rebalance_ms=5_000), group.member(session_ms=SESSION_MS, rebalance_ms=5_000)
    await stable(group, member)
    await ghost.take_id()
    began_ms = session.now_ms
    await member.end_join(member.begin_join())
    took_ms = session.now_ms - began_ms
    session.expect(took_ms < SESSION_MS + SLACK_MS, f"a rebalance waits {took_ms} ms for a member that never joined")
    await sync_all([member])


@probe("GRP-17")
async def largest_group(session: Session) -> None:
    """A group has at most group.max.size members."""
    group = await Group.found(session)
    members = [group.member() for _ in range(4)]
    await stable(group, *members)
    await beat(members)
    await group.member().refused(E.GROUP_MAX_SIZE_REACHED, "JoinGroup of a fifth member")


@probe("GRP-16", "GRP-43", "GRP-44", "GRP-45", "GRP-46")
async def static_members(session: Session) -> None:
    """A static member that restarts keeps its assignment; its old id is fenced."""
    group = await Group.found(session)
    static, other = group.member("a", instance="one"), group.member("a", instance="two")
    given = await stable(group, static, other)
    assignment, restarted = given[static.id], group.member("a", instance="one")
    await restarted.end_join(restarted.begin_join(9))
    session.expect(restarted.id != static.id, "a restarted static member has its old member id")
    session.equal(restarted.generation, static.generation, "the generation after a static member restarts")
    if restarted.leads:  # its assignment would be ignored (KIP-814)
        session.expect(restarted.joined.skip_assignment, "a restarted static leader may not skip the assignment")
    await restarted.synced(assignment)
    await beat((restarted, other))
    await beat([static], E.FENCED_INSTANCE_ID)
    session.error((await static.begin_sync()).error_code, E.FENCED_INSTANCE_ID, "SyncGroup with the old member id")
    session.error(await restarted.heartbeat(group_instance_id="three"), E.UNKNOWN_MEMBER_ID, "an unknown instance id")
    described = {m.group_instance_id: m.member_assignment for m in (await group.describe()).members}
    session.equal(described, {"one": assignment, "two": given[other.id]}, "the static members in DescribeGroups")
    session.equal(await group.leave(group.member(instance="one")), [0], "the error of LeaveGroup by instance id")
    await rebalancing([other])
    await stable(group, other)


@probe("GRP-5", "GRP-6", "GRP-8", "GRP-18", "GRP-39")
async def protocols(session: Session) -> None:
    """The group uses the protocol that all members support and most prefer; others cannot join or sync."""
    group = await Group.found(session)
    # Some members prefer a protocol that no other one supports, and vote for the next one.
    wanted = [[f"own {n}"] * session.draw(2) + session.one_of(["a", "b"], ["b", "a"]) for n in range(3)]
    members = [group.member(protocols=names) for names in wanted]
    await stable(group, *members)
    await join_all(members)
    votes = [next(name for name in names if name in {"a", "b"}) for names in wanted]
    best = max(set(votes), key=votes.count)
    session.equal({m.joined.protocol_name for m in members}, {best}, "the protocol that most members prefer")
    await sync_all(members)
    for name, expected in (("other", E.INCONSISTENT_GROUP_PROTOCOL), (best, E.NONE)):
        answer = await members[1].begin_sync(version=5, protocol_name=name, protocol_type="consumer")
        session.error(answer.error_code, expected, f"SyncGroup with protocol {name}")
    await group.member(protocols=["z"]).refused(E.INCONSISTENT_GROUP_PROTOCOL, "JoinGroup with another protocol")
    session.error(await group.member().heartbeat(member_id="x"), E.UNKNOWN_MEMBER_ID, "a heartbeat of a stranger")
    await beat(members)
