"""The nemesis: carries out a schedule in real time on a cluster of processes. Roles are resolved when a fault fires."""

import re
import threading
import time
from typing import Protocol

from fuzz.processes.raw import RawClient, RawError
from fuzz.processes.recorder import Recorder
from spec.formats.schedule import Fault, Schedule

ROLE = re.compile(r"(leader|followers)\((?P<topic>[^,]+),(?P<partition>\d+)\)")


class Processes(Protocol):
    """What the nemesis can do to a cluster."""

    addresses: dict[int, str]

    def start_node(self, node: int | str) -> None: ...
    def kill_node(self, node: int | str) -> None: ...
    def pause_node(self, node: int | str) -> None: ...
    def resume_node(self, node: int | str) -> None: ...


class Nemesis:
    def __init__(self, cluster: Processes, recorder: Recorder, topic: str) -> None:
        self._cluster, self._recorder, self._topic = cluster, recorder, topic
        self._client = RawClient(",".join(cluster.addresses.values()), timeout_s=1.0)
        self._verbs = {
            "kill": cluster.kill_node,
            "restart": cluster.start_node,
            "pause": cluster.pause_node,
            "resume": cluster.resume_node,
        }
        self._last: list[int] = []
        self._silent: set[int] = set()  # killed or paused: not to be asked for metadata

    def run(self, schedule: Schedule, stop: threading.Event) -> None:
        """Returns at the end of the schedule, or soon after `stop` is set."""
        started = time.monotonic()
        for fault in schedule.in_order():
            if stop.wait(max(0.0, started + fault.at_ms / 1000 - time.monotonic())):
                return
            self._inject(fault)
        stop.wait(max(0.0, started + schedule.duration_ms / 1000 - time.monotonic()))

    def _inject(self, fault: Fault) -> None:
        nodes = self._resolve(fault.target)
        if fault.target != "last":
            self._last = nodes
        for node in nodes:
            self._verbs[fault.verb](node)
            if fault.verb in {"kill", "pause"}:
                self._silent.add(node)
            else:
                self._silent.discard(node)
            self._recorder.nemesis(fault.verb, value=fault.target, node=str(node))

    def _resolve(self, target: str) -> list[int]:
        """Node ids; a role that nobody holds right now resolves to none."""
        if target.isdigit():
            return [int(target)]
        if target == "last":
            return self._last
        if target == "all":
            return list(self._cluster.addresses)
        avoid = frozenset(self._cluster.addresses[node] for node in self._silent)
        try:
            reply, leaders = self._client.metadata(self._topic, avoid)
        except RawError:
            return []
        if target == "controller":
            return [reply.controller_id] if reply.controller_id >= 0 else []
        role = ROLE.fullmatch(target)
        leadership = leaders.get(int(role["partition"])) if role else None
        if role is None or leadership is None or leadership.node < 0:
            return []
        if role[1] == "leader":
            return [leadership.node]
        return [node for node in leadership.replicas if node != leadership.node]

    def heal(self) -> None:
        """Everything runs again."""
        self._recorder.nemesis("phase", "heal")
        for node in self._cluster.addresses:
            self._cluster.resume_node(node)
            self._cluster.start_node(node)
            if node in self._silent:
                self._recorder.nemesis("restart", value="heal", node=str(node))
        self._silent.clear()
        self._client.close()
