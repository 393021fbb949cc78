"""Every message in every version as a construct, derived from the annotations.

This is a readable and slow description of the format. Tests compare the faster `codec` with it. A construct also knows
the position of every value: see `sites`.
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
# The protocol's types as constructs, with limits that the standard constructs do not have.
#
# The standard constructs accept unbounded varints, two million empty structs, and (compiled) negative lengths. Here a
# varint has at most 32 bits, a count must fit into the remaining bytes, and null is a separate value.
#
# The parser can record every length, count, number and string as a `Site`, for a fuzzer to mutate.


@dataclass(frozen=True, slots=True)
class Site:
    """The position of a value in bytes; `kind` is the type's name, or `length`, `count`, `null`, `tag`."""

    path: str
    kind: str
    start: int
    end: int


class Leaf(construct.Construct):  # type: ignore[misc] # construct has no annotations
    """Base class of constructs without parts."""


class Wrapper(construct.Subconstruct):  # type: ignore[misc]
    """Base class of constructs that contain another one."""


class Converted(construct.Adapter):  # type: ignore[misc]
    """Base class of constructs that convert the value of another one."""


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
"""A length encoded plus one; 0 is null, decoded as -1."""


class Recorded(Wrapper):
    """Records the site of the wrapped value, if the parse was started with a list of `sites`."""

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
    """Bytes with a length prefix, which is -1 for null."""

    def __init__(self, length: Any, *, nullable: bool, most: int | None = None) -> None:
        super().__init__()
        self.length, self.nullable, self.most = Recorded("length", length), nullable, most

    def _parse(self, stream: BytesIO, context: Any, path: str) -> bytes | None:
        length = self.length._parsereport(stream, context, path)
        if length == -1:
            check_null(path, self.nullable)
            return None
        if length < 0 or (self.most is not None and length > self.most):
            raise InvalidLengthError(f"{path}: length {length}")
        data: bytes = construct.stream_read(stream, length, path)
        return data

    def _build(self, value: bytes | None, stream: BytesIO, context: Any, path: str) -> bytes | None:
        if value is None:
            check_null(path, self.nullable)
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


class Counted(Wrapper):
    """Elements with a count prefix, which is -1 for null; `least` is the minimum size of an element in bytes."""

    def __init__(self, count: Any, element: Any, *, least: int, nullable: bool) -> None:
        super().__init__(element)
        self.count, self.least, self.nullable = Recorded("count", count), least, nullable

    def _parse(self, stream: BytesIO, context: Any, path: str) -> tuple[Any, ...] | None:
        count = self.count._parsereport(stream, context, path)
        if count == -1:
            check_null(path, self.nullable)
            return None
        if not 0 <= count * self.least <= remaining(stream):
            raise InvalidLengthError(f"{path}: {count} elements in {remaining(stream)} bytes")
        return tuple(self.subcon._parsereport(stream, context, f"{path} -> [{index}]") for index in range(count))

    def _build(self, values: tuple[Any, ...] | None, stream: BytesIO, context: Any, path: str) -> Any:
        if values is None:
            check_null(path, self.nullable)
        self.count._build(-1 if values is None else len(values), stream, context, path)
        for index, value in enumerate(values or ()):
            self.subcon._build(value, stream, context, f"{path} -> [{index}]")
        return values


class NullableStruct(Wrapper):
    """A struct after one byte: 1 if it is present, -1 for null."""

    PRESENT: Final = Recorded("null", construct.Int8sb)

    def _parse(self, stream: BytesIO, context: Any, path: str) -> Any:
        present = self.PRESENT._parsereport(stream, context, path)
        if present not in (1, -1):
            raise InvalidLengthError(f"{path}: the presence byte is {present}, not 1 or -1")
        return self.subcon._parsereport(stream, context, path) if present == 1 else None

    def _build(self, value: Any, stream: BytesIO, context: Any, path: str) -> Any:
        self.PRESENT._build(-1 if value is None else 1, stream, context, path)
        if value is not None:
            self.subcon._build(value, stream, context, path)
        return value


class TagSection(Leaf):
    """Tagged fields (KIP-482) as a dict by name; unknown ones are skipped, default values are not written."""

    UVARINT: Final = Recorded("tag", Uvarint())

    def __init__(self, known: dict[int, tuple[str, Any, Any]]) -> None:
        """`known` maps tag numbers to name, construct and default."""
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
        present = [field for field in present if values[field[1]] != field[3]]
        self.UVARINT._build(len(present), stream, context, path)
        for number, name, field, _ in present:
            body = field.build(values[name])
            self.UVARINT._build(number, stream, context, path)
            self.UVARINT._build(len(body), stream, context, path)
            construct.stream_write(stream, body, len(body), path)
        return values


def whole(parser: Any, data: bytes, path: str, **parameters: Any) -> Any:
    """Parse all of the data. Raises `TrailingBytesError` if bytes are left."""
    stream = BytesIO(data)
    value = parser.parse_stream(stream, **parameters)
    if remaining(stream):
        raise TrailingBytesError(f"{path}: {remaining(stream)} bytes are left over")
    return value


def remaining(stream: BytesIO) -> int:
    return stream.getbuffer().nbytes - stream.tell()


def check_null(path: str, nullable: bool) -> None:
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
    """Converts the fields of a struct's version to and from its dataclass."""

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
    """Return the construct of a struct, with its tag section if the version is flexible."""
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
        return Recorded(field.type.name, FIXED[field.type.name])
    if isinstance(field.type, Sized):
        return Recorded(field.type.name, _sized(field.type, layout.flexible, nullable))
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
    """Decode a message as `codec.decode` does, with constructs. Raises `DecodeError`."""
    message: M = _parse(cls, version, data, None)
    return message


def build(message: object, version: int) -> bytes:
    """Encode a message as `codec.encode` does, with constructs. Raises `WireError`."""
    try:
        data: bytes = struct_of(message_layout(type(message), version)).build(message)
    except (construct.ConstructError, UnicodeEncodeError) as error:
        raise EncodeError(f"{type(message).__name__} version {version}: {error}") from error
    return data


def sites(cls: type[Any], version: int, data: bytes) -> list[Site]:
    """Return the sites of all values, lengths, counts and tags of an encoded message, ordered by their ends."""
    found: list[Site] = []
    _parse(cls, version, data, found)
    return found


def _parse(cls: type[Any], version: int, data: bytes, found: list[Site] | None) -> Any:
    try:
        return whole(struct_of(message_layout(cls, version)), data, cls.__name__, sites=found)
    except construct.ConstructError as error:
        raise DecodeError(f"{cls.__name__} version {version}: {error}") from error
