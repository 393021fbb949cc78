"""Probes of Produce and of reads of plain records, with models of a partition and of an idempotent producer."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.node import probe
from highwater.fuzz.simulator.probes.client.requests import BIG, fetch_request, produce_request, request
from highwater.fuzz.simulator.probes.client.session import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    E,
    Session,
    batches_of,
    delivered,
    record,
    sizes_of,
    stored,
)
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.records import NewRecord, Record, TimestampType, build_batch, decode_records

CODECS: Final = (Compression.NONE, Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
HEADERS: Final = (("h", b"1"), ("h", None), ("g", b""))
HOUR_MS: Final = 3_600_000
LARGEST_SEQUENCE: Final = (1 << 31) - 1
REMEMBERED: Final = 5
OLD_EPOCH: Final = (E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED)
NOT_NEXT: Final = (E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.DUPLICATE_SEQUENCE_NUMBER)


@dataclass
class Batch:
    """A stored batch: its first offset, its records, and its size in bytes."""

    base_offset: int
    records: tuple[Record, ...]
    size: int

    @property
    def end(self) -> int:
        """Return the offset after its last record."""
        return self.base_offset + len(self.records)


@dataclass
class PartitionModel:
    """One partition with plain records: what was appended, its log start, and what every read must return."""

    session: Session
    topic: str
    number: int = 0
    batches: list[Batch] = field(default_factory=list)
    start: int = 0

    @property
    def end(self) -> int:
        """Return the log end offset."""
        return self.batches[-1].end if self.batches else 0

    @property
    def records(self) -> list[Record]:
        """Return all records that can be read."""
        return [r for batch in self.batches for r in batch.records if r.offset >= self.start]

    async def append(self, batches: int = 1, most_records: int = 5) -> "PartitionModel":
        """Append batches that are drawn (records, timestamps, codec and acks), and wait until they are committed."""
        for _ in range(batches):
            await self._append([self._drawn() for _ in range(1 + self.session.draw(most_records))])
        await self.settle()
        return self

    def _drawn(self) -> NewRecord:
        session = self.session
        value = None if session.draw(8) == 0 else b"%d " % session.draw(1 << 20) * (1 + session.draw(20))
        return (
            session.wall_ms + session.draw(2_000) - 1_000,
            session.one_of(None, b"", b"a", b"b"),
            value,
            HEADERS[: session.draw(4)],
        )

    async def _append(self, drawn: list[NewRecord]) -> None:
        session, what = self.session, f"Produce to {self.topic}-{self.number}"
        batch = build_batch(drawn, compression=session.one_of(*CODECS))
        answer = await session.produce(self.topic, batch, self.number, acks=session.one_of(-1, -1, 1))
        session.ok(answer.error_code, what)
        found = answer.base_offset, answer.log_append_time_ms, answer.log_start_offset
        session.equal(found, (self.end, -1, self.start), f"offset, append time and log start of {what}")
        written = tuple(stored(self.end + n, each) for n, each in enumerate(drawn))
        self.batches.append(Batch(self.end, written, len(batch)))

    # -- checks ---------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Check every kind of read of this partition."""
        await self.check_offsets()
        await self.check_content()
        for _ in range(5):
            await self.check_fetch_at(self.start + self.session.draw(max(1, self.end - self.start)))
        await self.check_range()
        await self.check_timestamps()

    async def settle(self) -> None:
        """Wait until all that was written with acks=1 is committed, too."""
        end = partial(self.session.offset, self.topic, LATEST, self.number)
        await self.session.until(end, self.end, f"the end of {self.topic}-{self.number}", 3_000)

    async def check_offsets(self) -> None:
        """ListOffsets returns start and end (LST-1)."""
        await self.settle()
        for timestamp, expected in {EARLIEST: self.start, LATEST: self.end}.items():
            for isolation in (0, 1):
                offset = await self.session.offset(self.topic, timestamp, self.number, isolation)
                self.session.equal(offset, expected, f"ListOffsets({timestamp}) of {self.topic}-{self.number}")

    async def check_content(self) -> None:
        """All records are returned as they were written (PRD-17, PRD-19, FET-35)."""
        isolation = self.session.draw(2)
        found = await self.session.read(self.topic, self.start, self.number, isolation=isolation, end=self.end)
        self.session.equal([tuple(r) for r in found], [tuple(r) for r in self.records], f"the content of {self.topic}")

    async def check_fetch_at(self, offset: int) -> None:
        """A response begins with the batch of the offset, whole, and respects the limits (FET-3, FET-20, FET-27)."""
        session = self.session
        limit, name = session.one_of(1, 100, 300, 1_000, BIG), session.one_of("partition_max_bytes", "max_bytes")
        data = await session.fetch(self.topic, offset, self.number, **{name: limit})
        where = f"Fetch of {self.topic}-{self.number} at {offset} with a limit of {limit} bytes"
        found = data.error_code, data.high_watermark, data.last_stable_offset, data.log_start_offset
        session.equal(found, (0, self.end, self.end, self.start), f"error, end, stable offset and start in {where}")
        wanted = [batch for batch in self.batches if batch.end > offset]
        headers, size = batches_of(data), len(bytes(data.records or b""))
        if not wanted:
            session.equal(size, 0, f"the size of {where}")
            return
        session.equal(headers[0].base_offset, wanted[0].base_offset, f"the first batch of {where}")
        session.expect(size <= max(limit, wanted[0].size), f"{where} returns {size} bytes")
        returned, _ = delivered(data, offset, read_committed=False)
        expected = [r for r in self.records if r.offset >= offset][: len(returned)]
        session.equal([tuple(r) for r in returned], [tuple(r) for r in expected], f"the records of {where}")

    async def check_range(self) -> None:
        """An offset outside of the log is answered with OFFSET_OUT_OF_RANGE, the end with nothing (FET-4, FET-34)."""
        for offset in (self.start - 1, self.end + 1):
            data = await self.session.fetch(self.topic, offset, self.number)
            self.session.error(data.error_code, E.OFFSET_OUT_OF_RANGE, f"Fetch of {self.topic} at {offset}")
        data = await self.session.fetch(self.topic, self.end, self.number)
        found = data.error_code, bytes(data.records or b"")
        self.session.equal(found, (0, b""), f"error and records of Fetch at the end of {self.topic}")

    async def check_timestamps(self) -> None:
        """ListOffsets finds the first record that is not earlier, and the largest timestamp (LST-2, LST-3, LST-12)."""
        session, records = self.session, self.records
        if not records:
            return
        times = [session.one_of(*records).timestamp for _ in range(3)]
        largest = max(r.timestamp for r in records)
        for timestamp in [*times, times[0] + 1, times[1] - 1, largest + 1, 0]:
            found = await session.listed(self.topic, timestamp, self.number)
            first = next((r for r in records if r.timestamp >= timestamp), None)
            expected = (first.offset, first.timestamp) if first else (-1, -1)
            session.equal(found, expected, f"ListOffsets({timestamp}) of {self.topic}")
        found = await session.listed(self.topic, MAX_TIMESTAMP, self.number)
        best = next(r for r in records if r.timestamp == largest)
        session.equal(found, (best.offset, largest), f"ListOffsets(-3) of {self.topic}")


@probe("PRD-4", "PRD-17", "FET-20", "FET-27", "LST-1", "LST-12")
async def records(session: Session) -> None:
    """Append drawn batches to partitions with small segments, and check every kind of read."""
    topic = await session.create_topic("log", 3, segment_bytes=session.one_of(400, 1_000, 4_096))
    models = [PartitionModel(session, topic, number) for number in range(3)]
    for _ in range(24):
        await session.one_of(*models).append()
    for model in models:
        await model.check()
    together = await session.create_topic("together", assigned=[[1, 2, 3]] * 4)
    models = [PartitionModel(session, together, number) for number in range(4)]
    for _ in range(12):
        await session.one_of(*models).append()
    for limit in (1, 150, 300, 600, 2_000):
        await _several_partitions(session, together, models, limit)


async def _several_partitions(session: Session, topic: str, models: list[PartitionModel], limit: int) -> None:
    """Check one Fetch of several partitions: after the first batch nothing exceeds max_bytes (FET-27, FET-3)."""
    body = fetch_request(topic, {m.number: m.start for m in models}, max_bytes=limit)
    sizes = sizes_of(await session.ask_leader(topic, 0, body))
    first = next((m.batches[0].size for m in models if sizes.get(m.number)), 0)
    session.expect(0 < sum(sizes.values()) <= max(limit, first), f"a Fetch with max_bytes {limit} returns {sizes}")


# -- idempotent producers --------------------------------------------------------------------------------------------


async def producer_id(session: Session) -> int:
    """Return a producer id without transactions."""
    answer = await session.ask_any(request("InitProducerId", transactional_id=None, transaction_timeout_ms=60_000))
    session.equal((answer.error_code, answer.producer_epoch), (0, 0), "error and epoch of a new producer id")
    return int(answer.producer_id)


class IdempotentModel:
    """A model of one idempotent producer in one partition: the batches that it sent, with their offsets."""

    def __init__(self, session: Session, topic: str, producer: int, partition: int = 0, sequence: int = 0) -> None:
        self._session, self._topic, self.producer, self._partition = session, topic, producer, partition
        self.epoch, self.next_sequence = 0, sequence
        self.sent: list[tuple[int, int, int]] = []  # sequence, count and offset of the batches of this epoch

    def batch(self, sequence: int, count: int, epoch: int = -1) -> bytes:
        """Return a batch of `count` records."""
        epoch = self.epoch if epoch < 0 else epoch
        values = [record(b"%d %d" % (epoch, sequence + n), None, self._session.wall_ms) for n in range(count)]
        return build_batch(values, producer_id=self.producer, producer_epoch=epoch, base_sequence=sequence)

    async def append(self, *counts: int) -> None:
        """Append the next batches."""
        for count in counts:
            answer = await self._send(self.next_sequence, count)
            self._session.ok(answer.error_code, f"the batch with sequence {self.next_sequence}")
            self.sent.append((self.next_sequence, count, int(answer.base_offset)))
            self.next_sequence = (self.next_sequence + count) % (LARGEST_SEQUENCE + 1)

    async def _send(self, sequence: int, count: int, epoch: int = -1) -> Any:
        return await self._session.produce(self._topic, self.batch(sequence, count, epoch), self._partition)

    def bump(self) -> None:
        """Begin the next producer epoch."""
        self.epoch, self.next_sequence = self.epoch + 1, 0
        self.sent.clear()

    async def repeat(self, *back: int) -> None:
        """A batch that is one of the last five is answered with its offset (IDM-2)."""
        for number in back:
            sequence, count, offset = self.sent[-number]
            answer = await self._send(sequence, count)
            found = answer.error_code, answer.base_offset
            self._session.equal(found, (0, offset), f"error and offset of the repeated batch {number} of the last five")

    async def refused(self, sequence: int, count: int, expected: Any, what: str, epoch: int = -1) -> None:
        """A batch is refused."""
        answer = await self._send(sequence, count, epoch)
        self._session.error(answer.error_code, expected, what)


@probe("IDM-2", "IDM-3", "IDM-4", "IDM-5", "IDM-6", "IDM-10", "IDM-11", "IDM-13")
async def idempotence(session: Session) -> None:
    """Repeat, skip and reorder batches of idempotent producers, in two partitions and three epochs."""
    topic = await session.create_topic("idem", 2, segment_bytes=600)
    producer, another = await producer_id(session), await producer_id(session)
    session.expect(another != producer, "two producers have the same id")
    models = [IdempotentModel(session, topic, producer, partition) for partition in (0, 1)]
    # The first batch of a producer that the partition does not know may have any sequence number (IDM-9).
    other = IdempotentModel(session, topic, another, 0, LARGEST_SEQUENCE - session.draw(3))
    expected = {0: 0, 1: 0}
    for _ in range(3):
        for partition, model in enumerate(models):
            counts = [1 + session.draw(4) for _ in range(6)]
            await model.append(*counts)
            expected[partition] += sum(counts)
            await _disorder(session, model)
        counts = session.one_of([1, 1], [2], [2, 1])
        await other.append(*counts)
        await other.repeat(1)
        expected[0] += sum(counts)
        for model in models:
            model.bump()
            await model.refused(3, 1, E.OUT_OF_ORDER_SEQUENCE_NUMBER, "the first batch of an epoch with sequence 3")
    for partition, model in enumerate(models):
        await model.append(2)
        await model.refused(0, 1, OLD_EPOCH, "a batch of an older epoch", epoch=model.epoch - 1)
        count = len(await session.read(topic, 0, partition))
        session.equal(count, expected[partition] + 2, f"the number of records in {topic}-{partition}")


async def _disorder(session: Session, model: IdempotentModel) -> None:
    await model.repeat(1 + session.draw(REMEMBERED), 1 + session.draw(REMEMBERED), REMEMBERED, 2)
    await model.refused(model.next_sequence + 1, 1, E.OUT_OF_ORDER_SEQUENCE_NUMBER, "a batch that skips a sequence")
    sequence, count, _ = model.sent[-2]
    await model.refused(sequence, count + 1, NOT_NEXT, "a longer batch with used sequence numbers")
    await model.refused(0, model.sent[0][1] + 7, NOT_NEXT, "a batch with sequence numbers of long ago")


# -- settings of topics, and requests with several partitions --------------------------------------------------------


@probe("PRD-15", "PRD-16", "PRD-28", "LST-17")
async def timestamps(session: Session) -> None:
    """LogAppendTime, and the limits of timestamps."""
    by_broker = await session.create_topic("append", message_timestamp_type="LogAppendTime")
    answer = await session.produce(by_broker, build_batch([record(b"v", None, 17), record(b"w", None, 5)]))
    session.ok(answer.error_code, "Produce with LogAppendTime")
    now_ms = answer.log_append_time_ms
    session.expect(abs(now_ms - session.wall_ms) < HOUR_MS, f"the append time is {now_ms}")
    data = await session.fetch(by_broker, 0)
    session.equal(batches_of(data)[0].timestamp_type, TimestampType.LOG_APPEND_TIME, "the type of the timestamps")
    times = {r.timestamp for r in decode_records(bytes(data.records or b""))[1]}
    session.equal(times, {now_ms}, "the stored timestamps")
    session.equal(await session.listed(by_broker, now_ms), (0, now_ms), "ListOffsets by the append time")
    limited = await session.create_topic(
        "limits", message_timestamp_before_max_ms=2 * HOUR_MS, message_timestamp_after_max_ms=HOUR_MS
    )
    shifts = {-3 * HOUR_MS: E.INVALID_TIMESTAMP, -HOUR_MS - 60_000: E.NONE, 0: E.NONE, 1_900_000: E.NONE,
              HOUR_MS + 60_000: E.INVALID_TIMESTAMP}  # fmt: skip
    for shift_ms, expected in shifts.items():
        batch = build_batch([record(b"now", None, session.wall_ms), record(b"v", None, session.wall_ms + shift_ms)])
        answer = await session.produce(limited, batch)
        session.error(answer.error_code, expected, f"a timestamp {shift_ms} ms from now")
    session.equal(len(await session.read(limited)), 6, "the number of accepted records")


@probe("PRD-13", "PRD-31", "PRD-32")
async def sizes_and_codecs(session: Session) -> None:
    """The largest batch, and the codec of a topic."""
    batch = build_batch([record(b"x" * 300, b"k", session.wall_ms)])
    exact = await session.create_topic("exact", max_message_bytes=len(batch))
    session.ok((await session.produce(exact, batch)).error_code, f"a batch of max.message.bytes, {len(batch)}")
    answer = await session.produce(exact, build_batch([record(b"x" * 301, b"k", session.wall_ms)]))
    session.error(answer.error_code, E.MESSAGE_TOO_LARGE, "a batch that is one byte larger")
    for name, codec in {"uncompressed": 0, "gzip": 1, "producer": int(Compression.LZ4)}.items():
        topic = await session.create_topic(name, compression_type=name)
        await session.append(topic, [record(b"y" * 200)] * 3, compression=Compression.LZ4)
        header = batches_of(await session.fetch(topic, 0))[0]
        session.equal(header.attributes & 7, codec, f"the codec of a batch in a topic with {name}")
        session.equal([r.value for r in await session.read(topic)], [b"y" * 200] * 3, "the records")


@probe("PRD-14")
async def keys(session: Session) -> None:
    """A compacted topic refuses records without a key, with every policy that compacts."""
    for policy in ("compact", "compact,delete", "delete,compact"):
        topic = await session.create_topic(policy.replace(",", "-"), cleanup_policy=policy)
        answer = await session.produce(topic, build_batch([record(b"v", b"k"), record(b"v")]))
        session.error(answer.error_code, E.INVALID_RECORD, f"a record without a key in a topic with {policy}")
        await session.append(topic, [record(b"v", b"k")])
        session.equal(len(await session.read(topic)), 1, "the number of records")


@probe("PRD-3", "PRD-6", "PRD-7", "PRD-20", "PRD-21", "REP-2")
async def requests_in_parallel(session: Session) -> None:
    """Each request that waits for replicas is answered, and an error in one partition does not affect the others."""
    topic = await session.create_topic("many", assigned=[[1, 2, 3], [1, 2, 3], [2, 1, 3]])
    good, bad = build_batch([record(b"v")]), bytearray(build_batch([record(b"v")]))
    bad[-1] ^= 1
    answer = await session.ask(1, produce_request(topic, {0: good, 1: bytes(bad), 2: good, 7: good}))
    expected = {0: E.NONE, 1: E.CORRUPT_MESSAGE, 2: E.NOT_LEADER_OR_FOLLOWER, 7: E.UNKNOWN_TOPIC_OR_PARTITION}
    errors = {p.index: p.error_code for p in answer.responses[0].partition_responses}
    session.equal(errors, expected, "the errors of a request with four partitions")
    answer = await session.ask(1, produce_request(topic, {0: good}, acks=2))
    session.error(answer.responses[0].partition_responses[0].error_code, E.INVALID_REQUIRED_ACKS, "acks=2")
    waiting = [session.send(1, produce_request(topic, {0: good})) for _ in range(6)]
    found = [(await each).responses[0].partition_responses[0] for each in waiting]
    session.equal([part.error_code for part in found], [0] * 6, "the errors of six parallel requests")
    session.equal(sorted(part.base_offset for part in found), list(range(1, 7)), "their offsets")
    session.equal(len(await session.read(topic)), 7, "the number of records in the first partition")
