"""Fast encoders derived from the annotations, the counterpart of `readers`.

A writer appends a value to a `bytearray`. It may raise `struct.error` for a number out of range; `codec.encode`
converts that to `EncodeError`.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from highwater.reference.wire.errors import EncodeError
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
)

Writer = Callable[[bytearray, Any], None]

UUID = Fixed("uuid", "16s")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def write_uvarint(out: bytearray, value: int) -> None:
    """Encode an unsigned varint, seven bits per byte, least significant first."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_compact_length(out: bytearray, length: int) -> None:
    """Encode a length of a flexible version plus one; null (-1) becomes 0."""
    write_uvarint(out, length + 1)


def write_int16(out: bytearray, value: int) -> None:
    out += _INT16.pack(value)


def write_int32(out: bytearray, value: int) -> None:
    out += _INT32.pack(value)


@derived
def struct_writer(layout: Layout) -> Writer:
    """Return the writer of a struct, with its tag section if the version is flexible."""
    refusals = [(field.name, field.default) for field in layout.missing if not field.ignorable]
    steps = list(_in_line_steps(layout))
    if layout.flexible:
        steps.append(_tag_section(layout))
    where = f"{layout.struct.__name__} version {layout.version}"

    def write(out: bytearray, value: Any) -> None:
        for name, default in refusals:
            if getattr(value, name) != default:
                raise EncodeError(f"{where} has no {name}, which is {getattr(value, name)!r}")
        for step in steps:
            step(out, value)

    return write


def _in_line_steps(layout: Layout) -> Iterable[Writer]:
    for is_fixed, fields in groupby(layout.in_line, key=lambda field: isinstance(field.type, Fixed)):
        if is_fixed:
            yield _run(list(fields))
        else:
            yield from (_single(field.name, field_writer(layout, field)) for field in fields)


def _run(fields: list[Field]) -> Writer:
    pack = struct.Struct(">" + "".join(field.type.code for field in fields if isinstance(field.type, Fixed))).pack
    get: Callable[[Any], Any] = attrgetter(*(field.name for field in fields))

    def write_one(out: bytearray, value: Any) -> None:
        out += pack(get(value))

    def write_all(out: bytearray, value: Any) -> None:
        out += pack(*get(value))

    write = write_one if len(fields) == 1 else write_all
    uuids = [attrgetter(field.name) for field in fields if field.type == UUID]
    return _checked(uuids, write) if uuids else write


def _checked(uuids: Sequence[Callable[[Any], bytes]], write: Writer) -> Writer:
    """Return a writer that checks the length of a UUID: `struct` would silently pad or truncate it."""

    def check_and_write(out: bytearray, value: Any) -> None:
        if any(len(get(value)) != 16 for get in uuids):
            raise EncodeError("a UUID has 16 bytes")
        write(out, value)

    return check_and_write


def _single(name: str, write_field: Writer) -> Writer:
    get = attrgetter(name)

    def write(out: bytearray, value: Any) -> None:
        write_field(out, get(value))

    return write


def field_writer(layout: Layout, field: Field) -> Writer:
    nullable = layout.is_nullable(field)
    if isinstance(field.type, StructOf):
        write = struct_writer(layout.of(field.type.struct))
        return _nullable_struct(write) if nullable else write
    if isinstance(field.type, ArrayOf):
        return _or_null(_array(layout, field.type.element), layout, nullable, write_int32)
    return _scalar(layout, field.type, nullable)


def _scalar(layout: Layout, field_type: Fixed | Sized, nullable: bool) -> Writer:
    if isinstance(field_type, Fixed):
        return _fixed(field_type.code)
    if field_type.name == "string":
        return _or_null(_string(layout.flexible), layout, nullable, write_int16)
    return _or_null(_bytes(layout.flexible), layout, nullable, write_int32)


def _fixed(code: str) -> Writer:
    pack = struct.Struct(">" + code).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return _checked([_itself], write) if code == UUID.code else write


def _itself(value: bytes) -> bytes:
    return value


def _or_null(
    write_value: Writer, layout: Layout, nullable: bool, write_length: Callable[[bytearray, int], None]
) -> Writer:
    write_null = write_compact_length if layout.flexible else write_length

    def write(out: bytearray, value: Any) -> None:
        if value is not None:
            write_value(out, value)
        elif nullable:
            write_null(out, -1)
        else:
            raise EncodeError(f"{layout.struct.__name__} version {layout.version} has null where it must not")

    return write


def _string(flexible: bool) -> Writer:
    write_length = write_compact_length if flexible else write_int16

    def write(out: bytearray, value: str) -> None:
        text = value.encode()
        if len(text) > MAX_STRING:
            raise EncodeError(f"string of {len(text)} bytes; {MAX_STRING} is the most")
        write_length(out, len(text))
        out += text

    return write


def _bytes(flexible: bool) -> Writer:
    write_length = write_compact_length if flexible else write_int32

    def write(out: bytearray, value: bytes) -> None:
        write_length(out, len(value))
        out += value

    return write


def _nullable_struct(write_struct: Writer) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0xFF)
        else:
            out.append(1)
            write_struct(out, value)

    return write


def _array(layout: Layout, element: FieldType) -> Writer:
    write_count = write_compact_length if layout.flexible else write_int32
    write_elements = _elements(layout, element)

    def write(out: bytearray, value: tuple[Any, ...]) -> None:
        write_count(out, len(value))
        write_elements(out, value)

    return write


def _elements(layout: Layout, element: FieldType) -> Writer:
    if isinstance(element, Fixed) and len(element.code) == 1:
        code = element.code

        def pack_all(out: bytearray, value: tuple[Any, ...]) -> None:
            out += struct.pack(f">{len(value)}{code}", *value)

        return pack_all
    write = field_writer(layout, Field("", element, None))

    def write_each(out: bytearray, value: tuple[Any, ...]) -> None:
        for item in value:
            write(out, item)

    return write_each


def _tag_section(layout: Layout) -> Writer:
    known = [
        (field.tag.number, attrgetter(field.name), field.default, field_writer(layout, field))
        for field in layout.tagged
        if field.tag
    ]

    def write(out: bytearray, value: Any) -> None:
        write_tags(
            out, [(number, _body(put, get(value))) for number, get, default, put in known if get(value) != default]
        )

    return write


def _body(write: Writer, value: Any) -> bytes:
    out = bytearray()
    write(out, value)
    return bytes(out)


def write_tags(out: bytearray, fields: Sequence[tuple[int, bytes]]) -> None:
    """Encode a tag section: the count, then number, size and bytes of every field, in the given order."""
    write_uvarint(out, len(fields))
    for number, body in fields:
        write_uvarint(out, number)
        write_uvarint(out, len(body))
        out += body
