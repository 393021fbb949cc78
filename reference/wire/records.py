"""Record batches, format 2 (KIP-98): a header of 61 bytes, then records, compressed as a whole.

The CRC-32C covers everything from the attributes on, so that a broker can assign offset and leader epoch without a new
checksum. The batch length counts the bytes after it. Lengths and deltas of a record are varints.
"""

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from crc32c import crc32c

from highwater.reference.wire.compression import Compression, compress, decompress
from highwater.reference.wire.errors import BufferUnderflowError, EncodeError, InvalidBatchError
from highwater.reference.wire.schema import frozen
from highwater.reference.wire.varint import read_varint, read_varlong, write_varint

MAGIC: Final = 2
HEADER_SIZE: Final = 61
LENGTH_END: Final = 12
"""Size of base offset and batch length, which the batch length does not include."""
CRC_START: Final = 21
MIN_RECORD_SIZE: Final = 7
"""Seven numbers of at least one byte: length, attributes, two deltas, and the lengths of key, value and headers."""
NULL: Final = 1
"""-1 as a zigzag varint; every negative number is odd."""
NOT_UTF_8: Final = "surrogateescape"
"""How header keys are decoded and encoded: they are bytes for a broker, which stores what it was given."""
DEFAULT_MAX_BYTES: Final = 64 * 1024 * 1024

COMPRESSION_BITS: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_BEFORE_ATTRIBUTES: Final = struct.Struct(">qiibI")
_FROM_ATTRIBUTES: Final = struct.Struct(">hiqqqhii")
_OFFSET: Final = struct.Struct(">q")
_LEADER_EPOCH: Final = struct.Struct(">i")
_CHECKSUM: Final = struct.Struct(">I")

Headers = Sequence[tuple[str, bytes | None]]
NewRecord = tuple[int, bytes | None, bytes | None, Headers]
"""Timestamp in milliseconds, key, value, headers; the offset comes from the batch."""


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


# Each by its code: calling the enumeration takes a microsecond, and every batch is decoded many times.
_COMPRESSIONS: Final = tuple(Compression)
_TIMESTAMP_TYPES: Final = tuple(TimestampType)


class Record(NamedTuple):
    """One decoded record; a tuple, because a batch may have a thousand records."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


_new_record: Final = tuple.__new__
"""A third faster than `Record(...)`, which checks the arguments."""


@frozen
class BatchHeader:
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def size(self) -> int:
        """Return the size of the complete batch in bytes."""
        return self.batch_length + LENGTH_END

    @property
    def compression(self) -> Compression:
        """Return the codec. Raises `InvalidBatchError` for an unknown one."""
        code = self.attributes & COMPRESSION_BITS
        if code >= len(_COMPRESSIONS):
            raise InvalidBatchError(f"unknown compression codec {code}")
        return _COMPRESSIONS[code]

    @property
    def timestamp_type(self) -> TimestampType:
        return _TIMESTAMP_TYPES[bool(self.attributes & LOG_APPEND_TIME_BIT)]

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Return the time after which the tombstones of a cleaned batch may be removed (KIP-534), or None.

        It is stored in the field of the base timestamp.
        """
        return self.base_timestamp if self.magic == MAGIC and self.attributes & DELETE_HORIZON_BIT else None


def read_batch_header(data: bytes | bytearray, position: int = 0) -> BatchHeader:
    """Decode only the header. Raises `DecodeError` for another magic, or a length shorter than the header.

    The batch itself may be truncated: compare `position + header.size` with the length of the data.
    """
    if len(data) - position < HEADER_SIZE:
        raise BufferUnderflowError(f"{len(data) - position} bytes are too few for a batch header")
    (
        base_offset, batch_length, leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp,
        max_timestamp, producer_id, producer_epoch, base_sequence, record_count,
    ) = _HEADER.unpack_from(data, position)  # fmt: skip
    if magic != MAGIC:
        raise InvalidBatchError(f"batch at byte {position} has magic {magic}, not {MAGIC}")
    if batch_length < HEADER_SIZE - LENGTH_END:
        raise InvalidBatchError(f"batch at byte {position} has length {batch_length}")
    return BatchHeader(
        base_offset, batch_length, leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp,
        max_timestamp, producer_id, producer_epoch, base_sequence, record_count,
    )  # fmt: skip


def batch_headers(data: bytes | bytearray) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of every complete batch; skip a truncated last one, which Fetch may return."""
    position = 0
    while len(data) - position >= HEADER_SIZE:
        header = read_batch_header(data, position)
        if position + header.size > len(data):
            return
        yield position, header
        position += header.size


def crc_valid(data: bytes, position: int, header: BatchHeader) -> bool:
    return _crc(data, position, header.size) == header.crc


def _crc(data: bytes | bytearray, position: int, size: int) -> int:
    checksum: int = crc32c(memoryview(data)[position + CRC_START : position + size])
    return checksum


def stamp(batch: bytearray, position: int, base_offset: int, partition_leader_epoch: int) -> None:
    """Set base offset and leader epoch of a batch, as a leader does on append; the checksum does not cover them."""
    _OFFSET.pack_into(batch, position, base_offset)
    _LEADER_EPOCH.pack_into(batch, position + LENGTH_END, partition_leader_epoch)


def with_append_time(batch: bytes, timestamp_ms: int) -> bytes:
    """Return the batch with the broker's timestamp (LogAppendTime, KIP-32) and a new checksum."""
    return _with_largest_timestamp(batch, LOG_APPEND_TIME_BIT, timestamp_ms)


def with_create_time(batch: bytes, largest_timestamp: int) -> bytes:
    """Return the batch with the largest timestamp of its records in the header, and a new checksum."""
    return _with_largest_timestamp(batch, 0, largest_timestamp)


def _with_largest_timestamp(batch: bytes, timestamp_type: int, largest_timestamp: int) -> bytes:
    header = read_batch_header(batch)
    stamped = bytearray(batch)
    _FROM_ATTRIBUTES.pack_into(
        stamped, CRC_START, header.attributes & ~LOG_APPEND_TIME_BIT | timestamp_type, header.last_offset_delta,
        header.base_timestamp, largest_timestamp, header.producer_id, header.producer_epoch, header.base_sequence,
        header.record_count,
    )  # fmt: skip
    _CHECKSUM.pack_into(stamped, CRC_START - _CHECKSUM.size, _crc(stamped, 0, len(stamped)))
    return bytes(stamped)


def decode_records(
    data: bytes, position: int = 0, max_bytes: int = DEFAULT_MAX_BYTES
) -> tuple[BatchHeader, list[Record]]:
    """Decode header and records of one batch, decompressed to at most `max_bytes`.

    Raises `DecodeError`. It does not check the CRC, because a broker checks it only on append.
    """
    header = read_batch_header(data, position)
    end = position + header.size
    if end > len(data):
        raise BufferUnderflowError(f"batch at byte {position} ends at {end}, the data at {len(data)}")
    if end == position + HEADER_SIZE and not header.record_count:
        return header, []  # compaction has removed all records
    payload = decompress(header.compression, data[position + HEADER_SIZE : end], max_bytes)
    if not 0 <= header.record_count * MIN_RECORD_SIZE <= len(payload):
        raise InvalidBatchError(f"{header.record_count} records do not fit into {len(payload)} bytes")
    try:
        return header, _read_records(header, payload)
    except IndexError as error:
        raise BufferUnderflowError(f"records of the batch at byte {position} end early") from error


def _read_records(header: BatchHeader, data: bytes) -> list[Record]:
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    may_wrap = header.delete_horizon_ms is not None
    records: list[Record] = []
    position = 0
    for _ in range(header.record_count):
        length, position = read_varint(data, position)
        end = position + length
        timestamp_delta, position = read_varlong(data, position + 1)
        offset_delta, position = read_varint(data, position)
        key, position = _read_bytes(data, position)
        value, position = _read_bytes(data, position)
        headers, position = _read_headers(data, position) if data[position] else ((), position + 1)
        if position != end:
            raise InvalidBatchError(f"record of {length} bytes ends at byte {position}, not {end}")
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        if may_wrap:
            timestamp = _as_int64(timestamp)
        records.append(_new_record(Record, (base_offset + offset_delta, timestamp, key, value, headers)))
    if position != len(data):
        raise InvalidBatchError(f"{len(data) - position} bytes after the last record")
    return records


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    raw = data[position]
    if raw == NULL:
        return None, position + 1
    if raw < 0x80:
        length, start = raw >> 1, position + 1
    else:
        length, start = read_varint(data, position)
        if length == -1:  # null in a longer form than needed, which ByteUtils.readVarint accepts
            return None, start
    end = start + length
    if end > len(data) or raw & 1:
        raise InvalidBatchError(f"{length} bytes at byte {start} of {len(data)}")
    return data[start:end], end


def _read_headers(data: bytes, position: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = read_varint(data, position)
    if not 0 <= 2 * count <= len(data) - position:
        raise InvalidBatchError(f"{count} headers do not fit into the remaining {len(data) - position} bytes")
    headers = []
    for _ in range(count):
        key, position = _read_bytes(data, position)
        if key is None:
            raise InvalidBatchError("a record header has no key")
        value, position = _read_bytes(data, position)
        headers.append((key.decode(errors=NOT_UTF_8), value))
    return tuple(headers), position


def build_batch(
    records: Sequence[NewRecord],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    partition_leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """Encode a batch with consecutive offsets. Raises `EncodeError` if there are no records."""
    if not records:
        raise EncodeError("a batch must have at least one record")
    base_timestamp = records[0][0]
    payload = bytearray()
    for delta, record in enumerate(records):
        _write_record(payload, delta, record, base_timestamp)
    attributes = compression | LOG_APPEND_TIME_BIT * timestamp_type
    attributes |= TRANSACTIONAL_BIT * transactional | CONTROL_BIT * control
    covered = _FROM_ATTRIBUTES.pack(
        attributes,
        len(records) - 1,
        base_timestamp,
        max(record[0] for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    ) + compress(compression, bytes(payload))
    return _with_checksum(base_offset, partition_leader_epoch, covered)


def rebuild_batch(header: BatchHeader, records: Sequence[Record], delete_horizon_ms: int | None) -> bytes:
    """Encode a cleaned batch: the remaining records (or none) with the offsets, producer and epoch of `header`.

    A message set becomes a batch. With a delete horizon, timestamps are relative to the horizon (KIP-534).
    """
    first, last = header.base_offset, header.last_offset
    if header.magic != MAGIC:
        first = min(record.offset for record in records)
    base_timestamp = header.base_timestamp if delete_horizon_ms is None else delete_horizon_ms
    payload = bytearray()
    for record in records:
        _write_record(payload, record.offset - first, record[1:], base_timestamp)
    attributes = header.attributes | (0 if delete_horizon_ms is None else DELETE_HORIZON_BIT)
    append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    largest = max((record.timestamp for record in records), default=header.max_timestamp)
    covered = _FROM_ATTRIBUTES.pack(
        attributes, last - first, base_timestamp, header.max_timestamp if append_time else largest,
        header.producer_id, header.producer_epoch, header.base_sequence, len(records),
    ) + (compress(header.compression, bytes(payload)) if records else b"")  # fmt: skip
    return _with_checksum(first, header.partition_leader_epoch, covered)


def recompressed(batch: bytes, compression: Compression, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes:
    """Return the batch compressed with another codec. Raises `DecodeError`, also above `max_bytes` of records."""
    header = read_batch_header(batch)
    payload = decompress(header.compression, batch[HEADER_SIZE : header.size], max_bytes)
    covered = _FROM_ATTRIBUTES.pack(
        header.attributes & ~COMPRESSION_BITS | compression, header.last_offset_delta, header.base_timestamp,
        header.max_timestamp, header.producer_id, header.producer_epoch, header.base_sequence, header.record_count,
    )  # fmt: skip
    return _with_checksum(header.base_offset, header.partition_leader_epoch, covered + compress(compression, payload))


def _with_checksum(base_offset: int, partition_leader_epoch: int, covered: bytes) -> bytes:
    batch_length = CRC_START - LENGTH_END + len(covered)
    return _BEFORE_ATTRIBUTES.pack(base_offset, batch_length, partition_leader_epoch, MAGIC, crc32c(covered)) + covered


def _write_record(out: bytearray, offset_delta: int, record: NewRecord, base_timestamp: int) -> None:
    timestamp, key, value, headers = record
    body = bytearray(1)  # the attributes byte; no record attribute is defined
    write_varint(body, _as_int64(timestamp - base_timestamp))
    write_varint(body, offset_delta)
    _write_bytes(body, key)
    _write_bytes(body, value)
    write_varint(body, len(headers))
    for name, content in headers:
        _write_bytes(body, name.encode(errors=NOT_UTF_8))
        _write_bytes(body, content)
    write_varint(out, len(body))
    out += body


def _as_int64(value: int) -> int:
    """Wrap a sum of timestamps as Java does: one long ago and a delete horizon may be further apart than 64 bits."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        write_varint(out, -1)
    else:
        write_varint(out, len(value))
        out += value
