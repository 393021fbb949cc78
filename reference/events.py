"""The inputs of a node: time, messages and completions.

A node (broker, metadata store) is an object with five entry points, each of which returns a list of effects::

    start(now)   receive(now, source, message)   fire(now, timer)   complete(now, token)   closed(now, peer)

It never reads a clock, a socket or a random source; its driver does.
"""

from typing import Any, Protocol

from reference.effects import Effect
from reference.wire.frozen import frozen

# Peers are identified by strings, so that traces and schedules can name them.
STORE = "store"


def broker_peer(broker_id: int) -> str:
    return f"broker:{broker_id}"


@frozen
class Instant:
    """`monotonic_ms` drives timers and never jumps; `wall_ms` stamps records."""

    monotonic_ms: int
    wall_ms: int


@frozen
class Request:
    """A decoded Kafka request; `body` is a message of `reference.wire.messages`."""

    correlation_id: int
    api_version: int
    body: Any
    client_id: str | None = None
    client_host: str = "127.0.0.1"


@frozen
class Response:
    """The response to the request with that correlation id; with `body` None nothing is sent (acks=0)."""

    correlation_id: int
    api_version: int
    body: Any


class Node(Protocol):
    def start(self, now: Instant) -> list[Effect]: ...
    def receive(self, now: Instant, source: str, message: Any) -> list[Effect]: ...
    def fire(self, now: Instant, timer: str) -> list[Effect]: ...
    def complete(self, now: Instant, token: str) -> list[Effect]: ...
    def closed(self, now: Instant, peer: str) -> list[Effect]: ...
