"""What brokers keep: rules 34 (retention), 35 (tombstones) and 36 (replicas), and 30 for an end that is stuck."""

import numpy as np

from highwater.reports.columns import TOMBSTONE, UNKNOWN, Fate, Ints, Kind, Status
from highwater.reports.rules.findings import Found, distinct, first_of_each, none_of, running_maximum
from highwater.reports.rules.view import View


def early_retention(view: View) -> Found:
    """Rule 34: the log start passed a record that was still to be kept, and nobody had asked for its deletion."""
    ops, promise = view.ops, view.promise
    if not ops.tells("log_start_offset") or (promise.retention and promise.retention_ms < 0):
        return none_of(34)
    written = view.acked[(ops.timestamp_ms[view.acked] != UNKNOWN) | (not promise.retention)]
    written = written[np.argsort(ops.offset[written], kind="stable")]
    youngest, who = running_maximum(ops.timestamp_ms[written])
    told = np.flatnonzero((ops.status == Status.OK) & (ops.log_start_offset > 0))
    below = np.searchsorted(ops.offset[written], ops.log_start_offset[told], "left") - 1
    told, below = told[below >= 0], below[below >= 0]
    age_ms = promise.started_ms + ops.at_ms[told] - youngest[below]
    early = (age_ms < promise.retention_ms) | (not promise.retention)
    asked = np.flatnonzero((ops.kind == Kind.DELETE) & (ops.status != Status.FAIL))
    most, _ = running_maximum(ops.offset[asked])
    slot = np.searchsorted(ops.invoked[asked], ops.returned[told]) - 1
    excused = (most[slot] if len(asked) else np.full(len(told), UNKNOWN)) >= ops.log_start_offset[told]
    early &= ~((slot >= 0) & excused)
    told, below = told[early], below[early]
    once = first_of_each(ops.log_start_offset[told])
    return Found(34, told[once], written[who[below[once]]], ops.offset[written[who[below[once]]]])


def outlived_tombstones(view: View) -> Found:
    """Rule 35, within one read: a record of a deleted key without the tombstone that stood after it.

    The cleaner drops a tombstone only after all that it deletes.
    """
    ops = view.ops
    if not ops.tells("key") or not view.promise.compaction:
        return none_of(35)
    certain = (ops.txn[view.acked] == UNKNOWN) | (ops.fate[view.acked] == Fate.COMMITTED)
    dead = view.acked[(ops.value[view.acked] == TOMBSTONE) & (ops.key[view.acked] != UNKNOWN) & certain]
    dead = dead[np.lexsort((ops.offset[dead], ops.key[dead]))]
    if not len(dead):
        return none_of(35)
    keys = _keys_of_records(view, dead)
    read = np.flatnonzero(view.read_value & (ops.status == Status.OK)[view.record_row] & np.isin(keys, ops.key[dead]))
    read = read[np.lexsort((read, keys[read], view.record_row[read]))]
    row, key, offset = view.record_row[read], keys[read], ops.record_offset[read]
    newest = np.ones(len(read), bool)  # of its key in that read
    newest[:-1] = (row[:-1] != row[1:]) | (key[:-1] != key[1:])
    newest &= ops.record_value[read] != TOMBSTONE
    row, key, offset = row[newest], key[newest], offset[newest]
    slot = np.minimum(_place(ops.key[dead], ops.offset[dead], key, offset), len(dead) - 1)
    last = ops.record_offset[view.record_start[row] + ops.record_count[row] - 1]
    outlived = (ops.key[dead[slot]] == key) & (ops.offset[dead[slot]] > offset) & (ops.offset[dead[slot]] <= last)
    return Found(35, row[outlived], dead[slot[outlived]], offset[outlived])


def _keys_of_records(view: View, dead: Ints) -> Ints:
    """By who wrote them; of tombstones by their offset."""
    ops = view.ops
    keys = np.where(view.writer >= 0, ops.key[view.writer], UNKNOWN)
    by_offset = dead[np.argsort(ops.offset[dead], kind="stable")]
    slot = np.minimum(np.searchsorted(ops.offset[by_offset], ops.record_offset), len(dead) - 1)
    is_dead = (ops.record_value == TOMBSTONE) & (ops.offset[by_offset[slot]] == ops.record_offset)
    return np.where(is_dead, ops.key[by_offset[slot]], keys)


def _place(major: Ints, minor: Ints, key: Ints, offset: Ints) -> Ints:
    """For each (key, offset) the first place in the sorted (major, minor) that is larger."""
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


def diverged_replicas(view: View) -> Found:
    """Rule 36: two replicas differ at an offset below both their high watermarks."""
    ops = view.ops
    dumps = np.flatnonzero((ops.kind == Kind.DUMP) & (ops.status == Status.OK) & (ops.high_watermark != UNKNOWN))
    if len(dumps) < 2:
        return none_of(36)
    is_dump = np.zeros(len(ops), bool)
    is_dump[dumps] = True
    told = np.flatnonzero(is_dump[view.record_row])
    row, offset, value = view.record_row[told], ops.record_offset[told], ops.record_value[told]
    committed = offset < ops.high_watermark[row]
    row, offset, value = row[committed], offset[committed], value[committed]
    order = np.argsort(offset, kind="stable")
    row, offset, value = row[order], offset[order], value[order]
    begin = np.searchsorted(offset, offset, "left")
    # Two dumps and two values at an offset: then some two dumps differ there, whatever one of them says twice.
    other = np.flatnonzero(row != row[begin])
    other = other[np.isin(begin[other], begin[value != value[begin]])]
    first, second, at = row[other], row[begin[other]], offset[other]
    if not view.promise.compaction:
        held = distinct(begin)
        known, by = offset[held], row[held]
        lacking = [_lacking(view, int(dump), by, known) for dump in dumps]
        first, second, at = (
            np.concatenate([column, *more])
            for column, more in zip((first, second, at), zip(*lacking, strict=True), strict=True)
        )
    once = first_of_each(at)
    return Found(36, first[once], second[once], at[once])


def _lacking(view: View, dump: int, row: Ints, offset: Ints) -> tuple[Ints, Ints, Ints]:
    """Offsets that another replica has between this one's log start and high watermark, and this one has not.

    `offset` ascends, each once; `row` is of the first dump that tells it.
    """
    ops = view.ops
    begin = max(int(ops.position[dump]), view.log_start if view.promise.retention else 0)
    due = slice(*np.searchsorted(offset, [begin, ops.high_watermark[dump]]))
    held = ops.record_offset[view.record_start[dump] :][: ops.record_count[dump]]
    missing = ~np.isin(offset[due], held)
    return np.full(int(missing.sum()), dump), row[due][missing], offset[due][missing]


def stuck_ends(view: View) -> Found:
    """Rule 30, of a partition: faults are over, and the end does not come to what the same leader acknowledged."""
    last, beyond = view.stuck
    return Found(30, last, beyond[: len(last)], view.ops.offset[beyond[: len(last)]])
