"""The tables of rows: every name in them is known, and messages are read as they say."""

from collections.abc import Iterator
from typing import Any

import pytest

from highwater.conformance.cases.fields.checks import CHECKS
from highwater.conformance.cases.fields.reading import FUNCTIONS, Each, Spec, parse, read
from highwater.conformance.cases.fields.receivers import RECEIVERS, SENDERS
from highwater.conformance.cases.fields.tables import COMMON_ROWS, TABLES, Table
from highwater.conformance.cases.fields.values import CONSTANTS, OPERATORS, PER_REQUEST, PRODUCERS
from highwater.conformance.cases.fields.world import CLEANERS, World
from highwater.conformance.client.requests import request
from highwater.reference.wire.schema import fields_of

NAMED = {"number", "producer", "existing_id", "cluster", *CONSTANTS, *PER_REQUEST, *dir(World)}
TABLE = pytest.mark.parametrize("table", [pytest.param(table, id=name) for name, table in TABLES.items()])


def texts(value: Any) -> Iterator[str]:
    """Yield every text in a value, also inside of an answer."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from texts(each)
    elif isinstance(value, list | tuple | frozenset):
        for each in value:
            yield from texts(each)


def functions(spec: Spec) -> Iterator[str]:
    for part in spec:
        if isinstance(part, Each):
            yield from functions(part.inner)
        elif part.kind == "@":
            yield part.name


@TABLE
def test_every_name_in_a_table_is_known(table: Table) -> None:
    assert table.to in {*RECEIVERS, *SENDERS}
    assert set(table.leaves) <= CLEANERS.keys()
    assert {group.include for group in (*table.item_rows, *table.request_rows)} <= {"", *COMMON_ROWS}
    for row in table.rows():
        assert not row.stored or row.stored[0] in CHECKS, row.name
        assert row.producer in PRODUCERS, row.name
        assert set(functions(parse(row.read))) <= FUNCTIONS.keys(), row.name
    values = [table.usual, table.item, *((row.changes, row.answer, row.others) for row in table.rows())]
    for text in texts(values):
        if text.startswith("$"):
            name, *operators = text[1:].split(" ")
            assert name.partition(".")[0] in NAMED, text
            assert set(operators) <= OPERATORS.keys(), text
        elif text.startswith("~"):
            assert text[1:] in OPERATORS, text


@TABLE
def test_a_row_changes_fields_of_its_request(table: Table) -> None:
    known = {field.name for field in fields_of(table.request)}
    for row in table.rows():
        assert row.is_item or row.changes.keys() <= known | {"items", "apart"}, row.name


@TABLE
def test_no_answer_is_the_misspelt_name_of_an_error(table: Table) -> None:
    for row in table.rows():
        assert [text for text in texts((row.answer, row.others)) if text.isupper() and "_" in text] == [], row.name


def test_a_message_is_read_as_a_text_says() -> None:
    parts = [{"partition_index": 1, "timestamp": 5}, {"partition_index": 0, "timestamp": -1}]
    sent = request("ListOffsets", replica_id=3, topics=[{"name": "t", "partitions": parts}, "u"])
    assert read("replica_id", sent) == 3
    assert read("topics.partitions(partition_index)", sent) == (0, 1)
    assert read("topics.partitions[partition_index]", sent) == (1, 0)
    assert read("replica_id topics.partitions[name partition_index ?timestamp]", sent) == (
        3,
        ("t", 1, True),
        ("t", 0, False),
    )
    assert read("topics[name #partitions]", sent) == (("t", 2), ("u", 0))
    assert read("replica_id! isolation_level", sent) == (3,)
    assert read("isolation_level! replica_id", sent) == (0, 3)
    assert read("groups[it]", request("DescribeGroups", groups=["b", "a"])) == ("b", "a")
    assert read("~group_instance_id", request("JoinGroup")) == ""


@pytest.mark.parametrize(("text", "message"), [("topics(name", "is missing"), ("name)", "nothing opens")])
def test_brackets_must_match(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_a_field_that_no_struct_has_is_an_error() -> None:
    with pytest.raises(ValueError, match="ListOffsetsTopic has no field nam"):
        read("topics(nam)", request("ListOffsets", topics=["t"]))
