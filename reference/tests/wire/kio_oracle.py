"""kio (Kafka 4.2's definitions, generated code) as an oracle.

kio has its own types for durations, points in time, error codes and ids, and refuses numbers that these cannot be.
Such fields are brought into range first.
"""

import datetime
from dataclasses import Field as KioField
from dataclasses import fields, replace
from importlib import import_module
from io import BytesIO
from types import UnionType
from typing import Any, Final, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from highwater.reference.tests.wire.definitions import snake
from highwater.reference.wire.registry import api_of
from highwater.reference.wire.schema import (
    ArrayOf,
    Field,
    Layout,
    StructOf,
    derived,
    fields_of,
    message_layout,
    schema_of,
)

EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND: Final = datetime.timedelta(milliseconds=1)
MAX_TIME_MS: Final = 1000 << 31
"""kio computes times in floats, which lose milliseconds in the far future."""
KIO_CODES: Final = frozenset(KioErrorCode)


@derived
def kio_class(cls: type[Any], version: int) -> Any:
    """Return the message class of kio, or None if kio lacks that version."""
    if schema_of(cls).api_key < 0:
        place, kind = snake(cls.__name__), "data"
    else:
        place, kind = snake(api_of(cls).name), "request" if cls.__name__.endswith("Request") else "response"
    try:
        module = import_module(f"kio.schema.{place}.v{version}.{kind}")
    except ModuleNotFoundError:
        return None
    return getattr(module, cls.__name__)


def in_range(message: Any, version: int) -> Any:
    """Return the message with values that kio cannot represent replaced."""
    return _struct_in_range(message, message_layout(type(message), version), kio_class(type(message), version))


def _struct_in_range(value: Any, layout: Layout, kio: Any) -> Any:
    changed = {
        field.name: _in_range(getattr(value, field.name), field.type, layout, theirs)
        for field, theirs in pairs(layout, kio)
    }
    return replace(value, **changed)


def _in_range(value: Any, kind: Any, layout: Layout, theirs: KioField[Any]) -> Any:
    if value is None:
        return None
    if isinstance(kind, ArrayOf):
        return tuple(_in_range(each, kind.element, layout, theirs) for each in value)
    if isinstance(kind, StructOf):
        return _struct_in_range(value, layout.of(kind.struct), struct_class(theirs))
    match theirs.metadata["kafka_type"]:
        case "error_code":
            return value if value in KIO_CODES else 0
        case "datetime_i64" | "timedelta_i64":
            return -1 if value == -1 and is_optional(theirs) else abs(value) % MAX_TIME_MS
    return value


def pairs(layout: Layout, kio: Any) -> list[tuple[Field, KioField[Any]]]:
    """kio renames some fields (`max_wait_ms` is `max_wait`), but keeps their order."""
    here = {*layout.in_line, *layout.tagged}
    ours = [field for field in fields_of(layout.struct) if field in here]
    return list(zip(ours, fields(kio), strict=True))


def struct_class(field: KioField[Any]) -> Any:
    kind: Any = field.type
    for _ in range(2):
        if get_origin(kind) is UnionType:
            kind = next(each for each in get_args(kind) if each is not type(None))
        if get_origin(kind) is tuple:
            kind = get_args(kind)[0]
    return kind


def is_optional(field: KioField[Any]) -> bool:
    return type(None) in get_args(field.type)


def to_kio(message: Any, version: int) -> Any:
    return _struct_to_kio(message, message_layout(type(message), version), kio_class(type(message), version))


def _struct_to_kio(value: Any, layout: Layout, kio: Any) -> Any:
    converted = {
        theirs.name: _to_kio(getattr(value, field.name), field.type, layout, theirs)
        for field, theirs in pairs(layout, kio)
    }
    return kio(**converted)


def _to_kio(value: Any, kind: Any, layout: Layout, theirs: KioField[Any]) -> Any:
    if value is None:
        return None
    if isinstance(kind, ArrayOf):
        return tuple(_to_kio(each, kind.element, layout, theirs) for each in value)
    if isinstance(kind, StructOf):
        return _struct_to_kio(value, layout.of(kind.struct), struct_class(theirs))
    match theirs.metadata["kafka_type"]:
        case "error_code":
            return KioErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return value * MILLISECOND
        case "datetime_i64":
            return None if value == -1 and is_optional(theirs) else EPOCH + value * MILLISECOND
        case "uuid":
            return UUID(bytes=value) if any(value) else None
    return value


def write(kio_message: Any) -> bytes:
    out = BytesIO()
    entity_writer(type(kio_message))(out, kio_message)
    return out.getvalue()


def read(cls: type[Any], version: int, data: bytes) -> Any:
    message, end = entity_reader(kio_class(cls, version))(data, 0)
    assert end == len(data)
    return message
