"""The field of a run: a cluster launched so that faults can get at it, and how each kind of fault is done there."""

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
