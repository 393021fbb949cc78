"""Probes of the time that a group waits for its members, and of members that cannot be stored."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final

from highwater.fuzz.simulator.cluster import OFFSETS_TOPIC
from highwater.fuzz.simulator.probes.alone import alone, became_complete
from highwater.fuzz.simulator.probes.client.members import Group, Member, beat, rebalancing, rejoin, stable, sync_all
from highwater.fuzz.simulator.probes.client.session import E, Session
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.fields.parts import shuffled
from highwater.fuzz.simulator.probes.offsets import commit, committed_ok, expect_offsets
from highwater.fuzz.simulator.probes.restarts import LONG_SESSION_MS
from highwater.fuzz.simulator.probes.trimming import set_topic
from highwater.reference.procedures import Pending

SLACK_MS: Final = 90
"""More than the messages add to a timeout."""
APART_MS: Final = 45
"""A member that joins so close to the end of a wait may come before or after it."""
WAITS: Final = (100, 400, 600, 1_100)
"""Rebalance timeouts of first members: shorter than one delay, and of several."""
LARGEST_GROUP: Final = 4  # group.max.size of runs with probes


# -- the first members of a group --------------------------------------------------------------------------------------


def waits_ms(delay_ms: int, limit_ms: int) -> list[tuple[int, int]]:
    """Return when the waits of an empty group begin and end if another member joins during each of them (KIP-134)."""
    ends = [delay_ms]
    while ends[-1] < limit_ms:
        ends.append(min(ends[-1] + delay_ms, limit_ms))
    return list(pairwise([0, *ends]))


def first_generation_ms(arrivals: Sequence[int], delay_ms: int, limit_ms: int) -> int:
    """Return when the first generation begins: at the end of the first wait during which no other member joins."""
    waits = waits_ms(delay_ms, limit_ms)
    quiet = (end for begun, end in waits if not any(begun < each < end for each in arrivals))
    return next(quiet, waits[-1][1])


@alone("GRP-12", "GRP-13", "GRP-10")
async def first_members(session: Session) -> None:
    """The first generation of a group waits for more members, at most as long as the rebalance timeout (KIP-134)."""
    delay_ms = int(session.cluster.settings.broker_settings["group_initial_rebalance_delay_ms"])
    for limit_ms in shuffled(session, WAITS):
        group = await Group.found(session, f"first{limit_ms}")
        arrivals = _drawn_arrivals(session, delay_ms, limit_ms)
        await _first_generation(group, arrivals, first_generation_ms(arrivals, delay_ms, limit_ms), limit_ms)


def _drawn_arrivals(session: Session, delay_ms: int, limit_ms: int) -> list[int]:
    """Return when members arrive: the first one at 0, and mostly one during each wait."""
    arrivals = [0]
    for begun_ms, end_ms in waits_ms(delay_ms, limit_ms):
        if end_ms - begun_ms <= 2 * APART_MS or len(arrivals) == LARGEST_GROUP or session.draw(8) == 0:
            break
        arrivals.append(begun_ms + APART_MS + session.draw(end_ms - begun_ms - 2 * APART_MS))
    return arrivals


async def _first_generation(group: Group, arrivals: Sequence[int], expected_ms: int, limit_ms: int) -> None:
    """Let static members, which need no id, join at these times, and compare when the first ones are answered."""
    session = group.session
    joined: list[tuple[Member, Pending[Any]]] = []
    began_ms = session.now_ms
    for number, arrival_ms in enumerate(arrivals):
        await session.sleep(max(0, began_ms + arrival_ms - session.now_ms))
        if joined and joined[0][1].done:
            break
        member = group.member("a", instance=f"i{number}", rebalance_ms=limit_ms)
        joined.append((member, member.begin_join()))
    for member, pending in joined[: sum(each < expected_ms for each in arrivals)]:
        await member.end_join(pending)
    took_ms = session.now_ms - began_ms
    what = f"the first generation with a rebalance timeout of {limit_ms} ms and members after {arrivals} ms"
    session.expect(
        expected_ms - SLACK_MS < took_ms < expected_ms + SLACK_MS, f"{what} takes {took_ms} ms, not {expected_ms} ms"
    )


# -- members without SyncGroup -----------------------------------------------------------------------------------------


@fields("GRP-13", "GRP-26", "GRP-67", "GRP-16")
async def members_without_sync_of_each_kind(session: Session) -> None:
    """Each member, static or not, that sends no SyncGroup within the rebalance timeout is removed."""
    for turn in range(2):
        group = await Group.found(session, f"unsynced{turn}")
        kinds = shuffled(session, [None, None, "one", "two"])[: 3 + session.draw(2)]
        members = [group.member("a", rebalance_ms=600, instance=each) for each in kinds]
        await stable(group, *members)
        await rejoin(*sorted(members, key=lambda each: not each.leads))
        leader = next(each for each in members if each.leads)
        followers = shuffled(session, [each for each in members if each is not leader])
        silent = [leader, *followers[: 1 + session.draw(len(followers) - 1)]]
        synced = [each for each in members if each not in silent]
        waiting = [(each, each.begin_sync()) for each in synced]
        for _, pending in waiting:
            error = (await pending).error_code
            session.error(error, E.REBALANCE_IN_PROGRESS, "SyncGroup of a generation without assignments")
        await rebalancing(synced)
        # An instance id that is free again is not fenced, and not known either.
        for member in silent:
            session.error(await member.heartbeat(), E.UNKNOWN_MEMBER_ID, f"a heartbeat of {member.instance}, removed")
            late = (await member.begin_sync()).error_code
            session.error(late, E.UNKNOWN_MEMBER_ID, f"a late SyncGroup of {member.instance}, removed")
        ids = {each.member_id for each in (await group.describe()).members}
        session.equal(ids, {each.id for each in synced}, "the members after some sent no SyncGroup")
        began_ms = session.now_ms
        await rejoin(*synced)
        session.expect(session.now_ms - began_ms < 400, "the next generation waits for members that were removed")
        await sync_all(synced)


# -- members that cannot be stored -------------------------------------------------------------------------------------


@alone("GRP-16", "GRP-27", "GRP-43", "OFF-11", "REP-25")
async def members_that_cannot_be_stored(session: Session) -> None:
    """What the log of the coordinator refuses has not happened: members, generation, assignments and offsets stay."""
    topic = await session.create_topic("refused")
    group = await Group.found(session)
    make = partial(group.member, topic, session_ms=LONG_SESSION_MS, rebalance_ms=LONG_SESSION_MS)
    static, leading = make(instance="static"), make(instance="leads")
    members = [leading, static, make()]
    given = await stable(group, *members)
    await committed_ok(group, {(topic, 0): 5}, members[0])
    lagging = next(each for each in session.brokers if each not in {group.coordinator, session.cluster.controller()})
    await session.fault("cut", lagging, for_ms=3_500, of=str(group.coordinator), direction="both")
    await committed_ok(group, {(topic, 0): 6}, members[0])  # the log goes on without the follower
    await set_topic(session, OFFSETS_TOPIC, min_insync_replicas=3)
    refused = (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.REQUEST_TIMED_OUT)

    await session.sleep(300)
    found_error = (await commit(group, {(topic, 0): 9}, members[0]))[topic, 0]
    session.error(found_error, refused, "a commit while the log of the coordinator refuses it")
    for old in members[:2]:
        new = make(instance=old.instance)
        error = (await new.begin_join()).error_code
        session.error(error, refused, "JoinGroup of a static member that cannot be stored")
        await beat(members)
        await old.synced(given[old.id])
    found = {each.member_id: each.member_assignment for each in (await group.describe()).members}
    session.equal(found, given, "the members and assignments after JoinGroup that could not be stored")
    await expect_offsets(group, {(topic, 0): 6})
    await set_topic(session, OFFSETS_TOPIC, min_insync_replicas=2)
    await became_complete(session, OFFSETS_TOPIC, 3)
    if await session.coordinator(group.name) != group.coordinator:
        return
    await beat(members)
    again: Member = make(instance="static")
    await again.end_join(again.begin_join())
    await again.synced(given[static.id])
    await beat([static], E.FENCED_INSTANCE_ID)
    await committed_ok(group, {(topic, 0): 7}, members[0])
    await expect_offsets(group, {(topic, 0): 7})
