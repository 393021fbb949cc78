"""AddPartitionsToTxn (key 24): take partitions into a transaction before writing to them (KIP-98).

4 takes many transactions at once and can only verify (KIP-890): brokers ask so; 5 adds TRANSACTION_ABORTABLE.
"""

from typing import Annotated

from reference.wire.schema import Bool, Int16, Int32, Int64, String, ignorable, message, since, struct, until


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
    """One transaction up to 3 in line, `transactions` since 4."""

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
