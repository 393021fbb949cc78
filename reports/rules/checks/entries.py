"""Check that each offset of a log has an entry: a record that a client sent, or the marker of a transaction.

The offsets of a log are dense unless it is compacted: below each end that an operation proves each of them was given to
an entry. An offset at which no record is known may have a marker, a record whose place is not known, or one that was
written again. A marker may be repeated, as coordinators do after a failure; at an offset that readers passed there is
no record that they see.
"""

from typing import Final, NamedTuple

import numpy as np

from highwater.reports.columns import NEVER, NOTHING, TOMBSTONE, UNKNOWN, Fate, Ints, Status
from highwater.reports.rules.checks.log import send_bounds
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
    no_second_witness,
    running_maximum,
    sweeps,
)
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.view import View

RULE: Final = Rule.UNEXPLAINED_OFFSET


class Free(NamedTuple):
    """Ranges of offsets at which no record is known, increasing, as columns."""

    begin: Ints
    end: Ints
    seen: Mask  # a read_uncommitted reader passed the range
    passed: Mask  # any reader passed it

    def where(self, mask: Mask) -> "Free":
        return Free(self.begin[mask], self.end[mask], self.seen[mask], self.passed[mask])

    def cut(self, places: Ints) -> "Free":
        """Divide the ranges at these offsets."""
        slot = np.searchsorted(self.begin, places, "right") - 1
        begin = distinct(np.concatenate([self.begin, places[(slot >= 0) & (places < self.end[slot])]]))
        slot = np.searchsorted(self.begin, begin, "right") - 1
        end = np.minimum(self.end[slot], np.append(begin[1:], NEVER))
        return Free(begin, end, self.seen[slot], self.passed[slot])

    def first(self, excluded: Mask) -> int:
        """Return the first offset outside of the excluded ranges."""
        return int(self.begin[~excluded][0])

    def count_below(self, offset: Ints, excluded: Mask) -> Ints:
        """Return how many offsets below each of these are in ranges that are not excluded."""
        begin, end = self.begin[~excluded], self.end[~excluded]
        before = np.append(0, np.cumsum(end - begin))
        slot = np.searchsorted(begin, offset, "left")
        last = np.maximum(slot - 1, 0)
        return before[slot] - np.where(slot > 0, np.maximum(end[last] - offset, 0), 0)


def _free(view: View, taken: Ints) -> Free:
    """Return the ranges of free offsets from 0 on; the last one has no end."""
    edges = np.concatenate([[-1], taken, [NEVER]])
    gaps = np.flatnonzero(np.diff(edges) > 1)
    none = np.zeros(len(gaps), bool)
    bounds = [_passed(view, mask) for mask in (view.sees_uncommitted, ~view.sees_uncommitted)]
    ranges = Free(edges[gaps] + 1, edges[gaps + 1], none, none).cut(distinct(np.concatenate([*bounds[0], *bounds[1]])))
    seen, others = (_inside(ranges.begin, *each) for each in bounds)
    return ranges._replace(seen=seen, passed=seen | others)


def _room(view: View) -> Free:
    """Return where records of unknown place may be: at free offsets, and where one that may be theirs was received."""
    received = view.unplaced_records
    free = _free(view, distinct(_known_places(view))).cut(np.concatenate([received, received + 1]))
    here = np.isin(free.begin, received)
    return free._replace(seen=free.seen & ~here, passed=free.passed & ~here)


def _passed(view: View, chosen: Mask) -> tuple[Ints, Ints]:
    """Return where the ranges that the chosen reads passed begin and end."""
    reading = view.reading
    mine = chosen[reading.row]
    end = reading.last[mine] + 1
    return np.minimum(np.maximum(view.begins_at, view.possible_starts[1])[mine], end), end


def _inside(offset: Ints, begin: Ints, end: Ints) -> Mask:
    """Return which offsets are in any of these ranges."""
    begun, ended = (np.searchsorted(np.sort(bound), offset, "right") for bound in (begin, end))
    return begun > ended


def _known_places(view: View) -> Ints:
    rows, offset = view.placed
    return offset[rows]


# -- offsets without an entry ----------------------------------------------------------------------------


def unexplained_offsets(view: View) -> RuleFindings:
    """Find unexplained-offset: the smallest offset below a proved end at which nothing can be.

    If the history may not have all clients, or the log may not have been empty before it, anything may be there.
    """
    if view.promise.compaction or not view.promise.complete:
        return no_findings(RULE)
    ends = proved_ends(view)
    free = _free(view, distinct(np.concatenate([_known_places(view), view.unplaced_records])))
    last = int(ends.z.max(initial=0))
    if not np.any(free.begin < last):
        return no_findings(RULE)
    behind, since = _markers(view, _room(view))
    order = np.argsort(ends.z, kind="stable")
    time, end, row = ends.time[order], ends.z[order], ends.row[order]
    free = free.cut(distinct(np.concatenate([end, behind])))
    free = free.where(free.begin < last)
    _, reached = running_maximum(-time[::-1])  # of the ends from the largest to each of them, the first to return
    proof = (len(order) - 1 - reached[::-1])[np.searchsorted(end, free.begin, "right")]
    ready = np.append(NEVER, np.minimum.accumulate(since))[np.searchsorted(behind, free.begin, "right")]
    for weight in (Weight.VIOLATION, Weight.UNDECIDED):
        place = _first_without_record(view, free, time[proof], unmarked=ready >= time[proof], weight=weight)
        if place is not None:
            slot = np.searchsorted(free.begin, [place], "right") - 1
            return RuleFindings(RULE, row[proof[slot]], no_second_witness(slot), np.array([place]), weight)
    return no_findings(RULE)


def _first_without_record(view: View, free: Free, until: Ints, *, unmarked: Mask, weight: Weight) -> int | None:
    """Return the smallest offset of the unmarked ranges at which no record can be that was sent before `until`."""
    again, once, hidden = _records(view, weight)
    bare = unmarked & (free.passed | (again >= until))
    counts = np.minimum(free.end - free.begin, len(once) + 1)
    found = [int(free.begin[slot]) for slot in np.flatnonzero(bare & free.seen)[:1]]
    for invoked, mine in ((once, bare & ~free.seen), (hidden, bare & free.passed & ~free.seen)):
        needed = np.cumsum(np.where(mine, counts, 0))
        there = np.searchsorted(invoked, until)
        for slot in np.flatnonzero(mine & (needed > there))[:1]:
            found.append(int(free.begin[slot]) + max(int(there[slot] - needed[slot] + counts[slot]), 0))
    return min(found, default=None)


def _markers(view: View, room: Free) -> tuple[Ints, Ints]:
    """Return of each transaction from which offset on its markers may be, increasing, and from which event on.

    They are behind its records, for which those of unknown place need free offsets, too.
    """
    ops, sends = view.ops, view.sends[view.ops.txn[view.sends] != UNKNOWN]
    if not len(sends):
        return NOTHING, NOTHING
    sends = sends[np.argsort(ops.txn[sends], kind="stable")]
    first = first_of_each(ops.txn[sends])
    behind = np.maximum.reduceat(view.placed[1][sends], first) + 1
    unplaced = (ops.status[sends] == Status.OK) & (view.placed[1][sends] == UNKNOWN)
    needed = np.add.reduceat(unplaced.astype(np.int64), first)
    seen, passed = (room.first(excluded) for excluded in (room.seen, room.passed))
    there = np.where(ops.fate[sends[first]] == Fate.COMMITTED, passed, seen) + needed
    committed = np.where(ops.fate[sends] == Fate.COMMITTED, ops.ended[sends], UNKNOWN)
    since = np.maximum(np.minimum.reduceat(ops.invoked[sends], first), np.maximum.reduceat(committed, first))
    behind = np.where(needed > 0, np.maximum(behind, there), behind)
    order = np.argsort(behind, kind="stable")
    return behind[order], since[order]


def _records(view: View, weight: Weight) -> tuple[int, Ints, Ints]:
    """Return when the first record that may be written several times was sent, and when those of unknown place were.

    The last ones are those that read_committed readers need not see. With the weight UNDECIDED no idempotent client
    writes a record again under a new producer epoch.
    """
    ops, sends = view.ops, view.sends[view.ops.status[view.sends] != Status.FAIL]
    once_at_most = view.written_once | (view.promise.idempotence and weight is Weight.UNDECIDED)
    again = sends[~once_at_most[sends]]
    once = sends[view.placed[1][sends] == UNKNOWN]
    hidden = once[~_is_visible(view, once)]
    return int(ops.invoked[again].min(initial=NEVER)), np.sort(ops.invoked[once]), np.sort(ops.invoked[hidden])


# -- records of unknown place --------------------------------------------------------------------------


def crowded_sends(view: View) -> RuleFindings:
    """Find append-inversion (of records without an acknowledged offset): a later send has no room for them before it.

    Each of them has an offset of its own, at which no other record is, and which no reader passed that must see it. One
    that readers would see at any offset is lost instead.
    """
    ops, sends = view.ops, view.sends
    rule = Rule.APPEND_INVERSION
    rows = sends[(ops.status[sends] == Status.OK) & (ops.offset[sends] == UNKNOWN)]
    if view.promise.compaction or not len(rows):
        return no_findings(rule)
    placed = rows[(view.placed[1][rows] != UNKNOWN) & view.written_once[rows]]
    rows = rows[(view.placed[1][rows] == UNKNOWN) & ~_lost(view, rows)]
    rows = rows[np.argsort(ops.returned[rows], kind="stable")]
    visible = rows[_is_visible(view, rows)]
    late, room = send_bounds(view), _room(view)
    pairs = [(Bounds(ops.returned[placed], view.placed[1][placed] + 1, placed), late)]
    for mine, excluded in ((rows, room.seen), (visible, room.passed)):
        before = Bounds(late.time, room.count_below(late.z, excluded), late.row)
        pairs.append((Bounds(ops.returned[mine], np.arange(1, len(mine) + 1), mine), before))
    late_rows, early, _ = sweeps(pairs)
    return RuleFindings(rule, late_rows, early, view.placed[1][late_rows])


def _lost(view: View, sends: Ints) -> Mask:
    """Return which of these sends without a place have no record, since reads that must see it passed all offsets."""
    sees = view.sees_uncommitted[view.covered[0]]
    passed = [view.passed_everything(sends, chosen) != NO_ROW for chosen in (None, sees)]
    mask: Mask = np.where(_is_visible(view, sends), *passed) & (view.ops.value[sends] != TOMBSTONE)
    return mask


def _is_visible(view: View, sends: Ints) -> Mask:
    """Return which records readers of either isolation level must see."""
    mask: Mask = (view.ops.txn[sends] == UNKNOWN) | (view.ops.fate[sends] == Fate.COMMITTED)
    return mask
