"""From the surveys of all chunks to what each slice is made of."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from highwater.reports.columns import NEVER, NOTHING, Ints
from highwater.reports.execution.division.chunks import Rows, together
from highwater.reports.execution.division.survey import Survey, carried, needed, passed
from highwater.reports.rules.findings import Promise, distinct
from highwater.reports.rules.view import View

FIRST, LAST = View.span


@dataclass(frozen=True, slots=True)
class Span:
    """What a span of offsets is made of: the chunks that tell of it, each with what was carried to it."""

    span: tuple[int, int]
    chunks: list[tuple[int, Rows]]
    values: Ints
    """Of the values in it those of which something is told elsewhere."""
    neighbour: Rows
    log_start: int


@dataclass(frozen=True, slots=True)
class Time:
    """A chunk, what was carried to it, and what was invoked in its time and stands elsewhere."""

    chunk: int
    carried: Rows
    astray: Rows
    window: tuple[int, int]
    rows: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Plan:
    spans: list[Span]
    times: list[Time]


def bounds_of(samples: list[Ints], each: int) -> Ints:
    """The first offsets of spans of so many of these offsets, but for the first span."""
    told = np.sort(np.concatenate([*samples, NOTHING]))
    return distinct(told[::each][1:])


def plan(surveys: list[Survey], bounds: Ints, promise: Promise) -> Plan | None:
    """None where operations do not stand in the order in which they were completed."""
    if not all(each.ascends for each in surveys) or _overlap(surveys):
        return None
    starts = _starts(surveys)
    astray = _astray(surveys, starts)
    known, so_far = [], surveys[0].carried.pick(NOTHING)
    for each, others in zip(surveys, astray, strict=True):
        known.append(needed(so_far, each, others, promise))
        so_far = carried(together([so_far, each.carried]), promise)
    windows = list(pairwise([*starts, LAST]))
    times = [
        Time(n, *parts) for n, parts in enumerate(zip(known, astray, windows, [s.rows for s in surveys], strict=True))
    ]
    return Plan(_spans(surveys, known, bounds, promise), times)


def _overlap(surveys: list[Survey]) -> bool:
    some = [each for each in surveys if each.first < NEVER]
    return any(before.last > after.first for before, after in pairwise(some))


def _starts(surveys: list[Survey]) -> list[int]:
    """When the time of each chunk begins."""
    starts = np.minimum.accumulate([each.first for each in surveys][::-1])[::-1].tolist()
    return [FIRST, *starts[1:]]


def _astray(surveys: list[Survey], starts: list[int]) -> list[Rows]:
    """For each time the rows of other chunks that were invoked in it."""
    rows = together([each.astray for each in surveys])
    chunk = np.searchsorted(starts, rows.ops.invoked, "right") - 1
    return [rows.pick(np.flatnonzero(chunk == number)) for number in range(len(surveys))]


# -- spans -------------------------------------------------------------------------------------------


def _spans(surveys: list[Survey], known: list[Rows], bounds: Ints, promise: Promise) -> list[Span]:
    firsts, lasts = [FIRST, *bounds.tolist()], [*(bounds - 1).tolist(), LAST]
    extents = [_extent(each, before, promise) for each, before in zip(surveys, known, strict=True)]
    value, span, chunk = _told_twice(surveys)
    log_start = max(each.log_start for each in surveys)
    neighbours = _neighbours(together([each.neighbours for each in surveys]), firsts)
    spans = []
    for number, (first, last, neighbour) in enumerate(zip(firsts, lasts, neighbours, strict=True)):
        mine = distinct(value[span == number])
        near = {place for place, (low, high) in enumerate(extents) if low <= last and high >= first}
        places = sorted(near | set(chunk[np.isin(value, mine)].tolist()))
        if places:
            spans.append(Span((first, last), [(place, known[place]) for place in places], mine, neighbour, log_start))
    return spans


def _extent(survey: Survey, known: Rows, promise: Promise) -> tuple[int, int]:
    """Also over what its first reads passed since what was read before."""
    both = together([known, survey.heads])
    view = View(both.ops, promise)
    rows, first, _ = passed(view)
    mine = first[rows >= len(known)]
    return min(survey.offsets[0], int(mine.min(initial=NEVER))), survey.offsets[1]


def _told_twice(surveys: list[Survey]) -> tuple[Ints, Ints, Ints]:
    """Values of which more is told than one span knows: value, span and chunk of each place where something is."""
    value = np.concatenate([each.values for each in surveys])
    order = np.argsort(value, kind="stable")
    value = value[order]
    span = np.concatenate([each.spans for each in surveys])[order]
    changes = (value[1:] == value[:-1]) & (span[1:] != span[:-1])
    odd = distinct(value[1:][changes])
    chunk = np.repeat(np.arange(len(surveys)), [len(each.values) for each in surveys])[order]
    mine = np.isin(value, odd)
    return value[mine], span[mine], chunk[mine]


def _neighbours(rows: Rows, firsts: list[int]) -> list[Rows]:
    """Of each span the row before it with the largest offset, of those the last."""
    order = np.argsort(rows.ops.offset, kind="stable")
    slots = np.searchsorted(rows.ops.offset[order], firsts, "left") - 1
    return [rows.pick(order[slot : slot + 1] if slot >= 0 else NOTHING) for slot in slots.tolist()]
