"""Probes of what brokers remember over a restart of producers, of compacted logs, and of groups in each state."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from highwater.fuzz.simulator.probes.client.members import ARRIVAL_MS, Group, Member, beat, stable
from highwater.fuzz.simulator.probes.client.requests import of_topics, request
from highwater.fuzz.simulator.probes.client.session import LATEST, E, Session, record
from highwater.fuzz.simulator.probes.client.transactional import Transactional, TransactionLog, finish, write
from highwater.fuzz.simulator.probes.fetch import reassign
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.offsets import committed, committed_ok
from highwater.fuzz.simulator.probes.records import HOUR_MS, IdempotentModel, producer_id
from highwater.fuzz.simulator.probes.restarts import LONG_SESSION_MS, after_restart
from highwater.fuzz.simulator.probes.topics import replicas_at
from highwater.fuzz.simulator.probes.trimming import COMPACTED
from highwater.reference.wire.records import build_batch

Described = dict[int, tuple[int, int, int, int]]
EXPIRY_CHECK_MS: Final = 900
"""Longer than producer.id.expiration.check.interval.ms: a producer that wrote lately is not forgotten."""
KEYS: Final = (b"one", b"two")


async def described_producers(session: Session, topic: str, number: int = 0) -> Described:
    """Return epoch, last sequence, last time and open start of each producer that the leader describes."""
    body = request("DescribeProducers", topics=of_topics([(topic, number)], partitions="partition_indexes"))
    answer = await session.ask_leader(topic, number, body)
    part = answer.topics[0].partitions[0]
    session.ok(part.error_code, f"DescribeProducers of {topic}-{number}")
    return {
        each.producer_id: (
            each.producer_epoch, each.last_sequence, each.last_timestamp, each.current_txn_start_offset,
        )
        for each in part.active_producers
    }  # fmt: skip


# -- producers ---------------------------------------------------------------------------------------------------------


class KeyedModel(IdempotentModel):
    """An idempotent producer whose records have the same few keys as those of all others."""

    def batch(self, sequence: int, count: int, epoch: int = -1) -> bytes:
        epoch = self.epoch if epoch < 0 else epoch
        values = [record(b"%d" % (sequence + n), KEYS[(sequence + n) % 2], self._session.wall_ms) for n in range(count)]
        return build_batch(values, producer_id=self.producer, producer_epoch=epoch, base_sequence=sequence)


@after_restart("IDM-2", "IDM-5", "IDM-8", "IDM-14", "FET-36")
async def kept_producers_of_a_compacted_log(session: Session) -> None:
    """Compaction removes the records of a producer, and not what is known of it: no batch is stored twice (KIP-98)."""
    topic, models = await _compacted(session, session.one_of([1], [2, 3, 1], [3]))
    await _same_producers(session, topic, models)


async def _compacted(session: Session, replicas: list[int]) -> tuple[str, list[KeyedModel]]:
    """Return a topic whose compaction has removed all records of some producers, and these producers."""
    topic = await session.create_topic(
        "compact-idem", assigned=[replicas], min_insync_replicas=1, delete_retention_ms=HOUR_MS, **COMPACTED
    )
    models = [KeyedModel(session, topic, await producer_id(session)) for _ in range(3)]
    for model in models:
        await model.append(1, 2, 2)
    models[2].bump()
    await models[2].append(2)
    for step in range(8):
        await session.append(topic, [record(b"filler %d" % step * 4, key, session.wall_ms) for key in KEYS])

    async def is_compacted() -> bool:
        return len(await session.read(topic)) <= 8

    await session.until(is_compacted, True, "whether compaction removes superseded records", 8_000)
    await session.sleep(500)
    return topic, models


@fields("IDM-2", "IDM-5", "IDM-8", "IDM-14", "FET-36", "ADM-34")
async def producers_of_a_compacted_log_that_moves(session: Session) -> None:
    """A replica that copies a compacted log knows the producers whose records are gone, as its former leader did."""
    topic, models = await _compacted(session, [1])
    before = await described_producers(session, topic)
    for replicas in ([2], [3, 1]):
        session.ok(await reassign(session, topic, replicas), f"a reassignment to {replicas}")
        moved = partial(replicas_at, session, topic)
        await session.until(moved, {(tuple(replicas), True)}, f"the replicas of {topic}")
        await session.healthy(topic)
        session.look_again()
        session.equal(await described_producers(session, topic), before, f"the producers that {replicas[0]} describes")
    await _continue(session, topic, models)


@after_restart("IDM-2", "IDM-5", "IDM-8", "IDM-14", "TXN-16")
async def kept_descriptions_of_producers(session: Session) -> None:
    """Every producer is described as before, also those that only snapshots have."""
    topic = await session.create_topic("describe", 1, session.one_of(1, 3), segment_bytes=300)
    models = [IdempotentModel(session, topic, await producer_id(session)) for _ in range(2)]
    await models[0].append(1, 2)
    await session.sleep(20)
    models[1].bump()
    await models[1].append(3)
    log = TransactionLog(session, topic)
    open_one, ended = [await Transactional(session, name).begin() for name in ("open", "ended")]
    log.end = await session.offset(topic, LATEST)
    await write(ended, [log], b"ended", 2)
    await finish(ended, [log], commit=bool(session.draw(2)))
    await write(open_one, [log], b"open", 2)
    for step in range(9):
        await session.values(topic, b"filler %d" % step * 8)
    await _same_producers(session, topic, models)
    await open_one.ended(commit=True)


async def _same_producers(session: Session, topic: str, models: Sequence[IdempotentModel]) -> None:
    """Restart all brokers, and compare what is described and what the producers may send."""
    before = await described_producers(session, topic)
    for model in models:
        epoch, sequence = before[model.producer][:2]
        session.equal(
            (epoch, sequence), (model.epoch, model.next_sequence - 1), "epoch and last sequence of a producer"
        )
    await session.rolling_restart()
    await session.healthy(topic)
    session.equal(await described_producers(session, topic), before, "the producers after a restart")
    await session.sleep(EXPIRY_CHECK_MS)
    session.equal(await described_producers(session, topic), before, "the producers after their expiry was checked")
    await _continue(session, topic, models)


async def _continue(session: Session, topic: str, models: Sequence[IdempotentModel]) -> None:
    """Each producer may repeat its last batch and send its next one, and skip none."""
    end = await session.offset(topic, LATEST)
    for model in models:
        await model.repeat(1)
        await model.refused(model.next_sequence + 2, 1, E.OUT_OF_ORDER_SEQUENCE_NUMBER, "a batch that skips a sequence")
    session.equal(await session.offset(topic, LATEST), end, "the end of the log after repeated batches")
    for model in models:
        await model.append(1)


# -- groups ------------------------------------------------------------------------------------------------------------


@after_restart("GRP-2", "GRP-11", "GRP-15", "GRP-20", "GRP-27", "GRP-50", "OFF-3", "OFF-21")
async def kept_states_of_groups(session: Session) -> None:
    """A group is in the state that was stored last: without the members that left, and those that had not synced."""
    topic = await session.create_topic("states")
    names = ("left", "refilled", "simple", "preparing", "completing", "gone", "static")
    left, refilled, simple, preparing, completing, gone, static = [await Group.found(session, name) for name in names]
    for group in (left, refilled, static):
        members = _members(group)
        await stable(group, *members)
        await committed_ok(group, {(topic, 0): 5}, members[0])
        await group.leave(*members)
    again = refilled.member(topic, session_ms=LONG_SESSION_MS)
    await stable(refilled, again)
    for group in (simple, gone):
        await committed_ok(group, {(topic, 0): 6})
    session.ok(await gone.delete(), "DeleteGroups")
    waiting = [await _interrupted(preparing, synced=False), await _interrupted(completing, synced=True)]
    ghost = simple.member(topic, session_ms=LONG_SESSION_MS)
    await ghost.take_id()
    await session.rolling_restart()
    for group, state in ((left, "Empty"), (refilled, "Stable"), (simple, "Empty"), (gone, "Dead"), (static, "Empty")):
        await group.find()
        found = await group.describe()
        session.equal(found.group_state, state, f"the state of {group.name} after a restart")
        kind = "consumer" if group in (left, refilled, static) else ""
        session.equal(found.protocol_type, kind, f"the protocol type of {group.name} after a restart")
    await beat([again])
    for members in waiting:
        await _as_stored(members)
    await ghost.end_join(ghost.begin_join(), E.UNKNOWN_MEMBER_ID)
    for group in (left, simple):
        await committed_ok(group, {(topic, 0): 9})
        session.equal(
            await committed(group, [(topic, 0)]), {(topic, 0): (9, 0)}, "the offset of a group without members"
        )
        session.ok(await group.delete(), f"DeleteGroups of {group.name}, which has no members")
        session.equal((await group.describe()).group_state, "Dead", f"the state of {group.name} after its deletion")
    await stable(static, static.member(topic, instance="one"))


def _members(group: Group, count: int = 2) -> list[Member]:
    """Return members, one of them static, with timeouts that the restart does not exceed."""
    return [
        group.member("a", session_ms=LONG_SESSION_MS, rebalance_ms=LONG_SESSION_MS, instance=name)
        for name in (None, "one", None)[:count]
    ]


async def _interrupted(group: Group, *, synced: bool) -> list[Member]:
    """Return the members of a stable group in which a rebalance has begun, or has no assignment yet."""
    members = _members(group)
    await stable(group, *members)
    first, second = sorted(members, key=lambda each: not each.leads)
    generation = first.generation
    opening = first.begin_join()
    await group.session.sleep(ARRIVAL_MS)
    if synced:
        joining = second.begin_join()
        for member, pending in ((second, joining), (first, opening)):
            await member.end_join(pending)
            member.generation = generation
    return members


async def _as_stored(members: list[Member]) -> None:
    """The members are in the generation whose assignment was stored, and not in the next one."""
    group = members[0].group
    await group.find()
    await group.state("Stable")
    await beat(members)
    for member in members:
        error = await member.heartbeat(generation_id=member.generation + 1)
        group.session.error(error, E.ILLEGAL_GENERATION, "a heartbeat of a generation that was not stored")
    await stable(group, *members)
