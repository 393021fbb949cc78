"""The world: nodes, links, disks and one heap of events in virtual milliseconds.

Runs freely (`run_until`); scenarios hold links and step them by hand (`hold`, `deliver`, `drop`, `release`).
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reference.drivers.simulation.chance import Chance
from reference.drivers.simulation.disk import SimulatedDisk
from reference.effects import CancelTimer, Close, Effect, Flush, Log, Send, SetTimer, Trace
from reference.events import Instant, Node
from spec.formats.trace import Step

WALL_CLOCK_START_MS = 1_700_000_000_000
MIN_DELAY_MS = 1
FLUSH_MS = 5
LOGGED = 1_000  # log lines that are kept

Action = Callable[[], None]


@dataclass(slots=True)
class Host:
    """A machine with a disk, and the node that runs on it while it is up. `life` tells old timers from new."""

    name: str
    disk: SimulatedDisk
    make: Callable[[SimulatedDisk], Node]
    node: Node | None = None
    life: int = 0
    paused: bool = False
    held: list[Action] = field(default_factory=list)
    timers: dict[str, int] = field(default_factory=dict)  # name -> the one setting that counts


@dataclass(slots=True)
class Pipe:
    """One direction of a connection: in order, whole or not at all. `generation` ends with the connection."""

    sent: int = 0
    last_due_ms: int = 0
    generation: int = 0


class World:
    """`spread_ms` is how much message delays differ; `loss_per_mille` breaks the connection on a message."""

    def __init__(self, seed: int, *, spread_ms: int = 4, loss_per_mille: int = 0) -> None:
        self.chance = Chance(seed)
        self.now_ms = 0
        self.events = 0
        self.hosts: dict[str, Host] = {}
        self.steps: list[Step] = []
        self.logged: deque[tuple[str, Log]] = deque(maxlen=LOGGED)
        self.spread_ms, self.loss_per_mille = spread_ms, loss_per_mille
        self.after_event: Callable[[Host], None] = lambda host: None
        self.held: dict[tuple[str, str], deque[Any]] = {}
        self._heap: list[tuple[int, int, Action]] = []
        self._tie = 0
        self._timer_serial = 0
        self._pipes: dict[tuple[str, str], Pipe] = {}

    # -- hosts -----------------------------------------------------------------------------------

    def add(self, name: str, make: Callable[[SimulatedDisk], Node]) -> Host:
        host = self.hosts[name] = Host(name, SimulatedDisk(), make)
        return host

    def start(self, name: str) -> None:
        host = self.hosts[name]
        host.life += 1
        host.paused = False
        host.node = host.make(host.disk)
        self._step(host, host.node.start(self._instant()))

    def is_up(self, name: str) -> bool:
        return self.hosts[name].node is not None

    def crash(self, name: str, *, lose_unflushed: bool) -> None:
        """The process is gone; its peers learn of it, and the page cache with it if `lose_unflushed`."""
        host = self.hosts[name]
        host.node, host.paused = None, False
        host.timers.clear()
        host.held.clear()
        self._trace(Trace("", "Crash", _number(name)))
        if lose_unflushed:
            host.disk.lose_unflushed()
        for other in self.hosts:
            if other != name:
                self._break(name, other)

    def pause(self, name: str) -> None:
        if self.is_up(name):
            self.hosts[name].paused = True

    def resume(self, name: str) -> None:
        """What arrived meanwhile is handled now, in order: the node never noticed the time."""
        host = self.hosts[name]
        host.paused = False
        held, host.held = host.held, []
        for action in held:
            self.schedule(0, action)

    # -- time ------------------------------------------------------------------------------------

    def schedule(self, delay_ms: int, action: Action) -> None:
        self._at(self.now_ms + delay_ms, action)

    def _at(self, due_ms: int, action: Action) -> None:
        self._tie += 1
        heapq.heappush(self._heap, (due_ms, self._tie, action))

    def run_until(self, end_ms: int) -> None:
        heap = self._heap
        while heap and heap[0][0] <= end_ms:
            due_ms, _, action = heapq.heappop(heap)
            self.now_ms = due_ms
            action()
        self.now_ms = max(self.now_ms, end_ms)

    def _instant(self) -> Instant:
        return Instant(self.now_ms, WALL_CLOCK_START_MS + self.now_ms)

    # -- effects ---------------------------------------------------------------------------------

    def _step(self, host: Host, effects: list[Effect]) -> None:
        self.events += 1
        for effect in effects:
            if isinstance(effect, Send):
                self._send(host.name, effect.to, effect.message)
            elif isinstance(effect, SetTimer):
                self._set_timer(host, effect.name, effect.due_ms)
            elif isinstance(effect, CancelTimer):
                host.timers.pop(effect.name, None)
            elif isinstance(effect, Flush):
                self._flush(host, effect)
            elif isinstance(effect, Log):
                self.logged.append((host.name, effect))
            elif isinstance(effect, Trace):
                self._trace(effect)
            elif isinstance(effect, Close):
                self._break(host.name, effect.peer)
        self.after_event(host)

    def _trace(self, trace: Trace) -> None:
        self.steps.append(
            Step(
                seq=len(self.steps), time_ns=self.now_ms * 1_000_000, node=trace.node, entity=trace.entity,
                action=trace.action, choices=trace.choices, state=trace.state,
            )
        )  # fmt: skip

    def _enter(self, host: Host, life: int, entrance: Callable[[Node], list[Effect]]) -> None:
        """Give something to a node, unless that life of it is over; a paused node gets it later."""
        if host.life != life or host.node is None:
            return
        if host.paused:
            host.held.append(lambda: self._enter(host, life, entrance))
            return
        self._step(host, entrance(host.node))

    def _set_timer(self, host: Host, name: str, due_ms: int) -> None:
        self._timer_serial += 1
        serial, life = self._timer_serial, host.life
        host.timers[name] = serial

        def fire() -> None:
            if host.timers.get(name) == serial and host.life == life:
                if not host.paused:
                    del host.timers[name]
                self._enter(host, life, lambda node: self._fired(host, node, name))

        self._at(max(due_ms, self.now_ms), fire)

    def _fired(self, host: Host, node: Node, name: str) -> list[Effect]:
        host.timers.pop(name, None)
        return node.fire(self._instant(), name)

    def _flush(self, host: Host, effect: Flush) -> None:
        """What was written before this moment is durable once the flush completes."""
        life = host.life

        def done() -> None:
            if host.life == life and host.node is not None:
                for path in effect.paths:
                    host.disk.flush(path)
                self._enter(host, life, lambda node: node.complete(self._instant(), effect.token))

        self.schedule(FLUSH_MS, done)

    # -- links -----------------------------------------------------------------------------------

    def _pipe(self, source: str, target: str) -> Pipe:
        pipe = self._pipes.get((source, target))
        if pipe is None:
            pipe = self._pipes[source, target] = Pipe()
        return pipe

    def _send(self, source: str, target: str, message: Any) -> None:
        if target not in self.hosts:
            return
        if (source, target) in self.held:
            self.held[source, target].append(message)
            return
        pipe = self._pipe(source, target)
        pipe.sent += 1
        if self.loss_per_mille and self.chance.draw(f"loss {source}>{target}", pipe.sent, 1000) < self.loss_per_mille:
            self._break(source, target)
            return
        delay = MIN_DELAY_MS + self.chance.draw(f"delay {source}>{target}", pipe.sent, self.spread_ms + 1)
        pipe.last_due_ms = max(self.now_ms + delay, pipe.last_due_ms)
        generation, host = pipe.generation, self.hosts[target]

        def arrive() -> None:
            if pipe.generation != generation:
                return
            if host.node is None:
                self._break(source, target)
            else:
                self._deliver(source, host, message)

        self._at(pipe.last_due_ms, arrive)

    def _deliver(self, source: str, host: Host, message: Any) -> None:
        self._enter(host, host.life, lambda node: node.receive(self._instant(), source, message))

    def _break(self, one: str, other: str) -> None:
        """The connection between two hosts is gone, with all that was on its way; both learn of it."""
        for source, target in ((one, other), (other, one)):
            self._pipe(source, target).generation += 1
            if (source, target) in self.held:
                self.held[source, target].clear()
            host = self.hosts.get(target)
            if host is not None and host.node is not None:
                self._tell_closed(host, source)

    def _tell_closed(self, host: Host, peer: str) -> None:
        life = host.life
        self.schedule(MIN_DELAY_MS, lambda: self._enter(host, life, lambda node: node.closed(self._instant(), peer)))

    # -- by hand ---------------------------------------------------------------------------------

    def hold(self, source: str, target: str) -> None:
        """From now on messages of this link wait until they are delivered by hand."""
        self.held.setdefault((source, target), deque())

    def deliver(self, source: str, target: str) -> Any:
        """Hand over the oldest held message; returns it."""
        message = self.held[source, target].popleft()
        host = self.hosts[target]
        if host.node is None:
            self._break(source, target)
        else:
            self._deliver(source, host, message)
        return message

    def drop(self, source: str, target: str) -> Any:
        return self.held[source, target].popleft()

    def release(self, source: str, target: str) -> None:
        """Deliver all that is held, and let the link run freely again."""
        while self.held.get((source, target)):
            self.deliver(source, target)
        self.held.pop((source, target), None)

    def enter(self, name: str, entrance: Callable[[Instant], list[Effect]]) -> None:
        """Take a step of a node from outside of the protocol."""
        self._step(self.hosts[name], entrance(self._instant()))


def _number(name: str) -> int | str:
    """`broker:2` is 2 in traces."""
    _, _, number = name.partition(":")
    return int(number) if number.isdigit() else name
