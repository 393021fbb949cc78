"""Reads and checks configs; a UsageError names the first wrong key or the contradicting settings."""

import tomllib
from pathlib import Path

import msgspec

from highwater.errors import UsageError
from highwater.names import unknown_name
from highwater.reference.configuration.broker import BrokerConfig, StoreConfig
from highwater.reference.configuration.checks import reject_contradictions


class NodeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a config file: one table, `[broker]` or `[store]`."""

    broker: BrokerConfig | None = None
    store: StoreConfig | None = None


def read_config(path: Path) -> BrokerConfig | StoreConfig:
    """Return the config in a TOML file; raise UsageError if it cannot be read or is invalid."""
    try:
        parsed = msgspec.convert(tomllib.loads(path.read_text()), NodeFile)
    except OSError as error:
        raise UsageError(f"cannot read this config ({error.strerror})", where=str(path)) from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(
            str(error), where=str(path), hint="see reference/configuration/broker.py for the keys"
        ) from error
    node = parsed.broker or parsed.store
    if node is None or (parsed.broker and parsed.store):
        raise UsageError("the config must have exactly one table, [broker] or [store]", where=str(path))
    if isinstance(node, BrokerConfig):
        check_broker(node, str(path))
    return node


def broker_config(settings: dict[str, object], where: str) -> BrokerConfig:
    """Return the config of one broker from its settings; raise UsageError if they are invalid."""
    known = list(BrokerConfig.__struct_fields__)
    for name in settings:
        if name not in known:
            raise unknown_name("setting", name, known, "highwater broker --list", where=where)
    try:
        config = msgspec.convert(settings, BrokerConfig)
    except msgspec.ValidationError as error:
        raise UsageError(str(error), where=where, hint="see reference/configuration/broker.py for the keys") from error
    check_broker(config, where)
    return config


def check_broker(config: BrokerConfig, where: str) -> None:
    """Raise UsageError for an unknown guard, or for settings that contradict each other."""
    config.guards  # noqa: B018  # raises for an unknown guard
    reject_contradictions(config, where)
