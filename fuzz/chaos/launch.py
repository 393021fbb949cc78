"""Launches the cluster of a chaos run with its proxies and mounts, and ends all of them afterwards."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from highwater.conformance.targets import launch_target
from highwater.conformance.targets.base import PAUSE_NODE, STOP_NODE
from highwater.errors import UsageError
from highwater.faketime import missing_for_clocks
from highwater.fuzz.chaos.apache_kafka import open_apache_kafka
from highwater.fuzz.chaos.cluster import ChaosCluster, Instruments, LaunchedTarget, launched_target
from highwater.fuzz.chaos.nemesis import process_faults
from highwater.fuzz.chaos.network.packets import own_network
from highwater.fuzz.chaos.reference import open_reference
from highwater.fuzz.schedule import Schedule
from highwater.releases import fetch_release

OPENERS: Final = {"reference": open_reference, "apache-kafka": open_apache_kafka}


@contextmanager
def open_cluster(
    target: str,
    schedule: Schedule,
    *,
    disks: bool = False,
    packets: bool = False,
    clocks: bool = False,
    trace: Path | None = None,
    keep: Path | None = None,
) -> Iterator[ChaosCluster]:
    """Launch the cluster of `target`; end its processes, proxies and mounts on exit. UsageError if it does not start.

    `disks`: mount a fault-injection file system below the log of each node, if this machine supports it.
    `packets`: cut links and lose data by dropping packets, not by closing connections in proxies.
    `clocks`: give each node a separate wall clock, if this machine supports it.
    `trace`: the folder for the traces of the nodes, which only the reference writes.
    `keep`: the folder to which the data folders of the brokers are copied at the end, only of Apache Kafka.
    """
    found = launched_target(target)
    if trace is not None and (found is None or found.kind != "reference"):
        raise UsageError("only the reference writes traces", where="--trace", hint="use the target reference:3")
    if keep is not None and (found is None or found.kind != "apache-kafka"):
        raise UsageError(
            "only Apache Kafka's folders can be kept", where="--keep", hint="use the target apache-kafka:3"
        )
    clocks = clocks and not missing_for_clocks()
    instruments = Instruments(disks=disks, packets=packets, clocks=clocks, trace=trace, keep=keep)
    with ExitStack() as stack:
        if packets:
            _enter_own_network(found, target, stack)
        if found is None:
            yield _external_cluster(target, schedule, stack)
        else:
            yield OPENERS[found.kind](found, schedule, stack, instruments)


def _enter_own_network(found: LaunchedTarget | None, target: str, stack: ExitStack) -> None:
    if found is None:
        raise UsageError("packets can be dropped only in a cluster that this command launches", where=target)
    if found.kind == "apache-kafka":
        fetch_release(found.version)  # fetch it now: the new namespace has no network
    stack.enter_context(own_network())


def _external_cluster(target: str, schedule: Schedule, stack: ExitStack) -> ChaosCluster:
    """Return a cluster without proxies; its faults are those that the target's commands support."""
    if schedule.node_settings:
        raise UsageError("node_settings apply only to a cluster that this command launches", where=target)
    cluster = launch_target(target)
    stack.callback(cluster.close)
    faults = process_faults(cluster)
    needed = {"kill": STOP_NODE, "bounce": STOP_NODE, "pause": PAUSE_NODE}
    possible = {kind: inject for kind, inject in faults.items() if needed[kind] in cluster.capabilities}
    return ChaosCluster(cluster.addresses, tuple(map(str, cluster.addresses)), possible)
