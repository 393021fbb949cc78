"""The simulated network: delivers messages in order on every connection, unless a fault changes that.

A connection that loses a message closes before it delivers a later one, as TCP does. A host behind a cut link notices
the closed connection only after the cut, or by its own timeouts.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from highwater.reference.drivers.simulation.chance import Chance, Stream
from highwater.reference.effects import STORE, Request

MIN_DELAY_MS = 1
LATE_MS = 1_500  # the largest delay of a duplicated request

Link = tuple[str, str]
Message = Any


class NetworkHosts(Protocol):
    """The interface of World that the network uses."""

    chance: Chance
    now_ms: int

    def at(self, due_ms: int, action: Callable[..., None], *arguments: Any) -> None: ...
    def knows(self, name: str) -> bool: ...
    def is_up(self, name: str) -> bool: ...
    def life(self, name: str) -> int: ...
    def hand_over(self, source: str, target: str, message: Message) -> None: ...
    def notify_closed(self, name: str, peer: str) -> None: ...


def kind_of(message: Message) -> str:
    """Return the type name of a message's body, e.g. `FetchRequest`; `NoneType` for store messages."""
    return type(getattr(message, "body", None)).__name__


@dataclass(slots=True)
class Pipe:
    """One direction of a connection; every disconnect increments `generation`."""

    delays: Stream
    losses: Stream
    copies: Stream
    sent: int = 0
    last_due_ms: int = 0
    generation: int = 0


@dataclass(slots=True)
class LinkFaults:
    """The active faults of one direction of a link; the values are sums, because faults may overlap."""

    cut: int = 0
    clog: int = 0
    delay_ms: int = 0
    spread_ms: int = 0
    loss_per_mille: int = 0
    duplicate_per_mille: int = 0
    torn: bool = False  # a message was lost during a cut
    waiting: list[Message] = field(default_factory=list)

    @property
    def is_clear(self) -> bool:
        return not (
            self.cut or self.clog or self.delay_ms or self.spread_ms or self.loss_per_mille or self.duplicate_per_mille
        )


class Network:
    """All links. With `reorder` every kind of request has its own connection, as in the TCP driver."""

    def __init__(self, hosts: NetworkHosts, *, spread_ms: int, loss_per_mille: int, reorder: bool = False) -> None:
        self._hosts = hosts
        self.spread_ms, self.loss_per_mille, self._reorder = spread_ms, loss_per_mille, reorder
        self.through_the_wire: Callable[[Message], Message] | None = None
        self.overhear: Callable[[str, str, Message], None] | None = None
        self.strike: Callable[[Link, Message], bool] | None = None  # returns whether the message is not to be sent
        self.held: dict[Link, deque[Message]] = {}
        self._pipes: dict[tuple[Link, str], Pipe] = {}  # by link, and with `reorder` by kind of message
        self._link_pipes: dict[Link, list[Pipe]] = {}
        self._faults: dict[Link | tuple[str, str, str], LinkFaults] = {}  # by link, or by link and kind of message

    def _pipe(self, link: Link, message: Message) -> Pipe:
        kind = kind_of(message) if self._reorder and STORE not in link else ""
        pipe = self._pipes.get((link, kind))
        if pipe is None:
            stream, name = self._hosts.chance.stream, f"{link[0]}>{link[1]} {kind}".rstrip()
            pipe = Pipe(stream(f"delay {name}"), stream(f"loss {name}"), stream(f"copy {name}"))
            self._pipes[link, kind] = pipe
            self._link_pipes.setdefault(link, []).append(pipe)
        return pipe

    def separate_connections(self) -> None:
        """Use a separate connection for every kind of request from now on."""
        self._reorder = True

    def _faults_of(self, link: Link, message: Message) -> LinkFaults | None:
        return self._faults.get(link) or self._faults.get((*link, kind_of(message)))

    # -- sending -----------------------------------------------------------------------------------

    def send(self, source: str, target: str, message: Message) -> None:
        if not self._hosts.knows(target):
            return
        if self.overhear is not None:
            self.overhear(source, target, message)
        link = (source, target)
        if self.through_the_wire is not None:
            message = self.through_the_wire(message)
        if self.held and link in self.held:
            self.held[link].append(message)
            return
        if self.strike is None or not self.strike(link, message):
            self.pass_on(link, message)

    def pass_on(self, link: Link, message: Message, late_ms: int = 0) -> None:
        """Put a message on its connection; with `late_ms` it arrives later, and what follows it waits behind it."""
        faults = self._faults_of(link, message) if self._faults else None
        if faults is not None and faults.cut:
            faults.torn = True
        elif faults is not None and faults.clog:
            faults.waiting.append(message)
        else:
            self._launch(link, message, faults, late_ms)

    def _launch(self, link: Link, message: Message, faults: LinkFaults | None, late_ms: int = 0) -> None:
        pipe = self._pipe(link, message)
        pipe.sent += 1
        loss, spread_ms, extra_ms = self.loss_per_mille, self.spread_ms, late_ms
        if faults is not None:
            loss, spread_ms, extra_ms = (
                loss + faults.loss_per_mille,
                spread_ms + faults.spread_ms,
                faults.delay_ms + late_ms,
            )
            self._copy(link, message, pipe, faults.duplicate_per_mille)
        if loss and pipe.losses.draw(pipe.sent, 1000) < loss:
            self.disconnect(*link)
            return
        now_ms = self._hosts.now_ms
        due_ms = max(now_ms + MIN_DELAY_MS + extra_ms + pipe.delays.draw(pipe.sent, spread_ms + 1), pipe.last_due_ms)
        pipe.last_due_ms = due_ms
        self._hosts.at(due_ms, self._arrive, pipe, pipe.generation, link, message)

    def _arrive(self, pipe: Pipe, generation: int, link: Link, message: Message) -> None:
        if pipe.generation != generation:
            return
        source, target = link
        faults = self._faults_of(link, message) if self._faults else None
        if faults is not None and faults.cut:
            faults.torn = True
        elif self._hosts.is_up(target):
            self._hosts.hand_over(source, target, message)
        else:
            self.disconnect(source, target)

    def _copy(self, link: Link, message: Message, pipe: Pipe, per_mille: int) -> None:
        """Deliver a second copy of a request, late, as after a retry over a new connection.

        Store requests are never duplicated, because the store client does not retry.
        """
        if isinstance(message, Request) and pipe.copies.draw(2 * pipe.sent, 1000) < per_mille:
            self.deliver_later(link, message, pipe.copies.draw(2 * pipe.sent + 1, LATE_MS))

    @property
    def now_ms(self) -> int:
        return self._hosts.now_ms

    def after(self, ms: int, action: Callable[[], None]) -> None:
        """Call `action` so much later."""
        self._hosts.at(self._hosts.now_ms + ms, action)

    def deliver_later(self, link: Link, message: Message, late_ms: int) -> None:
        """Deliver a request outside of its connection; it is dropped if its sender or receiver has restarted."""
        source, target = link
        lives = self._hosts.life(source), self._hosts.life(target)

        def arrive() -> None:
            same = (self._hosts.life(source), self._hosts.life(target)) == lives
            if same and self._hosts.is_up(source) and self._hosts.is_up(target):
                self._hosts.hand_over(source, target, message)

        self._hosts.at(self._hosts.now_ms + MIN_DELAY_MS + late_ms, arrive)

    def disconnect(self, first: str, second: str) -> None:
        """Close the connections between two hosts, drop all messages on them, and notify the hosts that are not cut."""
        for link in ((first, second), (second, first)):
            for pipe in self._link_pipes.get(link, ()):
                pipe.generation += 1
            if link in self.held:
                self.held[link].clear()
            faults = self._faults.get(link)
            for faults in [faults for key, faults in self._faults.items() if key[:2] == link]:
                faults.waiting.clear()
                faults.torn = faults.torn or faults.cut > 0
            if faults is None or not faults.cut:
                self._hosts.notify_closed(link[1], link[0])

    # -- faults ------------------------------------------------------------------------------------

    def add_faults(self, source: str, target: str, kind: str = "", **amounts: int) -> None:
        """Add faults to a link; a negative amount ends a fault.

        `kind` restricts them to messages with that body type (see `separate_connections`).
        """
        link = (source, target)
        key = (source, target, kind) if kind else link
        faults = self._faults.setdefault(key, LinkFaults())
        for name, amount in amounts.items():
            setattr(faults, name, getattr(faults, name) + amount)
        if not faults.clog:
            waiting, faults.waiting = faults.waiting, []
            for message in waiting:
                self._launch(link, message, faults)
        if faults.torn and not faults.cut:
            faults.torn = False
            self.disconnect(source, target)
        if faults.is_clear:
            self._faults.pop(key, None)

    # -- manual delivery ---------------------------------------------------------------------------

    def hold(self, source: str, target: str) -> None:
        """Hold the messages of this link from now on, until `deliver` or `release`."""
        self.held.setdefault((source, target), deque())

    def deliver(self, source: str, target: str) -> Message:
        """Deliver the oldest held message and return it."""
        message = self.held[source, target].popleft()
        if self._hosts.is_up(target):
            self._hosts.hand_over(source, target, message)
        else:
            self.disconnect(source, target)
        return message

    def drop(self, source: str, target: str) -> Message:
        return self.held[source, target].popleft()

    def release(self, source: str, target: str) -> None:
        """Deliver all held messages and stop holding the link."""
        while self.held.get((source, target)):
            self.deliver(source, target)
        self.held.pop((source, target), None)
