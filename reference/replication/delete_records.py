"""Serve DeleteRecords (key 21), v0-2: advance the log start of led partitions and wait for the followers (KIP-107).

Records below the new log start are no longer readable at once; segments that lie completely below it are deleted.
"""

from dataclasses import replace

from highwater.reference.configuration.topics import TopicConfigs
from highwater.reference.context import Context
from highwater.reference.effects import Request
from highwater.reference.replication.partition import Partition, Role
from highwater.reference.replication.purgatory import Purgatory
from highwater.reference.replication.replica_manager import ReplicaManager
from highwater.reference.topics import INTERNAL_TOPICS
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1
UNKNOWN = -1
POLL_MS = 20


class DeleteRecordsHandler:
    def __init__(self, context: Context, replicas: ReplicaManager, configs: TopicConfigs, purgatory: Purgatory) -> None:
        self._context, self._replicas, self._configs, self._purgatory = context, replicas, configs, purgatory

    async def delete_records(self, request: Request) -> DeleteRecordsResponse:
        body = _last_entries(request.body)
        deadline_ms = self._context.now.monotonic_ms + body.timeout_ms
        # Advance every log start before waiting for any partition, so that the followers replicate them in parallel.
        advanced = [
            (topic.name, part, *self._advance_log_start(topic.name, part))
            for topic in body.topics
            for part in topic.partitions
        ]
        results: dict[str, list[DeleteRecordsPartitionResult]] = {}
        for name, part, error, offset in advanced:
            results.setdefault(name, []).append(
                await self._result((name, part.partition_index), error, offset, deadline_ms)
            )
        return DeleteRecordsResponse(
            topics=tuple(
                DeleteRecordsTopicResult(name=name, partitions=tuple(partitions))
                for name, partitions in results.items()
            )
        )

    def _advance_log_start(self, topic: str, requested: DeleteRecordsPartition) -> tuple[ErrorCode, int]:
        """Return the error code and the new log start; a requested offset of -1 means the high watermark."""
        partition = self._replicas.partitions.get((topic, requested.partition_index))
        if partition is None or partition.role is not Role.LEADER:
            return self._replicas.not_leader(topic, requested.partition_index), UNKNOWN
        if topic in INTERNAL_TOPICS:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, UNKNOWN
        if "delete" not in self._configs.log_config(topic).cleanup_policy:
            return ErrorCode.POLICY_VIOLATION, UNKNOWN
        offset = partition.high_watermark if requested.offset == HIGH_WATERMARK else requested.offset
        if not 0 <= offset <= partition.high_watermark:
            return ErrorCode.OFFSET_OUT_OF_RANGE, UNKNOWN
        partition.advance_log_start(offset)
        return ErrorCode.KAFKA_STORAGE_ERROR if partition.offline else ErrorCode.NONE, offset

    async def _result(
        self, key: tuple[str, int], error: ErrorCode, offset: int, deadline_ms: int
    ) -> DeleteRecordsPartitionResult:
        low_watermark = UNKNOWN
        while error is ErrorCode.NONE:
            partition = self._replicas.partitions.get(key)
            if partition is None or partition.role is not Role.LEADER:  # perhaps while another one was waited for
                error, low_watermark = self._replicas.not_leader(*key), UNKNOWN
            elif (low_watermark := _low_watermark(partition)) >= offset:
                break
            elif self._context.now.monotonic_ms >= deadline_ms:
                error = ErrorCode.REQUEST_TIMED_OUT
            else:
                await self._purgatory.sleep(POLL_MS)
        return DeleteRecordsPartitionResult(partition_index=key[1], low_watermark=low_watermark, error_code=error)


def _last_entries(body: DeleteRecordsRequest) -> DeleteRecordsRequest:
    """Return the request with the last entry of each partition, the only one that counts (KafkaApis)."""
    last = {(topic.name, part.partition_index): part for topic in body.topics for part in topic.partitions}
    topics = tuple(DeleteRecordsTopic(name=name, partitions=(part,)) for (name, _), part in last.items())
    return replace(body, topics=topics)


def _low_watermark(partition: Partition) -> int:
    """Return the smallest log start offset among the live replicas."""
    followers = (
        remote.log_start_offset for replica, remote in partition.remotes.items() if partition.is_alive(replica)
    )
    return min([partition.log.log_start_offset, *followers])
