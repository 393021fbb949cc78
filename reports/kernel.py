"""The audit of one partition: one NumPy kernel, called by the local engine and by the Spark job alike.

Two registers (audit.md, "What a correct Kafka does"): sends bound the *log end*, reads and acks=all replies bound
the *high watermark*.  For a register, every operation yields rows: a lower row (t, z) says "from t on the register is
at least z", an upper row says "at t it was at most z".  A lower row before a larger-than-upper row is the anomaly, and
the pair is its witness (sort and running maximum; linear after sorting).

Offsets are never used as array indices: a partition may begin at any offset and have gaps.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reports.columns import NEVER, UNKNOWN, Ints, Kind, Operations, Status

Mask = npt.NDArray[np.bool_]
NOBODY = -1


@dataclass(frozen=True, slots=True)
class Found:
    """Findings of one rule: for each, the rows of two witnesses (`NOBODY` for none) and an offset.

    `information` is for what a correct Kafka may show as well, such as a high watermark that lags in a new epoch.
    """

    rule: int
    first: Ints
    second: Ints
    offset: Ints
    information: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """Every (offset, value) that somebody was told: by an acknowledgement, or by a read of whatever outcome."""

    row: Ints
    offset: Ints
    value: Ints
    read: Mask


def check(ops: Operations, *, acks_all: bool) -> list[Found]:
    """All findings of one (run, partition). `acks_all`: an acknowledgement proves that its record was committed."""
    if not len(ops):
        return []
    seen = _observe(ops)
    rules = (
        _inconsistent_offsets(seen),
        _duplicates(seen),
        _phantom_reads(ops, seen),
        *_lost_and_unseen(ops, seen),
        *_polls_out_of_order(ops, seen, acks_all=acks_all),
        _append_inversions(ops, seen),
        _future_reads(ops, seen),
        *_stale_reads(ops, acks_all=acks_all),
        *_regressions(ops),
    )
    return [found for found in rules if len(found.first)]


# -- what was observed -------------------------------------------------------------------------------


def _observe(ops: Operations) -> Observed:
    acked = np.flatnonzero((ops.kind == Kind.SEND) & (ops.status == Status.OK) & (ops.offset != UNKNOWN))
    reads = np.repeat(np.arange(len(ops)), ops.record_count)
    return Observed(
        row=np.concatenate([acked, reads]),
        offset=np.concatenate([ops.offset[acked], ops.record_offset]),
        value=np.concatenate([ops.value[acked], ops.record_value]),
        read=np.concatenate([np.zeros(len(acked), bool), np.ones(len(reads), bool)]),
    )


def _distinct(values: Ints) -> Ints:
    """Sorted, each once. Sorting beats the hashing of `np.unique` on columns that are nearly sorted."""
    ordered = np.sort(values, kind="stable")
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


def _neighbours(major: Ints, minor: Ints) -> tuple[Ints, Ints]:
    """Positions of two observations that agree in `major` and differ in `minor`, at least one pair for each such."""
    order = np.argsort(major, kind="stable")
    sorted_major, sorted_minor = major[order], minor[order]
    differ = np.flatnonzero((sorted_major[1:] == sorted_major[:-1]) & (sorted_minor[1:] != sorted_minor[:-1]))
    return order[differ], order[differ + 1]


def _inconsistent_offsets(seen: Observed) -> Found:
    a, b = _neighbours(seen.offset, seen.value)
    offsets, first = np.unique(seen.offset[a], return_index=True)  # one finding an offset
    return Found(1, seen.row[a[first]], seen.row[b[first]], offsets)


def _duplicates(seen: Observed) -> Found:
    a, b = _neighbours(seen.value, seen.offset)
    _, first = np.unique(seen.value[a], return_index=True)
    a, b = a[first], b[first]
    return Found(2, seen.row[a], seen.row[b], seen.offset[b])


def _phantom_reads(ops: Operations, seen: Observed) -> Found:
    sent = ops.value[ops.kind == Kind.SEND]
    strange = np.flatnonzero(seen.read & ~np.isin(seen.value, sent))
    _, first = np.unique(seen.value[strange], return_index=True)
    strange = strange[first]
    return Found(3, seen.row[strange], np.full(len(strange), NOBODY), seen.offset[strange])


# -- lost and unseen ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cover:
    """Which offsets the reads passed: intervals sorted by start, with the furthest end so far and who reached it."""

    start: Ints
    end: Ints
    row: Ints

    def look_up(self, offset: Ints) -> tuple[Mask, Ints]:
        """Is each offset covered, and by which row?"""
        if not len(self.start):
            return np.zeros(len(offset), bool), np.full(len(offset), NOBODY)
        slot = np.searchsorted(self.start, offset, "right") - 1
        inside = (slot >= 0) & (self.end[slot] > offset)
        return inside, np.where(inside, self.row[slot], NOBODY)


def _cover(ops: Operations) -> Cover:
    """A read proves that nothing else stands between where it began and its last record.

    A quiet read (after healing, with nobody writing) that reached the reported end proves it for everything beyond.
    """
    rows, begins, first, last = _reading(ops)
    start = np.where(begins == UNKNOWN, first, begins)
    end = last + 1
    silent = np.flatnonzero((ops.kind == Kind.READ) & (ops.status == Status.OK) & (ops.record_count == 0))
    silent = silent[ops.position[silent] != UNKNOWN]
    rows = np.concatenate([rows, silent])
    start = np.concatenate([start, ops.position[silent]])
    end = np.concatenate([end, ops.position[silent]])
    reached = (ops.quiet[rows] == 1) & (ops.high_watermark[rows] != UNKNOWN) & (end >= ops.high_watermark[rows])
    end = np.where(reached, NEVER, end)
    order = np.argsort(start, kind="stable")
    furthest = np.maximum.accumulate(end[order]) if len(order) else end
    who = np.maximum.accumulate(np.where(end[order] == furthest, np.arange(len(order)), 0))
    return Cover(start[order], furthest, rows[order][who] if len(order) else rows)


def _reading(ops: Operations) -> tuple[Ints, Ints, Ints, Ints]:
    """Successful reads with records, in the order of their process and run: row, where it began, first, last offset.

    Where a read began is what it asked for, or the end of the read before it; unknown at the start of a run.
    """
    rows = np.flatnonzero((ops.kind == Kind.READ) & (ops.status == Status.OK) & (ops.record_count > 0))
    starts = np.cumsum(ops.record_count) - ops.record_count
    # A process does one thing at a time, so its rows stand in order already.
    rows = rows[np.argsort((ops.process[rows] << 32) | ops.run[rows], kind="stable")]
    first = ops.record_offset[starts[rows]]
    last = ops.record_offset[starts[rows] + ops.record_count[rows] - 1]
    begins = ops.position[rows].copy()
    goes_on = np.zeros(len(rows), bool)
    goes_on[1:] = (ops.process[rows[1:]] == ops.process[rows[:-1]]) & (ops.run[rows[1:]] == ops.run[rows[:-1]])
    follows = goes_on & (begins == UNKNOWN)
    begins[follows] = last[np.flatnonzero(follows) - 1] + 1
    return rows, begins, first, last


def _lost_and_unseen(ops: Operations, seen: Observed) -> tuple[Found, Found]:
    """Rules 4 and 5. The last place of a record is judged: a retry may have written it again."""
    in_ok_read = seen.read & (ops.status[seen.row] == Status.OK)
    committed = (ops.kind == Kind.SEND) & (
        (ops.status == Status.OK) | ((ops.status == Status.INFO) & np.isin(ops.value, seen.value[seen.read]))
    )
    missing = np.flatnonzero(committed & ~np.isin(ops.value, seen.value[in_ok_read]))
    if not len(missing):
        return Found(4, missing, missing, missing), Found(5, missing, missing, missing, information=True)
    last_offset = _largest_offset(ops.value[missing], seen)
    missing, last_offset = missing[last_offset != UNKNOWN], last_offset[last_offset != UNKNOWN]
    covered, by = _cover(ops).look_up(last_offset)
    nobody = np.full(int((~covered).sum()), NOBODY)
    return (
        Found(4, missing[covered], by[covered], last_offset[covered]),
        Found(5, missing[~covered], nobody, last_offset[~covered], information=True),
    )


def _largest_offset(values: Ints, seen: Observed) -> Ints:
    """For each value the largest offset that anybody was told, `UNKNOWN` if nobody was."""
    order = np.lexsort((seen.offset, seen.value))
    known = seen.value[order]
    slot = np.searchsorted(known, values, "right") - 1
    if not len(known):
        return np.full(len(values), UNKNOWN)
    hit = (slot >= 0) & (known[slot] == values)
    return np.where(hit, seen.offset[order][slot], UNKNOWN)


# -- polls -------------------------------------------------------------------------------------------


def _polls_out_of_order(ops: Operations, seen: Observed, *, acks_all: bool) -> tuple[Found, Found]:
    """Rules 7 and 8, within one assignment. A reader that names its position goes back only if it wants to.

    What was passed over existed if somebody read it, or if it was acknowledged by all of the ISR.
    """
    rows, begins, first, last = _reading(ops)
    before = np.full(len(rows), NOBODY)
    before[1:] = rows[:-1]
    goes_on = np.zeros(len(rows), bool)
    goes_on[1:] = (ops.process[rows[1:]] == ops.process[rows[:-1]]) & (ops.run[rows[1:]] == ops.run[rows[:-1]])
    back = np.zeros(len(rows), bool)
    back[1:] = goes_on[1:] & (first[1:] <= last[:-1]) & (ops.position[rows[1:]] == UNKNOWN)
    known = _distinct(seen.offset if acks_all else seen.offset[seen.read])
    passed = np.searchsorted(known, first, "left") - np.searchsorted(known, begins, "left")
    skip = (begins != UNKNOWN) & (begins < first) & (passed > 0)
    witness = np.where(goes_on, before, NOBODY)
    return (
        Found(7, rows[back], before[back], first[back]),
        Found(8, rows[skip], witness[skip], first[skip]),
    )


# -- real time ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bounds:
    """Rows of one kind: at `time` the register is bounded by `z`; `row` is the operation that says so."""

    time: Ints
    z: Ints
    row: Ints

    def where(self, mask: Mask) -> "Bounds":
        return Bounds(self.time[mask], self.z[mask], self.row[mask])


def _sweep(lower: Bounds, upper: Bounds) -> tuple[Ints, Ints, Ints]:
    """Upper rows with a larger lower row strictly before them, as (upper row, lower row, upper z).

    Times are event indices, so there are no ties, and every engine names the same witness.
    """
    if not len(lower.time) or not len(upper.time):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
    low = np.argsort(lower.time, kind="stable")
    most = np.maximum.accumulate(lower.z[low])
    new = np.concatenate([[True], most[1:] > most[:-1]])  # the first that reached a maximum is its witness
    who = np.maximum.accumulate(np.where(new, np.arange(len(low)), 0))
    up = np.argsort(upper.time, kind="stable")
    slot = np.searchsorted(lower.time[low], upper.time[up], "left") - 1
    broken = (slot >= 0) & (most[slot] > upper.z[up])
    up, slot = up[broken], slot[broken]
    return upper.row[up], lower.row[low[who[slot]]], upper.z[up]


def _append_inversions(ops: Operations, seen: Observed) -> Found:
    """Rule 13, on the log end: an acknowledgement bounds it from below, a send with a known offset from above."""
    send = ops.kind == Kind.SEND
    acked = np.flatnonzero(send & (ops.status == Status.OK) & (ops.offset != UNKNOWN))
    lower = Bounds(ops.returned[acked], ops.offset[acked] + 1, acked)
    sent = np.flatnonzero(send & (ops.status != Status.FAIL))
    # The offset of a send that nobody answered is known from who read it.
    offset = ops.offset[sent].copy()
    untold = np.flatnonzero(offset == UNKNOWN)
    if len(untold):
        offset[untold] = _largest_offset(ops.value[sent[untold]], seen)
    known = offset != UNKNOWN
    upper = Bounds(ops.invoked[sent[known]], offset[known], sent[known])
    return Found(13, *_sweep(lower, upper))


def _future_reads(ops: Operations, seen: Observed) -> Found:
    """Rule 15: who returned a value before its send was invoked."""
    reads = np.flatnonzero(seen.read & (ops.returned[seen.row] < NEVER))
    sends = np.flatnonzero(ops.kind == Kind.SEND)
    if not len(reads) or not len(sends):
        return Found(15, sends[:0], sends[:0], sends[:0])
    sends = sends[np.argsort(ops.value[sends], kind="stable")]
    slot = np.minimum(np.searchsorted(ops.value[sends], seen.value[reads]), len(sends) - 1)
    send = sends[slot]
    early = (ops.value[send] == seen.value[reads]) & (ops.returned[seen.row[reads]] < ops.invoked[send])
    reads, send = reads[early], send[early]
    _, first = np.unique(send, return_index=True)  # one finding for each send
    return Found(15, send[first], seen.row[reads[first]], seen.offset[reads[first]])


def _reported_ends(ops: Operations) -> Ints:
    return np.flatnonzero((ops.kind != Kind.SEND) & (ops.status == Status.OK) & (ops.high_watermark != UNKNOWN))


def _by_epoch(ops: Operations, lower: Bounds, upper: Bounds) -> Iterator[tuple[Bounds, Bounds]]:
    """The rows of each leader epoch that is known; across epochs a high watermark may lag."""
    epochs = ops.leader_epoch[upper.row]
    for epoch in _distinct(epochs[epochs != UNKNOWN]):
        yield (
            lower.where(ops.leader_epoch[lower.row] == epoch),
            upper.where(ops.leader_epoch[upper.row] == epoch),
        )


def _split(rule: int, ops: Operations, lower: Bounds, upper: Bounds) -> tuple[Found, Found]:
    """Violations within an epoch, and what is left of the comparison over all epochs as information."""
    parts = [_sweep(low, up) for low, up in _by_epoch(ops, lower, upper)]
    first, second, z = (
        (np.concatenate(column) for column in zip(*parts, strict=True)) if parts else (np.zeros(0, np.int64),) * 3
    )
    over_all, witness, end = _sweep(lower, upper)
    other = ~np.isin(over_all, first)
    return (
        Found(rule, first, second, z),
        Found(rule, over_all[other], witness[other], end[other], information=True),
    )


def _stale_reads(ops: Operations, *, acks_all: bool) -> tuple[Found, Found]:
    """Rule 14: records that were read, and with acks=all those that were acknowledged, prove the high watermark."""
    ends = _reported_ends(ops)
    upper = Bounds(ops.invoked[ends], ops.high_watermark[ends], ends)
    read = np.flatnonzero((ops.kind == Kind.READ) & (ops.status == Status.OK) & (ops.record_count > 0))
    last = ops.record_offset[np.cumsum(ops.record_count)[read] - 1]
    rows, z = read, last + 1
    if acks_all:
        acked = np.flatnonzero((ops.kind == Kind.SEND) & (ops.status == Status.OK) & (ops.offset != UNKNOWN))
        rows, z = np.concatenate([rows, acked]), np.concatenate([z, ops.offset[acked] + 1])
    return _split(14, ops, Bounds(ops.returned[rows], z, rows), upper)


def _regressions(ops: Operations) -> tuple[Found, ...]:
    """Rule 16. ListOffsets waits for the epoch's start (KIP-207), so its answers may not fall from epoch to epoch."""
    ends = _reported_ends(ops)
    lower = Bounds(ops.returned[ends], ops.high_watermark[ends], ends)
    upper = Bounds(ops.invoked[ends], ops.high_watermark[ends], ends)
    within, across = _split(16, ops, lower, upper)
    listing = (ops.kind[ends] == Kind.LIST_OFFSETS) & (ops.leader_epoch[ends] != UNKNOWN)
    after, before, told = _sweep(lower.where(listing), upper.where(listing))
    fell = ops.leader_epoch[after] > ops.leader_epoch[before]
    return within, Found(16, after[fell], before[fell], told[fell]), across
