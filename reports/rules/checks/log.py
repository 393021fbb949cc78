"""Check the content of the log: one value per offset, one offset per value, nothing lost, and order of sends."""

from dataclasses import replace
from typing import Final

import numpy as np

from highwater.reports.columns import (
    EPOCH_BITS,
    NEVER,
    TOMBSTONE,
    UNKNOWN,
    UNKNOWN_EPOCH,
    Fate,
    Ints,
    Kind,
    Operations,
    Status,
)
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
)
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.view import View

SEQUENCES: Final = 1 << 31
"""Sequence numbers of a producer: they wrap from the largest to 0."""


def _neighbours(major: Ints, minor: Ints) -> tuple[Ints, Ints]:
    """Return positions of pairs that agree in `major` and differ in `minor`, at least one pair per such `major`."""
    order = np.argsort(major, kind="stable")
    sorted_major, sorted_minor = major[order], minor[order]
    differ = np.flatnonzero((sorted_major[1:] == sorted_major[:-1]) & (sorted_minor[1:] != sorted_minor[:-1]))
    return order[differ], order[differ + 1]


def inconsistent_offsets(view: View) -> RuleFindings:
    """Find inconsistent-offsets: two values, or two sends of one value, were acknowledged or read at one offset."""
    seen = view.observations
    a, b = (
        np.concatenate(pair)
        for pair in zip(
            _neighbours(seen.offset, seen.value),
            _neighbours(view.ops.offset[view.acked], view.acked),  # observations begin with the acknowledgements
            strict=True,
        )
    )
    first = first_of_each(seen.offset[a])  # one finding per offset
    return RuleFindings(Rule.INCONSISTENT_OFFSETS, seen.row[a[first]], seen.row[b[first]], seen.offset[a[first]])


def duplicates(view: View) -> tuple[RuleFindings, ...]:
    """Find duplicate: a value at more offsets than its sends explain. Only a tombstone may be written twice.

    A send explains the offset with which it was acknowledged; one without an offset that was not rejected explains any.
    A client that gives up on a record continues under a new producer epoch and may resend its open records of any
    partition (KIP-360; librdkafka issue 4953), which the broker cannot detect: the finding is undecided.
    """
    seen = view.observations
    at_two_offsets, _ = _neighbours(seen.value, seen.offset)
    mine = np.flatnonzero(np.isin(seen.value, seen.value[at_two_offsets]) & (seen.value != TOMBSTONE))
    if not len(mine):
        return ()
    mine = mine[np.lexsort((seen.row[mine], seen.offset[mine], seen.value[mine]))]
    value, offset = seen.value[mine], seen.offset[mine]
    place = np.flatnonzero(np.append(True, (value[1:] != value[:-1]) | (offset[1:] != offset[:-1])))
    unexplained = np.flatnonzero(np.logical_and.reduceat(seen.read[mine], place))
    values, of = np.unique(value[place], return_inverse=True)
    last = np.full(len(values), NO_ROW)
    last[of[unexplained]] = unexplained  # of each value the last place, since these increase
    several = np.bincount(of[unexplained], minlength=len(values)) > _sends_without_offset(view, values)
    other = np.searchsorted(of, np.arange(len(values)))
    other += other == last
    first, again = mine[place[other[several]]], mine[place[last[several]]]
    unsure = np.isin(values[several], _perhaps_under_two_epochs(view))
    found = RuleFindings(Rule.DUPLICATE, seen.row[first], seen.row[again], seen.offset[again])
    certain = ~unsure & _only_in_transactions(view, values[several])
    return (
        replace(found.where(certain), weight=Weight.CERTAIN),
        found.where(~unsure & ~certain),
        replace(found.where(unsure), weight=Weight.UNDECIDED),
    )


def _only_in_transactions(view: View, values: Ints) -> Mask:
    """Return which values were sent in transactions only, whose producers are idempotent even if others are not."""
    ops, sends = view.ops, view.sends
    if view.promise.idempotence or view.promise.unclean_election or not view.promise.acks_all:
        return np.zeros(len(values), bool)
    outside = ops.value[sends[ops.txn[sends] == UNKNOWN]]
    return np.isin(values, ops.value[sends]) & ~np.isin(values, outside)


def _sends_without_offset(view: View, values: Ints) -> Ints:
    """Return of each value how many of its sends may be in the log at an offset that no acknowledgement names."""
    ops, sends = view.ops, view.sends
    sends = sends[(ops.status[sends] != Status.FAIL) & (ops.offset[sends] == UNKNOWN)]
    sends = sends[np.isin(ops.value[sends], values)]
    count: Ints = np.bincount(np.searchsorted(values, ops.value[sends]), minlength=len(values))
    return count


def _perhaps_under_two_epochs(view: View) -> Ints:
    """Return values whose client gave up on a record meanwhile, unless it continued under the same producer epoch."""
    ops, sends = view.ops, view.sends
    during = sends[ops.gave_up[sends] == 1]
    values: Ints = ops.value[during[~view.producers.used_after(ops.producer[during], ops.returned[during])]]
    return values


def phantom_tombstones(view: View) -> RuleFindings:
    """Find phantom-read (of a tombstone): no tombstone was acknowledged at the offset.

    With sends of tombstones whose offset is unknown these are candidates: `merge_findings` keeps them if there are more
    than such sends.
    """
    ops = view.ops
    read = np.flatnonzero(view.read_value & (ops.record_value == TOMBSTONE))
    if not len(read):
        return no_findings(Rule.PHANTOM_READ)
    acknowledged = ops.offset[view.acked[ops.value[view.acked] == TOMBSTONE]]
    strange = read[~np.isin(ops.record_offset[read], acknowledged)]
    strange = strange[first_of_each(ops.record_offset[strange])]
    row, weight = view.record_row[strange], Weight.UNDECIDED if view.unplaced_tombstones else Weight.VIOLATION
    return RuleFindings(Rule.PHANTOM_READ, row, no_second_witness(row), ops.record_offset[strange], weight)


def phantom_reads(view: View) -> tuple[RuleFindings, RuleFindings]:
    """Find phantom-read and topic-reborn: a read value has no send, or only one to a deleted topic of the same name."""
    ops = view.ops
    strange = np.flatnonzero(view.read_value & (view.writer < 0) & (ops.record_value != TOMBSTONE))
    strange = strange[first_of_each(ops.record_value[strange])]
    row, offset = view.record_row[strange], ops.record_offset[strange]
    former = np.flatnonzero(ops.kind == Kind.FORMER)
    former = former[np.argsort(ops.value[former], kind="stable")]
    slot = np.searchsorted(ops.value[former], ops.record_value[strange])
    reborn = np.isin(ops.record_value[strange], ops.value[former])
    return (
        RuleFindings(Rule.PHANTOM_READ, row[~reborn], no_second_witness(row[~reborn]), offset[~reborn]),
        RuleFindings(Rule.TOPIC_REBORN, row[reborn], former[slot[reborn]], offset[reborn]),
    )


def rejected_records(view: View) -> RuleFindings:
    """Find rejected-record-read: a value was read though all its sends failed; one finding for each send."""
    ops, writer = view.ops, view.writer
    bad = np.flatnonzero(view.read_value & (writer != NO_ROW) & (ops.status == Status.FAIL)[writer])
    bad = bad[first_of_each(writer[bad])]
    return RuleFindings(Rule.REJECTED_RECORD_READ, view.record_row[bad], writer[bad], ops.record_offset[bad])


# -- lost, unseen, torn ------------------------------------------------------------------------------


def lost_and_unseen(view: View) -> tuple[RuleFindings, RuleFindings]:
    """Find lost-write and unseen."""
    ops, sends = view.ops, view.sends
    status = ops.status[sends]
    in_any_read = view.read_somewhere[sends]
    dead = ops.value[sends] == TOMBSTONE
    proven = (status == Status.INFO) & ~dead & np.isin(ops.value[sends], _values_of_uncertain_reads(view))
    written = (proven | (status == Status.OK)) & ~in_any_read & ~(dead & view.promise.compaction)
    written &= view.send_offset != UNKNOWN
    if not np.any(written):
        return no_findings(Rule.LOST_WRITE), no_findings(Rule.UNSEEN)
    missing, offset, certain = latest_of_key(view, sends[written], view.send_offset[written])
    visible = (ops.txn[missing] == UNKNOWN) | (ops.fate[missing] == Fate.COMMITTED)
    covered, by = view.passed(missing, offset)
    # Only read_uncommitted readers must see records of transactions that are not known to have committed.
    hidden = np.flatnonzero(~visible)
    chosen = view.sees_uncommitted[view.covered[0]]
    covered[hidden], by[hidden] = view.passed(missing[hidden], offset[hidden], chosen)
    covered &= certain & (offset < view.stuck_end)  # the end is stuck before the others: rule stuck reports it
    unseen = visible & ~covered & (offset >= view.log_starts.proved_after(ops.invoked[missing]))
    return (
        RuleFindings(Rule.LOST_WRITE, missing[covered], by[covered], offset[covered]),
        RuleFindings(Rule.UNSEEN, missing[unseen], no_second_witness(missing[unseen]), offset[unseen]),
    )


def _values_of_uncertain_reads(view: View) -> Ints:
    """Return values in failed or unknown reads: they were written, but perhaps not delivered."""
    unsure = view.read_value & (view.ops.status != Status.OK)[view.record_row]
    values: Ints = view.ops.record_value[unsure]
    return values


def latest_of_key(view: View, rows: Ints, offset: Ints) -> tuple[Ints, Ints, Mask]:
    """Keep only the latest record of each key if the topic is compacted; the mask: no other may be later."""
    if not view.promise.compaction:
        return rows, offset, np.ones(len(rows), bool)
    latest, certain = is_latest_of_key(view, rows, offset)
    return rows[latest], offset[latest], certain[latest]


def is_latest_of_key(view: View, rows: Ints, offset: Ints) -> tuple[Mask, Mask]:
    """Return whether each send at this offset is the latest of its key, and whether no other may be later."""
    ops, sends = view.ops, view.sends
    kept = ~view.rejected[sends]  # the cleaner drops the records of aborted transactions
    sends, known = sends[kept], view.send_offset[kept]
    if not len(sends):
        return ops.key[rows] != UNKNOWN, np.ones(len(rows), bool)
    keys = ops.key[sends]
    order = np.lexsort((known, keys))
    last = np.maximum(np.searchsorted(keys[order], ops.key[rows], "right") - 1, 0)
    superseded = (keys[order][last] == ops.key[rows]) & (known[order][last] > offset)
    certain: Mask = _last_of_key(ops, sends[known == UNKNOWN], ops.key[rows]) < ops.invoked[rows]
    # The library of a client that gave up on a record may write the others again, at a larger offset (KIP-360).
    certain &= ~np.isin(ops.key[rows], ops.key[sends[ops.gave_up[sends] == 1]])
    return (ops.key[rows] != UNKNOWN) & ~superseded, certain


def _last_of_key(ops: Operations, sends: Ints, keys: Ints) -> Ints:
    """Return for each key the last event index before which any of these sends may be appended; `UNKNOWN` if none."""
    if not len(sends):
        return np.full(len(keys), UNKNOWN)
    appended = np.where(ops.status[sends] == Status.OK, ops.returned[sends], NEVER)
    order = np.lexsort((appended, ops.key[sends]))
    known = ops.key[sends][order]
    slot = np.maximum(np.searchsorted(known, keys, "right") - 1, 0)
    return np.where(known[slot] == keys, appended[order][slot], UNKNOWN)


# -- order -------------------------------------------------------------------------------------------


def producer_reorders(view: View) -> tuple[RuleFindings, ...]:
    """Find producer-reorder: the offsets of one producer are not in the order of its send() calls.

    A client that gave up on a record may send it again under a new producer epoch (KIP-360), which the broker does not
    order behind the former: a finding with a send of unknown outcome is undecided, unless the epoch was used later.
    """
    ops, sends = view.ops, view.sends
    if not ops.has_values("producer", "sequence"):
        return ()
    placed = (ops.status[sends] != Status.FAIL) & (ops.producer[sends] != UNKNOWN) & (ops.sequence[sends] != UNKNOWN)
    unsure = placed & (ops.status[sends] == Status.INFO)
    acked = sends[placed & ~unsure & (ops.offset[sends] != UNKNOWN)]
    findings = _reordered(*_by_sequence(ops, acked, ops.producer), ops.offset)
    if not np.any(unsure):
        return (findings,)
    offset = np.full(len(ops), UNKNOWN)
    offset[sends] = view.send_offset
    unsure &= view.send_offset != UNKNOWN
    before, after = _by_sequence(ops, np.sort(np.concatenate([acked, sends[unsure]])), ops.producer)
    with_unsure = (ops.status[before] == Status.INFO) | (ops.status[after] == Status.INFO)
    before, after = before[with_unsure], after[with_unsure]
    proved = np.ones(len(after), bool)
    for rows in (before, after):
        used = view.producers.used_after(ops.producer[rows], ops.returned[rows])
        proved &= used | (ops.status[rows] == Status.OK)
    return (
        findings,
        _reordered(before[proved], after[proved], offset),
        _reordered(before[~proved], after[~proved], offset, Weight.UNDECIDED),
    )


def _reordered(before: Ints, after: Ints, offset: Ints, weight: Weight = Weight.VIOLATION) -> RuleFindings:
    """Return the pairs in which the offset of `after` is the smaller one; `offset` is by row."""
    wrong = offset[after] < offset[before]
    return RuleFindings(Rule.PRODUCER_REORDER, after[wrong], before[wrong], offset[after[wrong]], weight)


def _by_sequence(ops: Operations, rows: Ints, sender: Ints) -> tuple[Ints, Ints]:
    """Return pairs (before, after): each send with the last one of the next smaller sequence of its sender."""
    sequence = _unwrapped(ops.sequence[rows], sender[rows])
    order = np.lexsort((sequence, sender[rows]))
    rows, sequence = rows[order], sequence[order]
    same = sender[rows[1:]] == sender[rows[:-1]]
    new = np.append(True, ~same | (sequence[1:] != sequence[:-1]))[: len(rows)]
    place = np.maximum.accumulate(np.where(new, np.arange(len(rows)), 0)) - 1  # of the last send before this sequence
    known = (place >= 0) & (sender[rows[place]] == sender[rows]) if len(rows) else new
    return rows[place[known]], rows[known]


def _unwrapped(sequence: Ints, sender: Ints) -> Ints:
    """Return the sequences so that they increase at a wrap from 2^31 - 1 to 0 (DefaultRecordBatch.incrementSequence).

    The first sequence of a sender is the one after the largest gap between its sequences on the circle.
    """
    unwrapped = sequence.copy()
    for each in distinct(sender[sequence >= SEQUENCES // 2]):
        mine = np.flatnonzero(sender == each)
        known = distinct(sequence[mine])
        if known[-1] < SEQUENCES:  # else it counts calls, without a limit
            gaps = np.diff(known, append=known[0] + SEQUENCES)
            largest = len(gaps) - 1 - np.argmax(gaps[::-1])  # if two are equal, nothing wraps
            unwrapped[mine[sequence[mine] <= known[largest]]] += SEQUENCES if largest < len(gaps) - 1 else 0
    return unwrapped


def fenced_sends(view: View) -> tuple[RuleFindings, ...]:
    """Find producer-reorder (of epochs): a record of an older epoch of a producer id is behind one of a newer epoch.

    A leader rejects it (ProducerAppendInfo.checkProducerEpoch). A client that gave up on a record while the send was
    open may have sent it again in a newer epoch (KIP-360): undecided, unless the older epoch was used later.
    """
    ops, acked = view.ops, view.acked
    if not ops.has_values("producer"):
        return ()
    known = acked[(ops.producer[acked] != UNKNOWN) & (ops.producer[acked] & UNKNOWN_EPOCH != UNKNOWN_EPOCH)]
    rows = known[np.lexsort((ops.producer[known], ops.offset[known], ops.producer[known] >> EPOCH_BITS))]
    newest = np.maximum.accumulate(ops.producer[rows])
    place = np.maximum.accumulate(np.where(ops.producer[rows] == newest, np.arange(len(rows)), 0))
    late = np.flatnonzero(newest > ops.producer[rows])
    first, second = rows[late], rows[place[late]]
    unsure = (ops.gave_up[first] == 1) & ~view.producers.used_after(ops.producer[first], ops.returned[first])
    return tuple(
        RuleFindings(Rule.PRODUCER_REORDER, first[mask], second[mask], ops.offset[first[mask]], weight)
        for mask, weight in ((~unsure, Weight.VIOLATION), (unsure, Weight.UNDECIDED))
    )


def nonmonotonic_sends(view: View) -> RuleFindings:
    """Find nonmonotonic-send (of a process): a later send of the process has a smaller offset."""
    ops = view.ops
    rows = view.acked[np.argsort(ops.process[view.acked], kind="stable")]
    before, after = rows[:-1], rows[1:]
    wrong = (ops.process[before] == ops.process[after]) & (ops.offset[after] <= ops.offset[before])
    wrong &= ops.returned[before] < ops.invoked[after]
    return RuleFindings(Rule.NONMONOTONIC_SEND, after[wrong], before[wrong], ops.offset[after[wrong]])


def nonmonotonic_transactions(view: View) -> RuleFindings:
    """Find nonmonotonic-send (of a transaction): offsets are not in the order of the send() calls."""
    ops = view.ops
    if not ops.has_values("txn", "sequence"):
        return no_findings(Rule.NONMONOTONIC_SEND)
    rows = view.acked[(ops.txn[view.acked] != UNKNOWN) & (ops.sequence[view.acked] != UNKNOWN)]
    rows = rows[ops.producer[rows] == UNKNOWN]  # producer-reorder covers known producers
    before, after = _by_sequence(ops, rows, ops.txn)
    inside = ops.offset[after] <= ops.offset[before]
    return RuleFindings(Rule.NONMONOTONIC_SEND, after[inside], before[inside], ops.offset[after[inside]])


def disordered_transactions(view: View) -> RuleFindings:
    """Find nonmonotonic-send (of a process in a transaction): its records are not in the order of its send() calls.

    A producer with transactions is idempotent, so that this holds for sends of unknown outcome, too.
    """
    ops, (rows, offset) = view.ops, view.placed
    rows = rows[ops.txn[rows] != UNKNOWN]
    rows = rows[np.lexsort((ops.invoked[rows], ops.process[rows], ops.txn[rows]))]
    before, after = rows[:-1], rows[1:]
    wrong = (ops.txn[before] == ops.txn[after]) & (ops.process[before] == ops.process[after])
    wrong &= offset[after] < offset[before]
    return RuleFindings(Rule.NONMONOTONIC_SEND, after[wrong], before[wrong], offset[after[wrong]])


def append_inversions(view: View) -> tuple[RuleFindings, ...]:
    """Find append-inversion: an acknowledgement bounds the log end from below, a later send from above.

    The second result has the sends that only sends of their own process prove: `merge_findings` drops those that
    nonmonotonic-send reports already.
    """
    ops, acked = view.ops, view.acked
    lower, upper = Bounds(ops.returned[acked], ops.offset[acked] + 1, acked), send_bounds(view)
    late, early, z = sweep(lower, upper)
    if not len(late):
        return ()
    own = ops.process[late] == ops.process[early]
    suspects = upper.where(np.isin(upper.row, late[own]))
    parts = [(late[~own], early[~own], z[~own])]
    for process in distinct(ops.process[suspects.row]):
        others = lower.where(ops.process[lower.row] != process)
        parts.append(sweep(others, suspects.where(ops.process[suspects.row] == process)))
    first, second, offset = (np.concatenate(column) for column in zip(*parts, strict=True))
    by_others = RuleFindings(Rule.APPEND_INVERSION, first, second, offset)
    own &= ~np.isin(late, by_others.first)
    return by_others, RuleFindings(Rule.APPEND_INVERSION, late[own], early[own], z[own])


def send_bounds(view: View) -> Bounds:
    """Return upper bounds: when a send was invoked, the log end was at most its offset."""
    ops, sends, offset = view.ops, view.sends, view.send_offset
    known = (ops.status[sends] != Status.FAIL) & (offset != UNKNOWN)
    return Bounds(ops.invoked[sends[known]], offset[known], sends[known])
