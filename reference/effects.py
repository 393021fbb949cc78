"""What leaves a node: effects, carried out by the driver in the order given."""

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
    """Call `fire(now, name)` at `due_ms` (monotonic); setting a name again moves it."""

    name: str
    due_ms: int


@frozen
class CancelTimer:
    name: str


@frozen
class Close:
    """Close the connection to `peer`, without an answer."""

    peer: str


@dataclass(frozen=True, slots=True)
class Broke:
    """What `peer` asked for broke off at an error that nobody expected: it gets no answer, and all else goes on.

    Whoever asked need not be who is heard in this step: a request may have waited for long.
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
    """A line for who runs the broker, under the name of its log: `state.change`, `log`, `group` ..."""

    logger: str
    text: str
    level: Level = "info"


Effect = Send | Flush | SetTimer | CancelTimer | Close | Broke | Trace | Log


class Outbox:
    """Collects the effects of one step; `drain` hands them over."""

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
