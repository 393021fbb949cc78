"""What defects do to the process, and how they read what they are sent."""

import os
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

from reference.wire.codec import decode_prefix
from reference.wire.errors import DecodeError
from reference.wire.framing import RequestHeader, decode_request_header
from reference.wire.registry import APIS

ABORTED: Final = 134
HELD_MAX: Final = 400 * 1024 * 1024
"""Enough to be seen, and no danger for the machine."""
Take = Callable[[bytes], bytes | None]
"""A defect in how a request is taken: of the frame that came, the one that the broker goes on with.

None: the request is never answered.
"""


def die(why: str) -> NoReturn:
    """As a process ends that panics, asserts or cannot allocate."""
    print(f"panic: {why}", file=sys.stderr, flush=True)
    os._exit(ABORTED)


def hold(size: int) -> None:
    """Take memory, and write to it, for a moment."""
    taken = b"\x01" * min(max(size, 0), HELD_MAX)
    del taken


def key_of(frame: bytes) -> int:
    return int.from_bytes(frame[:2], "big", signed=True)


def read(frame: bytes, key: int) -> tuple[RequestHeader, Any] | None:
    """A sound request of that key."""
    if key_of(frame) != key:
        return None
    try:
        header, start = decode_request_header(frame)
        return header, decode_prefix(APIS[header.api_key].request, header.api_version, frame, start)[0]
    except DecodeError:
        return None
