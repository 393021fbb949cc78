"""The field of a run: a cluster launched so that faults can get at it, and how each kind of fault is done there."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conformance.targets import check_target, launch_target
from conformance.targets.apache_kafka import KRAFT_SINCE
from conformance.targets.base import PAUSE_NODE, STOP_NODE
from fuzz.chaos.packets import own_network
from fuzz.processes.faults import process_faults
from fuzz.processes.nemesis import STORE, Inject, Processes
from fuzz.schedule import Schedule
from spec.faketime import missing_for_clocks
from spec.formats.verdict import UsageError
from spec.releases import NEWEST, fetch_release, release_number

LAUNCHED: Final = re.compile(r"(reference|apache-kafka)(?::(\d+(?:\.\d+)+))?(?::([1-9]))?")
BROKERS: Final = 3


@dataclass(frozen=True, slots=True)
class Field:
    """`faults` are the kinds that can be done here, by name; `nodes` brokers, and the store where there is one.

    `revive` starts whatever is down.
    """

    addresses: Mapping[int, str]
    nodes: tuple[str, ...]
    faults: Mapping[str, Inject]
    revive: Callable[[], None] = lambda: None

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())


@dataclass(frozen=True, slots=True)
class Means:
    """What is put below and between the nodes beside proxies; `trace`: where they write their steps."""

    disks: bool = False
    packets: bool = False
    clocks: bool = False
    trace: Path | None = None


@dataclass(frozen=True, slots=True)
class Launched:
    """What a target's name says of a cluster that is launched here."""

    kind: str
    version: str
    brokers: int

    @property
    def is_kraft(self) -> bool:
        return self.kind == "apache-kafka" and release_number(self.version) >= KRAFT_SINCE

    @property
    def nodes(self) -> tuple[str, ...]:
        brokers = tuple(str(node) for node in range(1, self.brokers + 1))
        return brokers if self.is_kraft else (*brokers, STORE)


def launched(target: str) -> Launched | None:
    """None for a cluster of somebody else's; UsageError for a name that is no target."""
    check_target(target)
    found = LAUNCHED.fullmatch(target)
    return Launched(found[1], found[2] or NEWEST, int(found[3] or BROKERS)) if found else None


def reviving(cluster: Processes) -> Callable[[], None]:
    def revive() -> None:
        for node in cluster.addresses:
            cluster.start_node(node)

    return revive


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
        raise UsageError("only the reference tells its steps", where="--trace", mend="try it with reference:3")
    means = Means(disks=disks, packets=packets, clocks=clocks and not missing_for_clocks(), trace=trace)
    with ExitStack() as stack:
        if packets:
            _enter_own_network(found, target, stack)
        if found is None:
            yield _foreign(target, schedule, stack)
        elif found.kind == "reference":
            from fuzz.chaos.reference import reference_field

            yield reference_field(found, schedule, stack, means)
        else:
            from fuzz.chaos.apache_kafka import apache_kafka_field

            yield apache_kafka_field(found, schedule, stack, means)


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
