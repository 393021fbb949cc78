"""Serve ListOffsets (key 2), v1-7, and OffsetForLeaderEpoch (key 23), v0-4."""

from highwater.reference.effects import Request
from highwater.reference.replication.partition import Partition
from highwater.reference.replication.replica_manager import ReplicaManager
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.offsets import (
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

CONSUMER, DEBUGGING_CONSUMER = -1, -2
"""Replica ids; the second compares replicas, so that followers answer it, too, up to the ends of their logs."""
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
SPECIAL_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7}
"""First version in which a negative timestamp has a meaning; those of tiered storage are in versions above 7."""
NOT_FOUND = (-1, -1)
READ_COMMITTED = 1
ISOLATION_LEVELS = (0, READ_COMMITTED)
OFFSET_NOT_AVAILABLE_SINCE = 5
LEADER_EPOCH_SINCE = 4


class OffsetsHandler:
    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    async def list_offsets(self, request: Request) -> ListOffsetsResponse:
        body: ListOffsetsRequest = request.body
        answers: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
        for topic in body.topics:
            for requested in topic.partitions:
                answered = answers.setdefault(topic.name, {})
                number = requested.partition_index
                # ReplicaManager.fetchOffset rejects a partition that the request has twice, and answers once for it.
                answered[number] = (
                    ListOffsetsPartitionResponse(partition_index=number, error_code=ErrorCode.INVALID_REQUEST)
                    if number in answered
                    else self._list_one(topic.name, requested, body, request.api_version)
                )
        return ListOffsetsResponse(
            topics=tuple(
                ListOffsetsTopicResponse(name=name, partitions=tuple(answered.values()))
                for name, answered in answers.items()
            )
        )

    def _leader(
        self, topic: str, number: int, leader_epoch: int, *, any_replica: bool = False
    ) -> tuple[Partition | None, ErrorCode]:
        partition = self._replicas.partitions.get((topic, number))
        if partition is None:
            return None, self._replicas.not_leader(topic, number)
        return partition, partition.check_epoch(leader_epoch, from_follower=any_replica)

    def _list_one(
        self, topic: str, requested: ListOffsetsPartition, body: ListOffsetsRequest, version: int
    ) -> ListOffsetsPartitionResponse:
        any_replica = body.replica_id == DEBUGGING_CONSUMER
        partition, error = self._leader(
            topic, requested.partition_index, requested.current_leader_epoch, any_replica=any_replica
        )
        offset, timestamp, epoch = -1, -1, -1
        if body.isolation_level not in ISOLATION_LEVELS:
            error = ErrorCode.UNKNOWN_SERVER_ERROR  # IsolationLevel.forId throws IllegalArgumentException
        if requested.timestamp < 0 and version < SPECIAL_SINCE.get(requested.timestamp, version + 1):
            error = ErrorCode.UNSUPPORTED_VERSION
        if partition is not None and error is ErrorCode.NONE:
            error, offset, timestamp = _look_up(partition, requested.timestamp, body, version)
            if error is ErrorCode.NONE and version >= LEADER_EPOCH_SINCE:
                # The end of what a reader may see has the leader's epoch, as in Partition.fetchOffsetForTimestamp.
                at_end = requested.timestamp == LATEST
                epoch = partition.leader_epoch if at_end else _epoch_of(partition, offset)
        return ListOffsetsPartitionResponse(
            partition_index=requested.partition_index,
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
                    partitions=tuple(self._epoch_end(topic.topic, requested) for requested in topic.partitions),
                )
                for topic in body.topics
            )
        )

    def _epoch_end(self, topic: str, requested: OffsetForLeaderPartition) -> EpochEndOffset:
        partition, error = self._leader(topic, requested.partition, requested.current_leader_epoch)
        epoch, end = -1, -1
        if partition is not None and error is ErrorCode.NONE:
            epoch, end = partition.log.epochs.end_offset_for(requested.leader_epoch, partition.log.log_end_offset)
        return EpochEndOffset(partition=requested.partition, error_code=error, leader_epoch=epoch, end_offset=end)


def _look_up(
    partition: Partition, timestamp: int, body: ListOffsetsRequest, version: int
) -> tuple[ErrorCode, int, int]:
    """Return (error, offset, timestamp) of what the requester may see."""
    consumer = body.replica_id == CONSUMER
    end = partition.high_watermark if consumer else partition.log.log_end_offset
    lags = consumer and end < partition.epoch_start_offset
    if consumer and body.isolation_level == READ_COMMITTED:
        end = partition.log.producers.last_stable_offset(end)
    with partition.storage():
        offset, found_timestamp = _find(partition, timestamp, end)
    if partition.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR, *NOT_FOUND
    if lags and timestamp != EARLIEST and (timestamp == LATEST or offset < 0):
        # A new leader's high watermark may lag behind an offset already returned by the old leader. Until it reaches
        # the start of the leader epoch, there is no latest offset, and a time without a record below the high
        # watermark may have one above it (KIP-207, Partition.fetchOffsetForTimestamp).
        known = version >= OFFSET_NOT_AVAILABLE_SINCE
        return ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE, *NOT_FOUND
    return ErrorCode.NONE, offset, found_timestamp


def _find(partition: Partition, timestamp: int, end: int) -> tuple[int, int]:
    """Return (offset, timestamp) for a requested timestamp; (-1, -1) if no record matches, or it is not below `end`."""
    log = partition.log
    if timestamp == LATEST:
        return end, -1
    if timestamp == EARLIEST:
        return log.log_start_offset, -1
    batches = (
        log.batches_with_largest_timestamp() if timestamp == MAX_TIMESTAMP else log.batches_from_timestamp(timestamp)
    )
    records = (record for batch in batches for record in log.decode(batch)[1] if log.log_start_offset <= record.offset)
    if timestamp == MAX_TIMESTAMP:
        found = max(records, key=lambda record: record.timestamp, default=None)
    else:
        found = next((record for record in records if record.timestamp >= timestamp), None)
    # As in Apache Kafka there is no result if the record is one that the reader may not see, although others match.
    return (found.offset, found.timestamp) if found and found.offset < end else NOT_FOUND


def _epoch_of(partition: Partition, offset: int) -> int:
    """Return the leader epoch that contains an offset; -1 if the leader epoch cache has no entry at or below it."""
    return next((epoch for epoch, start in reversed(partition.log.epochs.entries) if start <= offset), -1)
