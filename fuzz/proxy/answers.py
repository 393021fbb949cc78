"""Responses with an error code, built for any API and version from the message table.

The code goes where Apache Kafka's own clients look for it: to each partition or other entry if the response has
entries, else to the response as a whole. `_whole` knows what is stated for a whole session or group instead.
"""

from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from typing import Any, Final

from highwater.fuzz.proxy.faults import MessageFault
from highwater.fuzz.proxy.items import (
    Item,
    Keep,
    Topic,
    TopicNames,
    names_topic,
    partition_field,
    topic_field,
    topic_of,
)
from highwater.fuzz.proxy.matching import concerned
from highwater.reference.wire.registry import Api
from highwater.reference.wire.schema import ArrayOf, Field, Layout, StructOf, derived, message_layout

ERRORS: Final = ("error_code", "partition_error_code")
KEYS: Final = (
    ("partition_index", "partition", "index", "partition_id"),
    ("name", "topic", "topic_name", "user"),
    ("topic_id",),
    ("group_id",),
    ("transactional_id",),
    ("resource_type",),
    ("resource_name",),
    ("member_id",),
    ("group_instance_id",),
    ("key",),
)
"""Fields that say what an entry is about. Request and response may call it differently: each row is one meaning."""
UNKNOWN: Final = {
    "base_offset": -1, "log_append_time_ms": -1, "log_start_offset": -1, "high_watermark": -1, "last_stable_offset": -1,
    "offset": -1, "timestamp": -1, "committed_offset": -1, "end_offset": -1, "leader_epoch": -1, "leader_id": -1,
    "committed_leader_epoch": -1, "coordinator_id": -1, "node_id": -1, "producer_epoch": -1, "low_watermark": -1,
}  # fmt: skip
"""What a broker states in an entry with an error, where the protocol's default is another number."""
PARTITION_ERRORS: Final = frozenset({3, 29, 88})
GROUP_ERRORS_SINCE: Final = 2
"""The version of OffsetFetch from which a response has an error of its own; before, each partition has it."""
SESSION_ERRORS: Final = frozenset({70, 71, 103, 106})


def _whole(api: Api, version: int, code: int) -> bool:
    """Return whether the code is about the fetch session, or about the group whose offsets are fetched."""
    if api.name == "Fetch":
        return code in SESSION_ERRORS
    return api.name == "OffsetFetch" and version >= GROUP_ERRORS_SINCE and code not in PARTITION_ERRORS


def error_response(api: Api, version: int, request: Any, code: int) -> Any:
    """Return the response to a request in which everything that it asked for has this error."""
    shape = message_layout(api.response, version)
    return _with_errors(_mirrored(request, shape), shape, code, None, {}, whole=_whole(api, version, code))[0]


@derived
def error_levels(api: Api, version: int) -> frozenset[str]:
    """Return whether a response has errors of its topics, and of its partitions; else it can only fail as a whole."""
    return frozenset(_error_levels(message_layout(api.response, version), in_topic=False))


def _error_levels(shape: Layout, *, in_topic: bool) -> Iterator[str]:
    if in_topic and any(field.name in ERRORS for field in _present(shape)):
        yield from ("topic", "partition") if partition_field(shape.struct) else ("topic",)
    for _, inner in _entries(shape):
        yield from _error_levels(inner, in_topic=in_topic or names_topic(inner.struct))


def scope(fault: MessageFault, api: Api, version: int) -> Keep | None:
    """Return which partitions get the error of a line; None if the whole response does."""
    level = "topic" if fault.filter("partition") is None else "partition"
    return concerned(fault) if level in error_levels(api, version) else None


def with_error(api: Api, version: int, response: Any, code: int, concerns: Keep | None, topics: TopicNames) -> Any:
    """Return a broker's response with this error in the partitions that `concerns` admits; None: everywhere."""
    shape = message_layout(api.response, version)
    return _with_errors(response, shape, code, concerns, topics, whole=concerns is None and _whole(api, version, code))[
        0
    ]


def merged(response: Any, added: Any, topics: TopicNames) -> Any:
    """Return a broker's response with the partitions of another one, which it does not have, added."""
    changed: dict[str, Any] = {}
    for name in (name for name in type(added).__dataclass_fields__ if isinstance(getattr(added, name), tuple)):
        theirs, ours = list(getattr(response, name)), getattr(added, name)
        for entry in (each for each in ours if is_dataclass(each)):
            at = next((n for n, each in enumerate(theirs) if _same_entry(each, entry, topics)), None)
            if at is None:
                theirs.append(entry)
            else:
                theirs[at] = merged(theirs[at], entry, topics)
        changed[name] = tuple(theirs)
    return replace(response, **changed)


def _same_entry(one: Any, other: Any, topics: TopicNames) -> bool:
    number = partition_field(type(one))
    if number is not None and getattr(one, number) != getattr(other, number):
        return False
    names = [name for group in KEYS[2:] for name in group if hasattr(one, name)]
    return topic_of(one, topics) == topic_of(other, topics) and all(
        getattr(one, name) == getattr(other, name) for name in names
    )


# The structure of the response, as the request has it.


def _mirrored(source: Any, shape: Layout, topic: str = "") -> Any:
    """Return a struct of the response: keys as in the request, and an entry for each entry of the request."""
    arrays = dict(_entries(shape))
    values: dict[str, Any] = {
        name: tuple(_mirrored(entry, inner, of) for entry, of in _sources(source, name, inner))
        for name, inner in arrays.items()
    }
    for field in (field for field in _present(shape) if field.name not in arrays):
        if (found := _key(source, field.name, shape)) is not None:
            values[field.name] = found
        elif topic and field.name == topic_field(shape.struct):
            values[field.name] = topic
        elif field.name in UNKNOWN:
            values[field.name] = UNKNOWN[field.name]
    return shape.struct(**values)


def _key(source: Any, name: str, shape: Layout) -> Any:
    """Return the value of a key of the response from an entry of the request, which may be only that value."""
    group = next((each for each in KEYS if name in each), None)
    if group is None:
        return None
    if is_dataclass(source):
        found = next((getattr(source, each) for each in (name, *group) if hasattr(source, each)), None)
        return None if isinstance(found, tuple) else found
    keys = [field for field in _present(shape) if any(field.name in each for each in KEYS)]
    own = next((field for field in keys if isinstance(source, type(field.default))), None)
    return source if own is not None and own.name == name else None


def _sources(source: Any, name: str, inner: Layout, topic: str = "") -> Iterator[tuple[Any, str]]:
    """Yield the entries of the request for an array of the response, each with its topic if an outer entry names it.

    They are of the array of the same name, else of the first array. Entries that lack the partition, or every key, of
    the response's entries stand for the entries within them.
    """
    if not is_dataclass(source):
        return
    values = {each: getattr(source, each) for each in source.__dataclass_fields__}
    arrays = {each: value for each, value in values.items() if isinstance(value, tuple)}
    if name not in arrays and not _has_error(inner):
        return
    for entry in arrays.get(name) or next((value for value in arrays.values() if value), ()):
        if is_dataclass(entry) and not _describes(entry, inner):
            field = topic_field(type(entry))
            yield from _sources(entry, name, inner, (getattr(entry, field) if field else "") or topic)
        else:
            yield entry, topic


def _describes(entry: Any, inner: Layout) -> bool:
    """Return whether an entry of a request has what distinguishes the response's entries."""
    if partition_field(inner.struct) and not partition_field(type(entry)):
        return False
    present = {field.name for field in _present(inner)}
    shared = [names for names in KEYS if present.intersection(names)]
    return not shared or any(hasattr(entry, name) for names in shared for name in names)


def _has_error(shape: Layout) -> bool:
    """Return whether a struct, or an entry within it, has an error code."""
    names = {field.name for field in _present(shape)}
    return bool(names.intersection(ERRORS)) or any(_has_error(inner) for _, inner in _entries(shape))


def _present(shape: Layout) -> tuple[Field, ...]:
    return (*shape.in_line, *shape.tagged)


def _entries(shape: Layout) -> Iterator[tuple[str, Layout]]:
    """Yield the arrays of structs in a struct: the field, and the layout of the entries."""
    for field in _present(shape):
        if isinstance(field.type, ArrayOf) and isinstance(field.type.element, StructOf):
            yield field.name, shape.of(field.type.element.struct)


# The error codes.


def _with_errors(
    message: Any, shape: Layout, code: int, concerns: Keep | None, topics: TopicNames, outer: Topic = "", *, whole: bool
) -> tuple[Any, bool]:
    """Return a struct with the error at its deepest entries, and whether it has got one."""
    topic = topic_of(message, topics, outer)
    changed: dict[str, Any] = {}
    inside = False
    for name, inner in _entries(shape):
        if whole and topic_field(inner.struct):
            changed[name] = ()
            continue
        entries = getattr(message, name) or ()
        pairs = [_with_errors(entry, inner, code, concerns, topics, topic, whole=whole) for entry in entries]
        if pairs:
            changed[name] = tuple(entry for entry, _ in pairs)
        inside |= any(found for _, found in pairs)
    own = next((field.name for field in _present(shape) if field.name in ERRORS), None)
    if inside or own is None or not _concerned(message, shape, concerns, topic):
        return replace(message, **changed), inside
    return shape.struct(**dict(_kept(message, shape)), **{own: code}), True


def _concerned(message: Any, shape: Layout, concerns: Keep | None, topic: Topic) -> bool:
    if concerns is None:
        return True
    number = partition_field(shape.struct)
    item: Item = (topic, getattr(message, number) if number else None)
    return topic != "" and concerns(item)


def _kept(message: Any, shape: Layout) -> Iterator[tuple[str, Any]]:
    """Yield what an entry with an error still states: what it is about, and that everything else is unknown."""
    keys = {name for names in KEYS for name in names}
    for field in _present(shape):
        if field.name in keys:
            yield field.name, getattr(message, field.name)
        elif field.name in UNKNOWN:
            yield field.name, UNKNOWN[field.name]
