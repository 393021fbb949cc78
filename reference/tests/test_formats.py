"""Message sets of magic 0 and 1: round trips, conversion, and refusal of invalid ones."""

import struct
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.reference.wire.compression import (
    Compression,
    compress,
    decompress,
    fix_lz4_checksum,
    legacy_lz4_checksum,
)
from highwater.reference.wire.errors import CompressionError, DecodeError, EncodeError
from highwater.reference.wire.log_entries import (
    MessageCrcError,
    decode_entry,
    down_convert,
    entries,
    entry_crc_valid,
    up_convert,
)
from highwater.reference.wire.message_sets import build_message_set
from highwater.reference.wire.records import Record, TimestampType, build_batch, decode_records

OLD_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
RECORDS = [Record(7, 1_000, b"k", b"v" * 50), Record(9, 1_005, None, b"w"), Record(10, 1_002, b"gone", None)]


def decoded(data: bytes) -> list[Record]:
    return [record for position, _ in entries(data) for record in decode_entry(data, position)[1]]


def timeless(records: list[Record]) -> list[Record]:
    return [record._replace(timestamp=-1) for record in records]


some_records = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(0, 1 << 40),
        st.none() | st.binary(max_size=40),
        st.none() | st.binary(max_size=40),
    ),
    min_size=1,
    max_size=20,
)


@given(some_records, st.sampled_from([0, 1]), st.sampled_from(OLD_CODECS), st.integers(0, 1 << 40))
@settings(deadline=None)
def test_message_sets_round_trip(
    rows: list[tuple[int, int, bytes | None, bytes | None]], magic: int, codec: Compression, start: int
) -> None:
    records, offset = [], start
    for gap, timestamp, key, value in rows:
        offset += 1 + gap
        records.append(Record(offset, timestamp, key, value))
    data = build_message_set(records, magic, codec)
    assert decoded(data) == (records if magic else timeless(records))
    assert all(entry_crc_valid(data, position, header) for position, header in entries(data))
    assert [header.last_offset for _, header in entries(data)][-1] == offset


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_inner_offsets_are_absolute_in_magic_0_and_relative_in_magic_1(codec: Compression) -> None:
    """KIP-31: relative offsets let a broker assign offsets without recompressing."""
    if codec is Compression.NONE:
        return
    for magic, expected in ((0, [7, 9, 10]), (1, [0, 2, 3])):
        data = build_message_set(RECORDS, magic, codec)
        start = 18 + (8 if magic else 0) + 4 + 4
        packed = fix_lz4_checksum(data[start:]) if (magic, codec) == (0, Compression.LZ4) else data[start:]
        inner = decompress(codec, packed, 1 << 20)
        assert [header.base_offset for _, header in entries(inner)] == expected


def test_the_append_time_of_a_wrapper_applies_to_its_messages() -> None:
    data = build_message_set(RECORDS, 1, Compression.GZIP, TimestampType.LOG_APPEND_TIME)
    assert {record.timestamp for record in decoded(data)} == {1_005}


def test_lz4_of_magic_0_is_read_with_either_checksum() -> None:
    """KAFKA-3160: in magic 0, Java's header checksum also covered the magic of the frame."""
    frame = compress(Compression.LZ4, b"x" * 1000)
    broken = legacy_lz4_checksum(frame)
    assert broken != frame
    assert fix_lz4_checksum(broken) == fix_lz4_checksum(frame) == frame
    with pytest.raises(CompressionError, match="fails its checksum"):
        fix_lz4_checksum(frame[:6] + bytes((frame[6] ^ 0x55,)) + frame[7:])
    assert build_message_set(RECORDS, 0, Compression.LZ4).find(broken[:7]) > 0


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_up_and_down_conversion_keep_what_the_older_format_can_hold(codec: Compression, magic: int) -> None:
    batch = up_convert(build_message_set(RECORDS, magic, codec))
    header, records = decode_records(batch)
    assert header.compression is codec
    expected = RECORDS if magic else timeless(RECORDS)
    assert [record[1:] for record in records] == [record[1:] for record in expected]
    again = decoded(down_convert(batch, magic))
    assert [record[1:4] for record in again] == [record[1:4] for record in expected]
    assert [record.offset for record in again] == [0, 1, 2]


def test_down_conversion_leaves_out_markers_and_refuses_zstd() -> None:
    marker = build_batch([(1, b"\0\0\0\1", b"\0\0\0\0\0\0", ())], control=True, transactional=True, producer_id=1)
    assert down_convert(marker, 1) == b""
    with pytest.raises(EncodeError, match="KIP-110"):
        down_convert(build_batch([(1, b"k", b"v", ())], compression=Compression.ZSTD), 1)
    old = build_message_set(RECORDS, 0)
    assert down_convert(old, 1) == old, "messages of an older format are unchanged"


def message(magic: int, attributes: int, value: bytes) -> bytes:
    covered = struct.pack(">bb", magic, attributes) + (struct.pack(">q", 5) if magic else b"")
    covered += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", 3, len(covered) + 4, crc32(covered)) + covered


GOOD = build_message_set([Record(0, 5, b"k", b"v")], 1)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (message(1, 1, compress(Compression.GZIP, message(1, 1, compress(Compression.GZIP, GOOD)))), "wrapper itself"),
        (message(1, 1, compress(Compression.GZIP, build_message_set(RECORDS, 0))), "another magic"),
        (message(1, 1, compress(Compression.GZIP, GOOD[:-1])), "truncated"),
        (message(1, 1, compress(Compression.GZIP, GOOD[:-1] + b"!")), "CRC"),
        (message(1, 1, compress(Compression.GZIP, b"")), "at least one"),
        (message(1, 4, GOOD), "zstd"),
        (message(1, 7, GOOD), "unknown compression codec 7"),
        (message(1, 1, compress(Compression.GZIP, bytes(1 << 21))), "at most"),
    ],
)
def test_a_bad_wrapper_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        decode_entry(data, 0, 1 << 20)


@given(st.sampled_from([0, 1]), st.sampled_from(OLD_CODECS), st.data())
@settings(deadline=None, max_examples=200)
def test_damage_raises_only_decode_errors(magic: int, codec: Compression, draw: st.DataObject) -> None:
    data = bytearray(build_message_set(RECORDS[:1], magic, codec))
    data[draw.draw(st.integers(12, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
    with pytest.raises(DecodeError):
        up_convert(bytes(data))


def test_a_set_with_a_bad_checksum_is_refused() -> None:
    with pytest.raises(MessageCrcError, match="byte 0"):
        up_convert(GOOD[:-1] + b"!")
