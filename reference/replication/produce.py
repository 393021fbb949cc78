"""Produce (key 0): v0-12. Validates one record batch for each partition, appends it, and waits as `acks` says.

v0-2 carry message sets, which are stored as record batches.
"""

from collections.abc import Callable, Sequence

from reference.context import Context
from reference.events import Request
from reference.procedures import Pending, spawn
from reference.replication.partition import Partition, Role
from reference.replication.replica_manager import ReplicaManager
from reference.topic_configs import TopicConfigs
from reference.wire.compression import Compression
from reference.wire.errors import ErrorCode, WireError
from reference.wire.log_entries import up_convert
from reference.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from reference.wire.records import (
    BatchHeader,
    batch_headers,
    crc_valid,
    decode_records,
    recompressed,
    with_append_time,
)

ACKS = {0, 1, -1}
BATCH_OVERHEAD = 12
AS_PRODUCED = "producer"
CODECS = {"uncompressed": Compression.NONE, **{codec.name.lower(): codec for codec in Compression if codec}}
ZSTD_SINCE = 7
RECORD_BATCHES_SINCE = 3
ABORTABLE_SINCE = 11
ADDS_PARTITIONS_SINCE = 12
Verify = Callable[..., Pending[ErrorCode]]
"""`TransactionVerifier.verify`."""


class RefusedBatchError(Exception):
    """`records` are the indexes of those at fault, where it is they."""

    def __init__(self, error: ErrorCode, message: str = "", records: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.error, self.records = error, records


class ProduceHandler:
    def __init__(self, context: Context, replicas: ReplicaManager, configs: TopicConfigs, verify: Verify) -> None:
        self._context, self._replicas, self._configs, self._verify = context, replicas, configs, verify

    async def produce(self, request: Request) -> ProduceResponse:
        """Every partition succeeds or fails alone; the answer waits for the slowest."""
        body: ProduceRequest = request.body
        answers = [
            (topic.name, [self._one(topic.name, data, body, request.api_version) for data in topic.partition_data])
            for topic in body.topic_data
        ]
        responses = []
        for name, partitions in answers:
            parts = [await pending for pending in partitions]
            responses.append(TopicProduceResponse(name=name, partition_responses=tuple(parts)))
        return ProduceResponse(responses=tuple(responses))

    def _one(
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
                        record_errors=tuple(BatchIndexAndErrorMessage(batch_index=each) for each in refused.records),
                    )
                )

        spawn(run())
        return answer

    async def _produce_one(
        self, topic: str, data: PartitionProduceData, body: ProduceRequest, version: int
    ) -> PartitionProduceResponse:
        """RefusedBatchError says why not; after an append it can only be that the followers did not keep up."""
        partition = self._leader(topic, data.index, body.acks)
        batch, header = self._validated(topic, data.records, version)
        repeated = partition.log.producers.duplicate(header) if header.producer_id >= 0 else None
        append_time = -1
        if repeated is not None:
            base_offset, end_offset = repeated.base_offset, repeated.last_offset + 1
        else:
            if header.is_transactional:
                await self._verified(partition, header, body.transactional_id, version)
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
        too_few = not partition.has_enough(partition.isr) and self._context.guards.append_needs_min_isr
        if acks == -1 and too_few:
            raise RefusedBatchError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return partition

    async def _verified(
        self, partition: Partition, header: BatchHeader, transactional_id: str | None, version: int
    ) -> None:
        """The batch belongs to an open transaction, which the first of them may begin; otherwise RefusedBatchError."""
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
            error = ErrorCode.TRANSACTION_ABORTABLE  # it ended while we asked
        if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
            error = ErrorCode.INVALID_TXN_STATE
        if error is ErrorCode.PRODUCER_FENCED:
            error = ErrorCode.INVALID_PRODUCER_EPOCH  # what Produce says, in every version
        if error is not ErrorCode.NONE:
            raise RefusedBatchError(error, "the partition is not known to be in the transaction")

    def _append(
        self, partition: Partition, batch: bytes, header: BatchHeader, acks: int, version: int
    ) -> tuple[int, int]:
        """Base offset, and the append time where that is the broker's."""
        self._leader(partition.topic, partition.partition, acks)  # it may have changed while we asked
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

    def _validated(self, topic: str, records: bytes | None, version: int) -> tuple[bytes, BatchHeader]:
        """Exactly one whole, well-formed v2 batch (KIP-98, KAFKA-6554), within the topic's limits."""
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
        for broken, message in (
            (header.is_control, "clients may not write control batches"),
            (header.base_offset != 0, "the base offset of a produced batch must be 0"),
            (header.record_count < 1, "a batch must hold a record"),
            (header.record_count != header.last_offset_delta + 1, "record count and last offset delta disagree"),
            (header.producer_id >= 0 and header.base_sequence < 0, "a producer id needs a sequence"),
            (header.producer_id < 0 and header.is_transactional, "a transaction needs a producer id"),
        ):
            if broken:
                raise RefusedBatchError(ErrorCode.INVALID_RECORD, message)
        self._check_records(topic, batch, header)
        codec = self._configs.value(topic, "compression.type")
        return (batch, header) if codec == AS_PRODUCED else _in_codec(batch, header, CODECS[codec])

    def _check_records(self, topic: str, batch: bytes, header: BatchHeader) -> None:
        """Records are opaque unless the topic is compacted: then each needs a key (KIP-467)."""
        if "compact" not in self._configs.value(topic, "cleanup.policy"):
            return
        try:
            _, records = decode_records(batch)
        except WireError as error:
            raise RefusedBatchError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        if keyless := [index for index, record in enumerate(records) if record.key is None]:
            raise RefusedBatchError(ErrorCode.INVALID_RECORD, "a compacted topic needs a key in every record", keyless)


def _in_codec(batch: bytes, header: BatchHeader, codec: Compression) -> tuple[bytes, BatchHeader]:
    """What a topic with a codec of its own stores."""
    if header.compression is codec:
        return batch, header
    try:
        stored = recompressed(batch, codec)
    except WireError as error:
        raise RefusedBatchError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    return stored, _only_header(stored)


def _up_converted(message_set: bytes) -> bytes:
    """What an old client sends is stored in today's format, as message.format.version asks for (KIP-724)."""
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
