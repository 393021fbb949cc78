"""ListTransactions (key 66): the transactions of a coordinator (KIP-664).

1 filters by duration (KIP-994), 2 by a pattern of ids (KIP-1152).
"""

from typing import Annotated

from reference.wire.schema import Int16, Int32, Int64, String, message, since, struct


@message(api_key=66, versions="0-2", flexible_from=0)
class ListTransactionsRequest:
    """Filters; empty ones let all pass."""

    state_filters: tuple[String, ...] = ()
    producer_id_filters: tuple[Int64, ...] = ()
    duration_filter: Annotated[Int64, since(1)] = -1
    transactional_id_pattern: Annotated[String | None, since(2)] = None


@struct
class TransactionState:
    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


@message(api_key=66, versions="0-2", flexible_from=0)
class ListTransactionsResponse:
    """Id, producer id and state of each, and the states that are unknown here."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: tuple[String, ...] = ()
    transaction_states: tuple[TransactionState, ...] = ()
