"""Combine the surveys of all chunks into a plan: what each slice is made of."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from highwater.reports.columns import NEVER, NOTHING, Ints
from highwater.reports.execution.division.chunks import Rows, concatenate_rows
from highwater.reports.execution.division.survey import Survey, carry_over, passed, select_carried
from highwater.reports.rules.findings import Promise, distinct
from highwater.reports.rules.summary import Summary
from highwater.reports.rules.view import View

FIRST, LAST = View.span


@dataclass(frozen=True, slots=True)
class Span:
    """A span of offsets: the chunks with observations of it, each with the rows carried over to that chunk."""

    span: tuple[int, int]
    chunks: list[tuple[int, Rows]]
    values: Ints
    """Values in the span that have observations elsewhere too."""
    neighbour: Rows


@dataclass(frozen=True, slots=True)
class Time:
    """A chunk, the rows carried over to it, and rows of other chunks that were invoked in its time window."""

    chunk: int
    carry_over: Rows
    outside_window: Rows
    window: tuple[int, int]
    rows: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Plan:
    spans: list[Span]
    times: list[Time]


def span_bounds(samples: list[Ints], samples_per_span: int) -> Ints:
    """Return the first offsets of all spans but the first, with `samples_per_span` sampled offsets per span."""
    offsets = np.sort(np.concatenate([*samples, NOTHING]))
    return distinct(offsets[::samples_per_span][1:])


def plan(surveys: list[Survey], bounds: Ints, promise: Promise, summary: Summary) -> Plan | None:
    """Return the plan; None if the operations are not in completion order."""
    if not all(survey.sorted_by_return for survey in surveys) or _overlap(surveys):
        return None
    starts = _starts(surveys)
    outside_window = _rows_outside_window(surveys, starts)
    known, so_far = [], surveys[0].carry_over.pick(NOTHING)
    for survey in surveys:
        known.append(select_carried(so_far, survey, promise, summary))
        so_far = carry_over(concatenate_rows([so_far, survey.carry_over]), promise, summary)
    windows = list(pairwise([*starts, LAST]))
    times = [
        Time(n, *parts)
        for n, parts in enumerate(zip(known, outside_window, windows, [s.rows for s in surveys], strict=True))
    ]
    return Plan(_spans(surveys, known, bounds, promise, summary), times)


def _overlap(surveys: list[Survey]) -> bool:
    returning = [survey for survey in surveys if survey.first < NEVER]
    return any(before.last > after.first for before, after in pairwise(returning))


def _starts(surveys: list[Survey]) -> list[int]:
    """Return the event index at which the window of each chunk begins."""
    starts = np.minimum.accumulate([survey.first for survey in surveys][::-1])[::-1].tolist()
    return [FIRST, *starts[1:]]


def _rows_outside_window(surveys: list[Survey], starts: list[int]) -> list[Rows]:
    """Return for each window the rows of other chunks that were invoked in it."""
    rows = concatenate_rows([survey.outside_window for survey in surveys])
    chunk = np.searchsorted(starts, rows.ops.invoked, "right") - 1
    return [rows.pick(np.flatnonzero(chunk == number)) for number in range(len(surveys))]


# -- spans -------------------------------------------------------------------------------------------


def _spans(surveys: list[Survey], known: list[Rows], bounds: Ints, promise: Promise, summary: Summary) -> list[Span]:
    firsts, lasts = [FIRST, *bounds.tolist()], [*(bounds - 1).tolist(), LAST]
    extents = [_extent(survey, before, promise, summary) for survey, before in zip(surveys, known, strict=True)]
    value, span, chunk = _values_in_several_spans(surveys)
    neighbours = _neighbours(concatenate_rows([survey.neighbours for survey in surveys]), firsts)
    spans = []
    for number, (first, last, neighbour) in enumerate(zip(firsts, lasts, neighbours, strict=True)):
        mine = distinct(value[span == number])
        near = {place for place, (low, high) in enumerate(extents) if low <= last and high >= first}
        places = sorted(near | set(chunk[np.isin(value, mine)].tolist()))
        if places:
            spans.append(Span((first, last), [(place, known[place]) for place in places], mine, neighbour))
    return spans


def _extent(survey: Survey, known: Rows, promise: Promise, summary: Summary) -> tuple[int, int]:
    """Return the offset range of a chunk, extended by what its first reads passed since the carried-over reads."""
    both = concatenate_rows([known, survey.first_reads])
    view = View(both.ops, promise, **summary.facts())
    rows, first, _ = passed(view)
    mine = first[rows >= len(known)]
    return min(survey.offsets[0], int(mine.min(initial=NEVER))), survey.offsets[1]


def _values_in_several_spans(surveys: list[Survey]) -> tuple[Ints, Ints, Ints]:
    """Return (value, span, chunk) of each observation of a value that is observed in several spans."""
    value = np.concatenate([survey.values for survey in surveys])
    order = np.argsort(value, kind="stable")
    value = value[order]
    span = np.concatenate([survey.spans for survey in surveys])[order]
    changes = (value[1:] == value[:-1]) & (span[1:] != span[:-1])
    odd = distinct(value[1:][changes])
    chunk = np.repeat(np.arange(len(surveys)), [len(survey.values) for survey in surveys])[order]
    mine = np.isin(value, odd)
    return value[mine], span[mine], chunk[mine]


def _neighbours(rows: Rows, firsts: list[int]) -> list[Rows]:
    """Return for each span the last of the rows with the largest offset before it."""
    order = np.argsort(rows.ops.offset, kind="stable")
    slots = np.searchsorted(rows.ops.offset[order], firsts, "left") - 1
    return [rows.pick(order[slot : slot + 1] if slot >= 0 else NOTHING) for slot in slots.tolist()]
