"""Launches the reference for a chaos run with a proxy before every broker and before the metadata store."""

import tomllib
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from highwater.conformance.targets.reference import ReferenceCluster
from highwater.fuzz.chaos.clocks import Clocks
from highwater.fuzz.chaos.cluster import ChaosCluster, Instruments, LaunchedTarget, node_starter
from highwater.fuzz.chaos.disk.bit_rot import rot_fault
from highwater.fuzz.chaos.disk.mount import disk_faults, mount_disks
from highwater.fuzz.chaos.nemesis import STORE, process_faults
from highwater.fuzz.chaos.network.links import HOST, Links
from highwater.fuzz.chaos.network.packets import Packets
from highwater.fuzz.chaos.settings import reference_settings, settings_of_node
from highwater.fuzz.schedule import Schedule
from highwater.ports import Ports
from highwater.temporary import temporary_folder

QUICK: Final = {"metadata_store_session_timeout_ms": 2_000, "replica_lag_time_max_ms": 3_000}
SESSION_MS: Final = 3_000
"""After this time without a heartbeat the store has expired a session."""


def open_reference(
    target: LaunchedTarget, schedule: Schedule, stack: ExitStack, instruments: Instruments
) -> ChaosCluster:
    """Launch the cluster and return it with its faults; `stack` closes everything that was started."""
    brokers = target.brokers
    folder = stack.enter_context(temporary_folder("chaos-"))
    links = stack.enter_context(Links(folder, schedule.seed))
    ports = Ports(brokers + 1)
    stack.callback(ports.release)
    addresses = {node: f"{HOST}:{ports[node]}" for node in range(1, brokers + 1)}
    for name, port in zip((STORE, *map(str, addresses)), ports, strict=True):
        links.add_proxy(name, port, partial(_port_in, folder / f"{name}.toml"))
    settings: dict[str, object] = {**QUICK, "metadata_store": f"{HOST}:{ports[0]}", "advertised_port": ports[1]}
    for node in addresses:
        own = reference_settings(settings_of_node(node, schedule))
        settings.update({f"{node}.{key}": value for key, value in own.items()})
    disks = mount_disks(folder, map(str, addresses), stack) if instruments.disks else {}
    settings.update({f"{node}.log_dir": str(disk.mount) for node, disk in disks.items()})
    clocks = Clocks(folder, target.nodes) if instruments.clocks else None
    environment = {node: clocks.environment(node) for node in target.nodes} if clocks is not None else {}
    nodes = ReferenceCluster(
        brokers, settings=settings, folder=folder, environment=environment, trace=instruments.trace
    )
    cluster = stack.enter_context(nodes)
    expire = partial(links.expire, for_ms=SESSION_MS)
    faults = process_faults(cluster)
    faults |= {**disk_faults(disks, faults, schedule.seed), **links.faults(), "expire": expire}
    faults |= Packets(links.real_ports).faults() if instruments.packets else {}
    faults |= clocks.faults() if clocks is not None else {}
    log_dirs = {str(node): folder / f"broker-{node}" for node in addresses}
    log_dirs |= {node: disk.mount for node, disk in disks.items()}
    faults["rot"] = rot_fault(lambda: log_dirs, faults["kill"])
    return ChaosCluster(addresses, target.nodes, faults, node_starter(cluster))


def _port_in(config: Path) -> int:
    """Return the port of the one node that the file configures."""
    (node,) = tomllib.loads(config.read_text()).values()
    return int(node["port"])
