"""Check read_committed within one partition: aborted, own, early and torn reads, and hanging transactions.

The coordinator replies to EndTxn when the decision is logged and writes the markers later (KIP-98). So the records need
not be visible at the reply, but they must not be visible before the EndTxn request.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from highwater.reports.columns import NEVER, NOTHING, TOMBSTONE, UNKNOWN, Fate, Ints, Isolation, Status
from highwater.reports.rules.checks.log import latest_of_key
from highwater.reports.rules.checks.register import proved_ends
from highwater.reports.rules.findings import (
    NO_ROW,
    Bounds,
    Mask,
    RuleFindings,
    Weight,
    distinct,
    first_of_each,
    no_findings,
    sweep,
)
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.summary import Timeline
from highwater.reports.rules.view import View


def aborted_reads(view: View) -> tuple[RuleFindings, ...]:
    """Find aborted-read: a read_committed reader received a value whose transaction was aborted."""
    if not view.has_transactions:
        return ()
    aborted = view.ops.fate == Fate.ABORTED
    return _received(Rule.ABORTED_READ, view, (view.writer != NO_ROW) & aborted[view.writer])


def own_reads(view: View) -> tuple[RuleFindings, ...]:
    """Find precommitted-read: a transaction read a record that it wrote itself, so before its commit."""
    txn, row, writer = view.ops.txn, view.record_row, view.writer
    if not view.has_transactions:
        return ()
    own = (writer != NO_ROW) & (txn[row] != UNKNOWN) & (txn[row] == txn[writer])
    return _received(Rule.PRECOMMITTED_READ, view, own & ~view.perhaps_of_another_transaction)


def _received(rule: Rule, view: View, records: Mask) -> tuple[RuleFindings, ...]:
    """Return records that read_committed readers received, one for each send; undecided if no read states its level."""
    ops, row = view.ops, view.record_row
    bad = np.flatnonzero(view.committed_receipt & records)
    bad = bad[np.argsort(ops.isolation[row[bad]] != Isolation.READ_COMMITTED, kind="stable")]
    bad = bad[first_of_each(view.writer[bad])]
    return _by_isolation(view, RuleFindings(rule, row[bad], view.writer[bad], ops.record_offset[bad]))


def _by_isolation(view: View, found: RuleFindings) -> tuple[RuleFindings, RuleFindings]:
    """Split findings: they are violations if the first operation is known to be read_committed, else undecided."""
    certain = view.ops.isolation[found.first] == Isolation.READ_COMMITTED
    return found.where(certain), replace(found.where(~certain), weight=Weight.UNDECIDED)


def early_reads(view: View) -> tuple[RuleFindings, ...]:
    """Find early-read: a read returned, or passed, a record of a transaction before the EndTxn request."""
    ops = view.ops
    if not view.has_transactions:
        return ()
    early, passed = view.early, _passed(view)
    unsure = ops.isolation[early[1]] != Isolation.READ_COMMITTED
    parts = [column[~unsure] for column in early], passed, [column[unsure] for column in early]
    send, read = (np.concatenate(column) for column in zip(*parts, strict=True))
    certain = np.arange(len(send)) < len(send) - np.count_nonzero(unsure)
    first = first_of_each(ops.txn[send])
    offsets = view.send_offset[np.searchsorted(view.sends, send[first])]
    found, certain = RuleFindings(Rule.EARLY_READ, read[first], send[first], offsets), certain[first]
    return found.where(certain), replace(found.where(~certain), weight=Weight.UNDECIDED)


def _passed(view: View) -> tuple[Ints, Ints]:
    """Return (send, read): first records of transactions, and reads that passed them too early.

    A transaction's reads of its own records are left to precommitted-read.
    """
    txn, lower, upper = view.ops.txn, _released(view), _begun(view)
    send, read, _ = sweep(lower, upper)
    own = txn[send] == txn[read]
    again = [sweep(lower.where(txn[lower.row] != txn[row]), upper.where(upper.row == row)) for row in send[own]]
    return (
        np.concatenate([send[~own], *(result[0] for result in again)]),
        np.concatenate([read[~own], *(result[1] for result in again)]),
    )


def _begun(view: View) -> Bounds:
    """Return upper bounds: the last stable offset is at most the first offset of an open transaction.

    A transaction is open at its commit request, while it sends a record that is in the log, and until its marker is
    appended.
    """
    ops, sends = view.ops, view.sends
    known = (ops.txn[sends] != UNKNOWN) & (view.send_offset != UNKNOWN)
    rows, offset = sends[known], view.send_offset[known]
    order = np.lexsort((offset, ops.txn[rows]))
    rows, offset = rows[order], offset[order]
    if not len(rows):
        return Bounds(NOTHING, NOTHING, NOTHING)
    first = first_of_each(ops.txn[rows])
    appended = ops.status[rows] != Status.FAIL
    committed = np.where(ops.fate[rows] == Fate.COMMITTED, ops.ended[rows], UNKNOWN)
    latest = np.maximum.reduceat(np.maximum(committed, np.where(appended, ops.invoked[rows], UNKNOWN)), first)
    if view.promise.acks_all and not view.promise.unclean_election:
        last = np.maximum.reduceat(np.where(appended, offset, UNKNOWN), first)
        ends = proved_ends(view)
        ended = np.maximum.reduceat(committed, first)
        begin = np.maximum(last + 1, Timeline.of(ends.time, ends.z).before(ended))
        latest = np.maximum(latest, _appended_at(view, begin, offset[first]))
    return Bounds(latest, offset[first], rows[first])


def _appended_at(view: View, begin: Ints, first: Ints) -> Ints:
    """Return the event index before which the marker of each transaction was not appended.

    A marker is at or above `begin`, at an offset without a record, which no transaction with a smaller `first` offset
    needs for its own. A log that loses nothing grows only at its end: all records before were requested before.
    """
    rows, offset = view.placed
    rows = rows[np.argsort(offset[rows], kind="stable")]
    taken = offset[rows]
    requested = np.append(UNKNOWN, np.maximum.accumulate(view.ops.invoked[rows]))
    ends = np.flatnonzero(np.diff(taken, append=NEVER) > 1)

    def free(place: Ints) -> Ints:
        """Return the first offset from each place on that has no record."""
        slot = np.minimum(np.searchsorted(taken, place), len(taken) - 1)
        behind: Ints = taken[ends[np.searchsorted(ends, slot)]] + 1
        return np.where(taken[slot] == place, behind, place)

    place = free(begin) if len(taken) else begin
    for _ in range(MARKERS_AT_MOST):
        order = np.lexsort((first, place))
        again = order[1:][np.diff(place[order]) == 0]
        if not len(again):
            break
        place[again] = free(place[again] + 1) if len(taken) else place[again] + 1
    return requested[np.searchsorted(taken, place)]


MARKERS_AT_MOST: Final = 100
"""Markers that are given offsets of their own behind one record; the others may share the last, which finds less."""


def _released(view: View) -> Bounds:
    """Return lower bounds of the last stable offset, from read_committed reads and reported last stable offsets."""
    ops, reading = view.ops, view.reading
    committed = ops.isolation[reading.row] == Isolation.READ_COMMITTED
    rows, end = reading.row[committed], reading.last[committed] + 1
    reporting = np.flatnonzero(view.reports & (ops.last_stable_offset != UNKNOWN))
    rows, end = np.concatenate([rows, reporting]), np.concatenate([end, ops.last_stable_offset[reporting]])
    return Bounds(ops.returned[rows], end, rows)


def passed_over(view: View) -> RuleFindings:
    """Find candidates of torn-transaction: records of transactions that read_committed reads skipped.

    `highwater.reports.rules.run` keeps those whose transaction has a visible record in any partition.
    """
    ops, sends = view.ops, view.sends
    if not view.has_transactions:
        return no_findings(Rule.TORN_TRANSACTION)
    rows = sends[
        (ops.txn[sends] != UNKNOWN) & ~view.rejected[sends] & ~view.in_committed_read[sends]
        & (view.send_offset >= 0)
    ]  # fmt: skip
    offset = view.send_offset[np.searchsorted(sends, rows)]
    if view.promise.compaction:
        data = ops.value[rows] != TOMBSTONE
        rows, offset, _ = latest_of_key(view, rows[data], offset[data])
    covered, by = view.passed(rows, offset, ops.isolation[view.covered[0]] == Isolation.READ_COMMITTED)
    return RuleFindings(Rule.TORN_TRANSACTION, rows[covered], by[covered], offset[covered])


def visible(view: View, txns: Ints) -> tuple[Ints, Ints]:
    """Return the transactions of `txns` with a record in a read here that is, or that may be, read_committed."""
    chosen = np.flatnonzero(view.committed_read & (view.writer != NO_ROW))
    txn = view.ops.txn[view.writer[chosen]]
    certain = view.ops.isolation[view.record_row[chosen]] == Isolation.READ_COMMITTED
    return np.intersect1d(txn[certain], txns), np.intersect1d(txn[~certain], txns)


def hanging_transactions(view: View) -> RuleFindings:
    """Find hanging-transaction: the last stable offset stays longer than a transaction may last, while the log grows.

    Time counts from the last fault: until then the coordinator may be down and unable to abort the transaction.
    """
    ops, limit = view.ops, view.promise.transaction_timeout_ms
    if not ops.has_values("last_stable_offset") or limit < 0:
        return no_findings(Rule.HANGING_TRANSACTION)
    reported = view.reports & (ops.last_stable_offset != UNKNOWN)
    lagging = reported & (ops.last_stable_offset < ops.high_watermark) & (ops.at_ms != UNKNOWN)
    rows = np.flatnonzero(lagging)
    rows = rows[np.lexsort((ops.returned[rows], ops.last_stable_offset[rows]))]
    stable = ops.last_stable_offset[rows]
    long = _unchanged_ms(view, rows, rows[np.searchsorted(stable, stable)]) > limit
    pairs = [_hanging(view, reported, rows[stable == each]) for each in distinct(stable[long])]
    again, first = np.concatenate([np.zeros((2, 0), np.int64), *pairs], axis=1)
    return RuleFindings(Rule.HANGING_TRANSACTION, again, first, ops.last_stable_offset[again])


def _hanging(view: View, reported: Mask, same: Ints) -> Ints:
    """Return the last reply of `same` that shows that a transaction hangs, and the one since which; or no column.

    `same` are the replies with one last stable offset, in their order; one that is larger, and arrived before or at the
    same time, shows that it advanced.
    """
    ops = view.ops
    larger = np.sort(ops.returned[reported & (ops.last_stable_offset > ops.last_stable_offset[same[0]])])
    advanced = np.append(UNKNOWN, larger)[np.searchsorted(larger, ops.returned[same], side="right")]
    first = same[np.searchsorted(ops.returned[same], advanced)]
    hangs = _unchanged_ms(view, same, first) > view.promise.transaction_timeout_ms
    last = np.flatnonzero(hangs & (ops.high_watermark[same] > ops.high_watermark[first]))[-1:]
    return np.stack([same[last], first[last]])


def _unchanged_ms(view: View, rows: Ints, since: Ints) -> Ints:
    """Return the time from the replies `since`, or the last fault, to the invocation of those in `rows`."""
    ops = view.ops
    unchanged_ms: Ints = np.minimum(ops.at_ms[rows] - ops.at_ms[since], ops.calm_ms[rows])
    return unchanged_ms - np.maximum(ops.open_ms[rows], 0)
