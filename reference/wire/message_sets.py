"""Message sets, magic 0 and 1 (Kafka 0.8 to 0.10): messages with offset and size, compressed by nesting.

A wrapper is a message whose value is a compressed message set. Its offset is that of the last inner message. The inner
offsets are absolute in magic 0 and relative in magic 1 (KIP-31). Magic 1 has timestamps (KIP-32). The CRC-32 covers
everything from the magic on, so that a broker can assign the offset without a new checksum.
"""

import struct
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from highwater.reference.wire.compression import (
    Compression,
    compress,
    decompress,
    fix_lz4_checksum,
    legacy_lz4_checksum,
)
from highwater.reference.wire.errors import BufferUnderflowError, EncodeError, InvalidBatchError
from highwater.reference.wire.records import COMPRESSION_BITS, LENGTH_END, BatchHeader, Record, TimestampType

CRC_END: Final = LENGTH_END + 4
NO_TIMESTAMP: Final = -1
MIN_SIZE: Final = {0: 26, 1: 34}
"""Size in bytes of a message with null key and value, including offset and size."""
_FIXED: Final = struct.Struct(">qiIbb")
_TIMESTAMP: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")


def read_message_header(data: bytes | bytearray, position: int = 0) -> BatchHeader:
    """Decode a message header as a batch header; for a wrapper it has only the last offset. Raises `DecodeError`."""
    if len(data) - position < MIN_SIZE[0]:
        raise BufferUnderflowError(f"{len(data) - position} bytes are too few for a message")
    offset, size, crc, magic, attributes = _FIXED.unpack_from(data, position)
    if magic not in MIN_SIZE or size + LENGTH_END < MIN_SIZE[magic]:
        raise InvalidBatchError(f"message at byte {position} has magic {magic} and size {size}")
    timestamp = NO_TIMESTAMP
    if magic:
        if len(data) - position < MIN_SIZE[magic]:
            raise BufferUnderflowError(f"{len(data) - position} bytes are too few for a message of magic {magic}")
        (timestamp,) = _TIMESTAMP.unpack_from(data, position + _FIXED.size)
    return BatchHeader(offset, size, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, 1)


def message_crc_valid(data: bytes | bytearray, position: int, header: BatchHeader) -> bool:
    return crc32(memoryview(data)[position + CRC_END : position + header.size]) == header.crc


def decode_message(data: bytes, position: int, max_bytes: int) -> tuple[BatchHeader, list[Record]]:
    """Decode the record of a message, or all records of a wrapper, at most `max_bytes`. Raises `DecodeError`."""
    header = read_message_header(data, position)
    if position + header.size > len(data):
        raise BufferUnderflowError(f"message at byte {position} ends at {position + header.size}, data at {len(data)}")
    key, value = _key_and_value(data, position, header)
    if header.compression is Compression.NONE:
        return header, [Record(header.base_offset, header.max_timestamp, key, value)]
    if value is None:
        raise InvalidBatchError(f"wrapper at byte {position} has no value")
    return header, _unwrap(header, _inflate(header, value, max_bytes))


def _inflate(header: BatchHeader, value: bytes, max_bytes: int) -> bytes:
    if header.compression is Compression.ZSTD:
        raise InvalidBatchError("a message set cannot use zstd (KIP-110)")
    if header.magic == 0 and header.compression is Compression.LZ4:
        value = fix_lz4_checksum(value)
    return decompress(header.compression, value, max_bytes)


def _unwrap(wrapper: BatchHeader, inner: bytes) -> list[Record]:
    found = []
    position = 0
    while position < len(inner):
        header = read_message_header(inner, position)
        if header.magic != wrapper.magic or header.attributes & COMPRESSION_BITS:
            raise InvalidBatchError("a message in a wrapper has another magic than the wrapper, or is a wrapper itself")
        if position + header.size > len(inner):
            raise BufferUnderflowError(f"message at byte {position} of a wrapper is truncated")
        if not message_crc_valid(inner, position, header):
            raise InvalidBatchError(f"message at byte {position} of a wrapper fails its CRC")
        found.append((header, *_key_and_value(inner, position, header)))
        position += header.size
    if not found:
        raise InvalidBatchError("a wrapper must contain at least one message")
    shift = wrapper.base_offset - found[-1][0].base_offset if wrapper.magic else 0
    append_time = wrapper.magic and wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME
    return [
        Record(header.base_offset + shift, wrapper.max_timestamp if append_time else header.max_timestamp, key, value)
        for header, key, value in found
    ]


def _key_and_value(data: bytes, position: int, header: BatchHeader) -> tuple[bytes | None, bytes | None]:
    end = position + header.size
    key, after = _read_bytes(data, position + MIN_SIZE[header.magic] - 2 * _LENGTH.size, end)
    value, after = _read_bytes(data, after, end)
    if after != end:
        raise InvalidBatchError(f"{end - after} bytes after the value of the message at byte {position}")
    return key, value


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    if position + _LENGTH.size > end:
        raise BufferUnderflowError(f"message ends at byte {end}, in the middle of a length")
    (length,) = _LENGTH.unpack_from(data, position)
    start = position + _LENGTH.size
    if length == -1:
        return None, start
    if not 0 <= length <= end - start:
        raise InvalidBatchError(f"{length} bytes at byte {start} of a message that ends at {end}")
    return data[start : start + length], start + length


def build_message_set(
    records: Sequence[Record],
    magic: int,
    compression: Compression = Compression.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """Encode records with their offsets, in one wrapper if compressed; record headers are dropped.

    Raises `EncodeError` for zstd, which these formats do not support.
    """
    if compression is Compression.ZSTD:
        raise EncodeError("a message set cannot use zstd (KIP-110)")
    time_bit = 8 * timestamp_type if magic else 0
    wrapped = compression is not Compression.NONE
    first = records[0].offset if wrapped and magic else 0
    inner = b"".join(
        _message(r.offset - first, magic, 0 if wrapped else time_bit, r.timestamp, r.key, r.value) for r in records
    )
    if not wrapped:
        return inner
    packed = compress(compression, inner)
    if magic == 0 and compression is Compression.LZ4:
        packed = legacy_lz4_checksum(packed)
    largest = max(record.timestamp for record in records)
    return _message(records[-1].offset, magic, compression | time_bit, largest, None, packed)


def _message(offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None) -> bytes:
    covered = bytes((magic, attributes)) + (_TIMESTAMP.pack(timestamp) if magic else b"")
    covered += _with_length(key) + _with_length(value)
    return struct.pack(">qiI", offset, 4 + len(covered), crc32(covered)) + covered


def _with_length(value: bytes | None) -> bytes:
    return _LENGTH.pack(-1) if value is None else _LENGTH.pack(len(value)) + value
