"""Check the records of a batch without building them: a broker must not store what a reader cannot decode.

Apache Kafka does this in LogValidator and DefaultRecord.readFrom, before it appends.
"""

from typing import Final, NamedTuple

from highwater.reference.wire.compression import decompress
from highwater.reference.wire.errors import BufferUnderflowError, InvalidBatchError
from highwater.reference.wire.records import DEFAULT_MAX_BYTES, HEADER_SIZE, MIN_RECORD_SIZE, BatchHeader
from highwater.reference.wire.varint import ZIGZAG, read_varint, read_varlong

CONTINUED: Final = 0x80
MIN_INT64: Final = -(2**63)
MAX_INT64: Final = 2**63 - 1


class Scan(NamedTuple):
    """What a broker must know about the records of a batch: times in ms, and the indexes of records without key."""

    smallest_timestamp: int
    largest_timestamp: int
    keyless: tuple[int, ...]


def scan_records(batch: bytes, header: BatchHeader, max_bytes: int = DEFAULT_MAX_BYTES) -> Scan:
    """Check that a complete batch has exactly the records that its header counts, with offsets 0, 1, 2 and so on.

    Raises `DecodeError` for records that no reader could decode, and above `max_bytes` when decompressed.  Header keys
    need not be UTF-8, as in Apache Kafka.
    """
    payload = decompress(header.compression, batch[HEADER_SIZE : header.size], max_bytes)
    if not 0 < header.record_count * MIN_RECORD_SIZE <= len(payload):
        raise InvalidBatchError(f"{header.record_count} records do not fit into {len(payload)} bytes")
    try:
        return _scan(payload, header)
    except IndexError as error:
        raise BufferUnderflowError("the records of the batch end early") from error


def _scan(data: bytes, header: BatchHeader) -> Scan:
    """Varints of one and two bytes are read in place: this runs for every record that is produced."""
    position = 0
    deltas: list[int] = []
    keyless: list[int] = []
    for index in range(header.record_count):
        raw = data[position]
        if raw < CONTINUED:
            end = position + 1 + ZIGZAG[raw]
            position += 2  # the length, and the attributes of the record
        elif (high := data[position + 1]) < CONTINUED:
            end = position + 2 + ZIGZAG[raw + (high - 1 << 7)]
            position += 3
        else:
            length, position = read_varint(data, position)
            end = position + length
            position += 1
        raw = data[position]
        if raw < CONTINUED:
            timestamp_delta = ZIGZAG[raw]
            position += 1
        else:
            timestamp_delta, position = read_varlong(data, position)
        deltas.append(timestamp_delta)
        offset_delta, position = read_varint(data, position)
        if offset_delta != index:
            raise InvalidBatchError(f"record {index} has the offset delta {offset_delta}")
        if data[position] & 1:  # negative: null, maybe in a longer form than needed
            keyless.append(index)
        position = _skip_bytes(data, position)
        raw = data[position]
        if raw < CONTINUED:
            position = _skip_bytes(data, position)
        elif not raw & 1 and (high := data[position + 1]) < CONTINUED:
            position += 2 + (raw + (high - 1 << 7) >> 1)
        else:
            position = _skip_bytes(data, position)
        position = _skip_headers(data, position) if data[position] else position + 1
        if position != end:
            raise InvalidBatchError(f"record {index} ends at byte {position}, by its length at {end}")
    if position != len(data):
        raise InvalidBatchError(f"the last record ends at byte {position} of {len(data)}")
    smallest, largest = header.base_timestamp + min(deltas), header.base_timestamp + max(deltas)
    if smallest < MIN_INT64 or largest > MAX_INT64:
        raise InvalidBatchError(f"timestamps from {smallest} to {largest} do not fit into 64 bits")
    return Scan(smallest, largest, tuple(keyless))


def _skip_bytes(data: bytes, position: int) -> int:
    """Return the position after a key or value, which may be null; it may be past the end of the data."""
    raw = data[position]
    if raw < CONTINUED and not raw & 1:
        return position + 1 + (raw >> 1)
    length, start = read_varint(data, position)
    if length < -1:
        raise InvalidBatchError(f"{length} bytes at byte {start}")
    return start + max(length, 0)


def _skip_headers(data: bytes, position: int) -> int:
    count, position = read_varint(data, position)
    if not 0 <= 2 * count <= len(data) - position:
        raise InvalidBatchError(f"{count} headers do not fit into the remaining {len(data) - position} bytes")
    for _ in range(count):
        if data[position] & 1:
            raise InvalidBatchError("a record header has no key")
        position = _skip_bytes(data, _skip_bytes(data, position))
    return position
