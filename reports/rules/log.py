"""What is in the log: rules 1 to 5, 12, 13 and 38. One offset, one value; one value, one offset; nothing lost."""

import numpy as np

from highwater.reports.columns import TOMBSTONE, UNKNOWN, Fate, Ints, Kind, Status
from highwater.reports.rules.findings import Bounds, Found, alone, first_of_each, none_of, sweep
from highwater.reports.rules.view import View


def _neighbours(major: Ints, minor: Ints) -> tuple[Ints, Ints]:
    """Positions of two observations that agree in `major` and differ in `minor`, at least one pair for each such."""
    order = np.argsort(major, kind="stable")
    sorted_major, sorted_minor = major[order], minor[order]
    differ = np.flatnonzero((sorted_major[1:] == sorted_major[:-1]) & (sorted_minor[1:] != sorted_minor[:-1]))
    return order[differ], order[differ + 1]


def inconsistent_offsets(view: View) -> Found:
    """Rule 1."""
    seen = view.seen
    a, b = _neighbours(seen.offset, seen.value)
    first = first_of_each(seen.offset[a])  # one finding an offset
    return Found(1, seen.row[a[first]], seen.row[b[first]], seen.offset[a[first]])


def duplicates(view: View) -> tuple[Found, Found]:
    """Rule 2. Only a tombstone may be written twice.

    A client that gives up on a record goes on under a new producer epoch, and under that it may write again what it
    still had open, whatever partition it was for (KIP-360; librdkafka issue 4953): the broker could not know.
    """
    seen = view.seen
    a, b = _neighbours(seen.value, seen.offset)
    once = seen.value[a] != TOMBSTONE
    a, b = a[once], b[once]
    first = first_of_each(seen.value[a])
    a, b = a[first], b[first]
    excused = np.isin(seen.value[a], np.concatenate([_under_two_epochs(view), _tried_again(view)]))
    return (
        Found(2, seen.row[a[~excused]], seen.row[b[~excused]], seen.offset[b[~excused]]),
        Found(2, seen.row[a[excused]], seen.row[b[excused]], seen.offset[b[excused]], information=True),
    )


def _under_two_epochs(view: View) -> Ints:
    """Values that their client may have sent, or did send, under more than one producer epoch."""
    ops, sends = view.ops, view.sends
    unsure: Ints = ops.value[sends[ops.gave_up[sends] == 1]]
    if not ops.tells("producer"):
        return unsure
    known = sends[ops.producer[sends] != UNKNOWN]
    known = known[np.argsort(ops.value[known], kind="stable")]
    again, other = ops.value[known[1:]] == ops.value[known[:-1]], ops.producer[known[1:]] != ops.producer[known[:-1]]
    return np.concatenate([unsure, ops.value[known[1:][again & other]]])


def _tried_again(view: View) -> Ints:
    """Values of a transaction that was taken back, sent once more in another."""
    again = view.sent_again
    values: Ints = view.ops.value[again[view.ops.fate[again] == Fate.ABORTED]]
    return values


def phantom_reads(view: View) -> tuple[Found, Found]:
    """Rules 3 and 38: a value that nobody wrote, or that was written to a deleted topic of the same name."""
    ops = view.ops
    strange = np.flatnonzero(view.read_value & (view.writer < 0) & (ops.record_value != TOMBSTONE))
    strange = strange[first_of_each(ops.record_value[strange])]
    row, offset = view.record_row[strange], ops.record_offset[strange]
    former = np.flatnonzero(ops.kind == Kind.FORMER)
    former = former[np.argsort(ops.value[former], kind="stable")]
    slot = np.searchsorted(ops.value[former], ops.record_value[strange])
    reborn = np.isin(ops.record_value[strange], ops.value[former])
    return (
        Found(3, row[~reborn], alone(row[~reborn]), offset[~reborn]),
        Found(38, row[reborn], former[slot[reborn]], offset[reborn]),
    )


# -- lost, unseen, torn ------------------------------------------------------------------------------


def lost_and_unseen(view: View) -> tuple[Found, Found]:
    """Rules 4 and 5. The last place of a record is judged: a retry may have written it again."""
    ops, sends = view.ops, view.sends
    status = ops.status[sends]
    in_any_read = view.read_somewhere[sends]
    dead = ops.value[sends] == TOMBSTONE
    proven = (status == Status.INFO) & ~dead & np.isin(ops.value[sends], _unsure_values(view))
    committed = (proven | (status == Status.OK)) & ~in_any_read & ~(dead & view.promise.compaction)
    if view.told_txn:
        committed &= (ops.txn[sends] == UNKNOWN) | (ops.fate[sends] == Fate.COMMITTED)
    missing = sends[committed]
    if not len(missing):
        return none_of(4), none_of(5)
    offset = np.where(dead[committed], ops.offset[missing], view.last_offset_of(ops.value[missing]))
    due = (offset != UNKNOWN) & (offset >= view.log_start)
    missing, offset = _latest_of_key(view, missing[due], offset[due])
    covered, by = view.cover.look_up(offset)
    covered &= ~np.isin(missing, view.stuck[1])  # the end is stuck before them: that is rule 30
    return (
        Found(4, missing[covered], by[covered], offset[covered]),
        Found(5, missing[~covered], alone(missing[~covered]), offset[~covered], information=True),
    )


def _unsure_values(view: View) -> Ints:
    """Values told by reads that did not end well: they were written, but nobody was given them for certain."""
    unsure = view.read_value & (view.ops.status != Status.OK)[view.record_row]
    values: Ints = view.ops.record_value[unsure]
    return values


def _latest_of_key(view: View, rows: Ints, offset: Ints) -> tuple[Ints, Ints]:
    """With compaction only the latest record of a key must be there."""
    if not view.promise.compaction:
        return rows, offset
    keys, known = view.ops.key[view.sends], view.send_offset
    order = np.lexsort((known, keys))
    last = np.searchsorted(keys[order], view.ops.key[rows], "right") - 1
    kept = (view.ops.key[rows] != UNKNOWN) & (known[order][last] <= offset)
    return rows[kept], offset[kept]


# -- order -------------------------------------------------------------------------------------------


def producer_reorders(view: View) -> Found:
    """Rule 12: the offsets of one producer do not ascend as its send() calls did."""
    ops = view.ops
    if not ops.tells("producer", "sequence"):
        return none_of(12)
    rows = view.acked[(ops.producer[view.acked] != UNKNOWN) & (ops.sequence[view.acked] != UNKNOWN)]
    rows = rows[np.lexsort((ops.sequence[rows], ops.producer[rows]))]
    before, after = rows[:-1], rows[1:]
    wrong = (ops.producer[before] == ops.producer[after]) & (ops.sequence[before] < ops.sequence[after])
    wrong &= ops.offset[after] < ops.offset[before]
    return Found(12, after[wrong], before[wrong], ops.offset[after[wrong]])


def nonmonotonic_sends(view: View) -> Found:
    """Rule 10, of a process: one after the other."""
    ops = view.ops
    rows = view.acked[np.argsort(ops.process[view.acked], kind="stable")]
    before, after = rows[:-1], rows[1:]
    wrong = (ops.process[before] == ops.process[after]) & (ops.offset[after] <= ops.offset[before])
    wrong &= ops.returned[before] < ops.invoked[after]
    return Found(10, after[wrong], before[wrong], ops.offset[after[wrong]])


def nonmonotonic_transactions(view: View) -> Found:
    """Rule 10, of a transaction: as it called send()."""
    ops = view.ops
    if not ops.tells("txn", "sequence"):
        return none_of(10)
    rows = view.acked[(ops.txn[view.acked] != UNKNOWN) & (ops.sequence[view.acked] != UNKNOWN)]
    rows = rows[ops.producer[rows] == UNKNOWN]  # of a producer that is known tells rule 12
    rows = rows[np.lexsort((ops.sequence[rows], ops.txn[rows]))]
    before, after = rows[:-1], rows[1:]
    inside = (ops.txn[before] == ops.txn[after]) & (ops.offset[after] <= ops.offset[before])
    return Found(10, after[inside], before[inside], ops.offset[after[inside]])


def append_inversions(view: View) -> Found:
    """Rule 13, on the log end: an acknowledgement bounds it from below, a send with a known offset from above."""
    ops, acked = view.ops, view.acked
    lower = Bounds(ops.returned[acked], ops.offset[acked] + 1, acked)
    return Found(13, *sweep(lower, send_bounds(view)))


def send_bounds(view: View) -> Bounds:
    """When a record was sent, the log had not yet come to its offset."""
    ops, sends, offset = view.ops, view.sends, view.send_offset
    known = (ops.status[sends] != Status.FAIL) & (offset != UNKNOWN)
    return Bounds(ops.invoked[sends[known]], offset[known], sends[known])
