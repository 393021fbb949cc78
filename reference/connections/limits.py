"""Limits on connections: their number, the memory of their buffers, and their idle time.

`queued_max_request_bytes` bounds the bytes that all connections together have received and not yet served, or answered
and not yet sent. Above it, the connection with the most bytes is closed. So the connections use at most twice that
limit (a frame is copied out of its buffer) plus 64 KB each.
"""

from collections.abc import Callable
from typing import Protocol

from highwater.reference.configuration.broker import BrokerConfig


class LimitedConnection(Protocol):
    """A connection as the limits see it; times are milliseconds of the monotonic clock."""

    @property
    def host(self) -> str: ...

    @property
    def last_received_ms(self) -> int: ...

    @property
    def waiting_since_ms(self) -> int | None: ...

    def buffered_bytes(self) -> int:
        """Return the bytes in the buffers of this connection."""
        ...

    def cut(self, why: str) -> None: ...


class Limits:
    """The limits of one broker, and the connections that they apply to."""

    def __init__(self, config: Callable[[], BrokerConfig]) -> None:
        self._config = config  # a function, because the numbers of connections can be altered
        self._buffered: dict[LimitedConnection, int] = {}
        self.total = 0

    def __len__(self) -> int:
        return len(self._buffered)

    def admit(self, connection: LimitedConnection) -> bool:
        """Register a new connection; return False if there are too many, in total or from its host."""
        config = self._config()
        same_host = sum(other.host == connection.host for other in self._buffered)
        if len(self._buffered) >= config.max_connections or same_host >= config.max_connections_per_ip:
            return False
        self._buffered[connection] = 0
        return True

    def release(self, connection: LimitedConnection) -> None:
        self.total -= self._buffered.pop(connection, 0)

    def update(self, connection: LimitedConnection) -> None:
        """Update the buffered bytes of a connection; close the largest connection if the total exceeds the limit."""
        if connection not in self._buffered:
            return
        size = connection.buffered_bytes()
        self.total += size - self._buffered[connection]
        self._buffered[connection] = size
        if self.total > self._config().queued_max_request_bytes:
            largest = max(self._buffered, key=self._buffered.__getitem__)
            self.release(largest)
            largest.cut("the connections exceed queued_max_request_bytes, and this one has the most bytes")

    def sweep(self, now_ms: int) -> None:
        """Close the connections that are idle, or in the middle of a frame or response, for too long."""
        config = self._config()
        idle_before, stuck_before = now_ms - config.connections_max_idle_ms, now_ms - config.request_timeout_ms
        for connection in list(self._buffered):
            since_ms = connection.waiting_since_ms
            if connection.last_received_ms < idle_before:
                connection.cut("idle for more than connections_max_idle_ms")
            elif since_ms is not None and since_ms < stuck_before:
                connection.cut("a request or response took more than request_timeout_ms to transfer")
