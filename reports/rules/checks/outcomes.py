"""Find transactions of unknown outcome that reads prove to have committed.

A client whose commit timed out records an unknown outcome, but a read_committed reader receives records of committed
transactions only, and a coordinator returns only offsets that were committed. Anomalies prove nothing: reads of the
transaction itself (rule precommitted-read), and what was received before the commit was requested (rule early-read).
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from highwater.reports.columns import NEVER, NOTHING, UNKNOWN, Fate, Ints, Isolation, Status
from highwater.reports.rules.division import PartitionMap, SpanTask
from highwater.reports.rules.findings import NO_ROW, distinct
from highwater.reports.rules.view import View
from highwater.reports.tables import Step, Tables


def shown_commits(map_partitions: PartitionMap, tables: Tables) -> tuple[int, ...]:
    """Return the numbers of the transactions of unknown outcome that a read proves to have committed, increasing."""
    fate, ended = tables.transactions.columns()
    unknown = np.flatnonzero((fate[:-1] == UNKNOWN) & (ended[:-1] < NEVER))
    if not len(unknown):
        return ()
    by_reads = [txns for _, txns in map_partitions(SpanTask(partial(received, unknown), _all_of))]
    by_fetches = list(fetched_alone({*unknown.tolist()}, tables))
    return tuple(distinct(np.concatenate([*by_reads, np.array(by_fetches, np.int64)])).tolist())


def received(txns: Ints, _: str, view: View) -> Ints:
    """Return those of `txns` of which a read_committed reader received a record after the commit was requested."""
    if not view.has_transactions:
        return NOTHING
    ops, row, writer = view.ops, view.record_row, view.writer
    shown = view.committed_receipt & (ops.isolation[row] == Isolation.READ_COMMITTED) & (writer != NO_ROW)
    shown &= np.isin(ops.txn[writer], txns) & (ops.txn[row] != ops.txn[writer])
    shown &= (ops.returned[row] > ops.ended[writer]) & ~view.perhaps_of_another_transaction
    return distinct(ops.txn[writer[shown]])


def _all_of(parts: list[Ints]) -> Ints:
    return np.concatenate([NOTHING, *parts])


def fetched_alone(txns: set[int], tables: Tables) -> Iterator[int]:
    """Yield those of `txns` whose offset was fetched, which nothing else wrote, after the commit was requested."""
    fate, ended = tables.transactions.fate, tables.transactions.columns()[1]
    writers: dict[tuple[str, str, int], set[int]] = {}
    for step in tables.of("commit", "send_offsets"):
        if step.status is not Status.FAIL and (step.f == "commit" or fate[step.txn] != Fate.ABORTED):
            writers.setdefault(_place(step), set()).add(step.txn)  # UNKNOWN for a commit outside a transaction
    fetched: dict[tuple[str, str, int], list[int]] = {}
    for step in tables.of("committed"):
        if step.status is Status.OK:
            fetched.setdefault(_place(step), []).append(step.returned)
    for place, (txn, *others) in writers.items():
        if txn in txns and not others and min(fetched.get(place, [UNKNOWN])) > ended[txn]:
            yield txn


def _place(step: Step) -> tuple[str, str, int]:
    return step.group, step.subject, step.number
