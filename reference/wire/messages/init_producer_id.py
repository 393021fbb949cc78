"""InitProducerId (key 22): get a producer id and epoch, and fence earlier ones (KIP-98).

3 lets a producer bump its own epoch (KIP-360), 6 takes part in two-phase commits (KIP-939).
"""

from typing import Annotated

from reference.wire.schema import Bool, Int16, Int32, Int64, String, ignorable, message, since


@message(api_key=22, versions="0-6", flexible_from=2)
class InitProducerIdRequest:
    """Null `transactional_id` is a producer that is idempotent only."""

    transactional_id: String | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, since(3)] = -1
    producer_epoch: Annotated[Int16, since(3)] = -1
    enable2_pc: Annotated[Bool, since(6)] = False
    keep_prepared_txn: Annotated[Bool, since(6)] = False


@message(api_key=22, versions="0-6", flexible_from=2)
class InitProducerIdResponse:
    """The id and epoch to write with."""

    throttle_time_ms: Annotated[Int32, ignorable] = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Annotated[Int64, since(6)] = -1
    ongoing_txn_producer_epoch: Annotated[Int16, since(6)] = -1
