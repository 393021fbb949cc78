"""Probes of what begins a rebalance in each state, and of LeaveGroup and CreateTopics with several entries."""

from typing import Any, Final

from highwater.fuzz.simulator.probes.client.members import (
    ARRIVAL_MS,
    Group,
    Member,
    beat,
    rebalancing,
    rejoin,
    stable,
    subscription,
    sync_all,
)
from highwater.fuzz.simulator.probes.client.requests import request
from highwater.fuzz.simulator.probes.client.session import E, Session
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.fields.parts import shuffled
from highwater.fuzz.simulator.probes.fields.states import LONG_MS, SESSION_MS, SOON_MS
from highwater.reference.procedures import Pending

Join = tuple[Member, Pending[Any]]
EVENTS: Final = ("joins", "changes", "leaves", "expires")
"""A new member joins; one joins with other metadata, leaves, or is silent for its session timeout."""


@fields("GRP-10", "GRP-14", "GRP-15", "GRP-33", "GRP-34", "GRP-35", "GRP-38")
async def rebalances_in_each_state(session: Session) -> None:
    """Whatever begins a rebalance, members that wait are answered, and the next generation has all that join."""
    cases = [(event, state) for event in EVENTS for state in ("Stable", "CompletingRebalance")]
    for event, state in shuffled(session, cases)[:5]:
        group = await Group.found(session, f"{event}-{state}")
        leader, steady = [group.member("a", rebalance_ms=LONG_MS) for _ in range(2)]
        other = group.member("a", rebalance_ms=LONG_MS, session_ms=SESSION_MS if event == "expires" else 6_000)
        await stable(group, leader, steady, other)
        sync: Pending[Any] | None = None
        if state == "CompletingRebalance":
            await rejoin(leader, steady, other)
            sync = steady.begin_sync()
            await session.sleep(ARRIVAL_MS)
        before, what = leader.generation, f"a member {event} in a group that is {state}"
        waiting = await _begun(group, other, event, leader)
        if sync is not None:
            session.expect(sync.done, f"SyncGroup waits on after {what}")
            session.error((await sync).error_code, E.REBALANCE_IN_PROGRESS, f"SyncGroup after {what}")
        await rebalancing([leader, steady])
        waiting += [(each, each.begin_join()) for each in (leader, steady)]
        for member, join in waiting:
            await member.end_join(join)
        members = [member for member, _ in waiting]
        listed = [member.listed for member in members if member.leads]
        session.equal(listed, [sorted(each.id for each in members)], f"the members of the leader after {what}")
        session.equal({each.generation for each in members}, {before + 1}, f"the generations after {what}")
        await sync_all(members)
        await beat(members)


async def _begun(group: Group, other: Member, event: str, steady: Member) -> list[Join]:
    """Let an event begin a rebalance; return the JoinGroup requests of it that wait."""
    session, waiting = group.session, list[Join]()
    if event == "joins":
        new = group.member("b", rebalance_ms=LONG_MS)
        await new.take_id()
        waiting.append((new, new.begin_join()))
        await session.sleep(ARRIVAL_MS)
        waiting.append((other, other.begin_join()))
    elif event == "changes":
        other.metadata = subscription("z")
        waiting.append((other, other.begin_join()))
    elif event == "leaves":
        session.equal(await group.leave(other), [0], "the error of LeaveGroup")
    else:
        end_ms = session.now_ms + SESSION_MS + SOON_MS
        while session.now_ms < end_ms:
            await steady.heartbeat()
            await session.sleep(100)
    await session.sleep(ARRIVAL_MS)
    return waiting


@fields("GRP-15", "GRP-45", "FLD-9")
async def leaving_by_any_identity(session: Session) -> None:
    """Each entry of a LeaveGroup removes its member or is refused by itself."""
    group = await Group.found(session)
    dynamic, static, other = [group.member("a", instance=name) for name in (None, "one", "two")]
    await stable(group, dynamic, static, other)
    entries: dict[tuple[str, str | None], E] = {
        ("stranger", None): E.UNKNOWN_MEMBER_ID, ("", "none"): E.UNKNOWN_MEMBER_ID, ("", None): E.UNKNOWN_MEMBER_ID,
        ("stranger", "one"): E.FENCED_INSTANCE_ID, (static.id, "none"): E.UNKNOWN_MEMBER_ID,
        (dynamic.id, "one"): E.FENCED_INSTANCE_ID, ("", "two"): E.NONE, (dynamic.id, None): E.NONE,
    }  # fmt: skip
    order = shuffled(session, list(entries))
    gone = [{"member_id": member_id, "group_instance_id": instance} for member_id, instance in order]
    answer = await group.ask("LeaveGroup", session.one_of(3, 4, 5), members=gone)
    session.ok(answer.error_code, "LeaveGroup")
    found = [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members]
    session.equal(found, [(*each, int(entries[each])) for each in order], "the members in the answer to LeaveGroup")
    await rebalancing([static])
    await beat([dynamic, other], E.UNKNOWN_MEMBER_ID)
    await static.end_join(static.begin_join())
    session.equal(static.listed, [static.id], "the members that are left")
    unknown = Group(session, f"{session.name}-unknown")
    unknown.coordinator = await session.coordinator(unknown.name)
    answer = await unknown.ask("LeaveGroup", members=gone[:2])
    errors = answer.error_code, {each.error_code for each in answer.members}
    session.equal(errors, (0, {E.UNKNOWN_MEMBER_ID}), "the errors of LeaveGroup of an unknown group")


# -- CreateTopics ------------------------------------------------------------------------------------------------------


@fields("ADM-1", "ADM-13", "ADM-16", "ADM-43", "FLD-1", "MD-17")
async def topics_as_they_are_created(session: Session) -> None:
    """CreateTopics returns ids, counts and settings as they are; replicas are in all racks, leaders on all brokers."""
    name, default = session.name, session.default_partitions
    asked: dict[str, tuple[dict[str, Any], int, int]] = {
        f"{name}-counts": ({"num_partitions": 6, "replication_factor": 2}, 6, 2),
        f"{name}-alone": ({"num_partitions": 6, "replication_factor": 1}, 6, 1),
        f"{name}-default": ({"num_partitions": -1, "replication_factor": -1}, default, 3),
        f"{name}-given": ({"num_partitions": -1, "replication_factor": -1, "assignments": [
            {"partition_index": number, "broker_ids": ids} for number, ids in enumerate(([3, 1], [1, 2]))
        ]}, 2, 2),
    }  # fmt: skip
    for validate_only in (True, False):
        version = session.one_of(5, 6, 7)
        own: Any = [{"name": "retention.ms", "value": "7777777"}]
        body = request("CreateTopics", timeout_ms=3_000, validate_only=validate_only, topics=[
            {"name": each, "assignments": [], "configs": own, **asked[each][0]}
            for each in shuffled(session, list(asked))
        ])  # fmt: skip
        found = {each.name: each for each in (await session.ask_any(body, version)).topics}
        for topic, (_, count, factor) in asked.items():
            one = found[topic]
            counts = one.error_code, one.num_partitions, one.replication_factor
            session.equal(counts, (0, count, factor), f"error and counts in CreateTopics {version} of {topic}")
            described = {each.name: (each.value, each.config_source) for each in one.configs}
            session.equal(described.get("retention.ms"), ("7777777", 1), f"retention.ms in CreateTopics {version}")
            source = described.get("segment.bytes", ("", 1))[1]
            session.expect(source > 1, f"the source of segment.bytes in CreateTopics {version} is {source}")
            if not validate_only:
                await session.healthy(topic, count)
                known = await session.metadata(topic)
                session.expect(version < 7 or bytes(one.topic_id) == bytes(known.topic_id), f"another id of {topic}")
    await _spread(session, f"{name}-counts", 2)
    await _spread(session, f"{name}-alone", 1)


async def _spread(session: Session, topic: str, factor: int) -> None:
    """Each broker leads as many partitions, and the replicas of each are in as many racks as possible."""
    racks = dict(zip(session.cluster.broker_ids, session.cluster.settings.racks, strict=True))
    parts = (await session.metadata(topic)).partitions
    leaders = [part.replica_nodes[0] for part in parts]
    counts = {broker_id: leaders.count(broker_id) for broker_id in racks}
    session.expect(
        max(counts.values()) - min(counts.values()) <= 1 + factor, f"the first replicas of {topic}: {counts}"
    )
    for part in parts:
        used = {racks[each] for each in part.replica_nodes}
        session.equal(len(used), min(factor, len(set(racks.values()))), f"the racks of {part.replica_nodes} of {topic}")
