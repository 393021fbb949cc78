"""Check offsets in real time: stale-read, future-read, high-watermark-regression, read-beyond-end, deleted records.

Log end and high watermark are registers. Operations yield bounds: a lower bound (t, z) says "from t on the register
is at least z", an upper bound says "at t it was at most z". An upper bound below an earlier lower bound is an anomaly,
and the two operations are its witnesses.
"""

from collections.abc import Iterator

import numpy as np

from highwater.reports.columns import NEVER, UNKNOWN, Ints, Isolation, Kind, Status, smallest_due_offsets
from highwater.reports.rules.checks.log import send_bounds
from highwater.reports.rules.findings import (
    NO_ROW,
    Bounds,
    Mask,
    RuleFindings,
    Weight,
    distinct,
    first_of_each,
    no_findings,
    no_second_witness,
    sweep,
    sweeps,
)
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.summary import NO_EPOCH
from highwater.reports.rules.view import View


def future_reads(view: View) -> RuleFindings:
    """Find future-read: a read returned a value before its send was invoked."""
    ops = view.ops
    writer, row = view.writer, view.record_row
    early = np.flatnonzero(view.read_value & (writer != NO_ROW) & (ops.returned[row] < ops.invoked[writer]))
    if not len(early):
        return no_findings(Rule.FUTURE_READ)
    send = view.first_writer(early)
    still = ops.returned[row[early]] < ops.invoked[send]
    early, send = early[still], send[still]
    once = first_of_each(send)
    return RuleFindings(Rule.FUTURE_READ, send[once], row[early[once]], ops.record_offset[early[once]])


def future_ends(view: View) -> RuleFindings:
    """Find future-read: an operation reported an end beyond a record's offset before its send was invoked."""
    promise = view.promise
    if promise.unclean_election and promise.unclean_known:
        return no_findings(Rule.FUTURE_READ)
    weight = Weight.VIOLATION if promise.unclean_known else Weight.UNDECIDED
    return RuleFindings(Rule.FUTURE_READ, *sweep(_reported_ends(view), send_bounds(view)), weight)


def _reported_ends(view: View) -> Bounds:
    """Return lower bounds of the log end: reported high watermarks and last stable offsets, and records of reads."""
    return _ends(view) + _stable_ends(view) + _read_to(view)


def proved_ends(view: View) -> Bounds:
    """Return all lower bounds of the log end: what replies report, and the places of acknowledged records."""
    ops, (rows, place) = view.ops, view.placed
    rows = rows[(ops.status[rows] == Status.OK) & ((ops.offset[rows] != UNKNOWN) | view.written_once[rows])]
    return _reported_ends(view) + Bounds(ops.returned[rows], place[rows] + 1, rows)


def _reports(view: View, column: Ints) -> Ints:
    """Return rows of successful reads and ListOffsets with a value in `column`."""
    return np.flatnonzero(view.reports & (column != UNKNOWN))


def _ends(view: View) -> Bounds:
    rows = _reports(view, view.ops.high_watermark)
    return Bounds(view.ops.returned[rows], view.ops.high_watermark[rows], rows)


def _read_to(view: View) -> Bounds:
    reading = view.reading
    return Bounds(view.ops.returned[reading.row], reading.last + 1, reading.row)


def lower_bounds(view: View) -> Iterator[Bounds]:
    """Yield all lower bounds that the sweeps use, by kind of evidence."""
    ops, acked = view.ops, view.acked
    yield Bounds(ops.returned[acked], ops.offset[acked] + 1, acked)
    read = _read_to(view)
    yield read
    yield read.where(ops.isolation[read.row] == Isolation.READ_COMMITTED)
    ends = _ends(view)
    yield ends
    yield _stable_ends(view)
    yield view.log_start_proofs


def _as_upper(view: View, bounds: Bounds) -> Bounds:
    return Bounds(view.ops.invoked[bounds.row], bounds.z, bounds.row)


def _split(rule: Rule, view: View, lower: Bounds, upper: Bounds) -> tuple[RuleFindings, ...]:
    """Return smaller ends by weight: a violation within a leader epoch, information between two.

    A new leader's high watermark may lag, but it answers ListOffsets only when it reached the start of its epoch
    (KIP-207). An end is undecided if the history shows no change of leader between both. All of them show in a sweep
    over all epochs, so a healthy partition is swept once.
    """
    over_all, witness, z = sweep(lower, upper)
    if not len(over_all):
        return tuple(no_findings(rule, weight) for weight in Weight)
    suspects = upper.where(np.isin(upper.row, over_all))
    suspects = suspects.where(~view.by_follower[suspects.row])
    within = sweeps((*_by_epoch(view, lower, suspects), *_listed(view, lower, suspects)))
    undecided = sweeps(_perhaps_within(view, lower, suspects.where(~np.isin(suspects.row, within[0]))))
    across = ~np.isin(over_all, np.concatenate([within[0], undecided[0]]))
    return (
        RuleFindings(rule, *within),
        RuleFindings(rule, *undecided, Weight.UNDECIDED),
        RuleFindings(rule, over_all[across], witness[across], z[across], Weight.INFORMATION),
    )


def _by_epoch(view: View, lower: Bounds, upper: Bounds) -> Iterator[tuple[Bounds, Bounds]]:
    """Yield the bounds of each leader epoch, of operations that are known to be in it."""
    (low, low_end), (up, up_end) = (view.epochs.of_rows(view.ops, bounds.row) for bounds in (lower, upper))
    low, up = np.where(low == low_end, low, UNKNOWN), np.where(up == up_end, up, UNKNOWN)
    for epoch in distinct(up[up != UNKNOWN]):
        yield lower.where(low == epoch), upper.where(up == epoch)


def _listed(view: View, lower: Bounds, upper: Bounds) -> Iterator[tuple[Bounds, Bounds]]:
    """Yield ListOffsets of each leader epoch, and the bounds of operations in this or an earlier one."""
    ops = view.ops
    listed = upper.where(ops.kind[upper.row] == Kind.LIST_OFFSETS)
    (_, last), (first, _) = (view.epochs.of_rows(ops, bounds.row) for bounds in (lower, listed))
    for epoch in distinct(first):
        if epoch != UNKNOWN:
            yield lower.where(last <= epoch), listed.where(first == epoch)


def _perhaps_within(view: View, lower: Bounds, upper: Bounds) -> Iterator[tuple[Bounds, Bounds]]:
    """Yield the bounds of operations between which the history shows no change of leader."""
    if not len(upper.row):
        return
    low, up = (view.epochs.only_one(view.ops, bounds.row) for bounds in (lower, upper))
    yield lower.where(low == NO_EPOCH), upper
    yield lower, upper.where(up == NO_EPOCH)
    for epoch in distinct(up[up >= 0]):
        yield lower.where(low == epoch), upper.where(up == epoch)


def stale_reads(view: View) -> tuple[RuleFindings, ...]:
    """Find stale-read: an end below the high watermark that reads, and with acks=all acknowledgements, prove.

    Reads with read_committed prove the last stable offset.
    """
    lower = _proven(view)
    findings = _split(Rule.STALE_READ, view, lower, _as_upper(view, _ends(view)))
    if not view.ops.has_values("last_stable_offset"):
        return findings
    committed = view.ops.isolation[lower.row] == Isolation.READ_COMMITTED
    return *findings, *_split(Rule.STALE_READ, view, lower.where(committed), _as_upper(view, _stable_ends(view)))


def stale_counts(view: View) -> tuple[RuleFindings, ...]:
    """Find stale-read: an end below the number of records that were acknowledged before, each at its own offset."""
    ops, sends, promise = view.ops, view.sends, view.promise
    acked = sends[ops.status[sends] == Status.OK]
    if not len(acked) or (promise.acks_known and not promise.acks_all):
        return ()
    acked = acked[np.lexsort((ops.returned[acked], ops.leader_epoch[acked]))]
    begins = first_of_each(ops.leader_epoch[acked])
    count = np.arange(1, len(acked) + 1) - np.repeat(begins, np.diff(begins, append=len(acked)))
    return _split(Rule.STALE_READ, view, Bounds(ops.returned[acked], count, acked), _as_upper(view, _ends(view)))


def stale_stable_ends(view: View) -> tuple[RuleFindings, ...]:
    """Find stale-read in last stable offsets: without an open transaction they equal the high watermark."""
    if not view.ops.has_values("last_stable_offset"):
        return ()
    stable = _stable_ends(view)
    return _split(
        Rule.STALE_READ, view, _proven(view), _as_upper(view, stable.where(_not_first_of_a_transaction(view, stable.z)))
    )


def _proven(view: View) -> Bounds:
    """Return what reads prove, and acknowledgements unless acks is not "all"; unstated, it leaves a stale read open."""
    ops, acked, promise = view.ops, view.acked, view.promise
    proven = _read_to(view)
    if promise.acks_known and not promise.acks_all:
        return proven
    return proven + Bounds(ops.returned[acked], ops.offset[acked] + 1, acked)


def _stable_ends(view: View) -> Bounds:
    rows = _reports(view, view.ops.last_stable_offset)
    return Bounds(view.ops.returned[rows], view.ops.last_stable_offset[rows], rows)


def _not_first_of_a_transaction(view: View, end: Ints) -> Mask:
    """Mask offsets of records that are not the first of a transaction: only a first record holds back the LSO.

    False throughout if the history names no transactions, since there may be some.
    """
    ops, acked = view.ops, view.acked
    if not view.has_transactions:
        return np.zeros(len(end), bool)
    ordered = acked[np.lexsort((ops.offset[acked], ops.txn[acked]))]
    later = ops.txn[ordered] == UNKNOWN
    later[1:] |= ops.txn[ordered[1:]] == ops.txn[ordered[:-1]]
    first = ops.offset[ordered[~later]]
    return np.isin(end, ops.offset[ordered[later]]) & ~np.isin(end, first)


def regressions(view: View) -> tuple[RuleFindings, ...]:
    """Find high-watermark-regression: an end below one that was reported before."""
    ends = _ends(view)
    findings = _split(Rule.HIGH_WATERMARK_REGRESSION, view, ends, _as_upper(view, ends))
    if not view.ops.has_values("last_stable_offset"):
        return findings
    stable = _stable_ends(view)
    return *findings, *_split(Rule.HIGH_WATERMARK_REGRESSION, view, stable, _as_upper(view, stable))


def beyond_ends(view: View) -> tuple[RuleFindings, ...]:
    """Find read-beyond-end: the last record is at or above the high watermark, or last stable offset, of its reply.

    A leader reads the ends before the records (Partition.readRecords), so both may have advanced in between: undecided.
    """
    ops = view.ops
    high = _beyond(view, ops.high_watermark, np.ones(len(ops), bool))
    beyond_high = _undecided(Rule.READ_BEYOND_END, _high_watermark_proofs(view), high)
    if not ops.has_values("last_stable_offset"):
        return (beyond_high,)
    stable = _beyond(view, ops.last_stable_offset, ops.isolation == Isolation.READ_COMMITTED)
    proofs = _read_to(view)
    proofs = proofs.where(ops.isolation[proofs.row] == Isolation.READ_COMMITTED) + _stable_ends(view)
    return beyond_high, _undecided(Rule.READ_BEYOND_END, proofs, stable)


def _beyond(view: View, end: Ints, rows: Mask) -> Bounds:
    """Return the last record of each reply in which it is at or above `end`, when the reply was requested."""
    reading = view.reading
    row, last = reading.row, reading.last
    beyond = rows[row] & (end[row] != UNKNOWN) & (last >= end[row])
    return Bounds(view.ops.invoked[row], last, row).where(beyond)


def _high_watermark_proofs(view: View) -> Bounds:
    return _proven(view) + _ends(view)


def _undecided(rule: Rule, lower: Bounds, upper: Bounds) -> RuleFindings:
    """Return all upper bounds, with the earlier operation that disproves each, if there is one."""
    low, row, z = sweep(lower, upper)
    other = upper.where(~np.isin(upper.row, low))
    return RuleFindings(
        rule,
        np.concatenate([low, other.row]),
        np.concatenate([row, no_second_witness(other.row)]),
        np.concatenate([z, other.z]),
        Weight.UNDECIDED,
    )


def stable_offsets_beyond_ends(view: View) -> tuple[RuleFindings, ...]:
    """Find stable-offset-beyond-end: the last stable offset is above the high watermark of the same reply."""
    ops = view.ops
    if not ops.has_values("last_stable_offset"):
        return ()
    both = view.reports & (ops.high_watermark != UNKNOWN)
    rows = np.flatnonzero(both & (ops.last_stable_offset > ops.high_watermark))
    upper = Bounds(ops.invoked[rows], ops.last_stable_offset[rows] - 1, rows)
    return (_undecided(Rule.STABLE_OFFSET_BEYOND_END, _high_watermark_proofs(view), upper),)


def deleted_records(view: View) -> tuple[RuleFindings, ...]:
    """Find resurrected-record: a read returned a record below a log start that an operation before it proved.

    The log start of a leader never decreases (maybeIncrementLogStartOffset). A broker that was killed may forget it,
    and a follower learns it later.
    """
    lower = view.log_start_proofs
    if not len(lower.row):
        return ()
    upper = _smallest_due(view)
    suspects = upper.where(np.isin(upper.row, sweep(lower, upper)[0]))
    within = sweeps(_by_epoch(view, lower, suspects))
    undecided = sweeps(_perhaps_of_one_epoch(view, lower, suspects.where(~np.isin(suspects.row, within[0]))))
    return (
        RuleFindings(Rule.RESURRECTED_RECORD, *within),
        RuleFindings(Rule.RESURRECTED_RECORD, *undecided, Weight.UNDECIDED),
    )


def _smallest_due(view: View) -> Bounds:
    """Return upper bounds of the log start: the smallest record of each read at or above its position.

    A poll states no ends and no broker, so that a read which states one, and no position, is a raw fetch: the batches
    that it returned may begin below the position that it requested.
    """
    ops, rows = view.ops, view.reading.row
    stated = (ops.high_watermark != UNKNOWN) | (ops.last_stable_offset != UNKNOWN) | (ops.log_start_offset != UNKNOWN)
    stated |= (ops.leader_epoch != UNKNOWN) | (ops.node != UNKNOWN)
    rows = rows[((ops.position != UNKNOWN) | ~stated)[rows] & ~view.by_follower[rows]]
    due = smallest_due_offsets(ops)[rows]
    return Bounds(ops.invoked[rows], due, rows).where(due != NEVER)


def _perhaps_of_one_epoch(view: View, lower: Bounds, upper: Bounds) -> Iterator[tuple[Bounds, Bounds]]:
    """Yield the bounds of operations that are not known to be of different leader epochs."""
    if not len(upper.row):
        return
    (low, low_end), (up, up_end) = (view.epochs.of_rows(view.ops, bounds.row) for bounds in (lower, upper))
    for first, last in np.unique(np.stack([up, up_end]), axis=1).T:
        yield lower.where((low <= last) & (low_end >= first)), upper.where((up == first) & (up_end == last))
