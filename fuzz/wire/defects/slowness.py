"""Defects that grow or block the process for certain requests: leaks, and handlers that stall the whole broker."""

import time
from typing import Final

from highwater.fuzz.wire.defects.harm import key_of, read
from highwater.fuzz.wire.defects.lengths import HUGE, failing_site
from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.framing import decode_request

FETCH, METADATA, FIND_COORDINATOR, HEARTBEAT, DESCRIBE_GROUPS, DESCRIBE_CONFIGS = 1, 3, 10, 12, 15, 32
LARGE, MEDIUM, SMALL, TINY = 1 << 20, 100 << 10, 40 << 10, 1 << 10
LONG_NAME: Final = 30_000
STALL_S, SHORT_STALL_S = 3.0, 2.0
_kept: list[bytes] = []


def _keep(size: int) -> None:
    _kept.append(b"\x01" * size)


def metadata_kept(frame: bytes) -> bytes:
    if key_of(frame) == METADATA:
        _keep(LARGE)
    return frame


def refused_kept(frame: bytes) -> bytes:
    """Keep the buffer of every request that does not decode."""
    try:
        decode_request(frame)
    except DecodeError:
        _keep(MEDIUM)
    return frame


def heartbeat_kept(frame: bytes) -> bytes:
    if read(frame, HEARTBEAT) is not None:
        _keep(SMALL)
    return frame


def group_names_kept(frame: bytes) -> bytes:
    """Keep an entry for every group that is described, known or not."""
    request = read(frame, DESCRIBE_GROUPS)
    for _ in request[1].groups if request is not None else ():
        _keep(SMALL)
    return frame


def fetch_kept(frame: bytes) -> bytes:
    if read(frame, FETCH) is not None:
        _keep(TINY)
    return frame


def configs_kept(frame: bytes) -> bytes:
    if read(frame, DESCRIBE_CONFIGS) is not None:
        _keep(TINY)
    return frame


def coordinator_sleeps(frame: bytes) -> bytes:
    """Sleep on the thread that serves all connections, for an unknown type of key."""
    request = read(frame, FIND_COORDINATOR)
    if request is not None and request[1].key_type > 1:
        time.sleep(STALL_S)
    return frame


def long_names_slow(frame: bytes) -> bytes:
    """Match a long name with a pattern that needs quadratic time."""
    if len(frame) > LONG_NAME:
        time.sleep(SHORT_STALL_S)
    return frame


def tags_counted(frame: bytes) -> bytes:
    """Count to the announced number of tags, without giving other connections a turn."""
    failing = failing_site(frame)
    if failing is not None and failing[0].kind == "tag" and failing[1] > HUGE:
        end = time.monotonic() + STALL_S
        while time.monotonic() < end:
            pass
    return frame
