"""ListPartitionReassignments (key 46): what the controller is moving (KIP-455)."""

from reference.wire.schema import Int16, Int32, String, message, struct


@struct
class ListPartitionReassignmentsTopics:
    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


@message(api_key=46, versions="0-0", flexible_from=0)
class ListPartitionReassignmentsRequest:
    """Null asks for all."""

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
    """Of each partition that moves: all its replicas, and which of them come and go."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    topics: tuple[OngoingTopicReassignment, ...] = ()
