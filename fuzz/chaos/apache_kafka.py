"""Apache Kafka as a field: every broker and controller, and ZooKeeper, behind a proxy."""

import re
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from highwater.conformance.targets.apache_kafka import ZOOKEEPER_NODE, ApacheKafka
from highwater.fuzz.chaos.clocks import Clocks
from highwater.fuzz.chaos.cluster import Field, Launched, Means, reviving
from highwater.fuzz.chaos.disk.bit_rot import rot_fault
from highwater.fuzz.chaos.disk.mount import Disk, disk_faults, mounted
from highwater.fuzz.chaos.nemesis import STORE, Inject, Processes, Undo, process_faults
from highwater.fuzz.chaos.network.links import HOST, Links
from highwater.fuzz.chaos.network.packets import Packets
from highwater.fuzz.chaos.settings import SESSION, of_kraft, settings_of
from highwater.fuzz.schedule import Fault, Schedule
from highwater.ports import Ports

SESSION_MS: Final = 3_000
CONNECT_MS: Final = 30_000
"""To ZooKeeper, which starts at the same time: else it is as short as the session."""
LATE_MS: Final = 2_000
"""Until ZooKeeper or the controller has looked for sessions that are over."""


def apache_kafka_field(told: Launched, schedule: Schedule, stack: ExitStack, means: Means) -> Field:
    is_kraft = told.is_kraft
    behind = _Behind(schedule, stack, is_kraft=is_kraft)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="highwater-chaos-")))
    clocks = Clocks(folder, told.nodes) if means.clocks else None
    if means.disks:
        behind.disks = mounted(folder, map(str, range(1, told.brokers + 1)), stack)

    def environment(node: int | str) -> dict[str, str]:
        return clocks.environment(STORE if node == ZOOKEEPER_NODE else str(node)) if clocks is not None else {}

    cluster = ApacheKafka(told.version, told.brokers, node_settings=behind.settings, environment=environment)
    stack.callback(cluster.close)
    faults = {kind: inject if is_kraft else _by_its_name(inject) for kind, inject in process_faults(cluster).items()}
    sessions = [own[SESSION] for own in schedule.node_settings.values() if SESSION in own]
    for_ms = max(int(each) for each in [SESSION_MS, *sessions]) + LATE_MS
    expire = _pausing(cluster, for_ms) if is_kraft else partial(behind.links.expire, for_ms=for_ms)
    faults |= {**disk_faults(behind.disks, faults, schedule.seed), **behind.links.faults(), "expire": expire}
    faults |= Packets(behind.links.real_ports).faults() if means.packets else {}
    faults |= clocks.faults() if clocks is not None else {}
    faults["rot"] = rot_fault(lambda: behind.kept, faults["kill"])
    return Field(cluster.addresses, told.nodes, faults, reviving(cluster))


class _Behind:
    """Puts nodes behind proxies while their settings are written: a node listens elsewhere than it says."""

    links: Links

    def __init__(self, schedule: Schedule, stack: ExitStack, *, is_kraft: bool) -> None:
        self._schedule, self._stack, self._is_kraft = schedule, stack, is_kraft
        self._store_port = 0
        self.disks: dict[str, Disk] = {}
        self.kept: dict[str, Path] = {}

    def settings(self, node: int, given: Mapping[str, object]) -> dict[str, object]:
        if not hasattr(self, "links"):
            folder = Path(str(given["log.dirs"])).parent
            self.links = self._stack.enter_context(Links(folder, self._schedule.seed))
        told = str(given["listeners"])
        changed: dict[str, object] = {
            "listeners": re.sub(rf"(?<=(?:TEXT|LLER)://{HOST}:)\d+", partial(self._elsewhere, str(node)), told),
            "advertised.listeners": given.get("advertised.listeners", told),
        }
        if "zookeeper.connect" in given:
            self._store_port = self._store_port or self._front_store(str(given["zookeeper.connect"]))
            changed["zookeeper.connect"] = f"{HOST}:{self._store_port}"
            changed["zookeeper.connection.timeout.ms"] = CONNECT_MS
        if str(node) in self.disks:
            changed["log.dirs"] = self.disks[str(node)].place
        self.kept[str(node)] = Path(str(changed.get("log.dirs", given["log.dirs"])))
        own = settings_of(node, self._schedule)
        return {**changed, **(of_kraft(own) if self._is_kraft else own)}

    def _elsewhere(self, node: str, told: re.Match[str]) -> str:
        real = self._port()
        self.links.front(node, int(told[0]), lambda: real)
        return str(real)

    def _front_store(self, address: str) -> int:
        port, real = self._port(), int(address.rpartition(":")[2])
        self.links.front(STORE, port, lambda: real)
        return port

    def _port(self) -> int:
        (port,) = ports = Ports(1)
        self._stack.callback(ports.release)
        return port


def _by_its_name(inject: Inject) -> Inject:
    """The store of a schedule is the target's ZooKeeper."""
    return lambda fault, node: inject(fault, ZOOKEEPER_NODE if node == STORE else node)


def _pausing(cluster: Processes, for_ms: int) -> Inject:
    """Without a store the session is with the controller, and ends while the process stands still."""

    def expire(fault: Fault, node: str) -> Undo:
        cluster.pause_node(int(node))
        timer = threading.Timer(for_ms / 1000, cluster.resume_node, [int(node)])
        timer.start()

        def undo() -> None:
            timer.cancel()
            cluster.resume_node(int(node))

        return undo

    return expire
