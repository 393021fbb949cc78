"""Defects of a decoder: lengths, counts, varints, tags and nulls that it trusts or does not expect."""

from typing import Final

import construct

from highwater.fuzz.wire.defects.harm import allocate, crash, key_of
from highwater.reference.wire.constructs import Site, struct_of, whole
from highwater.reference.wire.errors import DecodeError, InvalidVarintError
from highwater.reference.wire.framing import decode_request, decode_request_header
from highwater.reference.wire.readers import read_uvarint
from highwater.reference.wire.registry import api_of_key
from highwater.reference.wire.schema import message_layout

JOIN_GROUP: Final = 11
ELEMENT_BYTES: Final = 16
MANY, HUGE = 1 << 16, 1 << 24


def collection_length(frame: bytes) -> bytes:
    kind, value = _failing_field(frame)
    if kind == "count" and value > MANY:
        allocate(value * ELEMENT_BYTES)
    return frame


def join_group_collection(frame: bytes) -> bytes:
    return collection_length(frame) if key_of(frame) == JOIN_GROUP else frame


def string_length(frame: bytes) -> bytes:
    kind, value = _failing_field(frame)
    if kind == "length" and value > HUGE:
        crash(f"std::bad_alloc of {value} bytes at decoder.cc:210")
    return frame


def negative_length(frame: bytes) -> bytes:
    kind, value = _failing_field(frame)
    if kind in {"length", "count"} and value < -1:
        crash("makeslice: len out of range at reader.go:77")
    return frame


def tag_section(frame: bytes) -> bytes:
    kind, _ = _failing_field(frame)
    if kind == "tag":
        crash("slice bounds out of range at real_flexible_decoder.go:41")
    return frame


def long_varint(frame: bytes) -> bytes | None:
    """Read a varint without a length limit, so that the request never completes."""
    try:
        decode_request(frame)
    except InvalidVarintError:
        return None
    except DecodeError:
        pass
    return frame


def tag_count(frame: bytes) -> bytes | None:
    """Loop over the announced number of tags without checking the remaining bytes."""
    kind, value = _failing_field(frame)
    return None if kind == "tag" and value > HUGE else frame


def null_text(frame: bytes) -> bytes:
    kind, value = _failing_field(frame)
    if kind == "length" and value == -1:
        crash("nil pointer dereference at decode_string.go:31")
    return frame


def _failing_field(frame: bytes) -> tuple[str, int]:
    """Return kind and value of the field at which strict decoding fails; ("", 0) for a valid request."""
    failing = failing_site(frame)
    return (failing[0].kind, failing[1]) if failing is not None else ("", 0)


def failing_site(frame: bytes) -> tuple[Site, int, bool] | None:
    """Return the site at which strict decoding fails, its value, and whether the version is flexible; None if valid."""
    found: list[Site] = []
    try:
        header, start = decode_request_header(frame)
        api = api_of_key(header.api_key)
        layout = message_layout(api.request, header.api_version)
        whole(struct_of(layout), frame[start:], "request", sites=found, base=start)
    except (DecodeError, construct.ConstructError):
        if found:
            flexible = api.is_flexible(header.api_version)
            return found[-1], _value(frame, found[-1], flexible=flexible), flexible
    return None


def _value(body: bytes, site: Site, *, flexible: bool) -> int:
    if flexible and site.kind in {"length", "count", "tag"}:
        return read_uvarint(body, site.start)[0] - (site.kind != "tag")
    return int.from_bytes(body[site.start : site.end], "big", signed=True)
