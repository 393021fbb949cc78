"""Defects of a decoder: lengths, counts, varints, tags and nulls that are trusted, or not foreseen."""

from typing import Final

import construct

from reference.drivers.defects.harm import die, hold, key_of
from reference.wire.described import struct_of
from reference.wire.errors import DecodeError, InvalidVarintError
from reference.wire.framing import decode_request, decode_request_header
from reference.wire.primitives import Site, whole
from reference.wire.readers import read_uvarint
from reference.wire.registry import api_of_key
from reference.wire.schema import message_layout

JOIN_GROUP: Final = 11
ELEMENT_BYTES: Final = 16
MANY, HUGE = 1 << 16, 1 << 24


def collection_length(frame: bytes) -> bytes:
    kind, value = _stumbling_block(frame)
    if kind == "count" and value > MANY:
        hold(value * ELEMENT_BYTES)
    return frame


def join_group_collection(frame: bytes) -> bytes:
    return collection_length(frame) if key_of(frame) == JOIN_GROUP else frame


def string_length(frame: bytes) -> bytes:
    kind, value = _stumbling_block(frame)
    if kind == "length" and value > HUGE:
        die(f"std::bad_alloc of {value} bytes at decoder.cc:210")
    return frame


def negative_length(frame: bytes) -> bytes:
    kind, value = _stumbling_block(frame)
    if kind in {"length", "count"} and value < -1:
        die("makeslice: len out of range at reader.go:77")
    return frame


def tag_section(frame: bytes) -> bytes:
    kind, _ = _stumbling_block(frame)
    if kind == "tag":
        die("slice bounds out of range at real_flexible_decoder.go:41")
    return frame


def long_varint(frame: bytes) -> bytes | None:
    """A loop that ends at the first byte without the top bit, however far that is."""
    try:
        decode_request(frame)
    except InvalidVarintError:
        return None
    except DecodeError:
        pass
    return frame


def tag_count(frame: bytes) -> bytes | None:
    """Counts through what a tag section announces, without a look at the bytes that are left."""
    kind, value = _stumbling_block(frame)
    return None if kind == "tag" and value > HUGE else frame


def null_text(frame: bytes) -> bytes:
    kind, value = _stumbling_block(frame)
    if kind == "length" and value == -1:
        die("nil pointer dereference at decode_string.go:31")
    return frame


def _stumbling_block(frame: bytes) -> tuple[str, int]:
    """Kind and value of the site at which strict decoding ends; ("", 0) for a sound request."""
    found: list[Site] = []
    try:
        header, start = decode_request_header(frame)
        api = api_of_key(header.api_key)
        body = frame[start:]
        whole(struct_of(message_layout(api.request, header.api_version)), body, "request", sites=found)
    except (DecodeError, construct.ConstructError):
        if found:
            return found[-1].kind, _value(body, found[-1], flexible=api.is_flexible(header.api_version))
    return "", 0


def _value(body: bytes, site: Site, *, flexible: bool) -> int:
    if flexible and site.kind in {"length", "count", "tag"}:
        return read_uvarint(body, site.start)[0] - (site.kind != "tag")
    return int.from_bytes(body[site.start : site.end], "big", signed=True)
