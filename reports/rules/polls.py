"""What one reader was given, one after the other: rules 6 to 9, 11, 23, 33 and 35 (the last two need gaps as well)."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from highwater.reports.columns import NOTHING, UNKNOWN, Began, Fate, Ints
from highwater.reports.rules.findings import (
    NOBODY,
    Found,
    Mask,
    distinct,
    first_of_each,
    joined,
    none_of,
    running_maximum,
)
from highwater.reports.rules.view import View


@dataclass(frozen=True, slots=True)
class Gaps:
    """Records that a read passed over although others were given them: (read, offset)."""

    slot: Ints  # of the read in `view.reading`
    row: Ints
    offset: Ints
    inside: Mask  # between two records of that read

    def where(self, mask: Mask) -> "Gaps":
        return Gaps(self.slot[mask], self.row[mask], self.offset[mask], self.inside[mask])


def _gaps(view: View) -> Gaps:
    """Reads that hold fewer records than are known between where they begin and their last, looked at one by one."""
    ops, reading, known = view.ops, view.reading, view.solid_offsets
    begins = np.where((reading.begins == UNKNOWN) | view.promise.retention, reading.first, reading.begins)
    begins = np.maximum(begins, view.log_start)
    due = np.searchsorted(known, reading.last, "right") - np.searchsorted(known, begins, "left")
    held = np.concatenate([[0], np.cumsum(view.solid & (ops.record_offset >= view.log_start))])
    have = held[reading.start + ops.record_count[reading.row]] - held[reading.start]
    slots: list[Ints] = []
    offsets: list[Ints] = []
    odd = np.isin(reading.row, view.disordered) | (reading.first < begins)  # counting misleads
    for slot in np.flatnonzero((due > have) | odd):
        records = slice(reading.start[slot], reading.start[slot] + ops.record_count[reading.row[slot]])
        between = known[np.searchsorted(known, begins[slot]) : np.searchsorted(known, reading.last[slot], "right")]
        missing = np.setdiff1d(between, ops.record_offset[records])
        slots.append(np.full(len(missing), slot))
        offsets.append(missing)
    if not slots:
        return Gaps(NOTHING, NOTHING, NOTHING, np.zeros(0, bool))
    of, offset = np.concatenate(slots), np.concatenate(offsets)
    return Gaps(of, reading.row[of], offset, offset > reading.first[of])


def passed_over(view: View) -> tuple[Found, ...]:
    """Rules 6, 8, 9 and 35: gone since it was read, passed over by this reader, or back after it was gone."""
    gaps = _gaps(view)
    if not len(gaps.row):
        return ()
    ops, reading = view.ops, view.reading
    if view.promise.compaction:
        return _back_again(view, gaps)
    earlier, later = _seen_before_and_after(view, gaps)
    # A client may lose its place; who names the place, or reads all when it is quiet, tells what the log holds.
    full = (ops.position[gaps.row] != UNKNOWN) | (ops.quiet[gaps.row] == 1)
    gone = full & (later == NOBODY) & (earlier != NOBODY)
    other = np.where(later != NOBODY, later, earlier)[~gone]
    here = gaps.where(~gone)
    before = reading.before[here.slot]
    first = first_of_each(gaps.offset[gone])
    outside, inside = (first_of_each(here.row[mask]) for mask in (~here.inside, here.inside))
    return (
        Found(6, gaps.row[gone][first], earlier[gone][first], gaps.offset[gone][first]),
        Found(8, here.row[~here.inside][outside], before[~here.inside][outside], here.offset[~here.inside][outside]),
        Found(9, here.row[here.inside][inside], other[here.inside][inside], here.offset[here.inside][inside]),
    )


def _back_again(view: View, gaps: Gaps) -> tuple[Found, Found]:
    """Rule 35: gone, and there again at the same replica. Each cleans by itself, so another may still have it."""
    ops = view.ops
    epoch = np.where(ops.leader_epoch == UNKNOWN, UNKNOWN, ops.leader_epoch + (1 << 32))
    replica = np.where(ops.node == UNKNOWN, epoch, ops.node)
    read = np.flatnonzero(view.solid & np.isin(ops.record_offset, gaps.offset))
    offset, row = ops.record_offset[read], view.record_row[read]

    def again(of: Ints) -> tuple[Mask, Ints]:
        """The last read by the same that told the offset, if it began after the gap."""
        places, who = distinct(gaps.offset), distinct(of)

        def pair(offsets: Ints, rows: Ints) -> Ints:
            both: Ints = np.searchsorted(places, offsets) * len(who) + np.searchsorted(who, of[rows])
            return both

        told, due = pair(offset, row), pair(gaps.offset, gaps.row)
        pairs = distinct(told)
        last = np.full(len(pairs), NOBODY)
        np.maximum.at(last, np.searchsorted(pairs, told), row)
        slot = np.minimum(np.searchsorted(pairs, due), len(pairs) - 1)
        return (pairs[slot] == due) & (ops.invoked[last[slot]] > ops.returned[gaps.row]), last[slot]

    same, by_same = again(replica)
    same &= replica[gaps.row] != UNKNOWN
    other, by_any = again(np.zeros(len(ops), np.int64))
    other &= ~np.isin(gaps.offset, gaps.offset[same])
    first, second = (np.flatnonzero(mask)[first_of_each(gaps.offset[mask])] for mask in (same, other))
    return (
        Found(35, by_same[first], gaps.row[first], gaps.offset[first]),
        Found(35, by_any[second], gaps.row[second], gaps.offset[second], information=True),
    )


def _seen_before_and_after(view: View, gaps: Gaps) -> tuple[Ints, Ints]:
    """A read that told the offset and returned before this one began; the last that did not, `NOBODY` if none."""
    ops = view.ops
    chosen = np.flatnonzero(view.solid & np.isin(ops.record_offset, gaps.offset))
    chosen = chosen[np.lexsort((ops.returned[view.record_row[chosen]], ops.record_offset[chosen]))]
    offset, row = ops.record_offset[chosen], view.record_row[chosen]
    first = np.searchsorted(offset, gaps.offset, "left")
    last = np.searchsorted(offset, gaps.offset, "right") - 1
    earlier = np.where(ops.returned[row[first]] < ops.invoked[gaps.row], row[first], NOBODY)
    later = np.where(ops.returned[row[last]] > ops.invoked[gaps.row], row[last], NOBODY)
    return earlier, later


def nonmonotonic_polls(view: View) -> tuple[Found, Found, Found]:
    """Rules 7, 9 and 23. A reader that names its position goes back only if it wants to; one that aborted may, too."""
    ops, reading = view.ops, view.reading
    rows, before = reading.row, reading.before
    goes_on = before != NOBODY
    aborted = goes_on & (ops.fate[before] == Fate.ABORTED) & (ops.txn[before] != ops.txn[rows])
    back = np.zeros(len(rows), bool)
    back[1:] = goes_on[1:] & (reading.first[1:] <= reading.last[:-1]) & (ops.position[rows[1:]] == UNKNOWN)
    back &= ~aborted
    rewound = np.zeros(len(rows), bool)
    rewound[1:] = aborted[1:] & (reading.first[1:] != reading.first[:-1])
    inside = view.record_row[view.falls + 1]
    once = first_of_each(inside)
    return (
        Found(7, rows[back], before[back], reading.first[back]),
        Found(9, inside[once], inside[once], ops.record_offset[view.falls + 1][once]),
        Found(23, rows[rewound], before[rewound], reading.first[rewound], information=True),
    )


def sends_between(view: View) -> Found:
    """Rule 11: another writer's record stands between two of one transaction; Kafka promises nothing else."""
    ops = view.ops
    if not view.told_txn:
        return none_of(11)
    rows = view.acked[np.argsort(ops.offset[view.acked], kind="stable")]
    of = rows[ops.txn[rows] != UNKNOWN]
    of = of[np.lexsort((ops.offset[of], ops.txn[of]))]
    a, b = of[:-1], of[1:]
    offsets = ops.offset[rows]
    between = np.searchsorted(offsets, ops.offset[b], "left") - np.searchsorted(offsets, ops.offset[a], "right")
    skip = (ops.txn[a] == ops.txn[b]) & (between > 0)
    return Found(11, b[skip], a[skip], ops.offset[b[skip]], information=True)


@dataclass(frozen=True, slots=True)
class Jumps:
    """Readers that resumed beyond where their group had come: (read, the one that had come furthest)."""

    row: Ints
    furthest: Ints
    due: Ints  # where the group had come to
    first: Ints  # where the read began
    who: Ints

    def numbered(self, view: View) -> "Jumps":
        """In numbers of rows of the partition."""
        return replace(self, row=view.numbered(self.row), furthest=view.numbered(self.furthest))


NO_JUMPS: Final = Jumps(NOTHING, NOTHING, NOTHING, NOTHING, NOTHING)


def jumps_of(view: View) -> Jumps:
    ops, reading = view.ops, view.reading
    if not ops.tells("began"):
        return NO_JUMPS
    who = _readers(view)
    resumed = (reading.before == NOBODY) & (ops.began[reading.row] == Began.RESUMED)
    order = np.argsort(who, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(who[order])) + 1)
    found = [_jumps(view, mine, resumed) for mine in groups if np.any(resumed[mine])]
    columns = [np.concatenate(column) for column in zip(*found, strict=True)] if found else [NOTHING] * 4
    row, furthest, due, first = columns
    by_row = np.argsort(reading.row)
    return Jumps(row, furthest, due, first, who[by_row[np.searchsorted(reading.row[by_row], row)]])


def _readers(view: View) -> Ints:
    """Of each read in `view.reading`: whose member it is, or which process."""
    group, process = view.ops.group[view.reading.row], view.ops.process[view.reading.row]
    return np.where(group == UNKNOWN, -2 - process.astype(np.int64), group)


def _jumps(view: View, mine: Ints, resumed: Mask) -> tuple[Ints, Ints, Ints, Ints]:
    """Of the reads of one group."""
    ops, reading = view.ops, view.reading
    ordered = mine[np.argsort(ops.returned[reading.row[mine]], kind="stable")]
    furthest, who = running_maximum(reading.last[ordered] + 1)
    resuming = mine[resumed[mine]]
    slot = np.searchsorted(ops.returned[reading.row[ordered]], ops.invoked[reading.row[resuming]]) - 1
    jumps = (slot >= 0) & (furthest[slot] < reading.first[resuming])
    resuming, slot = resuming[jumps], slot[jumps]
    return reading.row[resuming], reading.row[ordered[who[slot]]], furthest[slot], reading.first[resuming]


def silent_resets(view: View) -> Found:
    """Rule 33: a reader that resumed begins beyond where its group had come, over records that none of it ever saw."""
    ops, reading = view.ops, view.reading
    jumps: Jumps = jumps_of(view) if view.jumps is None else view.jumps
    found = [none_of(33)]
    for each in distinct(jumps.who):
        told = np.zeros(len(ops), bool)
        told[reading.row[_readers(view) == each]] = True
        unseen = np.setdiff1d(view.solid_offsets, ops.record_offset[told[view.record_row]])
        mine = np.flatnonzero(jumps.who == each)
        slot = np.searchsorted(unseen, np.maximum(jumps.due[mine], view.log_start))
        jumped = slot < np.searchsorted(unseen, jumps.first[mine])
        mine = mine[jumped]
        found.append(Found(33, jumps.row[mine], jumps.furthest[mine], unseen[slot[jumped]]))
    return joined(found)
