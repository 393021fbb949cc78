"""What the launchers set, so that time-outs show within seconds, and what cases then take their deadlines from."""

from collections.abc import Mapping
from typing import Final

QUICK_SETTINGS: Final[Mapping[str, int]] = {
    "group_min_session_timeout_ms": 500,
    "group_max_session_timeout_ms": 60_000,
    "group_max_size": 4,
    "log_cleaner_backoff_ms": 200,
    "replica_lag_time_max_ms": 2_000,
    "message_max_bytes": 1_048_588,
    "offset_metadata_max_bytes": 4_096,
    "transaction_max_timeout_ms": 900_000,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 1_000,
}
"""Kafka's names with underscores, as the reference has them."""
