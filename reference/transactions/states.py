"""The states of a transaction, and every step between them. Whoever moves a transaction moves it along this table."""

from enum import StrEnum
from typing import Final

from reference.state_table import StateTable


class TransactionState(StrEnum):
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


S = TransactionState

STEPS: Final = {
    (S.EMPTY, S.EMPTY): "InitProducerId",
    (S.COMPLETE_COMMIT, S.EMPTY): "InitProducerId",
    (S.COMPLETE_ABORT, S.EMPTY): "InitProducerId",
    (S.EMPTY, S.ONGOING): "first partition",
    (S.COMPLETE_COMMIT, S.ONGOING): "first partition",
    (S.COMPLETE_ABORT, S.ONGOING): "first partition",
    (S.ONGOING, S.ONGOING): "another partition",
    (S.ONGOING, S.PREPARE_COMMIT): "EndTxn commits",
    (S.ONGOING, S.PREPARE_ABORT): "EndTxn aborts",
    (S.ONGOING, S.PREPARE_EPOCH_FENCE): "InitProducerId or the timeout, epoch bumped",
    (S.PREPARE_EPOCH_FENCE, S.PREPARE_ABORT): "aborted by the coordinator",
    (S.EMPTY, S.PREPARE_ABORT): "EndTxn 5 aborts nothing",
    (S.COMPLETE_COMMIT, S.PREPARE_ABORT): "EndTxn 5 aborts nothing",
    (S.COMPLETE_ABORT, S.PREPARE_ABORT): "EndTxn 5 aborts nothing",
    (S.PREPARE_COMMIT, S.COMPLETE_COMMIT): "every marker written",
    (S.PREPARE_ABORT, S.COMPLETE_ABORT): "every marker written",
    (S.EMPTY, S.DEAD): "transactional id expired",
    (S.COMPLETE_COMMIT, S.DEAD): "transactional id expired",
    (S.COMPLETE_ABORT, S.DEAD): "transactional id expired",
}

TABLE: Final = StateTable("transaction", "KIP-98, KIP-360, KIP-890", S.EMPTY, STEPS)

PREPARED: Final = frozenset({S.PREPARE_COMMIT, S.PREPARE_ABORT})
IDLE: Final = frozenset({S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT})

# TransactionStatus of `__transaction_state`; the last is never written.
IDS: Final = {state: number for number, state in enumerate(TransactionState)}
BY_ID: Final = {number: state for state, number in IDS.items()}
