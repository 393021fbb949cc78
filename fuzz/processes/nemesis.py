"""The nemesis: carries out a schedule in real time on a cluster of processes. Roles are resolved when a fault fires."""

import re
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from fuzz.processes.raw import RawClient, RawError
from fuzz.processes.recorder import Recorder
from spec.formats.schedule import Fault, Schedule

STORE = "store"
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
        self._killed: set[int | str] = set()
        self._paused: set[int | str] = set()

    def run(self, schedule: Schedule, stop: threading.Event) -> None:
        """Returns at the end of the schedule, or soon after `stop` is set."""
        started = time.monotonic()
        for fault in schedule.in_order():
            if stop.wait(max(0.0, started + fault.at_ms / 1000 - time.monotonic())):
                return
            self._inject(fault)
        stop.wait(max(0.0, started + schedule.duration_ms / 1000 - time.monotonic()))

    def _inject(self, fault: Fault) -> None:
        for node in self._resolve(fault.target):
            self._do(fault.verb, node, fault.target)

    def _do(self, verb: str, node: int | str, why: str) -> None:
        self._verbs[verb](node)
        self._recorder.nemesis(verb, value=why, node=str(node))
        match verb:
            case "kill":
                self._killed.add(node)
                self._paused.discard(node)
            case "pause":
                self._paused.add(node)
            case "restart":
                self._killed.discard(node)
            case "resume":
                self._paused.discard(node)

    def _resolve(self, target: str) -> Sequence[int | str]:
        """Nodes; a role that nobody holds right now resolves to none."""
        if target == STORE:
            return [STORE]
        if target.isdigit():
            return [int(target)]
        if target in {"killed", "paused"}:
            return sorted(self._killed if target == "killed" else self._paused, key=str)
        away = self._killed | self._paused
        avoid = frozenset(address for node, address in self._cluster.addresses.items() if node in away)
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
        for node in sorted(self._paused, key=str):
            self._do("resume", node, "heal")
        for node in sorted(self._killed, key=str):
            self._do("restart", node, "heal")
        self._client.close()
