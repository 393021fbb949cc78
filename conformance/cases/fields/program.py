"""The cases that consist of the rows of a table.

The rows are a case each (`one_by_one`), or share a case, and with it the topics or groups that they need (`together`).
The clause, the planted defects and the Kafka versions of a case are in its table.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from highwater.conformance.cases.fields.tables import TABLES, Row, Table, answer_of
from highwater.conformance.cases.fields.trial import RowTrial
from highwater.conformance.cases.fields.world import World
from highwater.conformance.clause import clause, era
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, defect, increment
from highwater.reference.wire.errors import ErrorCode

Case = Callable[..., None]


def one_by_one(name: str) -> Case:
    """Return cases of the rows of a table, one for each row."""

    def case(trial: RowTrial) -> None:
        trial.check(trial.rows[0])

    table = TABLES[name]
    return _marked(case, table, [_parameter(table, [row], row.name, row.since) for row in table.rows()])


def together(name: str) -> Case:
    """Return cases of the rows of a table, one for each part and first Kafka version."""

    def case(trial: RowTrial) -> None:
        trial.check_all()

    table = TABLES[name]
    rows = table.rows()
    kinds = dict.fromkeys((row.part, row.since) for row in rows)
    return _marked(case, table, [
        _parameter(
            table, [row for row in rows if (row.part, row.since) == (part, since)],
            part or (f"since {since}" if since else ""), since,
        )
        for part, since in kinds
    ])  # fmt: skip


def _parameter(table: Table, rows: Sequence[Row], case: str, since: str) -> Any:
    return pytest.param((table, rows), id=case, marks=[era(since)] if since else [])


def _marked(case: Case, table: Table, parameters: Sequence[Any]) -> Case:
    marks: list[Any] = [
        clause(table.clause, table.name if table.variant is None else table.variant),
        pytest.mark.parametrize("trial", parameters, indirect=True),
        defect(*defects_of(table)),
        *([era(table.since)] if table.since else []),
    ]
    for mark in marks:
        case = mark(case)
    return case


def defects_of(table: Table) -> Iterator[Reply]:
    """Yield the planted defects of a table: a field of the reply, and its value."""
    for path, value in table.defects.items():
        yield Reply(table.request, path, increment if value == "+1" else answer_of(value))


def twice(name: str, since: str = "") -> Case:
    """Return a case that gives an item twice, of which the broker rejects both but serves the item between."""
    table = TABLES[name]
    ((path, _),) = table.defects.items()

    @clause(table.clause, "item twice")
    @defect(Reply(table.request, path, ErrorCode.INVALID_REQUEST))
    def case(cluster: Cluster) -> None:
        RowTrial.prepared(table, [], World(cluster)).check_twice(ErrorCode.INVALID_REQUEST)

    return era(since)(case) if since else case
