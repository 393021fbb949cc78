"""Run seeds of the simulator in virtual time, check invariants after every event, and collect the results.

A run goes through five states. *Set up*: `settings_of` draws the network and, with `Settings.swarm`, the clients of the
seed; `draw_schedule` draws the faults unless the caller passes a schedule. *Start*: `SimulatedCluster.start` starts the
store and the brokers and creates the topic; then the clients start. *Load*: the world runs for `Schedule.duration_ms`
while `Injector` starts and ends faults. *Heal*: message loss is set to 0, all faults end, stopped nodes are started,
and the world runs for another `HEAL_MS`. *Progress*: `check_progress` requires acknowledged writes, a complete ISR,
finished reassignments and deletions, and a stable group.

`World` calls `Invariants.after_event` after every event, and clients report acknowledged records and commits to
`Invariants`. The first violation raises ViolationError, which ends the run; no later state is entered. Any other
exception of a node is the violation NodeGoesOn, except UsageError (a schedule that does not fit the cluster), which is
raised to the caller. `sweep_parallel` calls `run_seed` in worker processes.

What holds for every run:

- A run depends only on its seed, its settings and its schedule. It reads no clock, file or global random generator, so
  the same arguments give the same `fingerprint` in any process and order, with `tracing` or without.
- Runs share no state. A worker process returns only a `SeedResult`, never a world.
- `sweep_parallel` returns results in the order of the seeds, for any number of processes.

Deliberately absent: a search guided by coverage (`steered.py` has written scenarios, `highwater.soak` a search with
Hypothesis), shrinking (`findings.find_smallest`), and a time limit (virtual time ends every run).
"""

import gc
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from highwater.errors import UsageError
from highwater.fuzz.schedule import Schedule
from highwater.fuzz.simulator.causes.report import cause_of
from highwater.fuzz.simulator.clients.load import Clients
from highwater.fuzz.simulator.clients.programs import ProgramClient
from highwater.fuzz.simulator.cluster import Settings, SimulatedCluster
from highwater.fuzz.simulator.faults import Injector
from highwater.fuzz.simulator.histories.client_history import ClientHistory, config_of
from highwater.fuzz.simulator.invariants.all import Invariants
from highwater.fuzz.simulator.invariants.violations import NOTHING, About, SituationCounts, Violation, ViolationError
from highwater.fuzz.simulator.meetings import Pair
from highwater.fuzz.simulator.progress import check_progress
from highwater.fuzz.simulator.swarm import draw_schedule, settings_of
from highwater.pools import process_pool
from highwater.reference.drivers.simulation.world import World
from highwater.spec.formats.history import Config, Event
from highwater.spec.formats.trace import Step

HEAL_MS = 6_000
PR_SET_PDEATHSIG = 1  # of prctl: the signal to a process whose parent has ended


class Audited(NamedTuple):
    """The outcome of an audit: how many operations it read, and its first finding, if any, with what it concerns."""

    operations: int
    found: str = ""
    about: About = NOTHING


Audit = Callable[[Config, list[Event]], Audited]


@dataclass(slots=True)
class SeedResult:
    """The outcome of one run. `fingerprint` is a hash of all events.

    `acked` counts acknowledged records, and confirmed transactions of transactional producers. `steps` is empty unless
    the run was traced. `faults` are the lines of the injector's log. `cause` are lines about what a violation
    concerns, if the run was traced. `audited` counts the operations that the audit read.
    `pairs` are faults, kinds of clients and requests that met. `programs` counts programs by name and how they ended.
    """

    seed: int
    events: int
    simulated_ms: int
    acked: int
    fingerprint: int
    schedule: Schedule
    violation: Violation | None = None
    faults: list[str] = field(default_factory=list)
    situations: SituationCounts = field(default_factory=SituationCounts)
    steps: list[Step] = field(default_factory=list)
    cause: list[str] = field(default_factory=list)
    audited: int = 0
    pairs: set[Pair] = field(default_factory=set)
    programs: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def trace_hash(self) -> str:
        """Return the SHA-256 of the steps as lines of JSON."""
        encoder = msgspec.json.Encoder()
        return sha256(b"\n".join(map(encoder.encode, self.steps))).hexdigest()


def run_seed(
    seed: int, base: Settings | None = None, *, schedule: Schedule | None = None, tracing: bool = False,
    audit: Audit | None = None,
) -> SeedResult:  # fmt: skip
    """Run one seed: load with faults, then heal and check progress; return the result, with any violation in it.

    `schedule` replaces the schedule that the seed draws. Raises UsageError if it names an unknown fault or node.
    `audit` judges what the clients saw, at the end of a run without a violation.
    """
    collecting = gc.isenabled()
    gc.disable()  # nothing is freed before the run ends, and collections would take a tenth of its time
    try:
        result, world = _run_seed(seed, base, schedule, audit, tracing=tracing)
    finally:
        if collecting:
            gc.enable()
    previous_hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        # A violation leaves coroutines that wait for each other. Closing them in garbage-collection order may raise,
        # and Python would print these exceptions although they say nothing about the run.
        del world
        if result.violation is not None:
            gc.collect()
    finally:
        sys.unraisablehook = previous_hook
    return result


def _run_seed(
    seed: int, base: Settings | None, schedule: Schedule | None, audit: Audit | None, *, tracing: bool
) -> tuple[SeedResult, World]:
    """Run one seed; return its world too, so that the caller controls when it is freed."""
    settings = settings_of(seed, base or Settings())
    cluster = SimulatedCluster(seed, settings, tracing=tracing)
    clients = Clients()
    invariants = Invariants(cluster, clients)
    world = cluster.world
    world.after_event = invariants.after_event
    injector, heal_ms = Injector(cluster, invariants), HEAL_MS * settings.pace
    violation, audited = None, Audited(0)
    schedule = schedule or draw_schedule(seed, settings)
    programs = [
        ProgramClient(cluster, number, injector.was_calm, invariants.violated)
        for number in range(settings.programs if settings.brokers else 0)
    ]
    history = ClientHistory(cluster, schedule, invariants.rotten) if audit and settings.brokers else None
    observers = history.observers(invariants.observers) if history else invariants.observers
    try:
        if history:
            injector.on_fault = history.nemesis
        cluster.start()
        clients.start(cluster, observers)
        for program in programs:
            program.start()
        start_ms = world.now_ms
        injector.schedule_faults(schedule)
        world.run_until(start_ms + schedule.duration_ms)
        world.loss_per_mille = 0
        injector.heal()
        if history:
            history.nemesis("faults over")
        if clients.administrator is not None:
            clients.administrator.stopped = True
        world.run_until(world.now_ms + heal_ms)
        check_progress(cluster, invariants, clients)
        if audit and history:
            history.read_all()
            audited = audit(config_of(settings, schedule, heal_ms), history.events())
            if audited.found:
                invariants.violated("HistoryIsValid", audited.found, audited.about)
    except ViolationError as error:
        violation = error.violation
    except UsageError:
        raise
    except Exception as error:  # no message and no disk content may make a node raise
        message = f"{type(error).__name__}: {error} ({error_place(error)})"
        violation = Violation(
            "NodeGoesOn", world.now_ms, world.events, invariants.last_node, message, About(node=invariants.last_node)
        )
    finally:
        for program in programs:
            program.stop()
    result = SeedResult(
        seed, world.events, world.now_ms, sum(writer.acked for writer in clients.writers), world.fingerprint,
        schedule, violation, injector.log, invariants.situations, world.steps,
        cause_of(violation, invariants.exchanges.sent, world.steps) if violation is not None else [],
        audited.operations, invariants.meetings.pairs(), sum((program.ended for program in programs), Counter()),
    )  # fmt: skip
    return result, world


def error_place(error: Exception) -> str:
    """Return the file name and line where the exception was raised, e.g. `log.py:120`."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


@dataclass(slots=True)
class Sweep:
    """The results of many seeds; `seconds` is wall time. `interrupted`: not all of them were run."""

    results: list[SeedResult] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def findings(self) -> list[SeedResult]:
        """Return the results with a violation."""
        return [result for result in self.results if result.violation is not None]

    @property
    def events(self) -> int:
        """Return the number of events of all runs."""
        return sum(result.events for result in self.results)

    def coverage(self) -> dict[str, int]:
        """Return for each situation the number of seeds in which it occurred, the most frequent first."""
        seeds: Counter[str] = Counter()
        for result in self.results:
            seeds.update(result.situations.keys())
        return dict(sorted(seeds.items(), key=lambda item: (-item[1], item[0])))

    def pairs(self) -> Counter[Pair]:
        """Return for each pair the number of seeds in which it met."""
        return Counter(pair for result in self.results for pair in result.pairs)

    def programs(self) -> dict[str, int]:
        """Return how many programs of the suite ended in each way."""
        ended: Counter[str] = Counter()
        for result in self.results:
            for (_, outcome), count in result.programs.items():
                ended[outcome] += count
        return dict(ended)

    @property
    def events_per_second(self) -> float:
        """Return the events per second of wall time, 0.0 before the first result."""
        return self.events / self.seconds if self.seconds else 0.0


def sweep_parallel(
    seeds: Sequence[int], base: Settings, *, schedule: Schedule | None = None, jobs: int = 0,
    on_result: Callable[[SeedResult], None] | None = None, until_found: bool = False, audit: Audit | None = None,
) -> Sweep:  # fmt: skip
    """Run the seeds in `jobs` processes (0: one for each core) and return the results in the order of the seeds.

    Calls `on_result` in the parent process after each result. With `until_found` the first violation ends the sweep. A
    KeyboardInterrupt ends it and its processes, and what was found until then is returned; raised if that is nothing.
    """
    workers = min(jobs or os.cpu_count() or 1, len(seeds))
    found = Sweep()
    started = time.perf_counter()
    run = partial(run_seed, base=base, schedule=schedule, audit=audit)
    try:
        with process_pool(workers) if workers > 1 else nullcontext() as pool:
            for result in pool.map(run, seeds, chunksize=4) if pool else map(run, seeds):
                found.results.append(result)
                found.seconds = time.perf_counter() - started
                if on_result is not None:
                    on_result(result)
                if until_found and result.violation is not None:
                    break
    except KeyboardInterrupt:
        found.interrupted = True
        if not found.results:
            raise
    return found
