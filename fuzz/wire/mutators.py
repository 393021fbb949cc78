"""Unsound frames: a sound one with one thing wrong, at a place that the message table knows."""

import random
import struct
from collections.abc import Callable

from crc32c import crc32c

from reference.wire.described import sites
from reference.wire.errors import DecodeError
from reference.wire.primitives import Site
from reference.wire.records import CRC_START, HEADER_SIZE
from reference.wire.registry import Api

Frame = bytes  # with its size prefix
INT32 = struct.Struct(">i")
LENGTHS = (-2, -1, 0, 1, 2**31 - 1, 2**15 - 1, -(2**31))
WIDTHS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint16": "H", "uint32": "I", "bool": "b"}
VARINT_BOMB = b"\xff" * 12


def with_size(body: bytes) -> Frame:
    return INT32.pack(len(body)) + body


def _replace(body: bytes, start: int, end: int, new: bytes) -> Frame:
    return with_size(body[:start] + new + body[end:])


def number(chance: random.Random, body: bytes, site: Site) -> Frame:
    """Another number of the same width."""
    code = WIDTHS[site.kind]
    bits = 8 * struct.calcsize(code)
    value = chance.choice((0, 1, (1 << bits) - 1, 1 << (bits - 1), chance.getrandbits(bits)))
    return _replace(body, site.start, site.end, value.to_bytes(bits // 8, "big"))


def length(chance: random.Random, body: bytes, site: Site) -> Frame:
    """A length or count that promises more, less or nothing."""
    width = site.end - site.start
    remaining = len(body) - site.end
    value = chance.choice((*LENGTHS, remaining - 1, remaining, remaining + 1))
    if width == 4:
        return _replace(body, site.start, site.end, INT32.pack(value))
    if width == 2:
        return _replace(body, site.start, site.end, struct.pack(">H", value & 0xFFFF))
    return _replace(body, site.start, site.end, chance.choice((uvarint(value & 0xFFFFFFFF), VARINT_BOMB)))


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def tag(chance: random.Random, body: bytes, site: Site) -> Frame:
    """A tag section with an unknown, repeated or unordered tag, or a count without tags."""
    new = chance.choice((b"\x01\x63\x01x", b"\x02\x63\x00\x63\x00", b"\x02\x64\x00\x63\x00", uvarint(2**31), b"\x7f"))
    return _replace(body, site.start, site.end, new)


def junk(chance: random.Random, body: bytes, site: Site) -> Frame:
    return _replace(body, site.start, site.end, chance.randbytes(max(site.end - site.start, 1)))


BY_KIND: dict[str, Callable[[random.Random, bytes, Site], Frame]] = {
    **dict.fromkeys(WIDTHS, number),
    "length": length,
    "count": length,
    "null": junk,
    "tag": tag,
}


def at_a_site(chance: random.Random, body: bytes, header: int, api: Api, version: int) -> Frame:
    """Spoil one value, length, count or tag of the message."""
    try:
        found = sites(api.request, version, body[header:])
    except DecodeError:
        return flip(chance, body, header, api, version)
    if not found:
        return flip(chance, body, header, api, version)
    site = chance.choice(found)
    moved = Site(site.path, site.kind, site.start + header, site.end + header)
    return BY_KIND.get(site.kind, junk)(chance, body, moved)


def flip(chance: random.Random, body: bytes, header: int, api: Api, version: int) -> Frame:
    """Some bits anywhere, the header too."""
    spoiled = bytearray(body)
    for _ in range(chance.choice((1, 1, 3, 8))):
        spoiled[chance.randrange(len(spoiled))] ^= 1 << chance.randrange(8)
    return with_size(bytes(spoiled))


def cut(chance: random.Random, body: bytes, header: int, api: Api, version: int) -> Frame:
    """A frame that ends early, sized as it is."""
    return with_size(body[: chance.randrange(len(body))])


def grow(chance: random.Random, body: bytes, header: int, api: Api, version: int) -> Frame:
    return with_size(body + chance.randbytes(chance.choice((1, 4, 100))))


def size_prefix(chance: random.Random, body: bytes, header: int, api: Api, version: int) -> Frame:
    """A size that is not the frame's."""
    return INT32.pack(chance.choice((-1, -(2**31), 0, 3, len(body) - 1, 2**31 - 1))) + body


def version_skew(chance: random.Random, body: bytes, header: int, api: Api, version: int) -> Frame:
    """This version's bytes under another version's number."""
    other = chance.choice((version + 1, version - 1, api.max_version + 1, -1, 32767))
    return _replace(body, 2, 4, struct.pack(">h", max(-32768, min(32767, other))))


def key_skew(chance: random.Random, body: bytes, header: int, api: Api, version: int) -> Frame:
    return _replace(body, 0, 2, struct.pack(">h", chance.choice((-1, 999, 32767, 18, 3))))


def batch_field(chance: random.Random, body: bytes, header: int, api: Api, version: int) -> Frame:
    """One field of a record batch header, with or without a checksum that fits again."""
    start = body.find(b"\x02", header)  # magic of the batch, if there is one at its place
    begin = start - 16
    if begin < header or len(body) - begin < HEADER_SIZE:
        return flip(chance, body, header, api, version)
    spoiled = bytearray(body)
    place, width = chance.choice(
        ((0, 8), (8, 4), (16, 1), (21, 2), (23, 4), (27, 8), (43, 8), (51, 2), (53, 4), (57, 4))
    )
    spoiled[begin + place : begin + place + width] = chance.choice(
        (b"\xff" * width, b"\x7f" + b"\xff" * (width - 1), bytes(width))
    )
    if chance.random() < 0.7:
        checksum = crc32c(bytes(spoiled[begin + CRC_START :]))
        struct.pack_into(">I", spoiled, begin + CRC_START - 4, checksum)
    return with_size(bytes(spoiled))


Mutator = Callable[[random.Random, bytes, int, Api, int], Frame]
MUTATORS: dict[str, Mutator] = {
    "site": at_a_site,
    "flip": flip,
    "cut": cut,
    "grow": grow,
    "size": size_prefix,
    "version": version_skew,
    "key": key_skew,
    "batch": batch_field,
}
