"""The simulated world: hosts with nodes and disks, a network, and one heap of events in virtual milliseconds.

Theory of operation
-------------------
A node (broker, store or client) is an object that takes an event and returns effects: messages, timers, flushes, log
lines. The world gives it the event at a virtual time and carries the effects out, each of which becomes a later event.
Nothing else changes a node, so the order of events is the whole run.

Events are ordered by (time, number), where the number counts insertions: two events of the same millisecond run in the
order in which they were scheduled. Every random choice comes from `Chance`, keyed by the seed, a purpose and a count
(`chance`), never from a shared generator: leaving out one fault changes no other choice. No order depends on hashing.

A crash ends a node and discards its timers and connections; its disk loses what the fault says of what was not
flushed. A restart creates a new object on the same disk. Messages to an earlier life of a node are dropped.

`run_until` runs freely; scenarios hold links and deliver their messages one by one (`hold`, `deliver`, `drop`,
`release`). `after_event` is called with the host that moved, where the invariants are checked. `before_delivery` and
`before_crash` are called with what is about to happen, where histories are recorded.

Invariants: time never goes back; a paused or crashed host receives no event; the fingerprint covers every event, so
equal fingerprints mean equal runs.

Deliberately absent: threads, wall clocks, sockets and real disks. A node that needs them cannot run here
(`reference/tests/test_no_io.py`).
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from highwater.reference.drivers.simulation.chance import Chance
from highwater.reference.drivers.simulation.disk import Flushing, Lose, SimulatedDisk
from highwater.reference.drivers.simulation.network import MIN_DELAY_MS, Network
from highwater.reference.effects import (
    CancelTimer,
    Close,
    Effect,
    Flush,
    HandlerFailed,
    Instant,
    Log,
    Node,
    Send,
    SetTimer,
    Trace,
)
from highwater.spec.formats.trace import Step

WALL_CLOCK_START_MS = 1_700_000_000_000
MAX_LOGGED = 1_000  # the last log lines are kept
FINGERPRINT_MASK = (1 << 64) - 1

Action = Callable[..., None]
EntryPoint = Callable[..., list[Effect]]  # a method of a node: takes the instant and the event


@dataclass(slots=True)
class Host:
    """A machine with a disk, and its node while it is up; `life` counts the starts, to ignore timers of older ones."""

    name: str
    disk: SimulatedDisk
    make: Callable[[SimulatedDisk], Node]
    number: int = 0
    node: Node | None = None
    life: int = 0
    paused: bool = False
    wall_offset_ms: int = 0  # the sum of wall clock jumps; timers use the monotonic clock
    held: list[Action] = field(default_factory=list)
    timers: dict[str, int] = field(default_factory=dict)  # name -> serial of its latest setting


class World:
    """One simulation. `spread_ms` is the range of message delays; a lost message (`loss_per_mille`) disconnects.

    `wall_clock_start_ms` is the time of the wall clocks, since 1970, when the world begins.

    `fingerprint` is a hash of time, host and number of effects of every event; it is equal for runs of the same seed.
    """

    def __init__(
        self, seed: int, *, spread_ms: int = 4, loss_per_mille: int = 0, reorder: bool = False,
        wall_clock_start_ms: int = WALL_CLOCK_START_MS,
    ) -> None:  # fmt: skip
        self.chance = Chance(seed)
        self.now_ms, self.wall_clock_start_ms = 0, wall_clock_start_ms
        self.events = 0
        self.fingerprint = 0
        self.hosts: dict[str, Host] = {}
        self.steps: list[Step] = []
        self.logged: deque[tuple[str, Log]] = deque(maxlen=MAX_LOGGED)
        self.network = Network(self, spread_ms=spread_ms, loss_per_mille=loss_per_mille, reorder=reorder)
        self.after_event: Callable[[Host], None] = lambda host: None
        self.before_delivery: Callable[[str, str, Any], None] = lambda source, target, message: None
        self.before_crash: Callable[[str], None] = lambda name: None
        self.hold, self.deliver = self.network.hold, self.network.deliver
        self.drop, self.release = self.network.drop, self.network.release
        self.held = self.network.held
        self._break = self.network.disconnect
        self._heap: list[tuple[int, int, Action, tuple[Any, ...]]] = []
        self._sequence = 0
        self._timer_serial = 0
        self._instant = Instant(-1, -1)
        self._perform: dict[type, Callable[[Host, Any], None]] = {
            Send: lambda host, effect: self.network.send(host.name, effect.to, effect.message),
            SetTimer: self._set_timer,
            CancelTimer: self._cancel_timer,
            Flush: self._flush,
            Log: lambda host, effect: self.logged.append((host.name, effect)),
            Trace: lambda host, effect: self._trace(effect),
            HandlerFailed: self._raise_handler_error,
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
        """Kill a node: its disk loses the data that `lose` selects, and its peers are disconnected."""
        self.before_crash(name)
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
        """Resume a paused node: it handles the events of the pause now, in order."""
        host = self.hosts[name]
        host.paused = False
        held, host.held = host.held, []
        for action in held:
            self.schedule(0, action)

    # -- time ------------------------------------------------------------------------------------

    def schedule(self, delay_ms: int, action: Action, *arguments: Any) -> None:
        self.at(self.now_ms + delay_ms, action, *arguments)

    def at(self, due_ms: int, action: Action, *arguments: Any) -> None:
        assert due_ms >= self.now_ms, "time does not go back"
        self._sequence += 1
        heapq.heappush(self._heap, (due_ms, self._sequence, action, arguments))

    def step(self, end_ms: int) -> bool:
        """Run the next event that is due by `end_ms`; without one the time is then `end_ms`, and False is returned."""
        if not self._heap or self._heap[0][0] > end_ms:
            self.now_ms = max(self.now_ms, end_ms)
            return False
        self.now_ms, _, action, arguments = heapq.heappop(self._heap)
        action(*arguments)
        return True

    def run_until(self, end_ms: int) -> None:
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= end_ms:
            self.now_ms, _, action, arguments = pop(heap)
            action(*arguments)
        self.now_ms = max(self.now_ms, end_ms)

    def instant(self, host: Host) -> Instant:
        """Return both clocks of a host; the instant is cached, because most hosts have no wall clock offset."""
        if host.wall_offset_ms:
            return Instant(self.now_ms, self.wall_clock_start_ms + self.now_ms + host.wall_offset_ms)
        if self._instant.monotonic_ms != self.now_ms:
            self._instant = Instant(self.now_ms, self.wall_clock_start_ms + self.now_ms)
        return self._instant

    # -- effects ---------------------------------------------------------------------------------

    def _step(self, host: Host, entry_point: EntryPoint, *arguments: Any) -> None:
        self.events += 1
        try:
            effects = entry_point(self.instant(host), *arguments)
        except OSError as error:  # as in the TCP driver, a disk error outside of a partition stops the node
            self.logged.append((host.name, Log("log", f"the disk failed: {error}", "error")))
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
    def _raise_handler_error(host: Host, effect: HandlerFailed) -> None:
        raise effect.error

    def _trace(self, trace: Trace) -> None:
        self.steps.append(
            Step(
                seq=len(self.steps), time_ns=self.now_ms * 1_000_000, node=trace.node, entity=trace.entity,
                action=trace.action, choices=trace.choices, state=trace.state,
            )
        )  # fmt: skip

    def _enter(self, host: Host, life: int, entry_point: EntryPoint, *arguments: Any) -> None:
        """Call an entry point of a node, unless it has restarted since; a paused node is called after the pause."""
        if host.life != life or host.node is None:
            return
        if host.paused:
            host.held.append(partial(self._enter, host, life, entry_point, *arguments))
            return
        self._step(host, entry_point, *arguments)

    def _set_timer(self, host: Host, effect: SetTimer) -> None:
        self._timer_serial += 1
        host.timers[effect.name] = self._timer_serial
        self.at(max(effect.due_ms, self.now_ms), self._fire, host, host.life, effect.name, self._timer_serial)

    def _fire(self, host: Host, life: int, name: str, serial: int) -> None:
        node = host.node
        if host.timers.get(name) != serial or host.life != life or node is None:
            return
        if host.paused:
            host.held.append(partial(self._enter, host, life, self._fire_paused, host, name))
        else:
            del host.timers[name]
            self._step(host, node.fire, name)

    def _fire_paused(self, now: Instant, host: Host, name: str) -> list[Effect]:
        host.timers.pop(name, None)
        assert host.node is not None
        return host.node.fire(now, name)

    def _cancel_timer(self, host: Host, effect: CancelTimer) -> None:
        host.timers.pop(effect.name, None)

    def _flush(self, host: Host, effect: Flush) -> None:
        """Start a flush; data written before this call is durable when the flush completes."""
        flushes = [host.disk.begin_flush(path) for path in effect.paths]
        self.schedule(host.disk.flush_ms, self._complete_flush, host, host.life, flushes, effect.token)

    def _complete_flush(self, host: Host, life: int, flushes: list[Flushing], token: str) -> None:
        node = host.node
        if host.life != life or node is None:
            return
        if host.disk.flush_fails:
            self.logged.append((host.name, Log("log", "a flush failed", "error")))
            self.crash(host.name)
            return
        for flushing in flushes:
            host.disk.end_flush(flushing)
        self._enter(host, life, node.complete, token)

    # -- for the network ---------------------------------------------------------------------------

    def hand_over(self, source: str, target: str, message: Any) -> None:
        self.before_delivery(source, target, message)
        host = self.hosts[target]
        node = host.node
        assert node is not None
        if host.paused:
            self._enter(host, host.life, node.receive, source, message)
        else:
            self._step(host, node.receive, source, message)

    def notify_closed(self, name: str, peer: str) -> None:
        host = self.hosts.get(name)
        node = host.node if host is not None else None
        if host is not None and node is not None:
            self.schedule(MIN_DELAY_MS, self._enter, host, host.life, node.closed, peer)

    def enter(self, name: str, entry_point: Callable[[Instant], list[Effect]]) -> None:
        """Call a method of a node that is not caused by a message or timer."""
        self._step(self.hosts[name], entry_point)


def _number(name: str) -> int | str:
    """Return the node id in traces: 2 for `broker:2`, the full name for other nodes."""
    number = name.removeprefix("broker:")
    return int(number) if number.isdigit() else name
