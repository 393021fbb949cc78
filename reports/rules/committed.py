"""What read_committed promises within one partition: rules 17 to 20 and 29.

EndTxn answers when the decision is logged, and markers follow later; so nothing is due at its answer, but nothing may
be seen before it is asked for (audit.md, "What a correct Kafka does").
"""

import numpy as np

from highwater.reports.columns import UNKNOWN, Fate, Ints, Isolation, Kind, Status
from highwater.reports.rules.findings import NOBODY, Bounds, Found, first_of_each, none_of, sweep
from highwater.reports.rules.view import View


def aborted_reads(view: View) -> Found:
    """Rule 17: the value of a send that was refused or taken back, in a successful read_committed read."""
    ops = view.ops
    if not view.told_txn and not np.any(ops.status[view.sends] == Status.FAIL):
        return none_of(17)
    bad = np.flatnonzero(view.committed_read & (view.writer != NOBODY) & view.gone[view.writer])
    bad = bad[first_of_each(view.writer[bad])]
    return Found(17, view.record_row[bad], view.writer[bad], ops.record_offset[bad])


def own_reads(view: View) -> Found:
    """Rule 18: a transaction read what it wrote itself, before it can have been committed."""
    ops, row, writer = view.ops, view.record_row, view.writer
    if not view.told_txn:
        return none_of(18)
    own = view.committed_read & (writer != NOBODY) & (ops.txn[row] != UNKNOWN) & (ops.txn[row] == ops.txn[writer])
    own = np.flatnonzero(own)
    own = own[first_of_each(writer[own])]
    return Found(18, row[own], writer[own], ops.record_offset[own])


def early_reads(view: View) -> Found:
    """Rule 19: a reader had a transaction's record, or passed its first one, before its commit was asked for."""
    ops = view.ops
    if not view.told_txn:
        return none_of(19)
    early_send, early_read = view.early
    send, read = _passed(view)
    other = ~np.isin(ops.txn[send], ops.txn[early_send])
    send, read = np.concatenate([early_send, send[other]]), np.concatenate([early_read, read[other]])
    first = first_of_each(ops.txn[send])
    offsets = view.send_offset[np.searchsorted(view.sends, send[first])]
    return Found(19, read[first], send[first], offsets)


def _passed(view: View) -> tuple[Ints, Ints]:
    """First records of transactions, and who passed them. What a transaction read of its own is rule 18."""
    txn, lower, upper = view.ops.txn, _released(view), _begun(view)
    send, read, _ = sweep(lower, upper)
    own = txn[send] == txn[read]
    again = [sweep(lower.where(txn[lower.row] != txn[each]), upper.where(upper.row == each)) for each in send[own]]
    return (
        np.concatenate([send[~own], *(found[0] for found in again)]),
        np.concatenate([read[~own], *(found[1] for found in again)]),
    )


def _begun(view: View) -> Bounds:
    """While a transaction is open the last stable offset is at most its first record's.

    It is open when its commit is asked for, and when it sends what is acknowledged, whatever becomes of it.
    """
    ops, sends = view.ops, view.sends
    known = (ops.txn[sends] != UNKNOWN) & (view.send_offset != UNKNOWN)
    rows, offset = sends[known], view.send_offset[known]
    order = np.lexsort((offset, ops.txn[rows]))
    rows, offset = rows[order], offset[order]
    first = first_of_each(ops.txn[rows])
    open_at = np.where(ops.fate[rows] == Fate.COMMITTED, ops.ended[rows], UNKNOWN)
    open_at = np.maximum(open_at, np.where(ops.status[rows] == Status.OK, _appended_after(view)[known][order], UNKNOWN))
    latest = np.maximum.reduceat(open_at, first) if len(first) else first
    return Bounds(latest, offset[first], rows[first])


def _appended_after(view: View) -> Ints:
    """Of each row in `sends` a moment before which it cannot have been appended.

    A log that loses nothing grows at its end only, so whatever stands below was asked for by then.
    """
    ops, sends, offset = view.ops, view.sends, view.send_offset
    after: Ints = ops.invoked[sends].copy()
    if view.promise.unclean_election or not view.promise.acks_all:
        return after
    there = np.flatnonzero((offset != UNKNOWN) & (ops.status[sends] != Status.FAIL))
    there = there[np.argsort(offset[there], kind="stable")]
    last_of_offset = np.searchsorted(offset[there], offset[there], "right") - 1
    after[there] = np.maximum.accumulate(after[there])[last_of_offset]
    return after


def _released(view: View) -> Bounds:
    """What read_committed reads, and reported last stable offsets, prove to be decided."""
    ops, reading = view.ops, view.reading
    committed = ops.isolation[reading.row] == Isolation.READ_COMMITTED
    rows, end = reading.row[committed], reading.last[committed] + 1
    told = np.flatnonzero((ops.kind != Kind.SEND) & (ops.status == Status.OK) & (ops.last_stable_offset != UNKNOWN))
    rows, end = np.concatenate([rows, told]), np.concatenate([end, ops.last_stable_offset[told]])
    return Bounds(ops.returned[rows], end, rows)


def passed_over(view: View) -> Found:
    """Candidates of rule 20: records that read_committed reads passed over. Torn, if another of the same was seen."""
    ops, sends = view.ops, view.sends
    if not view.told_txn:
        return none_of(20)
    rows = sends[
        (ops.txn[sends] != UNKNOWN) & (ops.fate[sends] != Fate.ABORTED) & ~view.in_committed_read[sends]
        & (view.send_offset >= max(view.log_start, 0))
    ]  # fmt: skip
    offset = view.send_offset[np.searchsorted(sends, rows)]
    covered, by = view.cover_of(ops.isolation[view.covered[0]] == Isolation.READ_COMMITTED).look_up(offset)
    return Found(20, rows[covered], by[covered], offset[covered])


def visible(view: View, txns: Ints) -> tuple[Ints, Ints]:
    """Of these transactions, those of which a record was read here, and the first such read's row."""
    chosen = np.flatnonzero(view.committed_read & (view.writer != NOBODY))
    chosen = chosen[np.isin(view.ops.txn[view.writer[chosen]], txns)]
    txn = view.ops.txn[view.writer[chosen]]
    first = first_of_each(txn)
    return txn[first], view.record_row[chosen[first]]


def hanging_transactions(view: View) -> Found:
    """Rule 29: the last stable offset stands longer than any transaction may last, while the end moves.

    Time is counted only from the last fault on, since nobody may be there to abort it before.
    """
    ops, limit = view.ops, view.promise.transaction_timeout_ms
    if not ops.tells("last_stable_offset") or limit < 0:
        return none_of(29)
    told = (ops.status == Status.OK) & (ops.last_stable_offset != UNKNOWN) & (ops.high_watermark != UNKNOWN)
    rows = np.flatnonzero(told & (ops.last_stable_offset < ops.high_watermark))
    rows = rows[np.lexsort((ops.returned[rows], ops.last_stable_offset[rows]))]
    stable, at, end = ops.last_stable_offset[rows], ops.at_ms[rows], ops.high_watermark[rows]
    if not len(rows):
        return none_of(29)
    first = np.searchsorted(stable, stable, "left")
    stands = np.minimum(at - at[first], ops.calm_ms[rows])
    hanging = (stands > limit) & (end > end[first])
    latest = np.flatnonzero(hanging)[::-1]
    latest = latest[first_of_each(stable[latest])]
    return Found(29, rows[latest], rows[first[latest]], stable[latest])
