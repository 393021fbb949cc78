"""How long writes and reads are unavailable under each fault of the injector, one fault after the other in one run.

The run is one of `highwater chaos`; its schedule is in the folder of the bench and can be repeated with that command.
A partition is unavailable for writes from one acknowledged send to the next, if clients try all the time, and for reads
from one successful fetch to the next; if there is none, to the end of the run. What is reported for a fault is the
longest such time of any partition that began while the fault lasted or in the seconds after it.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from highwater.experiments.conditions import Found, Setting
from highwater.experiments.measures.failures import NS, audited
from highwater.experiments.plans import Scale
from highwater.experiments.targets import CREATE_TOPICS_SINCE, OLD_RELEASE
from highwater.faketime import missing_for_clocks
from highwater.fuzz.chaos.capabilities import DISK_FAULTS
from highwater.fuzz.chaos.cluster import launched_target
from highwater.fuzz.chaos.disk.mount import missing_for_disk
from highwater.fuzz.chaos.run import chaos
from highwater.fuzz.chaos.workload.topic import TOPIC
from highwater.fuzz.schedule import Fault, Option, Schedule
from highwater.releases import release_number
from highwater.spec.formats.history import Event, read_history

FIRST_MS: Final = 8_000
SETTLED_S: Final = 2.0
"""From the begin of the load until the time before the first fault is measured."""
LASTS_MS: Final = 6_000
EVERY_MS: Final = 14_000
SLACK_S: Final = 0.5
"""The last success before a fault may be so much earlier than the fault."""
NO_FAULT: Final = "none"
LEADER: Final = f"leader({TOPIC},0)"
ALL: Final = "all"
STRENGTH: Final[dict[str, dict[str, Option]]] = {
    "delay": {"ms": 100},
    "loss": {"per_mille": 50},
    "throttle": {"bytes_per_second": 16_384},
    "slow_flush": {"ms": 400},
    "clock": {"by_ms": 60_000},
}
FAULTS: Final = (
    ("kill", LEADER), ("bounce", LEADER), ("pause", LEADER), ("cut", LEADER), ("clog", LEADER), ("delay", LEADER),
    ("loss", LEADER), ("disconnect", LEADER), ("throttle", LEADER), ("clock", LEADER), ("expire", LEADER),
    ("slow_flush", LEADER), ("full_disk", LEADER), ("kill", ALL), ("fail_flush", LEADER),
)  # fmt: skip
"""A broker of Apache Kafka ends when it cannot write: the kill of all brokers starts it again."""
WHOLE_RUN: Final = "all of them, one after the other"
WORKLOADS: Final = "send,poll"
Row = tuple[dict[str, Setting], Found]


class AvailabilityMeasure:
    """Measures the experiment availability; histories go to folders below `folder`."""

    def __init__(self, scale: Scale, folder: Path) -> None:
        self._scale, self._folder = scale, folder

    def lacks(self, target: str) -> str:
        """Return what the target lacks for the whole experiment, or an empty text."""
        launched = launched_target(target)
        if launched is None:
            return "needs a cluster that this command starts, with a proxy before each node"
        if launched.kind == "apache-kafka" and release_number(launched.version) < CREATE_TOPICS_SINCE:
            return OLD_RELEASE
        return "" if launched.brokers >= 3 else f"needs 3 brokers; this cluster has {launched.brokers}"

    def measure(self, target: str, repetition: int) -> Iterator[Row]:
        """Yield settings and metrics for each fault that this machine can inject, and for the whole run."""
        schedule = self.schedule(repetition)
        folder = self._folder / "histories" / f"availability-{target.replace(':', '-')}-{repetition}"
        folder.mkdir(parents=True, exist_ok=True)
        history = chaos(
            target, schedule, folder, seconds=schedule.duration_ms / 1e3, seed=repetition, workloads=WORKLOADS
        )
        _, events = read_history(history)
        found = unavailability(list(events), schedule)
        for name, metrics in zip([NO_FAULT, *map(name_of, schedule.faults)], found, strict=True):
            yield {"fault": name}, Found(metrics)
        yield {"fault": WHOLE_RUN}, Found(audited(history))

    def lacking(self) -> Iterator[tuple[str, str]]:
        """Yield each kind of fault that this machine cannot inject, and why."""
        for kind in dict.fromkeys(kind for kind, _ in FAULTS if self._wants(kind)):
            if lacks := machine_lacks(kind):
                yield kind, lacks

    def _wants(self, kind: str) -> bool:
        return self._scale.fault_kinds is None or kind in self._scale.fault_kinds

    def schedule(self, seed: int) -> Schedule:
        """Return a schedule of every fault that the scale asks for and this machine can inject, in turn."""
        wanted = [(kind, node) for kind, node in FAULTS if self._wants(kind) and not machine_lacks(kind)]
        faults = tuple(
            Fault(at_ms=FIRST_MS + number * EVERY_MS, for_ms=_lasts_ms(kind, node), kind=kind, nodes=(node,),
                  options=STRENGTH.get(kind, {}))
            for number, (kind, node) in enumerate(wanted)
        )  # fmt: skip
        return Schedule(seed=seed, duration_ms=FIRST_MS + len(wanted) * EVERY_MS, faults=faults)


def machine_lacks(kind: str) -> str:
    """Return what this machine lacks to inject a kind of fault, or an empty text."""
    if kind in DISK_FAULTS:
        return missing_for_disk()
    return missing_for_clocks() if kind == "clock" else ""


def _lasts_ms(kind: str, node: str) -> int:
    if kind in {"disconnect", "expire"}:
        return 0
    return 1_000 if node == ALL else LASTS_MS


def name_of(fault: Fault) -> str:
    """Return the name of a fault in tables, such as `kill all`; the node is left out where it is one leader."""
    return f"{fault.kind} all" if fault.nodes == (ALL,) else fault.kind


def unavailability(events: list[Event], schedule: Schedule) -> list[dict[str, float]]:
    """Return the longest times without a successful send and fetch of a partition, and the errors.

    The first is the control, the time before the first fault; then follows one for each fault.
    """
    load_s = next((event.time_ns / NS for event in events if event.f == "phase" and event.value == "load"), 0.0)
    begins = [load_s + fault.at_ms / 1e3 for fault in schedule.faults]
    spans = [(load_s + SETTLED_S, begins[0]), *((begin, begin + EVERY_MS / 1e3) for begin in begins)]
    successes = {f: _successes(events, f) for f in ("send", "fetch")}
    return [
        {
            "unavailable_writes": _longest(successes["send"], begin, end),
            "unavailable_reads": _longest(successes["fetch"], begin, end),
            **_errors(events, begin, end),
        }
        for begin, end in spans
    ]


def _successes(events: list[Event], f: str) -> dict[int, list[float]]:
    """Return the times of successful operations by partition, and then the end of the run: an outage may be open."""
    found: dict[int, list[float]] = defaultdict(list)
    for event in events:
        if event.f == f and event.type == "ok" and event.partition is not None:
            found[event.partition].append(event.time_ns / NS)
    for times in found.values():
        times.append(events[-1].time_ns / NS)
    return found


def _longest(successes: dict[int, list[float]], begin: float, end: float) -> float:
    """Return the longest time in milliseconds between two successes of a partition that begins in the span."""
    gaps = [
        after - before
        for times in successes.values()
        for before, after in itertools.pairwise(times)
        if begin - SLACK_S <= before < end - SLACK_S
    ]
    return 1e3 * max(gaps, default=end - begin)


def _errors(events: list[Event], begin: float, end: float) -> dict[str, float]:
    errors = Counter(
        event.error
        for event in events
        if event.f == "send" and event.type in {"fail", "info"} and event.error and begin <= event.time_ns / NS < end
    )
    return {f"error {name}": float(count) for name, count in errors.items()}
