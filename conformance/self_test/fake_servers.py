"""Transports to servers that are no brokers: a case that passes on one of them proves nothing.

No server runs, and no time passes but that which the client waits, on a clock that only its waiting moves.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from highwater.reference.client.transport import Clock


@dataclass(frozen=True, slots=True)
class FakeServer:
    """What a server does: it closes a connection after so many segments of bytes, or never, and may echo them."""

    closes_after: int | None = None
    echoes: bool = False


FAKE_SERVERS: Final[Mapping[str, FakeServer]] = {
    "closes every connection": FakeServer(closes_after=0),
    "closes after the first bytes": FakeServer(closes_after=1),
    "answers nothing": FakeServer(),
    "echoes what it gets": FakeServer(echoes=True),
}


class WaitClock:
    """A clock that moves only while its client sleeps; it begins at the time of another one."""

    def __init__(self, begin: Clock) -> None:
        self._monotonic, self._time = begin.monotonic(), begin.time()

    def monotonic(self) -> float:
        return self._monotonic

    def time(self) -> float:
        return self._time

    def sleep(self, seconds: float, /) -> None:
        self._monotonic += max(0.0, seconds)
        self._time += max(0.0, seconds)


class FakeServerTransport:
    """Leads every connection to one fake server."""

    def __init__(self, server: FakeServer, clock: WaitClock) -> None:
        self._server, self.clock = server, clock

    def connect(self, host: str, port: int, timeout_s: float) -> "FakeServerStream":
        return FakeServerStream(self._server, self.clock)


class FakeServerStream:
    """A connection to a fake server; what a client sends after the server has closed is lost, as over TCP."""

    def __init__(self, server: FakeServer, clock: WaitClock) -> None:
        self._server, self._clock = server, clock
        self._segments, self._unread = 0, b""

    def send(self, data: bytes, timeout_s: float) -> None:
        self._segments += 1
        self._unread += data if self._server.echoes else b""

    def receive(self, timeout_s: float) -> bytes:
        closes_after = self._server.closes_after
        if not self._unread and (closes_after is None or self._segments < closes_after):
            self._clock.sleep(timeout_s)
            raise TimeoutError("no byte has arrived")
        data, self._unread = self._unread, b""
        return data

    def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        raise OSError("the server has no TLS")

    def finish_sending(self) -> None:
        """Do nothing: the server does not wait for the end."""

    def close(self) -> None:
        """Do nothing: there is no server."""
