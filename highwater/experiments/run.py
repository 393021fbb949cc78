"""Runs a bench: every condition on every target, in rounds, and keeps each measurement as it comes.

A round measures all conditions once, in an order of its own, each of them on one target after the other: a machine that
is slow for a while is so for all targets, and no condition is always measured first.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import KafkaException

from highwater.conformance.failures import TargetFailure
from highwater.errors import UsageError
from highwater.experiments.clients import client_processes
from highwater.experiments.conditions import Condition, Found, Measurement, Setting, Store
from highwater.experiments.measures.availability import AvailabilityMeasure
from highwater.experiments.measures.dispatch import DispatchMeasure
from highwater.experiments.measures.failures import FailureMeasure
from highwater.experiments.measures.load import LoadMeasure
from highwater.experiments.measures.rebalance import RebalanceMeasure
from highwater.experiments.measures.simulated import simulated_lacks, simulated_pauses
from highwater.experiments.plans import EXPERIMENTS, OLD_PRODUCER, ONCE, SCALES, SIMULATED, Scale
from highwater.experiments.targets import OLD_RELEASE, Bench, open_bench
from highwater.results import write_json

PLAN: Final = "plan.json"
SIMULATOR: Final = "simulator"
"""The target of measurements in virtual time."""
KAFKA_0_7: Final = "kafka-0.7"
"""The target of measurements with the producer and the broker of Kafka 0.7 (`reference/legacy`)."""
OWN_TARGETS: Final = {SIMULATED: SIMULATOR, OLD_PRODUCER: KAFKA_0_7}
"""Targets that are measured whatever the targets are, by the client or producer of a condition."""
ERRORS: Final = (TimeoutError, KafkaException, TargetFailure, UsageError, OSError)
"""What fails one measurement, not the bench."""
NOTHING: Final = Found({})
Say = Callable[[str], None]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a bench measures; stored in its folder, so that an interrupted bench can be resumed."""

    targets: list[str]
    experiments: list[str]
    scale: str
    repetitions: int
    seed: int

    @property
    def sizes(self) -> Scale:
        return SCALES[self.scale]

    def conditions(self, *, once: bool) -> list[Condition]:
        """Return the conditions of the quick experiments, or of those that take long."""
        return [
            condition
            for name, make in EXPERIMENTS.items()
            if name in self.experiments and (name in ONCE) == once
            for condition in make(self.sizes)
        ]


class Task(msgspec.Struct, frozen=True):
    """One measurement that is to be made."""

    target: str
    condition: Condition
    repetition: int


def read_plan(folder: Path) -> Plan:
    """Return the plan of an interrupted bench; UsageError if the folder has none."""
    try:
        return msgspec.json.decode((folder / PLAN).read_bytes(), type=Plan)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError("no bench to resume", where=str(folder), hint="give the folder that it printed") from error


def tasks(plan: Plan) -> Iterator[Task]:
    """Yield all measurements in the order in which they are made."""
    chance = random.Random(plan.seed)
    for once, repetitions in ((False, plan.repetitions), (True, plan.sizes.pause_repetitions)):
        for repetition in range(1, repetitions + 1):
            conditions = plan.conditions(once=once)
            if not once:
                chance.shuffle(conditions)
            for condition in conditions:
                for target in _targets_of(condition, plan):
                    yield Task(target, condition, repetition)


def _targets_of(condition: Condition, plan: Plan) -> list[str]:
    client = str(condition.settings.get("client") or condition.settings.get("producer"))
    return [OWN_TARGETS[client]] if client in OWN_TARGETS else plan.targets


def run(plan: Plan, folder: Path, say: Say = lambda line: None, advance: Say = lambda line: None) -> Store:
    """Make the measurements that the folder lacks. `advance` is called after each of them with its text.

    Raises UsageError if a target cannot be started.
    """
    write_json(folder / PLAN, plan)
    store = Store(folder)
    finished = store.finished()
    due = [task for task in tasks(plan) if (task.target, task.condition.key, task.repetition) not in finished]
    if not due:
        return store
    with ExitStack() as stack:
        bench = _Running(plan, folder, due, stack, say)
        for task in due:
            for measurement in bench.measure(task):
                store.add(measurement)
            advance(f"{task.target}: {task.condition.experiment}")
    return store


class _Running:
    """The open clusters and clients of a bench. A cluster that no measurement needs is not started."""

    def __init__(self, plan: Plan, folder: Path, due: Sequence[Task], stack: ExitStack, say: Say) -> None:
        self._benches: dict[str, Bench] = {}
        self._unsupported: set[tuple[str, str]] = set()
        self._say, scale, run_name = say, plan.sizes, folder.name[:16].lower()
        self._load = LoadMeasure(stack.enter_context(client_processes()), scale, run_name)
        self._failure = FailureMeasure(scale, folder)
        self._rebalance = RebalanceMeasure(run_name)
        self._dispatch = DispatchMeasure(scale.seconds / 2, scale.latency_s / 4, run_name)
        self._availability = AvailabilityMeasure(scale, folder)
        shared = {
            task.target
            for task in due
            if task.target not in OWN_TARGETS.values() and task.condition.experiment != "availability"
        }
        for target in [name for name in plan.targets if name in shared]:
            say(f"starting {target}")
            self._benches[target] = stack.enter_context(open_bench(target))
        if any(task.condition.experiment not in ONCE for task in due):
            for bench in self._benches.values():
                say(f"warming up {bench.name}")
                self._load.warm_up(bench)

    def measure(self, task: Task) -> Iterator[Measurement]:
        """Yield the measurements of a task: one, or one for each fault; none if the target was found to lack it."""
        condition = task.condition
        if (task.target, condition.key) in self._unsupported:
            return
        self._say(f"{task.target}: {condition.key}, repetition {task.repetition}")
        lacks = self._lacks(task)
        if lacks:
            self._unsupported.add((task.target, condition.key))
            yield _measured(task, unsupported=lacks)
            return
        try:
            yield from self._measured(task)
        except ERRORS as error:
            yield _measured(task, failed=str(error) or type(error).__name__)
            self._revive(task.target)

    def _lacks(self, task: Task) -> str:
        condition, bench = task.condition, self._benches.get(task.target)
        if task.target == SIMULATOR:
            return simulated_lacks(condition)
        if condition.experiment == "availability":
            return self._availability.lacks(task.target)
        if task.target == KAFKA_0_7:
            return ""
        assert bench is not None
        if len(bench.addresses) < condition.brokers:
            return f"needs {condition.brokers} brokers; this cluster has {len(bench.addresses)}"
        if condition.experiment in {"failures", "durability"}:
            if not bench.can_kill:
                return "needs a cluster whose brokers this command starts and kills"
            return "" if bench.creates_topics else OLD_RELEASE
        return self._rebalance.lacks(bench, condition) if condition.experiment == "rebalance" else ""

    def _measured(self, task: Task) -> Iterator[Measurement]:
        condition = task.condition
        match condition.experiment:
            case "availability":
                for kind, lacks in self._availability.lacking():
                    yield _measured(task, settings={"fault": kind}, unsupported=lacks)
                for settings, found in self._availability.measure(task.target, task.repetition):
                    yield _measured(task, found, settings)
                yield _measured(task)
            case "dispatch":
                yield _measured(task, self._dispatch.measure(self._benches.get(task.target), condition))
            case "rebalance" if task.target == SIMULATOR:
                yield _measured(task, simulated_pauses(condition, task.repetition))
            case "rebalance":
                yield _measured(task, self._rebalance.measure(self._benches[task.target], condition))
            case "idle":
                yield _measured(task, self._load.beside_idle(self._benches[task.target], condition))
            case "failures" | "durability":
                bench = self._benches[task.target]
                yield _measured(task, self._failure.measure(bench, condition, task.repetition))
            case _:
                yield _measured(task, self._load.measure(self._benches[task.target], condition))

    def _revive(self, target: str) -> None:
        """Restart brokers that may be down after a failed measurement."""
        if target in self._benches:
            self._benches[target].revive()


def _measured(
    task: Task, found: Found = NOTHING, settings: dict[str, Setting] | None = None, *, unsupported: str = "",
    failed: str = "",
) -> Measurement:  # fmt: skip
    return Measurement(
        target=task.target, experiment=task.condition.experiment, settings=settings or task.condition.settings,
        repetition=task.repetition, metrics=found.metrics, samples=found.samples, unsupported=unsupported,
        failed=failed,
    )  # fmt: skip
