"""Serve DescribeProducers (key 61), DescribeTransactions (65) and ListTransactions (66) (KIP-664)."""

import re2

from highwater.reference.context import Context
from highwater.reference.effects import Request
from highwater.reference.replication.replica_manager import ReplicaManager
from highwater.reference.topics import is_legal_name
from highwater.reference.transactions.states import TransactionState as State
from highwater.reference.transactions.store import TransactionStore
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponse,
    PartitionResponse,
    ProducerState,
    TopicData,
    TopicResponse,
    TransactionState,
)

WITHOUT_LOG = re2.Options()
WITHOUT_LOG.log_errors = False


class DescribeHandler:
    """Read-only requests about producers and transactions."""

    def __init__(self, context: Context, replicas: ReplicaManager, store: TransactionStore) -> None:
        self._context, self._replicas, self._store = context, replicas, store

    async def producers(self, request: Request) -> DescribeProducersResponse:
        """Return the active producers of each partition of which this broker has a replica, leader or not.

        Apache Kafka: ReplicaManager.activeProducerState.
        """
        body: DescribeProducersRequest = request.body
        return DescribeProducersResponse(
            topics=tuple(
                TopicResponse(
                    name=topic.name,
                    partitions=tuple(self._partition(topic.name, number) for number in topic.partition_indexes),
                )
                for topic in body.topics
            )
        )

    def _partition(self, topic: str, number: int) -> PartitionResponse:
        if not is_legal_name(topic):
            return PartitionResponse(partition_index=number, error_code=ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = self._replicas.partitions.get((topic, number))
        if partition is None:
            known = self._replicas.partition_exists(topic, number)
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return PartitionResponse(partition_index=number, error_code=error)
        return PartitionResponse(
            partition_index=number,
            active_producers=tuple(
                ProducerState(
                    producer_id=producer_id,
                    producer_epoch=entry.epoch,
                    last_sequence=entry.last_sequence,
                    last_timestamp=entry.last_timestamp,
                    coordinator_epoch=entry.coordinator_epoch,
                    current_txn_start_offset=-1 if entry.transaction_start is None else entry.transaction_start,
                )
                for producer_id, entry in partition.log.producers.entries.items()
            ),
        )

    async def transactions(self, request: Request) -> DescribeTransactionsResponse:
        """Return the state of each transactional id."""
        body: DescribeTransactionsRequest = request.body
        return DescribeTransactionsResponse(
            transaction_states=tuple(self._transaction(name) for name in body.transactional_ids)
        )

    def _transaction(self, transactional_id: str) -> TransactionState:
        error = self._store.check(transactional_id)
        entry = self._store.entries.get(transactional_id)
        if error is ErrorCode.NONE and entry is None:
            error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        if error is not ErrorCode.NONE or entry is None:
            return TransactionState(error_code=error, transactional_id=transactional_id)
        current = entry.current
        return TransactionState(
            transactional_id=transactional_id,
            transaction_state=current.state,
            transaction_timeout_ms=current.timeout_ms,
            transaction_start_time_ms=current.started_ms,
            producer_id=current.producer_id,
            producer_epoch=current.producer_epoch,
            topics=tuple(
                TopicData(topic=topic, partitions=tuple(numbers)) for topic, numbers in current.by_topic.items()
            ),
        )

    async def list(self, request: Request) -> ListTransactionsResponse:
        """Return the transactions that match every filter of the request.

        The pattern is one of RE2, as in Apache Kafka (KIP-1152): no pattern takes more than linear time.
        """
        body: ListTransactionsRequest = request.body
        error = self._store.coordinated.list_error()
        if error is not ErrorCode.NONE:
            return ListTransactionsResponse(error_code=error)
        try:
            pattern = re2.compile(body.transactional_id_pattern or "", WITHOUT_LOG)
        except re2.error:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        known = set(State)
        oldest_ms = self._context.now.wall_ms - body.duration_filter
        matching = [
            entry.current
            for entry in self._store.entries.values()
            if (not body.state_filters or entry.current.state in body.state_filters)
            and (not body.producer_id_filters or entry.current.producer_id in body.producer_id_filters)
            and (body.duration_filter < 0 or entry.current.started_ms < oldest_ms)
            and (not body.transactional_id_pattern or pattern.fullmatch(entry.current.transactional_id))
        ]
        return ListTransactionsResponse(
            unknown_state_filters=tuple(state for state in body.state_filters if state not in known),
            transaction_states=tuple(
                ListedTransactionState(
                    transactional_id=transaction.transactional_id,
                    producer_id=transaction.producer_id,
                    transaction_state=transaction.state,
                )
                for transaction in matching
            ),
        )
