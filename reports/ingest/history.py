"""A history as the rules want it: columns for each partition, and the tables of the run."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from highwater.reports.columns import Operations, Status, row_of
from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.ingest.builder import Values
from highwater.reports.tables import Tables
from highwater.spec.formats.history import Config, Event

Key = str  # "topic-0"


class Partitioned(Mapping[Key, Operations]):
    """The partitions of a history, wherever they are."""

    def row(self, key: Key, row: int) -> Operations:
        """One operation alone."""
        return row_of(self[key], row)


class Held(dict[Key, Operations], Partitioned):
    """In memory."""


@dataclass(slots=True)
class Ingested:
    """A history as the rules want it. `operations` counts client calls by partition, `rows` those of partitions."""

    config: Config
    partitions: Partitioned
    tables: Tables
    values: Values
    faults: list[Event]
    operations: int
    rows: int
    format: str = "ndjson"
    quarantine: Quarantine = field(default_factory=Quarantine)

    def row(self, key: Key, row: int) -> Operations:
        """One operation alone."""
        return self.partitions.row(key, row)


# --------------------------------------------------------------------------------------------------
# What became of an operation: the outcome that was written down, unless its error says that nobody can know.


_STATUS: Final = {"ok": Status.OK, "fail": Status.FAIL, "info": Status.INFO}
_ANSWER_LOST: Final = re.compile(
    r"time.?d?.?out|disconnect|connection|network|unknown.?server|after.?append|not.?leader|\A(6|7|20)\Z", re.IGNORECASE
)
"""What was asked may have been done all the same. Not the leader any more: KAFKA-13574; codes 7 and 20 of a Produce."""
_AFTER_A_COMMIT: Final = re.compile(
    r"producer.?fenced|invalid.?producer.?epoch|concurrent.?transactions", re.IGNORECASE
)
"""The transaction may have been committed by an attempt before, or by the one that was asked."""


def status_of(invoke: Event, done: Event | None) -> Status:
    """Of an operation that never returned nobody knows."""
    if done is None:
        return _STATUS["info"]
    if done.type == "fail" and done.error is not None:
        commits = invoke.f == "end_txn" and invoke.value == "commit"
        if _ANSWER_LOST.search(done.error) or (commits and _AFTER_A_COMMIT.search(done.error)):
            return _STATUS["info"]
    return _STATUS[done.type]
