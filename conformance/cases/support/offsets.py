"""Requests about the offsets of one partition: the end of an epoch, and DeleteRecords."""

from highwater.conformance.client.broker import CONSUMER, Broker, Topic
from highwater.conformance.client.requests import message
from highwater.conformance.expectations import only
from highwater.reference.wire.messages.offsets import DeleteRecordsRequest, EpochEndOffset, OffsetForLeaderEpochRequest


def epoch_end(leader: Broker, topic: Topic, epoch: int, current: int = -1) -> EpochEndOffset:
    """Send OffsetForLeaderEpoch for one partition and return the answer; `current` is the epoch of the client."""
    part = [topic.partition, current, epoch]
    request = message(OffsetForLeaderEpochRequest, replica_id=CONSUMER, topics=[[topic.name, [part]]])
    reply = leader.call(request, leader.version_of(OffsetForLeaderEpochRequest, 2))
    answer: EpochEndOffset = only(only(reply.topics).partitions)
    return answer


def delete_records(
    leader: Broker, topic: Topic, offset: int, version: int | None = None, *, timeout_ms: int = 4000
) -> tuple[int, int]:
    """Delete records; return error code and low watermark."""
    part = [topic.partition, offset]
    request = message(DeleteRecordsRequest, topics=[[topic.name, [part]]], timeout_ms=timeout_ms)
    answer = only(only(leader.call(request, version).topics).partitions)
    return answer.error_code, answer.low_watermark
