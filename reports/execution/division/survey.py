"""What a chunk tells to the others: the offsets and values in it, and the few rows that they must know of."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from highwater.reports.columns import NEVER, TOMBSTONE, UNKNOWN, Ints, Kind, Status, with_ends
from highwater.reports.execution.division.chunks import Chunks, Rows
from highwater.reports.rules.findings import NOBODY, Bounds, Promise, distinct, first_of_each
from highwater.reports.rules.register import lower_bounds
from highwater.reports.rules.view import View

SENDS: Final = (Kind.SEND, Kind.FORMER)


@dataclass(frozen=True, slots=True)
class Survey:
    """Of one chunk. Where nothing was returned, `first` and `last` are `NEVER`, and so on; see `survey`."""

    rows: tuple[int, int]
    first: int
    last: int
    ascends: bool
    offsets: tuple[int, int]
    log_start: int
    carried: Rows
    heads: Rows  # the first read of each process and run: where it began others know
    senders: Ints  # processes
    epochs: Ints
    astray: Rows  # invoked before anything here was returned, or after
    neighbours: Rows  # of each span the last acknowledged send of a transaction
    values: Ints
    spans: Ints  # in which span each of `values` is told; -1: sent, and no offset told


def offsets_told(chunks: Chunks, chunk: int, every: int) -> Ints:
    """One in so many of them."""
    ops = chunks.read(chunk).ops
    sent = ops.offset[(ops.kind == Kind.SEND) & (ops.offset != UNKNOWN)]
    return np.concatenate([sent, ops.record_offset])[::every]


def survey(chunks: Chunks, chunk: int, bounds: Ints, promise: Promise) -> Survey:
    """`bounds` are the first offsets of all spans but the first."""
    rows = chunks.read(chunk)
    view = View(rows.ops, promise)
    ops, reading = view.ops, view.reading
    returned = ops.returned[ops.returned < NEVER]
    first, last = int(returned.min(initial=NEVER)), int(returned.max(initial=-1))
    values, spans = _values(view, bounds)
    ends = Rows(with_ends(ops), rows.number)
    return Survey(
        rows=(int(rows.number[0]), int(rows.number[-1]) + 1),
        first=first,
        last=last,
        ascends=bool(np.all(np.diff(returned) >= 0)),
        offsets=_extent(view),
        log_start=view.log_start,
        carried=carried(ends, promise),
        heads=ends.pick(distinct(reading.row[reading.before == NOBODY])),
        senders=distinct(ops.process[view.acked]),
        epochs=distinct(ops.leader_epoch),
        astray=ends.pick(np.flatnonzero((ops.invoked < first) | (ops.invoked > last))),
        neighbours=ends.pick(_neighbours(view, bounds)),
        values=values,
        spans=spans,
    )


def carried(rows: Rows, promise: Promise) -> Rows:
    """Of these rows those that matter to all that follow. Of what is carried from parts it gives that of the whole."""
    view = View(rows.ops, promise)
    ops, reading = view.ops, view.reading
    last_read = np.append(reading.before[1:] == NOBODY, True)[: len(reading.row)]
    largest = [_largest(bounds, ops.leader_epoch[bounds.row]) for bounds in lower_bounds(view)]
    return rows.pick(distinct(np.concatenate([reading.row[last_read], _last_sent(view), *largest])))


def needed(rows: Rows, survey: Survey, astray: Rows, promise: Promise) -> Rows:
    """Of what was carried to a chunk that which has to do with anything in it, or invoked in its time."""
    view = View(rows.ops, promise)
    ops, read, sent = view.ops, view.reading.row, _last_sent(view)
    epochs = np.union1d(survey.epochs, astray.ops.leader_epoch)
    goes_on = np.isin(_runs(ops.process[read], ops.run[read]), _runs(survey.heads.ops.process, survey.heads.ops.run))
    chosen = [read[goes_on], sent[np.isin(ops.process[sent], survey.senders)]]
    for bounds in lower_bounds(view):
        epoch = ops.leader_epoch[bounds.row]
        largest = _largest(bounds, epoch)
        chosen += [largest[np.isin(ops.leader_epoch[largest], epochs)], _largest(bounds, np.zeros_like(epoch))]
    listing = (ops.kind == Kind.LIST_OFFSETS) & (ops.status == Status.OK)
    return rows.pick(distinct(np.concatenate([*chosen, np.flatnonzero(listing)])))


def _runs(process: Ints, run: Ints) -> Ints:
    both: Ints = process.astype(np.int64) << 32 | run
    return both


def _last_sent(view: View) -> Ints:
    """Of each process."""
    acked = view.acked[np.argsort(view.ops.process[view.acked], kind="stable")]
    process = view.ops.process[acked]
    last: Ints = acked[np.append(process[1:] != process[:-1], True)[: len(acked)]]
    return last


def _largest(bounds: Bounds, epoch: Ints) -> Ints:
    """The rows that came first to the largest of each epoch."""
    order = np.lexsort((bounds.time, -bounds.z, epoch))
    return bounds.row[order][first_of_each(epoch[order])]


def _extent(view: View) -> tuple[int, int]:
    """The first and the last offset that it has to do with; no offset lies in an empty one."""
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
    """Rows of reads, and the first and last offset that each proves something of, or has a record at."""
    rows, start, end = view.covered
    reads = len(view.reading.row)
    first = np.concatenate([np.minimum(start[:reads], view.reading.first), start[reads:]])
    return rows, first, np.where(end == NEVER, NEVER, end - 1)


def _neighbours(view: View, bounds: Ints) -> Ints:
    """Of each span the row with the largest offset."""
    ops = view.ops
    rows = view.acked[ops.txn[view.acked] != UNKNOWN]
    order = np.argsort(ops.offset[rows], kind="stable")[::-1]
    span = np.searchsorted(bounds, ops.offset[rows[order]], "right")
    return distinct(rows[order[first_of_each(span)]])


def _values(view: View, bounds: Ints) -> tuple[Ints, Ints]:
    """Each value in each span once."""
    ops = view.ops
    told = view.read_value & (ops.record_value != TOMBSTONE)
    sent = np.flatnonzero(np.isin(ops.kind, SENDS) & (ops.value != TOMBSTONE))
    placed = np.where(ops.kind[sent] == Kind.SEND, ops.offset[sent], UNKNOWN)
    value = np.concatenate([ops.value[sent], ops.record_value[told]])
    offset = np.concatenate([placed, ops.record_offset[told]])
    span = np.where(offset == UNKNOWN, UNKNOWN, np.searchsorted(bounds, offset, "right")).astype(np.int32)
    order = np.lexsort((span, value))
    value, span = value[order], span[order]
    new = np.append(True, (value[1:] != value[:-1]) | (span[1:] != span[:-1]))[: len(value)]
    return value[new], span[new]
