"""StopReplica (key 5): the controller stops, and may delete, replicas on a broker.

Only ZooKeeper-era clusters use it. 1 fences by broker epoch (KIP-380), 3 carries a leader epoch and the deletion flag
per partition (KIP-570), 4 migration to KRaft.
"""

from typing import Annotated

from reference.wire.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    String,
    ignorable,
    message,
    since,
    struct,
    until,
    versions,
)


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
    """Replicas that the receiver shall stop."""

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
