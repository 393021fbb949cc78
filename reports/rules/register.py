"""Check offsets in real time: stale-read, future-read and high-watermark-regression.

Log end and high watermark are registers. Operations yield bounds: a lower bound (t, z) says "from t on the register
is at least z", an upper bound says "at t it was at most z". An upper bound below an earlier lower bound is an anomaly,
and the two operations are its witnesses.
"""

from collections.abc import Iterator

import numpy as np

from highwater.reports.columns import NOTHING, UNKNOWN, Ints, Isolation, Kind, Status
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
from highwater.reports.rules.log import send_bounds
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.view import View


def future_reads(view: View) -> RuleFindings:
    """Find future-read: a read returned a value before its send was invoked."""
    ops = view.ops
    writer, row = view.writer, view.record_row
    early = np.flatnonzero(view.read_value & (writer != NO_ROW) & (ops.returned[row] < ops.invoked[writer]))
    if not len(early):
        return no_findings(Rule.FUTURE_READ)
    early = early[first_of_each(writer[early])]  # one finding per send
    send = writer[early]
    return RuleFindings(Rule.FUTURE_READ, send, row[early], view.send_offset[np.searchsorted(view.sends, send)])


def future_ends(view: View) -> RuleFindings:
    """Find future-read: an operation reported an end beyond a record's offset before its send was invoked."""
    if view.promise.unclean_election:
        return no_findings(Rule.FUTURE_READ)
    return RuleFindings(Rule.FUTURE_READ, *sweep(_ends(view) + _stable_ends(view) + _read_to(view), send_bounds(view)))


def _reports(view: View, column: Ints) -> Ints:
    """Return rows of reads and ListOffsets with a value in `column`; a dump reports the end of one replica only."""
    ops = view.ops
    reader = (ops.kind == Kind.READ) | (ops.kind == Kind.LIST_OFFSETS)
    return np.flatnonzero(reader & (ops.status == Status.OK) & (column != UNKNOWN))


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
    yield _listing(view, ends)
    yield _stable_ends(view)


def _as_upper(view: View, bounds: Bounds) -> Bounds:
    return Bounds(view.ops.invoked[bounds.row], bounds.z, bounds.row)


def _by_epoch(view: View, lower: Bounds, upper: Bounds) -> Iterator[tuple[Bounds, Bounds]]:
    """Yield the bounds of each known leader epoch; a new leader's high watermark may lag (KIP-207)."""
    epoch = view.ops.leader_epoch
    known = distinct(epoch[upper.row][epoch[upper.row] != UNKNOWN])
    if len(known) == 1:
        yield lower.where(epoch[lower.row] == known[0]), upper.where(epoch[upper.row] == known[0])
        return
    low, up = (bounds.where(np.argsort(epoch[bounds.row], kind="stable")) for bounds in (lower, upper))  # type: ignore[arg-type]
    low_epochs, up_epochs = epoch[low.row], epoch[up.row]
    for leader_epoch in known:
        yield _slice(low, low_epochs, leader_epoch), _slice(up, up_epochs, leader_epoch)


def _slice(bounds: Bounds, epochs: Ints, epoch: int) -> Bounds:
    first, end = np.searchsorted(epochs, [epoch, epoch + 1])
    return Bounds(bounds.time[first:end], bounds.z[first:end], bounds.row[first:end])


def _split(rule: Rule, view: View, lower: Bounds, upper: Bounds) -> tuple[RuleFindings, RuleFindings]:
    """Return the violations within an epoch, and as information those that only show across epochs.

    A violation within an epoch shows in the sweep over all epochs too, so a healthy partition is swept once.
    """
    over_all, witness, end = sweep(lower, upper)
    if not len(over_all):
        return no_findings(rule), no_findings(rule)
    suspects = upper.where(np.isin(upper.row, over_all))
    parts = [sweep(low, up) for low, up in _by_epoch(view, lower, suspects)]
    first, second, z = (np.concatenate(column) for column in zip(*parts, strict=True)) if parts else (NOTHING,) * 3
    other = ~np.isin(over_all, first)
    return (
        RuleFindings(rule, first, second, z),
        RuleFindings(rule, over_all[other], witness[other], end[other], weight=Weight.INFORMATION),
    )


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


def stale_stable_ends(view: View) -> tuple[RuleFindings, ...]:
    """Find stale-read in last stable offsets: without an open transaction they equal the high watermark."""
    if not view.ops.has_values("last_stable_offset"):
        return no_findings(Rule.STALE_READ), no_findings(Rule.STALE_READ)
    stable = _stable_ends(view)
    return _split(
        Rule.STALE_READ, view, _proven(view), _as_upper(view, stable.where(_not_first_of_a_transaction(view, stable.z)))
    )


def _proven(view: View) -> Bounds:
    ops, acked = view.ops, view.acked
    proven = _read_to(view)
    return proven + Bounds(ops.returned[acked], ops.offset[acked] + 1, acked) if view.promise.acks_all else proven


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
    """Find high-watermark-regression. ListOffsets waits for the epoch's start (KIP-207), so it may not fall at all."""
    ops = view.ops
    ends = _ends(view)
    within, across = _split(Rule.HIGH_WATERMARK_REGRESSION, view, ends, _as_upper(view, ends))
    findings = within, _fell_from_epoch_to_epoch(view, _listing(view, ends)), across
    if not ops.has_values("last_stable_offset"):
        return findings
    stable = _stable_ends(view)
    return *findings, *_split(Rule.HIGH_WATERMARK_REGRESSION, view, stable, _as_upper(view, stable))


def _listing(view: View, ends: Bounds) -> Bounds:
    """Return the ends that ListOffsets reported in a known leader epoch."""
    ops = view.ops
    return ends.where((ops.kind[ends.row] == Kind.LIST_OFFSETS) & (ops.leader_epoch[ends.row] != UNKNOWN))


def _fell_from_epoch_to_epoch(view: View, listing: Bounds) -> RuleFindings:
    """Find a smaller ListOffsets end than in an earlier leader epoch; the first sweep nearly always finds none."""
    epoch, upper = view.ops.leader_epoch, _as_upper(view, listing)
    suspects = upper.where(np.isin(upper.row, sweep(listing, upper)[0]))
    parts = [
        sweep(listing.where(epoch[listing.row] < leader_epoch), suspects.where(epoch[suspects.row] == leader_epoch))
        for leader_epoch in distinct(epoch[suspects.row])
    ]
    first, second, end = (np.concatenate(column) for column in zip(*parts, strict=True)) if parts else (NOTHING,) * 3
    return RuleFindings(Rule.HIGH_WATERMARK_REGRESSION, first, second, end)
