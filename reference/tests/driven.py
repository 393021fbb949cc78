"""The metadata store without a broker, stepped by its tests and by the machine that compares it with a model."""

from typing import Any

from highwater.reference.configuration.broker import StoreConfig
from highwater.reference.drivers.simulation.disk import SimulatedDisk
from highwater.reference.effects import Effect, Flush, Instant, Send
from highwater.reference.store.messages import Connect, StoreReply, StoreRequest, WatchEvent
from highwater.reference.store.metadata_store import MetadataStore


class Driven:
    """A store with a disk that flushes at once, unless a crash is requested first."""

    def __init__(self, disk: SimulatedDisk | None = None, *, snapshot_bytes: int = 1 << 20) -> None:
        self.disk = disk or SimulatedDisk()
        self.store = MetadataStore(StoreConfig(snapshot_bytes=snapshot_bytes), self.disk)
        self.now = Instant(0, 0)
        self.said: list[tuple[str, Any]] = []
        self.lose = ""  # flushes of this token never complete
        self.do(self.store.start(self.now))

    def do(self, effects: list[Effect], *, flush: bool = True) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.said.append((effect.to, effect.message))
            elif isinstance(effect, Flush) and flush and effect.token != self.lose:
                for path in effect.paths:
                    self.disk.flush(path)
                self.do(self.store.complete(self.now, effect.token))

    def ask(self, session: int, operation: Any, peer: str = "a") -> StoreReply:
        self.do(self.store.receive(self.now, peer, StoreRequest(1, session, operation)))
        answers = [message for to, message in self.said if to == peer and isinstance(message, StoreReply)]
        return answers[-1]

    def session(self, peer: str = "a", timeout_ms: int = 1_000) -> int:
        return self.ask(0, Connect(0, timeout_ms), peer).session_id

    def at(self, ms: int) -> None:
        self.now = Instant(ms, ms)
        self.do(self.store.fire(self.now, "tick"))

    def events(self, peer: str) -> list[WatchEvent]:
        return [message for to, message in self.said if to == peer and isinstance(message, WatchEvent)]
