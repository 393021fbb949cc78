"""The cluster of a chaos run: its addresses, its nodes and the faults that it supports."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from highwater.conformance.targets import check_target
from highwater.conformance.targets.apache_kafka import KRAFT_SINCE
from highwater.fuzz.chaos.nemesis import STORE, Inject, Processes
from highwater.releases import NEWEST, release_number

LAUNCHED: Final = re.compile(r"(reference|apache-kafka)(?::(\d+(?:\.\d+)+))?(?::([1-9]))?")
BROKERS: Final = 3


@dataclass(frozen=True, slots=True)
class ChaosCluster:
    """A running cluster: broker addresses, node names (brokers and the metadata store, if any) and supported faults.

    `revive` starts every node that is down.
    """

    addresses: Mapping[int, str]
    nodes: tuple[str, ...]
    faults: Mapping[str, Inject]
    revive: Callable[[], None] = lambda: None

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())


@dataclass(frozen=True, slots=True)
class Instruments:
    """What is placed below and between the nodes in addition to proxies.

    `trace`: the folder for the traces of the reference; `keep`: that for the data folders of Apache Kafka at the end.
    """

    disks: bool = False
    packets: bool = False
    clocks: bool = False
    trace: Path | None = None
    keep: Path | None = None


@dataclass(frozen=True, slots=True)
class LaunchedTarget:
    """A target that this process launches: its kind, its release and its number of brokers."""

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


def launched_target(target: str) -> LaunchedTarget | None:
    """Return the target that the name describes, or None if the cluster is started elsewhere.

    Raises UsageError if the name is no target.
    """
    check_target(target)
    found = LAUNCHED.fullmatch(target)
    return LaunchedTarget(found[1], found[2] or NEWEST, int(found[3] or BROKERS)) if found else None


def node_starter(cluster: Processes) -> Callable[[], None]:
    """Return a function that starts every broker that is down."""

    def revive() -> None:
        for node in cluster.addresses:
            cluster.start_node(node)

    return revive
