"""Targets of the self-test: a correct cluster behind proxies, and fake servers."""

import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from highwater.conformance.self_test.faults import Fault
from highwater.conformance.self_test.proxy import Proxy
from highwater.conformance.targets.base import SaslListener, Target


class ProxiedTarget:
    """A target with the addresses of proxies; all other attributes are those of the real target."""

    def __init__(self, target: Target) -> None:
        self._target, self.fault = target, Fault()
        self._ports: dict[int, int] = {}
        self._proxies: list[Proxy] = []
        self.addresses: Mapping[int, str] = {
            node: self._proxy(node_address) for node, node_address in target.addresses.items()
        }
        self._sasl: SaslListener | None = None

    def _proxy(self, address: str) -> str:
        self._proxies.append(Proxy(address, self._ports, self.fault))
        return self._proxies[-1].address

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    @property
    def sasl(self) -> SaslListener | None:
        if self._sasl is None and (listener := self._target.sasl) is not None:
            self._sasl = replace(listener, address=self._proxy(listener.address))
        return self._sasl

    def close(self) -> None:
        for proxy in self._proxies:
            proxy.close()
        self._target.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


class FakeServerTarget:
    """A target whose addresses all lead to one fake server; starting and stopping nodes does nothing."""

    def __init__(self, target: Target, address: str) -> None:
        self._target, self._address = target, address
        self.addresses: Mapping[int, str] = dict.fromkeys(target.addresses, address)
        self.bootstrap = address

    @property
    def sasl(self) -> SaslListener | None:
        listener = self._target.sasl
        return listener and replace(listener, address=self._address)

    def start_node(self, node: int | str) -> None:
        """Do nothing: there is no process."""

    stop_node = kill_node = pause_node = resume_node = start_node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


CHUNK: Final = 65536


def _hang_up(client: socket.socket) -> None:
    """Close the connection at once."""


def _hang_up_after_the_first_bytes(client: socket.socket) -> None:
    client.recv(CHUNK)


def _say_nothing(client: socket.socket) -> None:
    while client.recv(CHUNK):
        pass


def _echo(client: socket.socket) -> None:
    while data := client.recv(CHUNK):
        client.sendall(data)


FAKE_SERVERS: Final[Mapping[str, Callable[[socket.socket], None]]] = {
    "closes every connection": _hang_up,
    "closes after the first bytes": _hang_up_after_the_first_bytes,
    "answers nothing": _say_nothing,
    "echoes what it gets": _echo,
}
"""Servers that are no brokers: a case that passes on one of them proves nothing."""
