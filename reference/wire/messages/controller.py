"""LeaderAndIsr (key 4): the controller makes replicas leaders and followers.

Only ZooKeeper-era clusters use it. 2 groups by topic and fences by broker epoch (KIP-380), 3 carries a reassignment
(KIP-455), 5 topic ids and the request type (KIP-516), 6 the leader recovery state (KIP-704), 7 migration to KRaft.
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
    since,
    struct,
    tagged,
    until,
    versions,
)


@struct
class LeaderAndIsrPartitionState:
    topic_name: Annotated[String, until(1), ignorable] = ""
    partition_index: Int32 = 0
    controller_epoch: Int32 = 0
    leader: Int32 = 0
    leader_epoch: Int32 = 0
    isr: tuple[Int32, ...] = ()
    partition_epoch: Int32 = 0
    replicas: tuple[Int32, ...] = ()
    adding_replicas: Annotated[tuple[Int32, ...], since(3), ignorable] = ()
    removing_replicas: Annotated[tuple[Int32, ...], since(3), ignorable] = ()
    is_new: Annotated[Bool, since(1), ignorable] = False
    leader_recovery_state: Annotated[Int8, since(6)] = 0


@struct
class LeaderAndIsrTopicState:
    topic_name: String = ""
    topic_id: Annotated[Uuid, since(5), ignorable] = ZERO_UUID
    partition_states: tuple[LeaderAndIsrPartitionState, ...] = ()


@struct
class LeaderAndIsrLiveLeader:
    broker_id: Int32 = 0
    host_name: String = ""
    port: Int32 = 0


@message(api_key=4, versions="0-7", flexible_from=4)
class LeaderAndIsrRequest:
    """Leader, ISR and replicas for each partition on the receiver."""

    controller_id: Int32 = 0
    is_kraft_controller: Annotated[Bool, since(7)] = False
    controller_epoch: Int32 = 0
    broker_epoch: Annotated[Int64, since(2), ignorable] = -1
    type: Annotated[Int8, since(5)] = 0
    ungrouped_partition_states: Annotated[tuple[LeaderAndIsrPartitionState, ...], until(1)] = ()
    topic_states: Annotated[tuple[LeaderAndIsrTopicState, ...], since(2)] = ()
    live_leaders: tuple[LeaderAndIsrLiveLeader, ...] = ()


@struct
class LeaderAndIsrPartitionError:
    topic_name: Annotated[String, until(4), ignorable] = ""
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class LeaderAndIsrTopicError:
    topic_id: Uuid = ZERO_UUID
    partition_errors: tuple[LeaderAndIsrPartitionError, ...] = ()


@message(api_key=4, versions="0-7", flexible_from=4)
class LeaderAndIsrResponse:
    """One error code for each partition."""

    error_code: Int16 = 0
    partition_errors: Annotated[tuple[LeaderAndIsrPartitionError, ...], until(4)] = ()
    topics: Annotated[tuple[LeaderAndIsrTopicError, ...], since(5)] = ()


# --------------------------------------------------------------------------------------------------
# AlterPartition (key 56): a leader asks the controller to change the ISR (KIP-497).
#
# 1 has the leader recovery state (KIP-704), 2 topic ids, 3 the broker epoch of each ISR member (KIP-903).


@struct
class BrokerState:
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


@struct
class AlterPartitionRequestPartitionData:
    partition_index: Int32 = 0
    leader_epoch: Int32 = 0
    new_isr: Annotated[tuple[Int32, ...], until(2)] = ()
    new_isr_with_epochs: Annotated[tuple[BrokerState, ...], since(3)] = ()
    leader_recovery_state: Annotated[Int8, since(1)] = 0
    partition_epoch: Int32 = 0


@struct
class AlterPartitionRequestTopicData:
    topic_name: Annotated[String, until(1), ignorable] = ""
    topic_id: Annotated[Uuid, since(2), ignorable] = ZERO_UUID
    partitions: tuple[AlterPartitionRequestPartitionData, ...] = ()


@message(api_key=56, versions="0-3", flexible_from=0)
class AlterPartitionRequest:
    """The leader's proposals, each fenced by leader epoch and partition epoch."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topics: tuple[AlterPartitionRequestTopicData, ...] = ()


@struct
class AlterPartitionResponsePartitionData:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: tuple[Int32, ...] = ()
    leader_recovery_state: Annotated[Int8, since(1), ignorable] = 0
    partition_epoch: Int32 = 0


@struct
class AlterPartitionResponseTopicData:
    topic_name: Annotated[String, until(1), ignorable] = ""
    topic_id: Annotated[Uuid, since(2), ignorable] = ZERO_UUID
    partitions: tuple[AlterPartitionResponsePartitionData, ...] = ()


@message(api_key=56, versions="0-3", flexible_from=0)
class AlterPartitionResponse:
    """What the controller committed."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: tuple[AlterPartitionResponseTopicData, ...] = ()


# --------------------------------------------------------------------------------------------------
# ControlledShutdown (key 7): a broker asks the controller to move its leaders away.
#
# 2 carries the broker epoch (KIP-380). Version 0 is the only request with header version 0, which has no client id.


@message(api_key=7, versions="0-3", flexible_from=3)
class ControlledShutdownRequest:
    """The broker that wants to stop."""

    broker_id: Int32 = 0
    broker_epoch: Annotated[Int64, since(2), ignorable] = -1


@struct
class RemainingPartition:
    topic_name: String = ""
    partition_index: Int32 = 0


@message(api_key=7, versions="0-3", flexible_from=3)
class ControlledShutdownResponse:
    """The partitions that the broker still leads; empty if it may stop."""

    error_code: Int16 = 0
    remaining_partitions: tuple[RemainingPartition, ...] = ()


# --------------------------------------------------------------------------------------------------
# StopReplica (key 5): the controller stops, and may delete, replicas on a broker.
#
# Only ZooKeeper-era clusters use it. 1 fences by broker epoch (KIP-380), 3 carries a leader epoch and the deletion flag
# per partition (KIP-570), 4 migration to KRaft.


@struct
class StopReplicaPartitionV0:
    topic_name: String = ""
    partition_index: Int32 = 0


@struct
class StopReplicaTopicV1:
    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


@struct
class StopReplicaPartitionState:
    partition_index: Int32 = 0
    leader_epoch: Int32 = -1
    delete_partition: Bool = False


@struct
class StopReplicaTopicState:
    topic_name: String = ""
    partition_states: tuple[StopReplicaPartitionState, ...] = ()


@message(api_key=5, versions="0-4", flexible_from=2)
class StopReplicaRequest:
    """The replicas that the receiver must stop."""

    controller_id: Int32 = 0
    is_kraft_controller: Annotated[Bool, since(4)] = False
    controller_epoch: Int32 = 0
    broker_epoch: Annotated[Int64, since(1), ignorable] = -1
    delete_partitions: Annotated[Bool, until(2)] = False
    ungrouped_partitions: Annotated[tuple[StopReplicaPartitionV0, ...], until(0)] = ()
    topics: Annotated[tuple[StopReplicaTopicV1, ...], versions(1, 2)] = ()
    topic_states: Annotated[tuple[StopReplicaTopicState, ...], since(3)] = ()


@struct
class StopReplicaPartitionError:
    topic_name: String = ""
    partition_index: Int32 = 0
    error_code: Int16 = 0


@message(api_key=5, versions="0-4", flexible_from=2)
class StopReplicaResponse:
    """One error code for each partition."""

    error_code: Int16 = 0
    partition_errors: tuple[StopReplicaPartitionError, ...] = ()


# --------------------------------------------------------------------------------------------------
# UpdateMetadata (key 6): the controller updates the metadata cache of a broker, which answers Metadata requests.
#
# Only ZooKeeper-era clusters use it. 1 lists end points, 2 racks, 4 offline replicas, 5 groups by topic and fences by
# broker epoch (KIP-380), 7 topic ids, 8 migration to KRaft.


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
    """Partition states and live brokers for the cache."""

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
