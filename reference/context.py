"""What every part of one broker shares: its settings, its disk, the current instant and the outbox."""

import json
from typing import Any, Final

from reference.config import BrokerConfig
from reference.effects import CancelTimer, Level, Log, Outbox, SetTimer, Trace
from reference.events import Instant
from reference.guards import Guards
from reference.meters import Meters
from reference.storage.filesystem import FileSystem

NOT_REGISTERED: Final = (1 << 63) - 1


class Context:
    __slots__ = ("broker_epoch", "broker_id", "config", "fs", "guards", "meters", "now", "out")

    def __init__(self, config: BrokerConfig, fs: FileSystem, out: Outbox) -> None:
        self.config, self.fs, self.out = config, fs, out
        self.guards: Guards = config.guards
        self.meters = Meters()
        self.broker_id = config.broker_id
        # Requests of the controller for an earlier life carry a smaller epoch; before registration there is no other.
        self.broker_epoch = NOT_REGISTERED
        self.now = Instant(0, 0)

    def timer(self, name: str, delay_ms: int) -> None:
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
