"""The wire protocol of Kafka 0.7: framed requests, and replies as in "Reads" (kafka-0.7-design).

A request is size, type, body. A reply is length (without itself), error code, messages. One request can contain several
produces or fetches; a produce has no reply.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from highwater.reference.wire.errors import BufferUnderflowError, DecodeError, InvalidLengthError, TrailingBytesError

PRODUCE, FETCH, MULTI_FETCH, MULTI_PRODUCE, OFFSETS = range(5)
NO_ERROR, UNKNOWN, OFFSET_OUT_OF_RANGE, INVALID_MESSAGE, WRONG_PARTITION, INVALID_FETCH_SIZE = 0, -1, 1, 2, 3, 4

_TYPE: Final = struct.Struct(">h")
_LENGTH: Final = struct.Struct(">i")
_FETCH: Final = struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class Produce:
    topic: str
    partition: int
    messages: bytes


@dataclass(frozen=True, slots=True)
class Fetch:
    topic: str
    partition: int
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class OffsetsBefore:
    topic: str
    partition: int
    time_ms: int
    count: int


Single = Produce | Fetch | OffsetsBefore
Request = Single | tuple[Produce, ...] | tuple[Fetch, ...]


def encode_request(request: Request) -> bytes:
    """Encode a framed request; several produces or fetches become one multi-request."""
    if isinstance(request, tuple):
        kind = MULTI_PRODUCE if isinstance(request[0], Produce) else MULTI_FETCH
        body = struct.pack(">h", len(request)) + b"".join(_body(single) for single in request)
    else:
        kind = {Produce: PRODUCE, Fetch: FETCH, OffsetsBefore: OFFSETS}[type(request)]
        body = _body(request)
    return _LENGTH.pack(_TYPE.size + len(body)) + _TYPE.pack(kind) + body


def _body(request: Single) -> bytes:
    topic = request.topic.encode()
    head = struct.pack(">h", len(topic)) + topic + _LENGTH.pack(request.partition)
    if isinstance(request, Produce):
        return head + _LENGTH.pack(len(request.messages)) + request.messages
    if isinstance(request, Fetch):
        return head + _FETCH.pack(request.offset, request.max_bytes)
    return head + _FETCH.pack(request.time_ms, request.count)


def decode_request(frame: bytes) -> Request:
    """Decode a request without its size prefix. Raises `DecodeError`."""
    reader = _Reader(frame)
    kind = reader.number(_TYPE)
    read: dict[int, Callable[[], Request]] = {
        PRODUCE: reader.produce,
        FETCH: reader.fetch,
        OFFSETS: reader.offsets,
        MULTI_PRODUCE: lambda: tuple(reader.produce() for _ in range(reader.count())),
        MULTI_FETCH: lambda: tuple(reader.fetch() for _ in range(reader.count())),
    }
    if kind not in read:
        raise DecodeError(f"unknown request type {kind}")
    request = read[kind]()
    reader.end()
    return request


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise BufferUnderflowError(f"{size} bytes at byte {self._position} of {len(self._data)}")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def number(self, kind: struct.Struct) -> int:
        value: int = kind.unpack(self._take(kind.size))[0]
        return value

    def count(self) -> int:
        count = self.number(_TYPE)
        if count < 1:
            raise InvalidLengthError(f"a multi-request has {count} requests")
        return count

    def _head(self) -> tuple[str, int]:
        try:
            return self._take(self.number(_TYPE)).decode(), self.number(_LENGTH)
        except UnicodeDecodeError as error:
            raise DecodeError(f"a topic that is not UTF-8: {error}") from error

    def produce(self) -> Produce:
        return Produce(*self._head(), self._take(self.number(_LENGTH)))

    def fetch(self) -> Fetch:
        return Fetch(*self._head(), *_FETCH.unpack(self._take(_FETCH.size)))

    def offsets(self) -> OffsetsBefore:
        return OffsetsBefore(*self._head(), *_FETCH.unpack(self._take(_FETCH.size)))

    def end(self) -> None:
        if self._position != len(self._data):
            raise TrailingBytesError(f"{len(self._data) - self._position} bytes after the request")


def message_set_send(error: int, messages: bytes = b"") -> bytes:
    """Encode the result of one fetch."""
    return _LENGTH.pack(_TYPE.size + len(messages)) + _TYPE.pack(error) + messages


def multi_message_set_send(sends: list[bytes]) -> bytes:
    """Encode the results of a multi-fetch; every result is framed."""
    return message_set_send(NO_ERROR, b"".join(sends))


def decode_send(data: bytes) -> tuple[int, bytes]:
    """Return error code and messages of one framed result. Raises `DecodeError`."""
    reader = _Reader(data)
    length = reader.number(_LENGTH)
    if length < _TYPE.size or length != len(data) - _LENGTH.size:
        raise InvalidLengthError(f"a result of {length} bytes in {len(data)}")
    return reader.number(_TYPE), data[_LENGTH.size + _TYPE.size :]


def decode_multi_send(data: bytes) -> list[tuple[int, bytes]]:
    """Decode the results of a multi-fetch. Raises `DecodeError`."""
    _, inner = decode_send(data)
    found, position = [], 0
    while position < len(inner):
        (length,) = _LENGTH.unpack(inner[position : position + 4].ljust(4, b"\xff"))
        end = position + _LENGTH.size + length
        if not position < end <= len(inner):
            raise InvalidLengthError(f"a result of {length} bytes at byte {position}")
        found.append(decode_send(inner[position:end]))
        position = end
    return found


def encode_offsets(offsets: list[int]) -> bytes:
    return message_set_send(NO_ERROR, struct.pack(f">i{len(offsets)}q", len(offsets), *offsets))


def decode_offsets(messages: bytes) -> list[int]:
    (count,) = _LENGTH.unpack_from(messages)
    return list(struct.unpack_from(f">{count}q", messages, _LENGTH.size))
