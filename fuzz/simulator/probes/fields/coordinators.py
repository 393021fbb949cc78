"""Probes of what coordinators remember of each field after every broker has restarted."""

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.cluster import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from highwater.fuzz.simulator.probes.client.members import Group, Member, beat, rejoin, stable, sync_all
from highwater.fuzz.simulator.probes.client.requests import of_topics, parts_of
from highwater.fuzz.simulator.probes.client.session import Session
from highwater.fuzz.simulator.probes.client.transactional import Transactional
from highwater.fuzz.simulator.probes.fields.offsets import commit_for, keys_of
from highwater.fuzz.simulator.probes.offsets import all_committed, commit_request, committed_ok
from highwater.fuzz.simulator.probes.restarts import LONG_SESSION_MS, after_restart
from highwater.fuzz.simulator.probes.trimming import set_topic

OWN_RETENTION_MS: Final = 9_000
"""Longer than the rolling restart takes."""


def _described(members: Iterable[Member], given: dict[str, bytes]) -> dict[str, tuple[str | None, bytes]]:
    return {each.id: (each.instance, given[each.id]) for each in members}


@after_restart("GRP-27", "GRP-28", "GRP-15", "GRP-13")
async def kept_memberships(session: Session) -> None:
    """A group has the members of its last generation only, and an instance id that left is free again."""
    group, empty = await Group.found(session), await Group.found(session, "empty")
    make = partial(group.member, "a", session_ms=LONG_SESSION_MS)
    lasting, static, gone, former = make(), make(instance="stays"), make(), make(instance="left")
    await stable(group, lasting, static, gone, former)
    await group.leave(gone, former)
    given = await stable(group, lasting, static)
    alone = empty.member("a", session_ms=LONG_SESSION_MS, instance="left")
    await stable(empty, alone)
    await committed_ok(empty, {(await session.create_topic("keeps"), 0): 1}, alone)
    await empty.leave(alone)
    await session.rolling_restart()
    for each in (group, empty):
        await each.find()
    answer = await group.describe()
    found = {each.member_id: (each.group_instance_id, each.member_assignment) for each in answer.members}
    session.equal(found, _described((lasting, static), given), "the members in DescribeGroups after a restart")
    await beat([lasting, static])
    back, began_ms = make(instance="left"), session.now_ms
    await rejoin(back, *sorted((lasting, static), key=lambda each: not each.leads))
    session.expect(session.now_ms - began_ms < 1_000, "a rebalance after a restart waits for members that had left")
    await sync_all([lasting, static, back])
    again = empty.member("a", instance="left")
    await stable(empty, again)


@after_restart("OFF-11", "OFF-19")
async def kept_retention(session: Session) -> None:
    """An offset that was committed with a retention of its own expires after a restart, and no other one does."""
    topic = await session.create_topic("kept-ret", 2)
    group, other = await Group.found(session), await Group.found(session, "other")
    await committed_ok(group, {(topic, 0): 1})
    await commit_for(group, {(topic, 1): 2}, OWN_RETENTION_MS)
    await commit_for(other, {(topic, 1): 2}, OWN_RETENTION_MS)
    committed_ms = session.now_ms
    await session.rolling_restart()
    for each in (group, other):
        await each.find()
    if session.now_ms < committed_ms + OWN_RETENTION_MS - 100:
        session.equal(await keys_of(group), {(topic, 0), (topic, 1)}, "the offsets before their retention has passed")
    left_ms = max(committed_ms + OWN_RETENTION_MS - session.now_ms, 0) + 2_000
    await session.until(partial(keys_of, group), {(topic, 0)}, "the offsets after their retention has passed", left_ms)
    await session.until(partial(keys_of, other), set(), "the offsets of the other group", 2_000)


ROUNDS: Final = 24
COMPACTED: Final[dict[str, Any]] = {"segment_bytes": 400, "min_cleanable_dirty_ratio": 0.01, "delete_retention_ms": 1}


@after_restart("OFF-7", "OFF-9", "OFF-11", "GRP-50", "FET-37")
async def kept_deletions(session: Session) -> None:
    """What was deleted does not return when compaction has removed its tombstones.

    In every second run compaction applies to the logs of all coordinators, so that the other probes meet it, too. In
    the others it does not: it removes what a coordinator that reads its log wrongly would take for the last state.
    """
    topic = await session.create_topic("kept-del", 4)
    keys = [(topic, number) for number in range(4)]
    names = ("gone", "again", "some", "ended", *[f"other{n}" for n in range(4)])
    gone, again, some, ended, *others = groups = [await Group.found(session, name) for name in names]
    producer = await Transactional(session).begin()
    for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) if session.draw(2) else ():
        await set_topic(session, name, **COMPACTED)
    for step in range(3):
        await _commit_each(groups, {key: 10 * step + n for n, key in enumerate(keys)})
    session.equal([await gone.delete(), await again.delete()], [0, 0], "the errors of DeleteGroups")
    await committed_ok(again, {keys[2]: 3})
    parts = [(topic, {"partition_index": number}) for number in (0, 3)]
    session.ok((await some.ask("OffsetDelete", topics=of_topics(parts))).error_code, "OffsetDelete")
    for commit in (False, True):
        await producer.committed_offsets(ended, {keys[1]: 70 + commit, keys[2]: 80 + commit})
        await producer.ended(commit=commit)
    for step in range(ROUNDS):  # so that segments are closed, and compacted once more after the tombstones have expired
        await _commit_each(others, {keys[0]: step})
        await session.sleep(60)
    await session.rolling_restart()
    expected: list[dict[tuple[str, int], int]] = [{}, {keys[2]: 3}, {keys[1]: 21, keys[2]: 22}]
    expected.append({keys[0]: 20, keys[1]: 71, keys[2]: 81, keys[3]: 23})
    expected += [{keys[0]: ROUNDS - 1, keys[1]: 21, keys[2]: 22, keys[3]: 23}] * len(others)
    for group, offsets in zip(groups, expected, strict=True):
        await group.find()
        found = {key: offset for key, (offset, _, _) in (await all_committed(group)).items()}
        session.equal(found, offsets, f"the offsets of {group.name} after a restart")


async def _commit_each(groups: Iterable[Group], offsets: dict[tuple[str, int], int]) -> None:
    """Commit the same offsets in several groups at once."""
    waiting = [(each, each.session.send(each.coordinator, commit_request(each, offsets))) for each in groups]
    for group, pending in waiting:
        errors = {part.error_code for part in parts_of(await pending).values()}
        group.session.equal(errors, {0}, f"the errors of a commit of {group.name}")


@after_restart("TXN-14", "TXN-17", "TXN-27", "TXN-28")
async def kept_states(session: Session) -> None:
    """Start, timeout, state and partitions of a transaction survive, and a repeated EndTxn is answered as at first."""
    topic = await session.create_topic("kept-state", 3)
    open_one, ended, aborted = [
        await Transactional(session, name, v2=name != "open", timeout_ms=50_000).begin() for name in ("open", "c", "a")
    ]
    for number in range(3):
        await open_one.added((topic, number))
        await open_one.write(topic, number, b"v")
        await session.sleep(60)
    before: dict[str, int] = {}
    for producer, commit in ((ended, True), (aborted, False)):
        before[producer.name] = producer.epoch
        await producer.write(topic, 0, b"w")
        await producer.ended(commit=commit)
    await session.sleep(300)
    producers = (open_one, ended, aborted)
    states = [await _state(each) for each in producers]
    await session.rolling_restart()
    await session.healthy(topic, 3)
    for producer, state in zip(producers, states, strict=True):
        session.equal(await _state(producer), state, "the transaction in DescribeTransactions after a restart")
    for producer, commit in ((ended, True), (aborted, False)):
        answer = await producer.end(commit=commit, producer_epoch=before[producer.name])
        found = answer.error_code, answer.producer_id, answer.producer_epoch
        expected = 0, producer.producer, producer.epoch
        session.equal(found, expected, "the answer to an EndTxn that is repeated after a restart")
    await open_one.ended(commit=True)


async def _state(producer: Transactional) -> tuple[Any, ...]:
    """Return what DescribeTransactions says of a producer."""
    answer = await producer.ask("DescribeTransactions", transactional_ids=[producer.name])
    state = answer.transaction_states[0]
    parts = sorted((each.topic, number) for each in state.topics for number in each.partitions)
    return (
        state.error_code, state.transaction_state, state.producer_id, state.producer_epoch,
        state.transaction_timeout_ms, state.transaction_start_time_ms, parts,
    )  # fmt: skip
