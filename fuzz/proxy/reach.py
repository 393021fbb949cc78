"""Which filters a message can pass at all, by the fields of its class.

A line whose filter no message of its APIs can pass would never strike: it is a mistake of the user.
"""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from highwater.fuzz.proxy.items import GROUPS, KEY_TYPE, TOPIC_NAMES, TRANSACTIONS, partition_field, topic_field
from highwater.reference.wire.registry import Api
from highwater.reference.wire.schema import ArrayOf, Fixed, StructOf, derived, fields_of


def filters_of(api: Api, *, response: bool) -> frozenset[str]:
    """Return the names of the filters that a request, or a response with its request, can pass."""
    classes = (api.request, api.response) if response else (api.request,)
    return frozenset({"client", *_identities(api.request), *(name for cls in classes for name in _named(cls))})


@derived
def _named(cls: type[Any], in_topic: bool = False) -> frozenset[str]:
    """Return `topic` and `partition` if entries of this class, or of arrays in it, name some."""
    return frozenset(_entries(cls, in_topic))


def _entries(cls: type[Any], in_topic: bool) -> Iterator[str]:
    for name, element in _arrays(cls):
        if not isinstance(element, StructOf):
            if name == TOPIC_NAMES:
                yield "topic"
            elif in_topic and "partition" in name and isinstance(element, Fixed):
                yield "partition"
            continue
        here = in_topic or _has_topic(element.struct)
        if here:
            yield "topic"
            if partition_field(element.struct):
                yield "partition"
        yield from _named(element.struct, here)


def _has_topic(cls: type[Any]) -> bool:
    return topic_field(cls) is not None or "topic_id" in {field.name for field in fields(cls)}


@derived
def _identities(cls: type[Any]) -> frozenset[str]:
    """Return `group` and `transaction` if a request of this class, or an entry of it, has such an id."""
    named = {field.name for field in fields_of(cls) if not _is_array_of_structs(field.type)}
    fields_by_filter = {"group": GROUPS, "transaction": TRANSACTIONS}
    found = {name for name, names in fields_by_filter.items() if named & {*names} or KEY_TYPE in named}
    inner = (_identities(element.struct) for _, element in _arrays(cls) if isinstance(element, StructOf))
    return frozenset(found).union(*inner)


def _arrays(cls: type[Any]) -> Iterator[tuple[str, Any]]:
    return ((field.name, field.type.element) for field in fields_of(cls) if isinstance(field.type, ArrayOf))


def _is_array_of_structs(kind: Any) -> bool:
    return isinstance(kind, ArrayOf) and isinstance(kind.element, StructOf)
