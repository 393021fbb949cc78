"""Brokers that are killed under load: throughput, errors, and the records that were lost or stored twice.

The clients and the history are those of `highwater chaos`, and the auditor accounts for every acknowledged record.
"""

import statistics
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from highwater.experiments.conditions import Condition, Found
from highwater.experiments.plans import Scale
from highwater.experiments.targets import WAIT_S, Bench
from highwater.fuzz.chaos.nemesis import process_faults
from highwater.fuzz.chaos.workload.run import Workload
from highwater.fuzz.chaos.workload.topic import TOPIC, TopicLoad
from highwater.fuzz.schedule import Fault, Schedule
from highwater.reports.audit import audit
from highwater.reports.rules.rule import Rule
from highwater.spec.formats.history import Event, read_history

NS: Final = 1e9
FIRST_S: Final = 1
"""Of the load, not counted: clients connect and brokers warm up."""
IN_FLIGHT: Final = 64
SPARED: Final = {"all but two": 2, "all but one, restarted": 1, "all, restarted": 0}
DOWN_MS: Final = {"all but two": 0, "all but one, restarted": 4_000, "all, restarted": 2_000}
"""How long the brokers stay down; 0: until the end. An interval needs three seconds or more with one broker."""


class FailureMeasure:
    """Measures conditions of the experiments failures and durability; histories go to folders below `folder`."""

    def __init__(self, scale: Scale, folder: Path) -> None:
        self._scale, self._folder = scale, folder

    def measure(self, bench: Bench, condition: Condition, repetition: int) -> Found:
        """Return throughput before and during the failure, errors, and what the audit found.

        Raises UsageError, TimeoutError and KafkaException.
        """
        folder = self._history_folder(bench, condition, repetition)
        schedule = self.schedule(bench, condition)
        load = _load(bench, condition)
        _await_no_topic(bench)
        workload = Workload(
            bench.bootstrap, bench.addresses, process_faults(bench.cluster), load, bench.revive, bench.name
        )
        try:
            history = workload.run(folder, schedule)
        finally:
            bench.revive()
            bench.delete_topic(TOPIC)
        fault = schedule.faults[0]
        until_ms = fault.at_ms + fault.for_ms if fault.for_ms else schedule.duration_ms
        found = throughput_around(history, fault.at_ms / 1e3, until_ms / 1e3)
        return Found({**found.metrics, **audited(history)}, found.samples)

    def _history_folder(self, bench: Bench, condition: Condition, repetition: int) -> Path:
        settings = "-".join(str(value).replace(", ", "-").replace(" ", "-") for value in condition.settings.values())
        name = f"{condition.experiment}-{bench.name.replace(':', '-')}-{settings}-{repetition}"
        folder = self._folder / "histories" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def schedule(self, bench: Bench, condition: Condition) -> Schedule:
        """Return a schedule that kills brokers after a third of the load, the lowest node ids last."""
        killed = str(condition.settings["killed"])
        load_ms = int(self._scale.load_s * 1_000)
        nodes = tuple(str(node) for node in sorted(bench.addresses)[SPARED[killed] :])
        fault = Fault(at_ms=load_ms // 3000 * 1_000, for_ms=DOWN_MS[killed], kind="kill", nodes=nodes)
        return Schedule(duration_ms=load_ms, faults=(fault,))


def _load(bench: Bench, condition: Condition) -> TopicLoad:
    retries = condition.settings.get("retries")
    return TopicLoad(
        partitions=condition.number("partitions"), replicas=len(bench.addresses),
        min_insync_replicas=min(condition.number("min_insync_replicas"), len(bench.addresses)),
        acks=str(condition.settings["acks"]), confluent_producers=1, in_flight=IN_FLIGHT, kafka_python_producers=0,
        assigned_consumers=0, raw_readers=0, group_members=0, idempotence=False,
        retries=retries if isinstance(retries, int) else None,
    )  # fmt: skip


def _await_no_topic(bench: Bench) -> None:
    """Wait until the topic of an earlier run is gone; raises TimeoutError."""
    deadline = time.monotonic() + WAIT_S
    while TOPIC in bench.admin.list_topics(timeout=10).topics:
        if time.monotonic() > deadline:
            raise TimeoutError(f"topic {TOPIC} is still there {WAIT_S:g} s after its deletion")
        bench.delete_topic(TOPIC)
        time.sleep(0.2)


def throughput_around(history: Path, at_s: float, until_s: float) -> Found:
    """Return acknowledged records a second before and during a failure, and the errors of sends by name.

    The samples are the records of each whole second.
    """
    _, events = read_history(history)
    seconds, errors = Counter[int](), Counter[str]()
    for event in _sends(events):
        if event.type == "ok":
            seconds[int(event.time_ns / NS)] += 1
        elif event.error:
            errors[event.error] += 1
    spans = {"records_before": range(FIRST_S, int(at_s)), "records_during": range(int(at_s), int(until_s))}
    samples = {name: [float(seconds[second]) for second in span] for name, span in spans.items()}
    return Found(
        {"acknowledged": sum(seconds.values()), **{name: statistics.fmean(values) for name, values in samples.items()},
         **{f"error {name}": float(count) for name, count in errors.items()}},
        samples,
    )  # fmt: skip


def _sends(events: Iterable[Event]) -> Iterable[Event]:
    return (event for event in events if event.f == "send" and event.type != "invoke")


def audited(history: Path) -> dict[str, float]:
    """Return how many operations the auditor read, and how many records it found lost and stored twice."""
    result = audit(history)
    counts = Counter[int]()
    for finding in result.findings:
        counts[finding.rule] += finding.count
    return {
        "audited": result.operations,
        "lost": counts[Rule.LOST_WRITE],
        "unseen": counts[Rule.UNSEEN],
        "duplicated": counts[Rule.DUPLICATE],
        "other_violations": sum(
            finding.count for finding in result.findings
            if finding.severity == "violation" and finding.rule not in {Rule.LOST_WRITE, Rule.DUPLICATE}
        ),
    }  # fmt: skip
