"""Check successive reads of one reader: records skipped, read again, removed or restored, and silent resets."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from highwater.reports.columns import NEVER, NOTHING, TOMBSTONE, UNKNOWN, Began, Fate, Ints, Kind, Status
from highwater.reports.rules.checks.log import is_latest_of_key
from highwater.reports.rules.findings import (
    NO_ROW,
    Mask,
    RuleFindings,
    Weight,
    concatenate_findings,
    distinct,
    first_of_each,
    no_findings,
    running_maximum,
)
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.view import View


@dataclass(frozen=True, slots=True)
class Gaps:
    """Records that a read skipped although others read them, as pairs (read, offset) in columns."""

    slot: Ints  # of the read in `view.reading`
    row: Ints
    offset: Ints
    inside: Mask  # between two records of that read
    open: Mask  # perhaps below the log start

    def where(self, mask: Mask) -> "Gaps":
        return Gaps(self.slot[mask], self.row[mask], self.offset[mask], self.inside[mask], self.open[mask])


def _gaps(view: View) -> Gaps:
    """Return the gaps: reads with fewer records than are known between their begin and their last record."""
    ops, reading, all_ = view.ops, view.reading, view.sees_uncommitted[view.reading.row]
    certain, possible = view.possible_starts
    begins = np.maximum(view.begins_at, certain)
    lacks = np.isin(reading.row, view.unordered_reads) | (reading.first < begins)  # counts do not show a gap
    for mine, known, mask in (
        (~all_, view.durable_offsets, view.durable),
        (all_, view.returned_offsets, view.returned),
    ):
        due = np.searchsorted(known, reading.last, "right") - np.searchsorted(known, begins, "left")
        held = np.concatenate([[0], np.cumsum(mask)])
        have = held[reading.start + ops.record_count[reading.row]] - held[reading.start]
        lacks |= mine & (due > have)
    slots: list[Ints] = []
    offsets: list[Ints] = []
    for slot in np.flatnonzero(lacks):
        known = view.returned_offsets if all_[slot] else view.durable_offsets
        records = slice(reading.start[slot], reading.start[slot] + ops.record_count[reading.row[slot]])
        between = known[np.searchsorted(known, begins[slot]) : np.searchsorted(known, reading.last[slot], "right")]
        missing = np.setdiff1d(between, ops.record_offset[records])
        slots.append(np.full(len(missing), slot))
        offsets.append(missing)
    if not slots:
        return Gaps(NOTHING, NOTHING, NOTHING, np.zeros(0, bool), np.zeros(0, bool))
    of, offset = np.concatenate(slots), np.concatenate(offsets)
    return Gaps(of, reading.row[of], offset, offset > reading.first[of], offset < possible[of])


def passed_over(view: View) -> tuple[RuleFindings, ...]:
    """Find truncated-after-read, poll-skip, int-nonmonotonic-poll and resurrected-record in the gaps of reads."""
    gaps = _gaps(view)
    if not len(gaps.row):
        return ()
    ops, before = view.ops, view.reading.before[gaps.slot]
    earlier, later = _reads_before_and_after(view, gaps)
    # A client may lose its position; a read from a given position, or in the final phase, shows the log itself.
    full = (ops.position[gaps.row] != UNKNOWN) | (ops.quiet[gaps.row] == 1)
    gone = full & (later == NO_ROW) & (earlier != NO_ROW)
    if view.promise.compaction:
        return (*_back_again(view, gaps), *_truncated_keys(view, gaps, earlier, gone))
    other = np.where(later != NO_ROW, later, earlier)
    return tuple(
        finding
        for weight, mask in ((Weight.VIOLATION, ~gaps.open), (Weight.UNDECIDED, gaps.open))
        for finding in (
            _once(Rule.TRUNCATED_AFTER_READ, gaps.offset, gaps, earlier, gone & mask, weight),
            _once(Rule.POLL_SKIP, gaps.row, gaps, before, ~gone & ~gaps.inside & mask, weight),
            _once(Rule.INT_NONMONOTONIC_POLL, gaps.row, gaps, other, ~gone & gaps.inside & mask, weight),
        )
    )


def truncated_tails(view: View) -> tuple[RuleFindings, ...]:
    """Find truncated-after-read: an operation of the final phase proves an end below a record that was read."""
    rows, start, end = view.covered
    # A high watermark is the end for readers of either isolation level.
    known = view.durable_offsets if view.promise.compaction else view.returned_offsets
    if not len(known):
        return ()
    reading = view.reading
    start = np.concatenate([reading.last + 1, start[len(reading.row) :]])
    proving = np.flatnonzero((end == NEVER) & (start <= known[-1]))
    if not len(proving):
        return ()
    first = np.searchsorted(known, start[proving])
    offset = np.concatenate([NOTHING, *(known[place:] for place in first)])
    row = np.repeat(rows[proving], len(known) - first)
    tails = Gaps(row, row, offset, np.zeros(len(row), bool), np.zeros(len(row), bool))
    earlier, later = _reads_before_and_after(view, tails)
    gone = (later == NO_ROW) & (earlier != NO_ROW)
    if view.promise.compaction:
        return _truncated_keys(view, tails, earlier, gone)
    return (_once(Rule.TRUNCATED_AFTER_READ, offset, tails, earlier, gone, Weight.VIOLATION),)


def _truncated_keys(view: View, gaps: Gaps, earlier: Ints, gone: Mask) -> tuple[RuleFindings, RuleFindings]:
    """Find truncated-after-read in a compacted topic: the log cleaner keeps the latest record of each key.

    `gone` masks the gaps that would be findings without compaction.
    """
    here = gone.copy()
    here[gone], sure = _are_latest_of_their_keys(view, gaps.offset[gone])
    certain = np.zeros(len(gone), bool)
    # Without idempotence a retry may write an older record of the key again, at a larger offset that no one read.
    certain[gone] = sure & view.promise.idempotence
    certain &= ~gaps.open
    rule = Rule.TRUNCATED_AFTER_READ
    return (
        _once(rule, gaps.offset, gaps, earlier, here & certain, Weight.VIOLATION),
        _once(rule, gaps.offset, gaps, earlier, here & ~certain, Weight.UNDECIDED),
    )


def _are_latest_of_their_keys(view: View, offsets: Ints) -> tuple[Mask, Mask]:
    """Return whether the durable records at each offset are the latest of their keys, and whether that is certain.

    If readers returned different values at an offset, both must be.
    """
    ops, places = view.ops, distinct(offsets)
    read = np.flatnonzero(view.durable & np.isin(ops.record_offset, places))
    read = read[np.lexsort((ops.record_value[read], ops.record_offset[read]))]
    again = (np.diff(ops.record_offset[read]) == 0) & (np.diff(ops.record_value[read]) == 0)
    read = read[np.append(True, ~again)[: len(read)]]
    offset, writer = ops.record_offset[read], view.writer[read]
    latest, certain = is_latest_of_key(view, writer, offset)
    latest &= (writer != NO_ROW) & (ops.record_value[read] != TOMBSTONE) & view.has_one_writer(read)
    slot = np.searchsorted(places, offsets)
    return ~np.isin(places, offset[~latest])[slot], ~np.isin(places, offset[~certain])[slot]


def _once(rule: Rule, culprit: Ints, gaps: Gaps, second: Ints, chosen: Mask, weight: Weight) -> RuleFindings:
    """Return one finding for each culprit among the chosen gaps."""
    here = np.flatnonzero(chosen)
    here = here[first_of_each(culprit[here])]
    return RuleFindings(rule, gaps.row[here], second[here], gaps.offset[here], weight)


def _back_again(view: View, gaps: Gaps) -> tuple[RuleFindings, RuleFindings]:
    """Find resurrected-record: a record is missing and then present again at the same replica.

    Each replica compacts on its own, so a record that is present at another replica is only information.
    """
    ops = view.ops
    epoch = np.where(ops.leader_epoch == UNKNOWN, UNKNOWN, ops.leader_epoch + (1 << 32))
    replica = np.where(ops.node == UNKNOWN, epoch, ops.node)
    read = np.flatnonzero(view.durable & np.isin(ops.record_offset, gaps.offset))
    read = read[np.argsort(ops.invoked[view.record_row[read]], kind="stable")]
    offset, row = ops.record_offset[read], view.record_row[read]

    def again(of: Ints) -> tuple[Mask, Ints]:
        """Return which gaps are followed by a read of the offset by the same `of`, and the last such read."""
        places, readers = distinct(gaps.offset), distinct(of)

        def pair(offsets: Ints, rows: Ints) -> Ints:
            both: Ints = np.searchsorted(places, offsets) * len(readers) + np.searchsorted(readers, of[rows])
            return both

        read_pair, gap_pair = pair(offset, row), pair(gaps.offset, gaps.row)
        # The reads are in the order of their calls, so that the last one that is assigned is the last one to begin.
        pairs = distinct(read_pair)
        last = np.full(len(pairs), NO_ROW)
        last[np.searchsorted(pairs, read_pair)] = row
        slot = np.minimum(np.searchsorted(pairs, gap_pair), len(pairs) - 1)
        return (pairs[slot] == gap_pair) & (ops.invoked[last[slot]] > ops.returned[gaps.row]), last[slot]

    same, by_same = again(replica)
    same &= replica[gaps.row] != UNKNOWN
    other, by_any = again(np.zeros(len(ops), np.int64))
    other &= ~np.isin(gaps.offset, gaps.offset[same])
    first, second = (np.flatnonzero(mask)[first_of_each(gaps.offset[mask])] for mask in (same, other))
    return (
        RuleFindings(Rule.RESURRECTED_RECORD, by_same[first], gaps.row[first], gaps.offset[first]),
        RuleFindings(
            Rule.RESURRECTED_RECORD, by_any[second], gaps.row[second], gaps.offset[second], weight=Weight.INFORMATION
        ),
    )


def _reads_before_and_after(view: View, gaps: Gaps) -> tuple[Ints, Ints]:
    """Return for each gap a read of the offset that returned before it, and the last that did not; or `NO_ROW`."""
    ops = view.ops
    had = view.durable if view.promise.compaction else view.returned
    chosen = np.flatnonzero(had & np.isin(ops.record_offset, gaps.offset))
    chosen = chosen[np.lexsort((ops.returned[view.record_row[chosen]], ops.record_offset[chosen]))]
    offset, row = ops.record_offset[chosen], view.record_row[chosen]
    first = np.searchsorted(offset, gaps.offset, "left")
    last = np.searchsorted(offset, gaps.offset, "right") - 1
    earlier = np.where(ops.returned[row[first]] < ops.invoked[gaps.row], row[first], NO_ROW)
    later = np.where(ops.returned[row[last]] > ops.invoked[gaps.row], row[last], NO_ROW)
    return earlier, later


def nonmonotonic_polls(view: View) -> tuple[RuleFindings, RuleFindings]:
    """Find nonmonotonic-poll and int-nonmonotonic-poll.

    A reader may go back if it names its position, or after it aborted a transaction. A consumer drops what a fetch
    returns below its position, so its first poll after an assignment or a seek has no record below the stated one.
    """
    ops, reading = view.ops, view.reading
    rows, before = reading.row, reading.before
    goes_on = before != NO_ROW
    back = np.zeros(len(rows), bool)
    back[1:] = goes_on[1:] & (reading.first[1:] <= reading.last[:-1]) & (ops.position[rows[1:]] == UNKNOWN)
    back &= ~_follows_abort(view)
    back |= (ops.began[rows] == Began.ASSIGNED) & (reading.first < ops.position[rows])
    inside = view.record_row[view.offset_decreases + 1]
    once = first_of_each(inside)
    return (
        RuleFindings(Rule.NONMONOTONIC_POLL, rows[back], before[back], reading.first[back]),
        RuleFindings(
            Rule.INT_NONMONOTONIC_POLL, inside[once], inside[once], ops.record_offset[view.offset_decreases + 1][once]
        ),
    )


def _follows_abort(view: View) -> Mask:
    """Mask the reads in `reading` that follow one of a transaction that was aborted, and are not part of it."""
    ops, reading = view.ops, view.reading
    aborted = (reading.before != NO_ROW) & (ops.fate[reading.before] == Fate.ABORTED)
    mask: Mask = aborted & (ops.txn[reading.before] != ops.txn[reading.row])
    return mask


def continued_after_abort(view: View) -> RuleFindings:
    """Find abort-rewind: the next read does not begin where the first read of the aborted transaction did."""
    ops, reading = view.ops, view.reading
    if not view.has_transactions:
        return no_findings(Rule.ABORT_REWIND, Weight.INFORMATION)
    begins = np.ones(len(reading.row), bool)  # of a series of reads of one transaction
    begins[1:] = (reading.before[1:] == NO_ROW) | (ops.txn[reading.row[1:]] != ops.txn[reading.row[:-1]])
    begin = np.flatnonzero(begins)[np.cumsum(begins) - 1]
    after = np.flatnonzero(_follows_abort(view))
    after = after[reading.first[after] != reading.first[begin[after - 1]]]
    return RuleFindings(
        Rule.ABORT_REWIND, reading.row[after], reading.before[after], reading.first[after], weight=Weight.INFORMATION
    )


def sends_between(view: View) -> RuleFindings:
    """Find int-send-skip: a record of another writer is between two of one transaction; Kafka allows that."""
    ops = view.ops
    if not view.has_transactions:
        return no_findings(Rule.INT_SEND_SKIP)
    rows = view.acked[np.argsort(ops.offset[view.acked], kind="stable")]
    of = rows[ops.txn[rows] != UNKNOWN]
    of = of[np.lexsort((ops.offset[of], ops.txn[of]))]
    a, b = of[:-1], of[1:]
    offsets = ops.offset[rows]
    between = np.searchsorted(offsets, ops.offset[b], "left") - np.searchsorted(offsets, ops.offset[a], "right")
    skip = (ops.txn[a] == ops.txn[b]) & (between > 0)
    return RuleFindings(Rule.INT_SEND_SKIP, b[skip], a[skip], ops.offset[b[skip]], weight=Weight.INFORMATION)


@dataclass(frozen=True, slots=True)
class Jumps:
    """Reads that resumed beyond the position of their group, with the read that had reached it, as columns."""

    row: Ints
    furthest: Ints
    due: Ints  # position that the group had reached
    certain: Ints  # log start during the read, at least
    possible: Ints  # and at most
    first: Ints  # first offset of the read
    who: Ints  # the group, or -2 - process without a group
    uncommitted: Ints  # 1 if the read is read_uncommitted, else 0

    def to_partition_rows(self, view: View) -> "Jumps":
        """Translate both row columns to row numbers of the whole partition."""
        return replace(self, row=view.to_partition_rows(self.row), furthest=view.to_partition_rows(self.furthest))


NO_JUMPS: Final = Jumps(*[NOTHING] * 8)


def find_jumps(view: View) -> Jumps:
    """Return the jumps of all groups; none if the history does not record how readers began."""
    ops, reading = view.ops, view.reading
    if not ops.has_values("began"):
        return NO_JUMPS
    reader = _readers(view)[reading.row]
    resumed = (reading.before == NO_ROW) & (ops.began[reading.row] == Began.RESUMED)
    order = np.argsort(reader, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(reader[order])) + 1)
    parts = [_jumps(view, mine, resumed) for mine in groups if np.any(resumed[mine])]
    slot, furthest, due = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else [NOTHING] * 3
    certain, possible = view.possible_starts
    row = reading.row[slot]
    uncommitted = view.sees_uncommitted[row].astype(np.int64)
    return Jumps(row, furthest, due, certain[slot], possible[slot], reading.first[slot], reader[slot], uncommitted)


def _readers(view: View) -> Ints:
    """Return for each row its group, or -2 - process without a group."""
    group, process = view.ops.group, view.ops.process
    return np.where(group == UNKNOWN, -2 - process.astype(np.int64), group)


def _jumps(view: View, mine: Ints, resumed: Mask) -> tuple[Ints, Ints, Ints]:
    """Return for the reads of one group that jumped: the slot in `reading`, the row furthest before, its end."""
    ops, reading = view.ops, view.reading
    ordered = mine[np.argsort(ops.returned[reading.row[mine]], kind="stable")]
    furthest, reached_by = running_maximum(reading.last[ordered] + 1)
    resuming = mine[resumed[mine]]
    slot = np.searchsorted(ops.returned[reading.row[ordered]], ops.invoked[reading.row[resuming]]) - 1
    jumps = (slot >= 0) & (furthest[slot] < reading.first[resuming])
    resuming, slot = resuming[jumps], slot[jumps]
    return resuming, reading.row[ordered[reached_by[slot]]], furthest[slot]


def existing_offsets(view: View, *, uncommitted: bool) -> Ints:
    """Return the offsets of records that were read, and of those whose acknowledgement promises that they are not lost.

    Without `uncommitted`, only those that readers of either isolation level must see.
    """
    ops, acked = view.ops, view.acked
    known = view.returned_offsets if uncommitted else view.durable_offsets
    if view.promise.unclean_election or not view.promise.acks_all:
        return known
    decided = (ops.txn[acked] == UNKNOWN) | (ops.fate[acked] == Fate.COMMITTED) | uncommitted
    offsets = ops.offset[acked[decided]]
    return distinct(np.concatenate([known, offsets[view.in_span(offsets)]]))


def silent_resets(view: View) -> tuple[RuleFindings, ...]:
    """Find silent-reset: a reader resumed beyond its group's position and skipped records that the group never read."""
    ops = view.ops
    if view.promise.compaction:
        return ()
    jumps: Jumps = find_jumps(view) if view.jumps is None else view.jumps
    if not len(jumps.who):
        return ()
    parts = {weight: [no_findings(Rule.SILENT_RESET, weight)] for weight in (Weight.VIOLATION, Weight.UNDECIDED)}
    received = (ops.kind == Kind.READ) & (ops.status == Status.OK)
    known = [existing_offsets(view, uncommitted=uncommitted) for uncommitted in (False, True)]
    for reader, uncommitted in {*zip(jumps.who.tolist(), jumps.uncommitted.tolist(), strict=True)}:
        by_reader = received & (_readers(view) == reader)
        unseen = np.setdiff1d(known[uncommitted], ops.record_offset[by_reader[view.record_row]])
        mine = np.flatnonzero((jumps.who == reader) & (jumps.uncommitted == uncommitted))
        for weight, low, high in (
            (Weight.VIOLATION, jumps.possible, jumps.first),
            (Weight.UNDECIDED, jumps.certain, jumps.possible),
        ):
            slot = np.searchsorted(unseen, np.maximum(jumps.due, low)[mine])
            jumped = slot < np.searchsorted(unseen, high[mine])
            found, at = mine[jumped], unseen[slot[jumped]]
            parts[weight].append(RuleFindings(Rule.SILENT_RESET, jumps.row[found], jumps.furthest[found], at, weight))
    return tuple(map(concatenate_findings, parts.values()))
