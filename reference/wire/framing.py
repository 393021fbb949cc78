"""Encode and decode frames and headers.

A frame is an int32 size and that many bytes: a header and a body. A request header has version 2 (with tags) for a
flexible request and 1 otherwise, a response header 1 or 0. There are two exceptions: ControlledShutdown version 0 has
request header 0, without a client id; and every ApiVersions response has header 0, because the client must decode it
before it knows the broker's versions (KIP-511). The client id has an int16 length even in header 2.
"""

import struct
from dataclasses import dataclass
from typing import Any, Final

from highwater.reference.wire.codec import decode, encode_into
from highwater.reference.wire.errors import (
    BufferUnderflowError,
    EncodeError,
    FrameSizeError,
    InvalidLengthError,
    InvalidStringError,
)
from highwater.reference.wire.readers import read_tags
from highwater.reference.wire.registry import Api, api_of, api_of_key
from highwater.reference.wire.schema import MAX_STRING
from highwater.reference.wire.writers import write_tags

API_VERSIONS: Final = 18
CONTROLLED_SHUTDOWN: Final = 7

_SIZE: Final = struct.Struct(">i")
_CORRELATION_ID: Final = struct.Struct(">i")
_REQUEST_START: Final = struct.Struct(">hhi")
_CLIENT_ID_LENGTH: Final = struct.Struct(">h")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeader:
    """A request header; `tags` are (number, bytes), not decoded, because no header tag is defined."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None
    tags: tuple[tuple[int, bytes], ...] = ()


def request_header_version(api: Api, version: int) -> int:
    if api.key == CONTROLLED_SHUTDOWN and version == 0:
        return 0
    return 2 if api.is_flexible(version) else 1


def response_header_version(api: Api, version: int) -> int:
    return int(api.key != API_VERSIONS and api.is_flexible(version))


def encode_request(message: object, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Return the frame of a request, including its size."""
    api = api_of(type(message))
    header = RequestHeader(api_key=api.key, api_version=version, correlation_id=correlation_id, client_id=client_id)
    out = bytearray(_SIZE.size)
    out += encode_request_header(header)
    return _finish(out, message, version)


def encode_response(message: object, version: int, correlation_id: int) -> bytes:
    """Return the frame of a response, including its size."""
    out = bytearray(_SIZE.size)
    out += _CORRELATION_ID.pack(correlation_id)
    if response_header_version(api_of(type(message)), version):
        out.append(0)
    return _finish(out, message, version)


def _finish(out: bytearray, message: object, version: int) -> bytes:
    encode_into(out, message, version)
    _SIZE.pack_into(out, 0, len(out) - _SIZE.size)
    return bytes(out)


def encode_request_header(header: RequestHeader) -> bytes:
    """Encode a request header, in the header version of its API and version."""
    header_version = request_header_version(api_of_key(header.api_key), header.api_version)
    out = bytearray(_REQUEST_START.pack(header.api_key, header.api_version, header.correlation_id))
    if header_version >= 1:
        _write_client_id(out, header.client_id)
    if header_version >= 2:
        write_tags(out, header.tags)
    return bytes(out)


def _write_client_id(out: bytearray, client_id: str | None) -> None:
    text = b"" if client_id is None else client_id.encode()
    if len(text) > MAX_STRING:
        raise EncodeError(f"a client id of {len(text)} bytes exceeds the maximum of {MAX_STRING}")
    out += _CLIENT_ID_LENGTH.pack(-1 if client_id is None else len(text))
    out += text


def decode_request(frame: bytes) -> tuple[RequestHeader, Any]:
    """Decode a request frame without its size. Raises `DecodeError`, also for an unknown key or version."""
    header, position = decode_request_header(frame)
    return header, decode(api_of_key(header.api_key).request, header.api_version, frame, position)


def decode_request_header(frame: bytes) -> tuple[RequestHeader, int]:
    """Decode a request header; return it and the position of the body.

    It also decodes unsupported newer versions, so that a broker can reject them by name. Raises `UnknownApiKeyError`
    for an unknown key, because its header version is unknown.
    """
    try:
        return _read_request_header(frame)
    except (IndexError, struct.error) as error:
        raise BufferUnderflowError(f"request header in a frame of {len(frame)} bytes ends early") from error


def _read_request_header(frame: bytes) -> tuple[RequestHeader, int]:
    key, version, correlation_id = _REQUEST_START.unpack_from(frame)
    header_version = request_header_version(api_of_key(key), version)
    position = _REQUEST_START.size
    client_id: str | None = None
    tags: tuple[tuple[int, bytes], ...] = ()
    if header_version >= 1:
        client_id, position = _read_client_id(frame, position)
    if header_version >= 2:
        tags, position = _read_header_tags(frame, position)
    header = RequestHeader(
        api_key=key, api_version=version, correlation_id=correlation_id, client_id=client_id, tags=tags
    )
    return header, position


def _read_client_id(frame: bytes, position: int) -> tuple[str | None, int]:
    (length,) = _CLIENT_ID_LENGTH.unpack_from(frame, position)
    position += _CLIENT_ID_LENGTH.size
    if length == -1:
        return None, position
    if not 0 <= length <= len(frame) - position:
        raise InvalidLengthError(f"client id of {length} bytes in a frame of {len(frame)}")
    try:
        return frame[position : position + length].decode(), position + length
    except UnicodeDecodeError as error:
        raise InvalidStringError(f"client id: {error}") from error


def _read_header_tags(frame: bytes, position: int) -> tuple[tuple[tuple[int, bytes], ...], int]:
    found, section_end = read_tags(frame, position)
    return tuple((number, frame[start:end]) for number, start, end in found), section_end


def decode_response(api: Api | type[Any], version: int, frame: bytes) -> tuple[int, Any]:
    """Decode a response frame without its size, for an API (or response class) and version. Raises `DecodeError`."""
    api = api if isinstance(api, Api) else api_of(api)
    correlation_id, position = decode_response_header(frame, response_header_version(api, version))
    return correlation_id, decode(api.response, version, frame, position)


def decode_response_header(frame: bytes, header_version: int) -> tuple[int, int]:
    """Return the correlation id and the position of the body; tags are skipped."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        position = _CORRELATION_ID.size
        if header_version >= 1:
            _, position = read_tags(frame, position)
    except (IndexError, struct.error) as error:
        raise BufferUnderflowError(f"response header in a frame of {len(frame)} bytes ends early") from error
    return correlation_id, position


class FrameReader:
    """Splits a stream into frames without their sizes; it does no I/O.

    A negative or too large size raises `FrameSizeError` when its four bytes have arrived. The stream cannot be used
    afterwards, because the start of the next frame is unknown. The error's `complete` has the frames before it.
    """

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self._buffer = bytearray()

    @property
    def buffered(self) -> int:
        """Return the number of buffered bytes of an incomplete frame."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes and return the complete frames; at most `max_size` + 4 bytes remain buffered."""
        buffer = self._buffer
        buffer += data
        frames: list[bytes] = []
        start = 0
        while (size := self._size_at(start, frames)) is not None and len(buffer) - start - _SIZE.size >= size:
            start += _SIZE.size
            frames.append(bytes(memoryview(buffer)[start : start + size]))
            start += size
        del buffer[:start]
        return frames

    def _size_at(self, start: int, complete: list[bytes]) -> int | None:
        if len(self._buffer) - start < _SIZE.size:
            return None
        size: int = _SIZE.unpack_from(self._buffer, start)[0]
        if not 0 <= size <= self.max_size:
            raise FrameSizeError(f"a frame of {size} bytes is not between 0 and {self.max_size}", complete)
        return size
