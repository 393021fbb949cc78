"""Real time: rules 14 to 16. Two registers: sends bound the log end, reads and acks=all replies the high watermark.

For a register, every operation yields rows: a lower row (t, z) says "from t on the register is at least z", an upper
row says "at t it was at most z".  A lower row before a larger-than-upper row is the anomaly, and the pair its witness.
"""

from collections.abc import Iterator

import numpy as np

from highwater.reports.columns import NOTHING, UNKNOWN, Ints, Isolation, Kind, Status
from highwater.reports.rules.findings import NOBODY, Bounds, Found, Mask, distinct, first_of_each, none_of, sweep
from highwater.reports.rules.log import send_bounds
from highwater.reports.rules.view import View


def future_reads(view: View) -> Found:
    """Rule 15: who returned a value before its send was invoked."""
    ops = view.ops
    writer, row = view.writer, view.record_row
    early = np.flatnonzero(view.read_value & (writer != NOBODY) & (ops.returned[row] < ops.invoked[writer]))
    if not len(early):
        return none_of(15)
    early = early[first_of_each(writer[early])]  # one finding for each send
    send = writer[early]
    return Found(15, send, row[early], view.send_offset[np.searchsorted(view.sends, send)])


def future_ends(view: View) -> Found:
    """Rule 15: who told an end beyond the offset of a record before its send was invoked."""
    if view.promise.unclean_election:
        return none_of(15)
    return Found(15, *sweep(_ends(view) + _stable_ends(view) + _read_to(view), send_bounds(view)))


def _reports(view: View, column: Ints) -> Ints:
    """Rows of readers that told an end; what a replica's dump tells is its own."""
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
    """All that the sweeps compare with what is told later, one kind of evidence after the other."""
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
    """The rows of each leader epoch that is known; across epochs a high watermark may lag."""
    epoch = view.ops.leader_epoch
    known = distinct(epoch[upper.row][epoch[upper.row] != UNKNOWN])
    if len(known) == 1:
        yield lower.where(epoch[lower.row] == known[0]), upper.where(epoch[upper.row] == known[0])
        return
    low, up = (bounds.where(np.argsort(epoch[bounds.row], kind="stable")) for bounds in (lower, upper))  # type: ignore[arg-type]
    low_epochs, up_epochs = epoch[low.row], epoch[up.row]
    for each in known:
        yield _slice(low, low_epochs, each), _slice(up, up_epochs, each)


def _slice(bounds: Bounds, epochs: Ints, epoch: int) -> Bounds:
    first, end = np.searchsorted(epochs, [epoch, epoch + 1])
    return Bounds(bounds.time[first:end], bounds.z[first:end], bounds.row[first:end])


def _split(rule: int, view: View, lower: Bounds, upper: Bounds) -> tuple[Found, Found]:
    """Violations within an epoch, and what is left of the comparison over all epochs as information.

    What is broken within an epoch is broken over all, so a healthy partition is swept once.
    """
    over_all, witness, end = sweep(lower, upper)
    if not len(over_all):
        return none_of(rule), none_of(rule)
    suspects = upper.where(np.isin(upper.row, over_all))
    parts = [sweep(low, up) for low, up in _by_epoch(view, lower, suspects)]
    first, second, z = (np.concatenate(column) for column in zip(*parts, strict=True)) if parts else (NOTHING,) * 3
    other = ~np.isin(over_all, first)
    return (
        Found(rule, first, second, z),
        Found(rule, over_all[other], witness[other], end[other], information=True),
    )


def stale_reads(view: View) -> tuple[Found, ...]:
    """Rule 14: records that were read, and with acks=all those that were acknowledged, prove the high watermark.

    What was read by read_committed proves the last stable offset.
    """
    lower = _proven(view)
    found = _split(14, view, lower, _as_upper(view, _ends(view)))
    if not view.ops.tells("last_stable_offset"):
        return found
    committed = view.ops.isolation[lower.row] == Isolation.READ_COMMITTED
    return *found, *_split(14, view, lower.where(committed), _as_upper(view, _stable_ends(view)))


def stale_stable_ends(view: View) -> tuple[Found, ...]:
    """Rule 14: where no transaction can hold it back, the last stable offset is the high watermark."""
    if not view.ops.tells("last_stable_offset"):
        return none_of(14), none_of(14)
    stable = _stable_ends(view)
    return _split(14, view, _proven(view), _as_upper(view, stable.where(_cannot_be_held(view, stable.z))))


def _proven(view: View) -> Bounds:
    ops, acked = view.ops, view.acked
    proven = _read_to(view)
    return proven + Bounds(ops.returned[acked], ops.offset[acked] + 1, acked) if view.promise.acks_all else proven


def _stable_ends(view: View) -> Bounds:
    rows = _reports(view, view.ops.last_stable_offset)
    return Bounds(view.ops.returned[rows], view.ops.last_stable_offset[rows], rows)


def _cannot_be_held(view: View, end: Ints) -> Mask:
    """Does a record stand here that is not a transaction's first? Only that one holds the last stable offset.

    Where a history names no transactions they may still be there.
    """
    ops, acked = view.ops, view.acked
    if not view.told_txn:
        return np.zeros(len(end), bool)
    ordered = acked[np.lexsort((ops.offset[acked], ops.txn[acked]))]
    later = ops.txn[ordered] == UNKNOWN
    later[1:] |= ops.txn[ordered[1:]] == ops.txn[ordered[:-1]]
    first = ops.offset[ordered[~later]]
    return np.isin(end, ops.offset[ordered[later]]) & ~np.isin(end, first)


def regressions(view: View) -> tuple[Found, ...]:
    """Rule 16. ListOffsets waits for the epoch's start (KIP-207), so its answers may not fall from epoch to epoch."""
    ops = view.ops
    ends = _ends(view)
    within, across = _split(16, view, ends, _as_upper(view, ends))
    found = within, _fell_from_epoch_to_epoch(view, _listing(view, ends)), across
    if not ops.tells("last_stable_offset"):
        return found
    stable = _stable_ends(view)
    return *found, *_split(16, view, stable, _as_upper(view, stable))


def _listing(view: View, ends: Bounds) -> Bounds:
    """Ends that ListOffsets told in an epoch that is known."""
    ops = view.ops
    return ends.where((ops.kind[ends.row] == Kind.LIST_OFFSETS) & (ops.leader_epoch[ends.row] != UNKNOWN))


def _fell_from_epoch_to_epoch(view: View, listing: Bounds) -> Found:
    """A smaller end than a leader of an earlier epoch had told. Nearly always the first sweep finds none."""
    epoch, upper = view.ops.leader_epoch, _as_upper(view, listing)
    suspects = upper.where(np.isin(upper.row, sweep(listing, upper)[0]))
    parts = [
        sweep(listing.where(epoch[listing.row] < each), suspects.where(epoch[suspects.row] == each))
        for each in distinct(epoch[suspects.row])
    ]
    first, second, told = (np.concatenate(column) for column in zip(*parts, strict=True)) if parts else (NOTHING,) * 3
    return Found(16, first, second, told)
