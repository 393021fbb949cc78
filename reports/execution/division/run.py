"""The first look at a divided partition, and later looks at its spans, as tasks that anybody may do."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from highwater.reports.columns import NOTHING, TOMBSTONE, UNKNOWN
from highwater.reports.execution.division.chunks import Chunks
from highwater.reports.execution.division.plan import Plan, Span, Time, bounds_of, plan
from highwater.reports.execution.division.spans import Facts, span_view
from highwater.reports.execution.division.survey import offsets_told, survey
from highwater.reports.execution.division.times import Values, columns_view, time_view
from highwater.reports.rules.findings import Found, Promise
from highwater.reports.rules.merge import Piece, settled
from highwater.reports.rules.partition import FAMILIES, JUMPS, STUCK, Cut, fruitful, looked, of_the_end, pieces
from highwater.reports.rules.polls import NO_JUMPS, jumps_of
from highwater.reports.rules.view import View

T = TypeVar("T")
NO_VALUES: Final = Values(NOTHING, NOTHING, NOTHING, NOTHING)
SPAN: Final = 1 << 18
"""Told offsets in a span: of a log that four readers read whole, a fifth as many records."""
SAMPLE: Final = 1 << 12
"""Of the offsets in a span so many are looked at to tell where it ends."""
Each = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""Does something to each of these, here or elsewhere, and gives the results in their order."""


@dataclass(frozen=True, slots=True)
class Divided:
    """A partition that was surveyed."""

    chunks: Chunks
    promise: Promise
    plan: Plan
    facts: Facts

    @classmethod
    def of(cls, chunks: Chunks, promise: Promise, each: Each = map, size: int | None = None) -> "Divided | None":
        """None where it cannot be: keys are compacted, or operations do not stand as they were completed."""
        if promise.compaction:  # what is due at an offset hangs on later ones of the same key
            return None
        places = range(len(chunks))
        size = size or SPAN
        every = max(1, size // SAMPLE)
        bounds = bounds_of(list(each(partial(offsets_told, chunks, every=every), places)), size // every)
        surveys = list(each(partial(survey, chunks, bounds=bounds, promise=promise), places))
        found = plan(surveys, bounds, promise)
        if found is None:
            return None
        (facts,) = each(partial(_facts, chunks), [promise])
        return cls(chunks, promise, found, facts)

    def look(self, each: Each = map) -> list[Found]:
        """What `check_view` finds in the whole."""
        found, told = [], []
        for mine, values in each(partial(_look_at_span, self.chunks, self.facts, self.promise), self.plan.spans):
            found += mine
            told.append(values)
        values = _joined(told)
        times = [(time, values.of(*time.rows, time.astray.number)) for time in self.plan.times]
        for mine in each(partial(_look_at_time, self.chunks, self.promise), times):
            found += mine
        for number in range(len(FAMILIES)):
            if _applies(number, self.chunks):  # one after the other: these take the most memory
                for mine in each(partial(_look_at_columns, self.chunks, values, self.promise), [number]):
                    found += mine
        return settled(found)

    def over_spans(self, work: Callable[[View], T], each: Each = map) -> Iterable[T]:
        """What it gives for each of them."""
        return each(partial(_work_on_span, work, self.chunks, self.facts, self.promise), self.plan.spans)

    def over_columns(self, work: Callable[[View], T], names: Sequence[str], each: Each = map) -> T:
        """What it gives for all operations, of which it sees these columns."""
        found: list[T] = list(each(partial(_work_on_columns, work, self.chunks, self.promise), [tuple(names)]))
        return found[0]


# -- tasks -------------------------------------------------------------------------------------------


def _facts(chunks: Chunks, promise: Promise) -> Facts:
    """What a look at a span must know of all."""
    stuck, jumps = (NOTHING, NOTHING), NO_JUMPS
    if promise.patience_ms >= 0 and chunks.tells("calm_ms"):
        view = columns_view(chunks, STUCK, NO_VALUES, promise, of_the_end)
        stuck = view.numbered(view.stuck[0]), view.numbered(view.stuck[1])
    if chunks.tells("began"):
        view = columns_view(chunks, JUMPS, NO_VALUES, promise, fruitful)
        jumps = jumps_of(view).numbered(view)
    return Facts(stuck, jumps)


def _look_at_span(chunks: Chunks, facts: Facts, promise: Promise, span: Span) -> tuple[list[Piece], Values]:
    view = span_view(chunks, span, facts, promise)
    found = [
        # What rule 21 finds are numbers of transactions, wherever they are.
        piece if piece.found.rule == 21 else piece.numbered(view, view.spanned(piece.found.offset))
        for piece in pieces(view, Cut.OFFSETS)
    ]
    untold = np.flatnonzero((view.ops.offset[view.sends] == UNKNOWN) & (view.ops.value[view.sends] != TOMBSTONE))
    untold = untold[view.send_offset[untold] != UNKNOWN]
    sends, reads = view.early if view.told_txn else (NOTHING, NOTHING)
    told = Values(
        view.numbered(view.sends[untold]), view.send_offset[untold], view.numbered(sends), view.numbered(reads)
    )
    return found, told


def _joined(parts: list[Values]) -> Values:
    """Sends in their order, each once."""
    sends = np.concatenate([NOTHING, *(part.sends for part in parts)])
    offsets = np.concatenate([NOTHING, *(part.offsets for part in parts)])
    sends, once = np.unique(sends, return_index=True)
    early = (np.concatenate([NOTHING, *(getattr(part, name) for part in parts)]) for name in Values.EARLY)
    return Values(sends, offsets[once], *early)


def _look_at_time(chunks: Chunks, promise: Promise, task: tuple[Time, Values]) -> list[Piece]:
    view = time_view(chunks, *task, promise)
    judged = {Cut.ROWS: view.own, Cut.TIME: view.invoked_here}
    return [
        piece.numbered(view, mask[piece.found.first]) for cut, mask in judged.items() for piece in pieces(view, cut)
    ]


def _applies(number: int, chunks: Chunks) -> bool:
    """Must this family see all operations, and is there something for it to see?"""
    family = FAMILIES[number]
    return family.cut is Cut.WHOLE and chunks.tells(*family.told)


def _look_at_columns(chunks: Chunks, values: Values, promise: Promise, number: int) -> list[Piece]:
    family = FAMILIES[number]
    view = columns_view(chunks, family.columns, values, promise, family.rows)
    return [piece.numbered(view) for piece in looked(number, view)]


def _work_on_span(work: Callable[[View], T], chunks: Chunks, facts: Facts, promise: Promise, span: Span) -> T:
    return work(span_view(chunks, span, facts, promise))


def _work_on_columns(work: Callable[[View], T], chunks: Chunks, promise: Promise, names: tuple[str, ...]) -> T:
    return work(columns_view(chunks, names, NO_VALUES, promise))
