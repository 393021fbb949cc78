"""EndTxn (key 26): commit or abort a transaction (KIP-98).

5 answers with the epoch to go on with: each end of a transaction bumps it (KIP-890).
"""

from typing import Annotated

from reference.wire.schema import Bool, Int16, Int32, Int64, String, ignorable, message, since


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
