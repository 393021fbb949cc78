"""TxnOffsetCommit (key 28): offsets that count when the transaction commits, and only then.

Fenced like a commit of the group's member (KIP-447): a zombie whose partitions went to another may not commit them.
"""

from reference.events import Request
from reference.groups.coordinator import GroupCoordinator
from reference.groups.group import CommittedOffset
from reference.groups.offsets import OffsetsCoordinator
from reference.groups.store import OFFSETS_TOPIC, GroupStore
from reference.transactions.verification import TransactionVerifier
from reference.wire.errors import ErrorCode
from reference.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

ADDS_GROUP_SINCE = 5
# What the verifier says, as a group's coordinator says it.
ERROR_OF_VERIFYING = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}


class TransactionalOffsets:
    def __init__(
        self,
        store: GroupStore,
        coordinator: GroupCoordinator,
        offsets: OffsetsCoordinator,
        verifier: TransactionVerifier,
    ) -> None:
        self._store, self._coordinator, self._offsets, self._verifier = store, coordinator, offsets, verifier

    async def commit(self, request: Request) -> TxnOffsetCommitResponse:
        body: TxnOffsetCommitRequest = request.body
        error = self._coordinator.check_transactional_commit(
            body.group_id, body.member_id, body.group_instance_id, body.generation_id
        )
        if error is ErrorCode.NONE:
            error = await self._verified(body, request.api_version)
        good: dict[tuple[str, int], CommittedOffset] = {}
        errors: dict[tuple[str, int], ErrorCode] = {}
        for topic in body.topics:
            for asked in topic.partitions:
                key, metadata = (topic.name, asked.partition_index), asked.committed_metadata or ""
                errors[key] = self._offsets.check_partition(key, metadata) if error is ErrorCode.NONE else error
                if errors[key] is ErrorCode.NONE:
                    good[key] = CommittedOffset(asked.committed_offset, asked.committed_leader_epoch, metadata)
        if good:
            producer = (body.producer_id, body.producer_epoch)
            errors |= dict.fromkeys(good, await self._store.save_transactional_offsets(body.group_id, producer, good))
        return TxnOffsetCommitResponse(
            topics=tuple(
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        TxnOffsetCommitResponsePartition(
                            partition_index=asked.partition_index, error_code=errors[topic.name, asked.partition_index]
                        )
                        for asked in topic.partitions
                    ),
                )
                for topic in body.topics
            )
        )

    async def _verified(self, body: TxnOffsetCommitRequest, version: int) -> ErrorCode:
        ended = self._store.last_marker(body.group_id, body.producer_id)
        error = await self._verifier.verify(
            body.transactional_id,
            body.producer_id,
            body.producer_epoch,
            (OFFSETS_TOPIC, self._store.partition_for(body.group_id)),
            add=version >= ADDS_GROUP_SINCE,
        )
        if error is ErrorCode.NONE and self._store.last_marker(body.group_id, body.producer_id) != ended:
            error = ErrorCode.TRANSACTION_ABORTABLE  # it ended while we asked
        if error is ErrorCode.TRANSACTION_ABORTABLE and version < ADDS_GROUP_SINCE:
            return ErrorCode.INVALID_TXN_STATE
        return ERROR_OF_VERIFYING.get(error, error)
