"""The settings of this broker as DescribeConfigs tells them: read-only here, by Apache Kafka's names."""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from reference.config import BrokerConfig
from reference.topic_values import Type

# What Apache Kafka calls otherwise; None: it has no such setting, or it is a secret.
RENAMED: Final[dict[str, str | None]] = {
    "metadata_store": "zookeeper.connect",
    "metadata_store_session_timeout_ms": "zookeeper.session.timeout.ms",
    "leader_imbalance_check_interval_ms": None,  # Kafka counts it in seconds
    "replica_selector": "replica.selector.class",
    **dict.fromkeys(("host", "port", "advertised_port", "cluster_id", "truncation", "isr_update", "isr_lag")),
    **dict.fromkeys(("guards_off", "metrics_port", "log_format", "sasl_users", "sasl_inter_broker_user")),
    **dict.fromkeys(("ssl_certfile", "ssl_keyfile", "ssl_cafile")),
}
TYPES: Final[dict[type, Type]] = {bool: Type.BOOLEAN, int: Type.LONG, float: Type.DOUBLE, tuple: Type.LIST}


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """`given`: the configuration file says it, or the command that started the broker."""

    value: str
    type: Type
    given: bool


def broker_settings(config: BrokerConfig) -> dict[str, BrokerSetting]:
    listener = f"{config.security_protocol}://{config.host}"
    found = {
        "listeners": BrokerSetting(f"{listener}:{config.port}", Type.LIST, given=True),
        "advertised.listeners": BrokerSetting(
            f"{listener}:{config.advertised_port or config.port}", Type.LIST, given=True
        ),
    }
    for field in msgspec.structs.fields(BrokerConfig):
        name = RENAMED.get(field.name, field.name.replace("_", "."))
        if name is not None:
            value = getattr(config, field.name)
            kind = TYPES.get(type(value), Type.STRING)
            found[name] = BrokerSetting(_text(value), kind, given=value != field.default)
    return dict(sorted(found.items()))


def _text(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(value)
        case None:
            return ""
    return str(value)
