"""Log entries of every format: record batches (magic 2) and messages (magic 0 and 1).

All formats begin with offset and size and have the magic at the same position, so one log may contain all of them.
"""

from collections.abc import Iterator
from typing import Final

from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import BufferUnderflowError, DecodeError, EncodeError, InvalidBatchError
from highwater.reference.wire.message_sets import (
    MIN_SIZE,
    build_message_set,
    decode_message,
    message_crc_valid,
    read_message_header,
)
from highwater.reference.wire.records import (
    DEFAULT_MAX_BYTES,
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    Record,
    build_batch,
    crc_valid,
    decode_records,
    read_batch_header,
)

MAGIC_AT: Final = 16
MIN_ENTRY: Final = MIN_SIZE[0]


def read_entry_header(data: bytes | bytearray, position: int = 0) -> BatchHeader:
    """Decode the header of a batch or message. Raises `DecodeError` for anything else."""
    if len(data) - position <= MAGIC_AT:
        raise BufferUnderflowError(f"{len(data) - position} bytes are too few for a log entry")
    read = read_batch_header if data[position + MAGIC_AT] == MAGIC else read_message_header
    return read(data, position)


def entry_crc_valid(data: bytes, position: int, header: BatchHeader) -> bool:
    return (crc_valid if header.magic == MAGIC else message_crc_valid)(data, position, header)


def entries(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of every complete entry; a truncated last entry is skipped."""
    position = 0
    while len(data) - position >= MIN_ENTRY:
        needed = HEADER_SIZE if data[position + MAGIC_AT] == MAGIC else MIN_SIZE.get(data[position + MAGIC_AT], 0)
        if len(data) - position < needed:
            return
        header = read_entry_header(data, position)
        end = position + header.size
        if end > len(data):
            return
        yield position, header
        position = end


def decode_entry(
    data: bytes, position: int = 0, max_bytes: int = DEFAULT_MAX_BYTES
) -> tuple[BatchHeader, list[Record]]:
    """Decode header and records of one entry, decompressed to at most `max_bytes`. Raises `DecodeError`."""
    if len(data) - position > MAGIC_AT and data[position + MAGIC_AT] != MAGIC:
        return decode_message(data, position, max_bytes)
    return decode_records(data, position, max_bytes)


def up_convert(message_set: bytes, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes:
    """Convert a message set to one record batch with the same codec. Raises `DecodeError`."""
    records: list[Record] = []
    codec = Compression.NONE
    end = 0
    for position, header in entries(message_set):
        if header.magic == MAGIC:
            raise InvalidBatchError("a message set must not contain a record batch")
        if not message_crc_valid(message_set, position, header):
            raise MessageCrcError(f"message at byte {position} fails its CRC")
        _, found = decode_message(message_set, position, max_bytes)
        max_bytes -= sum(len(record.value or b"") for record in found)
        records += found
        codec = codec or header.compression
        end = position + header.size
    if not records or end != len(message_set):
        raise BufferUnderflowError(f"{len(message_set)} bytes are not a complete message set")
    return build_batch([(r.timestamp, r.key, r.value, ()) for r in records], compression=codec)


class MessageCrcError(DecodeError):
    """A message whose CRC does not match."""


def down_convert(data: bytes, magic: int) -> bytes:
    """Convert complete entries to an older format for old clients (KIP-98); the offsets do not change.

    Transaction markers and record headers are dropped. Raises `EncodeError` for zstd, `DecodeError` for invalid data.
    """
    out = bytearray()
    for position, header in entries(data):
        if header.magic <= magic:
            out += data[position : position + header.size]
        elif not header.is_control:
            if header.compression is Compression.ZSTD:
                raise EncodeError("zstd needs a newer client (KIP-110)")
            _, records = decode_entry(data, position)
            if records:
                out += build_message_set(records, magic, header.compression, header.timestamp_type)
    return bytes(out)
