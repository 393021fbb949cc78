"""Produce (key 0): append record batches to partitions.

0-1 carry message sets v0, 2 message sets v1, 3 and later record batches v2 (KIP-98). 5 returns the log start offset,
8 per-record errors (KIP-467), 10 the new leader (KIP-951), 12 adds partitions to a transaction (KIP-890), 13 names
topics by id (KIP-516).
"""

from typing import Annotated

from highwater.reference.wire.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Records,
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
class PartitionProduceData:
    index: Int32 = 0
    records: Records | None = b""


@struct
class TopicProduceData:
    name: Annotated[String, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO_UUID
    partition_data: tuple[PartitionProduceData, ...] = ()


@message(api_key=0, versions="0-13", flexible_from=9)
class ProduceRequest:
    """Batches for the leaders on one broker. With `acks` 0 there is no response."""

    transactional_id: Annotated[String | None, since(3)] = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: tuple[TopicProduceData, ...] = ()


@struct
class BatchIndexAndErrorMessage:
    batch_index: Int32 = 0
    batch_index_error_message: String | None = None


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@struct
class PartitionProduceResponse:
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Annotated[Int64, since(2), ignorable] = -1
    log_start_offset: Annotated[Int64, since(5), ignorable] = -1
    record_errors: Annotated[tuple[BatchIndexAndErrorMessage, ...], since(8), ignorable] = ()
    error_message: Annotated[String | None, since(8), ignorable] = None
    current_leader: Annotated[LeaderIdAndEpoch, tagged(0, since=10)] = LeaderIdAndEpoch()


@struct
class TopicProduceResponse:
    name: Annotated[String, until(12), ignorable] = ""
    topic_id: Annotated[Uuid, since(13), ignorable] = ZERO_UUID
    partition_responses: tuple[PartitionProduceResponse, ...] = ()


@struct
class NodeEndpoint:
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


@message(api_key=0, versions="0-13", flexible_from=9)
class ProduceResponse:
    """The base offset of each batch, or its error."""

    responses: tuple[TopicProduceResponse, ...] = ()
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], tagged(0, since=10)] = ()
