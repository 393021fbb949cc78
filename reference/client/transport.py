"""How a client reaches a broker and how time passes for it: TCP and this machine's clock, or a simulated world.

A `Connection` takes both as arguments, so the same client, and the same case of the suite, runs over either.
"""

import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

CHUNK: Final = 1 << 17
SHORTEST_WAIT_S: Final = 0.001
"""A socket timeout of zero would mean not to wait at all, and fail before it reads what has arrived."""


class Clock(Protocol):
    """The clocks of a client, in seconds, as the functions of the same names in the module `time`."""

    def monotonic(self) -> float: ...
    def time(self) -> float: ...
    def sleep(self, seconds: float, /) -> None: ...


class Stream(Protocol):
    """One open connection. All methods raise OSError if it is broken, and TimeoutError after `timeout_s`."""

    def send(self, data: bytes, timeout_s: float) -> None:
        """Send all bytes."""
        ...

    def receive(self, timeout_s: float) -> bytes:
        """Return the bytes that have arrived, at least one; empty after the peer has closed the connection."""
        ...

    def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Encrypt everything that follows, after the handshake with the server of this name."""
        ...

    def finish_sending(self) -> None:
        """Close the sending direction."""
        ...

    def close(self) -> None: ...


class Transport(Protocol):
    """Opens connections; `clock` measures and waits for the same time as their timeouts."""

    @property
    def clock(self) -> Clock: ...

    def connect(self, host: str, port: int, timeout_s: float) -> Stream:
        """Open a connection; raises OSError if nothing accepts it."""
        ...


class SocketStream:
    """A stream over a TCP socket."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes, timeout_s: float) -> None:
        self._socket.settimeout(timeout_s)
        self._socket.sendall(data)

    def receive(self, timeout_s: float) -> bytes:
        self._socket.settimeout(max(timeout_s, SHORTEST_WAIT_S))
        return self._socket.recv(CHUNK)

    def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        self._socket = context.wrap_socket(self._socket, server_hostname=host)

    def finish_sending(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


@dataclass(frozen=True, slots=True)
class TcpTransport:
    """TCP, and the clock of this machine."""

    clock: Clock = time

    def connect(self, host: str, port: int, timeout_s: float) -> SocketStream:
        return SocketStream(socket.create_connection((host, port), timeout=timeout_s))


TCP: Final = TcpTransport()
