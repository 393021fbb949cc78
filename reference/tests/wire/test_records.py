"""Record batches: round trips, other libraries as oracles, and inconsistent fields."""

from dataclasses import fields
from itertools import islice
from typing import Any, Final

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from highwater.reference.tests.wire import described_batch
from highwater.reference.tests.wire.cases import FUZZ, QUICK
from highwater.reference.tests.wire.kafka_python_oracle import DefaultRecordBatch, DefaultRecordBatchBuilder
from highwater.reference.tests.wire.mutations import Mutation, mutations
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import (
    BufferUnderflowError,
    CompressionError,
    DecodeError,
    EncodeError,
    InvalidBatchError,
    InvalidVarintError,
)
from highwater.reference.wire.records import (
    HEADER_SIZE,
    BatchHeader,
    NewRecord,
    Record,
    TimestampType,
    batch_headers,
    build_batch,
    crc_valid,
    decode_records,
    read_batch_header,
    recompressed,
    stamp,
)
from highwater.reference.wire.varint import read_varint, read_varlong, write_varint

GOLDEN: Final = bytes.fromhex(
    "0000000000000000 00000049 ffffffff 02 bfd7518e 0000 00000001 0000018bcfe56800 0000018bcfe56801"
    "0000000000000007 0002 00000005 00000002"
    "20 00 00 00 02 6b 0a 76616c7565 02 02 68 02 76"
    "0c 00 02 02 01 01 00"
)
GOLDEN_RECORDS: Final[list[NewRecord]] = [
    (1_700_000_000_000, b"k", b"value", [("h", b"v")]),
    (1_700_000_000_001, None, None, []),
]

some_bytes = st.one_of(st.none(), st.binary(max_size=8), st.integers(0, 300).map(bytes))
new_records: st.SearchStrategy[NewRecord] = st.tuples(
    st.integers(0, 1 << 42), some_bytes, some_bytes, st.lists(st.tuples(st.text(max_size=4), some_bytes), max_size=2)
)
batches = st.lists(new_records, min_size=1, max_size=4)


def with_offsets(records: list[NewRecord], base_offset: int) -> list[Record]:
    return [
        Record(base_offset + delta, timestamp, key, value, tuple(headers))
        for delta, (timestamp, key, value, headers) in enumerate(records)
    ]


@pytest.mark.parametrize("compression", Compression)
@given(records=batches, base_offset=st.integers(0, 1 << 62), producer_id=st.integers(-1, 1 << 62))
@QUICK
def test_built_batches_decode_to_the_same_records(
    compression: Compression, records: list[NewRecord], base_offset: int, producer_id: int
) -> None:
    batch = build_batch(
        records,
        base_offset=base_offset,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=3,
        base_sequence=9,
        partition_leader_epoch=5,
    )
    header, read = decode_records(batch)
    assert read == with_offsets(records, base_offset)
    assert crc_valid(batch, 0, header)
    assert header.size == len(batch)
    assert header.compression is compression
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer_id, 3, 9)
    assert header.partition_leader_epoch == 5
    assert header.last_offset == base_offset + len(records) - 1 == header.next_offset - 1
    assert header.max_timestamp == max(record[0] for record in records)


def test_a_golden_batch() -> None:
    built = build_batch(GOLDEN_RECORDS, producer_id=7, producer_epoch=2, base_sequence=5)
    assert built.hex(" ") == GOLDEN.hex(" ")


@given(records=batches)
@QUICK
def test_batches_are_byte_identical_to_kafka_python(records: list[NewRecord]) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, False, 7, 2, 5, 1 << 20)
    for offset, (timestamp, key, value, headers) in enumerate(records):
        assert builder.append(offset, timestamp, key, value, headers) is not None
    theirs = bytes(builder.build())
    ours = bytearray(build_batch(records, producer_id=7, producer_epoch=2, base_sequence=5))
    stamp(ours, 0, 0, read_batch_header(theirs).partition_leader_epoch)
    assert bytes(ours) == theirs


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
@given(records=batches)
@QUICK
def test_kafka_python_decodes_our_batches(compression: Compression, records: list[NewRecord]) -> None:
    batch = DefaultRecordBatch(build_batch(records, base_offset=40, compression=compression))
    assert batch.validate_crc()
    read = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert read == with_offsets(records, 40)


@given(records=batches)
@QUICK
def test_the_construct_description_reads_and_writes_the_same(records: list[NewRecord]) -> None:
    batch = build_batch(records, base_offset=11)
    header, read = decode_records(batch)
    described = described_batch.BATCH.parse(batch)
    for field in fields(BatchHeader):
        assert described[field.name] == getattr(header, field.name)
    found = described_batch.records(described.payload)
    for ours, theirs in zip(read, found, strict=True):
        assert (theirs.offset_delta, theirs.key, theirs.value) == (ours.offset - 11, ours.key, ours.value)
        assert header.base_timestamp + theirs.timestamp_delta == ours.timestamp
        assert tuple((each.key.decode(), each.value) for each in theirs.headers) == ours.headers
    assert b"".join(described_batch.record(**each) for each in found) == described.payload
    assert described_batch.BATCH.build(described) == batch


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (False, False, TimestampType.CREATE_TIME)),
        ({"transactional": True}, (True, False, TimestampType.CREATE_TIME)),
        ({"transactional": True, "control": True}, (True, True, TimestampType.CREATE_TIME)),
        ({"timestamp_type": TimestampType.LOG_APPEND_TIME}, (False, False, TimestampType.LOG_APPEND_TIME)),
    ],
)
def test_attributes(options: dict[str, Any], expected: tuple[bool, bool, TimestampType]) -> None:
    header = read_batch_header(build_batch(GOLDEN_RECORDS, **options))
    assert (header.is_transactional, header.is_control, header.timestamp_type) == expected


def test_log_append_time_applies_to_every_record() -> None:
    batch = build_batch(GOLDEN_RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME)
    header, records = decode_records(batch)
    assert {record.timestamp for record in records} == {header.max_timestamp} == {1_700_000_000_001}


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(EncodeError):
        build_batch([])


def test_stamping_keeps_the_checksum_valid() -> None:
    batch = bytearray(b"before" + GOLDEN)
    stamp(batch, 6, 1234, 56)
    header = read_batch_header(bytes(batch), 6)
    assert (header.base_offset, header.partition_leader_epoch) == (1234, 56)
    assert crc_valid(bytes(batch), 6, header)
    assert batch[:6] == b"before"


def test_the_checksum_covers_everything_from_the_attributes_on() -> None:
    header = read_batch_header(GOLDEN)
    broken = [
        at
        for at in range(len(GOLDEN))
        if not crc_valid(GOLDEN[:at] + bytes([GOLDEN[at] ^ 1]) + GOLDEN[at + 1 :], 0, header)
    ]
    assert broken == list(range(21, len(GOLDEN)))


def test_the_header_iterator_skips_a_truncated_batch() -> None:
    second = build_batch([(1, None, bytes(20), [])], base_offset=2)
    both = GOLDEN + second
    for end in range(len(both) + 1):
        found = [(position, header.base_offset) for position, header in batch_headers(both[:end])]
        whole = [end >= len(GOLDEN), end == len(both)]
        assert found == [each for each, there in zip([(0, 0), (len(GOLDEN), 2)], whole, strict=True) if there]


def test_every_truncation_is_refused() -> None:
    for compression in Compression:
        batch = build_batch(GOLDEN_RECORDS, compression=compression)
        for end in range(len(batch)):
            with pytest.raises(BufferUnderflowError):
                decode_records(batch[:end])


def patched(position: int, replacement: str) -> bytes:
    new = bytes.fromhex(replacement)
    return GOLDEN[:position] + new + GOLDEN[position + len(new) :]


FIRST_RECORD: Final = HEADER_SIZE
LAST_RECORD: Final = len(GOLDEN) - 7


@pytest.mark.parametrize(
    ("position", "replacement", "error"),
    [
        (16, "01", InvalidBatchError),
        (8, "00000030", InvalidBatchError),
        (8, "80000000", InvalidBatchError),
        (8, "7fffffff", BufferUnderflowError),
        (22, "05", InvalidBatchError),
        (57, "ffffffff", InvalidBatchError),
        (57, "7fffffff", InvalidBatchError),
        (57, "00000001", InvalidBatchError),
        (57, "00000003", BufferUnderflowError),
        (FIRST_RECORD, "22", InvalidBatchError),
        (FIRST_RECORD + 4, "03", InvalidBatchError),
        (FIRST_RECORD + 4, "ff7f", InvalidBatchError),
        (FIRST_RECORD + 12, "01", InvalidBatchError),
        (FIRST_RECORD + 12, "7e", InvalidBatchError),
        (FIRST_RECORD + 13, "01", InvalidBatchError),
        (FIRST_RECORD, "ffffffffff7f", InvalidVarintError),
        (LAST_RECORD + 4, "80808080", BufferUnderflowError),
    ],
)
def test_inconsistent_fields_are_refused(position: int, replacement: str, error: type[DecodeError]) -> None:
    with pytest.raises(error):
        decode_records(patched(position, replacement))


@pytest.mark.parametrize("length", [-12, -13, 0, 48, -(1 << 31)])
def test_the_header_iterator_always_advances(length: int) -> None:
    """A batch of length 0 would make the iterator loop forever."""
    with pytest.raises(InvalidBatchError):
        list(islice(batch_headers(GOLDEN + patched(8, length.to_bytes(4, "big", signed=True).hex())), 5))


def test_a_header_without_key_is_refused() -> None:
    described = described_batch.BATCH.parse(GOLDEN)
    first, _ = described_batch.records(described.payload)
    first.headers[0].key = None
    payload = described_batch.record(**first)
    invalid = {**described, "payload": payload, "batch_length": 49 + len(payload), "record_count": 1}
    with pytest.raises(InvalidBatchError, match="has no key"):
        decode_records(described_batch.BATCH.build(invalid))


@given(records=batches, compression=st.sampled_from(Compression), changes=st.lists(mutations(), min_size=1, max_size=2))
@FUZZ
def test_mutated_batches_are_read_or_refused(
    records: list[NewRecord], compression: Compression, changes: list[Mutation]
) -> None:
    data = build_batch(records, compression=compression)
    for change in changes:
        data = change(data)
    try:
        list(batch_headers(data))
        header, read = decode_records(data, max_bytes=1 << 20)
    except DecodeError:
        return
    assert len(read) == header.record_count


@pytest.mark.parametrize("compression", Compression)
def test_decompression_is_bounded(compression: Compression) -> None:
    """rskafka #141: a small snappy batch declared a size of gigabytes."""
    batch = build_batch([(0, None, bytes(1 << 20), [])], compression=compression)
    assert len(decode_records(batch, max_bytes=2 << 20)[1]) == 1
    with pytest.raises(CompressionError):
        decode_records(batch, max_bytes=1 << 20)


def test_a_checksum_is_crc32c_and_not_crc32() -> None:
    assert read_batch_header(GOLDEN).crc == crc32c(GOLDEN[21:]) == 0xBFD7518E


@pytest.mark.parametrize("read", [read_varint, read_varlong])
@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (8191, "fe7f"), (-8192, "ff7f"),
     (8192, "808001"), ((1 << 31) - 1, "feffffff0f"), (-(1 << 31), "ffffffff0f")],
)  # fmt: skip
def test_varints(read: Any, value: int, encoded: str) -> None:
    out = bytearray()
    write_varint(out, value)
    assert out.hex() == encoded
    assert read(bytes(out), 0) == (value, len(out))


@given(value=st.integers(-(1 << 63), (1 << 63) - 1))
@FUZZ
def test_varlongs(value: int) -> None:
    out = bytearray()
    write_varint(out, value)
    assert read_varlong(bytes(out), 0) == (value, len(out))
    if not -(1 << 31) <= value < 1 << 31:
        with pytest.raises(InvalidVarintError):
            read_varint(bytes(out), 0)


def test_overlong_varints_are_refused() -> None:
    with pytest.raises(InvalidVarintError):
        read_varlong(b"\xff" * 100_000, 0)
    with pytest.raises(InvalidVarintError):
        read_varlong(b"\xff" * 9 + b"\x02", 0)


@pytest.mark.parametrize("after", list(Compression))
@pytest.mark.parametrize("before", list(Compression))
def test_recompression_keeps_the_records(before: Compression, after: Compression) -> None:
    written = build_batch(
        [(1000, b"k", b"v" * 100, (("h", b"1"),)), (2000, None, None, ())],
        compression=before, producer_id=7, producer_epoch=1, base_sequence=3, transactional=True,
    )  # fmt: skip
    stored = recompressed(written, after)
    header, records = decode_records(stored)
    assert header.compression is after
    assert records == decode_records(written)[1]
    assert (header.producer_id, header.base_sequence, header.is_transactional) == (7, 3, True)
    assert crc_valid(stored, 0, header)
