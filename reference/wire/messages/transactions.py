"""InitProducerId (key 22): get a producer id and epoch, and fence earlier ones (KIP-98).

3 lets a producer bump its own epoch (KIP-360), 6 takes part in two-phase commits (KIP-939). This broker offers
versions up to 5, as Apache Kafka 4.3.1 does by default.
"""

from typing import Annotated

from highwater.reference.wire.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    ignorable,
    message,
    since,
    struct,
    until,
)


@message(api_key=22, versions="0-6", flexible_from=2)
class InitProducerIdRequest:
    """A null `transactional_id` requests an id for a producer that is only idempotent."""

    transactional_id: String | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, since(3)] = -1
    producer_epoch: Annotated[Int16, since(3)] = -1
    enable2_pc: Annotated[Bool, since(6)] = False
    keep_prepared_txn: Annotated[Bool, since(6)] = False


@message(api_key=22, versions="0-6", flexible_from=2)
class InitProducerIdResponse:
    """The producer id and epoch."""

    throttle_time_ms: Annotated[Int32, ignorable] = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Annotated[Int64, since(6)] = -1
    ongoing_txn_producer_epoch: Annotated[Int16, since(6)] = -1


# --------------------------------------------------------------------------------------------------
# AddOffsetsToTxn (key 25): add a group's offsets to a transaction (KIP-98).
#
# The coordinator adds the group's partition of `__consumer_offsets`. 4 adds TRANSACTION_ABORTABLE (KIP-890).


@message(api_key=25, versions="0-4", flexible_from=3)
class AddOffsetsToTxnRequest:
    """The group whose offsets are to be committed."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


@message(api_key=25, versions="0-4", flexible_from=3)
class AddOffsetsToTxnResponse:
    """Only an error code."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


# --------------------------------------------------------------------------------------------------
# AddPartitionsToTxn (key 24): add partitions to a transaction before writing to them (KIP-98).
#
# 4 is for brokers: several transactions, and verification only (KIP-890); 5 adds TRANSACTION_ABORTABLE.


@struct
class AddPartitionsToTxnTopic:
    name: String = ""
    partitions: tuple[Int32, ...] = ()


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: Annotated[String, since(4)] = ""
    producer_id: Annotated[Int64, since(4)] = 0
    producer_epoch: Annotated[Int16, since(4)] = 0
    verify_only: Annotated[Bool, since(4)] = False
    topics: Annotated[tuple[AddPartitionsToTxnTopic, ...], since(4)] = ()


@message(api_key=24, versions="0-5", flexible_from=3)
class AddPartitionsToTxnRequest:
    """One transaction in top-level fields up to 3, `transactions` since 4."""

    transactions: Annotated[tuple[AddPartitionsToTxnTransaction, ...], since(4)] = ()
    v3_and_below_transactional_id: Annotated[String, until(3)] = ""
    v3_and_below_producer_id: Annotated[Int64, until(3)] = 0
    v3_and_below_producer_epoch: Annotated[Int16, until(3)] = 0
    v3_and_below_topics: Annotated[tuple[AddPartitionsToTxnTopic, ...], until(3)] = ()


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


@struct
class AddPartitionsToTxnTopicResult:
    name: String = ""
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = ()


@struct
class AddPartitionsToTxnResult:
    transactional_id: Annotated[String, since(4)] = ""
    topic_results: Annotated[tuple[AddPartitionsToTxnTopicResult, ...], since(4)] = ()


@message(api_key=24, versions="0-5", flexible_from=3)
class AddPartitionsToTxnResponse:
    """One error code for each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(4), ignorable] = 0
    results_by_transaction: Annotated[tuple[AddPartitionsToTxnResult, ...], since(4)] = ()
    results_by_topic_v3_and_below: Annotated[tuple[AddPartitionsToTxnTopicResult, ...], until(3)] = ()


# --------------------------------------------------------------------------------------------------
# DescribeProducers (key 61): the producer states of a partition's leader (KIP-664).


@struct
class TopicRequest:
    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


@message(api_key=61, versions="0", flexible_from=0)
class DescribeProducersRequest:
    """The partitions to describe."""

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


# --------------------------------------------------------------------------------------------------
# DescribeTransactions (key 65): the transaction states of a coordinator (KIP-664).


@message(api_key=65, versions="0", flexible_from=0)
class DescribeTransactionsRequest:
    """The transactional ids to describe."""

    transactional_ids: tuple[String, ...] = ()


@struct
class TopicData:
    topic: String = ""
    partitions: tuple[Int32, ...] = ()


@struct
class TransactionState:
    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: tuple[TopicData, ...] = ()


@message(api_key=65, versions="0", flexible_from=0)
class DescribeTransactionsResponse:
    """State, producer and partitions of each transaction."""

    throttle_time_ms: Int32 = 0
    transaction_states: tuple[TransactionState, ...] = ()


# --------------------------------------------------------------------------------------------------
# EndTxn (key 26): commit or abort a transaction (KIP-98).
#
# 5 returns the new producer epoch: every end of a transaction increments it (KIP-890).


@message(api_key=26, versions="0-5", flexible_from=3)
class EndTxnRequest:
    """`committed` is False for an abort."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False


@message(api_key=26, versions="0-5", flexible_from=3)
class EndTxnResponse:
    """Since 5 the producer id and epoch of the next transaction."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, since(5), ignorable] = -1
    producer_epoch: Annotated[Int16, since(5), ignorable] = -1


# --------------------------------------------------------------------------------------------------
# ListTransactions (key 66): the transactions of a coordinator (KIP-664).
#
# 1 filters by duration (KIP-994), 2 by a pattern of ids (KIP-1152).


@message(api_key=66, versions="0-2", flexible_from=0)
class ListTransactionsRequest:
    """The filters; an empty filter matches all."""

    state_filters: tuple[String, ...] = ()
    producer_id_filters: tuple[Int64, ...] = ()
    duration_filter: Annotated[Int64, since(1)] = -1
    transactional_id_pattern: Annotated[String | None, since(2)] = None


@struct
class ListedTransactionState:
    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


@message(api_key=66, versions="0-2", flexible_from=0)
class ListTransactionsResponse:
    """Id, producer id and state of each transaction, and the unknown states of the filter."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: tuple[String, ...] = ()
    transaction_states: tuple[ListedTransactionState, ...] = ()


# --------------------------------------------------------------------------------------------------
# TxnOffsetCommit (key 28): commit offsets as part of a transaction (KIP-98).
#
# 3 is fenced by the group's generation and member (KIP-447), 5 adds the group to the transaction (KIP-890).


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, since(2), ignorable] = -1
    committed_metadata: String | None = ""


@struct
class TxnOffsetCommitRequestTopic:
    name: String = ""
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = ()


@message(api_key=28, versions="0-5", flexible_from=3)
class TxnOffsetCommitRequest:
    """The offsets take effect when the transaction commits."""

    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Annotated[Int32, since(3)] = -1
    member_id: Annotated[String, since(3)] = ""
    group_instance_id: Annotated[String | None, since(3)] = None
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = ()


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class TxnOffsetCommitResponseTopic:
    name: String = ""
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = ()


@message(api_key=28, versions="0-5", flexible_from=3)
class TxnOffsetCommitResponse:
    """One error code for each partition."""

    throttle_time_ms: Int32 = 0
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = ()


# --------------------------------------------------------------------------------------------------
# WriteTxnMarkers (key 27): a transaction coordinator sends commit and abort markers to leaders (KIP-98).
#
# 1 is flexible, 2 has the transaction version (KIP-1228).


@struct
class WritableTxnMarkerTopic:
    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


@struct
class WritableTxnMarker:
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False
    topics: tuple[WritableTxnMarkerTopic, ...] = ()
    coordinator_epoch: Int32 = 0
    transaction_version: Annotated[Int8, since(2), ignorable] = 0


@message(api_key=27, versions="0-2", flexible_from=1)
class WriteTxnMarkersRequest:
    """The transactions with their results and partitions."""

    markers: tuple[WritableTxnMarker, ...] = ()


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class WritableTxnMarkerTopicResult:
    name: String = ""
    partitions: tuple[WritableTxnMarkerPartitionResult, ...] = ()


@struct
class WritableTxnMarkerResult:
    producer_id: Int64 = 0
    topics: tuple[WritableTxnMarkerTopicResult, ...] = ()


@message(api_key=27, versions="0-2", flexible_from=1)
class WriteTxnMarkersResponse:
    """One error code for each partition of each transaction."""

    markers: tuple[WritableTxnMarkerResult, ...] = ()
