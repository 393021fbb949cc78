"""Every filter against every version of every message: what it strikes, by name and by id, and what it does not.

Messages are built from the table of the wire, with another value in each field. kio, which was generated from Kafka's
definitions, says which of these fields are names of topics, groups and transactions.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from hashlib import md5
from typing import Any, Final, Literal, NamedTuple, get_args, get_type_hints

import pytest

from highwater.fuzz.proxy.faults import Side, parse_fault
from highwater.fuzz.proxy.items import items
from highwater.fuzz.proxy.matching import Subject, UndecidableError, matches
from highwater.fuzz.proxy.reach import carried
from highwater.reference.tests.wire.kio_oracle import kio_class
from highwater.reference.wire.codec import decode, encode
from highwater.reference.wire.registry import APIS, Api
from highwater.reference.wire.schema import (
    ZERO_UUID,
    ArrayOf,
    Field,
    FieldType,
    Fixed,
    Layout,
    Sized,
    StructOf,
    derived,
    message_layout,
)

Path = tuple[str, ...]
By = Literal["name", "id"]
ENTITIES: Final = {"TopicName": "topic", "GroupId": "group", "TransactionalId": "transaction"}
PARTITION: Final = {"partition", "partition_index", "partition_id", "index"}
PARTITIONS: Final = {"partitions", "partition_indexes"}
WITHOUT_KIO: Final[dict[str, dict[Path, str]]] = {
    "LeaderAndIsrRequest": {
        ("ungrouped_partition_states", "topic_name"): "topic",
        ("topic_states", "topic_name"): "topic",
        ("topic_states", "partition_states", "topic_name"): "topic",
    },
    "LeaderAndIsrResponse": {("partition_errors", "topic_name"): "topic"},
    "StopReplicaRequest": {
        ("ungrouped_partitions", "topic_name"): "topic",
        ("topics", "name"): "topic",
        ("topic_states", "topic_name"): "topic",
    },
    "StopReplicaResponse": {("partition_errors", "topic_name"): "topic"},
    "UpdateMetadataRequest": {
        ("ungrouped_partition_states", "topic_name"): "topic",
        ("topic_states", "topic_name"): "topic",
        ("topic_states", "partition_states", "topic_name"): "topic",
    },
    "ControlledShutdownResponse": {("remaining_partitions", "topic_name"): "topic"},
    "AlterPartitionRequest": {("topics", "topic_name"): "topic"},
    "AlterPartitionResponse": {("topics", "topic_name"): "topic"},
    "FindCoordinatorRequest": {("key",): "group", ("coordinator_keys",): "group"},
}
"""Messages, or versions of them, that kio lacks; and keys whose type says what they are."""


class Leaf(NamedTuple):
    """A field without fields of its own: its path, its value, and the filter that it is for, if any."""

    path: Path
    value: Any
    filter: str | None


@derived
def entities(cls: type[Any], api: Api) -> dict[Path, str]:
    """Return the filter of each field of a message that is the name of something."""
    found = dict(WITHOUT_KIO.get(cls.__name__, {}))
    for version in range(api.min_version, api.max_version + 1):
        kio = kio_class(cls, version)
        found.update(_entities(kio, ()) if kio is not None else ())
    return found


def _entities(kio: Any, path: Path) -> Iterator[tuple[Path, str]]:
    hints = get_type_hints(kio)
    for field in fields(kio):
        hint = hints[field.name]
        inner = next((each for each in _arguments(hint) if is_dataclass(each)), None)
        if inner is not None:
            yield from _entities(inner, (*path, field.name))
        else:
            yield from (((*path, field.name), ENTITIES[name]) for name in ENTITIES if name in str(hint))


def _arguments(hint: Any) -> Iterator[Any]:
    yield hint
    for each in get_args(hint):
        yield from _arguments(each)


class Message:
    """A message of a version whose fields all have different values, and these values."""

    def __init__(self, cls: type[Any], api: Api, version: int, by: By) -> None:
        self.leaves: list[Leaf] = []
        self._named, self._by = entities(cls, api), by
        built = self._struct(message_layout(cls, version), (), in_topic=False)
        self.body = decode(cls, version, encode(built, version))

    def of(self, name: str | None) -> list[Leaf]:
        return [leaf for leaf in self.leaves if leaf.filter == name]

    def _struct(self, shape: Layout, path: Path, *, in_topic: bool) -> Any:
        present = [*shape.in_line, *shape.tagged]
        in_topic |= any(field.name == "topic_id" or self._names_topic((*path, field.name)) for field in present)
        has_id = self._by == "id" and any(field.name == "topic_id" for field in present)
        values = {}
        for field in present:
            here = (*path, field.name)
            if has_id and self._names_topic(here):
                values[field.name] = None if shape.is_nullable(field) else ""
            else:
                values[field.name] = self._value(field.type, field, shape, here, in_topic=in_topic)
        return shape.struct(**values)

    def _names_topic(self, path: Path) -> bool:
        return self._named.get(path) == "topic"

    def _value(self, kind: FieldType, field: Field, shape: Layout, path: Path, *, in_topic: bool) -> Any:
        match kind:
            case ArrayOf():
                return (self._value(kind.element, field, shape, path, in_topic=in_topic),)
            case StructOf():
                return self._struct(shape.of(kind.struct), path, in_topic=in_topic)
            case Sized(name="string"):
                return self._leaf(path, ".".join(path), self._named.get(path))
            case Fixed(name="uuid") if field.name == "topic_id":
                return self._leaf(path, md5(str(path).encode()).digest(), "id") if self._by == "id" else ZERO_UUID
            case Fixed(name="int32") if not field.name.endswith("session_epoch"):
                names = PARTITIONS if isinstance(field.type, ArrayOf) else PARTITION
                return self._leaf(path, len(self.leaves) + 1, "partition" if in_topic and path[-1] in names else None)
            case _:
                return field.default if not isinstance(field.type, ArrayOf) else 0

    def _leaf(self, path: Path, value: Any, name: str | None) -> Any:
        self.leaves.append(Leaf(path, value, name))
        return value


def cases() -> Iterator[tuple[Api, Side, int, By]]:
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            for side in get_args(Side):
                yield from ((api, side, version, by) for by in get_args(By))


def built(api: Api, side: Side, version: int, by: By) -> tuple[Message, Subject]:
    cls = api.request if side == "request" else api.response
    message = Message(cls, api, version, by)
    request = message.body if side == "request" else message_layout(api.request, version).struct()
    response = message.body if side == "response" else None
    return message, Subject(api.name, version, side, "app", lambda: request, response)


def passes(name: str, value: object, subject: Subject, topics: dict[bytes, str]) -> bool | None:
    """Return whether a message passes a filter; None if that cannot be decided."""
    try:
        return matches(parse_fault(f"any {subject.side} {name}={value}: close"), subject, topics)
    except UndecidableError:
        return None


def states_unknown_topic(body: Any) -> bool:
    """Return whether a message has a topic or partition of which it has not the name."""
    return any(topic is None for topic, _ in items(body, {}))


def test_each_filter_passes_exactly_the_messages_that_name_its_value() -> None:
    """A name that is in another field, such as that of a setting, is not one of a topic."""
    checked = 0
    for api, side, version, by in cases():
        message, subject = built(api, side, version, by)
        for leaf in (each for each in message.leaves if isinstance(each.value, str)):
            for name in ENTITIES.values():
                expected = leaf.filter == name and (name == "topic" or side == "request")
                undecided = name == "topic" and not expected and states_unknown_topic(message.body)
                found = passes(name, leaf.value, subject, {})
                assert found is (None if undecided else expected), (api.name, side, version, leaf, name)
                checked += 1
    assert checked > 7_000


def test_each_partition_is_found_without_the_name_of_its_topic() -> None:
    for api, side, version, by in cases():
        message, subject = built(api, side, version, by)
        for leaf in (each for each in message.leaves if isinstance(each.value, int)):
            expected = leaf.filter == "partition"
            assert passes("partition", leaf.value, subject, {}) is expected, (api.name, side, version, leaf)


def test_an_id_is_its_topic_once_that_is_known_and_undecided_before() -> None:
    for api, side, version, _ in cases():
        message, subject = built(api, side, version, "id")
        ids = {leaf.value: f"id of {'.'.join(leaf.path)}" for leaf in message.of("id")}
        for id_, name in ids.items():
            where = (api.name, side, version, name)
            assert passes("topic", f'"{name}"', subject, ids) is True, where
            assert passes("topic", "missing", subject, ids) is False, where
            others = {known: other for known, other in ids.items() if known != id_}
            assert passes("topic", f'"{name}"', subject, others) is None, where
            assert passes("topic", "*", subject, {}) is True, where


def test_the_zero_id_is_no_topic() -> None:
    for api, side, version, _ in cases():
        _, subject = built(api, side, version, "name")
        assert passes("topic", "wrong", subject, {ZERO_UUID: "wrong"}) is not True, (api.name, side, version)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
@pytest.mark.parametrize("side", get_args(Side))
def test_a_line_is_accepted_if_and_only_if_some_message_can_pass_its_filters(api: Api, side: Side) -> None:
    for version in range(api.min_version, api.max_version + 1):
        messages = [Message(api.request, api, version, by) for by in get_args(By)]
        if side == "response":
            messages += [Message(api.response, api, version, by) for by in get_args(By)]
        stated = {(name, "name") for message in messages[:2] for name in ("group", "transaction") if message.of(name)}
        stated |= {(name, "name") for each in messages for name in ("topic", "partition") if each.of(name)}
        stated |= {("topic", "id") for each in messages if each.of("id")}
        keys = {("transaction", "name")} if api.name == "FindCoordinator" and version else set()
        assert carried(api, version, response=side == "response") == {("client", "name"), *stated, *keys}, version
