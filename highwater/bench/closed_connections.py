"""How many frames a second a client without oracles can send to kfake: a bound for the fuzzer on this machine."""

import selectors
import socket
import time
from typing import Final

from highwater.conformance.targets import open_target

CONNECTIONS: Final = 24
SECONDS: Final = 4.0
CHUNK: Final = 1 << 16
ANSWERED: Final = bytes.fromhex("0000000e 0012 0000 00000001 0004 61626364")
"""ApiVersions v0 of the client `abcd`."""
CLOSED: Final = bytes.fromhex("00000009 0003 0002 00000001 00")
"""Metadata v2 that ends within the client id, so that kfake closes the connection."""


def measure() -> str:
    with open_target("kfake") as target:
        host, _, port = target.bootstrap.split(",")[0].rpartition(":")
        answered, closed = (_Sender((host, int(port)), frame).rate() for frame in (ANSWERED, CLOSED))
    return f"{answered:,.0f} frames/s that kfake answers, {closed:,.0f}/s after which it closes the connection"


class _Sender:
    """Sends one frame at a time on each connection, and connects again when one is closed."""

    def __init__(self, address: tuple[str, int], frame: bytes) -> None:
        self._address, self._frame = address, frame
        self._selector = selectors.DefaultSelector()

    def rate(self) -> float:
        for _ in range(CONNECTIONS):
            self._connect()
        ended, started = 0, time.monotonic()
        while time.monotonic() < started + SECONDS:
            for key, events in self._selector.select(0.01):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                if events & selectors.EVENT_WRITE:
                    connection.send(self._frame)
                    self._selector.modify(connection, selectors.EVENT_READ)
                else:
                    ended += 1
                    self._receive(connection)
        rate = ended / (time.monotonic() - started)
        for key in list(self._selector.get_map().values()):
            self._close(key.fileobj)
        return rate

    def _receive(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(CHUNK)
        except ConnectionResetError:
            data = b""
        if data:
            connection.send(self._frame)
        else:
            self._close(connection)
            self._connect()

    def _connect(self) -> None:
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex(self._address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def _close(self, connection: object) -> None:
        assert isinstance(connection, socket.socket)
        self._selector.unregister(connection)
        connection.close()
