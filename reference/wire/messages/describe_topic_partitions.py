"""DescribeTopicPartitions (key 75): partitions page by page, with eligible leader replicas (KIP-966)."""

from typing import Annotated

from reference.wire.schema import ZERO_UUID, Bool, Int16, Int32, String, Uuid, ignorable, message, struct


@struct
class TopicRequest:
    name: String = ""


@struct
class DescribeTopicPartitionsRequestCursor:
    topic_name: String = ""
    partition_index: Int32 = 0


@message(api_key=75, versions="0", flexible_from=0)
class DescribeTopicPartitionsRequest:
    """Where to begin, and how many partitions to return."""

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
    """One page; `next_cursor` is null on the last."""

    throttle_time_ms: Annotated[Int32, ignorable] = 0
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = ()
    next_cursor: DescribeTopicPartitionsResponseCursor | None = None
