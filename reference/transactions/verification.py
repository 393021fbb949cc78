"""Verify with the coordinator that a partition is in the transaction before its first batch is appended (KIP-890).

Without this check a batch that arrives after its transaction ended would leave a transaction open forever.  Under
transaction version 2 the leader asks the coordinator to add the partition, so producers do not send the request.
"""

from typing import Any

from highwater.reference.context import Context
from highwater.reference.effects import Request
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.peers import Peers
from highwater.reference.procedures import Pending, spawn, start_procedure
from highwater.reference.replication.purgatory import Purgatory
from highwater.reference.transactions.partitions import ABORTABLE_SINCE, AddPartitionsHandler
from highwater.reference.transactions.store import TRANSACTION_TOPIC, TransactionStore
from highwater.reference.transactions.transaction import TopicPartition
from highwater.reference.wire.errors import COORDINATOR_UNAVAILABLE, ErrorCode
from highwater.reference.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

VerificationKey = tuple[TopicPartition, int, int]


class TransactionVerifier:
    """Sends AddPartitionsToTxn to coordinators (Apache Kafka: AddPartitionsToTxnManager)."""

    def __init__(
        self,
        context: Context,
        cache: MetadataCache,
        peers: Peers,
        purgatory: Purgatory,
        store: TransactionStore,
        handler: AddPartitionsHandler,
    ) -> None:
        self._context, self._cache, self._peers, self._purgatory = context, cache, peers, purgatory
        self._store, self._handler = store, handler
        self._waiting: dict[VerificationKey, list[Pending[ErrorCode]]] = {}

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int, partition: TopicPartition, *, add: bool
    ) -> Pending[ErrorCode]:
        """Return NONE, TRANSACTION_ABORTABLE if the partition is not in the transaction, or another error.

        Later batches of the same producer wait for the same result, so that they stay in order.
        """
        key = (partition, producer_id, epoch)
        pending: Pending[ErrorCode] = Pending()
        waiting = self._waiting.setdefault(key, [])
        waiting.append(pending)
        if len(waiting) == 1:
            spawn(self._verify(key, transactional_id, add=add))
        return pending

    async def _verify(self, key: VerificationKey, transactional_id: str, *, add: bool) -> None:
        partition, producer_id, epoch = key
        config = self._context.config
        deadline_ms = self._context.now.monotonic_ms + config.add_partitions_to_txn_retry_backoff_max_ms
        error = await self._request_verification(transactional_id, producer_id, epoch, partition, add=add)
        # The markers of the transaction before are still being written.  Without the wait, batches that the producer
        # has sent behind this one could be accepted before it is sent again.
        while add and error is ErrorCode.CONCURRENT_TRANSACTIONS and self._context.now.monotonic_ms < deadline_ms:
            await self._purgatory.sleep(config.add_partitions_to_txn_retry_backoff_ms)
            error = await self._request_verification(transactional_id, producer_id, epoch, partition, add=add)
        for pending in self._waiting.pop(key):
            pending.resolve(error)

    async def _request_verification(
        self, transactional_id: str, producer_id: int, epoch: int, partition: TopicPartition, *, add: bool
    ) -> ErrorCode:
        leader = self._cache.leader_of(TRANSACTION_TOPIC, self._store.partition_for(transactional_id))
        if leader < 0:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        topic = AddPartitionsToTxnTopic(name=partition[0], partitions=(partition[1],))
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=not add,
            topics=(topic,),
        )
        reply = await self._call(leader, AddPartitionsToTxnRequest(transactions=(transaction,)))
        if reply is None:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        result = reply.results_by_transaction[0].topic_results[0].results_by_partition[0]
        error = ErrorCode(result.partition_error_code)
        # Every client version retries NOT_ENOUGH_REPLICAS.
        return ErrorCode.NOT_ENOUGH_REPLICAS if error in COORDINATOR_UNAVAILABLE else error

    def _call(self, leader: int, body: AddPartitionsToTxnRequest) -> Pending[Any]:
        if leader == self._context.broker_id:
            return start_procedure(self._handler.add_partitions, Request(0, ABORTABLE_SINCE, body))
        return self._peers.call(leader, body, ABORTABLE_SINCE)
