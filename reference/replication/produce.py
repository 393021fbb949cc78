"""Serve Produce (key 0), v0-12: validate one record batch per partition, append it, and wait as `acks` requires.

v0-2 carry message sets; the broker converts them to record batches.
"""

from collections.abc import Callable, Sequence

from highwater.reference.configuration.topics import TopicConfigs
from highwater.reference.context import Context
from highwater.reference.effects import Request
from highwater.reference.procedures import Pending, spawn
from highwater.reference.replication.partition import Partition, Role
from highwater.reference.replication.replica_manager import ReplicaManager
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import ErrorCode, WireError
from highwater.reference.wire.log_entries import up_convert
from highwater.reference.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from highwater.reference.wire.records import (
    BatchHeader,
    batch_headers,
    crc_valid,
    decode_records,
    recompressed,
    with_append_time,
)

ACKS = {0, 1, -1}
BATCH_OVERHEAD = 12
KEEP_PRODUCER_CODEC = "producer"
CODECS = {"uncompressed": Compression.NONE, **{codec.name.lower(): codec for codec in Compression if codec}}
ZSTD_SINCE = 7
RECORD_BATCHES_SINCE = 3
ABORTABLE_SINCE = 11
ADDS_PARTITIONS_SINCE = 12
Verify = Callable[..., Pending[ErrorCode]]
"""`TransactionVerifier.verify`."""


class RefusedBatchError(Exception):
    """The batch is rejected with an error code; `records` are the indexes of the invalid records, if known."""

    def __init__(self, error: ErrorCode, message: str = "", records: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.error, self.records = error, records


class ProduceHandler:
    def __init__(self, context: Context, replicas: ReplicaManager, configs: TopicConfigs, verify: Verify) -> None:
        self._context, self._replicas, self._configs, self._verify = context, replicas, configs, verify

    async def produce(self, request: Request) -> ProduceResponse:
        """Append to every partition independently; the response waits for the slowest one."""
        body: ProduceRequest = request.body
        answers = [
            (
                topic.name,
                [self._start_partition(topic.name, data, body, request.api_version) for data in topic.partition_data],
            )
            for topic in body.topic_data
        ]
        responses = []
        for name, partitions in answers:
            parts = [await pending for pending in partitions]
            responses.append(TopicProduceResponse(name=name, partition_responses=tuple(parts)))
        return ProduceResponse(responses=tuple(responses))

    def _start_partition(
        self, topic: str, data: PartitionProduceData, body: ProduceRequest, version: int
    ) -> Pending[PartitionProduceResponse]:
        answer: Pending[PartitionProduceResponse] = Pending()

        async def run() -> None:
            try:
                answer.resolve(await self._produce_one(topic, data, body, version))
            except RefusedBatchError as refused:
                self._context.meters.mark("FailedProduceRequestsPerSec")
                answer.resolve(
                    PartitionProduceResponse(
                        index=data.index,
                        error_code=refused.error,
                        base_offset=-1,
                        log_append_time_ms=-1,
                        log_start_offset=-1,
                        error_message=str(refused) or None,
                        record_errors=tuple(BatchIndexAndErrorMessage(batch_index=index) for index in refused.records),
                    )
                )

        spawn(run())
        return answer

    async def _produce_one(
        self, topic: str, data: PartitionProduceData, body: ProduceRequest, version: int
    ) -> PartitionProduceResponse:
        """Append the batch of one partition. Raises RefusedBatchError, after the append only if replication failed."""
        partition = self._leader(topic, data.index, body.acks)
        batch, header = self._validate(topic, data.records, version)
        repeated = partition.log.producers.duplicate(header) if header.producer_id >= 0 else None
        append_time = -1
        if repeated is not None:
            base_offset, end_offset = repeated.base_offset, repeated.last_offset + 1
        else:
            if header.is_transactional:
                await self._verify_transaction(partition, header, body.transactional_id, version)
            base_offset, append_time = self._append(partition, batch, header, body.acks, version)
            end_offset = partition.log.log_end_offset
        if body.acks == -1:
            error = await partition.committed(end_offset, body.timeout_ms)
            if error is not ErrorCode.NONE:
                raise RefusedBatchError(error)
        return PartitionProduceResponse(
            index=data.index,
            error_code=ErrorCode.NONE,
            base_offset=base_offset,
            log_append_time_ms=append_time,
            log_start_offset=partition.log.log_start_offset,
        )

    def _leader(self, topic: str, number: int, acks: int) -> Partition:
        if acks not in ACKS:
            raise RefusedBatchError(ErrorCode.INVALID_REQUIRED_ACKS)
        partition = self._replicas.partitions.get((topic, number))
        if partition is None or partition.role is not Role.LEADER:
            raise RefusedBatchError(self._replicas.not_leader(topic, number))
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
        if transactional_id is None:
            raise RefusedBatchError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        producers = partition.log.producers
        if producers.has_open_transaction(header):
            return
        ended = producers.last_marker(header.producer_id)
        error = await self._verify(
            transactional_id,
            header.producer_id,
            header.producer_epoch,
            (partition.topic, partition.partition),
            add=version >= ADDS_PARTITIONS_SINCE,
        )
        if error is ErrorCode.NONE and producers.last_marker(header.producer_id) != ended:
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
            error = partition.log.producers.check(header, from_zero=from_zero)
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

    def _validate(self, topic: str, records: bytes | None, version: int) -> tuple[bytes, BatchHeader]:
        """Return the batch, checked to be one complete valid v2 batch (KIP-98, KAFKA-6554) within the topic's limits.

        Raises RefusedBatchError otherwise.
        """
        batch = bytes(records or b"")
        if version < RECORD_BATCHES_SINCE:
            batch = _up_converted(batch)
        header = _only_header(batch)
        if header.magic != 2:
            raise RefusedBatchError(ErrorCode.INVALID_RECORD, "only record batch format v2 is accepted")
        if header.batch_length + BATCH_OVERHEAD > self._configs.max_message_bytes(topic):
            raise RefusedBatchError(ErrorCode.MESSAGE_TOO_LARGE)
        if not crc_valid(batch, 0, header):
            raise RefusedBatchError(ErrorCode.CORRUPT_MESSAGE)
        if header.compression == Compression.ZSTD and version < ZSTD_SINCE:
            raise RefusedBatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        for invalid, message in (
            (header.is_control, "clients may not write control batches"),
            (header.base_offset != 0, "the base offset of a produced batch must be 0"),
            (header.record_count < 1, "a batch must contain at least one record"),
            (header.record_count != header.last_offset_delta + 1, "record count and last offset delta disagree"),
            (header.producer_id >= 0 and header.base_sequence < 0, "a batch with a producer id needs a base sequence"),
            (header.producer_id < 0 and header.is_transactional, "a transactional batch needs a producer id"),
        ):
            if invalid:
                raise RefusedBatchError(ErrorCode.INVALID_RECORD, message)
        self._check_records(topic, batch, header)
        codec = self._configs.value(topic, "compression.type")
        return (batch, header) if codec == KEEP_PRODUCER_CODEC else _recompress(batch, header, CODECS[codec])

    def _check_records(self, topic: str, batch: bytes, header: BatchHeader) -> None:
        """Check that every record of a compacted topic has a key (KIP-467); other topics are not decoded."""
        if "compact" not in self._configs.value(topic, "cleanup.policy"):
            return
        try:
            _, records = decode_records(batch)
        except WireError as error:
            raise RefusedBatchError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        if keyless := [index for index, record in enumerate(records) if record.key is None]:
            raise RefusedBatchError(ErrorCode.INVALID_RECORD, "a compacted topic needs a key in every record", keyless)


def _recompress(batch: bytes, header: BatchHeader, codec: Compression) -> tuple[bytes, BatchHeader]:
    """Return the batch compressed with the codec of the topic (`compression.type`)."""
    if header.compression is codec:
        return batch, header
    try:
        stored = recompressed(batch, codec)
    except WireError as error:
        raise RefusedBatchError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    return stored, _only_header(stored)


def _up_converted(message_set: bytes) -> bytes:
    """Convert the message set of an old client to a record batch (KIP-724)."""
    try:
        return up_convert(message_set)
    except WireError as error:
        raise RefusedBatchError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def _only_header(batch: bytes) -> BatchHeader:
    try:
        headers = list(batch_headers(batch))
    except WireError as error:
        raise RefusedBatchError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if len(headers) != 1:
        raise RefusedBatchError(ErrorCode.INVALID_RECORD, "expected exactly one record batch")
    position, header = headers[0]
    if position or header.size != len(batch):
        raise RefusedBatchError(ErrorCode.CORRUPT_MESSAGE, "bytes after the record batch")
    return header
