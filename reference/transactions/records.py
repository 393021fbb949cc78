"""Encode and decode records of `__transaction_state` in Apache Kafka's format: an int16 version, then the fields."""

from typing import Annotated

from highwater.reference.groups.records import pack
from highwater.reference.transactions.states import BY_ID, IDS, TransactionState
from highwater.reference.transactions.transaction import Transaction
from highwater.reference.wire.codec import decode
from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.schema import Int8, Int16, Int32, Int64, String, message, struct, tagged

KEY_VERSION = 0
VALUE_VERSION = 1


@message(versions="0-0")
class TransactionLogKey:
    transactional_id: String = ""


@struct
class PartitionsSchema:
    topic: String = ""
    partition_ids: tuple[Int32, ...] = ()


@message(versions="0-1", flexible_from=1)
class TransactionLogValue:
    producer_id: Int64 = 0
    previous_producer_id: Annotated[Int64, tagged(0, since=1)] = -1
    next_producer_id: Annotated[Int64, tagged(1, since=1)] = -1
    producer_epoch: Int16 = 0
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: tuple[PartitionsSchema, ...] | None = ()
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: Annotated[Int16, tagged(2, since=1)] = 0


def pack_key(transactional_id: str) -> bytes:
    return pack(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


def pack_value(transaction: Transaction) -> bytes:
    empty = transaction.state is TransactionState.EMPTY
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=IDS[transaction.state],
        transaction_partitions=None
        if empty
        else tuple(
            PartitionsSchema(topic=topic, partition_ids=tuple(numbers))
            for topic, numbers in transaction.by_topic.items()
        ),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
    )
    return pack(value, VALUE_VERSION)


def unpack_key(data: bytes) -> str | None:
    """Return the transactional id, or None for an unknown key version, which the caller skips."""
    version = int.from_bytes(data[:2], "big")
    return decode(TransactionLogKey, version, data[2:]).transactional_id if version == KEY_VERSION else None


def unpack_value(transactional_id: str, data: bytes) -> Transaction:
    """Return the transaction; raise DecodeError for malformed bytes or an unknown state."""
    value = decode(TransactionLogValue, int.from_bytes(data[:2], "big"), data[2:])
    if value.transaction_status not in BY_ID:
        raise DecodeError(f"transaction {transactional_id} has the unknown state {value.transaction_status}")
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=BY_ID[value.transaction_status],
        partitions=frozenset(
            (entry.topic, number) for entry in value.transaction_partitions or () for number in entry.partition_ids
        ),
        updated_ms=value.transaction_last_update_timestamp_ms,
        started_ms=value.transaction_start_timestamp_ms,
        client_version=value.client_transaction_version,
    )
