"""UpdateMetadata (key 6): the controller tells a broker what to answer to Metadata.

Only ZooKeeper-era clusters use it. 1 lists end points, 2 racks, 4 offline replicas, 5 groups by topic and fences by
broker epoch (KIP-380), 7 topic ids, 8 migration to KRaft.
"""

from typing import Annotated

from reference.wire.schema import (
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
    since,
    struct,
    tagged,
    until,
)


@struct
class UpdateMetadataPartitionState:
    topic_name: Annotated[String, until(4), ignorable] = ""
    partition_index: Int32 = 0
    controller_epoch: Int32 = 0
    leader: Int32 = 0
    leader_epoch: Int32 = 0
    isr: tuple[Int32, ...] = ()
    zk_version: Int32 = 0
    replicas: tuple[Int32, ...] = ()
    offline_replicas: Annotated[tuple[Int32, ...], since(4), ignorable] = ()


@struct
class UpdateMetadataTopicState:
    topic_name: String = ""
    topic_id: Annotated[Uuid, since(7), ignorable] = ZERO_UUID
    partition_states: tuple[UpdateMetadataPartitionState, ...] = ()


@struct
class UpdateMetadataEndpoint:
    port: Int32 = 0
    host: String = ""
    listener: Annotated[String, since(3), ignorable] = ""
    security_protocol: Int16 = 0


@struct
class UpdateMetadataBroker:
    id: Int32 = 0
    v0_host: Annotated[String, until(0), ignorable] = ""
    v0_port: Annotated[Int32, until(0), ignorable] = 0
    endpoints: Annotated[tuple[UpdateMetadataEndpoint, ...], since(1), ignorable] = ()
    rack: Annotated[String | None, since(2), ignorable] = ""


@message(api_key=6, versions="0-8", flexible_from=6)
class UpdateMetadataRequest:
    """Partition states and live brokers, to be cached."""

    controller_id: Int32 = 0
    is_kraft_controller: Annotated[Bool, since(8)] = False
    type: Annotated[Int8, tagged(0, since=8)] = 0
    controller_epoch: Int32 = 0
    broker_epoch: Annotated[Int64, since(5), ignorable] = -1
    ungrouped_partition_states: Annotated[tuple[UpdateMetadataPartitionState, ...], until(4)] = ()
    topic_states: Annotated[tuple[UpdateMetadataTopicState, ...], since(5)] = ()
    live_brokers: tuple[UpdateMetadataBroker, ...] = ()


@message(api_key=6, versions="0-8", flexible_from=6)
class UpdateMetadataResponse:
    """Whether the cache was updated."""

    error_code: Int16 = 0
