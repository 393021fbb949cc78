"""Fetch (key 1): read batches, for consumers and for followers.

4 knows isolation levels (KIP-98), 5 log start offsets, 7 sessions (KIP-227), 9 the reader's leader epoch (KIP-320),
11 racks (KIP-392), 12 the last fetched epoch and the diverging epoch (KIP-595), 13 topic ids (KIP-516), 15 the replica
state instead of the replica id (KIP-903), 16 the new leader's address (KIP-951), 18 the follower's high watermark.
"""

from typing import Annotated

from highwater.reference.wire.schema import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Uuid,
    ignorable,
    message,
    since,
    struct,
    tagged,
    until,
)


@struct
class ReplicaState:
    """The id and broker epoch of the follower (KIP-903)."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


@struct
class FetchPartition:
    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, since(9), ignorable] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, since(12)] = -1
    log_start_offset: Annotated[Int64, since(5), ignorable] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[Uuid, tagged(0, since=17), ignorable] = ZERO_UUID
    high_watermark: Annotated[Int64, tagged(1, since=18), ignorable] = 0x7FFFFFFFFFFFFFFF


@struct
class FetchTopic:
    topic: Annotated[String, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO_UUID
    partitions: tuple[FetchPartition, ...] = ()


@struct
class ForgottenTopic:
    topic: Annotated[String, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO_UUID
    partitions: tuple[Int32, ...] = ()


@message(api_key=1, versions="0-18", flexible_from=12)
class FetchRequest:
    """The partitions to read, and the time to wait for data. `replica_id` -1 is a consumer."""

    cluster_id: Annotated[String | None, tagged(0, since=12), ignorable] = None
    replica_id: Annotated[Int32, until(14)] = -1
    replica_state: Annotated[ReplicaState, tagged(1, since=15)] = ReplicaState()
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Annotated[Int32, since(3), ignorable] = 0x7FFFFFFF
    isolation_level: Annotated[Int8, since(4), ignorable] = 0
    session_id: Annotated[Int32, since(7), ignorable] = 0
    session_epoch: Annotated[Int32, since(7), ignorable] = -1
    topics: tuple[FetchTopic, ...] = ()
    forgotten_topics_data: Annotated[tuple[ForgottenTopic, ...], since(7)] = ()
    rack_id: Annotated[String, since(11), ignorable] = ""


@struct
class EpochEndOffset:
    """The largest common epoch and its end offset if the follower's log diverges (KIP-595); -1 if not."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@struct
class SnapshotId:
    end_offset: Int64 = -1
    epoch: Int32 = -1


@struct
class AbortedTransaction:
    producer_id: Int64 = 0
    first_offset: Int64 = 0


@struct
class PartitionData:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Annotated[Int64, since(4), ignorable] = -1
    log_start_offset: Annotated[Int64, since(5), ignorable] = -1
    diverging_epoch: Annotated[EpochEndOffset, tagged(0, since=12)] = EpochEndOffset()
    current_leader: Annotated[LeaderIdAndEpoch, tagged(1, since=12)] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, tagged(2, since=12)] = SnapshotId()
    aborted_transactions: Annotated[tuple[AbortedTransaction, ...] | None, since(4), ignorable] = ()
    preferred_read_replica: Annotated[Int32, since(11)] = -1
    records: Records | None = b""


@struct
class FetchableTopicResponse:
    topic: Annotated[String, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO_UUID
    partitions: tuple[PartitionData, ...] = ()


@struct
class NodeEndpoint:
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


@message(api_key=1, versions="0-18", flexible_from=12)
class FetchResponse:
    """Batches from the one with the requested offset, up to the high watermark; the last may be truncated."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Annotated[Int16, since(7), ignorable] = 0
    session_id: Annotated[Int32, since(7)] = 0
    responses: tuple[FetchableTopicResponse, ...] = ()
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], tagged(0, since=16)] = ()
