"""State shared by all components of one broker: config, file system, current time and outbox."""

import json
from typing import Any, Final

from highwater.reference.configuration.broker import BrokerConfig
from highwater.reference.effects import CancelTimer, Instant, Level, Log, Outbox, SetTimer, Trace
from highwater.reference.guards import Guards
from highwater.reference.meters import Meters
from highwater.reference.storage.filesystem import FileSystem

NOT_REGISTERED: Final = (1 << 63) - 1


class Context:
    """The shared state of one broker, with helpers that add timers, log lines and trace steps to its outbox."""

    __slots__ = ("broker_epoch", "broker_id", "config", "fs", "guards", "meters", "now", "out")

    def __init__(self, config: BrokerConfig, fs: FileSystem, out: Outbox) -> None:
        self.config, self.fs, self.out = config, fs, out
        self.guards: Guards = config.guards
        self.meters = Meters()
        self.broker_id = config.broker_id
        # A controller request for an earlier registration has a smaller epoch and is rejected (KIP-380). Before the
        # first registration every request is stale, so the epoch is the largest int64.
        self.broker_epoch = NOT_REGISTERED
        self.now = Instant(0, 0)

    def timer(self, name: str, delay_ms: int) -> None:
        """Set or replace a timer; it fires after `delay_ms`."""
        self.out.add(SetTimer(name, self.now.monotonic_ms + delay_ms))

    def cancel(self, name: str) -> None:
        self.out.add(CancelTimer(name))

    def log(self, logger: str, text: str, level: Level = "info") -> None:
        self.out.add(Log(logger, text, level))

    def trace(self, entity: str, action: str, *, choices: dict[str, Any] | None = None, **state: Any) -> None:
        if self.out.tracing:
            self.out.add(Trace(entity, action, self.broker_id, choices or {}, state))


def to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def from_json(data: bytes) -> Any:
    return json.loads(data)
