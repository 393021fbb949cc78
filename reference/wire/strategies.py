"""Hypothesis strategies for every message in every version, derived from the annotations.

Values are often at the limits of their types. A field that the version lacks has its default, so that every generated
message can be encoded and decodes to an equal one.
"""

from typing import Any, Final, TypeVar

from hypothesis import strategies as st

from highwater.reference.wire.schema import ArrayOf, Field, FieldType, Layout, StructOf, derived, message_layout

M = TypeVar("M")

MAX_ELEMENTS: Final = 2
MAX_BYTES: Final = 200
"""Longer than 127, so that compact lengths of two bytes occur."""


def messages(cls: type[M], version: int) -> st.SearchStrategy[M]:
    """Return a strategy of messages that `codec.encode` accepts in this version."""
    strategy: st.SearchStrategy[M] = _struct(message_layout(cls, version))
    return strategy


@derived
def _struct(layout: Layout) -> st.SearchStrategy[Any]:
    fields = {field.name: _field(layout, field) for field in (*layout.in_line, *layout.tagged)}
    return st.builds(layout.struct, **fields)


def _field(layout: Layout, field: Field) -> st.SearchStrategy[Any]:
    values = _values(layout, field.type)
    if field.tag or layout.is_nullable(field):
        values = st.one_of(st.just(field.default), values)
    return st.one_of(st.none(), values) if layout.is_nullable(field) else values


def _values(layout: Layout, field_type: FieldType) -> st.SearchStrategy[Any]:
    if isinstance(field_type, StructOf):
        return _struct(layout.of(field_type.struct))
    if isinstance(field_type, ArrayOf):
        return st.lists(_values(layout, field_type.element), max_size=MAX_ELEMENTS).map(tuple)
    return SCALARS[field_type.name]


def _integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    low = -(1 << (bits - 1)) if signed else 0
    high = low + (1 << bits) - 1
    return st.one_of(st.sampled_from([low, max(low, -1), 0, 1, high]), st.integers(low, high))


SCALARS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "bool": st.booleans(),
    "int8": _integers(8),
    "int16": _integers(16),
    "int32": _integers(32),
    "int64": _integers(64),
    "uint16": _integers(16, signed=False),
    "uint32": _integers(32, signed=False),
    "float64": st.floats(allow_nan=False),
    "uuid": st.one_of(st.just(bytes(16)), st.binary(min_size=16, max_size=16)),
    "string": st.one_of(st.text(max_size=8), st.integers(0, MAX_BYTES).map(lambda size: "x" * size)),
    "bytes": st.one_of(st.binary(max_size=8), st.integers(0, MAX_BYTES).map(bytes)),
}
SCALARS["records"] = SCALARS["bytes"]
