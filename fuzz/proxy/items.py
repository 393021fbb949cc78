"""What a message is about: its topic partitions, group and transactional id; and the message without some partitions.

Works on every message of the table by the names of its fields.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from highwater.reference.wire.schema import ZERO_UUID, derived

Topic = str | None
"""The name of a topic; "" outside of a topic, None in one of which only an unknown id is stated."""
Item = tuple[Topic, int | None]
TopicNames = Mapping[bytes, str]
Keep = Callable[[Item], bool]
PARTITION: Final = ("partition_index", "partition", "index", "partition_id")
TOPIC: Final = ("topic", "topic_name", "name")
TOPIC_NAMES: Final = frozenset({"topic_names", "subscribed_topic_names", "source_topics", "repartition_sink_topics"})
"""The arrays of names that are topics."""
NUMBERS: Final = frozenset({"partitions", "partition_indexes"})
"""The arrays of numbers that are partitions, within a topic."""
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
    of_topic = partitions_field(cls) or ("Topic" in cls.__name__ and "Config" not in cls.__name__)
    return None if found == "name" and not of_topic else found


@derived
def names_topic(cls: type[Any]) -> bool:
    """Return whether entries of this class name a topic, or state its id."""
    return topic_field(cls) is not None or "topic_id" in _names(cls)


@derived
def partitions_field(cls: type[Any]) -> str | None:
    """Return the field of a topic's entry that has its partitions."""
    return next((name for name in sorted(_names(cls)) if "partition" in name and _is_array(cls, name)), None)


@derived
def partition_field(cls: type[Any]) -> str | None:
    return next((name for name in PARTITION if name in _names(cls)), None)


def _is_array(cls: type[Any], name: str) -> bool:
    return "tuple[" in str(cls.__annotations__.get(name, ""))


def topic_of(entry: Any, topics: TopicNames, outer: Topic = "") -> Topic:
    """Return the topic of an entry, by its id if it has no name; that of the entry around it if it has neither.

    The zero id is no id: versions that name topics have it, as do topics that do not exist.
    """
    field = topic_field(type(entry))
    if field and (name := getattr(entry, field)):
        return str(name)
    topic_id = getattr(entry, "topic_id", ZERO_UUID)
    if topic_id != ZERO_UUID:
        return topics.get(topic_id)
    return outer if outer != "" or not names_topic(type(entry)) else None


def named_ids(message: Any) -> Iterator[tuple[bytes, str]]:
    """Yield ids of topics and their names, where a message states both; an entry with an error states neither."""
    for entry in structs(message):
        field, topic_id = topic_field(type(entry)), getattr(entry, "topic_id", ZERO_UUID)
        name = getattr(entry, field) if field else ""
        if name and topic_id != ZERO_UUID and not getattr(entry, "error_code", 0):
            yield topic_id, name


def structs(message: Any) -> Iterator[Any]:
    """Yield a message and every struct within it."""
    yield message
    for _, entry in _values(message):
        if is_dataclass(entry):
            yield from structs(entry)


def _values(message: Any) -> Iterator[tuple[str, Any]]:
    """Yield each entry of the arrays of a message, and each struct in it, with the name of its field."""
    for field in fields(message):
        value = getattr(message, field.name)
        for entry in value if isinstance(value, tuple) else (value,) if is_dataclass(value) else ():
            yield field.name, entry


def items(message: Any, topics: TopicNames, outer: Topic = "") -> Iterator[Item]:
    """Yield each topic and partition that a message names; the partition is None for a topic that names none."""
    for name, entry in _values(message):
        if not is_dataclass(entry):
            if (item := _item_of(name, entry, outer)) is not None:
                yield item
            continue
        topic, number = topic_of(entry, topics, outer), partition_field(type(entry))
        if topic != "" and (number or not has_partitions(entry)):
            yield topic, getattr(entry, number) if number else None
        yield from items(entry, topics, topic)


def _item_of(name: str, entry: Any, topic: Topic) -> Item | None:
    """Return what an entry of an array that is no struct names: a topic, or a partition of the topic around it."""
    if name in TOPIC_NAMES and isinstance(entry, str):
        return entry, None
    return (topic, entry) if topic != "" and name in NUMBERS and isinstance(entry, int) else None


def has_partitions(entry: Any) -> bool:
    """Return whether a topic's entry names at least one partition."""
    field = partitions_field(type(entry))
    return bool(field and getattr(entry, field))


def without(message: Any, dropped: Keep, topics: TopicNames, outer: Topic = "") -> Any:
    """Return the message without the partitions for which `dropped` is true, and without topics that have none left."""
    changed: dict[str, Any] = {}
    for field in fields(message):
        value = getattr(message, field.name)
        if isinstance(value, tuple) and value:
            kept = tuple(each for entry in value for each in _kept(entry, field.name, dropped, topics, outer))
            if kept != value:
                changed[field.name] = kept
    return replace(message, **changed) if changed else message


def _kept(entry: Any, name: str, dropped: Keep, topics: TopicNames, outer: Topic) -> Iterator[Any]:
    if not is_dataclass(entry):
        item = _item_of(name, entry, outer)
        if item is None or not dropped(item):
            yield entry
        return
    topic, number = topic_of(entry, topics, outer), partition_field(type(entry))
    if topic == "":
        yield without(entry, dropped, topics)
        return
    if (number or not has_partitions(entry)) and dropped((topic, getattr(entry, number) if number else None)):
        return
    remaining = without(entry, dropped, topics, topic)
    if has_partitions(remaining) or not has_partitions(entry):
        yield remaining


def text_of(message: Any, names: tuple[str, ...]) -> set[str]:
    """Return the values of these fields anywhere in a message, such as its group ids."""
    values = (getattr(each, name) for each in structs(message) for name in names if hasattr(each, name))
    texts = {text for value in values for text in (value if isinstance(value, tuple) else (value,))}
    return {text for text in texts if isinstance(text, str)}
