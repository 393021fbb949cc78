"""Probes of stored batches: times in any order, settings that rewrite a batch, repeated batches, producers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.requests import list_request, of_topics, request
from highwater.fuzz.simulator.probes.client.session import LATEST, MAX_TIMESTAMP, E, Session, record, stored
from highwater.fuzz.simulator.probes.client.transactional import Transactional, TransactionLog, finish, write
from highwater.fuzz.simulator.probes.fetch import epoch_end, move_leader
from highwater.fuzz.simulator.probes.fields.listings import fields
from highwater.fuzz.simulator.probes.records import HOUR_MS, Batch, IdempotentModel, PartitionModel, producer_id
from highwater.fuzz.simulator.probes.restarts import after_restart
from highwater.fuzz.simulator.probes.trimming import delete_records, set_topic
from highwater.reference.wire.records import NewRecord, build_batch, with_append_time, with_create_time

MINUTE_MS: Final = 60_000
REWRITING: Final[tuple[dict[str, Any], ...]] = (
    {"compression_type": "gzip"}, {"message_timestamp_type": "LogAppendTime"}, {"segment_bytes": 300},
)  # fmt: skip
"""Settings of topics under which a stored batch is not the one that was sent, and one that leaves it as it is."""


@dataclass
class TimesModel(PartitionModel):
    """A partition whose records have few different times, far apart and in any order."""

    def _drawn(self) -> NewRecord:
        session = self.session
        return session.wall_ms - session.wall_ms % MINUTE_MS + session.draw(12) * MINUTE_MS, b"k", b"v" * 20, ()

    async def append_with_wrong_header(self) -> None:
        """Append a batch whose header has another largest time than its records, or the append time (PRD-37)."""
        session, drawn = self.session, [self._drawn() for _ in range(3)]
        largest = max(each[0] for each in drawn)
        wrong = session.one_of(0, 1, largest, largest + HOUR_MS)
        batch = session.one_of(with_create_time, with_append_time)(build_batch(drawn), wrong)
        answer = await session.produce(self.topic, batch, self.number)
        session.ok(answer.error_code, f"a batch with a wrong largest time of {wrong}")
        written = tuple(stored(self.end + n, each) for n, each in enumerate(drawn))
        self.batches.append(Batch(self.end, written, len(batch)))


@fields("LST-2", "LST-3", "LST-8", "LST-12", "LST-18", "PRD-37")
async def searches_by_time(session: Session) -> None:
    """ListOffsets finds the first record that is not earlier, whatever the order of the times and the log start."""
    topic = await session.create_topic("times", 2, segment_bytes=session.one_of(250, 500, 4_096))
    models = [TimesModel(session, topic, number) for number in (0, 1)]
    for model in models:
        for _ in range(4):
            await model.append(3, 4)
            await model.append_with_wrong_header()
            await model.settle()
            await model.check_timestamps()
        session.equal(await session.read(topic, 0, model.number), model.records, "the records with their times")
        for _ in range(3):
            model.start += 1 + session.draw(max(1, (model.end - model.start) // 3))
            found = await delete_records(session, topic, model.start, model.number)
            session.equal(found, (E.NONE, model.start), "DeleteRecords")
            await model.check_timestamps()
            await model.check_timestamps()
    for timestamp, since in ((MAX_TIMESTAMP, 7), (-4, 8), (-17, 99)):
        for version in range(1, 8):
            body = list_request(topic, timestamp)
            answer = await session.ask(await session.leader(topic), body, version)
            expected = E.NONE if version >= since else E.UNSUPPORTED_VERSION
            error = answer.topics[0].partitions[0].error_code
            session.error(error, expected, f"ListOffsets {version} for the timestamp {timestamp}")


@fields("IDM-2", "IDM-14", "PRD-16")
async def repeated_batches(session: Session) -> None:
    """A repeated batch is answered as at first, with its offset and append time; the newest one gives the last time."""
    for kind in ("CreateTime", "LogAppendTime"):
        topic = await session.create_topic(kind, message_timestamp_type=kind)
        model = IdempotentModel(session, topic, await producer_id(session))
        answers = []
        for sequence in range(5):
            batch = model.batch(sequence, 1)
            answer = await session.produce(topic, batch)
            session.ok(answer.error_code, f"batch {sequence}")
            answers.append((batch, answer.base_offset, answer.log_append_time_ms, session.wall_ms))
            await session.sleep(7)
        await _is_newest(session, topic, model.producer, answers[4][2] if kind == "LogAppendTime" else 0, answers[3][3])
        for batch, *first, _ in [answers[session.draw(5)] for _ in range(3)]:
            again = await session.produce(topic, batch)
            found = [again.base_offset, again.log_append_time_ms]
            if kind == "CreateTime":  # Apache Kafka returns the batch's own time then, not -1 (UnifiedLog.append)
                found[1] = first[1]
            session.equal((again.error_code, found), (0, first), f"the answer to a repeated batch with {kind}")
        session.equal(await session.offset(topic, LATEST), 5, "the end after repeated batches")


async def _is_newest(session: Session, topic: str, producer: int, append_ms: int, before_ms: int) -> None:
    """DescribeProducers returns the time of the newest batch: its append time, or one later than before it was sent."""
    body = request("DescribeProducers", topics=of_topics([(topic, 0)], partitions="partition_indexes"))
    answer = await session.ask(await session.leader(topic), body)
    (found,) = [p for p in answer.topics[0].partitions[0].active_producers if p.producer_id == producer]
    session.equal(found.last_sequence, 4, "the last sequence in DescribeProducers")
    right = found.last_timestamp == append_ms if append_ms else found.last_timestamp >= before_ms
    session.expect(right, f"the last time in DescribeProducers is {found.last_timestamp}, not {append_ms or before_ms}")


@fields("TXN-5", "TXN-6", "TXN-7", "PRD-31", "FET-6")
async def rewritten_transactions(session: Session) -> None:
    """Transactions are as visible in topics whose settings rewrite the batches, and one producer aborts several."""
    for settings in REWRITING:
        log = TransactionLog(session, await session.create_topic(**settings))
        producer, other = await Transactional(session, "one").begin(), await Transactional(session, "two").begin()
        for commit in (False, True, False, False):
            await write(producer, [log], b"v", 1 + session.draw(2))
            if session.draw(2):
                await write(other, [log], b"w", 1)
            await log.check()
            await finish(producer, [log], commit=commit)
        await log.check()
        if other.written:
            await finish(other, [log], commit=False)
        await log.check()


@fields("LST-6", "REP-8", "FET-13")
async def epochs_without_records(session: Session) -> None:
    """OffsetForLeaderEpoch returns the largest epoch at or below the requested one that has records, and its end."""
    topic = await session.create_topic("empty", assigned=[[1, 2, 3]])
    starts: dict[int, int] = {}  # the epochs with records
    end = 0
    for replicas in ([1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3]):
        if starts:
            await move_leader(session, topic, replicas)
        if replicas[0] == 1 or session.draw(2) == 0:
            starts[(await session.known(topic)).leader_epoch] = end
            await session.values(topic, b"v", b"w")
            end += 2
    leader, current = await session.leader(topic), (await session.known(topic)).leader_epoch
    for epoch in range(min(starts), current + 1):
        below, after = max(each for each in starts if each <= epoch), [s for e, s in starts.items() if e > epoch]
        found = await epoch_end(session, leader, topic, epoch, current)
        expected = (0, below, min(after, default=end))
        what = f"error, epoch and end of epoch {epoch}, with records in {sorted(starts)}"
        session.equal((found.error_code, found.leader_epoch, found.end_offset), expected, what)


# -- compaction by age -------------------------------------------------------------------------------------------------

NEVER_MS: Final = (1 << 63) - 1
CLEANED_WITHIN_MS: Final = 1_500
AGES: Final = (180, 120, 90, 30, 10, 0)
"""Minutes before now; the lags of the topics are an hour."""
BATCHES_OF_SEGMENT: Final = 3


@dataclass
class AgedLog:
    """A model of a compacted partition whose segments have records of chosen ages, and all records one key.

    Whether it is compacted depends only on the ages, as the topic has a dirty ratio of 1 (never) or 0 (always). `left`
    has the offsets that compaction has left.
    """

    session: Session
    topic: str
    number: int
    ages: list[tuple[int, ...]] = field(default_factory=list)  # of the closed segments that are not compacted
    left: list[int] = field(default_factory=list)
    end: int = 0

    async def fill(self, segments: int) -> None:
        """Append segments with drawn ages, each as large as a segment may be."""
        draw = self.session.one_of
        for _ in range(segments):
            self.ages.append(tuple(draw(*AGES) for _ in range(BATCHES_OF_SEGMENT)))
            await self.append(*self.ages[-1])

    async def append(self, *ages: int) -> None:
        """Append batches of the same size, one for each age in minutes."""
        for age in ages:
            new = record(b"%06d" % self.end, b"key", self.session.wall_ms - age * MINUTE_MS)
            offset = await self.session.append(self.topic, [new], self.number)
            self.left.append(offset)
            self.end = offset + 1

    def compact(self, segments: int) -> None:
        """Leave of the compacted part, which grows by so many segments, only the last record."""
        active = self.end - BATCHES_OF_SEGMENT * (len(self.ages) - segments) - 1
        self.left = [n for n in self.left if n >= active - 1]
        del self.ages[:segments]

    def compact_overdue(self) -> None:
        """Compact all closed segments if the first record of any is older than max.compaction.lag.ms (KIP-354)."""
        if any(ages[0] > HOUR for ages in self.ages):
            self.compact(len(self.ages))

    def compact_old(self) -> None:
        """Compact the segments before the first that has a record younger than min.compaction.lag.ms (KIP-58)."""
        young = [n for n, ages in enumerate(self.ages) if min(ages) < HOUR]
        if count := min(young, default=len(self.ages)):
            self.compact(count)

    async def check(self, what: str) -> None:
        """The partition has the records that compaction has left, and keeps them."""
        await self.session.until(self._offsets, self.left, f"the offsets of {self.topic}-{self.number} {what}", 2_500)

    async def _offsets(self) -> list[int]:
        return [each.offset for each in await self.session.read(self.topic, 0, self.number)]


HOUR: Final = 60


async def _aged(session: Session, suffix: str, **settings: Any) -> list[AgedLog]:
    size = len(build_batch([record(b"%06d" % 0, b"key", session.wall_ms)]))
    topic = await session.create_topic(
        suffix, 4, cleanup_policy="compact", segment_bytes=BATCHES_OF_SEGMENT * size, **settings
    )
    return [AgedLog(session, topic, number) for number in range(4)]


async def _written(logs: Sequence[AgedLog]) -> None:
    """Append up to three closed segments to each log, and a record that closes the last one."""
    for log in logs:
        await log.fill(1 + log.session.draw(3))
        await log.append(0)


@fields("FET-36", "FET-45")
async def compaction_by_age(session: Session) -> None:
    """A log is compacted if the first record of a segment is old enough, and no record that is too young."""
    overdue = await _aged(session, "overdue", min_cleanable_dirty_ratio=1, max_compaction_lag_ms=NEVER_MS)
    old = await _aged(session, "old", min_cleanable_dirty_ratio=0, min_compaction_lag_ms=HOUR_MS)
    await _written([*overdue, *old])
    await _compacted_by_age(session, overdue)
    for log in old:
        log.compact_old()
        await log.check("with min.compaction.lag.ms")


@after_restart("FET-36", "FET-45")
async def kept_ages(session: Session) -> None:
    """The age of a segment is that of its first record, also after a restart."""
    overdue = await _aged(session, "ages", min_cleanable_dirty_ratio=1, max_compaction_lag_ms=NEVER_MS)
    await _written(overdue)
    await session.rolling_restart()
    await session.healthy(overdue[0].topic, 4)
    await _compacted_by_age(session, overdue)


async def _compacted_by_age(session: Session, logs: Sequence[AgedLog]) -> None:
    """Let the lag begin after the segments are written: a shorter one would close them earlier."""
    await set_topic(session, logs[0].topic, max_compaction_lag_ms=HOUR_MS)
    await session.sleep(CLEANED_WITHIN_MS)
    for log in logs:
        log.compact_overdue()
        await log.check("with max.compaction.lag.ms")
