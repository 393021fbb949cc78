"""Which filters a message can pass at all, by the fields of its class in a version.

A line whose filter no message of its APIs can pass would never strike: it is a mistake of the user.
"""

from collections.abc import Iterator
from typing import Any, Final, Literal

from highwater.fuzz.proxy.items import (
    GROUPS,
    KEY_TYPE,
    NUMBERS,
    TOPIC_NAMES,
    TRANSACTIONS,
    names_topic,
    partition_field,
    topic_field,
)
from highwater.reference.wire.registry import Api
from highwater.reference.wire.schema import ArrayOf, Field, FieldType, Layout, StructOf, derived, message_layout

How = Literal["name", "id"]
Carried = tuple[str, How]
"""A filter, and how a message states what it is about."""
CLIENT: Final[Carried] = ("client", "name")
IDENTITIES: Final = {"group": GROUPS, "transaction": (*TRANSACTIONS, KEY_TYPE)}


@derived
def carried(api: Api, version: int, *, response: bool) -> frozenset[Carried]:
    """Return what a request, or a response with its request, states in a version: ("topic", "id") and so on."""
    request = message_layout(api.request, version)
    bodies = (request, message_layout(api.response, version)) if response else (request,)
    return frozenset({CLIENT, *_identities(request), *(found for body in bodies for found in _items(body))})


@derived
def filters_of(api: Api, versions: tuple[int, int], *, response: bool) -> frozenset[str]:
    """Return the names of the filters that a request, or a response with its request, can pass in some version."""
    known = range(max(api.min_version, versions[0]), min(api.max_version, versions[1]) + 1)
    return frozenset(name for version in known for name, _ in carried(api, version, response=response))


def carries(api: Api) -> str:
    """Return the versions in which messages pass each filter, such as `topic 0-12, topic by id 13`."""
    found: dict[tuple[str, How, bool], list[int]] = {}
    for version in range(api.min_version, api.max_version + 1):
        request = carried(api, version, response=False)
        for name, how in carried(api, version, response=True) - {CLIENT}:
            found.setdefault((name, how, (name, how) not in request), []).append(version)
    texts = (
        f"{'(' * reply}{name}{' by id' * (how == 'id')} {_range(versions)}{')' * reply}"
        for (name, how, reply), versions in sorted(found.items())
    )
    return "".join(f", {text}" for text in texts)


def _range(versions: list[int]) -> str:
    """Return a range of versions, in which there are no gaps."""
    return f"{versions[0]}-{versions[-1]}" if len(versions) > 1 else str(versions[0])


def teaches(api: Api, version: int, *, response: bool) -> bool:
    """Return whether a message states ids of topics together with their names."""
    return _teaches(message_layout(api.response if response else api.request, version))


@derived
def _teaches(shape: Layout) -> bool:
    names = {field.name for field in _present(shape)}
    return {"topic_id", topic_field(shape.struct)} <= names or any(_teaches(inner) for _, inner in _structs(shape))


def _items(shape: Layout, in_topic: bool = False) -> Iterator[Carried]:
    """Yield how the entries of a struct name topics and partitions."""
    for field in _present(shape):
        if field.name in TOPIC_NAMES and isinstance(field.type, ArrayOf):
            yield "topic", "name"
        if in_topic and field.name in NUMBERS and isinstance(field.type, ArrayOf):
            yield "partition", "name"
    for _, inner in _structs(shape):
        names = {field.name for field in _present(inner)}
        here = in_topic or names_topic(inner.struct)
        if topic_field(inner.struct) in names:
            yield "topic", "name"
        if "topic_id" in names:
            yield "topic", "id"
        if here and partition_field(inner.struct) in names:
            yield "partition", "name"
        yield from _items(inner, here)


def _identities(shape: Layout) -> Iterator[Carried]:
    """Yield `group` and `transaction` if a request, or an entry of it, has such an id."""
    texts = {field.name for field in _present(shape) if not _struct_in(field.type)}
    yield from ((name, "name") for name, fields in IDENTITIES.items() if texts.intersection(fields))
    if any(field.name == KEY_TYPE for field in (*_present(shape), *shape.missing)):  # without one, the key is a group
        yield "group", "name"
    for _, inner in _structs(shape):
        yield from _identities(inner)


def _present(shape: Layout) -> tuple[Field, ...]:
    return (*shape.in_line, *shape.tagged)


def _structs(shape: Layout) -> Iterator[tuple[str, Layout]]:
    for field in _present(shape):
        if (cls := _struct_in(field.type)) is not None:
            yield field.name, shape.of(cls)


def _struct_in(kind: FieldType) -> type[Any] | None:
    """Return the class of a struct, or of the entries of an array of structs."""
    element = kind.element if isinstance(kind, ArrayOf) else kind
    return element.struct if isinstance(element, StructOf) else None
