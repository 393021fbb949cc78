"""A history as the rules want it: columns for each partition, and the tables of the run."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reports.columns import Operations, row_of
from reports.importers.quarantine import Quarantine
from reports.ingest.builder import Values
from reports.tables import Tables
from spec.formats.history import Config, Event

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
