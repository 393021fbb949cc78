"""Check leader epochs along the log: they never decrease with the offset (KIP-101)."""

import numpy as np

from highwater.reports.columns import UNKNOWN, Kind, Status
from highwater.reports.rules.findings import Bounds, RuleFindings, Weight, running_maximum, sweep
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
    certain = sweep(_appended(view), ends)
    unsure = sweep(_acknowledged(view), ends.where(~np.isin(ends.row, certain[0])))
    return RuleFindings(Rule.EPOCH_SAFETY, *certain, weight), RuleFindings(Rule.EPOCH_SAFETY, *unsure, Weight.UNDECIDED)


def _ends(view: View) -> Bounds:
    """Return upper bounds along the log: the records below these ends are of at most the epoch of the operation."""
    ops, reading, acked = view.ops, view.reading, view.acked
    reporting = np.flatnonzero(view.reports & (ops.high_watermark != UNKNOWN))
    rows = np.concatenate([acked, reading.row, reporting])
    end = np.concatenate([ops.offset[acked] + 1, reading.last + 1, ops.high_watermark[reporting]])
    return Bounds(end, ops.leader_epoch[rows], rows).where(ops.leader_epoch[rows] != UNKNOWN)


def _acknowledged(view: View) -> Bounds:
    """Return lower bounds along the log: the leader epochs of acknowledgements at their offsets."""
    ops = view.ops
    rows = view.acked[ops.leader_epoch[view.acked] != UNKNOWN]
    return Bounds(ops.offset[rows], ops.leader_epoch[rows], rows)


def _appended(view: View) -> Bounds:
    """Return lower bounds along the log: the largest epoch that was stated before a send began, with that operation.

    With acks=all a former leader commits nothing new.
    """
    ops, sends, offset = view.ops, view.sends, view.send_offset
    stating = np.flatnonzero((ops.status == Status.OK) & (ops.leader_epoch != UNKNOWN) & (ops.kind != Kind.FORMER))
    stating = stating[np.argsort(ops.returned[stating], kind="stable")]
    largest, by = running_maximum(ops.leader_epoch[stating])
    placed = np.flatnonzero((ops.status[sends] != Status.FAIL) & (offset != UNKNOWN))
    before = np.searchsorted(ops.returned[stating], ops.invoked[sends[placed]]) - 1
    placed, before = placed[before >= 0], before[before >= 0]
    return Bounds(offset[placed], largest[before], stating[by[before]])
