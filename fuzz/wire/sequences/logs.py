"""A partition and its producers: offsets without gaps, fetched records are those produced, without duplicates."""

import time
from dataclasses import dataclass, field
from typing import Any, Final

from highwater.fuzz.wire.generate.batches import FIELDS, with_crc
from highwater.fuzz.wire.sequences.context import EARLIEST, SequenceAbandoned, SequenceContext
from highwater.reference.client.connection import Connection
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import DecodeError, ErrorCode
from highwater.reference.wire.log_entries import decode_entry, entries
from highwater.reference.wire.message_sets import build_message_set
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from highwater.reference.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from highwater.reference.wire.messages.transactions import InitProducerIdRequest
from highwater.reference.wire.records import Record, batch_headers, build_batch, decode_records

STAMP: Final = time.time_ns() // 1_000_000
"""The time of the first record of a batch: a broker forgets producers whose last batch is old, and their sequences."""
FETCH_BYTES: Final = 1 << 20
STEPS: Final = (3, 9)
POLLS_MAX: Final = 200
UNCOMMITTED, COMMITTED = 0, 1
PRODUCE, NEWEST_WITH_MESSAGES = 0, 2
"""Key of Produce, and its last version for message sets."""
EPOCH_SINCE: Final = 9  # version of Fetch
FETCH, NEWEST_FETCH_OF_MESSAGES, TIMESTAMP_SINCE = 1, 3, 2
"""Key of Fetch, its last version for message sets, and the first whose messages have a timestamp."""
OUT_OF_SEQUENCE: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)  # fmt: skip


Row = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Timestamp, key, value and headers of a record."""


@dataclass
class Log:
    """The model of one partition from `base` on: `rows` by offset, without control records."""

    topic: str
    base: int
    rows: dict[int, Row] = field(default_factory=dict)
    end: int = 0

    def __post_init__(self) -> None:
        self.end = self.base

    def append(self, offset: int, values: list[bytes]) -> None:
        for delta, row in enumerate(rows_of(values)):
            self.rows[offset + delta] = row
        self.end = offset + len(values)


@dataclass
class Producer:
    """A producer with or without producer id."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = 0
    transactional_id: str | None = None
    last: tuple[bytes, int] | None = None

    def batch(self, context: SequenceContext, values: list[bytes], sequence: int | None = None) -> bytes:
        number = self.sequence if sequence is None else sequence
        return build_batch(
            rows_of(values),
            compression=context.rng.choice((Compression.NONE, Compression.NONE, Compression.GZIP, Compression.LZ4)),
            producer_id=self.producer_id, producer_epoch=self.epoch,
            base_sequence=number if self.producer_id >= 0 else -1, transactional=self.transactional_id is not None,
        )  # fmt: skip


def rows_of(values: list[bytes]) -> list[Row]:
    """Derive the other fields of a record from its value, so that no further random choice is needed."""
    return [
        (STAMP + n, value[:2] if len(value) > 1 else None, value, (("h", value[:1]),) if len(value) == 8 else ())
        for n, value in enumerate(values)
    ]


def run(context: SequenceContext) -> None:
    """Produce, repeat a batch, skip a sequence number, fetch, and list offsets."""
    connection = context.connect()
    topic = context.topic(connection)
    log, producer = Log(topic, context.end(connection, topic)), Producer()
    if context.supports(22) and context.rng.random() < 0.6:
        producer = init_producer(context, connection)
    steps = [
        _produce_corrupt,
        _produce_corrupt_message,
        _produce_with_rest,
        _produce,
        _produce,
        _fetch,
        _fetch_messages,
        _check_offsets,
        *((_repeat_batch, _skip_sequence) if producer.producer_id >= 0 else ()),
    ]
    for _ in context.steps(*STEPS):
        context.rng.choice(steps)(context, connection, log, producer)
    check(context, connection, log, log.base)
    _fetch_messages(context, connection, log, producer)


def init_producer(context: SequenceContext, connection: Connection, transactional_id: str | None = None) -> Producer:
    """Send InitProducerId until a transaction of an earlier producer with this id is aborted."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    version = context.version(InitProducerIdRequest)
    for _ in range(POLLS_MAX):
        answer = context.call(connection, request, version)
        if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            break
    context.accepted(answer.error_code)
    context.require(answer.producer_id >= 0, f"producer id {answer.producer_id}")
    return Producer(answer.producer_id, answer.producer_epoch, transactional_id=transactional_id)


def random_values(context: SequenceContext) -> list[bytes]:
    return [context.rng.randbytes(context.rng.choice((1, 8, 60))) for _ in range(context.rng.choice((1, 2, 3)))]


def append(context: SequenceContext, connection: Connection, log: Log, producer: Producer) -> list[int]:
    """Produce some values, which must be appended at the log end; return their offsets."""
    values = random_values(context)
    batch = producer.batch(context, values)
    part = produce_batch(context, connection, log.topic, batch, producer.transactional_id)
    context.accepted(part.error_code)
    context.require(part.base_offset == log.end, f"base offset {part.base_offset} where the log ends at {log.end}")
    log.append(part.base_offset, values)
    producer.sequence, producer.last = producer.sequence + len(values), (batch, part.base_offset)
    return [part.base_offset + n for n in range(len(values))]


def produce_batch(
    context: SequenceContext, connection: Connection, topic: str, batch: bytes, transactional_id: str | None = None, *,
    version: int | None = None,
) -> Any:  # fmt: skip
    data = TopicProduceData(name=topic, partition_data=(PartitionProduceData(records=batch),))
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=1_000, topic_data=(data,))
    answer = context.call(connection, request, version)
    context.require(bool(answer.responses and answer.responses[0].partition_responses), "no answer for the partition")
    return answer.responses[0].partition_responses[0]


def _produce(context: SequenceContext, connection: Connection, log: Log, producer: Producer) -> None:
    append(context, connection, log, producer)


def _repeat_batch(context: SequenceContext, connection: Connection, log: Log, producer: Producer) -> None:
    """Send the last batch again: the broker returns its offset or an error, and never appends it (KIP-98)."""
    if producer.last is None:
        return
    batch, offset = producer.last
    part = produce_batch(context, connection, log.topic, batch)
    if context.accepted(part.error_code, *OUT_OF_SEQUENCE):
        context.require(
            part.base_offset in (offset, -1),
            f"a batch at {offset} that is sent again is reported at {part.base_offset}",
        )
    _check_offsets(context, connection, log, producer)


def _skip_sequence(context: SequenceContext, connection: Connection, log: Log, producer: Producer) -> None:
    """Send a batch with a sequence number that is not the next."""
    batch = producer.batch(context, [b"skipped"], producer.sequence + context.rng.choice((1, 5, 1 << 20)))
    if producer.sequence:
        part = produce_batch(context, connection, log.topic, batch)
        context.require(not context.accepted(part.error_code, *OUT_OF_SEQUENCE), "a batch out of sequence was accepted")


def _produce_corrupt(context: SequenceContext, connection: Connection, log: Log, producer: Producer) -> None:
    """Send a batch with a wrong offset delta or CRC, which must be rejected and not appended (KAFKA-6554)."""
    corrupt = bytearray(Producer().batch(context, random_values(context)))
    place, width = FIELDS[name := context.rng.choice(("last_offset_delta", "crc"))]
    wrong = (int.from_bytes(corrupt[place : place + width], "big") + 1) % (1 << 8 * width)
    corrupt[place : place + width] = wrong.to_bytes(width, "big")
    part = produce_batch(context, connection, log.topic, bytes(corrupt) if name == "crc" else with_crc(corrupt))
    context.require(part.error_code != 0, f"a batch with a wrong {name} is accepted")
    _check_offsets(context, connection, log, producer)


def _produce_with_rest(context: SequenceContext, connection: Connection, log: Log, producer: Producer) -> None:
    """Send a batch and the beginning of another: refused, or stored without the rest (UnifiedLog.trimInvalidBytes)."""
    values = random_values(context)
    batch = Producer().batch(context, values)
    rest = context.rng.choice((bytes(1), bytes(60), batch[:20], batch[:-1]))
    try:
        part = produce_batch(context, context.connect(), log.topic, batch + rest)
    except SequenceAbandoned:  # Apache Kafka closes the connection
        part = None
    if part is not None and part.error_code == 0:
        context.require(part.base_offset == log.end, f"base offset {part.base_offset} where the log ends at {log.end}")
        log.append(part.base_offset, values)
    append(context, connection, log, Producer())
    check(context, connection, log, log.base)


def _produce_corrupt_message(context: SequenceContext, connection: Connection, log: Log, producer: Producer) -> None:
    """Send a message set of the old formats with a wrong CRC, which must be rejected and not appended."""
    first, last = context.served[PRODUCE]
    versions = range(first, min(last, NEWEST_WITH_MESSAGES) + 1)
    if not versions:
        return
    version, values = context.rng.choice(versions), random_values(context)
    records = [Record(n, timestamp, key, value, ()) for n, (timestamp, key, value, _) in enumerate(rows_of(values))]
    corrupt = bytearray(build_message_set(records, magic=int(version == NEWEST_WITH_MESSAGES)))
    corrupt[-1] ^= 1
    part = produce_batch(context, connection, log.topic, bytes(corrupt), version=version)
    context.require(part.error_code != 0, "a message with a wrong CRC is accepted")
    _check_offsets(context, connection, log, producer)


def _check_offsets(context: SequenceContext, connection: Connection, log: Log, producer: Producer) -> None:
    end = context.end(connection, log.topic)
    context.require(end == log.end, f"end offset {end}, {log.end} were appended")
    first = context.list_offset(connection, log.topic, EARLIEST)
    context.require(first.error_code != 0 or 0 <= first.offset <= end, f"start offset {first.offset}, end offset {end}")


def _fetch(context: SequenceContext, connection: Connection, log: Log, producer: Producer) -> None:
    check(context, connection, log, context.rng.randint(log.base, log.end))


def _fetch_messages(context: SequenceContext, connection: Connection, log: Log, producer: Producer) -> None:
    """In the versions for message sets the same records are returned, without headers (KIP-98), perhaps compressed.

    Those below the start are in the same wrapper; a timestamp exists since magic 1 (KIP-32).
    """
    first, last = context.served[FETCH]
    versions = range(first, min(last, NEWEST_FETCH_OF_MESSAGES) + 1)
    if not versions:
        return
    version, start = context.rng.choice(versions), context.rng.randint(log.base, log.end)
    part = FetchPartition(fetch_offset=start, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=(FetchTopic(topic=log.topic, partitions=(part,)),))
    found = context.call(connection, request, version).responses[0].partitions[0]
    context.accepted(found.error_code)
    data = bytes(found.records or b"")
    try:
        records = [record for position, _ in entries(data) for record in decode_entry(data, position)[1]]
    except DecodeError as error:
        context.violates(f"fetched messages do not decode: {error}")
    has_time = version >= TIMESTAMP_SINCE
    rows = [(r.offset, (r.timestamp * has_time, r.key, r.value, ())) for r in records if r.offset >= start]
    expected = [
        (offset, (row[0] * has_time, row[1], row[2], ())) for offset, row in sorted(log.rows.items()) if offset >= start
    ]
    context.require(rows == expected, f"fetched {_short(rows)} from {start}, produced {_short(expected)}")


def check(context: SequenceContext, connection: Connection, log: Log, start: int, isolation: int = UNCOMMITTED) -> Any:
    """The records from an offset on must be those of the model."""
    part, found = fetch_records(context, connection, log.topic, start, isolation)
    context.require(part.high_watermark <= log.end, f"high watermark {part.high_watermark}, {log.end} were appended")
    expected = [(offset, row) for offset, row in sorted(log.rows.items()) if offset >= start]
    context.require(found == expected, f"fetched {_short(found)} from {start}, produced {_short(expected)}")
    return part


def fetch_partition(
    context: SequenceContext, connection: Connection, topic: str, start: int, isolation: int = UNCOMMITTED, *,
    most_bytes: int = FETCH_BYTES, epoch: int = -1,
) -> Any:  # fmt: skip
    """Fetch; return the partition of the response."""
    part = FetchPartition(fetch_offset=start, partition_max_bytes=most_bytes, current_leader_epoch=epoch)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, isolation_level=isolation, topics=(FetchTopic(topic=topic, partitions=(part,)),)
    )
    version = context.version(FetchRequest, at_least=EPOCH_SINCE if epoch >= 0 else 0)
    answer = context.call(connection, request, version)
    context.accepted(answer.error_code)
    if not answer.responses:
        raise SequenceAbandoned("the response lacks the partition")
    return answer.responses[0].partitions[0]


def fetch_records(
    context: SequenceContext,
    connection: Connection,
    topic: str,
    start: int,
    isolation: int = UNCOMMITTED,
    most_bytes: int = FETCH_BYTES,
) -> tuple[Any, list[tuple[int, Row]]]:
    """Return the partition and its data records from `start` on, without aborted ones if `isolation` is COMMITTED."""
    part = fetch_partition(context, connection, topic, start, isolation, most_bytes=most_bytes)
    context.accepted(part.error_code)
    aborted = {transaction.producer_id: transaction.first_offset for transaction in part.aborted_transactions or ()}
    try:
        found = list(_records(part.records or b"", start, aborted if isolation == COMMITTED else {}))
    except DecodeError as error:
        context.violates(f"fetched records do not decode: {error}")
    last = max((offset for offset, _ in found), default=-1)
    context.require(last < part.high_watermark, f"a record at {last}, the high watermark is {part.high_watermark}")
    return part, found


def _records(data: bytes, start: int, aborted: dict[int, int]) -> Any:
    """Decode as a consumer does: skip aborted transactions up to their abort marker."""
    skipping: set[int] = set()
    for position, header in batch_headers(data):
        first = aborted.get(header.producer_id)
        if first is not None and first <= header.base_offset and header.is_transactional:
            skipping.add(header.producer_id)
        if header.is_control:
            skipping.discard(header.producer_id)
            aborted.pop(header.producer_id, None)
        elif header.producer_id not in skipping or not header.is_transactional:
            for record in decode_records(data, position)[1]:
                if record.offset >= start:
                    yield record.offset, (record.timestamp, record.key, record.value, record.headers)


def _short(rows: Any) -> str:
    return ", ".join(f"{offset}:{(row[2] or b'').hex()[:12]}" for offset, row in rows[:6]) or "nothing"
