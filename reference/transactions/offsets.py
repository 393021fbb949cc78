"""Serve TxnOffsetCommit (key 28): offsets that become visible when the transaction commits.

Member and generation are checked as for OffsetCommit (KIP-447): a zombie whose partitions were reassigned is fenced.
"""

from highwater.reference.context import Context
from highwater.reference.effects import Request
from highwater.reference.groups.group import CommittedOffset
from highwater.reference.groups.offsets import OffsetsCoordinator
from highwater.reference.groups.store import OFFSETS_TOPIC, GroupStore
from highwater.reference.transactions.verification import TransactionVerifier
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

ABORTABLE_SINCE, ADDS_GROUP_SINCE = 4, 5
# The errors of the verifier, as the error codes of a group coordinator.
VERIFIER_ERROR_MAPPING = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}


class TransactionalOffsets:
    """Handler for offset commits that are part of a transaction."""

    def __init__(
        self,
        context: Context,
        store: GroupStore,
        offsets: OffsetsCoordinator,
        verifier: TransactionVerifier,
    ) -> None:
        self._context = context
        self._store, self._offsets, self._verifier = store, offsets, verifier

    async def commit(self, request: Request) -> TxnOffsetCommitResponse:
        """Store the valid offsets in one batch; return an error code for each partition.

        Unknown partitions come first: a request that names no other begins no transaction. Then the producer is
        checked, which may add the group to the transaction, and after that the member (KafkaApis, CoordinatorRuntime).
        """
        body: TxnOffsetCommitRequest = request.body
        asked = {(topic.name, each.partition_index): each for topic in body.topics for each in topic.partitions}
        errors = {key: self._offsets.check_known(key) for key in asked}
        known = {key: part for key, part in asked.items() if errors[key] is ErrorCode.NONE}
        if known:
            error = await self._check(body, list(known), request.api_version)
            errors |= {key: self._offsets.check_metadata(part.committed_metadata or "") for key, part in known.items()}
            if error is not ErrorCode.NONE:
                errors |= dict.fromkeys(known, error)
        valid = {
            key: CommittedOffset(part.committed_offset, part.committed_leader_epoch, part.committed_metadata or "")
            for key, part in known.items()
            if errors[key] is ErrorCode.NONE
        }
        if valid:
            producer = (body.producer_id, body.producer_epoch)
            errors |= dict.fromkeys(valid, await self._store.save_transactional_offsets(body.group_id, producer, valid))
        return TxnOffsetCommitResponse(
            topics=tuple(
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        TxnOffsetCommitResponsePartition(
                            partition_index=partition.partition_index,
                            error_code=errors[topic.name, partition.partition_index],
                        )
                        for partition in topic.partitions
                    ),
                )
                for topic in body.topics
            )
        )

    async def _check(self, body: TxnOffsetCommitRequest, keys: list[tuple[str, int]], version: int) -> ErrorCode:
        error = self._store.check(body.group_id)
        if error is ErrorCode.NONE:
            error = await self._verify(body, version)
        if error is not ErrorCode.NONE:
            return error
        return self._offsets.check_member(
            body.group_id, body.member_id, body.group_instance_id, body.generation_id, keys, version=None
        )

    async def _verify(self, body: TxnOffsetCommitRequest, version: int) -> ErrorCode:
        """Verify as the leader of a partition does before it appends a batch (`ProduceHandler`)."""
        adds, guards = version >= ADDS_GROUP_SINCE, self._context.guards
        if not guards.verify_before_append:
            return ErrorCode.NONE
        marker_before = self._store.last_marker(body.group_id, body.producer_id)
        error = await self._verifier.verify(
            body.transactional_id,
            body.producer_id,
            body.producer_epoch,
            (OFFSETS_TOPIC, self._store.partition_for(body.group_id)),
            add=adds,
        )
        ended_meanwhile = not adds and self._store.last_marker(body.group_id, body.producer_id) != marker_before
        if error is ErrorCode.NONE and ended_meanwhile and guards.refuse_ended_meanwhile:
            error = ErrorCode.TRANSACTION_ABORTABLE  # the transaction ended during verification
        if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
            return ErrorCode.INVALID_TXN_STATE
        return VERIFIER_ERROR_MAPPING.get(error, error)
