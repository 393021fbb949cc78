"""The nemesis: injects the faults of a schedule in real time, and undoes each of them.

A role such as `leader(t,0)` is resolved to nodes when the fault begins.
"""

import heapq
import itertools
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from highwater.fuzz.chaos.workload.raw_client import RawClient, RawError
from highwater.fuzz.chaos.workload.recorder import Recorder
from highwater.fuzz.schedule import KINDS, Fault, Schedule
from highwater.signals import wait

STORE = "store"
ROLE = re.compile(r"(leader|followers)\((?P<topic>[^,]+),(?P<partition>\d+)\)")
COORDINATOR = re.compile(r"coordinator\((?P<group>[^()]+)\)")
END_EVENTS = {"kill": "restart", "bounce": "restart", "pause": "resume"}
"""The name of the event that ends a fault, by its kind; for other kinds it is `KIND over`."""

Undo = Callable[[], None]
Inject = Callable[[Fault, str], Undo]
"""Begins a fault on one node and returns the function that ends it."""


class Processes(Protocol):
    """A cluster whose processes can be started, stopped, killed, paused and resumed."""

    @property
    def addresses(self) -> Mapping[int, str]: ...

    def start_node(self, node: int | str) -> None: ...
    def stop_node(self, node: int | str) -> None: ...
    def kill_node(self, node: int | str) -> None: ...
    def pause_node(self, node: int | str) -> None: ...
    def resume_node(self, node: int | str) -> None: ...


class Nemesis:
    """Injects faults and records them. `others`: the nodes that are no brokers, that is the store and named clients."""

    def __init__(
        self, addresses: Mapping[int, str], recorder: Recorder, faults: Mapping[str, Inject],
        others: Collection[str] = (STORE,),
    ) -> None:  # fmt: skip
        self._addresses, self._recorder, self._faults, self._others = addresses, recorder, faults, others
        self._client = RawClient(",".join(addresses.values()), timeout_s=1.0)
        self._ties = itertools.count()
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._open: dict[int, tuple[str, str, Undo]] = {}

    def run(self, schedule: Schedule, stop: threading.Event) -> None:
        """Inject faults until the schedule ends or `stop` is set; `heal` ends the faults that are still active."""
        started = time.monotonic()
        for fault in schedule.in_order():
            self._at(fault.at_ms, lambda fault=fault: self._begin(fault))  # type: ignore[misc]
        self._at(schedule.duration_ms, lambda: None)
        while self._due and self._due[0][0] <= schedule.duration_ms:
            at_ms, _, action = heapq.heappop(self._due)
            if wait(stop, started + at_ms / 1000 - time.monotonic()):
                return
            action()

    def _at(self, at_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at_ms, next(self._ties), action))

    def _begin(self, fault: Fault) -> None:
        for role in fault.nodes:
            for node in self._resolve(role):
                number = next(self._ties)
                self._open[number] = (fault.kind, node, self._faults[fault.kind](fault, node))
                self._recorder.nemesis(fault.kind, value=str(fault).strip(), node=node)
                if fault.for_ms:
                    self._at(fault.at_ms + fault.for_ms, lambda number=number: self._end(number))  # type: ignore[misc]

    def _end(self, number: int) -> None:
        if number in self._open:
            kind, node, undo = self._open.pop(number)
            undo()
            if KINDS[kind].lasts:
                self._recorder.nemesis(END_EVENTS.get(kind, f"{kind} over"), node=node)

    def heal(self) -> None:
        """Undo all active faults, the latest first."""
        self._recorder.nemesis("phase", "heal")
        for number in sorted(self._open, reverse=True):
            self._end(number)
        self._client.close()

    def _resolve(self, role: str) -> Sequence[str]:
        """Return the nodes that have the role now; an empty list if there are none or no broker answers."""
        if role == "all":
            return [str(node) for node in self._addresses]
        if role in self._others or role.isdigit():
            return [role]
        down = {node for kind, node, _ in self._open.values() if kind in END_EVENTS}
        avoid = frozenset(address for node, address in self._addresses.items() if str(node) in down)
        try:
            return [str(node) for node in self._holders(role, avoid) if node >= 0]
        except RawError:
            return []

    def _holders(self, role: str, avoid: frozenset[str]) -> Sequence[int]:
        coordinator = COORDINATOR.fullmatch(role)
        if coordinator is not None:
            return [self._client.coordinator(coordinator["group"], avoid)]
        found = ROLE.fullmatch(role)
        reply, leaders = self._client.metadata(found["topic"] if found else None, avoid)
        if found is None:
            return [reply.controller_id]
        leadership = leaders.get(int(found["partition"]))
        if leadership is None or leadership.node < 0:
            return []
        if found[1] == "leader":
            return [leadership.node]
        return [node for node in leadership.replicas if node != leadership.node]


# Faults on processes.


def process_faults(cluster: Processes) -> dict[str, Inject]:
    """Return the faults that need only processes, by their names in `highwater.fuzz.schedule.KINDS`."""

    def node_of(name: str) -> int | str:
        return int(name) if name.isdigit() else name

    def start(name: str) -> Undo:
        return lambda: cluster.start_node(node_of(name))

    def kill(fault: Fault, name: str) -> Undo:
        cluster.kill_node(node_of(name))
        return start(name)

    def bounce(fault: Fault, name: str) -> Undo:
        cluster.stop_node(node_of(name))
        return start(name)

    def pause(fault: Fault, name: str) -> Undo:
        cluster.pause_node(node_of(name))
        return lambda: cluster.resume_node(node_of(name))

    return {"kill": kill, "bounce": bounce, "pause": pause}
