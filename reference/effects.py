"""The effects that a node returns; the driver carries them out in order."""

from dataclasses import dataclass, field
from typing import Any, Literal

from reference.wire.frozen import frozen

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
    """One protocol step, named as in the TLA+ module (see `spec.formats.trace.Step`)."""

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
