"""Batches that no broker should store: each has a right CRC and one thing that a reader could not decode or believe.

The first error code is ours; Apache Kafka 4.3.1 answers one of those listed.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.records import (
    CONTROL_BIT,
    CRC_START,
    HEADER_SIZE,
    LENGTH_END,
    build_batch,
)

ATTRIBUTES_AT: Final = 21
LAST_OFFSET_DELTA_AT: Final = 23
RECORD_COUNT_AT: Final = 57


class InvalidBatch(NamedTuple):
    """A batch, and the error codes with which a broker may refuse it."""

    name: str
    batch: bytes
    errors: tuple[ErrorCode, ...]


def sealed(batch: bytes | bytearray) -> bytes:
    """Return the batch with the length and the CRC of its bytes."""
    out = bytearray(batch)
    out[LENGTH_END - 4 : LENGTH_END] = (len(out) - LENGTH_END).to_bytes(4, "big")
    out[CRC_START - 4 : CRC_START] = crc32c(bytes(out[CRC_START:])).to_bytes(4, "big")
    return bytes(out)


def with_bytes(batch: bytes, position: int, new: bytes) -> bytes:
    """Return the batch with other bytes at a position, and their CRC."""
    return sealed(batch[:position] + new + batch[position + len(new) :])


def with_payload(batch: bytes, payload: bytes) -> bytes:
    """Return the batch with other bytes instead of its records."""
    return sealed(batch[:HEADER_SIZE] + payload)


def invalid_batches(timestamp_ms: int, codecs: Sequence[Compression] = tuple(Compression)) -> list[InvalidBatch]:
    """Return one batch of each kind; all are otherwise two records with this timestamp."""
    good = build_batch([(timestamp_ms, b"k", b"v" * 20, ()), (timestamp_ms, b"k", b"w" * 20, ())])
    records = good[HEADER_SIZE:]
    half = len(records) // 2
    invalid = (ErrorCode.INVALID_RECORD,)
    unexpected = ErrorCode.UNKNOWN_SERVER_ERROR
    return [
        InvalidBatch("records of 0xFF", with_payload(good, b"\xff" * len(records)), (*invalid, unexpected)),
        InvalidBatch("first record too long", with_bytes(good, HEADER_SIZE, bytes((records[0] + 2,))), invalid),
        InvalidBatch("first record too short", with_bytes(good, HEADER_SIZE, bytes((records[0] - 2,))), invalid),
        InvalidBatch("a record of negative length", with_bytes(good, HEADER_SIZE, b"\x0d"), invalid),
        InvalidBatch("a key longer than the record", with_bytes(good, HEADER_SIZE + 4, b"\x7e"), invalid),
        InvalidBatch("a header count of 40", with_bytes(good, HEADER_SIZE + half - 1, b"\x50"), invalid),
        InvalidBatch("fewer records than counted", _counting(good, 5), invalid),
        InvalidBatch("more records than counted", _counting(good, 1), invalid),
        InvalidBatch("the second record missing", with_payload(good, records[:half]), invalid),
        InvalidBatch("bytes after the last record", with_payload(good, records + b"\x00\x00"), invalid),
        InvalidBatch("no record at all", _counting(with_payload(good, b""), 0), invalid),
        InvalidBatch("a count of 2^31 - 1", _counting(good, 0x7FFFFFFF), invalid),
        InvalidBatch("last offset delta 3 of two records", with_bytes(good, LAST_OFFSET_DELTA_AT, _int(3)), invalid),
        InvalidBatch("a control batch", _with_attribute(good, CONTROL_BIT), invalid),
        InvalidBatch("base offset 7", _int(0) + _int(7) + good[8:], invalid),
        *(
            InvalidBatch(f"{codec.name.lower()} that is not", _with_attribute(good, codec), (*invalid, unexpected))
            for codec in codecs
            if codec
        ),
        InvalidBatch(
            "an unknown codec", _with_attribute(good, 6), (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, unexpected)
        ),
    ]


def _int(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _counting(batch: bytes, count: int) -> bytes:
    """Return the batch with a record count, and the last offset delta that belongs to it."""
    return with_bytes(with_bytes(batch, RECORD_COUNT_AT, _int(count)), LAST_OFFSET_DELTA_AT, _int(max(count - 1, 0)))


def _with_attribute(batch: bytes, bits: int) -> bytes:
    return with_bytes(batch, ATTRIBUTES_AT, bits.to_bytes(2, "big"))
