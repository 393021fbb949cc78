"""Fast decoders derived from the annotations; the constructs are their oracle in tests.

A reader takes all bytes and a position, and returns a value and the position after it. Consecutive fixed-width fields
are decoded by one `struct`. Readers may raise `IndexError` or `struct.error` at the end of the bytes, and
`UnicodeDecodeError` for an invalid string; `codec.decode` converts them to `DecodeError`.

Hostile bytes cost no more than valid ones: a count is compared with the minimum size of its elements, a varint has at
most five bytes, and nothing is allocated before its length is compared with the remaining bytes.
"""

import struct
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from highwater.reference.wire.errors import (
    BufferUnderflowError,
    InvalidLengthError,
    InvalidTagError,
    InvalidVarintError,
    UnexpectedNullError,
)
from highwater.reference.wire.schema import (
    MAX_STRING,
    ArrayOf,
    Field,
    FieldType,
    Fixed,
    Layout,
    Sized,
    StructOf,
    derived,
    minimum_size,
)

Reader = Callable[[bytes, int], tuple[Any, int]]
Step = Callable[[bytes, int, dict[str, Any]], int]
"""Decodes one or more fields into the dict and returns the position after them."""

MAX_UINT32 = 0xFFFFFFFF

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    """Decode an unsigned varint of at most 32 bits, seven bits per byte, least significant first."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > MAX_UINT32:
                break
            return value, position + 1
    raise InvalidVarintError(f"the varint that ends at byte {position} is longer than 32 bits")


def read_compact_length(data: bytes, position: int) -> tuple[int, int]:
    """Decode the length of a flexible version, which is encoded plus one; -1 is null."""
    length, position = read_uvarint(data, position)
    return length - 1, position


def read_int16(data: bytes, position: int) -> tuple[int, int]:
    return _INT16.unpack_from(data, position)[0], position + 2


def read_int32(data: bytes, position: int) -> tuple[int, int]:
    return _INT32.unpack_from(data, position)[0], position + 4


@derived
def struct_reader(layout: Layout) -> Reader:
    """Return the reader of a struct, with its tag section if the version is flexible."""
    steps = list(_in_line_steps(layout))
    if layout.flexible:
        steps.append(_tag_section(layout))
    make = layout.struct

    def read(data: bytes, position: int) -> tuple[Any, int]:
        values: dict[str, Any] = {}
        for step in steps:
            position = step(data, position, values)
        return make(**values), position

    return read


def _in_line_steps(layout: Layout) -> Iterable[Step]:
    for is_fixed, fields in groupby(layout.in_line, key=lambda field: isinstance(field.type, Fixed)):
        if is_fixed:
            yield _run(list(fields))
        else:
            yield from (_single(field.name, field_reader(layout, field)) for field in fields)


def _run(fields: list[Field]) -> Step:
    names = [field.name for field in fields]
    layout = struct.Struct(">" + "".join(field.type.code for field in fields if isinstance(field.type, Fixed)))
    unpack, size = layout.unpack_from, layout.size

    def step(data: bytes, position: int, values: dict[str, Any]) -> int:
        values.update(zip(names, unpack(data, position), strict=True))
        return position + size

    return step


def _single(name: str, read: Reader) -> Step:
    def step(data: bytes, position: int, values: dict[str, Any]) -> int:
        values[name], position = read(data, position)
        return position

    return step


def field_reader(layout: Layout, field: Field) -> Reader:
    nullable = layout.is_nullable(field)
    if isinstance(field.type, StructOf):
        read = struct_reader(layout.of(field.type.struct))
        return _nullable_struct(read) if nullable else read
    if isinstance(field.type, ArrayOf):
        return _array(layout, field.type.element, nullable)
    return _scalar(field.type, layout.flexible, nullable)


def _scalar(field_type: Fixed | Sized, flexible: bool, nullable: bool) -> Reader:
    if isinstance(field_type, Fixed):
        return _fixed(field_type.code)
    if field_type.name == "string":
        return _string(read_compact_length if flexible else read_int16, nullable)
    return _bytes(read_compact_length if flexible else read_int32, nullable)


def _fixed(code: str) -> Reader:
    layout = struct.Struct(">" + code)
    unpack, size = layout.unpack_from, layout.size

    def read(data: bytes, position: int) -> tuple[Any, int]:
        return unpack(data, position)[0], position + size

    return read


def _string(read_length: Reader, nullable: bool) -> Reader:
    def read(data: bytes, position: int) -> tuple[str | None, int]:
        length, position = read_length(data, position)
        if length < 0:
            _check_null(length, nullable)
            return None, position
        if length > MAX_STRING:
            raise InvalidLengthError(f"string of {length} bytes at byte {position}")
        end = position + length
        if end > len(data):
            raise BufferUnderflowError(f"string of {length} bytes at byte {position} of {len(data)}")
        return data[position:end].decode(), end

    return read


def _bytes(read_length: Reader, nullable: bool) -> Reader:
    def read(data: bytes, position: int) -> tuple[bytes | None, int]:
        length, position = read_length(data, position)
        if length < 0:
            _check_null(length, nullable)
            return None, position
        end = position + length
        if end > len(data):
            raise BufferUnderflowError(f"{length} bytes at byte {position} of {len(data)}")
        return data[position:end], end

    return read


def _check_null(length: int, nullable: bool) -> None:
    if length != -1:
        raise InvalidLengthError(f"negative length {length}")
    if not nullable:
        raise UnexpectedNullError("null for a field that must not be null")


def _nullable_struct(read_struct: Reader) -> Reader:
    def read(data: bytes, position: int) -> tuple[Any, int]:
        present = data[position]
        if present == 0xFF:
            return None, position + 1
        if present != 1:
            raise InvalidLengthError(f"the presence byte of a struct is {present}, not 1 or -1")
        return read_struct(data, position + 1)

    return read


def _array(layout: Layout, element: FieldType, nullable: bool) -> Reader:
    read_count = read_compact_length if layout.flexible else read_int32
    least = max(1, minimum_size(element, layout.version, layout.flexible))
    read_elements = _elements(layout, element)

    def read(data: bytes, position: int) -> tuple[Any, int]:
        count, position = read_count(data, position)
        if count < 0:
            _check_null(count, nullable)
            return None, position
        if count * least > len(data) - position:
            raise InvalidLengthError(f"{count} elements do not fit into the remaining {len(data) - position} bytes")
        return read_elements(data, position, count)

    return read


def _elements(layout: Layout, element: FieldType) -> Callable[[bytes, int, int], tuple[tuple[Any, ...], int]]:
    if isinstance(element, Fixed) and len(element.code) == 1:
        code, size = element.code, struct.calcsize(">" + element.code)

        def unpack_all(data: bytes, position: int, count: int) -> tuple[tuple[Any, ...], int]:
            return struct.unpack_from(f">{count}{code}", data, position), position + count * size

        return unpack_all
    read = field_reader(layout, Field("", element, None))

    def read_all(data: bytes, position: int, count: int) -> tuple[tuple[Any, ...], int]:
        values = []
        for _ in range(count):
            value, position = read(data, position)
            values.append(value)
        return tuple(values), position

    return read_all


def _tag_section(layout: Layout) -> Step:
    known = {field.tag.number: (field.name, field_reader(layout, field)) for field in layout.tagged if field.tag}

    def step(data: bytes, position: int, values: dict[str, Any]) -> int:
        if data[position] == 0:
            return position + 1
        return _read_tags(data, position, known, values)

    return step


def _read_tags(data: bytes, position: int, known: dict[int, tuple[str, Reader]], values: dict[str, Any]) -> int:
    """Decode the known tagged fields and skip the others."""
    found, section_end = read_tags(data, position)
    for number, start, end in found:
        if number in known:
            name, read = known[number]
            values[name], stop = read(data, start)
            if stop != end:
                raise InvalidTagError(f"tag {number} has {stop - start} bytes, but its size is {end - start}")
    return section_end


def read_tags(data: bytes, position: int) -> tuple[list[tuple[int, int, int]], int]:
    """Return (number, start, end) of every tagged field, and the position after the section; numbers must ascend."""
    count, position = read_uvarint(data, position)
    if 2 * count > len(data) - position:
        raise InvalidLengthError(f"{count} tagged fields do not fit into the remaining {len(data) - position} bytes")
    found, last = [], -1
    for _ in range(count):
        number, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        if number <= last:
            raise InvalidTagError(f"tag {number} after tag {last}")
        if size > len(data) - position:
            raise BufferUnderflowError(f"tag {number} of {size} bytes at byte {position} of {len(data)}")
        found.append((number, position, position + size))
        last, position = number, position + size
    return found, position
