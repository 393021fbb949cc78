"""OffsetCommit (key 8): store how far a group has read.

1 names generation and member, 2 to 4 may set the retention (moved to the broker by KIP-211), 6 the leader epoch
(KIP-320), 7 static members (KIP-345), 9 member epochs (KIP-848), 10 topic ids.
"""

from typing import Annotated

from reference.wire.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    String,
    Uuid,
    ignorable,
    message,
    since,
    struct,
    until,
    versions,
)


@struct
class OffsetCommitRequestPartition:
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, since(6), ignorable] = -1
    commit_timestamp: Annotated[Int64, versions(1, 1)] = -1
    committed_metadata: String | None = ""


@struct
class OffsetCommitRequestTopic:
    name: Annotated[String, until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    partitions: tuple[OffsetCommitRequestPartition, ...] = ()


@message(api_key=8, versions="0-10", flexible_from=8)
class OffsetCommitRequest:
    """Offsets to commit. A `generation_id_or_member_epoch` of -1 without member id is from outside of the group."""

    group_id: String = ""
    generation_id_or_member_epoch: Annotated[Int32, since(1), ignorable] = -1
    member_id: Annotated[String, since(1), ignorable] = ""
    group_instance_id: Annotated[String | None, since(7)] = None
    retention_time_ms: Annotated[Int64, versions(2, 4), ignorable] = -1
    topics: tuple[OffsetCommitRequestTopic, ...] = ()


@struct
class OffsetCommitResponsePartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class OffsetCommitResponseTopic:
    name: Annotated[String, until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    partitions: tuple[OffsetCommitResponsePartition, ...] = ()


@message(api_key=8, versions="0-10", flexible_from=8)
class OffsetCommitResponse:
    """One error code for each partition."""

    throttle_time_ms: Annotated[Int32, since(3), ignorable] = 0
    topics: tuple[OffsetCommitResponseTopic, ...] = ()
