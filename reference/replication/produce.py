"""Produce (key 0): v3-9. Validates one record batch for each partition, appends it, and waits as `acks` says.

v0-2 are advertised (KAFKA-18659) and refused: they carry message sets.
"""

from dataclasses import replace

from reference.context import Context
from reference.events import Request
from reference.procedures import Pending, spawn
from reference.replication.partition import Partition, Role
from reference.replication.replica_manager import ReplicaManager
from reference.topic_configs import TopicConfigs
from reference.wire.compression import Compression
from reference.wire.errors import ErrorCode, WireError
from reference.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from reference.wire.records import BatchHeader, batch_headers, crc_valid, decode_records, with_append_time

ACKS = {0, 1, -1}
BATCH_OVERHEAD = 12
ZSTD_SINCE = 7


class RefusedBatchError(Exception):
    def __init__(self, error: ErrorCode, message: str = "") -> None:
        super().__init__(message)
        self.error = error


class ProduceHandler:
    def __init__(self, context: Context, replicas: ReplicaManager, configs: TopicConfigs) -> None:
        self._context, self._replicas, self._configs = context, replicas, configs

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
        try:
            base_offset, append_time, partition = self._append(topic, data, body.acks, version)
        except RefusedBatchError as refused:
            message = str(refused) or None
            answer.resolve(
                PartitionProduceResponse(
                    index=data.index,
                    error_code=refused.error,
                    base_offset=-1,
                    log_append_time_ms=-1,
                    log_start_offset=-1,
                    error_message=message,
                )
            )
            return answer
        good = PartitionProduceResponse(
            index=data.index,
            error_code=ErrorCode.NONE,
            base_offset=base_offset,
            log_append_time_ms=append_time,
            log_start_offset=partition.log.log_start_offset,
        )
        if body.acks != -1:
            answer.resolve(good)
            return answer
        committed = partition.committed(partition.log.log_end_offset, body.timeout_ms)
        _then(committed, good, answer)
        return answer

    def _append(self, topic: str, data: PartitionProduceData, acks: int, version: int) -> tuple[int, int, Partition]:
        if acks not in ACKS:
            raise RefusedBatchError(ErrorCode.INVALID_REQUIRED_ACKS)
        partition = self._replicas.partitions.get((topic, data.index))
        if partition is None or partition.role is not Role.LEADER:
            known = partition is not None or self._replicas.knows(topic, data.index)
            raise RefusedBatchError(ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if acks == -1 and len(partition.isr) < partition.effective_min_isr:
            raise RefusedBatchError(ErrorCode.NOT_ENOUGH_REPLICAS)
        batch, header = self._validated(topic, data.records, version)
        if header.producer_id >= 0:
            repeated = partition.log.producers.duplicate(header)
            if repeated is not None:
                return repeated.base_offset, -1, partition
            error = partition.log.producers.check(header)
            if error is not ErrorCode.NONE:
                raise RefusedBatchError(error)
        append_time = -1
        if self._configs.value(topic, "message.timestamp.type") == "LogAppendTime":
            append_time = self._context.now.wall_ms
            batch = with_append_time(batch, append_time)
            ((_, header),) = batch_headers(batch)
        return partition.append(batch, header), append_time, partition

    def _validated(self, topic: str, records: bytes | None, version: int) -> tuple[bytes, BatchHeader]:
        """Exactly one whole, well-formed v2 batch (KIP-98, KAFKA-6554), within the topic's limits."""
        batch = bytes(records or b"")
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
        ):
            if broken:
                raise RefusedBatchError(ErrorCode.INVALID_RECORD, message)
        if header.is_transactional:
            raise RefusedBatchError(ErrorCode.INVALID_TXN_STATE, "transactions are not served")
        self._check_records(topic, batch, header)
        return batch, header

    def _check_records(self, topic: str, batch: bytes, header: BatchHeader) -> None:
        """Records are opaque unless the topic is compacted: then each needs a key (KIP-467)."""
        if "compact" not in self._configs.value(topic, "cleanup.policy"):
            return
        try:
            _, records = decode_records(batch)
        except WireError as error:
            raise RefusedBatchError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        if any(record.key is None for record in records):
            raise RefusedBatchError(ErrorCode.INVALID_RECORD, "a compacted topic needs a key in every record")


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


def _then(
    committed: Pending[ErrorCode], good: PartitionProduceResponse, answer: Pending[PartitionProduceResponse]
) -> None:
    async def wait() -> None:
        error = await committed
        if error is ErrorCode.NONE:
            answer.resolve(good)
        else:
            answer.resolve(replace(good, error_code=error, base_offset=-1))

    spawn(wait())
