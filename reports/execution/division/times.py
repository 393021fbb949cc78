"""A time as a view, and all operations by a few columns; both know what the spans told of values."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from highwater.reports.columns import NOTHING, UNKNOWN, Ints
from highwater.reports.execution.division.chunks import Chosen, Chunks, Rows, together
from highwater.reports.execution.division.plan import Time
from highwater.reports.rules.findings import NOBODY, Mask, Promise
from highwater.reports.rules.view import View, in_order_of_reads


@dataclass(frozen=True, slots=True)
class Values:
    """What spans told of values, in numbers of rows: the offsets of sends that were told none, and early reads."""

    sends: Ints
    offsets: Ints
    early_sends: Ints
    early_reads: Ints

    EARLY: ClassVar = ("early_sends", "early_reads")

    def of(self, first: int, end: int, others: Ints) -> "Values":
        """Of the sends in these rows, and of others."""
        mine = ((self.sends >= first) & (self.sends < end)) | np.isin(self.sends, others)
        return Values(self.sends[mine], self.offsets[mine], NOTHING, NOTHING)


class Slice(View):
    def __init__(self, rows: Rows, promise: Promise, values: Values) -> None:
        super().__init__(rows.ops, promise)
        self.number, self._values = rows.number, values

    def numbered(self, rows: Ints) -> Ints:
        return np.where(rows == NOBODY, NOBODY, self.number[rows])

    @cached_property
    def send_offset(self) -> Ints:
        offset: Ints = self.ops.offset[self.sends].copy()
        known = self._values
        if len(known.sends):
            untold = np.flatnonzero(offset == UNKNOWN)
            number = self.number[self.sends[untold]]
            slot = np.minimum(np.searchsorted(known.sends, number), len(known.sends) - 1)
            offset[untold] = np.where(known.sends[slot] == number, known.offsets[slot], UNKNOWN)
        return offset

    @cached_property
    def early(self) -> tuple[Ints, Ints]:
        """Only where all rows are here, and so have their own numbers."""
        return in_order_of_reads(self._values.early_sends, self._values.early_reads)


class TimeView(Slice):
    """`own` tells which rows stand in it, `invoked_here` which were invoked in its time."""

    own: Mask
    invoked_here: Mask


def time_view(chunks: Chunks, time: Time, values: Values, promise: Promise) -> TimeView:
    own = chunks.read(time.chunk)
    number = time.astray.number
    before = (number < own.number[0]) & ~np.isin(number, time.carried.number)
    before, behind = (time.astray.pick(np.flatnonzero(mask)) for mask in (before, number > own.number[-1]))
    rows = together([time.carried, before, own, behind])
    view = TimeView(rows, promise, values)
    first, end = time.window
    view.own = (rows.number >= own.number[0]) & (rows.number <= own.number[-1])
    view.invoked_here = (rows.ops.invoked >= first) & (rows.ops.invoked < end)
    return view


def columns_view(
    chunks: Chunks, names: tuple[str, ...], values: Values, promise: Promise, chosen: Chosen | None = None
) -> Slice:
    """All operations, or those that are chosen, by these columns."""
    return Slice(chunks.columns(names, chosen), promise, values)
