"""Build the view of a time window, and the view of all operations in a few columns; both use results of the spans."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from highwater.reports.columns import NOTHING, UNKNOWN, Ints
from highwater.reports.execution.division.chunks import Chunks, RowFilter, Rows, concatenate_rows
from highwater.reports.execution.division.plan import Time
from highwater.reports.rules.findings import NO_ROW, Mask, Promise
from highwater.reports.rules.summary import Summary
from highwater.reports.rules.view import View, sort_by_read


@dataclass(frozen=True, slots=True)
class Values:
    """Results of the spans: read offsets of unacknowledged sends and pairs of early reads, both in row numbers, and
    offsets of records that are not the place of a send.
    """

    sends: Ints
    offsets: Ints
    early_sends: Ints
    early_reads: Ints
    unplaced_records: Ints

    OTHERS: ClassVar = ("early_sends", "early_reads", "unplaced_records")

    def of(self, first: int, end: int, others: Ints) -> "Values":
        """Return the values of the sends in rows [first, end), and of the sends in `others`."""
        mine = ((self.sends >= first) & (self.sends < end)) | np.isin(self.sends, others)
        return Values(self.sends[mine], self.offsets[mine], NOTHING, NOTHING, NOTHING)


class Slice(View):
    """A view of some rows of a partition that uses results of the spans."""

    def __init__(self, rows: Rows, promise: Promise, values: Values, summary: Summary) -> None:
        super().__init__(rows.ops, promise, **summary.facts())
        self.number, self._values = rows.number, values

    def to_partition_rows(self, rows: Ints) -> Ints:
        return np.where(rows == NO_ROW, NO_ROW, self.number[rows])

    @cached_property
    def send_offset(self) -> Ints:
        offset: Ints = self.ops.offset[self.sends].copy()
        known = self._values
        if len(known.sends):
            unacknowledged = np.flatnonzero(offset == UNKNOWN)
            number = self.number[self.sends[unacknowledged]]
            slot = np.minimum(np.searchsorted(known.sends, number), len(known.sends) - 1)
            offset[unacknowledged] = np.where(known.sends[slot] == number, known.offsets[slot], UNKNOWN)
        return offset

    @cached_property
    def early(self) -> tuple[Ints, Ints]:
        """Early reads of the whole partition; valid only in a view of all rows, where rows are their own numbers."""
        return sort_by_read(self._values.early_sends, self._values.early_reads)

    @cached_property
    def unplaced_records(self) -> Ints:
        """Of the whole partition, like `early`."""
        return self._values.unplaced_records


class TimeView(Slice):
    """A view of a chunk and related rows: `own` masks rows of the chunk, `invoked_here` those invoked in its window."""

    own: Mask
    invoked_here: Mask


def time_view(chunks: Chunks, time: Time, values: Values, promise: Promise, summary: Summary) -> TimeView:
    own = chunks.read(time.chunk)
    number = time.outside_window.number
    before = (number < own.number[0]) & ~np.isin(number, time.carry_over.number)
    before, behind = (time.outside_window.pick(np.flatnonzero(mask)) for mask in (before, number > own.number[-1]))
    rows = concatenate_rows([time.carry_over, before, own, behind])
    view = TimeView(rows, promise, values, summary)
    first, end = time.window
    view.own = (rows.number >= own.number[0]) & (rows.number <= own.number[-1])
    view.invoked_here = (rows.ops.invoked >= first) & (rows.ops.invoked < end)
    return view


def columns_view(
    chunks: Chunks, names: tuple[str, ...], values: Values, promise: Promise, summary: Summary,
    chosen: RowFilter | None = None,
) -> Slice:  # fmt: skip
    """Return a view of all operations, or of the `chosen`, with these columns only."""
    return Slice(chunks.columns(names, chosen), promise, values, summary)
