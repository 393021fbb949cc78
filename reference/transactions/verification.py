"""Before a leader appends the first batch of a transaction it asks the coordinator: is the partition in it (KIP-890)?

Otherwise a batch that arrives after its transaction ended would open one that nobody ends.  Under transaction
version 2 the question is a request: the coordinator adds the partition, and producers need not.
"""

from typing import Any

from reference.context import Context
from reference.events import Request
from reference.metadata_cache import MetadataCache
from reference.peers import Peers
from reference.procedures import Pending, begun, spawn
from reference.transactions.partitions import ABORTABLE_SINCE, AddPartitionsHandler
from reference.transactions.store import TRANSACTION_TOPIC, TransactionStore
from reference.transactions.transaction import TopicPartition
from reference.wire.errors import ErrorCode
from reference.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

# The coordinator could not be asked: the producer is to try again, with an error that every version retries.
UNREACHABLE = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
Asked = tuple[TopicPartition, int, int]


class TransactionVerifier:
    def __init__(
        self,
        context: Context,
        cache: MetadataCache,
        peers: Peers,
        store: TransactionStore,
        handler: AddPartitionsHandler,
    ) -> None:
        self._context, self._cache, self._peers = context, cache, peers
        self._store, self._handler = store, handler
        self._waiting: dict[Asked, list[Pending[ErrorCode]]] = {}

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int, partition: TopicPartition, *, add: bool
    ) -> Pending[ErrorCode]:
        """NONE, TRANSACTION_ABORTABLE when the partition is not in the transaction, or what else speaks against it.

        Batches of one producer that arrive meanwhile wait behind the first, so that they stay in order.
        """
        asked = (partition, producer_id, epoch)
        pending: Pending[ErrorCode] = Pending()
        waiting = self._waiting.setdefault(asked, [])
        waiting.append(pending)
        if len(waiting) == 1:
            spawn(self._verify(asked, transactional_id, add=add))
        return pending

    async def _verify(self, asked: Asked, transactional_id: str, *, add: bool) -> None:
        partition, producer_id, epoch = asked
        error = await self._ask(transactional_id, producer_id, epoch, partition, add=add)
        for pending in self._waiting.pop(asked):
            pending.resolve(error)

    async def _ask(
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
        return ErrorCode.NOT_ENOUGH_REPLICAS if error in UNREACHABLE else error

    def _call(self, leader: int, body: AddPartitionsToTxnRequest) -> Pending[Any]:
        if leader == self._context.broker_id:
            return begun(self._handler.add_partitions, Request(0, ABORTABLE_SINCE, body))
        return self._peers.call(leader, body, ABORTABLE_SINCE)
