"""DescribeProducers (key 61): the producers that a partition's leader remembers (KIP-664)."""

from reference.wire.schema import Int16, Int32, Int64, String, message, struct


@struct
class TopicRequest:
    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


@message(api_key=61, versions="0", flexible_from=0)
class DescribeProducersRequest:
    """The partitions to look at."""

    topics: tuple[TopicRequest, ...] = ()


@struct
class ProducerState:
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


@struct
class PartitionResponse:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    active_producers: tuple[ProducerState, ...] = ()


@struct
class TopicResponse:
    name: String = ""
    partitions: tuple[PartitionResponse, ...] = ()


@message(api_key=61, versions="0", flexible_from=0)
class DescribeProducersResponse:
    """Sequences, epochs and open transactions of the producers."""

    throttle_time_ms: Int32 = 0
    topics: tuple[TopicResponse, ...] = ()
