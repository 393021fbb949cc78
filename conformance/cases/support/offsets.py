"""Requests about the offsets of one partition: the end of an epoch, and DeleteRecords."""

from highwater.conformance.client.broker import CONSUMER, Broker, Topic
from highwater.conformance.expectations import only
from highwater.reference.wire.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


def epoch_end(leader: Broker, topic: Topic, epoch: int, current: int = -1) -> EpochEndOffset:
    """Send OffsetForLeaderEpoch for one partition and return the answer; `current` is the epoch of the client."""
    part = OffsetForLeaderPartition(partition=topic.partition, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=CONSUMER, topics=(OffsetForLeaderTopic(topic=topic.name, partitions=(part,)),)
    )
    reply = leader.call(request, leader.version_of(OffsetForLeaderEpochRequest, 2))
    answer: EpochEndOffset = only(only(reply.topics).partitions)
    return answer


def delete_records(
    leader: Broker, topic: Topic, offset: int, version: int | None = None, *, timeout_ms: int = 4000
) -> tuple[int, int]:
    """Delete records; return error code and low watermark."""
    part = DeleteRecordsPartition(partition_index=topic.partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=(DeleteRecordsTopic(name=topic.name, partitions=(part,)),), timeout_ms=timeout_ms
    )
    answer = only(only(leader.call(request, version).topics).partitions)
    return answer.error_code, answer.low_watermark
