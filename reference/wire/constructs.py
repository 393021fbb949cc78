"""Every message in every version as a construct, made from the annotations.

This is the readable and slow description of the format. `codec` is faster by joining and skipping steps, and tests
hold it to this. A construct also knows where each value stands: see `sites`.
"""

from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final, TypeVar

import construct

from highwater.reference.wire.errors import (
    DecodeError,
    EncodeError,
    InvalidLengthError,
    InvalidStringError,
    InvalidTagError,
    InvalidVarintError,
    TrailingBytesError,
    UnexpectedNullError,
)
from highwater.reference.wire.schema import (
    MAX_STRING,
    ArrayOf,
    Field,
    Fixed,
    Layout,
    Sized,
    StructOf,
    derived,
    message_layout,
    minimum_size,
)

# --------------------------------------------------------------------------------------------------
# The protocol's types as construct sees them, each with the limits that construct's own lack.
#
# Stock construct reads unbounded varints, two million empty structs, and (compiled) negative lengths without complaint.
# Here a varint has at most 32 bits, a count must fit into the bytes that remain, and null is a value of its own.
#
# Every length, count, number and text may be noted as a `Site` while it is parsed: that is where a fuzzer mutates.


@dataclass(frozen=True, slots=True)
class Site:
    """Where a value stands: `kind` is the type's name, or `length`, `count`, `null`, `tag`."""

    path: str
    kind: str
    start: int
    end: int


class Leaf(construct.Construct):  # type: ignore[misc] # construct has no annotations
    """A type of ours without parts."""


class Around(construct.Subconstruct):  # type: ignore[misc]
    """A type of ours around another."""


class Converted(construct.Adapter):  # type: ignore[misc]
    """A type of ours that changes what another one read."""


class Uvarint(Leaf):
    """An unsigned varint of at most 32 bits."""

    def _parse(self, stream: BytesIO, context: Any, path: str) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte: int = construct.stream_read(stream, 1, path)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 32:
                    break
                return value
        raise InvalidVarintError(f"{path}: varint is longer than 32 bits")

    def _build(self, value: int, stream: BytesIO, context: Any, path: str) -> int:
        rest = value
        while rest > 0x7F:
            construct.stream_write(stream, bytes([rest & 0x7F | 0x80]), 1, path)
            rest >>= 7
        construct.stream_write(stream, bytes([rest]), 1, path)
        return value


COMPACT_LENGTH: Final = construct.ExprAdapter(
    Uvarint(), lambda length, context: length - 1, lambda length, context: length + 1
)
"""A length plus one, so that 0 is null, here -1."""


class Noted(Around):
    """Notes the site of what it wraps, if the parse was started with a list of `sites`."""

    def __init__(self, kind: str, wrapped: Any) -> None:
        super().__init__(wrapped)
        self.kind = kind

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:
        start = stream.tell()
        value = self.subcon._parsereport(stream, context, path)
        sites, base = context._params.get("sites"), context._params.get("base", 0)
        if sites is not None:
            sites.append(Site(path.removeprefix("(parsing) -> "), self.kind, base + start, base + stream.tell()))
        return value


class Prefixed(Leaf):
    """Bytes behind their length, which is -1 for null."""

    def __init__(self, length: Any, *, nullable: bool, most: int | None = None) -> None:
        super().__init__()
        self.length, self.nullable, self.most = Noted("length", length), nullable, most

    def _parse(self, stream: BytesIO, context: Any, path: str) -> bytes | None:
        length = self.length._parsereport(stream, context, path)
        if length == -1:
            refuse_null(path, self.nullable)
            return None
        if length < 0 or (self.most is not None and length > self.most):
            raise InvalidLengthError(f"{path}: length {length}")
        data: bytes = construct.stream_read(stream, length, path)
        return data

    def _build(self, value: bytes | None, stream: BytesIO, context: Any, path: str) -> bytes | None:
        if value is None:
            refuse_null(path, self.nullable)
        elif self.most is not None and len(value) > self.most:
            raise InvalidLengthError(f"{path}: length {len(value)}")
        self.length._build(-1 if value is None else len(value), stream, context, path)
        construct.stream_write(stream, value or b"", len(value or b""), path)
        return value


class Text(Converted):
    """UTF-8 in `Prefixed` bytes."""

    def _decode(self, data: bytes | None, context: Any, path: str) -> str | None:
        try:
            return None if data is None else data.decode()
        except UnicodeDecodeError as error:
            raise InvalidStringError(f"{path}: {error}") from error

    def _encode(self, text: str | None, context: Any, path: str) -> bytes | None:
        return None if text is None else text.encode()


class Counted(Around):
    """Elements behind their count, which is -1 for null; `least` is the fewest bytes that an element takes."""

    def __init__(self, count: Any, element: Any, *, least: int, nullable: bool) -> None:
        super().__init__(element)
        self.count, self.least, self.nullable = Noted("count", count), least, nullable

    def _parse(self, stream: BytesIO, context: Any, path: str) -> tuple[Any, ...] | None:
        count = self.count._parsereport(stream, context, path)
        if count == -1:
            refuse_null(path, self.nullable)
            return None
        if not 0 <= count * self.least <= remaining(stream):
            raise InvalidLengthError(f"{path}: {count} elements in {remaining(stream)} bytes")
        return tuple(self.subcon._parsereport(stream, context, f"{path} -> [{index}]") for index in range(count))

    def _build(self, values: tuple[Any, ...] | None, stream: BytesIO, context: Any, path: str) -> Any:
        if values is None:
            refuse_null(path, self.nullable)
        self.count._build(-1 if values is None else len(values), stream, context, path)
        for index, value in enumerate(values or ()):
            self.subcon._build(value, stream, context, f"{path} -> [{index}]")
        return values


class NullableStruct(Around):
    """A struct behind one byte: 1 if it is there, -1 for null."""

    PRESENT: Final = Noted("null", construct.Int8sb)

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:
        present = self.PRESENT._parsereport(stream, context, path)
        if present not in (1, -1):
            raise InvalidLengthError(f"{path}: {present} is neither 1 nor -1")
        return self.subcon._parsereport(stream, context, path) if present == 1 else None

    def _build(self, value: Any, stream: BytesIO, context: Any, path: str) -> Any:
        self.PRESENT._build(-1 if value is None else 1, stream, context, path)
        if value is not None:
            self.subcon._build(value, stream, context, path)
        return value


class TagSection(Leaf):
    """Tagged fields (KIP-482) as a dictionary by name; what is unknown is skipped, what is default is not written."""

    UVARINT: Final = Noted("tag", Uvarint())

    def __init__(self, known: dict[int, tuple[str, Any, Any]]) -> None:
        """Name, construct and default of each number."""
        super().__init__()
        self.known = known

    def _parse(self, stream: BytesIO, context: Any, path: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        last = -1
        for _ in range(self.UVARINT._parsereport(stream, context, path)):
            number = self.UVARINT._parsereport(stream, context, path)
            size = self.UVARINT._parsereport(stream, context, path)
            if number <= last:
                raise InvalidTagError(f"{path}: tag {number} after tag {last}")
            last = number
            self._parse_tag(number, size, stream, context, path, values)
        return values

    def _parse_tag(
        self, number: int, size: int, stream: BytesIO, context: Any, path: str, values: dict[str, Any]
    ) -> None:
        start = stream.tell()
        body = construct.stream_read(stream, size, path)
        if number not in self.known:
            return
        name, field, _ = self.known[number]
        base = context._params.get("base", 0) + start
        values[name] = whole(field, body, f"{path} -> {name}", sites=context._params.get("sites"), base=base)

    def _build(self, values: dict[str, Any], stream: BytesIO, context: Any, path: str) -> dict[str, Any]:
        present = [(number, *self.known[number]) for number in sorted(self.known)]
        present = [each for each in present if values[each[1]] != each[3]]
        self.UVARINT._build(len(present), stream, context, path)
        for number, name, field, _ in present:
            body = field.build(values[name])
            self.UVARINT._build(number, stream, context, path)
            self.UVARINT._build(len(body), stream, context, path)
            construct.stream_write(stream, body, len(body), path)
        return values


def whole(parser: Any, data: bytes, path: str, **parameters: Any) -> Any:
    """Parse all of the data; raises `TrailingBytesError` if some is left."""
    stream = BytesIO(data)
    value = parser.parse_stream(stream, **parameters)
    if remaining(stream):
        raise TrailingBytesError(f"{path}: {remaining(stream)} bytes are left")
    return value


def remaining(stream: BytesIO) -> int:
    return stream.getbuffer().nbytes - stream.tell()


def refuse_null(path: str, nullable: bool) -> None:
    if not nullable:
        raise UnexpectedNullError(f"{path}: must not be null")


M = TypeVar("M")

TAGS: Final = "_tags"

FIXED: Final = {
    "int8": construct.Int8sb,
    "int16": construct.Int16sb,
    "int32": construct.Int32sb,
    "int64": construct.Int64sb,
    "uint16": construct.Int16ub,
    "uint32": construct.Int32ub,
    "float64": construct.Float64b,
    "bool": construct.Flag,
    "uuid": construct.Bytes(16),
}


class AsMessage(Converted):
    """The fields that a struct's version has, to and from our dataclass."""

    def __init__(self, layout: Layout, fields: Any) -> None:
        super().__init__(fields)
        self.layout = layout

    def _decode(self, values: dict[str, Any], context: Any, path: str) -> Any:
        in_line = {field.name: values[field.name] for field in self.layout.in_line}
        return self.layout.struct(**in_line, **values.get(TAGS, {}))

    def _encode(self, message: Any, context: Any, path: str) -> dict[str, Any]:
        for field in self.layout.missing:
            if not field.ignorable and getattr(message, field.name) != field.default:
                raise EncodeError(f"{path}: version {self.layout.version} has no {field.name}")
        values = {field.name: getattr(message, field.name) for field in self.layout.in_line}
        return values | {TAGS: {field.name: getattr(message, field.name) for field in self.layout.tagged}}


@derived
def struct_of(layout: Layout) -> Any:
    """The construct of one struct, with its tag section if it is flexible."""
    fields = [field.name / field_of(layout, field) for field in layout.in_line]
    if layout.flexible:
        known = {
            field.tag.number: (field.name, field_of(layout, field), field.default)
            for field in layout.tagged
            if field.tag
        }
        fields.append(TAGS / TagSection(known))
    return AsMessage(layout, construct.Struct(*fields))


def field_of(layout: Layout, field: Field) -> Any:
    nullable = layout.is_nullable(field)
    if isinstance(field.type, Fixed):
        return Noted(field.type.name, FIXED[field.type.name])
    if isinstance(field.type, Sized):
        return Noted(field.type.name, _sized(field.type, layout.flexible, nullable))
    if isinstance(field.type, StructOf):
        nested = struct_of(layout.of(field.type.struct))
        return NullableStruct(nested) if nullable else nested
    return _array(layout, field.type, nullable)


def _sized(field_type: Sized, flexible: bool, nullable: bool) -> Any:
    if field_type.name == "string":
        length = COMPACT_LENGTH if flexible else construct.Int16sb
        return Text(Prefixed(length, nullable=nullable, most=MAX_STRING))
    return Prefixed(COMPACT_LENGTH if flexible else construct.Int32sb, nullable=nullable)


def _array(layout: Layout, field_type: ArrayOf, nullable: bool) -> Any:
    return Counted(
        COMPACT_LENGTH if layout.flexible else construct.Int32sb,
        field_of(layout, Field("", field_type.element, None)),
        least=max(1, minimum_size(field_type.element, layout.version, layout.flexible)),
        nullable=nullable,
    )


def parse(cls: type[M], version: int, data: bytes) -> M:
    """What `codec.decode` does, by the description. Raises `DecodeError`."""
    message: M = _parse(cls, version, data, None)
    return message


def build(message: object, version: int) -> bytes:
    """What `codec.encode` does, by the description. Raises `WireError`."""
    try:
        data: bytes = struct_of(message_layout(type(message), version)).build(message)
    except (construct.ConstructError, UnicodeEncodeError) as error:
        raise EncodeError(f"{type(message).__name__} version {version}: {error}") from error
    return data


def sites(cls: type[Any], version: int, data: bytes) -> list[Site]:
    """Where each value, length, count and tag of an encoded message stands, in the order in which they end."""
    found: list[Site] = []
    _parse(cls, version, data, found)
    return found


def _parse(cls: type[Any], version: int, data: bytes, found: list[Site] | None) -> Any:
    try:
        return whole(struct_of(message_layout(cls, version)), data, cls.__name__, sites=found)
    except construct.ConstructError as error:
        raise DecodeError(f"{cls.__name__} version {version}: {error}") from error
