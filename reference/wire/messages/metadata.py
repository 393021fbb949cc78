"""Metadata (key 3): brokers, controller, and the leader and replicas of each partition.

In 0 an empty list of topics means all; since 1 null does. 4 may forbid topic creation, 5 lists offline replicas,
7 leader epochs (KIP-320), 8 to 10 cluster authorisations, 10 topic ids (usable in requests since 12), 13 an error for
the whole reply (KIP-1102).
"""

from typing import Annotated

from reference.wire.schema import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    String,
    Uuid,
    ignorable,
    message,
    nullable,
    since,
    struct,
    versions,
)


@struct
class MetadataRequestTopic:
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_UUID
    name: Annotated[String | None, nullable(since=10)] = ""


@message(api_key=3, versions="0-13", flexible_from=9)
class MetadataRequest:
    """Which topics to describe."""

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
    """The cluster as this broker knows it."""

    throttle_time_ms: Annotated[Int32, since(3), ignorable] = 0
    brokers: tuple[MetadataResponseBroker, ...] = ()
    cluster_id: Annotated[String | None, since(2), ignorable] = None
    controller_id: Annotated[Int32, since(1), ignorable] = -1
    topics: tuple[MetadataResponseTopic, ...] = ()
    cluster_authorized_operations: Annotated[Int32, versions(8, 10)] = -2147483648
    error_code: Annotated[Int16, since(13), ignorable] = 0
