"""The field of a target: its cluster is launched, and ended however the block ends."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from highwater.conformance.targets import launch_target
from highwater.conformance.targets.base import PAUSE_NODE, STOP_NODE
from highwater.errors import UsageError
from highwater.faketime import missing_for_clocks
from highwater.fuzz.chaos.apache_kafka import apache_kafka_field
from highwater.fuzz.chaos.cluster import Field, Launched, Means, launched
from highwater.fuzz.chaos.nemesis import process_faults
from highwater.fuzz.chaos.network.packets import own_network
from highwater.fuzz.chaos.reference import reference_field
from highwater.fuzz.schedule import Schedule
from highwater.releases import fetch_release

FIELDS: Final = {"reference": reference_field, "apache-kafka": apache_kafka_field}


@contextmanager
def open_field(
    target: str,
    schedule: Schedule,
    *,
    disks: bool = False,
    packets: bool = False,
    clocks: bool = False,
    trace: Path | None = None,
) -> Iterator[Field]:
    """Launch it, and end it however the block ends: processes, proxies, mounts. UsageError when it does not start.

    `disks`: each node has one of ours below its log, if this machine can. `packets`: cuts and losses are of packets.
    `clocks`: each has a wall clock of its own, if this machine can.
    `trace`: the folder for the nodes' steps, which only the reference tells.
    """
    found = launched(target)
    if trace is not None and (found is None or found.kind != "reference"):
        raise UsageError("only the reference tells its steps", where="--trace", hint="try it with reference:3")
    means = Means(disks=disks, packets=packets, clocks=clocks and not missing_for_clocks(), trace=trace)
    with ExitStack() as stack:
        if packets:
            _enter_own_network(found, target, stack)
        if found is None:
            yield _foreign(target, schedule, stack)
        else:
            yield FIELDS[found.kind](found, schedule, stack, means)


def _enter_own_network(found: Launched | None, target: str, stack: ExitStack) -> None:
    if found is None:
        raise UsageError("packets are those of clusters that are launched here", where=target)
    if found.kind == "apache-kafka":
        fetch_release(found.version)  # nothing can be fetched in there
    stack.enter_context(own_network())


def _foreign(target: str, schedule: Schedule, stack: ExitStack) -> Field:
    """What its commands can do; no link of it is ours."""
    if schedule.node_settings:
        raise UsageError("node_settings are for clusters that are launched here", where=target)
    cluster = launch_target(target)
    stack.callback(cluster.close)
    faults = process_faults(cluster)
    needed = {"kill": STOP_NODE, "bounce": STOP_NODE, "pause": PAUSE_NODE}
    possible = {kind: does for kind, does in faults.items() if needed[kind] in cluster.capabilities}
    return Field(cluster.addresses, tuple(map(str, cluster.addresses)), possible)
