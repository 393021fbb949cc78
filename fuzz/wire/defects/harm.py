"""The effects of defects on the process (crash, memory), and a decoder of requests for them."""

import os
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

from highwater.reference.wire.codec import decode_prefix
from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.framing import RequestHeader, decode_request_header
from highwater.reference.wire.registry import APIS

ABORTED: Final = 134
ALLOCATION_MAX: Final = 400 * 1024 * 1024
"""In bytes: enough to be detected, but harmless for the machine."""
RequestDefect = Callable[[bytes], bytes | None]
"""A defect in a request: takes the received frame, returns the frame that the broker handles.

None: the request is never answered.
"""


def crash(why: str) -> NoReturn:
    """End the process, as a panic, a failed assertion or a failed allocation does."""
    print(f"panic: {why}", file=sys.stderr, flush=True)
    os._exit(ABORTED)


def allocate(size: int) -> None:
    """Allocate `size` bytes (at most ALLOCATION_MAX), write to them, and free them."""
    block = b"\x01" * min(max(size, 0), ALLOCATION_MAX)
    del block


def key_of(frame: bytes) -> int:
    return int.from_bytes(frame[:2], "big", signed=True)


def read(frame: bytes, key: int) -> tuple[RequestHeader, Any] | None:
    """Decode a valid request with this API key; None for any other frame."""
    if key_of(frame) != key:
        return None
    try:
        header, start = decode_request_header(frame)
        return header, decode_prefix(APIS[header.api_key].request, header.api_version, frame, start)[0]
    except DecodeError:
        return None
