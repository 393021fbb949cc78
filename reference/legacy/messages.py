"""Messages of Kafka 0.7 (kafka-0.7-design, "Message Format", "On-disk format of a message").

A message is magic, attributes (magic 1 only), CRC-32 of the payload, payload; in a set its length precedes it. If the
attributes name a codec, the payload is a compressed message set. Sets can be nested, here up to MAX_NESTING levels.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from highwater.reference.wire.compression import Compression, compress, decompress
from highwater.reference.wire.errors import BufferUnderflowError, CompressionError, DecodeError, InvalidBatchError

MAX_NESTING: Final = 4
MAX_INFLATED_BYTES: Final = 64 * 1024 * 1024
LENGTH: Final = struct.Struct(">i")
HEAD: Final = {0: struct.Struct(">bI"), 1: struct.Struct(">bbI")}
CODECS: Final = (Compression.NONE, Compression.GZIP, Compression.SNAPPY)


class Message(NamedTuple):
    payload: bytes
    codec: Compression = Compression.NONE
    magic: int = 1

    def encode(self) -> bytes:
        """Encode the message as a log entry, with its length first."""
        crc = crc32(self.payload)
        head = HEAD[0].pack(0, crc) if self.magic == 0 else HEAD[1].pack(1, self.codec, crc)
        return LENGTH.pack(len(head) + len(self.payload)) + head + self.payload


class Entry(NamedTuple):
    """A message and the position after it, which is the next offset to fetch."""

    message: Message
    next_position: int


def message_set(payloads: Sequence[bytes], codec: Compression = Compression.NONE, magic: int = 1) -> bytes:
    """Encode payloads as a message set, or as one compressed message."""
    plain = b"".join(Message(payload, magic=magic).encode() for payload in payloads)
    return plain if codec is Compression.NONE else Message(compress(codec, plain), codec).encode()


def read_message(data: bytes, position: int) -> Entry | None:
    """Decode the message at a position; None if it is truncated. Raises `DecodeError` for invalid data."""
    if position + LENGTH.size > len(data):
        return None
    (length,) = LENGTH.unpack_from(data, position)
    start, end = position + LENGTH.size, position + LENGTH.size + length
    if length < HEAD[0].size:
        raise InvalidBatchError(f"a message of {length} bytes at byte {position}")
    if end > len(data):
        return None
    head = HEAD.get(data[start])
    if head is None or length < head.size:
        raise InvalidBatchError(f"a message of magic {data[start]} at byte {position}")
    magic, *attributes, crc = head.unpack_from(data, start)
    payload = data[start + head.size : end]
    if crc32(payload) != crc:
        raise InvalidBatchError(f"the message at byte {position} fails its CRC")
    codec = attributes[0] & 3 if attributes else 0
    if codec >= len(CODECS):
        raise InvalidBatchError(f"the message at byte {position} has codec {codec}")
    return Entry(Message(payload, CODECS[codec], magic), end)


def entries(data: bytes) -> Iterator[Entry]:
    """Yield the complete messages, without decompression; skip a truncated last one. Raises `DecodeError`."""
    position = 0
    while (found := read_message(data, position)) is not None:
        yield found
        position = found.next_position


def payloads(data: bytes, depth: int = 0, max_bytes: int = MAX_INFLATED_BYTES) -> Iterator[Entry]:
    """Yield the uncompressed messages. Those of one compressed set have its next position: it is consumed as a whole.

    Raises `DecodeError`, also for more than MAX_NESTING levels or `max_bytes` of decompressed data.
    """
    if depth > MAX_NESTING:
        raise CompressionError(f"message sets nested more than {MAX_NESTING} deep")
    for message, next_position in entries(data):
        if message.codec is Compression.NONE:
            yield Entry(message, next_position)
            continue
        inner = decompress(message.codec, message.payload, max_bytes)
        if not whole(inner):
            raise BufferUnderflowError("a compressed message set ends in the middle of a message")
        for found in payloads(inner, depth + 1, max_bytes):
            yield Entry(found.message, next_position)


def whole(data: bytes) -> bool:
    """Return whether a message set ends with a complete message."""
    end = 0
    for entry in entries(data):
        end = entry.next_position
    return end == len(data)


def valid_bytes(data: bytes) -> int:
    """Return the length of the prefix that has only complete messages with a valid CRC."""
    end = 0
    try:
        for entry in entries(data):
            end = entry.next_position
    except DecodeError:
        pass
    return end
