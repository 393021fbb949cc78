"""Check storage: early-retention, resurrected-record by tombstones, replica-divergence, and a stuck log end."""

from collections.abc import Iterator

import numpy as np

from highwater.reports.columns import TOMBSTONE, UNKNOWN, Fate, Ints, Kind, Status, dump_starts
from highwater.reports.rules.findings import (
    NO_ROW,
    Mask,
    RuleFindings,
    distinct,
    first_of_each,
    no_findings,
    running_maximum,
)
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.view import View


def early_retention(view: View) -> RuleFindings:
    """Find early-retention: the log start passed a record within its retention time without a DeleteRecords request."""
    ops, promise = view.ops, view.promise
    if not ops.has_values("log_start_offset") or (promise.retention and promise.retention_ms < 0):
        return no_findings(Rule.EARLY_RETENTION)
    written, offset = view.placed
    written = written[(ops.timestamp_ms[written] != UNKNOWN) | (not promise.retention)]
    written = written[np.argsort(offset[written], kind="stable")]
    youngest, youngest_at = running_maximum(ops.timestamp_ms[written])
    reporting = np.flatnonzero((ops.status == Status.OK) & (ops.log_start_offset > 0))
    reporting = reporting[(ops.at_ms[reporting] != UNKNOWN) | (not promise.retention)]
    below = np.searchsorted(offset[written], ops.log_start_offset[reporting], "left") - 1
    reporting, below = reporting[below >= 0], below[below >= 0]
    age_ms = promise.started_ms + ops.at_ms[reporting] - youngest[below]
    early = (age_ms < promise.retention_ms) | (not promise.retention)
    requested = view.log_starts.requested.before(ops.returned[reporting])
    early &= requested < ops.log_start_offset[reporting]
    victim = written[youngest_at[below]]
    for place in np.flatnonzero(early & (requested > 0)):  # records below are deleted on request
        kept = np.searchsorted(offset[written], requested[place])
        victim[place], early[place] = _youngest(view, written[kept : below[place] + 1], int(reporting[place]))
    reporting, victim = reporting[early], victim[early]
    once = first_of_each(ops.log_start_offset[reporting])
    return RuleFindings(Rule.EARLY_RETENTION, reporting[once], victim[once], offset[victim[once]])


def _youngest(view: View, written: Ints, report: int) -> tuple[int, bool]:
    """Return the youngest of these sends, and whether it was too young to be removed when `report` was returned."""
    ops, promise = view.ops, view.promise
    if not len(written):
        return NO_ROW, False
    youngest = written[np.argmax(ops.timestamp_ms[written])]
    age_ms = promise.started_ms + ops.at_ms[report] - ops.timestamp_ms[youngest]
    return int(youngest), bool(age_ms < promise.retention_ms or not promise.retention)


def outlived_tombstones(view: View) -> RuleFindings:
    """Find resurrected-record within one read: a record of a deleted key, but not the tombstone after it.

    The log cleaner removes a tombstone only after all records that it deletes.
    """
    ops = view.ops
    if not ops.has_values("key") or not view.promise.compaction:
        return no_findings(Rule.RESURRECTED_RECORD)
    certain = (ops.txn[view.acked] == UNKNOWN) | (ops.fate[view.acked] == Fate.COMMITTED)
    dead = view.acked[(ops.value[view.acked] == TOMBSTONE) & (ops.key[view.acked] != UNKNOWN) & certain]
    dead = dead[np.lexsort((ops.offset[dead], ops.key[dead]))]
    dead = dead[np.append(True, (np.diff(ops.offset[dead]) != 0) | (np.diff(ops.key[dead]) != 0))[: len(dead)]]
    if not len(dead):
        return no_findings(Rule.RESURRECTED_RECORD)
    keys = _keys_of_records(view, dead)
    read = np.flatnonzero(view.read_value & (ops.status == Status.OK)[view.record_row] & np.isin(keys, ops.key[dead]))
    row, key, offset = view.record_row[read], keys[read], ops.record_offset[read]
    last = ops.record_offset[view.record_start[row] + ops.record_count[row] - 1]
    slot = _last_absent(view, dead, read, _place(ops.key[dead], ops.offset[dead], key, last) - 1)
    outlived = (slot >= 0) & (ops.key[dead[slot]] == key) & (ops.offset[dead[slot]] > offset)
    outlived &= ops.record_value[read] != TOMBSTONE
    return RuleFindings(Rule.RESURRECTED_RECORD, row[outlived], dead[slot[outlived]], offset[outlived])


def _last_absent(view: View, dead: Ints, read: Ints, slot: Ints) -> Ints:
    """Return for each record in `read` the largest place in `dead`, at most `slot`, that its read does not contain."""
    row, offset = view.record_row, view.ops.record_offset
    tombs = read[(view.ops.record_value[read] == TOMBSTONE) & np.isin(offset[read], view.ops.offset[dead])]
    if not len(tombs):
        return slot
    by_offset = np.argsort(view.ops.offset[dead], kind="stable")
    place = by_offset[np.searchsorted(view.ops.offset[dead][by_offset], offset[tombs])]
    order = np.lexsort((place, row[tombs]))
    present, holder = place[order], row[tombs][order]
    begins = np.ones(len(order), bool)  # of a series of tombstones without a gap
    begins[1:] = (holder[1:] != holder[:-1]) | (present[1:] > present[:-1] + 1)
    begin = present[begins][np.cumsum(begins) - 1]
    at = np.maximum(_place(holder, present, row[read], slot) - 1, 0)
    held = (holder[at] == row[read]) & (present[at] == slot)
    return np.where(held, begin[at] - 1, slot)


def _keys_of_records(view: View, dead: Ints) -> Ints:
    """Return the key of each record, from the send that wrote it, or for tombstones from their offset."""
    ops = view.ops
    keys = np.where(view.writer >= 0, ops.key[view.writer], UNKNOWN)
    by_offset = dead[np.argsort(ops.offset[dead], kind="stable")]
    slot = np.minimum(np.searchsorted(ops.offset[by_offset], ops.record_offset), len(dead) - 1)
    is_dead = (ops.record_value == TOMBSTONE) & (ops.offset[by_offset[slot]] == ops.record_offset)
    return np.where(is_dead, ops.key[by_offset[slot]], keys)


def _place(major: Ints, minor: Ints, key: Ints, offset: Ints) -> Ints:
    """Return for each (key, offset) the first larger position in the sorted (major, minor)."""
    order = np.lexsort(
        (
            np.concatenate([np.zeros(len(major)), np.ones(len(key))]),
            np.concatenate([minor, offset]),
            np.concatenate([major, key]),
        )
    )
    is_base = order < len(major)
    before = np.cumsum(is_base)
    places = np.empty(len(order), np.int64)
    places[order] = before
    return places[len(major) :]


def diverged_replicas(view: View) -> RuleFindings:
    """Find replica-divergence: two replicas, or a replica and a client, differ below a high watermark."""
    ops = view.ops
    dumps = np.flatnonzero((ops.kind == Kind.DUMP) & (ops.status == Status.OK) & (ops.high_watermark != UNKNOWN))
    if not len(dumps):
        return no_findings(Rule.REPLICA_DIVERGENCE)
    is_dump = np.zeros(len(ops), bool)
    is_dump[dumps] = True
    dumped = np.flatnonzero(is_dump[view.record_row])
    row, offset, value = view.record_row[dumped], ops.record_offset[dumped], ops.record_value[dumped]
    committed = offset < ops.high_watermark[row]
    row, offset, value = row[committed], offset[committed], value[committed]
    order = np.argsort(offset, kind="stable")
    row, offset, value = row[order], offset[order], value[order]
    begin = np.searchsorted(offset, offset, "left")
    pairs = (_unlike(begin, value, replica) for replica in (ops.node[row], row))
    found = [(row[one], row[other], offset[one]) for one, other in pairs]
    if not view.promise.compaction:
        held = distinct(begin), _first(begin, ops.node[row] != ops.node[row[begin]])
        found += [lacked for of in held for lacked in _lacking(view, dumps, row[of], offset[of])]
    found += _unlike_clients(view, dumps, row, offset, value)
    first, second, at = (np.concatenate(column) for column in zip(*found, strict=True))
    # Two replicas are better witnesses than one at two times, and these than a replica and a client.
    rank = np.where(is_dump[second], ops.node[first] == ops.node[second], 2)
    first, second, at = (column[np.argsort(rank, kind="stable")] for column in (first, second, at))
    once = first_of_each(at)
    return RuleFindings(Rule.REPLICA_DIVERGENCE, first[once], second[once], at[once])


def _unlike_clients(view: View, dumps: Ints, row: Ints, offset: Ints, value: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield (dump, operation, offset) for values that acknowledgements or reads know, and dumps contradict or lack.

    `row`, `offset` and `value` are the records of the dumps below their high watermarks.
    """
    ops = view.ops
    acked = view.acked if view.promise.acks_all else view.acked[:0]
    read = np.flatnonzero(view.read_value & (ops.status == Status.OK)[view.record_row])
    known_row = np.concatenate([acked, view.record_row[read]])
    known_offset = np.concatenate([ops.offset[acked], ops.record_offset[read]])
    known_value = np.concatenate([ops.value[acked], ops.record_value[read]])
    below = np.flatnonzero(known_offset < ops.high_watermark[dumps].max())
    below = below[np.lexsort((known_row[below], known_offset[below]))]
    known_row, known_offset, known_value = known_row[below], known_offset[below], known_value[below]
    if not len(below):
        return
    by_value = np.lexsort((known_row, known_value, known_offset))
    group = np.flatnonzero(np.append(True, np.diff(known_offset) != 0))  # of operations at one offset
    smallest, largest = by_value[group], by_value[np.append(group[1:], len(below)) - 1]
    places = known_offset[group]
    slot = np.minimum(np.searchsorted(places, offset), len(places) - 1)
    other = np.where(known_value[smallest[slot]] != value, smallest[slot], largest[slot])
    unlike = (places[slot] == offset) & (known_value[other] != value)
    yield row[unlike], known_row[other[unlike]], offset[unlike]
    if not view.promise.compaction:
        yield from _lacking(view, dumps, known_row[group], places)


def _unlike(begin: Ints, value: Ints, replica: Ints) -> tuple[Ints, Ints]:
    """Return two places of different replicas and values for each offset that has them.

    The columns are sorted by offset; `begin` is the first place with the same offset.
    """
    away, unlike = replica != replica[begin], value != value[begin]
    table = np.full((3, len(begin)), NO_ROW)
    for column, mask in zip(table, (away & unlike, unlike, away), strict=True):
        first = _first(begin, mask)
        column[begin[first]] = first
    groups = distinct(begin)
    both, other, same = table[:, groups]
    # Without a place that differs from the first in both, one of another replica has the first value.
    one, against = np.where(both != NO_ROW, (both, groups), (other, same))
    found = (one != NO_ROW) & (against != NO_ROW)
    return one[found], against[found]


def _first(begin: Ints, mask: Mask) -> Ints:
    """Return the first place in `mask` of each group, in the order of groups."""
    places = np.flatnonzero(mask)
    return places[first_of_each(begin[places])]


def _lacking(view: View, dumps: Ints, row: Ints, offset: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield offsets that a replica lacks between its log start and high watermark, but another operation has.

    `offset` is strictly increasing; `row` is the first operation that contains it.
    """
    ops = view.ops
    for dump, begin in zip(dumps.tolist(), dump_starts(ops, dumps).tolist(), strict=True):
        held = ops.record_offset[view.record_start[dump] :][: ops.record_count[dump]]
        due = slice(*np.searchsorted(offset, [begin, ops.high_watermark[dump]]))
        missing = ~np.isin(offset[due], held)
        yield np.full(int(missing.sum()), dump), row[due][missing], offset[due][missing]


def stuck_ends(view: View) -> RuleFindings:
    """Find stuck (of a partition): after all faults the end stays below what the same leader acknowledged."""
    last, beyond = view.stuck
    return RuleFindings(Rule.STUCK, last, beyond[: len(last)], view.ops.offset[beyond[: len(last)]])
