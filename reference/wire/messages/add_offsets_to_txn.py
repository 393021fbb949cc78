"""AddOffsetsToTxn (key 25): take a group's offsets into a transaction (KIP-98).

The coordinator adds the partition of `__consumer_offsets` that holds the group. 4 adds TRANSACTION_ABORTABLE (KIP-890).
"""

from reference.wire.schema import Int16, Int32, Int64, String, message


@message(api_key=25, versions="0-4", flexible_from=3)
class AddOffsetsToTxnRequest:
    """The group whose offsets are to be committed."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


@message(api_key=25, versions="0-4", flexible_from=3)
class AddOffsetsToTxnResponse:
    """The error code alone."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
