"""The world: nodes, links, disks and one heap of events in virtual milliseconds.

Runs freely (`run_until`); scenarios hold links and step them by hand (`hold`, `deliver`, `drop`, `release`).
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from reference.drivers.simulation.chance import Chance
from reference.drivers.simulation.disk import Flushing, Lose, SimulatedDisk
from reference.drivers.simulation.network import MIN_DELAY_MS, Network
from reference.effects import CancelTimer, Close, Effect, Flush, HandlerFailed, Log, Send, SetTimer, Trace
from reference.events import Instant, Node
from spec.formats.trace import Step

WALL_CLOCK_START_MS = 1_700_000_000_000
LOGGED = 1_000  # log lines that are kept
FINGERPRINT_MASK = (1 << 64) - 1

Action = Callable[..., None]
Entrance = Callable[..., list[Effect]]  # given the instant, and what comes in


@dataclass(slots=True)
class Host:
    """A machine with a disk, and the node that runs on it while it is up. `life` tells old timers from new."""

    name: str
    disk: SimulatedDisk
    make: Callable[[SimulatedDisk], Node]
    number: int = 0
    node: Node | None = None
    life: int = 0
    paused: bool = False
    wall_offset_ms: int = 0  # what a jump of the wall clock added; timers do not see it
    held: list[Action] = field(default_factory=list)
    timers: dict[str, int] = field(default_factory=dict)  # name -> the one setting that counts


class World:
    """`spread_ms` is how much message delays differ; `loss_per_mille` breaks the connection on a message.

    `fingerprint` depends on every event's time, place and number of effects: two runs of a seed have the same.
    """

    def __init__(self, seed: int, *, spread_ms: int = 4, loss_per_mille: int = 0, reorder: bool = False) -> None:
        self.chance = Chance(seed)
        self.now_ms = 0
        self.events = 0
        self.fingerprint = 0
        self.hosts: dict[str, Host] = {}
        self.steps: list[Step] = []
        self.logged: deque[tuple[str, Log]] = deque(maxlen=LOGGED)
        self.network = Network(self, spread_ms=spread_ms, loss_per_mille=loss_per_mille, reorder=reorder)
        self.after_event: Callable[[Host], None] = lambda host: None
        self.hold, self.deliver = self.network.hold, self.network.deliver
        self.drop, self.release = self.network.drop, self.network.release
        self.held = self.network.held
        self._break = self.network.disconnect
        self._heap: list[tuple[int, int, Action, tuple[Any, ...]]] = []
        self._tie = 0
        self._timer_serial = 0
        self._instant = Instant(-1, -1)
        self._perform: dict[type, Callable[[Host, Any], None]] = {
            Send: lambda host, effect: self.network.send(host.name, effect.to, effect.message),
            SetTimer: self._set_timer,
            CancelTimer: self._cancel_timer,
            Flush: self._flush,
            Log: lambda host, effect: self.logged.append((host.name, effect)),
            Trace: lambda host, effect: self._trace(effect),
            HandlerFailed: self._broke,
            Close: lambda host, effect: self.network.disconnect(host.name, effect.peer),
        }

    @property
    def spread_ms(self) -> int:
        return self.network.spread_ms

    @property
    def loss_per_mille(self) -> int:
        return self.network.loss_per_mille

    @loss_per_mille.setter
    def loss_per_mille(self, value: int) -> None:
        self.network.loss_per_mille = value

    # -- hosts -----------------------------------------------------------------------------------

    def add(self, name: str, make: Callable[[SimulatedDisk], Node]) -> Host:
        host = self.hosts[name] = Host(name, SimulatedDisk(), make, len(self.hosts))
        return host

    def start(self, name: str) -> None:
        host = self.hosts[name]
        host.life += 1
        host.paused = False
        node = host.node = host.make(host.disk)
        self._step(host, node.start)

    def knows(self, name: str) -> bool:
        return name in self.hosts

    def is_up(self, name: str) -> bool:
        return self.hosts[name].node is not None

    def life(self, name: str) -> int:
        return self.hosts[name].life

    def crash(self, name: str, *, lose_unflushed: bool = False, lose: Lose = "nothing") -> None:
        """The process is gone; its peers learn of it, and of the page cache `lose` goes with it."""
        host = self.hosts[name]
        host.node, host.paused = None, False
        host.timers.clear()
        host.held.clear()
        self._trace(Trace("", "Crash", _number(name)))
        host.disk.lose("unflushed" if lose_unflushed else lose, self.chance.stream(f"torn {name} {host.life}"))
        for other in self.hosts:
            if other != name:
                self.network.disconnect(name, other)

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

    def schedule(self, delay_ms: int, action: Action, *given: Any) -> None:
        self.at(self.now_ms + delay_ms, action, *given)

    def at(self, due_ms: int, action: Action, *given: Any) -> None:
        self._tie += 1
        heapq.heappush(self._heap, (due_ms, self._tie, action, given))

    def run_until(self, end_ms: int) -> None:
        heap, take = self._heap, heapq.heappop
        while heap and heap[0][0] <= end_ms:
            self.now_ms, _, action, given = take(heap)
            action(*given)
        self.now_ms = max(self.now_ms, end_ms)

    def instant(self, host: Host) -> Instant:
        """Both clocks of a host. Most hosts share one moment."""
        if host.wall_offset_ms:
            return Instant(self.now_ms, WALL_CLOCK_START_MS + self.now_ms + host.wall_offset_ms)
        if self._instant.monotonic_ms != self.now_ms:
            self._instant = Instant(self.now_ms, WALL_CLOCK_START_MS + self.now_ms)
        return self._instant

    # -- effects ---------------------------------------------------------------------------------

    def _step(self, host: Host, entrance: Entrance, *given: Any) -> None:
        self.events += 1
        try:
            effects = entrance(self.instant(host), *given)
        except OSError as error:  # as under the TCP driver: what this node says from now on could not be trusted
            self.logged.append((host.name, Log("log", f"the disk refuses: {error}", "error")))
            self.crash(host.name)
            effects = []
        self.fingerprint = (
            self.fingerprint * 0x100000001B3 ^ self.now_ms << 16 ^ host.number << 8 ^ len(effects)
        ) & FINGERPRINT_MASK
        perform = self._perform
        for effect in effects:
            perform[type(effect)](host, effect)
        self.after_event(host)

    @staticmethod
    def _broke(host: Host, effect: HandlerFailed) -> None:
        raise effect.error

    def _trace(self, trace: Trace) -> None:
        self.steps.append(
            Step(
                seq=len(self.steps), time_ns=self.now_ms * 1_000_000, node=trace.node, entity=trace.entity,
                action=trace.action, choices=trace.choices, state=trace.state,
            )
        )  # fmt: skip

    def _enter(self, host: Host, life: int, entrance: Entrance, *given: Any) -> None:
        """Give something to a node, unless that life of it is over; a paused node gets it later."""
        if host.life != life or host.node is None:
            return
        if host.paused:
            host.held.append(partial(self._enter, host, life, entrance, *given))
            return
        self._step(host, entrance, *given)

    def _set_timer(self, host: Host, effect: SetTimer) -> None:
        self._timer_serial += 1
        host.timers[effect.name] = self._timer_serial
        self.at(max(effect.due_ms, self.now_ms), self._fire, host, host.life, effect.name, self._timer_serial)

    def _fire(self, host: Host, life: int, name: str, serial: int) -> None:
        node = host.node
        if host.timers.get(name) != serial or host.life != life or node is None:
            return
        if host.paused:
            host.held.append(partial(self._enter, host, life, self._fired, host, name))
        else:
            del host.timers[name]
            self._step(host, node.fire, name)

    def _fired(self, now: Instant, host: Host, name: str) -> list[Effect]:
        host.timers.pop(name, None)
        assert host.node is not None
        return host.node.fire(now, name)

    def _cancel_timer(self, host: Host, effect: CancelTimer) -> None:
        host.timers.pop(effect.name, None)

    def _flush(self, host: Host, effect: Flush) -> None:
        """What was written before this moment is durable once the flush completes."""
        begun = [host.disk.begin_flush(path) for path in effect.paths]
        self.schedule(host.disk.flush_ms, self._flushed, host, host.life, begun, effect.token)

    def _flushed(self, host: Host, life: int, begun: list[Flushing], token: str) -> None:
        node = host.node
        if host.life != life or node is None:
            return
        if host.disk.flush_fails:
            self.logged.append((host.name, Log("log", "a flush failed", "error")))
            self.crash(host.name)
            return
        for flushing in begun:
            host.disk.end_flush(flushing)
        self._enter(host, life, node.complete, token)

    # -- for the network ---------------------------------------------------------------------------

    def hand_over(self, source: str, target: str, message: Any) -> None:
        host = self.hosts[target]
        node = host.node
        assert node is not None
        if host.paused:
            self._enter(host, host.life, node.receive, source, message)
        else:
            self._step(host, node.receive, source, message)

    def tell_closed(self, name: str, peer: str) -> None:
        host = self.hosts.get(name)
        node = host.node if host is not None else None
        if host is not None and node is not None:
            self.schedule(MIN_DELAY_MS, self._enter, host, host.life, node.closed, peer)

    def enter(self, name: str, entrance: Callable[[Instant], list[Effect]]) -> None:
        """Take a step of a node from outside of the protocol."""
        self._step(self.hosts[name], entrance)


def _number(name: str) -> int | str:
    """`broker:2` is 2 in traces; `member:2` is not that broker."""
    number = name.removeprefix("broker:")
    return int(number) if number.isdigit() else name
