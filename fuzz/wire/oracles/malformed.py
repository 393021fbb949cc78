"""Decide whether a request is malformed, strictly by the message table: a broker must refuse it.

The walkers here share only the table (`schema`) with the reference's decoder, not its code: a bug of that decoder must
not hide the same bug of the broker. They build no values, so that every frame of a run can be checked.

`enumerations.toml` lists the fields that have only certain values, `tolerated.toml` what Apache Kafka accepts although
it is malformed: a broker that accepts the same is not accused.
"""

import struct
import tomllib
from collections.abc import Callable, Iterator
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from highwater.reference.wire.framing import request_header_version
from highwater.reference.wire.registry import APIS, Api
from highwater.reference.wire.schema import (
    MAX_STRING,
    WIDTH,
    ArrayOf,
    Field,
    FieldType,
    Fixed,
    Layout,
    Sized,
    StructOf,
    message_layout,
    minimum_size,
)

ENUMERATIONS: Final = Path(__file__).with_name("enumerations.toml")
TOLERATED: Final = Path(__file__).with_name("tolerated.toml")
CLIENT_ID, HEADER_TAGS, BODY = "header.client_id", "header.tags", "body"
ASCII_MAX, INT32_MAX = 0x7F, 0x7FFFFFFF
VARINT_BYTES, VARINT_MAX = 5, 0xFFFFFFFF
INT16, INT32 = struct.Struct(">h"), struct.Struct(">i")


class Flaw(StrEnum):
    """What is wrong with a request."""

    ENDS_EARLY = "the frame ends within a value"
    TRAILING = "bytes after the end"
    NEGATIVE_LENGTH = "a length below -1"
    NEGATIVE_COUNT = "a count below -1"
    NEGATIVE_NULL = "a length or count below -1 for null"
    COUNT_BEYOND = "more elements than bytes"
    NULL = "null where null is not allowed"
    LONG_STRING = "a string of more than 32767 bytes"
    NOT_UTF8 = "a string that is not UTF-8"
    LONG_VARINT = "a varint of more than five bytes"
    WIDE_VARINT = "a varint of five bytes and more than 32 bits"
    TAG_ORDER = "tags that repeat or do not ascend"
    TAG_SIZE = "a tag whose size is not that of its value"
    PRESENCE = "a presence byte other than 1 and -1"
    ENUMERATION = "a value outside of the enumeration"


class Malformed(NamedTuple):
    """The first flaw of a request, and the field that has it, without indexes (`topics.partitions.index`)."""

    flaw: Flaw
    field: str


class _Flawed(Exception):
    """Carries a flaw out of the walkers."""

    def __init__(self, flaw: Flaw, field: str) -> None:
        self.malformed = Malformed(flaw, field)


Walk = Callable[[bytes, int], int]
"""Checks a value at a position and returns the position after it."""


class Enumeration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The values that a field may have; all of `first` to `last`."""

    api: str
    field: str
    first: int
    last: int
    source: str


class Tolerated(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A flaw that Apache Kafka accepts in the APIs and fields that match the patterns, since a version."""

    flaw: str
    api: str
    field: str
    since: int = 0
    until: int = 0x7FFF
    why: str
    source: str

    def covers(self, api: str, version: int, malformed: Malformed) -> bool:
        return (
            self.flaw == malformed.flaw.name
            and self.since <= version <= self.until
            and fnmatchcase(api, self.api)
            and fnmatchcase(malformed.field, self.field)
        )


@cache
def enumerations() -> dict[tuple[str, str], Enumeration]:
    rows = msgspec.convert(tomllib.loads(ENUMERATIONS.read_text())["enumeration"], list[Enumeration])
    return {(row.api, row.field): row for row in rows}


@cache
def tolerated() -> tuple[Tolerated, ...]:
    return tuple(msgspec.convert(tomllib.loads(TOLERATED.read_text())["tolerated"], list[Tolerated]))


@cache
def is_tolerated(api: str, version: int, malformed: Malformed) -> bool:
    """Return True if Apache Kafka accepts this flaw at this place."""
    return any(row.covers(api, version, malformed) for row in tolerated())


def must_be_refused(frame: bytes) -> Malformed | None:
    """Return why every broker must refuse a frame, which includes its size; None if it may be accepted."""
    malformed = first_flaw(frame[4:])
    if malformed is None:
        return None
    key, version = struct.unpack_from(">hh", frame, 4)
    return None if is_tolerated(APIS[key].name, version, malformed) else malformed


def first_flaw(request: bytes) -> Malformed | None:
    """Return the first flaw of a request without its size; None also for an API or version that the table lacks."""
    if len(request) < 4:
        return None
    key, version = struct.unpack_from(">hh", request)
    api = APIS.get(key)
    if api is None or not api.min_version <= version <= api.max_version:
        return None
    try:
        position = request_walk(api, version)(request, 4)
    except _Flawed as flawed:
        return flawed.malformed
    return None if position == len(request) else Malformed(Flaw.TRAILING, BODY)


@cache
def request_walk(api: Api, version: int) -> Walk:
    """Return the walker of header and body, from the correlation id on."""
    header = request_header_version(api, version)
    walks = [_fixed("header.correlation_id", 4)]
    if header >= 1:
        walks.append(_text(CLIENT_ID, flexible=False, nullable=True))
    if header >= 2:
        walks.append(_tag_section(HEADER_TAGS, {}))
    return _in_order([*walks, _struct(api.name, message_layout(api.request, version), "")])


def _in_order(walks: list[Walk]) -> Walk:
    def walk(data: bytes, position: int) -> int:
        for part in walks:
            position = part(data, position)
        return position

    return walk


def _struct(api: str, layout: Layout, path: str) -> Walk:
    walks = list(_in_line(api, layout, path))
    if layout.flexible:
        known = {field.tag.number: _field(api, layout, field, path) for field in layout.tagged if field.tag}
        walks.append(_tag_section(f"{path}_tags", known))
    return walks[0] if len(walks) == 1 else _in_order(walks)


def _in_line(api: str, layout: Layout, path: str) -> Iterator[Walk]:
    """Yield the walkers of the fields; neighbours of fixed width without an enumeration are one."""

    def is_plain(field: Field) -> bool:
        return isinstance(field.type, Fixed) and (api, path + field.name) not in enumerations()

    for plain, group in groupby(layout.in_line, is_plain):
        fields = list(group)
        if plain:
            width = sum(WIDTH[field.type.code] for field in fields if isinstance(field.type, Fixed))
            yield _fixed(path + fields[0].name, width)
        else:
            yield from (_field(api, layout, field, path) for field in fields)


def _field(api: str, layout: Layout, field: Field, path: str) -> Walk:
    return _value(api, layout, field.type, path + field.name, nullable=layout.is_nullable(field))


def _value(api: str, layout: Layout, kind: FieldType, name: str, *, nullable: bool) -> Walk:
    if isinstance(kind, Fixed):
        values = enumerations().get((api, name))
        return _fixed(name, WIDTH[kind.code]) if values is None else _enumerated(name, kind, values)
    if isinstance(kind, Sized):
        make = _text if kind.name == "string" else _data
        return make(name, flexible=layout.flexible, nullable=nullable)
    if isinstance(kind, StructOf):
        walk = _struct(api, layout.of(kind.struct), f"{name}.")
        return _optional(name, walk) if nullable else walk
    return _array(api, layout, kind, name, nullable=nullable)


def _fixed(name: str, width: int) -> Walk:
    def walk(data: bytes, position: int) -> int:
        position += width
        if position > len(data):
            raise _Flawed(Flaw.ENDS_EARLY, name)
        return position

    return walk


def _enumerated(name: str, kind: Fixed, values: Enumeration) -> Walk:
    unpack, width, first, last = struct.Struct(">" + kind.code).unpack_from, WIDTH[kind.code], values.first, values.last

    def walk(data: bytes, position: int) -> int:
        if position + width > len(data):
            raise _Flawed(Flaw.ENDS_EARLY, name)
        if not first <= unpack(data, position)[0] <= last:
            raise _Flawed(Flaw.ENUMERATION, name)
        return position + width

    return walk


def _uvarint(data: bytes, position: int, name: str) -> tuple[int, int]:
    value = 0
    for number, byte in enumerate(data[position : position + VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * number
        if byte <= ASCII_MAX:
            if value > VARINT_MAX:
                raise _Flawed(Flaw.WIDE_VARINT, name)
            return value, position + number + 1
    if len(data) - position < VARINT_BYTES:
        raise _Flawed(Flaw.ENDS_EARLY, name)
    raise _Flawed(Flaw.LONG_VARINT, name)


def _size(fixed: struct.Struct, name: str, *, flexible: bool) -> Callable[[bytes, int], tuple[int, int]]:
    """Return the reader of a length or count; -1 is null. A compact one above 2³¹ is negative, as in any int32."""
    unpack, width = fixed.unpack_from, fixed.size

    def compact(data: bytes, position: int) -> tuple[int, int]:
        value, position = _uvarint(data, position, name)
        return (value if value <= INT32_MAX else value - VARINT_MAX - 1) - 1, position

    def plain(data: bytes, position: int) -> tuple[int, int]:
        if position + width > len(data):
            raise _Flawed(Flaw.ENDS_EARLY, name)
        return unpack(data, position)[0], position + width

    return compact if flexible else plain


def _check_negative(size: int, flaw: Flaw, name: str, *, nullable: bool) -> None:
    if size < -1:
        raise _Flawed(Flaw.NEGATIVE_NULL if nullable else flaw, name)
    if not nullable:
        raise _Flawed(Flaw.NULL, name)


def _text(name: str, *, flexible: bool, nullable: bool) -> Walk:
    size_at = _size(INT16, name, flexible=flexible)

    def walk(data: bytes, position: int) -> int:
        size, position = size_at(data, position)
        if size < 0:
            _check_negative(size, Flaw.NEGATIVE_LENGTH, name, nullable=nullable)
            return position
        if size > MAX_STRING:
            raise _Flawed(Flaw.LONG_STRING, name)
        text = data[position : position + size]
        if len(text) < size:
            raise _Flawed(Flaw.ENDS_EARLY, name)
        if not text.isascii():
            try:
                text.decode()
            except UnicodeDecodeError:
                raise _Flawed(Flaw.NOT_UTF8, name) from None
        return position + size

    return walk


def _data(name: str, *, flexible: bool, nullable: bool) -> Walk:
    size_at = _size(INT32, name, flexible=flexible)

    def walk(data: bytes, position: int) -> int:
        size, position = size_at(data, position)
        if size < 0:
            _check_negative(size, Flaw.NEGATIVE_LENGTH, name, nullable=nullable)
            return position
        if position + size > len(data):
            raise _Flawed(Flaw.ENDS_EARLY, name)
        return position + size

    return walk


def _optional(name: str, inner: Walk) -> Walk:
    """Return the walker of a struct that may be null: one byte, 1 or -1, precedes it."""

    def walk(data: bytes, position: int) -> int:
        if position >= len(data):
            raise _Flawed(Flaw.ENDS_EARLY, name)
        if data[position] == 0xFF:
            return position + 1
        if data[position] != 1:
            raise _Flawed(Flaw.PRESENCE, name)
        return inner(data, position + 1)

    return walk


def _array(api: str, layout: Layout, kind: ArrayOf, name: str, *, nullable: bool) -> Walk:
    size_at = _size(INT32, name, flexible=layout.flexible)
    least = max(1, minimum_size(kind.element, layout.version, layout.flexible))
    element = _value(api, layout, kind.element, name, nullable=False)

    def walk(data: bytes, position: int) -> int:
        count, position = size_at(data, position)
        if count < 0:
            _check_negative(count, Flaw.NEGATIVE_COUNT, name, nullable=nullable)
            return position
        if count * least > len(data) - position:
            raise _Flawed(Flaw.COUNT_BEYOND, name)
        for _ in range(count):
            position = element(data, position)
        return position

    return walk


def _tag_section(name: str, known: dict[int, Walk]) -> Walk:
    def walk(data: bytes, position: int) -> int:
        count, position = _uvarint(data, position, name)
        if count > INT32_MAX:
            raise _Flawed(Flaw.NEGATIVE_COUNT, name)
        if 2 * count > len(data) - position:
            raise _Flawed(Flaw.COUNT_BEYOND, name)
        last = -1
        for _ in range(count):
            number, position = _uvarint(data, position, name)
            size, position = _uvarint(data, position, name)
            if number <= last:
                raise _Flawed(Flaw.TAG_ORDER, name)
            last, end = number, position + size
            if end > len(data):
                raise _Flawed(Flaw.ENDS_EARLY, name)
            if number in known and known[number](data[:end], position) != end:
                raise _Flawed(Flaw.TAG_SIZE, name)
            position = end
        return position

    return walk
