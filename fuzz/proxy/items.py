"""What a message is about: its topic partitions, group and transactional id; and the message without some partitions.

Works on every message of the table by the names of its fields.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from highwater.reference.wire.schema import ZERO_UUID, derived

Item = tuple[str, int | None]
TopicNames = Mapping[bytes, str]
Keep = Callable[[Item], bool]
PARTITION: Final = ("partition_index", "partition", "index", "partition_id")
TOPIC: Final = ("topic", "topic_name", "name")
TOPIC_NAMES: Final = "topic_names"
"""The one array of names that are topics."""
GROUPS: Final = ("group_id", "group_ids", "groups", "groups_names")
TRANSACTIONS: Final = ("transactional_id", "transactional_ids", "v3_and_below_transactional_id")
KEY_TYPE: Final = "key_type"
"""The field of FindCoordinator that says what its keys are."""


@derived
def _names(cls: type[Any]) -> frozenset[str]:
    return frozenset(field.name for field in fields(cls))


@derived
def topic_field(cls: type[Any]) -> str | None:
    """Return the field with the topic's name if entries of this class are topics or partitions with a topic."""
    names = _names(cls)
    found = next((name for name in TOPIC if name in names), None)
    if found == "name" and not (partitions_field(cls) or "Topic" in cls.__name__):
        return None
    return found


@derived
def partitions_field(cls: type[Any]) -> str | None:
    """Return the field of a topic's entry that has its partitions."""
    return next((name for name in sorted(_names(cls)) if "partition" in name and _is_array(cls, name)), None)


@derived
def partition_field(cls: type[Any]) -> str | None:
    return next((name for name in PARTITION if name in _names(cls)), None)


def _is_array(cls: type[Any], name: str) -> bool:
    return "tuple[" in str(cls.__annotations__.get(name, ""))


def topic_of(entry: Any, topics: TopicNames) -> str:
    """Return the name of an entry's topic, by its id if it has no name; "" if neither is known."""
    field = topic_field(type(entry))
    name: str = (getattr(entry, field) if field else "") or ""
    return name or topics.get(getattr(entry, "topic_id", ZERO_UUID), "")


def items(message: Any, topics: TopicNames) -> Iterator[Item]:
    """Yield each topic and partition that a message names; the partition is None for an entry that has none."""
    for entry, item in _entries(message, topics, ""):
        if not is_dataclass(entry) or partitions_field(type(entry)) is None:
            yield item


def _entries(message: Any, topics: TopicNames, topic: str) -> Iterator[tuple[Any, Item]]:
    for field in fields(message):
        value = getattr(message, field.name)
        numbers = isinstance(value, tuple) and topic and "partition" in field.name
        for entry in value if isinstance(value, tuple) else ():
            if not is_dataclass(entry):
                if numbers and isinstance(entry, int):
                    yield entry, (topic, entry)
                elif field.name == TOPIC_NAMES:
                    yield entry, (entry, None)
                continue
            here = topic_of(entry, topics) or topic
            number = partition_field(type(entry))
            if here:
                yield entry, (here, getattr(entry, number) if number else None)
            yield from _entries(entry, topics, here)


def without(message: Any, dropped: Keep, topics: TopicNames, topic: str = "") -> Any:
    """Return the message without the partitions for which `dropped` is true, and without topics that have none left."""
    changed: dict[str, Any] = {}
    for field in fields(message):
        value = getattr(message, field.name)
        if isinstance(value, tuple) and value:
            kept = tuple(each for entry in value for each in _kept(entry, field.name, dropped, topics, topic))
            if kept != value:
                changed[field.name] = kept
    return replace(message, **changed) if changed else message


def _kept(entry: Any, name: str, dropped: Keep, topics: TopicNames, topic: str) -> Iterator[Any]:
    if not is_dataclass(entry):
        item: Item | None = (topic, entry) if topic and "partition" in name and isinstance(entry, int) else None
        if not (item and dropped(item)) and not (name == TOPIC_NAMES and dropped((entry, None))):
            yield entry
        return
    here = topic_of(entry, topics) or topic
    number = partition_field(type(entry))
    if here and number and dropped((here, getattr(entry, number))):
        return
    if here and not number and partitions_field(type(entry)) is None and dropped((here, None)):
        return
    remaining = without(entry, dropped, topics, here)
    within = partitions_field(type(entry)) if here else None
    if not (within and getattr(entry, within) and not getattr(remaining, within)):
        yield remaining


def text_of(message: Any, names: tuple[str, ...]) -> set[str]:
    """Return the values of these fields anywhere in a message, such as its group ids."""
    found: set[str] = set()
    for field in fields(message):
        value = getattr(message, field.name)
        if field.name in names:
            found.update(value if isinstance(value, tuple) else [value] if isinstance(value, str) else [])
        for entry in value if isinstance(value, tuple) else ():
            if is_dataclass(entry):
                found |= text_of(entry, names)
    return {each for each in found if isinstance(each, str)}
