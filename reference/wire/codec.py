"""Encode and decode messages, without headers and frames (those are in `framing`)."""

import struct
from typing import TypeVar

from highwater.reference.wire.errors import BufferUnderflowError, EncodeError, InvalidStringError, TrailingBytesError
from highwater.reference.wire.readers import struct_reader
from highwater.reference.wire.schema import message_layout
from highwater.reference.wire.writers import struct_writer

M = TypeVar("M")


def encode(message: object, version: int) -> bytes:
    """Encode a message. Raises `EncodeError` for a value that this version cannot represent."""
    out = bytearray()
    encode_into(out, message, version)
    return bytes(out)


def encode_into(out: bytearray, message: object, version: int) -> None:
    """Append an encoded message; after an `EncodeError`, `out` may contain a part of it."""
    write = struct_writer(message_layout(type(message), version))
    try:
        write(out, message)
    except (struct.error, UnicodeEncodeError) as error:
        raise EncodeError(f"{type(message).__name__} version {version}: {error}") from error


def decode(cls: type[M], version: int, data: bytes, position: int = 0) -> M:
    """Decode a message that uses all bytes from the position on. Raises `DecodeError` and nothing else."""
    message, end = decode_prefix(cls, version, data, position)
    if end != len(data):
        raise TrailingBytesError(f"{len(data) - end} bytes after {cls.__name__} version {version}")
    return message


def decode_prefix(cls: type[M], version: int, data: bytes, position: int = 0) -> tuple[M, int]:
    """Decode a message; return it and the position after it, and ignore the bytes that follow."""
    read = struct_reader(message_layout(cls, version))
    try:
        return read(data, position)
    except (IndexError, struct.error) as error:
        raise BufferUnderflowError(f"{cls.__name__} version {version} ends early") from error
    except UnicodeDecodeError as error:
        raise InvalidStringError(f"{cls.__name__} version {version}: {error}") from error
