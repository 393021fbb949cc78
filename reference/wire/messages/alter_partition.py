"""AlterPartition (key 56): a leader asks the controller to change the ISR (KIP-497).

1 has the leader recovery state (KIP-704), 2 topic ids, 3 the broker epoch of each ISR member (KIP-903).
"""

from typing import Annotated

from reference.wire.schema import (
    ZERO_UUID,
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
