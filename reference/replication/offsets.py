"""ListOffsets (key 2): v1-7, and OffsetForLeaderEpoch (key 23): v0-4."""

from reference.events import Request
from reference.replication.partition import Partition
from reference.replication.replica_manager import ReplicaManager
from reference.wire.errors import ErrorCode
from reference.wire.log_entries import decode_entry
from reference.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from reference.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
NONE_FOUND = (-1, -1)
READ_COMMITTED = 1
OFFSET_NOT_AVAILABLE_SINCE = 5
LEADER_EPOCH_SINCE = 4


class OffsetsHandler:
    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    async def list_offsets(self, request: Request) -> ListOffsetsResponse:
        body: ListOffsetsRequest = request.body
        return ListOffsetsResponse(
            topics=tuple(
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        self._list_one(topic.name, asked, body, request.api_version) for asked in topic.partitions
                    ),
                )
                for topic in body.topics
            )
        )

    def _leader(self, topic: str, number: int, leader_epoch: int) -> tuple[Partition | None, ErrorCode]:
        partition = self._replicas.partitions.get((topic, number))
        if partition is None:
            return None, self._replicas.not_leader(topic, number)
        return partition, partition.check_epoch(leader_epoch)

    def _list_one(
        self, topic: str, asked: ListOffsetsPartition, body: ListOffsetsRequest, version: int
    ) -> ListOffsetsPartitionResponse:
        partition, error = self._leader(topic, asked.partition_index, asked.current_leader_epoch)
        offset, timestamp, epoch = -1, -1, -1
        if partition is not None and error is ErrorCode.NONE:
            consumer = body.replica_id < 0
            end = partition.high_watermark if consumer else partition.log.log_end_offset
            if consumer and asked.timestamp != EARLIEST and end < partition.epoch_start_offset:
                # A new leader's high watermark may lag; until it reaches the epoch's start, do not say (KIP-207).
                known = version >= OFFSET_NOT_AVAILABLE_SINCE
                error = ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE
            else:
                if consumer and body.isolation_level == READ_COMMITTED:
                    end = partition.log.producers.last_stable_offset(end)
                offset, timestamp = _find(partition, asked.timestamp, end)
                epoch = _epoch_of(partition, offset) if version >= LEADER_EPOCH_SINCE else -1
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            error_code=error,
            offset=offset,
            timestamp=timestamp,
            leader_epoch=epoch,
        )

    async def offset_for_leader_epoch(self, request: Request) -> OffsetForLeaderEpochResponse:
        body: OffsetForLeaderEpochRequest = request.body
        return OffsetForLeaderEpochResponse(
            topics=tuple(
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=tuple(self._epoch_end(topic.topic, asked) for asked in topic.partitions),
                )
                for topic in body.topics
            )
        )

    def _epoch_end(self, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
        partition, error = self._leader(topic, asked.partition, asked.current_leader_epoch)
        epoch, end = -1, -1
        if partition is not None and error is ErrorCode.NONE:
            epoch, end = partition.log.epochs.end_offset_for(asked.leader_epoch, partition.log.log_end_offset)
        return EpochEndOffset(partition=asked.partition, error_code=error, leader_epoch=epoch, end_offset=end)


def _find(partition: Partition, timestamp: int, end: int) -> tuple[int, int]:
    """(offset, timestamp) of what was asked for, below `end`; (-1, -1) when there is none."""
    log = partition.log
    if timestamp == LATEST:
        return end, -1
    if timestamp == EARLIEST:
        return log.log_start_offset, -1
    records = (
        record
        for batch in log.batches_from_timestamp(max(timestamp, 0))
        for record in decode_entry(batch)[1]
        if log.log_start_offset <= record.offset < end
    )
    if timestamp == MAX_TIMESTAMP:
        largest = max(records, key=lambda record: record.timestamp, default=None)
        return (largest.offset, largest.timestamp) if largest else NONE_FOUND
    first = next((record for record in records if record.timestamp >= timestamp), None)
    return (first.offset, first.timestamp) if first else NONE_FOUND


def _epoch_of(partition: Partition, offset: int) -> int:
    """The leader epoch in which an offset was or will be written; -1 when nothing was."""
    return next((epoch for epoch, start in reversed(partition.log.epochs.entries) if start <= offset), -1)
