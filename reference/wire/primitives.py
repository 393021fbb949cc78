"""The protocol's types as construct sees them, each with the limits that construct's own lack.

Stock construct reads unbounded varints, two million empty structs, and (compiled) negative lengths without complaint.
Here a varint has at most 32 bits, a count must fit into the bytes that remain, and null is a value of its own.

Every length, count, number and text may be noted as a `Site` while it is parsed: that is where a fuzzer mutates.
"""

from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

import construct

from reference.wire.errors import (
    InvalidLengthError,
    InvalidStringError,
    InvalidTagError,
    InvalidVarintError,
    TrailingBytesError,
    UnexpectedNullError,
)


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
