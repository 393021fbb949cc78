"""The annotations agree with Kafka's message definitions in every name and version."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from highwater.reference.tests.wire.cases import CLASSES
from highwater.reference.tests.wire.definitions import (
    Definition,
    default,
    from_jar,
    from_kafka_python,
    snake,
    span,
    structs,
)
from highwater.reference.tests.wire.interpreter import FORMATS
from highwater.reference.wire.registry import APIS
from highwater.reference.wire.schema import ArrayOf, Field, Fixed, Sized, StructOf, Versions, fields_of, schema_of

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Table:
    """One definition as rows, each restricted to the versions of its parent."""

    definition: Definition

    def rows(self, valid: range) -> list[Row]:
        return list(self._rows(self.definition["fields"], valid, self.definition["name"]))

    def _rows(self, fields: list[Definition], parent: range, path: str) -> Iterator[Row]:
        for field in fields:
            kind = field["type"]
            present = [version for version in parent if version in span(field["versions"])]
            if not present:
                continue
            here = f"{path}.{snake(field['name'])}"
            element = kind.removeprefix("[]")
            is_struct = element not in FORMATS and element not in ("string", "bytes", "records")
            yield (
                here,
                kind.replace(element, "struct") if is_struct else kind,
                present,
                [version for version in present if version in span(field.get("nullableVersions"))],
                [version for version in present if version in span(field.get("taggedVersions"))],
                field.get("tag"),
                None if is_struct and kind == element else default(field),
            )
            if is_struct:
                nested = field.get("fields") or structs(self.definition)[element]
                yield from self._rows(nested, range(present[0], present[-1] + 1), here)


def our_rows(cls: type[Any], parent: range, path: str) -> Iterator[Row]:
    for field in fields_of(cls):
        present = [version for version in parent if version in field.versions]
        if not present:
            continue
        here = f"{path}.{field.name}"
        kind, nested = our_kind(field)
        yield (
            here,
            kind,
            present,
            [version for version in present if version in field.nullable],
            [version for version in present if field.tag and version in field.tag.versions],
            field.tag.number if field.tag else None,
            None if kind == "struct" else field.default,
        )
        if nested is not None:
            yield from our_rows(nested, range(present[0], present[-1] + 1), here)


def our_kind(field: Field) -> tuple[str, type[Any] | None]:
    is_array = isinstance(field.type, ArrayOf)
    element = field.type.element if isinstance(field.type, ArrayOf) else field.type
    prefix = "[]" if is_array else ""
    if isinstance(element, StructOf):
        return f"{prefix}struct", element.struct
    assert isinstance(element, Fixed | Sized)
    return prefix + element.name, None


def struct_names(definition: Definition) -> set[str]:
    def walk(fields: list[Definition]) -> Iterator[str]:
        for field in fields:
            if field.get("fields"):
                yield field["type"].removeprefix("[]")
                yield from walk(field["fields"])

    return {*walk(definition["fields"]), *structs(definition)}


def our_struct_names(cls: type[Any]) -> set[str]:
    names = set()
    for field in fields_of(cls):
        nested = our_kind(field)[1]
        if nested is not None:
            names |= {nested.__name__, *our_struct_names(nested)}
    return names


def check_against(cls: type[Any], definition: Definition) -> None:
    ours = schema_of(cls).versions
    stated = span(definition["validVersions"])
    common = range(max(ours.first, stated[0]), min(ours.last, stated[-1]) + 1)
    expected = sorted(Table(definition).rows(common), key=repr)
    assert sorted(our_rows(cls, common, cls.__name__), key=repr) == expected
    assert [v for v in common if v in schema_of(cls).flexible] == [
        v for v in common if v in span(definition["flexibleVersions"])
    ]
    assert schema_of(cls).api_key == definition.get("apiKey", -1)


@pytest.mark.skipif(not from_jar(), reason="the kafka-clients jar cannot be had here")
@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_annotation_agrees_with_the_jar(cls: type[Any]) -> None:
    definition = from_jar()[cls.__name__]
    check_against(cls, definition)
    assert set(span(definition["validVersions"])) <= {
        version for version in range(100) if version in schema_of(cls).versions
    }


@pytest.mark.parametrize(
    "cls", [cls for cls in CLASSES if cls.__name__ in from_kafka_python()], ids=lambda cls: cls.__name__
)
def test_every_annotation_agrees_with_kafka_python(cls: type[Any]) -> None:
    check_against(cls, from_kafka_python()[cls.__name__])


@pytest.mark.skipif(not from_jar(), reason="the kafka-clients jar cannot be had here")
@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_ignorable_fields_agree_with_the_definitions(cls: type[Any]) -> None:
    """kafka-python's files have newer fields; a field is ignorable if either source says so."""
    sources = [source[cls.__name__] for source in (from_jar(), from_kafka_python()) if cls.__name__ in source]
    expected = {path for source in sources for path in ignorable_paths(source["fields"], source, cls.__name__)}
    assert set(our_ignorable_paths(cls, cls.__name__)) == expected


def ignorable_paths(fields: list[Definition], definition: Definition, path: str) -> Iterator[str]:
    for field in fields:
        here = f"{path}.{snake(field['name'])}"
        if field.get("ignorable") is True:
            yield here
        element = field["type"].removeprefix("[]")
        yield from ignorable_paths(field.get("fields") or structs(definition).get(element, []), definition, here)


def our_ignorable_paths(cls: type[Any], path: str) -> Iterator[str]:
    for field in fields_of(cls):
        if field.ignorable:
            yield f"{path}.{field.name}"
        nested = our_kind(field)[1]
        if nested is not None:
            yield from our_ignorable_paths(nested, f"{path}.{field.name}")


USED_TWICE = {
    "IncrementalAlterConfigsResource": "AlterConfigsResource",
    "IncrementalAlterConfigsResourceResponse": "AlterConfigsResourceResponse",
    "IncrementalAlterableConfig": "AlterableConfig",
    "AlterEntityData": "EntityData",
    "HeartbeatAssignment": "Assignment",
    "HeartbeatTopicPartitions": "TopicPartitions",
    "ListedTransactionState": "TransactionState",
    "QuorumPartition": "PartitionData",
    "QuorumTopic": "TopicData",
    "DescribedQuorumPartition": "PartitionData",
    "DescribedQuorumTopic": "TopicData",
    "QuorumListener": "Listener",
    "QuorumNode": "Node",
    "SharePartitionData": "PartitionData",
    "AcknowledgedPartition": "PartitionData",
    "DescribedSubtopology": "Subtopology",
    "DescribedTopology": "Topology",
    **{
        f"{ours}Offsets{part}": part
        for ours in ("Describe", "Described", "Alter", "Altered", "Delete", "Deleted")
        for part in ("Partition", "Topic", "Group")
    },
}
"""Kafka uses one name for structs of two messages, which are in one module here."""


@pytest.mark.skipif(not from_jar(), reason="the kafka-clients jar cannot be had here")
@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_struct_names_agree_with_the_definitions(cls: type[Any]) -> None:
    """If request and response of one API share a struct name, the message name is its prefix."""
    names = struct_names(from_jar()[cls.__name__])
    ours = {USED_TWICE.get(name, name) for name in our_struct_names(cls)}
    ours = {name.removeprefix(cls.__name__) or name for name in ours}
    assert ours == {name.removeprefix(cls.__name__) or name for name in names}


def test_request_and_response_have_the_same_versions() -> None:
    for api in APIS.values():
        assert schema_of(api.request) == schema_of(api.response)
        assert api.request.__name__ == f"{api.name}Request"
        assert api.response.__name__ == f"{api.name}Response"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0-12", Versions(0, 12)), ("3", Versions(3, 3)), ("9+", Versions(9)), ("none", Versions(1, 0))],
)
def test_version_ranges_are_parsed(text: str, expected: Versions) -> None:
    assert Versions.parse(text) == expected
    assert [version in expected for version in range(20)] == [version in span(text) for version in range(20)]
