"""OffsetForLeaderEpoch (key 23): where a leader epoch ended in the leader's log (KIP-101).

1 returns the epoch found (KIP-279), 2 fences by the asker's epoch (KIP-320), 3 names the replica.
"""

from typing import Annotated

from reference.wire.schema import Int16, Int32, Int64, String, ignorable, message, since, struct


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
    """Leader epochs from the asker's own log."""

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
    """The end offset of the largest epoch not above the asked one."""

    throttle_time_ms: Annotated[Int32, since(2), ignorable] = 0
    topics: tuple[OffsetForLeaderTopicResult, ...] = ()
