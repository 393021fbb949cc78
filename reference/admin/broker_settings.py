"""The configs of this broker as DescribeConfigs returns them: read-only, under the names of Apache Kafka."""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from highwater.reference.configuration.broker import BrokerConfig
from highwater.reference.configuration.topic_values import Type

# The name in Apache Kafka where it differs; None if Kafka has no such config, or if the value is secret.
KAFKA_NAMES: Final[dict[str, str | None]] = {
    "metadata_store": "zookeeper.connect",
    "metadata_store_session_timeout_ms": "zookeeper.session.timeout.ms",
    "leader_imbalance_check_interval_ms": None,  # Apache Kafka uses seconds
    "replica_selector": "replica.selector.class",
    **dict.fromkeys(("host", "port", "advertised_port", "cluster_id", "truncation", "isr_update", "isr_lag")),
    **dict.fromkeys(("guards_off", "metrics_port", "log_format", "sasl_users", "sasl_inter_broker_user")),
    **dict.fromkeys(("ssl_certfile", "ssl_keyfile", "ssl_cafile")),
}
TYPES: Final[dict[type, Type]] = {bool: Type.BOOLEAN, int: Type.LONG, float: Type.DOUBLE, tuple: Type.LIST}


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """One config; `configured`: set in the config file or on the command line of the broker."""

    value: str
    type: Type
    configured: bool


def broker_settings(config: BrokerConfig) -> dict[str, BrokerSetting]:
    """Return the configs of the broker by name, sorted."""
    listener = f"{config.security_protocol}://{config.host}"
    settings = {
        "listeners": BrokerSetting(f"{listener}:{config.port}", Type.LIST, configured=True),
        "advertised.listeners": BrokerSetting(
            f"{listener}:{config.advertised_port or config.port}", Type.LIST, configured=True
        ),
    }
    for field in msgspec.structs.fields(BrokerConfig):
        name = KAFKA_NAMES.get(field.name, field.name.replace("_", "."))
        if name is not None:
            value = getattr(config, field.name)
            kind = TYPES.get(type(value), Type.STRING)
            settings[name] = BrokerSetting(_text(value), kind, configured=value != field.default)
    return dict(sorted(settings.items()))


def _text(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(value)
        case None:
            return ""
    return str(value)
