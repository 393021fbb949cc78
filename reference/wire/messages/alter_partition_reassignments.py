"""AlterPartitionReassignments (key 45): asks the controller to move replicas, or to stop moving them (KIP-455).

1 may forbid that the number of replicas changes (KIP-860).
"""

from typing import Annotated

from reference.wire.schema import Bool, Int16, Int32, String, ignorable, message, since, struct


@struct
class ReassignablePartition:
    """Null cancels what is under way."""

    partition_index: Int32 = 0
    replicas: tuple[Int32, ...] | None = None


@struct
class ReassignableTopic:
    name: String = ""
    partitions: tuple[ReassignablePartition, ...] = ()


@message(api_key=45, versions="0-1", flexible_from=0)
class AlterPartitionReassignmentsRequest:
    """Where replicas shall be."""

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
    """Accepted is not done: ask ListPartitionReassignments."""

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, since(1), ignorable] = True
    error_code: Int16 = 0
    error_message: String | None = ""
    responses: tuple[ReassignableTopicResponse, ...] = ()
