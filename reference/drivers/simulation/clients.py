"""Connections of blocking clients to simulated brokers, and the clock of these clients.

Theory of operation
-------------------
A blocking client runs outside of the world: while it waits for bytes, or sleeps, the world runs (`World.step`). Its
bytes go to the same `ServerConnection` that the asyncio driver uses; the requests travel over the simulated network
from a host of the connection's own to the broker, and the responses back.

A client sees a broker as over TCP: a broker that is down refuses connections, a paused one accepts them and is silent,
and one that crashes closes them. Bytes that arrived before the end are still received.

Invariants: time passes only in `receive` and `sleep`; a run depends only on the seed and on what the client does.

Deliberately absent: TLS, and buffers that are full, so that a client that does not read is never noticed.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from highwater.reference.broker import Broker
from highwater.reference.connections.limits import Limits
from highwater.reference.connections.server import Listener, ProtocolError, ServerConnection
from highwater.reference.drivers.simulation.world import World
from highwater.reference.effects import Effect, Instant, Request, Response, broker_peer
from highwater.reference.security.sasl import Authenticator

LOOPBACK: Final = "127.0.0.1"
SWEEP_MS: Final = 1_000
"""As often as the asyncio driver looks for connections that are idle or stuck."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port of a simulated broker; `authenticator` returns None if it requires no login."""

    broker_id: int
    authenticator: Callable[[], Authenticator | None] = lambda: None


class SimulatedClock:
    """Both clocks of a client, in seconds of virtual time; the monotonic one begins at 0 with the transport."""

    def __init__(self, transport: "SimulatedTransport") -> None:
        self._transport, self._began_ms = transport, transport.world.now_ms

    def monotonic(self) -> float:
        return (self._transport.world.now_ms - self._began_ms) / 1000

    def time(self) -> float:
        return (self._transport.world.wall_clock_start_ms + self._transport.world.now_ms) / 1000

    def sleep(self, seconds: float, /) -> None:
        end_ms = self._transport.world.now_ms + max(0, round(seconds * 1000))
        while self._transport.step(end_ms):
            pass


class SimulatedTransport:
    """Opens connections to the brokers of a world.

    `ports` by number; `step` runs the next event of the world until a time, and may raise to end the client; `wake` is
    called when bytes have arrived. `name` begins the names of the hosts of its connections.
    """

    def __init__(self, world: World, ports: dict[int, Port], name: str = "client") -> None:
        self.world, self._ports, self._name = world, ports, name
        self.clock = SimulatedClock(self)
        self.step: Callable[[int], bool] = world.step
        self.wake: Callable[[], None] = lambda: None
        self._listeners: dict[tuple[int, int], Listener] = {}  # by port and life of its broker
        self._opened = 0
        self._clients: list[ClientHost] = []

    def connect(self, host: str, port: int, timeout_s: float) -> "SimulatedStream":
        found = self._ports.get(port)
        if host != LOOPBACK or found is None or not self.world.is_up(broker_peer(found.broker_id)):
            raise ConnectionRefusedError(f"nothing accepts connections at {host}:{port}")
        self._opened += 1
        peer = broker_peer(found.broker_id)
        client = ClientHost(self.world, peer, f"{self._name}:{self._opened}", self._listener(port), self.wake)
        self._clients.append(client)
        return SimulatedStream(self, client)

    def open_requests(self) -> list[str]:
        """Return the requests that brokers have not answered, by connection."""
        return [client.open_request for client in self._clients if client.open_request]

    def _listener(self, number: int) -> Listener:
        """Return the listener of a port; a broker that has restarted has counted no connection yet."""
        port = self._ports[number]
        peer = broker_peer(port.broker_id)
        life = self.world.life(peer)
        if (number, life) not in self._listeners:
            broker = self.world.hosts[peer].node
            assert isinstance(broker, Broker)
            limits = Limits(lambda: broker.config_in_effect)
            self._listeners[number, life] = Listener(
                broker.served, broker.config.socket_request_max_bytes, limits, broker.meters, port.authenticator
            )
            self.world.schedule(SWEEP_MS, self._sweep, limits, peer, life)
        return self._listeners[number, life]

    def _sweep(self, limits: Limits, peer: str, life: int) -> None:
        if self.world.life(peer) == life and self.world.is_up(peer):
            if not self.world.hosts[peer].paused:
                limits.sweep(self.world.now_ms)
            self.world.schedule(SWEEP_MS, self._sweep, limits, peer, life)


class SimulatedStream:
    """The client's side of a connection."""

    def __init__(self, transport: SimulatedTransport, host: "ClientHost") -> None:
        self._transport, self._host = transport, host

    def send(self, data: bytes, timeout_s: float) -> None:
        if self._host.has_ended:
            raise BrokenPipeError("the broker has closed the connection")
        self._host.feed(data)

    def receive(self, timeout_s: float) -> bytes:
        host, world = self._host, self._transport.world
        deadline_ms = world.now_ms + max(1, round(timeout_s * 1000))
        while not host.received and not host.has_ended:
            if not self._transport.step(deadline_ms):
                raise TimeoutError("no byte has arrived")
        data = bytes(host.received)
        host.received.clear()
        return data

    def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        raise OSError("a simulated broker has no TLS")

    def finish_sending(self) -> None:
        """End the connection, as the asyncio driver does when its peer has finished."""
        self._host.end()

    def close(self) -> None:
        self._host.leave()


class ClientHost:
    """The host of one connection in the world: a node that carries requests to a broker, and its responses back.

    `received` are the bytes that the client has not read yet, `open_request` is the request without a response.
    """

    def __init__(
        self, world: World, peer: str, name: str, listener: Listener, wake: Callable[[], None]
    ) -> None:  # fmt: skip
        self._world, self._peer, self._name, self._limits, self._wake = world, peer, name, listener.limits, wake
        self._connection = ServerConnection(listener, LOOPBACK, world.now_ms)
        self.received = bytearray()
        self.open_request = ""
        world.add(name, lambda disk: self)
        world.start(name)
        self.has_ended = not self._limits.admit(self)

    def feed(self, data: bytes) -> None:
        """Take bytes of the client."""
        try:
            self._connection.receive_data(self._world.now_ms, data)
        except ProtocolError as error:
            self.cut(str(error))
            return
        self._serve()
        self._limits.update(self)

    def _serve(self) -> None:
        try:
            while not self.has_ended and (event := self._connection.next_event()) is not None:
                if isinstance(event, Request):
                    self.open_request = "ApiVersions" if event.body is None else type(event.body).__name__
                    self._world.network.send(self._name, self._peer, event)
                else:
                    self.received += event
        except ProtocolError as error:
            self.cut(str(error))

    def end(self) -> None:
        """Close the broker's side; what it has sent can still be read."""
        if not self.has_ended:
            self.has_ended, self.open_request = True, ""
            self._connection.discard()
            self._limits.release(self)
            self._wake()
            self._world.notify_closed(self._peer, self._name)

    def leave(self) -> None:
        """Close both sides."""
        self.end()
        self._world.hosts[self._name].node = None

    # -- for the limits --------------------------------------------------------------------------

    @property
    def host(self) -> str:
        return LOOPBACK

    @property
    def last_received_ms(self) -> int:
        return self._connection.last_received_ms

    @property
    def waiting_since_ms(self) -> int | None:
        return self._connection.waiting_since_ms

    def buffered_bytes(self) -> int:
        return self._connection.buffered_bytes

    def cut(self, why: str) -> None:
        self.end()

    # -- the node of the world -------------------------------------------------------------------

    def start(self, now: Instant) -> list[Effect]:
        return []

    def receive(self, now: Instant, source: str, message: Response) -> list[Effect]:
        if not self.has_ended:
            self.open_request = ""
            try:
                self.received += self._connection.response_bytes(message)
            except ProtocolError as error:
                self.cut(str(error))
            self._serve()
            self._limits.update(self)
            self._wake()
        return []

    def closed(self, now: Instant, peer: str) -> list[Effect]:
        if peer == self._peer:
            self.end()
        return []

    def fire(self, now: Instant, timer: str) -> list[Effect]:
        raise AssertionError("a client sets no timer")

    def complete(self, now: Instant, token: str) -> list[Effect]:
        raise AssertionError("a client flushes nothing")
