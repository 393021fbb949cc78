"""kafka-python 3 as an oracle: its codec over its own copies of the definitions, which reach down to version 0."""

import warnings
from typing import Any
from uuid import UUID

from highwater.reference.tests.wire.definitions import from_kafka_python, span
from highwater.reference.wire.schema import ArrayOf, FieldType, Layout, StructOf, derived, message_layout

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of importlib.resources, while it imports
    from kafka.protocol.schemas import StructField
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

__all__ = ["DefaultRecordBatch", "DefaultRecordBatchBuilder", "their_struct", "write"]


@derived
def their_struct(cls: type[Any], version: int) -> Any:
    """Return the message class of kafka-python, or None if it lacks that version."""
    definition = from_kafka_python().get(cls.__name__)
    if definition is None or version > span(definition["validVersions"])[-1]:
        return None
    if definition.get("commonStructs"):  # its codec cannot read arrays of these
        return None
    return StructField(definition)


def write(message: Any, version: int) -> bytes:
    layout = message_layout(type(message), version)
    struct = their_struct(type(message), version)
    data: bytes = struct.encode(
        _to_dictionary(message, layout), version=version, compact=layout.flexible, tagged=layout.flexible
    )
    return data


def _to_dictionary(value: Any, layout: Layout) -> dict[str, Any]:
    """By kafka-python's names: they differ in runs of capitals only."""
    present = [*layout.in_line]
    present += [field for field in layout.tagged if getattr(value, field.name) != field.default]
    return {field.name: _plain(getattr(value, field.name), field.type, layout) for field in present}


def _plain(value: Any, kind: FieldType, layout: Layout) -> Any:
    if value is None:
        return None
    if isinstance(kind, ArrayOf):
        return [_plain(each, kind.element, layout) for each in value]
    if isinstance(kind, StructOf):
        return _to_dictionary(value, layout.of(kind.struct))
    return UUID(bytes=value) if kind.name == "uuid" else value
