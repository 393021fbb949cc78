"""Seeds in virtual time: each is a cluster, a load, a fault schedule, and a demand for progress at the end."""

import gc
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec

from highwater.errors import UsageError
from highwater.fuzz.schedule import Schedule
from highwater.fuzz.simulator.clients.load import Clients
from highwater.fuzz.simulator.cluster import Settings, SimulatedCluster
from highwater.fuzz.simulator.faults import Injector
from highwater.fuzz.simulator.invariants.all import Invariants
from highwater.fuzz.simulator.invariants.violations import Seen, Violation, ViolationError
from highwater.fuzz.simulator.progress import demand_progress
from highwater.fuzz.simulator.swarm import draw_schedule, settings_of
from highwater.reference.drivers.simulation.world import World
from highwater.spec.formats.trace import Step

HEAL_MS = 6_000


@dataclass(slots=True)
class SeedResult:
    """`fingerprint` of all events; `steps` only of a traced run."""

    seed: int
    events: int
    simulated_ms: int
    acked: int
    fingerprint: int
    schedule: Schedule
    violation: Violation | None = None
    faults: list[str] = field(default_factory=list)
    seen: Seen = field(default_factory=Seen)
    steps: list[Step] = field(default_factory=list)

    @property
    def trace_hash(self) -> str:
        encoder = msgspec.json.Encoder()
        return sha256(b"\n".join(map(encoder.encode, self.steps))).hexdigest()


def run_seed(
    seed: int, base: Settings | None = None, *, schedule: Schedule | None = None, tracing: bool = False
) -> SeedResult:
    """One run: load with faults, then heal and demand that writing goes on and all replicas agree."""
    collecting = gc.isenabled()
    gc.disable()  # a world is all alive until it is all garbage: looking for the dead in between is a tenth of the time
    try:
        result, world = _run_seed(seed, base, schedule=schedule, tracing=tracing)
    finally:
        if collecting:
            gc.enable()
    told, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        # A world that ends in the middle leaves procedures that wait for each other: what they say when they are
        # closed, in whatever order, concerns nobody.
        del world
        if result.violation is not None:
            gc.collect()
    finally:
        sys.unraisablehook = told
    return result


def _run_seed(
    seed: int, base: Settings | None, *, schedule: Schedule | None, tracing: bool
) -> tuple[SeedResult, World]:
    settings = settings_of(seed, base or Settings())
    cluster = SimulatedCluster(seed, settings, tracing=tracing)
    clients = Clients()
    invariants = Invariants(cluster, clients)
    world = cluster.world
    world.after_event = invariants.after_event
    injector = Injector(cluster, invariants)
    violation = None
    schedule = schedule or draw_schedule(seed, settings)
    try:
        cluster.start()
        clients.start(cluster, invariants.acknowledged, invariants.committed)
        began_ms = world.now_ms
        injector.arrange(schedule)
        world.run_until(began_ms + schedule.duration_ms)
        world.loss_per_mille = 0
        injector.heal()
        if clients.administrator is not None:
            clients.administrator.stopped = True
        world.run_until(world.now_ms + HEAL_MS)
        demand_progress(cluster, invariants, clients)
    except ViolationError as error:
        violation = error.violation
    except UsageError:
        raise
    except Exception as error:  # whatever a node was given, it must go on
        message = f"{type(error).__name__}: {error} ({error_place(error)})"
        violation = Violation("NodeGoesOn", world.now_ms, world.events, invariants.last_moved, message)
    result = SeedResult(
        seed, world.events, world.now_ms, sum(writer.acked for writer in clients.writers), world.fingerprint,
        schedule, violation, injector.log, invariants.seen, world.steps,
    )  # fmt: skip
    return result, world


def error_place(error: Exception) -> str:
    """File and line where it was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


@dataclass(slots=True)
class Sweep:
    """What many seeds found. `events_per_second` is of wall time."""

    results: list[SeedResult] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def findings(self) -> list[SeedResult]:
        return [result for result in self.results if result.violation is not None]

    @property
    def events(self) -> int:
        return sum(result.events for result in self.results)

    def coverage(self) -> dict[str, int]:
        """Of each interesting situation, the number of seeds that saw it; the most frequent first."""
        seeds: Counter[str] = Counter()
        for result in self.results:
            seeds.update(result.seen.keys())
        return dict(sorted(seeds.items(), key=lambda item: (-item[1], item[0])))

    @property
    def events_per_second(self) -> float:
        return self.events / self.seconds if self.seconds else 0.0


def sweep_parallel(
    seeds: Sequence[int], base: Settings, *, schedule: Schedule | None = None, jobs: int = 0,
    on_result: Callable[[SeedResult], None] | None = None, until_found: bool = False,
) -> Sweep:  # fmt: skip
    """Seeds over processes (0: one for each core); results in the order of the seeds, at most to the first finding."""
    workers = min(jobs or os.cpu_count() or 1, len(seeds))
    found = Sweep()
    started = time.perf_counter()
    with ProcessPoolExecutor(workers) if workers > 1 else nullcontext() as pool:
        run = partial(run_seed, base=base, schedule=schedule)
        results = pool.map(run, seeds, chunksize=4) if pool else map(run, seeds)
        for result in results:
            found.results.append(result)
            found.seconds = time.perf_counter() - started
            if on_result is not None:
                on_result(result)
            if until_found and result.violation is not None:
                if pool is not None:
                    pool.shutdown(wait=False, cancel_futures=True)
                break
    return found
