"""ElectLeaders (key 43): request preferred or unclean elections from the controller.

1 has the kind of election (KIP-460), 2 is flexible.
"""

from typing import Annotated

from highwater.reference.wire.schema import Bool, Int8, Int16, Int32, Int64, String, ignorable, message, since, struct


@struct
class TopicPartitions:
    topic: String = ""
    partitions: tuple[Int32, ...] = ()


@message(api_key=43, versions="0-2", flexible_from=2)
class ElectLeadersRequest:
    """Type 0 is preferred, 1 unclean; null means all partitions."""

    election_type: Annotated[Int8, since(1)] = 0
    topic_partitions: tuple[TopicPartitions, ...] | None = ()
    timeout_ms: Int32 = 60_000


@struct
class PartitionResult:
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


@struct
class ReplicaElectionResult:
    topic: String = ""
    partition_result: tuple[PartitionResult, ...] = ()


@message(api_key=43, versions="0-2", flexible_from=2)
class ElectLeadersResponse:
    """The result per partition; a request for all omits the partitions that needed no election."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(1)] = 0
    replica_election_results: tuple[ReplicaElectionResult, ...] = ()


# --------------------------------------------------------------------------------------------------
# AlterPartitionReassignments (key 45): request the controller to move replicas, or to cancel a move (KIP-455).
#
# 1 can forbid a change of the replication factor (KIP-860).


@struct
class ReassignablePartition:
    """The new replicas of a partition; null cancels its reassignment."""

    partition_index: Int32 = 0
    replicas: tuple[Int32, ...] | None = None


@struct
class ReassignableTopic:
    name: String = ""
    partitions: tuple[ReassignablePartition, ...] = ()


@message(api_key=45, versions="0-1", flexible_from=0)
class AlterPartitionReassignmentsRequest:
    """The target replicas of partitions."""

    timeout_ms: Int32 = 60_000
    allow_replication_factor_change: Annotated[Bool, since(1)] = True
    topics: tuple[ReassignableTopic, ...] = ()


@struct
class ReassignablePartitionResponse:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


@struct
class ReassignableTopicResponse:
    name: String = ""
    partitions: tuple[ReassignablePartitionResponse, ...] = ()


@message(api_key=45, versions="0-1", flexible_from=0)
class AlterPartitionReassignmentsResponse:
    """Success means accepted, not complete: ListPartitionReassignments shows the progress."""

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, since(1), ignorable] = True
    error_code: Int16 = 0
    error_message: String | None = ""
    responses: tuple[ReassignableTopicResponse, ...] = ()


# --------------------------------------------------------------------------------------------------
# AlterReplicaLogDirs (key 34): move replicas between folders of a broker (KIP-113).


@struct
class AlterReplicaLogDirTopic:
    name: String = ""
    partitions: tuple[Int32, ...] = ()


@struct
class AlterReplicaLogDir:
    path: String = ""
    topics: tuple[AlterReplicaLogDirTopic, ...] = ()


@message(api_key=34, versions="0-2", flexible_from=2)
class AlterReplicaLogDirsRequest:
    """The log folders, and the replicas to move into each."""

    dirs: tuple[AlterReplicaLogDir, ...] = ()


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: String = ""
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...] = ()


@message(api_key=34, versions="0-2", flexible_from=2)
class AlterReplicaLogDirsResponse:
    """LOG_DIR_NOT_FOUND (57) for a folder that the broker does not have."""

    throttle_time_ms: Int32 = 0
    results: tuple[AlterReplicaLogDirTopicResult, ...] = ()


# --------------------------------------------------------------------------------------------------
# DescribeLogDirs (key 35): the sizes of replicas per log folder (KIP-113).
#
# 3 has a top-level error code, 4 the volume sizes (KIP-827), 5 the cordoned folders (KIP-1066).


@struct
class DescribableLogDirTopic:
    topic: String = ""
    partitions: tuple[Int32, ...] = ()


@message(api_key=35, versions="0-5", flexible_from=2)
class DescribeLogDirsRequest:
    """The replicas to describe; null `topics` means all."""

    topics: tuple[DescribableLogDirTopic, ...] | None = ()


@struct
class DescribeLogDirsPartition:
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


@struct
class DescribeLogDirsTopic:
    name: String = ""
    partitions: tuple[DescribeLogDirsPartition, ...] = ()


@struct
class DescribeLogDirsResult:
    error_code: Int16 = 0
    log_dir: String = ""
    topics: tuple[DescribeLogDirsTopic, ...] = ()
    total_bytes: Annotated[Int64, since(4), ignorable] = -1
    usable_bytes: Annotated[Int64, since(4), ignorable] = -1
    is_cordoned: Annotated[Bool, since(5), ignorable] = False


@message(api_key=35, versions="0-5", flexible_from=2)
class DescribeLogDirsResponse:
    """The size in bytes and the lag of each replica."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(3), ignorable] = 0
    results: tuple[DescribeLogDirsResult, ...] = ()


# --------------------------------------------------------------------------------------------------
# ListPartitionReassignments (key 46): list the reassignments in progress (KIP-455).


@struct
class ListPartitionReassignmentsTopics:
    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


@message(api_key=46, versions="0-0", flexible_from=0)
class ListPartitionReassignmentsRequest:
    """The partitions to list; null means all."""

    timeout_ms: Int32 = 60_000
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = None


@struct
class OngoingPartitionReassignment:
    partition_index: Int32 = 0
    replicas: tuple[Int32, ...] = ()
    adding_replicas: tuple[Int32, ...] = ()
    removing_replicas: tuple[Int32, ...] = ()


@struct
class OngoingTopicReassignment:
    name: String = ""
    partitions: tuple[OngoingPartitionReassignment, ...] = ()


@message(api_key=46, versions="0-0", flexible_from=0)
class ListPartitionReassignmentsResponse:
    """All replicas of each moving partition, and those being added and removed."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    topics: tuple[OngoingTopicReassignment, ...] = ()
