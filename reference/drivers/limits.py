"""What strangers may cost a broker: connections, bytes it holds for them, and time.

Memory: `queued_max_request_bytes` bounds what all connections together have sent and not yet been served, or been
answered and not yet read; beyond it the connection that holds the most is cut. So the process grows by no more than
twice that (a frame is copied out of its buffer) and 64 KB a connection over what the node itself holds.
"""

import asyncio
import time
from typing import Protocol

from reference.config import BrokerConfig


class Bounded(Protocol):
    """A connection as the limits see it; times are of the monotonic clock, in seconds."""

    host: str
    heard: float
    waiting_since: float | None

    def held(self) -> int:
        """Bytes that it has in our memory."""
        ...

    def cut(self, why: str) -> None: ...


class Limits:
    """Of one broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._held: dict[Bounded, int] = {}
        self.total = 0

    def __len__(self) -> int:
        return len(self._held)

    def take(self, connection: Bounded) -> bool:
        """May it stay?"""
        config = self._config
        same_host = sum(each.host == connection.host for each in self._held)
        if len(self._held) >= config.max_connections or same_host >= config.max_connections_per_ip:
            return False
        self._held[connection] = 0
        return True

    def give_back(self, connection: Bounded) -> None:
        self.total -= self._held.pop(connection, 0)

    def weigh(self, connection: Bounded) -> None:
        """Its buffers changed."""
        if connection not in self._held:
            return
        held = connection.held()
        self.total += held - self._held[connection]
        self._held[connection] = held
        if self.total > self._config.queued_max_request_bytes:
            largest = max(self._held, key=self._held.__getitem__)
            self.give_back(largest)
            largest.cut("all connections together hold too much, and this one the most")

    def sweep(self) -> None:
        """Cut who is silent, and who is in the middle of a frame or of a reply for too long."""
        now, config = time.monotonic(), self._config
        silent, stuck = now - config.connections_max_idle_ms / 1000, now - config.request_timeout_ms / 1000
        for connection in list(self._held):
            if connection.heard < silent:
                connection.cut("silent for too long")
            elif connection.waiting_since is not None and connection.waiting_since < stuck:
                connection.cut("a frame or reply took too long to pass")

    async def sweep_forever(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            self.sweep()
