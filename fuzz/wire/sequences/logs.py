"""A partition and its producers: offsets ascend without gaps, what is fetched is what was produced, nothing twice."""

from dataclasses import dataclass, field
from typing import Any, Final

from highwater.fuzz.wire.generate.batches import FIELDS, sealed
from highwater.fuzz.wire.sequences.context import EARLIEST, Abandoned, Stage
from highwater.reference.client.connection import Connection
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import DecodeError, ErrorCode
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from highwater.reference.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from highwater.reference.wire.messages.transactions import InitProducerIdRequest
from highwater.reference.wire.records import batch_headers, build_batch, decode_records

STAMP: Final = 1_700_000_000_000
FETCH_BYTES: Final = 1 << 20
STEPS: Final = (3, 9)
LOOKS_MAX: Final = 200
UNCOMMITTED, COMMITTED = 0, 1
EPOCH_SINCE: Final = 9  # version of Fetch
OUT_OF_SEQUENCE: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)  # fmt: skip


Row = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Timestamp, key, value and headers of a record."""


@dataclass
class Log:
    """The model of one partition from `base` on: `rows` by offset, control records left out."""

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
    """Of a producer id, or of none."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = 0
    transactional_id: str | None = None
    last: tuple[bytes, int] | None = None

    def batch(self, stage: Stage, values: list[bytes], sequence: int | None = None) -> bytes:
        numbered = self.sequence if sequence is None else sequence
        return build_batch(
            rows_of(values),
            compression=stage.chance.choice((Compression.NONE, Compression.NONE, Compression.GZIP, Compression.LZ4)),
            producer_id=self.producer_id, producer_epoch=self.epoch,
            base_sequence=numbered if self.producer_id >= 0 else -1, transactional=self.transactional_id is not None,
        )  # fmt: skip


def rows_of(values: list[bytes]) -> list[Row]:
    """What a record is made of follows from its value, so that more of it draws no more."""
    return [
        (STAMP + n, value[:2] if len(value) > 1 else None, value, (("h", value[:1]),) if len(value) == 8 else ())
        for n, value in enumerate(values)
    ]


def play(stage: Stage) -> None:
    """Produce, produce again what was produced, skip a number, fetch, ask for the ends."""
    line = stage.line()
    topic = stage.topic(line)
    log, producer = Log(topic, stage.end(line, topic)), Producer()
    if stage.speaks(22) and stage.chance.random() < 0.6:
        producer = idempotent(stage, line)
    steps = [_spoiled, _produce, _produce, _fetch, _ends, *((_again, _skip) if producer.producer_id >= 0 else ())]
    for _ in stage.steps(*STEPS):
        stage.chance.choice(steps)(stage, line, log, producer)
    check(stage, line, log, log.base)


def idempotent(stage: Stage, line: Connection, transactional_id: str | None = None) -> Producer:
    """A new life of the name, if it has one: what an earlier one has left open is aborted meanwhile."""
    asked = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    version = stage.version(InitProducerIdRequest)
    for _ in range(LOOKS_MAX):
        answer = stage.call(line, asked, version)
        if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            break
    stage.accepted(answer.error_code)
    stage.require(answer.producer_id >= 0, f"producer id {answer.producer_id}")
    return Producer(answer.producer_id, answer.producer_epoch, transactional_id=transactional_id)


def some_values(stage: Stage) -> list[bytes]:
    return [stage.chance.randbytes(stage.chance.choice((1, 8, 60))) for _ in range(stage.chance.choice((1, 2, 3)))]


def append(stage: Stage, line: Connection, log: Log, producer: Producer) -> list[int]:
    """Produce some values, which must come to stand at the end. Their offsets."""
    values = some_values(stage)
    batch = producer.batch(stage, values)
    part = produced(stage, line, log.topic, batch, producer.transactional_id)
    stage.accepted(part.error_code)
    stage.require(part.base_offset == log.end, f"base offset {part.base_offset} where the log ends at {log.end}")
    log.append(part.base_offset, values)
    producer.sequence, producer.last = producer.sequence + len(values), (batch, part.base_offset)
    return [part.base_offset + n for n in range(len(values))]


def produced(stage: Stage, line: Connection, topic: str, batch: bytes, transactional_id: str | None = None) -> Any:
    data = TopicProduceData(name=topic, partition_data=(PartitionProduceData(records=batch),))
    answer = stage.call(
        line, ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=1_000, topic_data=(data,))
    )
    stage.require(bool(answer.responses and answer.responses[0].partition_responses), "no answer for the partition")
    return answer.responses[0].partition_responses[0]


def _produce(stage: Stage, line: Connection, log: Log, producer: Producer) -> None:
    append(stage, line, log, producer)


def _again(stage: Stage, line: Connection, log: Log, producer: Producer) -> None:
    """The last batch once more: answered from memory, or refused, and never appended (IDM-2)."""
    if producer.last is None:
        return
    batch, offset = producer.last
    part = produced(stage, line, log.topic, batch)
    if stage.accepted(part.error_code, *OUT_OF_SEQUENCE):
        stage.require(
            part.base_offset in (offset, -1), f"a batch at {offset} sent again is said to be at {part.base_offset}"
        )
    _ends(stage, line, log, producer)


def _skip(stage: Stage, line: Connection, log: Log, producer: Producer) -> None:
    """A number that is not the next."""
    batch = producer.batch(stage, [b"skipped"], producer.sequence + stage.chance.choice((1, 5, 1 << 20)))
    if producer.sequence:
        part = produced(stage, line, log.topic, batch)
        stage.require(not stage.accepted(part.error_code, *OUT_OF_SEQUENCE), "a batch out of sequence was taken")


def _spoiled(stage: Stage, line: Connection, log: Log, producer: Producer) -> None:
    """A batch that contradicts itself, or fails its checksum: refused, and not appended (PRD-7, KAFKA-6554)."""
    spoiled = bytearray(Producer().batch(stage, some_values(stage)))
    place, width = FIELDS[name := stage.chance.choice(("last_offset_delta", "crc"))]
    wrong = (int.from_bytes(spoiled[place : place + width], "big") + 1) % (1 << 8 * width)
    spoiled[place : place + width] = wrong.to_bytes(width, "big")
    part = produced(stage, line, log.topic, bytes(spoiled) if name == "crc" else sealed(spoiled))
    stage.require(part.error_code != 0, f"a batch with a wrong {name} is taken")
    _ends(stage, line, log, producer)


def _ends(stage: Stage, line: Connection, log: Log, producer: Producer) -> None:
    end = stage.end(line, log.topic)
    stage.require(end == log.end, f"end offset {end}, {log.end} were appended")
    first = stage.listed(line, log.topic, EARLIEST)
    stage.require(first.error_code != 0 or 0 <= first.offset <= end, f"start offset {first.offset}, end offset {end}")


def _fetch(stage: Stage, line: Connection, log: Log, producer: Producer) -> None:
    check(stage, line, log, stage.chance.randint(log.base, log.end))


def check(stage: Stage, line: Connection, log: Log, start: int, isolation: int = UNCOMMITTED) -> Any:
    """What stands from an offset on is what the model has there."""
    part, found = fetched(stage, line, log.topic, start, isolation)
    stage.require(part.high_watermark <= log.end, f"high watermark {part.high_watermark}, {log.end} were appended")
    expected = [(offset, row) for offset, row in sorted(log.rows.items()) if offset >= start]
    stage.require(found == expected, f"fetched {_short(found)} from {start}, produced {_short(expected)}")
    return part


def ask_fetch(
    stage: Stage, line: Connection, topic: str, start: int, isolation: int = UNCOMMITTED, *,
    most_bytes: int = FETCH_BYTES, epoch: int = -1,
) -> Any:  # fmt: skip
    """The partition's answer."""
    part = FetchPartition(fetch_offset=start, partition_max_bytes=most_bytes, current_leader_epoch=epoch)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, isolation_level=isolation, topics=(FetchTopic(topic=topic, partitions=(part,)),)
    )
    version = stage.version(FetchRequest, at_least=EPOCH_SINCE if epoch >= 0 else 0)
    answer = stage.call(line, request, version)
    stage.accepted(answer.error_code)
    if not answer.responses:
        raise Abandoned("an answer without the partition")
    return answer.responses[0].partitions[0]


def fetched(
    stage: Stage, line: Connection, topic: str, start: int, isolation: int = UNCOMMITTED, most_bytes: int = FETCH_BYTES
) -> tuple[Any, list[tuple[int, Row]]]:
    """The partition's answer and its data records from the offset on, aborted ones left out for a committed reader."""
    part = ask_fetch(stage, line, topic, start, isolation, most_bytes=most_bytes)
    stage.accepted(part.error_code)
    aborted = {each.producer_id: each.first_offset for each in part.aborted_transactions or ()}
    try:
        found = list(_records(part.records or b"", start, aborted if isolation == COMMITTED else {}))
    except DecodeError as error:
        stage.violates(f"fetched records do not decode: {error}")
    last = max((offset for offset, _ in found), default=-1)
    stage.require(last < part.high_watermark, f"a record at {last}, the high watermark is {part.high_watermark}")
    return part, found


def _records(data: bytes, start: int, aborted: dict[int, int]) -> Any:
    """As a consumer reads: an abort marker ends what it left out."""
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
