"""Mutators: a valid request with one mutation, at a site that the message table describes."""

import random
import struct
from collections.abc import Callable
from typing import Final

from highwater.fuzz.wire.generate.batches import mutated_records
from highwater.fuzz.wire.generate.cases import Case, Ends, with_size
from highwater.fuzz.wire.generate.pool import ValidRequest
from highwater.reference.wire.constructs import Site

INT16_MAX, INT32_MAX = 2**15 - 1, 2**31 - 1
LENGTHS: Final = (-2, -1, 0, 1, 2**16, 2**24, INT32_MAX, INT16_MAX, -(2**31))
WIDTHS: Final = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint16": 2, "uint32": 4, "bool": 1, "null": 1}
HEADER_START: Final = 8
VARINTS: Final = {
    "endless": b"\xff" * 12, "zeros": b"\x80" * 64, "35 bits": b"\xff\xff\xff\xff\x7f",
    "largest": b"\xff\xff\xff\xff\x0f", "padded zero": b"\x80\x80\x80\x00",
}  # fmt: skip
TAG_SECTIONS: Final = {
    "unknown": b"\x01\x63\x01x",
    "doubled": b"\x02\x63\x00\x63\x00",
    "unordered": b"\x02\x64\x00\x63\x00",
    "size beyond": b"\x01\x63\x7f",
    "no tags": b"\x7f",
    "countless": b"\xff\xff\xff\xff\x0f",
    "huge number": b"\x01\xff\xff\xff\xff\x0f\x00",
}
Mutator = Callable[[random.Random, ValidRequest], Case]


def case(valid: ValidRequest, mutation: str, body: bytes, field: str = "", ends: Ends = Ends.OPEN) -> Case:
    return Case(valid.api.key, valid.version, (with_size(body),), mutation, field, ends=ends)


def replace_site(valid: ValidRequest, site: Site, mutation: str, new: bytes) -> Case:
    """Return a case with other bytes at a site."""
    return case(valid, mutation, valid.body[: site.start] + new + valid.body[site.end :], site.path)


def _sites(valid: ValidRequest, *kinds: str) -> list[Site]:
    return [site for site in valid.sites if site.kind in kinds]


def number(rng: random.Random, valid: ValidRequest) -> Case:
    """Replace a number by one of the same width: an edge of its type, or next to the old value."""
    found = _sites(valid, *WIDTHS)
    if not found:
        return flip(rng, valid)
    site = rng.choice(found)
    width = site.end - site.start
    bits, old = 8 * width, int.from_bytes(valid.body[site.start : site.end], "big")
    edges = (
        0,
        1,
        2,
        (1 << bits) - 1,
        1 << (bits - 1),
        (1 << (bits - 1)) - 1,
        old + 1,
        old - 1,
        rng.getrandbits(bits),
    )
    return replace_site(valid, site, "number", (rng.choice(edges) % (1 << bits)).to_bytes(width, "big"))


def length(rng: random.Random, valid: ValidRequest) -> Case:
    """Replace a length or count by a larger or smaller one."""
    found = _sites(valid, "length", "count")
    if not found:
        return cut(rng, valid)
    site = rng.choice(found)
    remaining = len(valid.body) - site.end
    value = rng.choice((*LENGTHS, remaining - 1, remaining, remaining + 1))
    return replace_site(valid, site, "length", as_length(valid, site, value))


def as_length(valid: ValidRequest, site: Site, value: int) -> bytes:
    if valid.api.is_flexible(valid.version):
        return uvarint((value + 1) & 0xFFFFFFFF)
    return (value & ((1 << 8 * (site.end - site.start)) - 1)).to_bytes(site.end - site.start, "big")


def varint(rng: random.Random, valid: ValidRequest) -> Case:
    """Replace a varint by one that is too long for its type, or longer than its value needs."""
    found = _sites(valid, "length", "count", "tag")
    if not found or not valid.api.is_flexible(valid.version):
        return length(rng, valid)
    site = rng.choice(found)
    old = valid.body[site.start : site.end]
    bombs = {**VARINTS, "padded": bytes([*old[:-1], old[-1] | 0x80, 0])}
    name = rng.choice(list(bombs))
    return replace_site(valid, site, f"varint {name}", bombs[name])


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def tags(rng: random.Random, valid: ValidRequest) -> Case:
    """Insert a tag section with an unknown, repeated or unordered tag, or a count without tags."""
    found = [site for site in _sites(valid, "tag") if valid.body[site.start : site.end] == b"\0"]
    if not found:
        return null(rng, valid)
    name = rng.choice(list(TAG_SECTIONS))
    site = rng.choice(found)
    return replace_site(valid, site, f"tags {name}", TAG_SECTIONS[name])


def null(rng: random.Random, valid: ValidRequest) -> Case:
    """Replace a value by null, whether the field is nullable or not; the old content remains behind it."""
    found = _sites(valid, "string", "bytes", "records", "count", "length")
    if not found:
        return length(rng, valid)
    site = rng.choice(found)
    if valid.api.is_flexible(valid.version):
        return replace_site(valid, site, "null", b"\0")
    return replace_site(valid, site, "null", b"\xff" * (2 if site.kind == "string" else 4))


def text(rng: random.Random, valid: ValidRequest) -> Case:
    """Replace a string by one that is not UTF-8, is empty, or exceeds the maximum of an int16 length."""
    found = _sites(valid, "string")
    if not found:
        return flip(rng, valid)
    new = rng.choice((b"", b"\xff\xfe", b"\0" * 3, b"../../etc", b"x" * 40_000, b"x" * 32_767))
    site = rng.choice(found)
    flexible = valid.api.is_flexible(valid.version)
    size = uvarint(len(new) + 1) if flexible else (len(new) & 0xFFFF).to_bytes(2, "big")
    return replace_site(valid, site, "text", size + new)


def repeat(rng: random.Random, valid: ValidRequest) -> Case:
    """Repeat the whole body, or one value, which shifts everything behind it."""
    if not valid.sites or rng.random() < 0.3:
        return case(valid, "repeat", valid.body + valid.body[valid.header :])
    site = rng.choice(valid.sites)
    return replace_site(valid, site, "repeat", 2 * valid.body[site.start : site.end])


def flip(rng: random.Random, valid: ValidRequest) -> Case:
    """Flip some bits of the body."""
    if len(valid.body) == valid.header:
        return grow(rng, valid)
    return case(valid, "flip", _flipped(rng, valid.body, valid.header, len(valid.body)))


def flip_header(rng: random.Random, valid: ValidRequest) -> Case:
    """Flip some bits of the header, after key, version and correlation id."""
    if valid.header == HEADER_START:
        return flip(rng, valid)
    return case(valid, "flip header", _flipped(rng, valid.body, HEADER_START, valid.header))


def _flipped(rng: random.Random, body: bytes, first: int, end: int) -> bytes:
    mutated = bytearray(body)
    for _ in range(rng.choice((1, 1, 3, 8))):
        mutated[rng.randrange(first, end)] ^= 1 << rng.randrange(8)
    return bytes(mutated)


def cut(rng: random.Random, valid: ValidRequest) -> Case:
    """Cut the frame early; the size field matches."""
    return case(valid, "cut", valid.body[: rng.randrange(len(valid.body))])


def grow(rng: random.Random, valid: ValidRequest) -> Case:
    return case(valid, "grow", valid.body + rng.randbytes(rng.choice((1, 4, 100))))


def version_skew(rng: random.Random, valid: ValidRequest) -> Case:
    """Send the bytes of this version under another version number."""
    other = rng.choice((valid.version + 1, valid.version - 1, valid.api.max_version + 1, -1, -(2**15), INT16_MAX))
    frame = with_size(valid.body[:2] + struct.pack(">h", other) + valid.body[4:])
    return Case(valid.api.key, other, (frame,), "version")


def key_skew(rng: random.Random, valid: ValidRequest) -> Case:
    """Send the bytes of this API under another API key."""
    other = rng.choice((-1, 999, INT16_MAX, 18, 3))
    return Case(other, valid.version, (with_size(struct.pack(">h", other) + valid.body[2:]),), "key")


def client_id(rng: random.Random, valid: ValidRequest) -> Case:
    """Replace the length of the client id in the header."""
    value = rng.choice((-1, -2, 0, INT16_MAX, -(2**15)))
    return case(valid, "client id", valid.body[:8] + struct.pack(">h", value) + valid.body[10:], f"{value}")


def records(rng: random.Random, valid: ValidRequest) -> Case:
    """Replace records by a batch with a wrong header, a bomb, or nested message sets."""
    found = _sites(valid, "records")
    if not found:
        return number(rng, valid)
    site = rng.choice(found)
    name, new = mutated_records(rng)
    size = uvarint(len(new) + 1) if valid.api.is_flexible(valid.version) else len(new).to_bytes(4, "big")
    return replace_site(valid, site, name, size + new)


MUTATORS: Final[dict[str, Mutator]] = {
    "number": number, "length": length, "varint": varint, "tags": tags, "null": null, "text": text, "repeat": repeat,
    "flip": flip, "flip header": flip_header, "cut": cut, "grow": grow, "version": version_skew, "key": key_skew,
    "client id": client_id, "records": records,
}  # fmt: skip
"""All mutators return whole frames with a valid size, so the connection can continue."""
