"""The configs of this broker as DescribeConfigs returns them, under the names of Apache Kafka (KIP-226)."""

from dataclasses import dataclass
from typing import Final

import msgspec

from highwater.reference.configuration.broker import BrokerConfig
from highwater.reference.configuration.broker_values import DYNAMIC
from highwater.reference.configuration.brokers import BrokerConfigs, ConfigSource, Layer, as_text
from highwater.reference.configuration.topic_values import Type

# The name in Apache Kafka where it differs; None if Kafka has no such config, or if the value is secret.
KAFKA_NAMES: Final[dict[str, str | None]] = {
    "log_dir": "log.dirs",
    "metadata_store": "zookeeper.connect",
    "metadata_store_session_timeout_ms": "zookeeper.session.timeout.ms",
    "leader_imbalance_check_interval_ms": None,  # Apache Kafka uses seconds
    "replica_selector": "replica.selector.class",
    **dict.fromkeys(("host", "port", "advertised_port", "cluster_id", "truncation", "isr_update", "isr_lag")),
    **dict.fromkeys(("guards_off", "metrics_port", "log_format", "sasl_users", "sasl_inter_broker_user")),
    "group_version": None,  # Apache Kafka has a feature instead
    "connections_max_reauth_ms": None,  # Apache Kafka has one number, and others by listener and mechanism
    **dict.fromkeys(("ssl_certfile", "ssl_keyfile", "ssl_cafile")),
}
TYPES: Final[dict[type, Type]] = {bool: Type.BOOLEAN, int: Type.LONG, float: Type.DOUBLE, tuple: Type.LIST}


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """One config: its values, the one in effect first, and whether it cannot be altered while the broker runs."""

    layers: tuple[Layer, ...]
    type: Type
    read_only: bool = True
    documentation: str | None = None


def broker_settings(brokers: BrokerConfigs) -> dict[str, BrokerSetting]:
    """Return the configs of the broker by name, sorted; those that have no value are left out."""
    dynamic = {name: _dynamic(name, tuple(brokers.layers(name))) for name in DYNAMIC}
    found = {**_listeners(brokers.static), **_static(brokers.static), **dynamic}
    return {name: setting for name, setting in sorted(found.items()) if setting.layers}


def default_broker_settings(brokers: BrokerConfigs) -> dict[str, BrokerSetting]:
    """Return the configs that are stored for all brokers."""
    return {
        name: _dynamic(name, (Layer(value, ConfigSource.DYNAMIC_DEFAULT_BROKER),))
        for name, value in sorted(brokers.stored("").items())
    }


def _dynamic(name: str, layers: tuple[Layer, ...]) -> BrokerSetting:
    return BrokerSetting(layers, DYNAMIC[name].type, read_only=False, documentation=DYNAMIC[name].description)


def _listeners(config: BrokerConfig) -> dict[str, BrokerSetting]:
    listener = f"{config.security_protocol}://{config.host}"
    ports = {"listeners": config.port, "advertised.listeners": config.advertised_port or config.port}
    return {
        name: BrokerSetting((Layer(f"{listener}:{port}", ConfigSource.STATIC_BROKER),), Type.LIST)
        for name, port in ports.items()
    }


def _static(config: BrokerConfig) -> dict[str, BrokerSetting]:
    settings = {}
    for field in msgspec.structs.fields(BrokerConfig):
        name = KAFKA_NAMES.get(field.name, field.name.replace("_", "."))
        if name is not None:
            value = getattr(config, field.name)
            layers = [Layer(as_text(value), ConfigSource.STATIC_BROKER)] if value != field.default else []
            if field.default is not msgspec.NODEFAULT:
                layers.append(Layer(as_text(field.default), ConfigSource.DEFAULT))
            settings[name] = BrokerSetting(tuple(layers), TYPES.get(type(value), Type.STRING))
    return settings
