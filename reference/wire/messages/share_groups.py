"""Share groups: several members read one partition, and each record is acknowledged by itself (KIP-932)."""

from typing import Annotated

from highwater.reference.wire.schema import (
    ZERO_UUID,
    Bool,
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
)

# --------------------------------------------------------------------------------------------------
# ShareGroupHeartbeat (key 76): membership of a share group, like that of a consumer group (KIP-932).


@message(api_key=76, versions="1", flexible_from=1)
class ShareGroupHeartbeatRequest:
    """`member_epoch` 0 joins and -1 leaves; null topics mean that the subscription is unchanged."""

    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    rack_id: String | None = None
    subscribed_topic_names: tuple[String, ...] | None = None


@struct
class HeartbeatTopicPartitions:
    topic_id: Uuid = ZERO_UUID
    partitions: tuple[Int32, ...] = ()


@struct
class HeartbeatAssignment:
    topic_partitions: tuple[HeartbeatTopicPartitions, ...] = ()


@message(api_key=76, versions="1", flexible_from=1)
class ShareGroupHeartbeatResponse:
    """The member's epoch, and its assignment if it has changed."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: HeartbeatAssignment | None = None


# --------------------------------------------------------------------------------------------------
# ShareGroupDescribe (key 77): epochs, members and assignments of share groups.


@message(api_key=77, versions="1", flexible_from=1)
class ShareGroupDescribeRequest:
    """Groups to describe."""

    group_ids: tuple[String, ...] = ()
    include_authorized_operations: Bool = False


@struct
class TopicPartitions:
    topic_id: Uuid = ZERO_UUID
    topic_name: String = ""
    partitions: tuple[Int32, ...] = ()


@struct
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...] = ()


@struct
class Member:
    member_id: String = ""
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: tuple[String, ...] = ()
    assignment: Assignment = Assignment()


@struct
class DescribedGroup:
    error_code: Int16 = 0
    error_message: String | None = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: tuple[Member, ...] = ()
    authorized_operations: Int32 = -2147483648


@message(api_key=77, versions="1", flexible_from=1)
class ShareGroupDescribeResponse:
    """One entry for each group; an unknown one is an error."""

    throttle_time_ms: Int32 = 0
    groups: tuple[DescribedGroup, ...] = ()


# --------------------------------------------------------------------------------------------------
# ShareFetch (key 78): acquire records for a time, and acknowledge earlier ones.
#
# 2 may limit the records to `max_records` and renew the lock of acquired ones (KIP-1206, KIP-1222).


@struct
class AcknowledgementBatch:
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: tuple[Int8, ...] = ()


@struct
class FetchPartition:
    partition_index: Int32 = 0
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = ()


@struct
class FetchTopic:
    topic_id: Uuid = ZERO_UUID
    partitions: tuple[FetchPartition, ...] = ()


@struct
class ForgottenTopic:
    topic_id: Uuid = ZERO_UUID
    partitions: tuple[Int32, ...] = ()


@message(api_key=78, versions="1-2", flexible_from=1)
class ShareFetchRequest:
    """`share_session_epoch` 0 opens a session, -1 ends it, and each other request has the next epoch.

    An acknowledgement has one type for each offset, or one for all: 0 a gap, 1 accept, 2 release, 3 reject, 4 renew.
    """

    group_id: String | None = None
    member_id: String | None = ""
    share_session_epoch: Int32 = 0
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2147483647
    max_records: Int32 = 0
    batch_size: Int32 = 0
    share_acquire_mode: Annotated[Int8, since(2), ignorable] = 0
    is_renew_ack: Annotated[Bool, since(2)] = False
    topics: tuple[FetchTopic, ...] = ()
    forgotten_topics_data: tuple[ForgottenTopic, ...] = ()


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class AcquiredRecords:
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_count: Int16 = 0


@struct
class SharePartitionData:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    acknowledge_error_code: Int16 = 0
    acknowledge_error_message: String | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    records: Records = b""
    acquired_records: tuple[AcquiredRecords, ...] = ()


@struct
class ShareFetchableTopicResponse:
    topic_id: Uuid = ZERO_UUID
    partitions: tuple[SharePartitionData, ...] = ()


@struct
class NodeEndpoint:
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


@message(api_key=78, versions="1-2", flexible_from=1)
class ShareFetchResponse:
    """Records, and which of them the member has acquired: records between them are not its own."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    acquisition_lock_timeout_ms: Int32 = 0
    responses: tuple[ShareFetchableTopicResponse, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()


# --------------------------------------------------------------------------------------------------
# ShareAcknowledge (key 79): accept, release or reject acquired records. 2 may renew their lock.


@struct
class AcknowledgePartition:
    partition_index: Int32 = 0
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = ()


@struct
class AcknowledgeTopic:
    topic_id: Uuid = ZERO_UUID
    partitions: tuple[AcknowledgePartition, ...] = ()


@message(api_key=79, versions="1-2", flexible_from=1)
class ShareAcknowledgeRequest:
    """Acknowledgements without a fetch; sessions and types are those of ShareFetch."""

    group_id: String | None = None
    member_id: String | None = ""
    share_session_epoch: Int32 = 0
    is_renew_ack: Annotated[Bool, since(2)] = False
    topics: tuple[AcknowledgeTopic, ...] = ()


@struct
class AcknowledgedPartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: Uuid = ZERO_UUID
    partitions: tuple[AcknowledgedPartition, ...] = ()


@message(api_key=79, versions="1-2", flexible_from=1)
class ShareAcknowledgeResponse:
    """One error code for each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    acquisition_lock_timeout_ms: Annotated[Int32, since(2), ignorable] = 0
    responses: tuple[ShareAcknowledgeTopicResponse, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()


# --------------------------------------------------------------------------------------------------
# DescribeShareGroupOffsets (key 90): where a share group starts. 1 adds the lag (KIP-1226).


@struct
class DescribeOffsetsTopic:
    topic_name: String = ""
    partitions: tuple[Int32, ...] = ()


@struct
class DescribeOffsetsGroup:
    group_id: String = ""
    topics: tuple[DescribeOffsetsTopic, ...] | None = ()


@message(api_key=90, versions="0-1", flexible_from=0)
class DescribeShareGroupOffsetsRequest:
    """Null topics mean all topics of the group."""

    groups: tuple[DescribeOffsetsGroup, ...] = ()


@struct
class DescribedOffsetsPartition:
    partition_index: Int32 = 0
    start_offset: Int64 = 0
    leader_epoch: Int32 = 0
    lag: Annotated[Int64, since(1), ignorable] = -1
    error_code: Int16 = 0
    error_message: String | None = None


@struct
class DescribedOffsetsTopic:
    topic_name: String = ""
    topic_id: Uuid = ZERO_UUID
    partitions: tuple[DescribedOffsetsPartition, ...] = ()


@struct
class DescribedOffsetsGroup:
    group_id: String = ""
    topics: tuple[DescribedOffsetsTopic, ...] = ()
    error_code: Int16 = 0
    error_message: String | None = None


@message(api_key=90, versions="0-1", flexible_from=0)
class DescribeShareGroupOffsetsResponse:
    """Offset -1 if the group has none for the partition."""

    throttle_time_ms: Int32 = 0
    groups: tuple[DescribedOffsetsGroup, ...] = ()


# --------------------------------------------------------------------------------------------------
# AlterShareGroupOffsets (key 91): move the start of an empty share group.


@struct
class AlterOffsetsPartition:
    partition_index: Int32 = 0
    start_offset: Int64 = 0


@struct
class AlterOffsetsTopic:
    topic_name: String = ""
    partitions: tuple[AlterOffsetsPartition, ...] = ()


@message(api_key=91, versions="0", flexible_from=0)
class AlterShareGroupOffsetsRequest:
    """New start offsets of one group."""

    group_id: String = ""
    topics: tuple[AlterOffsetsTopic, ...] = ()


@struct
class AlteredOffsetsPartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


@struct
class AlteredOffsetsTopic:
    topic_name: String = ""
    topic_id: Uuid = ZERO_UUID
    partitions: tuple[AlteredOffsetsPartition, ...] = ()


@message(api_key=91, versions="0", flexible_from=0)
class AlterShareGroupOffsetsResponse:
    """One error code for each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    responses: tuple[AlteredOffsetsTopic, ...] = ()


# --------------------------------------------------------------------------------------------------
# DeleteShareGroupOffsets (key 92): forget the topics of an empty share group.


@struct
class DeleteOffsetsTopic:
    topic_name: String = ""


@message(api_key=92, versions="0", flexible_from=0)
class DeleteShareGroupOffsetsRequest:
    """Topics of one group."""

    group_id: String = ""
    topics: tuple[DeleteOffsetsTopic, ...] = ()


@struct
class DeletedOffsetsTopic:
    topic_name: String = ""
    topic_id: Uuid = ZERO_UUID
    error_code: Int16 = 0
    error_message: String | None = None


@message(api_key=92, versions="0", flexible_from=0)
class DeleteShareGroupOffsetsResponse:
    """One error code for each topic."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    responses: tuple[DeletedOffsetsTopic, ...] = ()
