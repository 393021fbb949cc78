"""A history as the rules read it: columns per partition and tables of the run; the status of an operation."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from highwater.reports.columns import Operations, Status, single_row
from highwater.reports.importers.quarantine import Quarantine
from highwater.reports.ingest.builder import Values
from highwater.reports.ingest.inventory import Inventory
from highwater.reports.tables import Tables
from highwater.spec.formats.history import Config, Event

Key = str  # "topic-0"


class Partitioned(Mapping[Key, Operations]):
    """The partitions of a history, in memory or in a dataset, by key ("topic-0")."""

    def row(self, key: Key, row: int) -> Operations:
        """Return one operation, as columns of length 1."""
        return single_row(self[key], row)


class InMemoryPartitions(dict[Key, Operations], Partitioned):
    """Partitions held in memory."""


@dataclass(slots=True)
class Ingested:
    """A history that was read. `operations` counts client calls per partition, `rows` the rows of all partitions."""

    config: Config
    partitions: Partitioned
    tables: Tables
    values: Values
    faults: list[Event]
    operations: int
    rows: int
    inventory: Inventory
    format: str = "ndjson"
    quarantine: Quarantine = field(default_factory=Quarantine)
    shown_commits: tuple[int, ...] = ()
    """Transactions of unknown outcome that reads prove to have committed; an audit finds them."""

    def row(self, key: Key, row: int) -> Operations:
        """Return one operation, as columns of length 1."""
        return self.partitions.row(key, row)


# --------------------------------------------------------------------------------------------------
# Status of an operation: the recorded outcome, unless the error leaves the outcome unknown.


_STATUS: Final = {"ok": Status.OK, "fail": Status.FAIL, "info": Status.INFO}
_ANSWER_LOST: Final = re.compile(
    r"time.?d?.?out|disconnect|connection|network|unknown.?server|after.?append|not.?leader|\A(6|7|20)\Z", re.IGNORECASE
)
"""The broker may have executed the request. Not leader: KAFKA-13574; 6, 7 and 20 are Produce error codes."""
_AFTER_A_COMMIT: Final = re.compile(
    r"producer.?fenced|invalid.?producer.?epoch|concurrent.?transactions", re.IGNORECASE
)
"""An earlier attempt, or this one, may have committed the transaction."""


def status_of(invoke: Event, done: Event | None) -> Status:
    """Return the status; INFO if the operation never returned or its error leaves the outcome unknown."""
    if done is None:
        return _STATUS["info"]
    if done.type == "fail" and done.error is not None:
        commits = invoke.f == "end_txn" and invoke.value == "commit"
        if _ANSWER_LOST.search(done.error) or (commits and _AFTER_A_COMMIT.search(done.error)):
            return _STATUS["info"]
    return _STATUS[done.type]
