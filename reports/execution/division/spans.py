"""Build the view of a span of offsets: reads restricted to it, and all observations of the values in it."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from highwater.reports.columns import UNKNOWN, Ints, Kind, Operations, Status, dump_starts, take_rows
from highwater.reports.execution.division.chunks import Chunks, Rows, concatenate_rows
from highwater.reports.execution.division.plan import Span
from highwater.reports.execution.division.survey import SENDS, passed
from highwater.reports.rules.checks.polls import Jumps
from highwater.reports.rules.findings import NO_ROW, Mask, Promise, distinct
from highwater.reports.rules.summary import Summary
from highwater.reports.rules.view import Reading, View


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts derived from all operations before the spans are checked, in row numbers of the partition."""

    stuck_end: int
    jumps: Jumps
    summary: Summary


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of a chunk that concerns the span. Columns hold positions in `rows`; `before` holds row numbers."""

    rows: Rows
    read: Ints
    begins: Ints
    first: Ints
    last: Ints
    before: Ints
    end_proofs: Ints
    unordered_reads: Ints


class SpanView(View):
    """A view with `number`, the partition row of each row; rows behind the last operation are only referred to."""

    number: Ints

    def to_partition_rows(self, rows: Ints) -> Ints:
        return np.where(rows == NO_ROW, NO_ROW, self.number[rows])


def span_view(chunks: Chunks, span: Span, facts: Facts, promise: Promise) -> SpanView:
    parts = [_part(chunks.read(chunk), known, span, promise, facts.summary) for chunk, known in span.chunks]
    rows = concatenate_rows([*(part.rows for part in parts), _marked(span.neighbour)])
    starts = np.cumsum([0, *(len(part.rows) for part in parts)])[:-1].tolist()

    def local(name: str) -> Ints:
        return np.concatenate([getattr(part, name) + start for part, start in zip(parts, starts, strict=True)])

    def column(name: str) -> Ints:
        return np.concatenate([getattr(part, name) for part in parts])

    ops, read, before = rows.ops, local("read"), column("before")
    order = np.lexsort((read, ops.run[read], ops.process[read]))
    read, before = read[order], before[order]
    named = distinct(np.concatenate([before[before != NO_ROW], facts.jumps.row, facts.jumps.furthest]))

    def place(numbers: Ints) -> Ints:
        """Return positions behind all operations for rows that are only referred to."""
        return np.where(numbers == NO_ROW, NO_ROW, len(rows) + np.searchsorted(named, numbers))

    start = np.cumsum(ops.record_count) - ops.record_count
    jumps = facts.jumps
    known: dict[str, Any] = {
        "number": np.concatenate([rows.number, named]),
        "span": span.span,
        "neighbour": np.arange(len(rows) - len(span.neighbour), len(rows)),
        "end_proofs": local("end_proofs"),
        "unordered_reads": local("unordered_reads"),
        "stuck_end": facts.stuck_end,
        "jumps": replace(jumps, row=place(jumps.row), furthest=place(jumps.furthest)),
        "reading": Reading(
            read, column("begins")[order], column("first")[order], column("last")[order], place(before), start[read]
        ),
    }
    return SpanView(ops, promise, **facts.summary.facts(), **known)


def _marked(rows: Rows) -> Rows:
    """Return the rows with an unknown kind, so that no rule selects them."""
    return Rows(replace(rows.ops, kind=np.full(len(rows), UNKNOWN)), rows.number)


def _part(own: Rows, known: Rows, span: Span, promise: Promise, summary: Summary) -> _Part:
    both = concatenate_rows([known, own])
    view = View(both.ops, promise, **summary.facts())
    ops, mine = view.ops, len(known)
    in_slice = _within(ops.record_offset, span) | (view.read_value & np.isin(ops.record_value, span.values))
    in_slice &= view.record_row >= mine
    rows, first, last = passed(view)
    near = (rows >= mine) & (first <= span.span[1]) & (last >= span.span[0])
    reads = near[: len(view.reading.row)]
    end_proofs = rows[len(reads) :][near[len(reads) :]]
    chosen = np.zeros(len(ops), bool)
    chosen[view.record_row[in_slice]] = True
    chosen[rows[near]] = True
    chosen |= (ops.kind == Kind.DUMP) & (ops.status == Status.OK)
    chosen |= (ops.kind == Kind.SEND) & (ops.offset != UNKNOWN) & _within(ops.offset, span)
    chosen |= np.isin(ops.kind, SENDS) & np.isin(ops.value, span.values)
    chosen[:mine] = False
    here = np.flatnonzero(chosen)
    before = view.reading.before[reads]
    slot = {"read": view.reading.row[reads], "end_proofs": end_proofs}
    slot["unordered_reads"] = view.unordered_reads[np.isin(view.unordered_reads, here)]
    return _Part(
        rows=Rows(take_rows(_with_dump_starts(ops), here, in_slice), both.number[here]),
        begins=view.reading.begins[reads],
        first=view.reading.first[reads],
        last=view.reading.last[reads],
        before=np.where(before == NO_ROW, NO_ROW, both.number[before]),
        **{name: np.searchsorted(here, places) for name, places in slot.items()},
    )


def _with_dump_starts(ops: Operations) -> Operations:
    """Fill in the log starts of dumps that state none, since their first record may be in another span."""
    dumps = np.flatnonzero((ops.kind == Kind.DUMP) & (ops.position == UNKNOWN))
    if not len(dumps):
        return ops
    position = ops.position.copy()
    position[dumps] = dump_starts(ops, dumps)
    return replace(ops, position=position)


def _within(offset: Ints, span: Span) -> Mask:
    return (offset >= span.span[0]) & (offset <= span.span[1])
