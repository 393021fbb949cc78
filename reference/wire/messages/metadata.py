"""Metadata (key 3): brokers, controller, and the leader and replicas of each partition.

In 0 an empty list of topics means all; since 1 null does. 4 may forbid topic creation, 5 lists offline replicas,
7 leader epochs (KIP-320), 8 to 10 cluster authorisations, 10 topic ids (usable in requests since 12), 13 an error for
the whole reply (KIP-1102).
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
    Uuid,
    ignorable,
    message,
    nullable,
    since,
    struct,
    tagged,
    until,
    versions,
)


@struct
class MetadataRequestTopic:
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    name: Annotated[String | None, nullable(since=10)] = ""


@message(api_key=3, versions="0-13", flexible_from=9)
class MetadataRequest:
    """The topics to describe; null means all."""

    topics: Annotated[tuple[MetadataRequestTopic, ...] | None, nullable(since=1)] = ()
    allow_auto_topic_creation: Annotated[Bool, since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, versions(8, 10)] = False
    include_topic_authorized_operations: Annotated[Bool, since(8)] = False


@struct
class MetadataResponseBroker:
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, since(1), ignorable] = None


@struct
class MetadataResponsePartition:
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, since(7), ignorable] = -1
    replica_nodes: tuple[Int32, ...] = ()
    isr_nodes: tuple[Int32, ...] = ()
    offline_replicas: Annotated[tuple[Int32, ...], since(5), ignorable] = ()


@struct
class MetadataResponseTopic:
    error_code: Int16 = 0
    name: Annotated[String | None, nullable(since=12)] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    is_internal: Annotated[Bool, since(1), ignorable] = False
    partitions: tuple[MetadataResponsePartition, ...] = ()
    topic_authorized_operations: Annotated[Int32, since(8)] = -2147483648


@message(api_key=3, versions="0-13", flexible_from=9)
class MetadataResponse:
    """The cluster in the metadata cache of the broker."""

    throttle_time_ms: Annotated[Int32, since(3), ignorable] = 0
    brokers: tuple[MetadataResponseBroker, ...] = ()
    cluster_id: Annotated[String | None, since(2), ignorable] = None
    controller_id: Annotated[Int32, since(1), ignorable] = -1
    topics: tuple[MetadataResponseTopic, ...] = ()
    cluster_authorized_operations: Annotated[Int32, versions(8, 10)] = -2147483648
    error_code: Annotated[Int16, since(13), ignorable] = 0


# --------------------------------------------------------------------------------------------------
# ApiVersions (key 18): which keys and versions a broker serves (KIP-35).
#
# 3 has the client's name and the features (KIP-511, KIP-584). The response always has header version 0, because the
# client decodes it before it knows the versions; an unsupported version gets UNSUPPORTED_VERSION in version 0.


@message(api_key=18, versions="0-4", flexible_from=3)
class ApiVersionsRequest:
    """The name and version of the client software, for logs and metrics."""

    client_software_name: Annotated[String, since(3), ignorable] = ""
    client_software_version: Annotated[String, since(3), ignorable] = ""


@struct
class ApiVersion:
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


@struct
class SupportedFeatureKey:
    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


@struct
class FinalizedFeatureKey:
    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


@message(api_key=18, versions="0-4", flexible_from=3)
class ApiVersionsResponse:
    """The keys with their versions, and the features of the cluster."""

    error_code: Int16 = 0
    api_keys: tuple[ApiVersion, ...] = ()
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    supported_features: Annotated[tuple[SupportedFeatureKey, ...], tagged(0, since=3), ignorable] = ()
    finalized_features_epoch: Annotated[Int64, tagged(1, since=3), ignorable] = -1
    finalized_features: Annotated[tuple[FinalizedFeatureKey, ...], tagged(2, since=3), ignorable] = ()
    zk_migration_ready: Annotated[Bool, tagged(3, since=3), ignorable] = False


# --------------------------------------------------------------------------------------------------
# DescribeCluster (key 60): brokers and controller (KIP-700); 1 chooses the kind of end point (KIP-919), 2 shows fenced
# brokers.


@message(api_key=60, versions="0-2", flexible_from=0)
class DescribeClusterRequest:
    """Options of the description."""

    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, since(1)] = 1
    include_fenced_brokers: Annotated[Bool, since(2)] = False


@struct
class DescribeClusterBroker:
    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None
    is_fenced: Annotated[Bool, since(2)] = False


@message(api_key=60, versions="0-2", flexible_from=0)
class DescribeClusterResponse:
    """The brokers."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Annotated[Int8, since(1)] = 1
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: tuple[DescribeClusterBroker, ...] = ()
    cluster_authorized_operations: Int32 = -2147483648


# --------------------------------------------------------------------------------------------------
# DescribeTopicPartitions (key 75): partitions page by page, with eligible leader replicas (KIP-966).


@struct
class TopicRequest:
    name: String = ""


@struct
class DescribeTopicPartitionsRequestCursor:
    topic_name: String = ""
    partition_index: Int32 = 0


@message(api_key=75, versions="0", flexible_from=0)
class DescribeTopicPartitionsRequest:
    """The first partition, and the maximum number of partitions to return."""

    topics: tuple[TopicRequest, ...] = ()
    response_partition_limit: Int32 = 2000
    cursor: DescribeTopicPartitionsRequestCursor | None = None


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, ignorable] = -1
    replica_nodes: tuple[Int32, ...] = ()
    isr_nodes: tuple[Int32, ...] = ()
    eligible_leader_replicas: tuple[Int32, ...] | None = None
    last_known_elr: tuple[Int32, ...] | None = None
    offline_replicas: Annotated[tuple[Int32, ...], ignorable] = ()


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: Int16 = 0
    name: String | None = ""
    topic_id: Annotated[Uuid, ignorable] = ZERO_UUID
    is_internal: Annotated[Bool, ignorable] = False
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = ()
    topic_authorized_operations: Int32 = -2147483648


@struct
class DescribeTopicPartitionsResponseCursor:
    topic_name: String = ""
    partition_index: Int32 = 0


@message(api_key=75, versions="0", flexible_from=0)
class DescribeTopicPartitionsResponse:
    """One page; `next_cursor` is null on the last one."""

    throttle_time_ms: Annotated[Int32, ignorable] = 0
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = ()
    next_cursor: DescribeTopicPartitionsResponseCursor | None = None


# --------------------------------------------------------------------------------------------------
# FindCoordinator (key 10): return the coordinator of a group, transactional id or share group.
#
# 1 has key types, 4 several keys (KIP-699), 6 share groups (KIP-932).


@message(api_key=10, versions="0-6", flexible_from=3)
class FindCoordinatorRequest:
    """One key up to 3, `coordinator_keys` since 4."""

    key: Annotated[String, until(3)] = ""
    key_type: Annotated[Int8, since(1)] = 0
    coordinator_keys: Annotated[tuple[String, ...], since(4)] = ()


@struct
class Coordinator:
    key: String = ""
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, ignorable] = ""


@message(api_key=10, versions="0-6", flexible_from=3)
class FindCoordinatorResponse:
    """One coordinator in top-level fields up to 3, `coordinators` since 4."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Annotated[Int16, until(3)] = 0
    error_message: Annotated[String | None, versions(1, 3), ignorable] = ""
    node_id: Annotated[Int32, until(3)] = 0
    host: Annotated[String, until(3)] = ""
    port: Annotated[Int32, until(3)] = 0
    coordinators: Annotated[tuple[Coordinator, ...], since(4)] = ()
