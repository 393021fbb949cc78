"""DescribeQuorum (key 55): leader, voters and observers of the metadata quorum (KIP-595).

1 adds when replicas fetched last (KIP-836), 2 the directories and addresses of voters (KIP-853).
"""

from typing import Annotated

from highwater.reference.wire.schema import (
    ZERO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    UInt16,
    Uuid,
    ignorable,
    message,
    since,
    struct,
    until,
)


@struct
class QuorumPartition:
    partition_index: Int32 = 0


@struct
class QuorumTopic:
    topic_name: String = ""
    partitions: tuple[QuorumPartition, ...] = ()


@message(api_key=55, versions="0-2", flexible_from=0)
class DescribeQuorumRequest:
    """The partition `__cluster_metadata` 0."""

    topics: tuple[QuorumTopic, ...] = ()


@struct
class ReplicaState:
    """Times are in ms since 1970, -1 if unknown."""

    replica_id: Int32 = 0
    replica_directory_id: Annotated[Uuid, since(2)] = ZERO_UUID
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Annotated[Int64, since(1), ignorable] = -1
    last_caught_up_timestamp: Annotated[Int64, since(1), ignorable] = -1


@struct
class DescribedQuorumPartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, since(2), ignorable] = ""
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: tuple[ReplicaState, ...] = ()
    observers: tuple[ReplicaState, ...] = ()


@struct
class DescribedQuorumTopic:
    topic_name: String = ""
    partitions: tuple[DescribedQuorumPartition, ...] = ()


@struct
class QuorumListener:
    name: String = ""
    host: String = ""
    port: UInt16 = 0


@struct
class QuorumNode:
    node_id: Int32 = 0
    listeners: tuple[QuorumListener, ...] = ()


@message(api_key=55, versions="0-2", flexible_from=0)
class DescribeQuorumResponse:
    """The quorum as its leader knows it."""

    error_code: Int16 = 0
    error_message: Annotated[String | None, since(2), ignorable] = ""
    topics: tuple[DescribedQuorumTopic, ...] = ()
    nodes: Annotated[tuple[QuorumNode, ...], since(2)] = ()


# --------------------------------------------------------------------------------------------------
# UpdateFeatures (key 57): raise or lower the levels of features of a cluster (KIP-584).
#
# 1 replaces the permission to lower by a type and may only validate (KIP-778), 2 drops the single results.


@struct
class FeatureUpdateKey:
    feature: String = ""
    max_version_level: Int16 = 0
    allow_downgrade: Annotated[Bool, until(0)] = False
    upgrade_type: Annotated[Int8, since(1)] = 1


@message(api_key=57, versions="0-2", flexible_from=0)
class UpdateFeaturesRequest:
    """Level 0 removes a feature."""

    timeout_ms: Int32 = 60000
    feature_updates: tuple[FeatureUpdateKey, ...] = ()
    validate_only: Annotated[Bool, since(1)] = False


@struct
class UpdatableFeatureResult:
    feature: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""


@message(api_key=57, versions="0-2", flexible_from=0)
class UpdateFeaturesResponse:
    """One error code for all updates, and in older versions one for each."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    results: Annotated[tuple[UpdatableFeatureResult, ...], until(1), ignorable] = ()
