"""LeaderAndIsr (key 4): the controller makes replicas leaders and followers.

Only ZooKeeper-era clusters use it. 2 groups by topic and fences by broker epoch (KIP-380), 3 carries a reassignment
(KIP-455), 5 topic ids and the request type (KIP-516), 6 the leader recovery state (KIP-704), 7 migration to KRaft.
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
    until,
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
