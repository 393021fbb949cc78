"""Defects of a lenient broker: it accepts what it must refuse, by repairing the request before it is handled."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from highwater.fuzz.wire.defects.harm import read
from highwater.fuzz.wire.defects.lengths import failing_site
from highwater.reference.wire.constructs import Site
from highwater.reference.wire.errors import DecodeError, TrailingBytesError
from highwater.reference.wire.framing import decode_request, encode_request

PRODUCE, FETCH, LIST_OFFSETS = 0, 1, 2
ACKS: Final = (-1, 0, 1)
REPAIRS_MAX, MISSING_MAX = 20, 40
Repair = Callable[[bytes, Site, int, bool], bytes | None]
"""Takes the frame, the site that fails, its value, and whether the version is flexible; None: not this defect."""


def _repaired(frame: bytes, repair: Repair) -> bytes:
    """Repair one value after the other until the request decodes, or fails for another reason."""
    for _ in range(REPAIRS_MAX):
        failing = failing_site(frame)
        changed = repair(frame, *failing) if failing is not None else None
        if changed is None:
            break
        frame = changed
    return frame


def negative_count(frame: bytes) -> bytes:
    """Read a negative count as that of an empty array."""

    def repair(frame: bytes, site: Site, value: int, flexible: bool) -> bytes | None:
        if site.kind != "count" or value >= 0:
            return None
        return _with(frame, site, b"\1" if flexible else bytes(4))

    return _repaired(frame, repair)


def null_string(frame: bytes) -> bytes:
    """Read null as the empty string in a field that must not be null."""

    def repair(frame: bytes, site: Site, value: int, flexible: bool) -> bytes | None:
        if site.kind != "length" or value != -1:
            return None
        return _with(frame, site, b"\1" if flexible else bytes(site.end - site.start))

    return _repaired(frame, repair)


def long_count(frame: bytes) -> bytes:
    """Read as many elements as there are, when a count announces more than the bytes can hold."""

    def repair(frame: bytes, site: Site, value: int, flexible: bool) -> bytes | None:
        return _with(frame, site, b"\1" if flexible else bytes(4)) if site.kind == "count" and value > 0 else None

    return _repaired(frame, repair)


def missing_zeros(frame: bytes) -> bytes:
    """Read zeros where the frame ends before a value, as kfake does."""
    for missing in range(MISSING_MAX):
        try:
            decode_request(frame + bytes(missing))
        except TrailingBytesError:
            return frame
        except DecodeError:
            continue
        return frame + bytes(missing)
    return frame


def any_acks(frame: bytes) -> bytes:
    """Handle acks outside of -1, 0 and 1 like 1."""
    request = read(frame, PRODUCE)
    if request is None or request[1].acks in ACKS:
        return frame
    header, body = request
    return encode_request(replace(body, acks=1), header.api_version, header.correlation_id, header.client_id)[4:]


def any_isolation(frame: bytes) -> bytes:
    """Read every unknown isolation level as read_uncommitted."""
    for key in (FETCH, LIST_OFFSETS):
        request = read(frame, key)
        if request is not None and request[1].isolation_level not in (0, 1):
            header, body = request
            changed = replace(body, isolation_level=0)
            return encode_request(changed, header.api_version, header.correlation_id, header.client_id)[4:]
    return frame


def _with(frame: bytes, site: Site, new: bytes) -> bytes:
    return frame[: site.start] + new + frame[site.end :]
