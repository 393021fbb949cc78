"""Steer runs to rare situations, each by a scenario of faults that leads to it.

The seed draws the clients, so the seed and the schedule are enough to repeat a violation.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import count, cycle, islice
from typing import Final, NamedTuple

from highwater.fuzz.schedule import KINDS, Fault, Schedule
from highwater.fuzz.simulator.clients.load import GROUP
from highwater.fuzz.simulator.cluster import TOPIC, Focus, Load, Settings
from highwater.fuzz.simulator.guard_focus import SWARM, fault
from highwater.fuzz.simulator.search import SeedResult, run_seed
from highwater.fuzz.simulator.swarm import draw_schedule, settings_of
from highwater.spec.formats.trace import Step, renumber
from highwater.spec.trace import read_layout


class SteeredScenario(NamedTuple):
    """Faults that lead to a situation; `fits` returns whether the clients and settings that a seed draws allow it."""

    fits: Callable[[Load, Settings], bool]
    faults: tuple[Fault, ...]


STEERED_SCENARIOS: Final = {
    "no leader": SteeredScenario(
        lambda load, _: not (load.old_consumers or load.administrator),
        (fault(1_000, 1_000, "kill", "1"), fault(1_000, 3_500, "kill", "2"), fault(1_000, 3_500, "kill", "3")),
    ),
    "lost tail": SteeredScenario(
        lambda load, _: not load.old_consumers,
        (
            fault(1_500, 800, "kill", "leader(t,0)", lose="unflushed"),
            fault(3_500, 800, "kill", "leader(t,0)", lose="torn"),
        ),
    ),
    "fenced ISR change": SteeredScenario(
        lambda _, settings: settings.broker_settings.get("isr_update") == "alter_partition",
        (
            fault(300, 5_000, "duplicate", "leader(t,0)", direction="out", of="brokers", what="AlterPartitionRequest",
                  per_mille=900),
            fault(800, 1_500, "cut", "leader(t,0)", direction="in", of="brokers", what="FetchRequest"),
            fault(3_500, 1_000, "cut", "leader(t,0)", direction="in", of="brokers", what="FetchRequest"),
        ),
    ),
    "fenced producer": SteeredScenario(
        lambda load, _: load.transactional > 0,
        (fault(0, 6_000, "duplicate", "all", direction="in", of="clients", per_mille=900),),
    ),
    "rebalance during failover": SteeredScenario(
        lambda load, _: bool(load.members),
        (
            fault(1_200, 600, "kill", "member:1"),
            fault(1_500, 1_500, "kill", "leader(t,0)"),
            fault(1_700, 200, "kill", "member:0"),
        ),
    ),
    "coordinator change": SteeredScenario(
        lambda load, _: bool(load.members),
        (fault(1_500, 1_500, "kill", "coordinator(g)"), fault(4_000, 1_500, "kill", "coordinator(g)")),
    ),
    "fenced instance": SteeredScenario(lambda load, _: load.twins > 1, (fault(1_500, 500, "kill", "member:0"),)),
}  # fmt: skip
"""Scenarios by the name of the situation that each leads to."""


def steered_runs(name: str, first: int, runs: int) -> Iterator[SeedResult]:
    """Yield `runs` runs of the scenario `name`, one for each seed from `first` on that it fits.

    The seed also shifts the times of the faults.
    """
    scenario = STEERED_SCENARIOS[name]
    for seed in islice((seed for seed in count(first) if _fits(scenario, seed)), runs):
        schedule = draw_schedule(seed, replace(settings_of(seed, SWARM), focus=Focus(faults=scenario.faults)))
        yield run_seed(seed, SWARM, schedule=schedule)


def _fits(scenario: SteeredScenario, seed: int) -> bool:
    settings = settings_of(seed, SWARM)
    return scenario.fits(settings.clients, settings)


# -- one long run with a fault every second and a half, for traces of a thousand lines of every model --

DURATION_MS: Final = 160_000
EVERY_MS: Final = 1_500
QUIET_MS: Final = 2_000
SETTINGS: Final = Settings(
    partitions=3, brokers=4, replication_factor=3,
    load=Load(producers=3, members=("cooperative-sticky",) * 3, administrator=True),
)  # fmt: skip
FAULTS: Final = (
    ("kill", f"leader({TOPIC},0)"), ("expire", "controller"), ("bounce", f"leader({TOPIC},0)"),
    ("pause", "controller"), ("kill", "member:0"), ("kill", f"followers({TOPIC},0)"),
)  # fmt: skip
ENTITIES: Final = {"partition": f"{TOPIC}-0", "group": GROUP}


def faults() -> Iterator[Fault]:
    """Yield faults of leaders, controllers and members, one every `EVERY_MS`, until `QUIET_MS` before the end."""
    moments = range(1_000, DURATION_MS - QUIET_MS, EVERY_MS)
    for at_ms, (kind, node) in zip(moments, cycle(FAULTS), strict=False):
        yield fault(at_ms, 700 if KINDS[kind].lasts else 0, kind, node)


@cache
def long_run() -> tuple[Step, ...]:
    """Return the steps of all nodes in the long run."""
    result = run_seed(0, SETTINGS, schedule=Schedule(duration_ms=DURATION_MS, faults=tuple(faults())), tracing=True)
    assert result.violation is None, result.violation
    return tuple(result.steps)


def steps_for(model: str, lines: int) -> list[Step]:
    """Return the first `lines` steps of one partition, or of the group, that the model reads, as a separate trace."""
    layout = read_layout(model)
    entity, broker_ids = ENTITIES[layout.kind], range(1, SETTINGS.brokers + 1)
    steps = [step for step in long_run() if step.entity == entity or (not step.entity and step.node in broker_ids)]
    read = [step for step in steps if step.action in layout.actions]
    return renumber(read[:lines])
