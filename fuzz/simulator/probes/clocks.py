"""Probes of what expires while the clocks of all brokers advance, after one of them was away for a while."""

from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.members import Group, beat, stable
from highwater.fuzz.simulator.probes.client.session import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    TRANSACTION,
    E,
    Session,
    record,
)
from highwater.fuzz.simulator.probes.client.transactional import Transactional
from highwater.fuzz.simulator.probes.offsets import all_committed, committed_ok
from highwater.fuzz.simulator.probes.outages import around_outage
from highwater.fuzz.simulator.probes.records import IdempotentModel, producer_id
from highwater.fuzz.simulator.probes.remembered import described_producers
from highwater.fuzz.simulator.probes.restarts import LONG_SESSION_MS
from highwater.fuzz.simulator.probes.trimming import COMPACTED
from highwater.reference.wire.records import build_batch

MINUTE_MS: Final = 60_000
SOON_MS: Final = 3_000
TEN_MINUTES_MS: Final = 10 * MINUTE_MS
LONGEST_MS: Final = 15 * MINUTE_MS
"""transaction.max.timeout.ms."""


async def _after_the_outage(session: Session) -> None:
    await session.notice()
    await session.stopped()
    await session.returned()


# -- producers ---------------------------------------------------------------------------------------------------------


class TimedModel(IdempotentModel):
    """An idempotent producer whose records have the time of the brokers."""

    def batch(self, sequence: int, count: int, epoch: int = -1) -> bytes:
        epoch = self.epoch if epoch < 0 else epoch
        values = [record(b"%d" % (sequence + n), None, self._session.broker_ms) for n in range(count)]
        return build_batch(values, producer_id=self.producer, producer_epoch=epoch, base_sequence=sequence)


@around_outage("IDM-5", "IDM-9", "IDM-14", "TXN-7")
async def producers_that_expire(session: Session) -> None:
    """A producer is forgotten six minutes after its last batch, not its first, and never with an open transaction."""
    topic = await session.create_topic("producers")
    idle, busy = [TimedModel(session, topic, await producer_id(session)) for _ in range(2)]
    open_one = await Transactional(session, timeout_ms=LONGEST_MS).begin()
    for model in (idle, busy):
        await model.append(2, 1)
    await open_one.added((topic, 0))
    await open_one.write(topic, 0, b"open")
    every = {idle.producer, busy.producer, open_one.producer}
    await _after_the_outage(session)
    session.equal(set(await described_producers(session, topic)), every, "the producers before any has expired")
    await session.later()  # 7 minutes
    session.equal(set(await described_producers(session, topic)), {open_one.producer}, "the producers after 7 minutes")
    await busy.append(1)  # any sequence number is the first one of a producer that is not known
    await session.later()  # 11 minutes
    found = set(await described_producers(session, topic))
    session.equal(found, {open_one.producer, busy.producer}, "the producers 4 minutes after one wrote again")
    await busy.repeat(1)
    await busy.refused(busy.next_sequence + 2, 1, E.OUT_OF_ORDER_SEQUENCE_NUMBER, "a batch that skips a sequence")
    await busy.append(1)
    before = await session.offset(topic, LATEST)
    again = await session.produce(topic, idle.batch(2, 1))
    found_again = again.error_code, again.base_offset
    session.equal(found_again, (0, before), "a repeated batch of a producer that has expired: it is stored again")
    await session.later()  # 126 minutes: the transaction has timed out
    stable_end = partial(session.offset, topic, LATEST, 0, READ_COMMITTED)
    await session.until(stable_end, before + 2, "the last stable offset after the longest timeout", SOON_MS)


# -- transactions ------------------------------------------------------------------------------------------------------


@around_outage("TXN-3", "TXN-8", "TXN-17", "TXN-22", "TXN-36")
async def transactions_that_time_out(session: Session) -> None:
    """A transaction is aborted when its timeout has passed since it began, whatever it did meanwhile, and fenced."""
    topic = await session.create_topic("timeouts", 6)
    limits = (5, 10, 15)
    producers = [await Transactional(session, f"m{n}", timeout_ms=n * MINUTE_MS).begin() for n in limits]
    idle = await Transactional(session, "idle", timeout_ms=5 * MINUTE_MS).begin()
    for number, producer in enumerate(producers):
        await producer.added((topic, number))
        await producer.write(topic, number, b"v")
    await _after_the_outage(session)
    for _ in range(3):
        passed = await session.later()
        for number, (limit, producer) in enumerate(zip(limits, producers, strict=True)):
            stable_end = partial(session.offset, topic, LATEST, number, READ_COMMITTED)
            what = f"the last stable offset of a transaction with a timeout of {limit} minutes after {passed}"
            if passed > limit:
                await session.until(stable_end, 2, what, SOON_MS)
                error = (await producer.end(commit=True)).error_code
                session.error(error, (E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED), "EndTxn after the timeout")
            else:
                session.equal(await stable_end(), 0, what)
                await producer.added((topic, 3 + number))
    await idle.begin()  # its transactional id has expired meanwhile
    await idle.added((topic, 0))
    await idle.write(topic, 0, b"late")
    session.ok((await idle.end(commit=True)).error_code, "EndTxn of a transaction that has just begun")


@around_outage("TXN-17", "TXN-18", "TXN-26")
async def transactional_ids_that_expire(session: Session) -> None:
    """A transactional id is forgotten two hours after its last transaction, or after its producer was initialised."""
    topic = await session.create_topic("ids")
    names = ("empty", "ended", "again")
    empty, ended, again = producers = [await Transactional(session, name).begin() for name in names]
    for producer in (ended, again):
        await producer.added((topic, 0))
        await producer.write(topic, 0, b"v")
        await producer.ended(commit=True)
    await _after_the_outage(session)
    for _ in range(2):
        await session.later()
        for producer in producers:
            session.equal(await _known(producer), E.NONE, f"the error of DescribeTransactions of {producer.name}")
    before = again.producer, again.epoch
    await again.begin()  # 11 minutes
    session.equal(
        (again.producer, again.epoch), (before[0], before[1] + 1), "producer id and epoch after InitProducerId"
    )
    await session.later()  # 126 minutes
    for producer in (empty, ended):
        gone = E.TRANSACTIONAL_ID_NOT_FOUND
        await session.until(partial(_known, producer), gone, f"the error of DescribeTransactions of {producer.name}")
        error = (await producer.end(commit=True)).error_code
        session.error(error, E.INVALID_PRODUCER_ID_MAPPING, "EndTxn of a transactional id that was forgotten")
    session.equal(await _known(again), E.NONE, "the error of DescribeTransactions of an id used 115 minutes ago")
    old = ended.producer
    await ended.begin()
    session.expect(ended.producer != old, "a transactional id that was forgotten gets its former producer id")
    await session.later()  # 186 minutes
    await session.until(
        partial(_known, again), E.TRANSACTIONAL_ID_NOT_FOUND, "the error for an id used 175 minutes ago"
    )
    session.equal(await _known(ended), E.NONE, "the error for an id used an hour ago")


async def _known(producer: Transactional) -> int:
    """Return the error of DescribeTransactions."""
    producer.session.expect(await producer.session.coordinator(producer.name, TRANSACTION) > 0, "no coordinator")
    answer = await producer.ask("DescribeTransactions", transactional_ids=[producer.name])
    return int(answer.transaction_states[0].error_code)


# -- groups ------------------------------------------------------------------------------------------------------------


@around_outage("OFF-19", "OFF-20", "GRP-65", "OFF-7")
async def offsets_that_expire(session: Session) -> None:
    """An offset expires ten minutes after its commit, or after the group that uses it lost its last member."""
    read, other = await session.create_topic("read"), await session.create_topic("other")
    names = ("simple", "later", "active", "left", "late", "pending")
    simple, later, active, left, late, pending = groups = [await Group.found(session, name) for name in names]
    options: dict[str, Any] = {"session_ms": LONG_SESSION_MS, "rebalance_ms": LONG_SESSION_MS}
    members = {each: each.member(read, **options) for each in (active, left, late)}
    for group, member in members.items():
        await stable(group, member)
        await committed_ok(group, {(read, 0): 1, (other, 0): 2}, member)
    for group in (simple, later):
        await committed_ok(group, {(read, 0): 1, (other, 0): 2})
    producer = await Transactional(session, timeout_ms=LONGEST_MS).begin()
    await producer.committed_offsets(pending, {(read, 0): 3})
    await left.leave(members[left])
    both, one = {read, other}, {read}
    await _after_the_outage(session)
    for each in groups:
        await each.find()
    await session.later()  # 7 minutes
    await _have_offsets({simple: both, later: both, active: both, left: both, late: both})
    await producer.ended(commit=True)  # the time of an offset is that of its commit, not of the transaction's end
    await _have_offsets({pending: one})
    await committed_ok(later, {(other, 0): 3})
    await late.leave(members[late])
    await session.later()  # 11 minutes
    await _have_offsets({simple: set(), later: {other}, active: one, left: set(), pending: set()})
    kept = {topic for topic, _ in await all_committed(late)}
    session.expect(read in kept, "an offset of a group that lost its members 4 minutes ago has expired")
    session.equal((await simple.describe()).group_state, "Dead", "the state of a group without members and offsets")
    await beat([members[active]])
    await session.later()  # 126 minutes
    await _have_offsets({later: set(), active: one, late: set()})
    await beat([members[active]])


async def _have_offsets(expected: dict[Group, set[str]]) -> None:
    """Expect offsets of exactly these topics in each group."""
    for group, topics in expected.items():

        async def found(group: Group = group) -> set[str]:
            return {topic for topic, _ in await all_committed(group)}

        what = f"the topics with an offset in {group.name}"
        passed = group.session.outage.passed_ms // MINUTE_MS
        await group.session.until(found, topics, f"{what} after {passed} minutes", SOON_MS)


# -- records -----------------------------------------------------------------------------------------------------------


@around_outage("FET-44", "PRD-16", "LST-8")
async def records_that_expire(session: Session) -> None:
    """A record is deleted when it is older than retention.ms, by its own time or that of its append."""
    options: dict[str, Any] = {"segment_bytes": 150, "retention_ms": TEN_MINUTES_MS}
    by_client = await session.create_topic("client", **options)
    by_broker = await session.create_topic("broker", message_timestamp_type="LogAppendTime", **options)
    topics = (by_client, by_broker)
    for number in range(3):
        for topic in topics:
            time_ms = session.broker_ms if topic == by_client else 17 + number
            await session.append(topic, [record(b"v" * 60, None, time_ms)])
    await _after_the_outage(session)
    await session.later()  # 7 minutes
    for topic in topics:
        session.equal(await session.offset(topic, EARLIEST), 0, f"the log start of {topic} after 7 minutes")
        await session.append(topic, [record(b"v" * 60, None, session.broker_ms)])
    await session.later()  # 11 minutes
    for topic in topics:
        first = partial(session.offset, topic, EARLIEST)
        await session.until(first, 3, f"the log start of {topic} after 11 minutes", SOON_MS)
        session.equal(await session.offset(topic, LATEST), 4, f"the log end of {topic} after 11 minutes")
    await session.later()  # 126 minutes
    for topic in topics:
        first = partial(session.offset, topic, EARLIEST)
        await session.until(first, 4, f"the log start of {topic} when all has expired", SOON_MS)
        session.equal(await session.append(topic, [record(b"next", None, session.broker_ms)]), 4, "the next offset")


@around_outage("FET-36", "FET-37", "FET-45")
async def tombstones_that_expire(session: Session) -> None:
    """A tombstone is removed ten minutes after it was compacted, and a young record is not compacted."""
    gone = await session.create_topic("gone", delete_retention_ms=TEN_MINUTES_MS, **COMPACTED)
    young = await session.create_topic("young", min_compaction_lag_ms=TEN_MINUTES_MS, **COMPACTED)
    for topic in (gone, young):
        for value in (b"old", None):
            await session.append(topic, [record(value, b"key", session.broker_ms)])
        await _fill(session, topic)
    await session.until(partial(_values, session, gone), [None], "the values of a key that was deleted", SOON_MS)
    session.equal(await _values(session, young), [b"old", None], "the values within min.compaction.lag.ms")
    await _after_the_outage(session)
    for expected in ([None], []):
        passed = await session.later()
        await _fill(session, gone)
        await session.sleep(600)
        await session.until(partial(_values, session, gone), expected, f"its values after {passed} minutes", SOON_MS)
        if not expected:
            await session.until(
                partial(_values, session, young), [None], f"young values after {passed} minutes", SOON_MS
            )
        else:
            session.equal(await _values(session, young), [b"old", None], f"young values after {passed} minutes")


async def _fill(session: Session, topic: str) -> None:
    """Append so much that the segment of what came before is closed and dirty."""
    for number in range(6):
        await session.append(topic, [record(b"%d" % number * 60, b"filler", session.broker_ms)])


async def _values(session: Session, topic: str) -> list[bytes | None]:
    return [each.value for each in await session.read(topic) if each.key == b"key"]
