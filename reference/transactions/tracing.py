"""Trace the steps of transactions for `spec/transactions/TraceTransactions.tla`, one entity for each producer id."""

from typing import Final

from highwater.reference.context import Context
from highwater.reference.transactions.states import TransactionState
from highwater.reference.transactions.transaction import Transaction
from highwater.reference.wire.records import BatchHeader

LOADED: Final = "LoadTransaction"
# The action by the state that the coordinator has stored.
ACTIONS: Final = {
    TransactionState.EMPTY: "InitProducerId",
    TransactionState.ONGOING: "AddPartitions",
    TransactionState.PREPARE_COMMIT: "DecideTransaction",
    TransactionState.PREPARE_ABORT: "DecideTransaction",
    TransactionState.COMPLETE_COMMIT: "CompleteTransaction",
    TransactionState.COMPLETE_ABORT: "CompleteTransaction",
}


def trace_transition(context: Context, stored: Transaction, action: str = "") -> None:
    """Trace a transition that is in the coordinator's log, or with `LOADED` what a new coordinator has found there."""
    if context.out.tracing:
        context.trace(
            _entity(stored.producer_id),
            action or ACTIONS[stored.state],
            state=str(stored.state),
            epoch=stored.producer_epoch,
            partitions=sorted(_name(*partition) for partition in stored.partitions),
            version=stored.client_version,
        )


def trace_record(context: Context, topic: str, number: int, header: BatchHeader) -> None:
    """Trace a batch of a transaction that is committed in a partition."""
    if context.out.tracing:
        choices = {"partition": _name(topic, number)}
        context.trace(_entity(header.producer_id), "AppendTransactional", choices=choices, epoch=header.producer_epoch)


def trace_marker(
    context: Context, topic: str, number: int, header: BatchHeader, *, committed: bool, coordinator_epoch: int
) -> None:
    """Trace a marker that is committed in a partition."""
    if context.out.tracing:
        choices = {"partition": _name(topic, number), "outcome": "commit" if committed else "abort"}
        context.trace(
            _entity(header.producer_id),
            "WriteMarker",
            choices=choices,
            epoch=header.producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )


def _entity(producer_id: int) -> str:
    return f"producer {producer_id}"


def _name(topic: str, number: int) -> str:
    return f"{topic}-{number}"
