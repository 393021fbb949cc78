"""Messages to bytes and back, without headers and frames (those are in `framing`)."""

import struct
from typing import TypeVar

from highwater.reference.wire.errors import BufferUnderflowError, EncodeError, InvalidStringError, TrailingBytesError
from highwater.reference.wire.readers import struct_reader
from highwater.reference.wire.schema import message_layout
from highwater.reference.wire.writers import struct_writer

M = TypeVar("M")


def encode(message: object, version: int) -> bytes:
    """Write a message. Raises `EncodeError` for what this version cannot say."""
    out = bytearray()
    encode_into(out, message, version)
    return bytes(out)


def encode_into(out: bytearray, message: object, version: int) -> None:
    """Append a message to what is there; on `EncodeError` there may be half of it."""
    write = struct_writer(message_layout(type(message), version))
    try:
        write(out, message)
    except (struct.error, UnicodeEncodeError) as error:
        raise EncodeError(f"{type(message).__name__} version {version}: {error}") from error


def decode(cls: type[M], version: int, data: bytes, position: int = 0) -> M:
    """Read a message that takes all bytes from the position on. Raises `DecodeError` and nothing else for bad bytes."""
    message, end = decode_prefix(cls, version, data, position)
    if end != len(data):
        raise TrailingBytesError(f"{len(data) - end} bytes behind {cls.__name__} version {version}")
    return message


def decode_prefix(cls: type[M], version: int, data: bytes, position: int = 0) -> tuple[M, int]:
    """Like `decode`, but returns the position behind the message and leaves what follows alone."""
    read = struct_reader(message_layout(cls, version))
    try:
        return read(data, position)
    except (IndexError, struct.error) as error:
        raise BufferUnderflowError(f"{cls.__name__} version {version} ends early") from error
    except UnicodeDecodeError as error:
        raise InvalidStringError(f"{cls.__name__} version {version}: {error}") from error
