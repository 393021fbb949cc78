"""Check a partition that is too large for one worker, as tasks on slices of it.

Theory of operation. The input is the operations of one partition in completion order, cut into consecutive chunks
(`Chunks`) that a worker can load alone. The driver holds only a `Plan`, `Facts` and findings; rows stay with the
workers, which open the dataset by name. `DividedPartition.of` makes three passes over the chunks: it samples offsets to
derive the `bounds` of spans and the
`Summary` (int64, strictly increasing first offsets of all spans but the first); it surveys each
chunk (`survey`); it reads some columns of all rows for `Facts`, which no slice can derive alone. `plan` combines the
surveys into slices. `check` then runs the rules on them; steps 2 and 3 need the `Values` that step 1 returns:

1. Spans (`Cut.OFFSETS`). A span view holds everything that concerns its offsets; a finding counts in the span that
   contains its offset. G1c candidates are numbers of transactions instead of rows, so all of them count. The task also
   returns `Values`: offsets of sends without an acknowledged offset, early reads, and records of no known send.
2. Times (`Cut.ROWS`, `Cut.TIME`). A time view is a chunk, the rows carried over to it, and rows of other chunks that
   were invoked in its window. A finding counts in the chunk that owns its first row
   (ROWS), or in whose window that row was invoked (TIME).
3. Columns (`Cut.WHOLE`). A view of all rows, but only of the columns that the family names. These run one by one, since
   they need the most memory.

`merge_findings` removes what several slices found and sorts the rest, so the result equals `check_view` of the whole.

Who may call what: only the driver calls `DividedPartition`; `run_tasks` maps the functions below "tasks" over their
arguments, in this process, in a pool or in Spark, and returns the results in the order of the arguments. Tasks and
their arguments are pickled, so they are module functions and hold no open files.

Invariants, asserted: surveys cover all rows, in order and without gaps; bounds strictly increase; spans are disjoint
and ascending; there is one time per chunk; `Values.sends` strictly increases; rows in findings are rows of the
partition (`NO_ROW` for the absent witness).

Deliberately absent: compacted topics (records due at an offset depend on later ones of the same key) and partitions
whose rows are not in completion order; `of` returns None for both, and the caller checks such a partition whole.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np

from highwater.reports.columns import NEVER, NOTHING, TOMBSTONE, UNKNOWN
from highwater.reports.execution.division.chunks import Chunks
from highwater.reports.execution.division.plan import Plan, Span, Time, plan, span_bounds
from highwater.reports.execution.division.spans import Facts, span_view
from highwater.reports.execution.division.survey import sample, survey
from highwater.reports.execution.division.times import Values, columns_view, time_view
from highwater.reports.rules.checks.polls import NO_JUMPS, find_jumps
from highwater.reports.rules.findings import NO_ROW, Promise, RuleFindings
from highwater.reports.rules.merge import FamilyFindings, merge_findings
from highwater.reports.rules.partition import (
    FAMILIES,
    JUMPS,
    STUCK,
    Cut,
    reads_with_records,
    run_families,
    run_family,
    sends_and_quiet_rows,
)
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.summary import Summary
from highwater.reports.rules.view import View

T = TypeVar("T")
NO_VALUES: Final = Values(*[NOTHING] * 5)
SPAN: Final = 1 << 18
"""Offsets in acknowledgements and reads per span; if four readers read the log, a fifth as many records."""
SAMPLE: Final = 1 << 12
"""Sampled offsets per span, from which its end is estimated."""
TaskRunner = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""Calls a function with each argument, here or in workers, and returns the results in the order of the arguments."""


@dataclass(frozen=True, slots=True)
class DividedPartition:
    """A partition that was surveyed, and the plan of its slices."""

    chunks: Chunks
    promise: Promise
    plan: Plan
    facts: Facts

    @classmethod
    def of(
        cls, chunks: Chunks, promise: Promise, run_tasks: TaskRunner = map, size: int | None = None
    ) -> "DividedPartition | None":
        """Survey a partition; None if it cannot be divided: it is compacted, its rows are not in completion
        order, or a deletion is to a high watermark that is not stated.

        `size` is the number of offsets per span, `SPAN` by default.
        """
        if promise.compaction:  # records due at an offset depend on later ones of the same key
            return None
        places = range(len(chunks))
        size = size or SPAN
        every = max(1, size // SAMPLE)
        samples = list(run_tasks(partial(sample, chunks, every=every, promise=promise), places))
        summaries = [summary for _, summary in samples if summary is not None]
        if len(summaries) < len(samples):
            return None
        summary, bounds = Summary.merge(summaries), span_bounds([offsets for offsets, _ in samples], size // every)
        surveys = list(run_tasks(partial(survey, chunks, bounds=bounds, promise=promise, summary=summary), places))
        assert np.all(bounds[1:] > bounds[:-1]), "bounds of spans do not increase"
        assert len(surveys) == len(chunks), (len(surveys), len(chunks))
        assert all(a.rows[1] == b.rows[0] for a, b in pairwise(surveys)), "surveys leave out rows"
        slice_plan = plan(surveys, bounds, promise, summary)
        if slice_plan is None:
            return None
        (facts,) = run_tasks(partial(_facts, chunks, summary=summary), [promise])
        assert len(slice_plan.times) == len(chunks), (len(slice_plan.times), len(chunks))
        assert all(a.span[1] < b.span[0] for a, b in pairwise(slice_plan.spans)), "spans overlap"
        return cls(chunks, promise, slice_plan, facts)

    def check(self, run_tasks: TaskRunner = map) -> list[RuleFindings]:
        """Return the findings of the whole partition, as `check_view` would."""
        findings, parts = [], []
        for mine, values in run_tasks(partial(_check_span, self.chunks, self.facts, self.promise), self.plan.spans):
            findings += mine
            parts.append(values)
        values = _concatenate_values(parts)
        times = [(time, values.of(*time.rows, time.outside_window.number)) for time in self.plan.times]
        for mine in run_tasks(partial(_check_time, self.chunks, self.facts.summary, self.promise), times):
            findings += mine
        for number in range(len(FAMILIES)):
            if _applies(number, self.chunks):  # one by one: these tasks need the most memory
                for mine in run_tasks(
                    partial(_check_columns, self.chunks, values, self.facts.summary, self.promise), [number]
                ):
                    findings += mine
        end = self.plan.times[-1].rows[1]
        assert all(_holds_rows_below(end, family.findings) for family in findings), "a finding outside the partition"
        return merge_findings(findings, self.facts.summary.unplaced_tombstones)

    def map_spans(self, work: Callable[[View], T], run_tasks: TaskRunner = map) -> Iterable[T]:
        """Yield the result of `work` for each span."""
        return run_tasks(partial(_work_on_span, work, self.chunks, self.facts, self.promise), self.plan.spans)

    def run_on_columns(self, work: Callable[[View], T], names: Sequence[str], run_tasks: TaskRunner = map) -> T:
        """Return the result of `work` on all operations, of which it sees these columns."""
        results: list[T] = list(
            run_tasks(partial(_work_on_columns, work, self.chunks, self.facts.summary, self.promise), [tuple(names)])
        )
        return results[0]


def _holds_rows_below(end: int, findings: RuleFindings) -> bool:
    """Return whether both witnesses are `NO_ROW` or row numbers below `end`; numbers of transactions in G1c pass."""
    low = min(int(findings.first.min(initial=NO_ROW)), int(findings.second.min(initial=NO_ROW)))
    high = max(int(findings.first.max(initial=NO_ROW)), int(findings.second.max(initial=NO_ROW)))
    return findings.rule is Rule.G1C or (low == NO_ROW and high < end)


# -- tasks -------------------------------------------------------------------------------------------


def _facts(chunks: Chunks, promise: Promise, summary: Summary) -> Facts:
    """Return what a span view must know of the whole partition."""
    stuck_end, jumps = int(NEVER), NO_JUMPS
    if promise.patience_ms >= 0 and chunks.has_values("calm_ms"):
        view = columns_view(chunks, STUCK, NO_VALUES, promise, summary, sends_and_quiet_rows)
        stuck_end = view.stuck_end
    if chunks.has_values("began"):
        view = columns_view(chunks, JUMPS, NO_VALUES, promise, summary, reads_with_records)
        jumps = find_jumps(view).to_partition_rows(view)
    return Facts(stuck_end, jumps, summary)


def _check_span(chunks: Chunks, facts: Facts, promise: Promise, span: Span) -> tuple[list[FamilyFindings], Values]:
    view = span_view(chunks, span, facts, promise)
    findings = [
        # Candidates of G1c are numbers of transactions, not rows.
        piece if piece.findings.rule == Rule.G1C else piece.to_partition_rows(view, view.in_span(piece.findings.offset))
        for piece in run_families(view, Cut.OFFSETS)
    ]
    unacknowledged = np.flatnonzero(
        (view.ops.offset[view.sends] == UNKNOWN) & (view.ops.value[view.sends] != TOMBSTONE)
    )
    unacknowledged = unacknowledged[view.send_offset[unacknowledged] != UNKNOWN]
    sends, reads = view.early if view.has_transactions else (NOTHING, NOTHING)
    values = Values(
        view.to_partition_rows(view.sends[unacknowledged]),
        view.send_offset[unacknowledged],
        view.to_partition_rows(sends),
        view.to_partition_rows(reads),
        view.unplaced_records[view.in_span(view.unplaced_records)],
    )
    return findings, values


def _concatenate_values(parts: list[Values]) -> Values:
    """Concatenate the values of all spans; each send occurs once, in increasing order."""
    sends = np.concatenate([NOTHING, *(part.sends for part in parts)])
    offsets = np.concatenate([NOTHING, *(part.offsets for part in parts)])
    sends, once = np.unique(sends, return_index=True)
    others = (np.concatenate([NOTHING, *(getattr(part, name) for part in parts)]) for name in Values.OTHERS)
    assert np.all(sends[1:] > sends[:-1]), "sends do not increase"
    return Values(sends, offsets[once], *others)


def _check_time(chunks: Chunks, summary: Summary, promise: Promise, task: tuple[Time, Values]) -> list[FamilyFindings]:
    view = time_view(chunks, *task, promise, summary)
    judged = {Cut.ROWS: view.own, Cut.TIME: view.invoked_here}
    return [
        piece.to_partition_rows(view, mask[piece.findings.first])
        for cut, mask in judged.items()
        for piece in run_families(view, cut)
    ]


def _applies(number: int, chunks: Chunks) -> bool:
    """Return whether the family needs all operations, and the columns that it requires have values."""
    family = FAMILIES[number]
    return family.cut is Cut.WHOLE and chunks.has_values(*family.required_columns)


def _check_columns(
    chunks: Chunks, values: Values, summary: Summary, promise: Promise, number: int
) -> list[FamilyFindings]:
    family = FAMILIES[number]
    view = columns_view(chunks, family.columns, values, promise, summary, family.rows)
    return [piece.to_partition_rows(view) for piece in run_family(number, view)]


def _work_on_span(work: Callable[[View], T], chunks: Chunks, facts: Facts, promise: Promise, span: Span) -> T:
    return work(span_view(chunks, span, facts, promise))


def _work_on_columns(
    work: Callable[[View], T], chunks: Chunks, summary: Summary, promise: Promise, names: tuple[str, ...]
) -> T:
    return work(columns_view(chunks, names, NO_VALUES, promise, summary))
