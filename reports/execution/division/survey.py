"""Survey a chunk: its offsets and values, and the few rows that other chunks need."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from highwater.reports.columns import NEVER, TOMBSTONE, UNKNOWN, Ints, Kind, Status, keep_end_records
from highwater.reports.execution.division.chunks import Chunks, Rows
from highwater.reports.rules.checks.register import lower_bounds
from highwater.reports.rules.findings import NO_ROW, Bounds, Promise, distinct, first_of_each
from highwater.reports.rules.summary import Summary, unresolved
from highwater.reports.rules.view import View

SENDS: Final = (Kind.SEND, Kind.FORMER)


@dataclass(frozen=True, slots=True)
class Survey:
    """Summary of one chunk; `first` and `last` are `NEVER` and -1 if no operation of it returned."""

    rows: tuple[int, int]
    first: int
    last: int
    sorted_by_return: bool
    offsets: tuple[int, int]
    carry_over: Rows
    first_reads: Rows  # first read of each process and run; where it began depends on earlier chunks
    senders: Ints  # processes
    outside_window: Rows  # rows invoked before the first return in the chunk, or after the last
    neighbours: Rows  # last acknowledged send of a transaction in each span
    values: Ints
    spans: Ints  # span of each of `values`; -1: sent without an acknowledged offset


def sample(chunks: Chunks, chunk: int, every: int, promise: Promise) -> tuple[Ints, Summary | None]:
    """Return every `every`-th acknowledged or read offset of a chunk, and its summary.

    The summary is None if it depends on other chunks: DeleteRecords(-1) deletes to an end that they may have proved.
    """
    ops = chunks.read(chunk).ops
    sent = ops.offset[(ops.kind == Kind.SEND) & (ops.offset != UNKNOWN)]
    offsets = np.concatenate([sent, ops.record_offset])[::every]
    return offsets, None if np.any(unresolved(ops)) else View(ops, promise).summary()


def survey(chunks: Chunks, chunk: int, bounds: Ints, promise: Promise, summary: Summary) -> Survey:
    """Survey a chunk. `bounds` are the first offsets of all spans but the first."""
    rows = chunks.read(chunk)
    view = View(rows.ops, promise, **summary.facts())
    ops, reading = view.ops, view.reading
    returned = ops.returned[ops.returned < NEVER]
    first, last = int(returned.min(initial=NEVER)), int(returned.max(initial=-1))
    values, spans = _values(view, bounds)
    ends = Rows(keep_end_records(ops), rows.number)
    return Survey(
        rows=(int(rows.number[0]), int(rows.number[-1]) + 1),
        first=first,
        last=last,
        sorted_by_return=bool(np.all(np.diff(returned) >= 0)),
        offsets=_extent(view),
        carry_over=carry_over(ends, promise, summary),
        first_reads=ends.pick(distinct(reading.row[reading.before == NO_ROW])),
        senders=distinct(ops.process[view.acked]),
        outside_window=ends.pick(np.flatnonzero((ops.invoked < first) | (ops.invoked > last))),
        neighbours=ends.pick(_neighbours(view, bounds)),
        values=values,
        spans=spans,
    )


def carry_over(rows: Rows, promise: Promise, summary: Summary) -> Rows:
    """Return the rows that later chunks may need. Associative: it may be applied to the results of parts."""
    view = View(rows.ops, promise, **summary.facts())
    reading = view.reading
    last_read = np.append(reading.before[1:] == NO_ROW, True)[: len(reading.row)]
    largest = [_largest(bounds, _epochs(view, bounds), view.ops.process[bounds.row]) for bounds in lower_bounds(view)]
    return rows.pick(distinct(np.concatenate([reading.row[last_read], _last_sent(view), *largest])))


def _epochs(view: View, bounds: Bounds) -> Ints:
    """Return a number for the leader epochs in which each operation can have been served."""
    first, last = view.epochs.of_rows(view.ops, bounds.row)
    number: Ints = np.unique(np.stack([first, last]), axis=1, return_inverse=True)[1].reshape(-1)
    return number


def select_carried(rows: Rows, survey: Survey, promise: Promise, summary: Summary) -> Rows:
    """Return the carried-over rows that concern a chunk, or rows invoked in its window."""
    view = View(rows.ops, promise, **summary.facts())
    ops, read, sent = view.ops, view.reading.row, _last_sent(view)
    goes_on = np.isin(
        _runs(ops.process[read], ops.run[read]), _runs(survey.first_reads.ops.process, survey.first_reads.ops.run)
    )
    chosen = [read[goes_on], sent[np.isin(ops.process[sent], survey.senders)]]
    chosen += [_largest(bounds, _epochs(view, bounds), view.ops.process[bounds.row]) for bounds in lower_bounds(view)]
    return rows.pick(distinct(np.concatenate(chosen)))


def _runs(process: Ints, run: Ints) -> Ints:
    both: Ints = process.astype(np.int64) << 32 | run
    return both


def _last_sent(view: View) -> Ints:
    """Return the last acknowledged send of each process."""
    acked = view.acked[np.argsort(view.ops.process[view.acked], kind="stable")]
    process = view.ops.process[acked]
    last: Ints = acked[np.append(process[1:] != process[:-1], True)[: len(acked)]]
    return last


def _largest(bounds: Bounds, epoch: Ints, process: Ints) -> Ints:
    """Return for each epoch the earliest row with the largest bound, and the same among the other processes."""
    order = np.lexsort((bounds.time, -bounds.z, epoch))
    rows, epoch, process = bounds.row[order], epoch[order], process[order]
    first = first_of_each(epoch)
    others = np.flatnonzero(process != process[first][np.searchsorted(epoch[first], epoch)])
    return np.concatenate([rows[first], rows[others[first_of_each(epoch[others])]]])


def _extent(view: View) -> tuple[int, int]:
    """Return the first and last offset that the chunk concerns; (`NEVER`, `UNKNOWN`) if none."""
    low, high = [], []
    for first, last in _extents(view):
        low.append(int(first.min(initial=NEVER)))
        high.append(int(last.max(initial=UNKNOWN)))
    return min(low), max(high)


def _extents(view: View) -> Iterator[tuple[Ints, Ints]]:
    ops = view.ops
    sent = ops.offset[(ops.kind == Kind.SEND) & (ops.offset != UNKNOWN)]
    yield sent, sent
    yield ops.record_offset, ops.record_offset
    dumps = np.flatnonzero((ops.kind == Kind.DUMP) & (ops.status == Status.OK))
    yield ops.position[dumps], ops.high_watermark[dumps]
    _, start, end = passed(view)
    yield start, end


def passed(view: View) -> tuple[Ints, Ints, Ints]:
    """Return rows of reads, and the first and last offset that each covers or has a record at."""
    rows, start, end = view.covered
    reads = len(view.reading.row)
    first = np.concatenate([np.minimum(view.begins_at, view.reading.first), start[reads:]])
    return rows, first, np.where(end == NEVER, NEVER, end - 1)


def _neighbours(view: View, bounds: Ints) -> Ints:
    """Return for each span the transactional send with the largest offset."""
    ops = view.ops
    rows = view.acked[ops.txn[view.acked] != UNKNOWN]
    order = np.argsort(ops.offset[rows], kind="stable")[::-1]
    span = np.searchsorted(bounds, ops.offset[rows[order]], "right")
    return distinct(rows[order[first_of_each(span)]])


def _values(view: View, bounds: Ints) -> tuple[Ints, Ints]:
    """Return distinct (value, span) pairs, sorted."""
    ops = view.ops
    read_values = view.read_value & (ops.record_value != TOMBSTONE)
    sent = np.flatnonzero(np.isin(ops.kind, SENDS) & (ops.value != TOMBSTONE))
    placed = np.where(ops.kind[sent] == Kind.SEND, ops.offset[sent], UNKNOWN)
    value = np.concatenate([ops.value[sent], ops.record_value[read_values]])
    offset = np.concatenate([placed, ops.record_offset[read_values]])
    span = np.where(offset == UNKNOWN, UNKNOWN, np.searchsorted(bounds, offset, "right")).astype(np.int32)
    order = np.lexsort((span, value))
    value, span = value[order], span[order]
    new = np.append(True, (value[1:] != value[:-1]) | (span[1:] != span[:-1]))[: len(value)]
    return value[new], span[new]
