"""ListOffsets (key 2): find offsets by timestamp, or the start or end of a log.

0 returns up to `max_num_offsets` segment offsets; since 1 there is one offset with its timestamp (KIP-79). 2 knows
isolation levels, 4 leader epochs (KIP-320), 7 the offset of the largest timestamp (KIP-734), 8 and 9 tiered storage,
10 a timeout (KIP-1075).
"""

from typing import Annotated

from highwater.reference.wire.schema import Int8, Int16, Int32, Int64, String, ignorable, message, since, struct, until


@struct
class ListOffsetsPartition:
    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, since(4), ignorable] = -1
    timestamp: Int64 = 0
    max_num_offsets: Annotated[Int32, until(0)] = 1


@struct
class ListOffsetsTopic:
    name: String = ""
    partitions: tuple[ListOffsetsPartition, ...] = ()


@message(api_key=2, versions="0-11", flexible_from=6)
class ListOffsetsRequest:
    """Timestamps to look up: -1 is the end, -2 the start of the log."""

    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, since(2)] = 0
    topics: tuple[ListOffsetsTopic, ...] = ()
    timeout_ms: Annotated[Int32, since(10), ignorable] = 0


@struct
class ListOffsetsPartitionResponse:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    old_style_offsets: Annotated[tuple[Int64, ...], until(0)] = ()
    timestamp: Annotated[Int64, since(1)] = -1
    offset: Annotated[Int64, since(1)] = -1
    leader_epoch: Annotated[Int32, since(4)] = -1


@struct
class ListOffsetsTopicResponse:
    name: String = ""
    partitions: tuple[ListOffsetsPartitionResponse, ...] = ()


@message(api_key=2, versions="0-11", flexible_from=6)
class ListOffsetsResponse:
    """The first offset with the requested timestamp or a later one, or -1."""

    throttle_time_ms: Annotated[Int32, since(2), ignorable] = 0
    topics: tuple[ListOffsetsTopicResponse, ...] = ()


# --------------------------------------------------------------------------------------------------
# DeleteRecords (key 21): move the log start offset forward (KIP-107).


@struct
class DeleteRecordsPartition:
    partition_index: Int32 = 0
    offset: Int64 = 0


@struct
class DeleteRecordsTopic:
    name: String = ""
    partitions: tuple[DeleteRecordsPartition, ...] = ()


@message(api_key=21, versions="0-2", flexible_from=2)
class DeleteRecordsRequest:
    """The new log start offsets; -1 is the high watermark."""

    topics: tuple[DeleteRecordsTopic, ...] = ()
    timeout_ms: Int32 = 0


@struct
class DeleteRecordsPartitionResult:
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


@struct
class DeleteRecordsTopicResult:
    name: String = ""
    partitions: tuple[DeleteRecordsPartitionResult, ...] = ()


@message(api_key=21, versions="0-2", flexible_from=2)
class DeleteRecordsResponse:
    """The new low watermark of each partition."""

    throttle_time_ms: Int32 = 0
    topics: tuple[DeleteRecordsTopicResult, ...] = ()


# --------------------------------------------------------------------------------------------------
# OffsetForLeaderEpoch (key 23): the end offset of a leader epoch in the leader's log (KIP-101).
#
# 1 returns the epoch found (KIP-279), 2 fences by the requester's leader epoch (KIP-320), 3 has the replica id.


@struct
class OffsetForLeaderPartition:
    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, since(2), ignorable] = -1
    leader_epoch: Int32 = 0


@struct
class OffsetForLeaderTopic:
    topic: String = ""
    partitions: tuple[OffsetForLeaderPartition, ...] = ()


@message(api_key=23, versions="0-4", flexible_from=4)
class OffsetForLeaderEpochRequest:
    """Leader epochs from the requester's log."""

    replica_id: Annotated[Int32, since(3), ignorable] = -2
    topics: tuple[OffsetForLeaderTopic, ...] = ()


@struct
class EpochEndOffset:
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Annotated[Int32, since(1), ignorable] = -1
    end_offset: Int64 = -1


@struct
class OffsetForLeaderTopicResult:
    topic: String = ""
    partitions: tuple[EpochEndOffset, ...] = ()


@message(api_key=23, versions="0-4", flexible_from=4)
class OffsetForLeaderEpochResponse:
    """The end offset of the largest epoch that is not above the requested one."""

    throttle_time_ms: Annotated[Int32, since(2), ignorable] = 0
    topics: tuple[OffsetForLeaderTopicResult, ...] = ()
