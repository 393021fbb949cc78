"""Every message in every version as a construct, made from the annotations.

This is the readable and slow description of the format. `codec` is faster by joining and skipping steps, and tests
hold it to this. A construct also knows where each value stands: see `sites`.
"""

from typing import Any, Final, TypeVar

import construct

from reference.wire.errors import DecodeError, EncodeError
from reference.wire.primitives import (
    COMPACT_LENGTH,
    Converted,
    Counted,
    Noted,
    NullableStruct,
    Prefixed,
    Site,
    TagSection,
    Text,
    whole,
)
from reference.wire.schema import (
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
