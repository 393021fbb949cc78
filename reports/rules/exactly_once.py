"""Rule 22: one input offset processed by two committed transactions of one group."""

import numpy as np

from reports.columns import UNKNOWN, Fate, Kind, Status
from reports.rules.found import Found, first_of_each, none_of
from reports.rules.view import View


def double_processing(view: View) -> Found:
    """What a transaction polls it processes; two of one group that commit must not have polled the same record."""
    ops = view.ops
    if not view.told_txn:
        return none_of(22)
    done = (ops.kind == Kind.READ) & (ops.status == Status.OK) & (ops.fate == Fate.COMMITTED) & (ops.group != UNKNOWN)
    if not np.any(done):
        return none_of(22)
    told = np.flatnonzero(done[view.record_row])
    row = view.record_row[told]
    told = told[np.lexsort((ops.txn[row], ops.record_offset[told], ops.group[row]))]
    row, offset = view.record_row[told], ops.record_offset[told]
    twice = (offset[1:] == offset[:-1]) & (ops.group[row[1:]] == ops.group[row[:-1]])
    twice = np.flatnonzero(twice & (ops.txn[row[1:]] != ops.txn[row[:-1]]))
    twice = twice[first_of_each(row[twice + 1])]  # one finding for each poll
    return Found(22, row[twice + 1], row[twice], offset[twice])
