"""Check leader epochs along the log: they never decrease with the offset (KIP-101)."""

from collections.abc import Iterator

import numpy as np

from highwater.reports.columns import UNKNOWN, Ints, Kind, Status
from highwater.reports.rules.findings import Bounds, RuleFindings, Weight, distinct, running_maximum, sweep, sweeps
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.view import View


def decreasing_epochs(view: View) -> tuple[RuleFindings, ...]:
    """Find epoch-safety (along a log): an operation of one leader epoch has a record of a newer one.

    A leader acknowledges again a record that an idempotent client had sent to its predecessor, so the epoch of an
    acknowledgement may be newer than that of the record: a finding that depends on it is undecided.
    """
    promise = view.promise
    allowed = (promise.acks_known and not promise.acks_all) or (promise.unclean_known and promise.unclean_election)
    if allowed or len(view.epochs.epoch) < 2:
        return ()
    weight = Weight.VIOLATION if promise.acks_all and not promise.unclean_election else Weight.UNDECIDED
    ends = _ends(view)
    certain = sweeps([(_appended(view), ends), *_listed(view, ends), _acknowledged_late(view)])
    unsure = sweep(_acknowledged(view), ends.where(~np.isin(ends.row, certain[0])))
    return tuple(
        RuleFindings(Rule.EPOCH_SAFETY, first, second, view.ops.leader_epoch[first], weight)
        for (first, second, _), weight in ((certain, weight), (unsure, Weight.UNDECIDED))
    )


def _ends(view: View) -> Bounds:
    """Return upper bounds along the log: the records below these ends are of at most the epoch of the operation."""
    ops, reading, acked = view.ops, view.reading, view.acked
    reporting = np.flatnonzero(view.reports & (ops.high_watermark != UNKNOWN))
    rows = np.concatenate([acked, reading.row, reporting])
    end = np.concatenate([ops.offset[acked] + 1, reading.last + 1, ops.high_watermark[reporting]])
    return Bounds(end, ops.leader_epoch[rows], rows).where(ops.leader_epoch[rows] != UNKNOWN)


def _stating(view: View) -> Ints:
    """Return the rows of successful operations that state a leader epoch."""
    ops = view.ops
    return np.flatnonzero((ops.status == Status.OK) & (ops.leader_epoch != UNKNOWN) & (ops.kind != Kind.FORMER))


def _acknowledged_late(view: View) -> tuple[Bounds, Bounds]:
    """Return the stated epochs, and those of acknowledged sends whose place is unknown, to sweep over the time.

    With acks=all a former leader commits nothing new, wherever the record is.
    """
    ops, stating = view.ops, _stating(view)
    late = stating[(ops.kind[stating] == Kind.SEND) & (view.placed[1][stating] == UNKNOWN)]
    return (
        Bounds(ops.returned[stating], ops.leader_epoch[stating], stating),
        Bounds(ops.invoked[late], ops.leader_epoch[late], late),
    )


def _acknowledged(view: View) -> Bounds:
    """Return lower bounds along the log: the leader epochs of acknowledgements at the places of their records."""
    ops, (rows, place) = view.ops, view.placed
    rows = rows[(ops.status[rows] == Status.OK) & (ops.leader_epoch[rows] != UNKNOWN)]
    return Bounds(place[rows], ops.leader_epoch[rows], rows)


def _listed(view: View, ends: Bounds) -> Iterator[tuple[Bounds, Bounds]]:
    """Yield the ends that leaders of each epoch listed, and larger ones of older epochs, to sweep over the time.

    A new leader lists no end below the records of former epochs (KIP-207), whenever those reply; rules 14 and 16 find
    an end below what was proved before. Ends are negative, since the smaller one is first.
    """
    ops = view.ops
    listing = view.reports & (ops.kind == Kind.LIST_OFFSETS) & (ops.high_watermark != UNKNOWN)
    rows = np.flatnonzero(listing & (ops.leader_epoch != UNKNOWN))
    for epoch in distinct(ops.leader_epoch[rows]):
        mine, older = rows[ops.leader_epoch[rows] == epoch], ends.where(ends.z < epoch)
        yield (
            Bounds(ops.invoked[mine], -ops.high_watermark[mine], mine),
            Bounds(ops.returned[older.row], -older.time, older.row),
        )


def _appended(view: View) -> Bounds:
    """Return lower bounds along the log: the largest epoch that was stated before a send began, with that operation.

    With acks=all a former leader commits nothing new.
    """
    ops, sends, offset = view.ops, view.sends, view.send_offset
    stating = _stating(view)
    stating = stating[np.argsort(ops.returned[stating], kind="stable")]
    largest, by = running_maximum(ops.leader_epoch[stating])
    placed = np.flatnonzero((ops.status[sends] != Status.FAIL) & (offset != UNKNOWN))
    before = np.searchsorted(ops.returned[stating], ops.invoked[sends[placed]]) - 1
    placed, before = placed[before >= 0], before[before >= 0]
    return Bounds(offset[placed], largest[before], stating[by[before]])
