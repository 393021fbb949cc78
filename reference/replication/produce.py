"""Serve Produce (key 0), v0-12: validate one record batch per partition, append it, and wait as `acks` requires."""

from collections.abc import Callable
from contextlib import suppress

from highwater.reference.configuration.topics import TopicConfigs
from highwater.reference.context import Context
from highwater.reference.effects import Request
from highwater.reference.procedures import Pending, spawn
from highwater.reference.replication.partition import Partition, Role
from highwater.reference.replication.replica_manager import ReplicaManager
from highwater.reference.replication.validation import BatchValidator, RefusedBatchError
from highwater.reference.topics import INTERNAL_TOPICS
from highwater.reference.transactions.tracing import trace_record
from highwater.reference.wire.errors import ErrorCode, WireError
from highwater.reference.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from highwater.reference.wire.records import MAGIC, BatchHeader, batch_headers, with_append_time

ACKS = {0, 1, -1}
ADMIN_CLIENT_ID = "__admin_client"
"""The only client that Apache Kafka lets write to internal topics (AdminUtils.ADMIN_CLIENT_ID)."""
WITHOUT_LOG_START = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INVALID_REQUIRED_ACKS,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
}  # fmt: skip
"""Errors of Produce without log_start_offset (ReplicaManager.appendToLocalLog)."""
ABORTABLE_SINCE = 11
ADDS_PARTITIONS_SINCE = 12
Verify = Callable[..., Pending[ErrorCode]]
"""`TransactionVerifier.verify`."""


class ProduceHandler:
    def __init__(self, context: Context, replicas: ReplicaManager, configs: TopicConfigs, verify: Verify) -> None:
        self._context, self._replicas, self._configs, self._verify = context, replicas, configs, verify
        self._validator = BatchValidator(context, configs)

    async def produce(self, request: Request) -> ProduceResponse:
        """Append to every partition independently; the response waits for the slowest one."""
        body: ProduceRequest = request.body
        # Of a partition that the request has twice the last batch counts, and there is one answer.
        batches: dict[str, dict[int, PartitionProduceData]] = {}
        for topic in body.topic_data:
            for data in topic.partition_data:
                batches.setdefault(topic.name, {})[data.index] = data
        every = [data for partitions in batches.values() for data in partitions.values()]
        is_unnamed = body.transactional_id is None and any(map(_is_transactional, every))
        answers = [
            (
                name,
                [self._start_partition(name, data, request, is_unnamed=is_unnamed) for data in partitions.values()],
            )
            for name, partitions in batches.items()
        ]
        responses = []
        for name, partitions in answers:
            parts = [await pending for pending in partitions]
            responses.append(TopicProduceResponse(name=name, partition_responses=tuple(parts)))
        return ProduceResponse(responses=tuple(responses))

    def _start_partition(
        self, topic: str, data: PartitionProduceData, request: Request, *, is_unnamed: bool
    ) -> Pending[PartitionProduceResponse]:
        answer: Pending[PartitionProduceResponse] = Pending()

        async def run() -> None:
            try:
                if is_unnamed:  # all of the request is refused (KafkaApis.handleProduceRequest)
                    raise RefusedBatchError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                if topic in INTERNAL_TOPICS and request.client_id != ADMIN_CLIENT_ID:
                    raise RefusedBatchError(ErrorCode.INVALID_TOPIC_EXCEPTION, "clients may not write to this topic")
                answer.resolve(await self._produce_one(topic, data, request.body, request.api_version))
            except RefusedBatchError as refused:
                self._context.meters.mark("FailedProduceRequestsPerSec")
                answer.resolve(
                    PartitionProduceResponse(
                        index=data.index,
                        error_code=refused.error,
                        base_offset=-1,
                        log_append_time_ms=-1,
                        log_start_offset=self._log_start_offset(topic, data.index, refused.error),
                        error_message=str(refused) or None,
                        record_errors=tuple(
                            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                            for index, message in sorted(refused.records.items())
                        ),
                    )
                )

        spawn(run())
        return answer

    def _log_start_offset(self, topic: str, number: int, error: ErrorCode) -> int:
        """Return the log start offset for a response with an error, -1 where Apache Kafka does not return it."""
        partition = self._replicas.partitions.get((topic, number))
        return -1 if partition is None or error in WITHOUT_LOG_START else partition.log.log_start_offset

    async def _produce_one(
        self, topic: str, data: PartitionProduceData, body: ProduceRequest, version: int
    ) -> PartitionProduceResponse:
        """Append the batch of one partition. Raises RefusedBatchError if nothing was appended.

        If the replication failed, the response has an error code and the offset of what was appended.
        """
        partition = self._leader(topic, data.index, body.acks)
        batch, header = self._validator.validate(topic, bytes(data.records or b""), version)
        append_time = -1
        repeated = partition.log.producers.duplicate(header, self._context.guards)
        if repeated is None and header.is_transactional:
            await self._verify_transaction(partition, header, body.transactional_id, version)
            # The same batch may have waited on another connection.
            repeated = partition.log.producers.duplicate(header, self._context.guards)
        if repeated is not None:
            append_time = repeated.timestamp  # also with CreateTime, as in Apache Kafka
            base_offset, end_offset = repeated.base_offset, repeated.last_offset + 1
        else:
            base_offset, append_time = self._append(partition, batch, header, body.acks, version)
            end_offset = partition.log.log_end_offset
        error = ErrorCode.NONE
        if body.acks == -1:
            error = await partition.committed(end_offset, body.timeout_ms)
            if error is not ErrorCode.NONE:
                self._context.meters.mark("FailedProduceRequestsPerSec")
            elif repeated is None and header.is_transactional:
                trace_record(self._context, topic, data.index, header)
        return PartitionProduceResponse(
            index=data.index,
            error_code=error,
            base_offset=base_offset,
            log_append_time_ms=append_time,
            log_start_offset=partition.log.log_start_offset,
        )

    def _leader(self, topic: str, number: int, acks: int) -> Partition:
        partition = self._replicas.partitions.get((topic, number))
        is_leader = partition is not None and partition.role is Role.LEADER
        error = ErrorCode.NONE if is_leader else self._replicas.not_leader(topic, number)
        if acks not in ACKS and error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            error = ErrorCode.INVALID_REQUIRED_ACKS
        if partition is None or error is not ErrorCode.NONE:
            raise RefusedBatchError(error)
        too_few = not partition.has_min_isr(partition.isr) and self._context.guards.append_needs_min_isr
        if acks == -1 and too_few:
            raise RefusedBatchError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return partition

    async def _verify_transaction(
        self, partition: Partition, header: BatchHeader, transactional_id: str | None, version: int
    ) -> None:
        """Verify with the coordinator that the partition is in the transaction (KIP-890), or raise RefusedBatchError.

        From v12 on, the first batch adds the partition to the transaction.
        """
        assert transactional_id is not None, "a request with such a batch and no id is refused as a whole"
        producers, guards = partition.log.producers, self._context.guards
        if producers.has_open_transaction(header) or not guards.verify_before_append:
            return
        ended = producers.last_marker(header.producer_id)
        adds = version >= ADDS_PARTITIONS_SINCE
        error = await self._verify(
            transactional_id,
            header.producer_id,
            header.producer_epoch,
            (partition.topic, partition.partition),
            add=adds,
        )
        # With an epoch for each transaction, a marker that arrives meanwhile is that of the transaction before, and
        # `check` refuses the epoch of a transaction that has ended.
        ended_meanwhile = not adds and producers.last_marker(header.producer_id) != ended
        if error is ErrorCode.NONE and ended_meanwhile and guards.refuse_ended_meanwhile:
            error = ErrorCode.TRANSACTION_ABORTABLE  # the transaction ended during the verification
        if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
            error = ErrorCode.INVALID_TXN_STATE
        if error is ErrorCode.PRODUCER_FENCED:
            error = ErrorCode.INVALID_PRODUCER_EPOCH  # Produce returns this code in every version
        if error is not ErrorCode.NONE:
            raise RefusedBatchError(error, "the partition is not known to be in the transaction")

    def _append(
        self, partition: Partition, batch: bytes, header: BatchHeader, acks: int, version: int
    ) -> tuple[int, int]:
        """Append; return the base offset, and the append time in ms (-1 unless LogAppendTime)."""
        self._leader(partition.topic, partition.partition, acks)  # may have changed during the verification
        if header.producer_id >= 0:
            from_zero = header.is_transactional and version >= ADDS_PARTITIONS_SINCE
            error = partition.log.producers.check(header, self._context.guards, from_zero=from_zero)
            if error is not ErrorCode.NONE:
                raise RefusedBatchError(error)
        append_time = -1
        if self._configs.value(partition.topic, "message.timestamp.type") == "LogAppendTime":
            append_time = self._context.now.wall_ms
            batch = with_append_time(batch, append_time)
            ((_, header),) = batch_headers(batch)
        base_offset = partition.append(batch, header)
        if partition.offline:
            raise RefusedBatchError(ErrorCode.KAFKA_STORAGE_ERROR)
        self._context.meters.mark("MessagesInPerSec", header.record_count)
        self._context.meters.mark("BytesInPerSec", len(batch))
        return base_offset, append_time


def _is_transactional(data: PartitionProduceData) -> bool:
    """Return whether one of the batches is transactional, as far as they can be read."""
    with suppress(WireError):
        headers = batch_headers(data.records or b"")
        return any(header.magic == MAGIC and header.is_transactional for _, header in headers)
    return False
