"""Launches Apache Kafka for a chaos run with a proxy before every broker and controller, and before ZooKeeper."""

import re
import shutil
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from highwater.conformance.targets.apache_kafka import ZOOKEEPER_NODE, ApacheKafka
from highwater.fuzz.chaos.clocks import Clocks
from highwater.fuzz.chaos.cluster import ChaosCluster, Instruments, LaunchedTarget, node_starter
from highwater.fuzz.chaos.disk.bit_rot import rot_fault
from highwater.fuzz.chaos.disk.mount import Disk, disk_faults, mount_disks
from highwater.fuzz.chaos.nemesis import STORE, Inject, Processes, Undo, process_faults
from highwater.fuzz.chaos.network.links import HOST, Links
from highwater.fuzz.chaos.network.packets import Packets
from highwater.fuzz.chaos.settings import SESSION, kraft_settings, settings_of_node
from highwater.fuzz.schedule import Fault, Schedule
from highwater.ports import Ports
from highwater.temporary import temporary_folder

SESSION_MS: Final = 3_000
CONTROLLER: Final = "CONTROLLER"  # the name of the listener
CONNECT_MS: Final = 30_000
"""Time-out to connect to ZooKeeper, which starts at the same time. The default, the session time-out, is too short."""
EXPIRY_CHECK_MS: Final = 2_000
"""How late after its time-out ZooKeeper or the controller may expire a session."""


def open_apache_kafka(
    target: LaunchedTarget, schedule: Schedule, stack: ExitStack, instruments: Instruments
) -> ChaosCluster:
    """Launch the cluster and return it with its faults; `stack` closes everything that was started."""
    is_kraft = target.is_kraft
    proxied = ProxiedSettings(schedule, stack, is_kraft=is_kraft)
    folder = stack.enter_context(temporary_folder("chaos-"))
    clocks = Clocks(folder, target.nodes) if instruments.clocks else None
    if instruments.disks:
        proxied.disks = mount_disks(folder, map(str, range(1, target.brokers + 1)), stack)

    def environment(node: int | str) -> dict[str, str]:
        return clocks.environment(STORE if node == ZOOKEEPER_NODE else str(node)) if clocks is not None else {}

    cluster = ApacheKafka(target.version, target.brokers, node_settings=proxied.settings, environment=environment)
    stack.callback(cluster.close)
    if instruments.keep is not None:
        stack.callback(_keep_folders, cluster, proxied.log_dirs, instruments.keep)
    faults = {
        kind: inject if is_kraft else _with_store_name(inject) for kind, inject in process_faults(cluster).items()
    }
    sessions = [own[SESSION] for own in schedule.node_settings.values() if SESSION in own]
    for_ms = max(int(session_ms) for session_ms in [SESSION_MS, *sessions]) + EXPIRY_CHECK_MS
    expire = _expire_by_pause(cluster, for_ms) if is_kraft else partial(proxied.links.expire, for_ms=for_ms)
    faults |= {**disk_faults(proxied.disks, faults, schedule.seed), **proxied.links.faults(), "expire": expire}
    faults |= Packets(proxied.links.real_ports).faults() if instruments.packets else {}
    faults |= clocks.faults() if clocks is not None else {}
    faults["rot"] = rot_fault(lambda: proxied.log_dirs, faults["kill"])
    return ChaosCluster(cluster.addresses, target.nodes, faults, node_starter(cluster))


def _keep_folders(cluster: ApacheKafka, log_dirs: Mapping[str, Path], keep: Path) -> None:
    """Kill all nodes, and copy their data folders to `keep`: `NODE` of node NODE, and `zookeeper` if there is one."""
    for broker in cluster.addresses:
        cluster.kill_node(broker)
    for node, folder in log_dirs.items():
        shutil.copytree(folder, keep / node, ignore=shutil.ignore_patterns("*index", "lost+found"))
    if cluster.zookeeper_folder.exists():
        cluster.kill_node(ZOOKEEPER_NODE)
        shutil.copytree(cluster.zookeeper_folder, keep / ZOOKEEPER_NODE)


class ProxiedSettings:
    """Changes the settings of each node so that a proxy has its advertised port and the node listens on another.

    Without `faults_of_controllers` the links to a controller stay as they are when those to its broker are cut.
    """

    links: Links

    def __init__(
        self, schedule: Schedule, stack: ExitStack, *, is_kraft: bool, faults_of_controllers: bool = True
    ) -> None:
        self._schedule, self._stack, self._is_kraft = schedule, stack, is_kraft
        self._faults_of_controllers = faults_of_controllers
        self._store_port = 0
        self.disks: dict[str, Disk] = {}
        self.log_dirs: dict[str, Path] = {}

    def settings(self, node: int, defaults: Mapping[str, object]) -> dict[str, object]:
        if not hasattr(self, "links"):
            folder = Path(str(defaults["log.dirs"])).parent
            self.links = self._stack.enter_context(Links(folder, self._schedule.seed))
        listeners = str(defaults["listeners"])
        changed: dict[str, object] = {
            "listeners": re.sub(
                rf"(?<=(?:TEXT|LLER)://{HOST}:)\d+", partial(self._move_listener, str(node)), listeners
            ),
            "advertised.listeners": defaults.get("advertised.listeners", listeners),
        }
        if "zookeeper.connect" in defaults:
            self._store_port = self._store_port or self._proxy_store(str(defaults["zookeeper.connect"]))
            changed["zookeeper.connect"] = f"{HOST}:{self._store_port}"
            changed["zookeeper.connection.timeout.ms"] = CONNECT_MS
        if str(node) in self.disks:
            changed["log.dirs"] = self.disks[str(node)].mount
        self.log_dirs[str(node)] = Path(str(changed.get("log.dirs", defaults["log.dirs"])))
        own = settings_of_node(node, self._schedule)
        return {**changed, **(kraft_settings(own) if self._is_kraft else own)}

    def _move_listener(self, node: str, port: re.Match[str]) -> str:
        """Start a proxy on the port of a listener and return the port on which the node listens instead."""
        real = self._port()
        is_controller = port.string[: port.start()].endswith(f"{CONTROLLER}://{HOST}:")
        proxied = f"{CONTROLLER} {node}" if is_controller and not self._faults_of_controllers else node
        self.links.add_proxy(proxied, int(port[0]), lambda: real)
        return str(real)

    def _proxy_store(self, address: str) -> int:
        port, real = self._port(), int(address.rpartition(":")[2])
        self.links.add_proxy(STORE, port, lambda: real)
        return port

    def _port(self) -> int:
        (port,) = ports = Ports(1)
        self._stack.callback(ports.release)
        return port


def _with_store_name(inject: Inject) -> Inject:
    """Return the fault with `store`, the name in schedules, replaced by the name of the ZooKeeper node."""
    return lambda fault, node: inject(fault, ZOOKEEPER_NODE if node == STORE else node)


def _expire_by_pause(cluster: Processes, for_ms: int) -> Inject:
    """Return the `expire` fault for KRaft: pause the broker for longer than its session with the controller."""

    def expire(fault: Fault, node: str) -> Undo:
        cluster.pause_node(int(node))
        timer = threading.Timer(for_ms / 1000, cluster.resume_node, [int(node)])
        timer.start()

        def undo() -> None:
            timer.cancel()
            cluster.resume_node(int(node))

        return undo

    return expire
