"""Configs read from a file or from settings: the first key that is wrong is named, and what contradicts what."""

import tomllib
from pathlib import Path

import msgspec

from reference.config import BrokerConfig, StoreConfig
from reference.config_checks import refuse_contradictions
from spec.formats.verdict import UsageError


class NodeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A config file holds one table: `[broker]` or `[store]`."""

    broker: BrokerConfig | None = None
    store: StoreConfig | None = None


def read_config(path: Path) -> BrokerConfig | StoreConfig:
    """The node that a TOML file describes; UsageError names the key that is wrong, or what contradicts what."""
    try:
        found = msgspec.convert(tomllib.loads(path.read_text()), NodeFile)
    except OSError as error:
        raise UsageError(f"cannot read this config ({error.strerror})", where=str(path)) from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(str(error), where=str(path), mend="see reference/config.py for the keys") from error
    node = found.broker or found.store
    if node is None or (found.broker and found.store):
        raise UsageError("expected exactly one table, [broker] or [store]", where=str(path))
    if isinstance(node, BrokerConfig):
        check_broker(node, str(path))
    return node


def broker_config(settings: dict[str, object], where: str) -> BrokerConfig:
    """One broker's settings by key; UsageError as above."""
    try:
        config = msgspec.convert(settings, BrokerConfig)
    except msgspec.ValidationError as error:
        raise UsageError(str(error), where=where, mend="see reference/config.py for the keys") from error
    check_broker(config, where)
    return config


def check_broker(config: BrokerConfig, where: str) -> None:
    """UsageError for an unknown guard, or for settings that contradict one another."""
    config.guards  # noqa: B018  # names what it does not know
    refuse_contradictions(config, where)
