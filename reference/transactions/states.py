"""The states of a transaction and the allowed transitions; every state change is checked against this table."""

from enum import StrEnum
from typing import Final

from highwater.reference.state_table import StateTable


class TransactionState(StrEnum):
    """The states by name (Apache Kafka: TransactionState)."""

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
    (S.EMPTY, S.ONGOING): "the first partition is added",
    (S.COMPLETE_COMMIT, S.ONGOING): "the first partition is added",
    (S.COMPLETE_ABORT, S.ONGOING): "the first partition is added",
    (S.ONGOING, S.ONGOING): "another partition is added",
    (S.ONGOING, S.PREPARE_COMMIT): "EndTxn commits",
    (S.ONGOING, S.PREPARE_ABORT): "EndTxn aborts",
    (S.ONGOING, S.PREPARE_EPOCH_FENCE): "InitProducerId or the transaction timeout; the epoch is bumped",
    (S.PREPARE_EPOCH_FENCE, S.PREPARE_ABORT): "the coordinator aborts the transaction",
    (S.EMPTY, S.PREPARE_ABORT): "EndTxn 5 aborts without an open transaction",
    (S.COMPLETE_COMMIT, S.PREPARE_ABORT): "EndTxn 5 aborts without an open transaction",
    (S.COMPLETE_ABORT, S.PREPARE_ABORT): "EndTxn 5 aborts without an open transaction",
    (S.PREPARE_COMMIT, S.COMPLETE_COMMIT): "every marker is written",
    (S.PREPARE_ABORT, S.COMPLETE_ABORT): "every marker is written",
    (S.EMPTY, S.DEAD): "the transactional id expired",
    (S.COMPLETE_COMMIT, S.DEAD): "the transactional id expired",
    (S.COMPLETE_ABORT, S.DEAD): "the transactional id expired",
}

TABLE: Final = StateTable("transaction", "KIP-98, KIP-360, KIP-890", S.EMPTY, STEPS)

PREPARED: Final = frozenset({S.PREPARE_COMMIT, S.PREPARE_ABORT})
IDLE: Final = frozenset({S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT})

# The TransactionStatus numbers of `__transaction_state`; PrepareEpochFence exists in memory only.
IDS: Final = {state: number for number, state in enumerate(TransactionState)}
BY_ID: Final = {number: state for state, number in IDS.items()}
