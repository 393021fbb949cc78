"""Unsound frames: a sound one with one thing wrong, at a place that the message table knows."""

import random
import struct
from collections.abc import Callable
from typing import Final

from highwater.fuzz.wire.generate.batches import spoiled_records
from highwater.fuzz.wire.generate.cases import Case, Ends, with_size
from highwater.fuzz.wire.generate.pool import Sound
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
Mutator = Callable[[random.Random, Sound], Case]


def case(sound: Sound, mutation: str, body: bytes, field: str = "", ends: Ends = Ends.OPEN) -> Case:
    return Case(sound.api.key, sound.version, (with_size(body),), mutation, field, ends=ends)


def spliced(sound: Sound, site: Site, mutation: str, new: bytes) -> Case:
    """Other bytes in the place of a site."""
    return case(sound, mutation, sound.body[: site.start] + new + sound.body[site.end :], site.path)


def _sites(sound: Sound, *kinds: str) -> list[Site]:
    return [site for site in sound.sites if site.kind in kinds]


def number(chance: random.Random, sound: Sound) -> Case:
    """Another number of the same width, at an edge of its type or just beside the old one."""
    found = _sites(sound, *WIDTHS)
    if not found:
        return flip(chance, sound)
    site = chance.choice(found)
    width = site.end - site.start
    bits, old = 8 * width, int.from_bytes(sound.body[site.start : site.end], "big")
    edges = (
        0,
        1,
        2,
        (1 << bits) - 1,
        1 << (bits - 1),
        (1 << (bits - 1)) - 1,
        old + 1,
        old - 1,
        chance.getrandbits(bits),
    )
    return spliced(sound, site, "number", (chance.choice(edges) % (1 << bits)).to_bytes(width, "big"))


def length(chance: random.Random, sound: Sound) -> Case:
    """A length or count that promises more, less or nothing."""
    found = _sites(sound, "length", "count")
    if not found:
        return cut(chance, sound)
    site = chance.choice(found)
    remaining = len(sound.body) - site.end
    value = chance.choice((*LENGTHS, remaining - 1, remaining, remaining + 1))
    return spliced(sound, site, "length", _as_length(sound, site, value))


def _as_length(sound: Sound, site: Site, value: int) -> bytes:
    if sound.api.is_flexible(sound.version):
        return uvarint((value + 1) & 0xFFFFFFFF)
    return (value & ((1 << 8 * (site.end - site.start)) - 1)).to_bytes(site.end - site.start, "big")


def varint(chance: random.Random, sound: Sound) -> Case:
    """Too long for its type, or longer than its value needs."""
    found = _sites(sound, "length", "count", "tag")
    if not found or not sound.api.is_flexible(sound.version):
        return length(chance, sound)
    site = chance.choice(found)
    old = sound.body[site.start : site.end]
    bombs = {**VARINTS, "padded": bytes([*old[:-1], old[-1] | 0x80, 0])}
    name = chance.choice(list(bombs))
    return spliced(sound, site, f"varint {name}", bombs[name])


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def tags(chance: random.Random, sound: Sound) -> Case:
    """A tag section with an unknown, repeated or unordered tag, or a count without tags."""
    found = [site for site in _sites(sound, "tag") if sound.body[site.start : site.end] == b"\0"]
    if not found:
        return null(chance, sound)
    name = chance.choice(list(TAG_SECTIONS))
    site = chance.choice(found)
    return spliced(sound, site, f"tags {name}", TAG_SECTIONS[name])


def null(chance: random.Random, sound: Sound) -> Case:
    """Null, whether the field may be or not; what it held is left out."""
    found = _sites(sound, "string", "bytes", "records", "count", "length")
    if not found:
        return length(chance, sound)
    site = chance.choice(found)
    if sound.api.is_flexible(sound.version):
        return spliced(sound, site, "null", b"\0")
    return spliced(sound, site, "null", b"\xff" * (2 if site.kind == "string" else 4))


def text(chance: random.Random, sound: Sound) -> Case:
    """Strings that are no UTF-8, are empty, or longer than an int16 says."""
    found = _sites(sound, "string")
    if not found:
        return flip(chance, sound)
    new = chance.choice((b"", b"\xff\xfe", b"\0" * 3, b"../../etc", b"x" * 40_000, b"x" * 32_767))
    site = chance.choice(found)
    flexible = sound.api.is_flexible(sound.version)
    size = uvarint(len(new) + 1) if flexible else (len(new) & 0xFFFF).to_bytes(2, "big")
    return spliced(sound, site, "text", size + new)


def repeat(chance: random.Random, sound: Sound) -> Case:
    """A whole body behind the body, or one value twice: everything behind it has moved."""
    if not sound.sites or chance.random() < 0.3:
        return case(sound, "repeat", sound.body + sound.body[sound.header :])
    site = chance.choice(sound.sites)
    return spliced(sound, site, "repeat", 2 * sound.body[site.start : site.end])


def flip(chance: random.Random, sound: Sound) -> Case:
    """Some bits of the body."""
    if len(sound.body) == sound.header:
        return grow(chance, sound)
    return case(sound, "flip", _flipped(chance, sound.body, sound.header, len(sound.body)))


def flip_header(chance: random.Random, sound: Sound) -> Case:
    """Some bits of the header, behind key, version and correlation id."""
    if sound.header == HEADER_START:
        return flip(chance, sound)
    return case(sound, "flip header", _flipped(chance, sound.body, HEADER_START, sound.header))


def _flipped(chance: random.Random, body: bytes, first: int, end: int) -> bytes:
    spoiled = bytearray(body)
    for _ in range(chance.choice((1, 1, 3, 8))):
        spoiled[chance.randrange(first, end)] ^= 1 << chance.randrange(8)
    return bytes(spoiled)


def cut(chance: random.Random, sound: Sound) -> Case:
    """A frame that ends early, sized as it is."""
    return case(sound, "cut", sound.body[: chance.randrange(len(sound.body))])


def grow(chance: random.Random, sound: Sound) -> Case:
    return case(sound, "grow", sound.body + chance.randbytes(chance.choice((1, 4, 100))))


def version_skew(chance: random.Random, sound: Sound) -> Case:
    """This version's bytes under another version's number."""
    other = chance.choice((sound.version + 1, sound.version - 1, sound.api.max_version + 1, -1, -(2**15), INT16_MAX))
    frame = with_size(sound.body[:2] + struct.pack(">h", other) + sound.body[4:])
    return Case(sound.api.key, other, (frame,), "version")


def key_skew(chance: random.Random, sound: Sound) -> Case:
    """This API's bytes under another API's key."""
    other = chance.choice((-1, 999, INT16_MAX, 18, 3))
    return Case(other, sound.version, (with_size(struct.pack(">h", other) + sound.body[2:]),), "key")


def client_id(chance: random.Random, sound: Sound) -> Case:
    """The length of the client id in the header."""
    value = chance.choice((-1, -2, 0, INT16_MAX, -(2**15)))
    return case(sound, "client id", sound.body[:8] + struct.pack(">h", value) + sound.body[10:], f"{value}")


def records(chance: random.Random, sound: Sound) -> Case:
    """Other records: a batch with a wrong header, a bomb, a message set within message sets."""
    found = _sites(sound, "records")
    if not found:
        return number(chance, sound)
    site = chance.choice(found)
    name, new = spoiled_records(chance)
    size = uvarint(len(new) + 1) if sound.api.is_flexible(sound.version) else len(new).to_bytes(4, "big")
    return spliced(sound, site, name, size + new)


MUTATORS: Final[dict[str, Mutator]] = {
    "number": number, "length": length, "varint": varint, "tags": tags, "null": null, "text": text, "repeat": repeat,
    "flip": flip, "flip header": flip_header, "cut": cut, "grow": grow, "version": version_skew, "key": key_skew,
    "client id": client_id, "records": records,
}  # fmt: skip
"""Whole frames: their size is right, and the connection can go on behind them."""
