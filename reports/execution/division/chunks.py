"""A partition chunk by chunk, and operations that remember which rows they are."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol

import numpy as np

from highwater.reports.columns import (
    NOTHING,
    OPTIONAL,
    RECORDS,
    ROW_COLUMNS,
    STAMPED,
    UNKNOWN,
    Ints,
    Operations,
    joined,
    picked,
    with_ends,
)
from highwater.reports.rules.findings import Mask


@dataclass(frozen=True, slots=True)
class Rows:
    """Operations of a partition, and their numbers among all of it."""

    ops: Operations
    number: Ints

    def __len__(self) -> int:
        return len(self.number)

    def pick(self, rows: Ints, kept: Mask | None = None) -> "Rows":
        """These, which ascend, and of their records those that are `kept`."""
        return Rows(picked(self.ops, rows, kept), self.number[rows])


def together(parts: Iterable[Rows]) -> Rows:
    some = list(parts)
    return Rows(joined([part.ops for part in some]), np.concatenate([part.number for part in some]))


Chosen = Callable[[Operations], Mask]


def some(rows: Rows, chosen: Chosen | None) -> Rows:
    return rows if chosen is None else rows.pick(np.flatnonzero(chosen(rows.ops)))


class Chunks(Protocol):
    """What workers are given to read a partition with."""

    def __len__(self) -> int: ...

    def read(self, chunk: int) -> Rows: ...

    def columns(self, names: Collection[str], chosen: Chosen | None = None) -> Rows:
        """Only these columns, of all operations or those that are chosen, and of their records the ends."""

    def tells(self, *names: str) -> bool:
        """May any operation say something in all of these columns?"""


class Parted:
    """Operations that are in memory, from row to row."""

    def __init__(self, ops: Operations, rows: list[int]) -> None:
        self._ops, self._rows = ops, list(pairwise([*rows, len(ops)]))

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, chunk: int) -> Rows:
        rows = np.arange(*self._rows[chunk])
        return Rows(picked(self._ops, rows), rows)

    def columns(self, names: Collection[str], chosen: Chosen | None = None) -> Rows:
        return some(Rows(only(self._ops, names), np.arange(len(self._ops))), chosen)

    def tells(self, *names: str) -> bool:
        return all(self._ops.tells(name) for name in names)


ALWAYS: Final = {"kind", "status"}


def only(ops: Operations, names: Collection[str]) -> Operations:
    """These columns, and what operations are; of their records the ends, or none. Other columns take no memory."""
    chosen = {*ALWAYS, *names, *(STAMPED if "txn" in names else ()), *(RECORDS if "record_count" in names else ())}
    ops = filled({name: getattr(ops, name) for name in chosen if ops.tells(name)}, len(ops))
    return with_ends(ops) if "record_count" in chosen else ops


def filled(columns: dict[str, Ints], rows: int) -> Operations:
    """With cells that take no memory where a column is not known."""
    zero, unknown = (np.broadcast_to(np.int64(cell), rows) for cell in (0, UNKNOWN))
    missing = {name: unknown for name in ROW_COLUMNS if name not in OPTIONAL} | {"record_count": zero}
    return Operations(**missing | dict.fromkeys(RECORDS, NOTHING) | columns)
