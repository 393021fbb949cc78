"""The settings of a broker in effect: those in the store override the config file (KIP-226).

AlterConfigs stores them as Apache Kafka does with ZooKeeper: `/config/brokers/<id>` for one broker, and
`/config/brokers/<default>`, with the literal name `<default>`, for all brokers. A value of one broker precedes that of
all brokers, which precedes the config file, which precedes the default (ConfigSource).
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgspec

from highwater.reference.configuration.broker import BrokerConfig
from highwater.reference.configuration.broker_values import DYNAMIC
from highwater.reference.context import from_json
from highwater.reference.store.client import StoreClient
from highwater.reference.store.messages import WatchEvent

ROOT: Final = "/config/brokers"
CLUSTER_DEFAULT: Final = "<default>"
FIELDS: Final = {field.name.replace("_", "."): field for field in msgspec.structs.fields(BrokerConfig)}


class ConfigSource(IntEnum):
    """Where a value comes from (DescribeConfigs, `config_source`); a smaller number precedes a larger one."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class Layer(NamedTuple):
    """One value of a setting and its source."""

    value: str
    source: ConfigSource


def broker_config_path(name: str) -> str:
    """Return the path of the settings of a broker, by its id as text; an empty name means all brokers."""
    return f"{ROOT}/{name or CLUSTER_DEFAULT}"


class BrokerConfigs:
    """A cache of the stored settings of this broker and of all brokers, updated by a watch."""

    def __init__(self, static: BrokerConfig) -> None:
        self.static: Final = static
        self._paths = {
            broker_config_path(str(static.broker_id)): ConfigSource.DYNAMIC_BROKER,
            broker_config_path(""): ConfigSource.DYNAMIC_DEFAULT_BROKER,
        }
        self._stored: dict[ConfigSource, dict[str, str]] = {source: {} for source in self._paths.values()}

    def stored(self, name: str) -> Mapping[str, str]:
        """Return the settings stored for this broker, or for all brokers if `name` is empty."""
        return self._stored[self._paths[broker_config_path(name)]]

    def layers(self, name: str) -> list[Layer]:
        """Return the values of a setting, the one in effect first; empty if it has no value."""
        return [*self._dynamic(name), *static_layers(self.static, name)]

    def _dynamic(self, name: str) -> Iterator[Layer]:
        for source, stored in self._stored.items():
            if name in stored:
                yield Layer(stored[name], source)

    def value(self, name: str) -> str:
        """Return the value in effect; empty if the setting has none."""
        return next((layer.value for layer in self.layers(name)), "")

    @property
    def in_effect(self) -> BrokerConfig:
        """The config file with the stored settings in place of its own."""
        changed: dict[str, Any] = {
            FIELDS[name].name: _converted(self.value(name), FIELDS[name].type)
            for name in {name for stored in self._stored.values() for name in stored}
            if name in FIELDS
        }
        return msgspec.structs.replace(self.static, **changed)

    # -- the metadata store ------------------------------------------------------------------------

    async def load(self, store: StoreClient) -> None:
        for path in self._paths:
            await self._refresh(store, path)

    async def on_event(self, store: StoreClient, event: WatchEvent) -> bool:
        """Read the settings again that have changed; return whether they are those of brokers."""
        if event.path in self._paths:
            await self._refresh(store, event.path)
        return event.path in self._paths

    async def _refresh(self, store: StoreClient, path: str) -> None:
        reply = await store.get(path)
        if reply.error in {"", "NoNode"}:  # otherwise the link is down, and the settings are loaded again later
            stored = from_json(reply.data) if reply.data else {}
            # A ZooKeeper shell may have written anything.
            self._stored[self._paths[path]] = {
                name: DYNAMIC[name].parse(value)
                for name, value in stored.items()
                if name in DYNAMIC and DYNAMIC[name].is_valid(value)
            }


def _converted(value: str, kind: Any) -> Any:
    """Return a valid value as its type; ConfigDef.parseType reads `+5`, `005` and `.5`, and msgspec does not."""
    return kind(value) if kind in {int, float} else msgspec.convert(value, kind, strict=False)


def static_layers(static: BrokerConfig, name: str) -> Iterator[Layer]:
    """Yield the value of the config file, if it is not the default, and the default, if there is one."""
    if name in FIELDS:
        value, default = getattr(static, FIELDS[name].name), FIELDS[name].default
        if value != default:
            yield Layer(as_text(value), ConfigSource.STATIC_BROKER)
        if default is not msgspec.NODEFAULT:
            yield Layer(as_text(default), ConfigSource.DEFAULT)
    elif name in DYNAMIC and DYNAMIC[name].default:
        yield Layer(DYNAMIC[name].default, ConfigSource.DEFAULT)


def as_text(value: Any) -> str:
    """Return a value of BrokerConfig as DescribeConfigs shows it."""
    match value:
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(value)
        case None:
            return ""
    return str(value)
