"""The effects that a node returns; the driver carries them out in order."""

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from highwater.reference.wire.schema import frozen

Level = Literal["info", "warning", "error"]


@frozen
class Send:
    to: str
    message: Any


@frozen
class Flush:
    """fsync these paths, then call `complete(now, token)`."""

    paths: tuple[str, ...]
    token: str


@frozen
class SetTimer:
    """Call `fire(now, name)` at `due_ms` (monotonic); setting the same name again replaces the timer."""

    name: str
    due_ms: int


@frozen
class CancelTimer:
    name: str


@frozen
class Close:
    """Close the connection to `peer` without a response."""

    peer: str


@dataclass(frozen=True, slots=True)
class HandlerFailed:
    """The handler of a request from `peer` raised an unexpected error: that request gets no response.

    The request may have arrived long before the current step, and from another peer than its message.
    """

    peer: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Trace:
    """One protocol step, named as in the TLA+ module (see `highwater.spec.formats.trace.Step`)."""

    entity: str
    action: str
    node: int | str
    choices: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Log:
    """A log line for the operator; `logger` is `state.change`, `log`, `group` ..."""

    logger: str
    text: str
    level: Level = "info"


Effect = Send | Flush | SetTimer | CancelTimer | Close | HandlerFailed | Trace | Log


class Outbox:
    """Collects the effects of one step; `drain` returns and removes them."""

    __slots__ = ("_effects", "tracing")

    def __init__(self, *, tracing: bool = False) -> None:
        self._effects: list[Effect] = []
        self.tracing = tracing

    def add(self, effect: Effect) -> None:
        self._effects.append(effect)

    def send(self, to: str, message: Any) -> None:
        self._effects.append(Send(to, message))

    def drain(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects


# --------------------------------------------------------------------------------------------------
# The inputs of a node: time, messages and completions.
#
# A node (broker, metadata store) is an object with five entry points, each of which returns a list of effects::
#
#     start(now)   receive(now, source, message)   fire(now, timer)   complete(now, token)   closed(now, peer)
#
# It never reads a clock, a socket or a random source; its driver does.


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
    """A decoded Kafka request; `body` is a message of `highwater.reference.wire.messages`."""

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
