"""Invalid combinations of settings, each with its keys and a fix; a broker does not start with any of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from highwater.errors import UsageError
from highwater.reference.configuration.broker import BrokerConfig
from highwater.reference.security.mechanisms import SERVED


@dataclass(frozen=True, slots=True)
class Contradiction:
    """One invalid combination; `applies` returns whether a config has it."""

    keys: str
    applies: Callable[[BrokerConfig], bool]
    fix: str


def _positive(name: str) -> Contradiction:
    return Contradiction(name, lambda config: int(getattr(config, name)) < 1, "set it to at least 1")


def _unknown_mechanisms(config: BrokerConfig) -> bool:
    named = {*config.sasl_enabled_mechanisms, config.sasl_mechanism_inter_broker_protocol}
    return not named <= set(SERVED)


def _unusable_lifetime(config: BrokerConfig) -> bool:
    """Brokers connect to brokers without re-authentication: the followers would lose their connections."""
    lifetimes = config.connections_max_reauth_ms
    own = config.sasl_mechanism_inter_broker_protocol if config.security_protocol.startswith("SASL") else ""
    return own in lifetimes or not lifetimes.keys() <= set(SERVED) or any(ms < 1 for ms in lifetimes.values())


CONTRADICTIONS: Final = (
    *map(
        _positive,
        (
            "num_partitions", "default_replication_factor", "offsets_topic_num_partitions",
            "offsets_topic_replication_factor", "transaction_state_log_num_partitions",
            "transaction_state_log_replication_factor", "min_insync_replicas", "max_connections",
            "max_connections_per_ip", "request_timeout_ms", "connections_max_idle_ms", "log_segment_bytes",
            "log_index_interval_bytes", "replica_lag_time_max_ms", "metadata_store_session_timeout_ms",
        ),
    ),
    Contradiction(
        "min_insync_replicas > default_replication_factor",
        lambda config: config.min_insync_replicas > config.default_replication_factor,
        "acks=all would always fail on topics with the default replication factor; lower the first or raise the second",
    ),
    Contradiction(
        "group_min_session_timeout_ms > group_max_session_timeout_ms",
        lambda config: config.group_min_session_timeout_ms > config.group_max_session_timeout_ms,
        "no consumer could join a group; lower the first or raise the second",
    ),
    Contradiction(
        "replica_fetch_wait_max_ms >= replica_lag_time_max_ms",
        lambda config: config.replica_fetch_wait_max_ms >= config.replica_lag_time_max_ms,
        "followers of quiet partitions would leave the ISR during a fetch; lower the first or raise the second",
    ),
    Contradiction(
        "socket_request_max_bytes > queued_max_request_bytes",
        lambda config: config.socket_request_max_bytes > config.queued_max_request_bytes,
        "the largest request would never fit into the queue; lower the first or raise the second",
    ),
    Contradiction(
        "message_max_bytes > socket_request_max_bytes",
        lambda config: config.message_max_bytes > config.socket_request_max_bytes,
        "a batch of that size could not arrive; lower the first or raise the second",
    ),
    Contradiction(
        "message_max_bytes > log_segment_bytes",
        lambda config: config.message_max_bytes > config.log_segment_bytes,
        "a batch of that size would not fit into a segment; lower the first or raise the second",
    ),
    Contradiction("sasl_enabled_mechanisms", _unknown_mechanisms, f"known: {', '.join(SERVED)}"),
    Contradiction(
        "connections_max_reauth_ms",
        _unusable_lifetime,
        "give at least 1 ms for each mechanism, and leave out sasl_mechanism_inter_broker_protocol",
    ),
    Contradiction(
        "security_protocol",
        lambda config: config.security_protocol.startswith("SASL")
        and config.sasl_inter_broker_user not in config.sasl_users,
        "brokers log in to each other as sasl_inter_broker_user; add that user to sasl_users",
    ),
    Contradiction(
        "sasl_mechanism_inter_broker_protocol",
        lambda config: config.security_protocol.startswith("SASL")
        and config.sasl_mechanism_inter_broker_protocol not in config.sasl_enabled_mechanisms,
        "brokers could not log in to each other; add it to sasl_enabled_mechanisms",
    ),
    Contradiction(
        "security_protocol",
        lambda config: config.security_protocol.endswith("SSL") and not config.ssl_certfile,
        "TLS needs a certificate; set ssl_certfile and ssl_keyfile to PEM files",
    ),
    Contradiction(
        "metrics_port = port",
        lambda config: config.metrics_port == config.port != 0,
        "metrics need a port of their own; change one of the two",
    ),
)  # fmt: skip


def reject_contradictions(config: BrokerConfig, where: str) -> None:
    """Raise UsageError for the first contradiction that applies."""
    for contradiction in CONTRADICTIONS:
        if contradiction.applies(config):
            raise UsageError(f"these settings are invalid: {contradiction.keys}", where=where, hint=contradiction.fix)
