"""The reference as a field: every broker, and the metadata store, behind a proxy."""

import tempfile
import tomllib
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from highwater.conformance.targets.reference import ReferenceCluster
from highwater.fuzz.chaos.clocks import Clocks
from highwater.fuzz.chaos.cluster import Field, Launched, Means, reviving
from highwater.fuzz.chaos.disk.bit_rot import rot_fault
from highwater.fuzz.chaos.disk.mount import disk_faults, mounted
from highwater.fuzz.chaos.nemesis import STORE, process_faults
from highwater.fuzz.chaos.network.links import HOST, Links
from highwater.fuzz.chaos.network.packets import Packets
from highwater.fuzz.chaos.settings import of_reference, settings_of
from highwater.fuzz.schedule import Schedule
from highwater.ports import Ports

QUICK: Final = {"metadata_store_session_timeout_ms": 2_000, "replica_lag_time_max_ms": 3_000}
SESSION_MS: Final = 3_000
"""Until the store has looked for sessions that are over."""


def reference_field(told: Launched, schedule: Schedule, stack: ExitStack, means: Means) -> Field:
    brokers = told.brokers
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="highwater-chaos-")))
    links = stack.enter_context(Links(folder, schedule.seed))
    ports = Ports(brokers + 1)
    stack.callback(ports.release)
    addresses = {node: f"{HOST}:{ports[node]}" for node in range(1, brokers + 1)}
    for name, port in zip((STORE, *map(str, addresses)), ports, strict=True):
        links.front(name, port, partial(_port_in, folder / f"{name}.toml"))
    settings: dict[str, object] = {**QUICK, "metadata_store": f"{HOST}:{ports[0]}", "advertised_port": ports[1]}
    for node in addresses:
        own = of_reference(settings_of(node, schedule))
        settings.update({f"{node}.{key}": value for key, value in own.items()})
    places = mounted(folder, map(str, addresses), stack) if means.disks else {}
    settings.update({f"{node}.log_dir": str(disk.place) for node, disk in places.items()})
    clocks = Clocks(folder, told.nodes) if means.clocks else None
    environment = {node: clocks.environment(node) for node in told.nodes} if clocks is not None else {}
    nodes = ReferenceCluster(brokers, settings=settings, folder=folder, environment=environment, trace=means.trace)
    cluster = stack.enter_context(nodes)
    expire = partial(links.expire, for_ms=SESSION_MS)
    faults = process_faults(cluster)
    faults |= {**disk_faults(places, faults, schedule.seed), **links.faults(), "expire": expire}
    faults |= Packets(links.real_ports).faults() if means.packets else {}
    faults |= clocks.faults() if clocks is not None else {}
    kept = {str(node): folder / f"broker-{node}" for node in addresses} | {n: d.place for n, d in places.items()}
    faults["rot"] = rot_fault(lambda: kept, faults["kill"])
    return Field(addresses, told.nodes, faults, reviving(cluster))


def _port_in(config: Path) -> int:
    """The port of the one node that the file describes."""
    (node,) = tomllib.loads(config.read_text()).values()
    return int(node["port"])
