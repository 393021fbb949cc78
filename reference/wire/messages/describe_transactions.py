"""DescribeTransactions (key 65): what a transaction coordinator knows of transactions (KIP-664)."""

from reference.wire.schema import Int16, Int32, Int64, String, message, struct


@message(api_key=65, versions="0", flexible_from=0)
class DescribeTransactionsRequest:
    """By transactional id."""

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
    """State, producer and partitions of each."""

    throttle_time_ms: Int32 = 0
    transaction_states: tuple[TransactionState, ...] = ()
