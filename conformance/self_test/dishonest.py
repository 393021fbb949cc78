"""Servers that are no brokers at all. A case that one of them passes says nothing about a broker."""

import socket
from collections.abc import Callable, Mapping
from typing import Final

CHUNK: Final = 65536


def _hang_up(client: socket.socket) -> None:
    """At once."""


def _hang_up_after_the_first_bytes(client: socket.socket) -> None:
    client.recv(CHUNK)


def _say_nothing(client: socket.socket) -> None:
    while client.recv(CHUNK):
        pass


def _echo(client: socket.socket) -> None:
    while data := client.recv(CHUNK):
        client.sendall(data)


BEHAVIOURS: Final[Mapping[str, Callable[[socket.socket], None]]] = {
    "closes every connection": _hang_up,
    "closes after the first bytes": _hang_up_after_the_first_bytes,
    "answers nothing": _say_nothing,
    "echoes what it gets": _echo,
}
