"""A span of offsets as a view: reads cut to it, and all that is told of the values in it."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from highwater.reports.columns import UNKNOWN, Ints, Kind, Status, picked
from highwater.reports.execution.division.chunks import Chunks, Rows, together
from highwater.reports.execution.division.plan import Span
from highwater.reports.execution.division.survey import SENDS, passed
from highwater.reports.rules.findings import NOBODY, Mask, Promise, distinct
from highwater.reports.rules.polls import Jumps
from highwater.reports.rules.view import Reading, View


@dataclass(frozen=True, slots=True)
class Facts:
    """What needs all operations and was worked out before, in numbers of rows."""

    stuck: tuple[Ints, Ints]
    jumps: Jumps


@dataclass(frozen=True, slots=True)
class _Part:
    """Of one chunk what bears on the span. Rows are those of `rows`, what a read went on from is a number."""

    rows: Rows
    read: Ints
    begins: Ints
    first: Ints
    last: Ints
    before: Ints
    silent: Ints
    disordered: Ints


class SpanView(View):
    """`number` tells which row of the partition each row here is; some are only named."""

    number: Ints

    def numbered(self, rows: Ints) -> Ints:
        return np.where(rows == NOBODY, NOBODY, self.number[rows])


def span_view(chunks: Chunks, span: Span, facts: Facts, promise: Promise) -> SpanView:
    parts = [_part(chunks.read(chunk), known, span, promise) for chunk, known in span.chunks]
    rows = together([*(part.rows for part in parts), _marked(span.neighbour)])
    starts = np.cumsum([0, *(len(part.rows) for part in parts)])[:-1].tolist()

    def local(name: str) -> Ints:
        return np.concatenate([getattr(part, name) + start for part, start in zip(parts, starts, strict=True)])

    def told(name: str) -> Ints:
        return np.concatenate([getattr(part, name) for part in parts])

    ops, read, before = rows.ops, local("read"), told("before")
    order = np.lexsort((read, ops.run[read], ops.process[read]))
    read, before = read[order], before[order]
    named = distinct(np.concatenate([before[before != NOBODY], facts.jumps.row, facts.jumps.furthest]))

    def place(numbers: Ints) -> Ints:
        """Of rows that are only named: behind all others."""
        return np.where(numbers == NOBODY, NOBODY, len(rows) + np.searchsorted(named, numbers))

    start = np.cumsum(ops.record_count) - ops.record_count
    jumps = facts.jumps
    known: dict[str, Any] = {
        "number": np.concatenate([rows.number, named]),
        "span": span.span,
        "neighbour": np.arange(len(rows) - len(span.neighbour), len(rows)),
        "log_start": span.log_start,
        "silent": local("silent"),
        "disordered": local("disordered"),
        "stuck": (facts.stuck[0][:0], np.flatnonzero(np.isin(rows.number, facts.stuck[1]))),
        "jumps": Jumps(place(jumps.row), place(jumps.furthest), jumps.due, jumps.first, jumps.who),
        "reading": Reading(
            read, told("begins")[order], told("first")[order], told("last")[order], place(before), start[read]
        ),
    }
    return SpanView(ops, promise, **known)


def _marked(rows: Rows) -> Rows:
    """As operations that no rule looks at by itself."""
    return Rows(replace(rows.ops, kind=np.full(len(rows), UNKNOWN)), rows.number)


def _part(own: Rows, known: Rows, span: Span, promise: Promise) -> _Part:
    both = together([known, own])
    view = View(both.ops, promise)
    ops, mine = view.ops, len(known)
    kept = _within(ops.record_offset, span) | (view.read_value & np.isin(ops.record_value, span.values))
    kept &= view.record_row >= mine
    rows, first, last = passed(view)
    near = (rows >= mine) & (first <= span.span[1]) & (last >= span.span[0])
    reads = near[: len(view.reading.row)]
    silent = rows[len(reads) :][near[len(reads) :]]
    chosen = np.zeros(len(ops), bool)
    chosen[view.record_row[kept]] = True
    chosen[rows[near]] = True
    chosen |= (ops.kind == Kind.DUMP) & (ops.status == Status.OK)
    chosen |= (ops.kind == Kind.SEND) & (ops.offset != UNKNOWN) & _within(ops.offset, span)
    chosen |= np.isin(ops.kind, SENDS) & np.isin(ops.value, span.values)
    chosen[:mine] = False
    here = np.flatnonzero(chosen)
    before = view.reading.before[reads]
    slot = {"read": view.reading.row[reads], "silent": silent}
    slot["disordered"] = view.disordered[np.isin(view.disordered, here)]
    return _Part(
        rows=Rows(picked(ops, here, kept), both.number[here]),
        begins=view.reading.begins[reads],
        first=view.reading.first[reads],
        last=view.reading.last[reads],
        before=np.where(before == NOBODY, NOBODY, both.number[before]),
        **{name: np.searchsorted(here, each) for name, each in slot.items()},
    )


def _within(offset: Ints, span: Span) -> Mask:
    return (offset >= span.span[0]) & (offset <= span.span[1])
