"""Seeds in virtual time: each is a cluster, a load, a fault schedule, and a demand for progress at the end."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

from fuzz.clients import Producer
from fuzz.faults import LOAD_MS, Injector, draw_schedule
from fuzz.invariants import Invariants, Violation, ViolationError
from fuzz.simulated_cluster import TOPIC, Settings, SimulatedCluster
from reference.drivers.simulation.chance import Chance
from spec.formats.schedule import Schedule
from spec.formats.trace import Step

HEAL_MS = 6_000
PRODUCERS = 2


@dataclass(slots=True)
class SeedResult:
    seed: int
    events: int
    simulated_ms: int
    acked: int
    violation: Violation | None = None
    faults: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)


def settings_of(seed: int, base: Settings) -> Settings:
    """Each seed has its own network: how far delays spread, and whether connections break."""
    chance = Chance(seed)
    spread_ms = (1, 4, 20)[chance.draw("spread", 0, 3)]
    loss = (0, 0, 2, 8)[chance.draw("loss", 0, 4)]
    return replace(base, spread_ms=spread_ms, loss_per_mille=loss)


def run_seed(
    seed: int, base: Settings | None = None, *, schedule: Schedule | None = None, tracing: bool = False
) -> SeedResult:
    """One run: load with faults, then heal and demand that writing goes on and all replicas agree."""
    settings = settings_of(seed, base or Settings())
    cluster = SimulatedCluster(seed, settings, tracing=tracing)
    invariants = Invariants(cluster)
    world = cluster.world
    world.after_event = invariants.after_event
    injector = Injector(cluster, invariants)
    producers: list[Producer] = []
    violation = None
    try:
        cluster.start()
        began_ms = world.now_ms
        producers = _start_producers(cluster, invariants)
        injector.arrange(schedule or draw_schedule(seed, settings.brokers))
        world.run_until(began_ms + (schedule.duration_ms if schedule else LOAD_MS))
        world.loss_per_mille = 0
        injector.heal()
        world.run_until(world.now_ms + HEAL_MS)
        _demand_progress(cluster, invariants, producers)
    except ViolationError as error:
        violation = error.violation
    return SeedResult(
        seed, world.events, world.now_ms, sum(p.acked for p in producers), violation, injector.log, invariants.seen,
        world.steps,
    )  # fmt: skip


def _start_producers(cluster: SimulatedCluster, invariants: Invariants) -> list[Producer]:
    producers = []
    for number in range(PRODUCERS):
        producer = Producer(
            cluster.broker_ids, TOPIC, number % cluster.settings.partitions, first=number, stride=PRODUCERS,
            pause_ms=5 + 20 * number, on_ack=invariants.acknowledged,
        )  # fmt: skip
        cluster.world.add(f"client:{number}", lambda disk, p=producer: p)  # type: ignore[misc]
        cluster.world.start(f"client:{number}")
        producers.append(producer)
    return producers


def _demand_progress(cluster: SimulatedCluster, invariants: Invariants, producers: list[Producer]) -> None:
    """Faults are over: writes must be acknowledged again, and every replica must be in the ISR."""
    world = cluster.world
    before = [producer.acked for producer in producers]
    world.run_until(world.now_ms + 1_500)

    def stuck(message: str) -> ViolationError:
        return ViolationError(Violation("Progress", world.now_ms, world.events, -1, message))

    if any(producer.acked == count for producer, count in zip(producers, before, strict=True)):
        raise stuck("no write was acknowledged within 1.5 s, 6 s after the last fault")
    for partition in invariants.committed:
        state = cluster.stored(partition)
        if state is None or set(state.isr) != set(cluster.broker_ids):
            raise stuck(f"the ISR is {state.isr if state else None} 7.5 s after the last fault")


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

    @property
    def events_per_second(self) -> float:
        return self.events / self.seconds if self.seconds else 0.0


def sweep_parallel(
    seeds: Sequence[int], base: Settings, *, jobs: int = 0, on_result: Callable[[SeedResult], None] | None = None
) -> Sweep:
    """Seeds over processes (0: one for each core); results in the order of the seeds."""
    workers = min(jobs or os.cpu_count() or 1, len(seeds))
    found = Sweep()
    started = time.perf_counter()
    with ProcessPoolExecutor(workers) if workers > 1 else nullcontext() as pool:
        run = partial(run_seed, base=base)
        results = pool.map(run, seeds, chunksize=4) if pool else map(run, seeds)
        for result in results:
            found.results.append(result)
            found.seconds = time.perf_counter() - started
            if on_result is not None:
                on_result(result)
    return found
