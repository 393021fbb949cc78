"""The links of a simulation: in order, whole or not at all on each connection, unless a fault says otherwise.

A connection that lost something ends before anything later is seen, as TCP's does; who is cut off learns of that only
when the cut is over, or from its own time-outs.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from reference.drivers.simulation.chance import Chance, Stream
from reference.events import STORE, Request

MIN_DELAY_MS = 1
LATE_MS = 1_500  # a copy of a request that was sent twice may be so late

Link = tuple[str, str]
Message = Any


class Post(Protocol):
    """What a network needs of its world."""

    chance: Chance
    now_ms: int

    def at(self, due_ms: int, action: Callable[..., None], *given: Any) -> None: ...
    def knows(self, name: str) -> bool: ...
    def is_up(self, name: str) -> bool: ...
    def life(self, name: str) -> int: ...
    def hand_over(self, source: str, target: str, message: Message) -> None: ...
    def tell_closed(self, name: str, peer: str) -> None: ...


def kind_of(message: Message) -> str:
    """`FetchRequest`; messages of the metadata store have no body."""
    return type(getattr(message, "body", None)).__name__


@dataclass(slots=True)
class Pipe:
    """One direction of a connection. `generation` ends with the connection."""

    delays: Stream
    losses: Stream
    copies: Stream
    sent: int = 0
    last_due_ms: int = 0
    generation: int = 0


@dataclass(slots=True)
class Weather:
    """What befalls the messages of one direction for now: sums, since faults may overlap."""

    cut: int = 0
    clog: int = 0
    delay_ms: int = 0
    spread_ms: int = 0
    loss_per_mille: int = 0
    duplicate_per_mille: int = 0
    torn: bool = False  # something was lost in a cut
    waiting: list[Message] = field(default_factory=list)

    @property
    def fair(self) -> bool:
        return not (
            self.cut or self.clog or self.delay_ms or self.spread_ms or self.loss_per_mille or self.duplicate_per_mille
        )


class Network:
    """`reorder`: every kind of request has a connection of its own, as in the TCP driver, and overtakes the others."""

    def __init__(self, post: Post, *, spread_ms: int, loss_per_mille: int, reorder: bool = False) -> None:
        self._post = post
        self.spread_ms, self.loss_per_mille, self._reorder = spread_ms, loss_per_mille, reorder
        self.through_the_wire: Callable[[Message], Message] | None = None
        self.overhear: Callable[[Message], None] | None = None
        self.held: dict[Link, deque[Message]] = {}
        self._pipes: dict[tuple[Link, str], Pipe] = {}  # by link, and by kind of message where each has its own
        self._lanes: dict[Link, list[Pipe]] = {}
        self._weather: dict[Link | tuple[str, str, str], Weather] = {}  # of a link, or of one kind of message on it

    def _pipe(self, link: Link, message: Message) -> Pipe:
        kind = kind_of(message) if self._reorder and STORE not in link else ""
        pipe = self._pipes.get((link, kind))
        if pipe is None:
            stream, name = self._post.chance.stream, f"{link[0]}>{link[1]} {kind}".rstrip()
            pipe = Pipe(stream(f"delay {name}"), stream(f"loss {name}"), stream(f"copy {name}"))
            self._pipes[link, kind] = pipe
            self._lanes.setdefault(link, []).append(pipe)
        return pipe

    def part_kinds(self) -> None:
        """From now on each kind of request has a connection of its own."""
        self._reorder = True

    def _weather_of(self, link: Link, message: Message) -> Weather | None:
        return self._weather.get(link) or self._weather.get((*link, kind_of(message)))

    # -- sending -----------------------------------------------------------------------------------

    def send(self, source: str, target: str, message: Message) -> None:
        if not self._post.knows(target):
            return
        if self.overhear is not None:
            self.overhear(message)
        link = (source, target)
        if self.through_the_wire is not None:
            message = self.through_the_wire(message)
        if self.held and link in self.held:
            self.held[link].append(message)
            return
        weather = self._weather_of(link, message) if self._weather else None
        if weather is not None and weather.cut:
            weather.torn = True
        elif weather is not None and weather.clog:
            weather.waiting.append(message)
        else:
            self._launch(link, message, weather)

    def _launch(self, link: Link, message: Message, weather: Weather | None) -> None:
        pipe = self._pipe(link, message)
        pipe.sent += 1
        loss, spread_ms, more_ms = self.loss_per_mille, self.spread_ms, 0
        if weather is not None:
            loss, spread_ms, more_ms = loss + weather.loss_per_mille, spread_ms + weather.spread_ms, weather.delay_ms
            self._copy(link, message, pipe, weather.duplicate_per_mille)
        if loss and pipe.losses.draw(pipe.sent, 1000) < loss:
            self.disconnect(*link)
            return
        now_ms = self._post.now_ms
        due_ms = max(now_ms + MIN_DELAY_MS + more_ms + pipe.delays.draw(pipe.sent, spread_ms + 1), pipe.last_due_ms)
        pipe.last_due_ms = due_ms
        self._post.at(due_ms, self._arrive, pipe, pipe.generation, link, message)

    def _arrive(self, pipe: Pipe, generation: int, link: Link, message: Message) -> None:
        if pipe.generation != generation:
            return
        source, target = link
        weather = self._weather_of(link, message) if self._weather else None
        if weather is not None and weather.cut:
            weather.torn = True
        elif self._post.is_up(target):
            self._post.hand_over(source, target, message)
        else:
            self.disconnect(source, target)

    def _copy(self, link: Link, message: Message, pipe: Pipe, per_mille: int) -> None:
        """A request arrives once more, late: sent again over a new connection while the old copy waited somewhere.

        No copy outlives the process that sent it, nor the one it was sent to; the store's client sends nothing twice.
        """
        if not isinstance(message, Request) or pipe.copies.draw(2 * pipe.sent, 1000) >= per_mille:
            return
        source, target = link
        lives = self._post.life(source), self._post.life(target)

        def arrive() -> None:
            same = (self._post.life(source), self._post.life(target)) == lives
            if same and self._post.is_up(source) and self._post.is_up(target):
                self._post.hand_over(source, target, message)

        self._post.at(self._post.now_ms + MIN_DELAY_MS + pipe.copies.draw(2 * pipe.sent + 1, LATE_MS), arrive)

    def disconnect(self, one: str, other: str) -> None:
        """The connections between two hosts are gone, with all that was on its way; both learn of it if they can."""
        for link in ((one, other), (other, one)):
            for pipe in self._lanes.get(link, ()):
                pipe.generation += 1
            if link in self.held:
                self.held[link].clear()
            weather = self._weather.get(link)
            for each in [weather for where, weather in self._weather.items() if where[:2] == link]:
                each.waiting.clear()
                each.torn = each.torn or each.cut > 0
            if weather is None or not weather.cut:
                self._post.tell_closed(link[1], link[0])

    # -- faults ------------------------------------------------------------------------------------

    def spoil(self, source: str, target: str, kind: str = "", **more: int) -> None:
        """Add to the weather of a link; negative numbers take away again, and the last one clears the sky.

        `kind`: only of messages with such a body (see `part_kinds`).
        """
        link = (source, target)
        where = (source, target, kind) if kind else link
        weather = self._weather.setdefault(where, Weather())
        for name, amount in more.items():
            setattr(weather, name, getattr(weather, name) + amount)
        if not weather.clog:
            waiting, weather.waiting = weather.waiting, []
            for message in waiting:
                self._launch(link, message, weather)
        if weather.torn and not weather.cut:
            weather.torn = False
            self.disconnect(source, target)
        if weather.fair:
            self._weather.pop(where, None)

    # -- by hand -----------------------------------------------------------------------------------

    def hold(self, source: str, target: str) -> None:
        """From now on messages of this link wait until they are delivered by hand."""
        self.held.setdefault((source, target), deque())

    def deliver(self, source: str, target: str) -> Message:
        """Hand over the oldest held message; returns it."""
        message = self.held[source, target].popleft()
        if self._post.is_up(target):
            self._post.hand_over(source, target, message)
        else:
            self.disconnect(source, target)
        return message

    def drop(self, source: str, target: str) -> Message:
        return self.held[source, target].popleft()

    def release(self, source: str, target: str) -> None:
        """Deliver all that is held, and let the link run freely again."""
        while self.held.get((source, target)):
            self.deliver(source, target)
        self.held.pop((source, target), None)
