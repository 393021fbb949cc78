"""OffsetCommit (key 8): store the committed offsets of a group.

1 names generation and member, 2 to 4 may set the retention (moved to the broker by KIP-211), 6 the leader epoch
(KIP-320), 7 static members (KIP-345), 9 member epochs (KIP-848), 10 topic ids.
"""

from typing import Annotated

from highwater.reference.wire.schema import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Int64,
    String,
    Uuid,
    ignorable,
    message,
    nullable,
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
    """Offsets to commit. A `generation_id_or_member_epoch` of -1 without member id commits without membership."""

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


# --------------------------------------------------------------------------------------------------
# OffsetDelete (key 47): delete some offsets of a group (KIP-496). Never flexible.


@struct
class OffsetDeleteRequestPartition:
    partition_index: Int32 = 0


@struct
class OffsetDeleteRequestTopic:
    name: String = ""
    partitions: tuple[OffsetDeleteRequestPartition, ...] = ()


@message(api_key=47, versions="0")
class OffsetDeleteRequest:
    """Partitions whose committed offsets are deleted."""

    group_id: String = ""
    topics: tuple[OffsetDeleteRequestTopic, ...] = ()


@struct
class OffsetDeleteResponsePartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class OffsetDeleteResponseTopic:
    name: String = ""
    partitions: tuple[OffsetDeleteResponsePartition, ...] = ()


@message(api_key=47, versions="0")
class OffsetDeleteResponse:
    """One error code for each partition."""

    error_code: Int16 = 0
    throttle_time_ms: Annotated[Int32, ignorable] = 0
    topics: tuple[OffsetDeleteResponseTopic, ...] = ()


# --------------------------------------------------------------------------------------------------
# OffsetFetch (key 9): return the committed offsets of groups.
#
# 2 adds null for all topics and an error for the group, 5 leader epochs (KIP-320), 7 `require_stable` (KIP-447),
# 8 several groups (KIP-709), 9 member epochs (KIP-848), 10 topic ids.


@struct
class OffsetFetchRequestTopic:
    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


@struct
class OffsetFetchRequestTopics:
    name: Annotated[String, until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    partition_indexes: tuple[Int32, ...] = ()


@struct
class OffsetFetchRequestGroup:
    group_id: String = ""
    member_id: Annotated[String | None, since(9), ignorable] = None
    member_epoch: Annotated[Int32, since(9), ignorable] = -1
    topics: tuple[OffsetFetchRequestTopics, ...] | None = ()


@message(api_key=9, versions="0-10", flexible_from=6)
class OffsetFetchRequest:
    """One group in top-level fields up to 7, `groups` since 8; null topics means all."""

    group_id: Annotated[String, until(7)] = ""
    topics: Annotated[tuple[OffsetFetchRequestTopic, ...] | None, until(7), nullable(since=2)] = ()
    groups: Annotated[tuple[OffsetFetchRequestGroup, ...], since(8)] = ()
    require_stable: Annotated[Bool, since(7)] = False


@struct
class OffsetFetchResponsePartition:
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, since(5), ignorable] = -1
    metadata: String | None = ""
    error_code: Int16 = 0


@struct
class OffsetFetchResponseTopic:
    name: String = ""
    partitions: tuple[OffsetFetchResponsePartition, ...] = ()


@struct
class OffsetFetchResponsePartitions:
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, ignorable] = -1
    metadata: String | None = ""
    error_code: Int16 = 0


@struct
class OffsetFetchResponseTopics:
    name: Annotated[String, until(9), ignorable] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    partitions: tuple[OffsetFetchResponsePartitions, ...] = ()


@struct
class OffsetFetchResponseGroup:
    group_id: String = ""
    topics: tuple[OffsetFetchResponseTopics, ...] = ()
    error_code: Int16 = 0


@message(api_key=9, versions="0-10", flexible_from=6)
class OffsetFetchResponse:
    """Committed offsets; -1 for none."""

    throttle_time_ms: Annotated[Int32, since(3), ignorable] = 0
    topics: Annotated[tuple[OffsetFetchResponseTopic, ...], until(7)] = ()
    error_code: Annotated[Int16, versions(2, 7), ignorable] = 0
    groups: Annotated[tuple[OffsetFetchResponseGroup, ...], since(8)] = ()
