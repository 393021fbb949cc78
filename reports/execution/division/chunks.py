"""Access to a partition by chunks of consecutive rows, and operations with their row numbers."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol

import numpy as np

from highwater.reports.columns import (
    NOTHING,
    OPTIONAL,
    OUTCOME_COLUMNS,
    RECORDS,
    ROW_COLUMNS,
    UNKNOWN,
    Ints,
    Operations,
    concatenate_operations,
    keep_end_records,
    take_rows,
)
from highwater.reports.rules.findings import Mask


@dataclass(frozen=True, slots=True)
class Rows:
    """Operations with their row numbers in the whole partition (int64, of equal length)."""

    ops: Operations
    number: Ints

    def __len__(self) -> int:
        return len(self.number)

    def pick(self, rows: Ints, kept: Mask | None = None) -> "Rows":
        """Return these rows (increasing), with the records that `kept` masks."""
        return Rows(take_rows(self.ops, rows, kept), self.number[rows])


def concatenate_rows(parts: Iterable[Rows]) -> Rows:
    present = list(parts)
    return Rows(
        concatenate_operations([part.ops for part in present]), np.concatenate([part.number for part in present])
    )


RowFilter = Callable[[Operations], Mask]


def filter_rows(rows: Rows, chosen: RowFilter | None) -> Rows:
    return rows if chosen is None else rows.pick(np.flatnonzero(chosen(rows.ops)))


class Chunks(Protocol):
    """Reader of one partition; it is pickled and sent to workers."""

    def __len__(self) -> int: ...

    def read(self, chunk: int) -> Rows: ...

    def columns(self, names: Collection[str], chosen: RowFilter | None = None) -> Rows:
        """Read only these columns, of all operations or of the `chosen`, with the first and last record of each."""

    def has_values(self, *names: str) -> bool:
        """Return whether all of these columns may have a known value."""


class InMemoryChunks:
    """Chunks of operations in memory; `rows` are the first rows of the chunks."""

    def __init__(self, ops: Operations, rows: list[int]) -> None:
        self._ops, self._rows = ops, list(pairwise([*rows, len(ops)]))

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, chunk: int) -> Rows:
        rows = np.arange(*self._rows[chunk])
        return Rows(take_rows(self._ops, rows), rows)

    def columns(self, names: Collection[str], chosen: RowFilter | None = None) -> Rows:
        return filter_rows(Rows(select_columns(self._ops, names), np.arange(len(self._ops))), chosen)

    def has_values(self, *names: str) -> bool:
        return all(self._ops.has_values(name) for name in names)


ALWAYS: Final = {"kind", "status"}


def select_columns(ops: Operations, names: Collection[str]) -> Operations:
    """Keep these columns, kind and status, and the first and last record of each row; others become unknown."""
    chosen = {
        *ALWAYS,
        *names,
        *(OUTCOME_COLUMNS if "txn" in names else ()),
        *(RECORDS if "record_count" in names else ()),
    }
    ops = fill_missing_columns({name: getattr(ops, name) for name in chosen if ops.has_values(name)}, len(ops))
    return keep_end_records(ops) if "record_count" in chosen else ops


def fill_missing_columns(columns: dict[str, Ints], rows: int) -> Operations:
    """Return operations in which missing columns are one broadcast cell, which takes no memory."""
    zero, unknown = (np.broadcast_to(np.int64(cell), rows) for cell in (0, UNKNOWN))
    missing = {name: unknown for name in ROW_COLUMNS if name not in OPTIONAL} | {"record_count": zero}
    return Operations(**missing | dict.fromkeys(RECORDS, NOTHING) | columns)
