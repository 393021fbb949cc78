"""ElectLeaders (key 43): asks the controller for preferred or unclean elections.

1 has the kind of election (KIP-460), 2 is flexible.
"""

from typing import Annotated

from reference.wire.schema import Int8, Int16, Int32, String, message, since, struct


@struct
class TopicPartitions:
    topic: String = ""
    partitions: tuple[Int32, ...] = ()


@message(api_key=43, versions="0-2", flexible_from=2)
class ElectLeadersRequest:
    """Kind 0 is preferred, 1 unclean; null asks for all partitions."""

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
    """What became of each partition; asked for all, those that needed no election are left out."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(1)] = 0
    replica_election_results: tuple[ReplicaElectionResult, ...] = ()
