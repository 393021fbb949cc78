"""Streams groups: the broker assigns the tasks of an application of Kafka Streams (KIP-1071)."""

from highwater.reference.wire.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    UInt16,
    message,
    struct,
)

# --------------------------------------------------------------------------------------------------
# StreamsGroupHeartbeat (key 88): membership and tasks of an application of Kafka Streams (KIP-1071).


@struct
class KeyValue:
    key: String = ""
    value: String = ""


@struct
class TopicInfo:
    name: String = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: tuple[KeyValue, ...] = ()


@struct
class CopartitionGroup:
    source_topics: tuple[Int16, ...] = ()
    source_topic_regex: tuple[Int16, ...] = ()
    repartition_source_topics: tuple[Int16, ...] = ()


@struct
class Subtopology:
    subtopology_id: String = ""
    source_topics: tuple[String, ...] = ()
    source_topic_regex: tuple[String, ...] = ()
    state_changelog_topics: tuple[TopicInfo, ...] = ()
    repartition_sink_topics: tuple[String, ...] = ()
    repartition_source_topics: tuple[TopicInfo, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()


@struct
class Topology:
    epoch: Int32 = 0
    subtopologies: tuple[Subtopology, ...] = ()


@struct
class TaskIds:
    subtopology_id: String = ""
    partitions: tuple[Int32, ...] = ()


@struct
class Endpoint:
    host: String = ""
    port: UInt16 = 0


@struct
class TaskOffset:
    subtopology_id: String = ""
    partition: Int32 = 0
    offset: Int64 = 0


@message(api_key=88, versions="0", flexible_from=0)
class StreamsGroupHeartbeatRequest:
    """The changes since the last heartbeat; null and -1 mean unchanged, `member_epoch` as for consumer groups."""

    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    endpoint_information_epoch: Int32 = 0
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    topology: Topology | None = None
    active_tasks: tuple[TaskIds, ...] | None = None
    standby_tasks: tuple[TaskIds, ...] | None = None
    warmup_tasks: tuple[TaskIds, ...] | None = None
    process_id: String | None = None
    user_endpoint: Endpoint | None = None
    client_tags: tuple[KeyValue, ...] | None = None
    task_offsets: tuple[TaskOffset, ...] | None = None
    task_end_offsets: tuple[TaskOffset, ...] | None = None
    shutdown_application: Bool = False


@struct
class Status:
    status_code: Int8 = 0
    status_detail: String = ""


@struct
class TopicPartition:
    topic: String = ""
    partitions: tuple[Int32, ...] = ()


@struct
class EndpointToPartitions:
    user_endpoint: Endpoint = Endpoint()
    active_partitions: tuple[TopicPartition, ...] = ()
    standby_partitions: tuple[TopicPartition, ...] = ()


@message(api_key=88, versions="0", flexible_from=0)
class StreamsGroupHeartbeatResponse:
    """The member's epoch, its tasks if they have changed, and what the application must repair."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String = ""
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    acceptable_recovery_lag: Int32 = 0
    task_offset_interval_ms: Int32 = 0
    status: tuple[Status, ...] | None = ()
    active_tasks: tuple[TaskIds, ...] | None = None
    standby_tasks: tuple[TaskIds, ...] | None = None
    warmup_tasks: tuple[TaskIds, ...] | None = None
    endpoint_information_epoch: Int32 = 0
    partitions_by_user_endpoint: tuple[EndpointToPartitions, ...] | None = None


# --------------------------------------------------------------------------------------------------
# StreamsGroupDescribe (key 89): epochs, topology, members and tasks of streams groups.


@message(api_key=89, versions="0", flexible_from=0)
class StreamsGroupDescribeRequest:
    """Groups to describe."""

    group_ids: tuple[String, ...] = ()
    include_authorized_operations: Bool = False


@struct
class DescribedSubtopology:
    subtopology_id: String = ""
    source_topics: tuple[String, ...] = ()
    repartition_sink_topics: tuple[String, ...] = ()
    state_changelog_topics: tuple[TopicInfo, ...] = ()
    repartition_source_topics: tuple[TopicInfo, ...] = ()


@struct
class DescribedTopology:
    epoch: Int32 = 0
    subtopologies: tuple[DescribedSubtopology, ...] | None = None


@struct
class Assignment:
    active_tasks: tuple[TaskIds, ...] = ()
    standby_tasks: tuple[TaskIds, ...] = ()
    warmup_tasks: tuple[TaskIds, ...] = ()


@struct
class Member:
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: String | None = None
    rack_id: String | None = None
    client_id: String = ""
    client_host: String = ""
    topology_epoch: Int32 = 0
    process_id: String = ""
    user_endpoint: Endpoint | None = None
    client_tags: tuple[KeyValue, ...] = ()
    task_offsets: tuple[TaskOffset, ...] = ()
    task_end_offsets: tuple[TaskOffset, ...] = ()
    assignment: Assignment = Assignment()
    target_assignment: Assignment = Assignment()
    is_classic: Bool = False


@struct
class DescribedGroup:
    error_code: Int16 = 0
    error_message: String | None = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    topology: DescribedTopology | None = None
    members: tuple[Member, ...] = ()
    authorized_operations: Int32 = -2147483648


@message(api_key=89, versions="0", flexible_from=0)
class StreamsGroupDescribeResponse:
    """One entry for each group; an unknown one is an error."""

    throttle_time_ms: Int32 = 0
    groups: tuple[DescribedGroup, ...] = ()
