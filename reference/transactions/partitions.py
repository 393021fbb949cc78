"""Serve AddPartitionsToTxn (key 24): versions 0 to 3 come from producers, later ones from brokers, in batches."""

from collections.abc import Iterable

from highwater.reference.effects import Request
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.transactions.coordinator import CLASSIC_VERSION, TransactionCoordinator, error_for_version
from highwater.reference.transactions.transaction import EPOCH_BUMP_VERSION, TopicPartition
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

BATCHED_SINCE = 4
ABORTABLE_SINCE = 5


class AddPartitionsHandler:
    """Adds partitions to transactions, or verifies that they were added (KIP-98, KIP-890)."""

    def __init__(self, cache: MetadataCache, coordinator: TransactionCoordinator) -> None:
        self._cache, self._coordinator = cache, coordinator

    async def add_partitions(self, request: Request) -> AddPartitionsToTxnResponse:
        """Return one error code for each partition."""
        body: AddPartitionsToTxnRequest = request.body
        if request.api_version < BATCHED_SINCE:
            errors = await self._add_all(body, request.api_version)
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(body.v3_and_below_topics, errors))
        results = []
        for transaction in body.transactions:
            errors = await self._add_or_verify(transaction, request.api_version)
            results.append(
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id, topic_results=_results(transaction.topics, errors)
                )
            )
        return AddPartitionsToTxnResponse(results_by_transaction=tuple(results))

    async def _add_all(self, body: AddPartitionsToTxnRequest, version: int) -> dict[TopicPartition, ErrorCode]:
        """Add all partitions, or none of them if one is unknown."""
        partitions = _partitions(body.v3_and_below_topics)
        if errors := self._errors_of_unknown(partitions):
            return errors
        error = await self._coordinator.add(
            body.v3_and_below_transactional_id,
            body.v3_and_below_producer_id,
            body.v3_and_below_producer_epoch,
            partitions,
            CLASSIC_VERSION,
        )
        return dict.fromkeys(partitions, error_for_version(error, 24, version))

    def _errors_of_unknown(self, partitions: list[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Return an error for each partition if one of them is unknown, else nothing."""
        unknown = [partition for partition in partitions if not self._cache.knows(*partition)]
        others = dict.fromkeys(partitions if unknown else (), ErrorCode.OPERATION_NOT_ATTEMPTED)
        return others | dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def _add_or_verify(
        self, transaction: AddPartitionsToTxnTransaction, version: int
    ) -> dict[TopicPartition, ErrorCode]:
        partitions = _partitions(transaction.topics)
        if errors := self._errors_of_unknown(partitions):
            return errors
        producer = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
        if not transaction.verify_only:
            error = await self._coordinator.add(*producer, partitions, EPOCH_BUMP_VERSION)
            return dict.fromkeys(partitions, error)
        error, included = self._coordinator.verify(*producer)
        if error is not ErrorCode.NONE:
            return dict.fromkeys(partitions, error)
        missing = ErrorCode.TRANSACTION_ABORTABLE if version >= ABORTABLE_SINCE else ErrorCode.INVALID_TXN_STATE
        return {partition: ErrorCode.NONE if partition in included else missing for partition in partitions}


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [(topic.name, number) for topic in topics for number in topic.partitions]


def _results(
    topics: Iterable[AddPartitionsToTxnTopic], errors: dict[TopicPartition, ErrorCode]
) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    return tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=errors[topic.name, number]
                )
                for number in topic.partitions
            ),
        )
        for topic in topics
    )
