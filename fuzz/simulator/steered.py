"""Runs that are steered: of each rare situation the story of faults that leads to it, and the seeds that it fits.

The clients are those that the seed draws, so what a run breaks is played again by its schedule alone.
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


class Story(NamedTuple):
    """`fits` what a seed draws; the moments of the faults are drawn from it, too."""

    fits: Callable[[Load, Settings], bool]
    faults: tuple[Fault, ...]


STORIES: Final = {
    "no leader": Story(
        lambda load, _: not (load.old_consumers or load.administrator),
        (fault(1_000, 1_000, "kill", "1"), fault(1_000, 3_500, "kill", "2"), fault(1_000, 3_500, "kill", "3")),
    ),
    "lost tail": Story(
        lambda load, _: not load.old_consumers,
        (
            fault(1_500, 800, "kill", "leader(t,0)", lose="unflushed"),
            fault(3_500, 800, "kill", "leader(t,0)", lose="torn"),
        ),
    ),
    "fenced ISR change": Story(
        lambda _, settings: settings.broker_settings.get("isr_update") == "alter_partition",
        (
            fault(300, 5_000, "duplicate", "leader(t,0)", direction="out", of="brokers", what="AlterPartitionRequest",
                  per_mille=900),
            fault(800, 1_500, "cut", "leader(t,0)", direction="in", of="brokers", what="FetchRequest"),
            fault(3_500, 1_000, "cut", "leader(t,0)", direction="in", of="brokers", what="FetchRequest"),
        ),
    ),
    "fenced producer": Story(
        lambda load, _: load.transactional > 0,
        (fault(0, 6_000, "duplicate", "all", direction="in", of="clients", per_mille=900),),
    ),
    "rebalance during failover": Story(
        lambda load, _: bool(load.members),
        (
            fault(1_200, 600, "kill", "member:1"),
            fault(1_500, 1_500, "kill", "leader(t,0)"),
            fault(1_700, 200, "kill", "member:0"),
        ),
    ),
    "coordinator change": Story(
        lambda load, _: bool(load.members),
        (fault(1_500, 1_500, "kill", "coordinator(g)"), fault(4_000, 1_500, "kill", "coordinator(g)")),
    ),
    "fenced instance": Story(lambda load, _: load.twins > 1, (fault(1_500, 500, "kill", "member:0"),)),
}  # fmt: skip
"""By the situation that each leads to."""


def steered_runs(name: str, first: int, runs: int) -> Iterator[SeedResult]:
    """So many runs of a story, each of the next seed from `first` on that it fits."""
    story = STORIES[name]
    for seed in islice((seed for seed in count(first) if _fits(story, seed)), runs):
        told = draw_schedule(seed, replace(settings_of(seed, SWARM), focus=Focus(story=story.faults)))
        yield run_seed(seed, SWARM, schedule=told)


def _fits(story: Story, seed: int) -> bool:
    settings = settings_of(seed, SWARM)
    return story.fits(settings.clients, settings)


# --------------------------------------------------------------------------------------------------
# A storm: one long run with a fault every second and a half, for traces of a thousand lines of every model.


DURATION_MS: Final = 160_000
EVERY_MS: Final = 1_500
CALM_MS: Final = 2_000
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
    """Leaders and controllers go and come back, as long as the storm lasts."""
    moments = range(1_000, DURATION_MS - CALM_MS, EVERY_MS)
    for at_ms, (kind, node) in zip(moments, cycle(FAULTS), strict=False):
        yield fault(at_ms, 700 if KINDS[kind].lasts else 0, kind, node)


@cache
def storm() -> tuple[Step, ...]:
    """All steps of all nodes."""
    result = run_seed(0, SETTINGS, schedule=Schedule(duration_ms=DURATION_MS, faults=tuple(faults())), tracing=True)
    assert result.violation is None, result.violation
    return tuple(result.steps)


def steps_for(model: str, lines: int) -> list[Step]:
    """The first so many of one partition, or the group, that the model reads, as a trace of their own."""
    layout = read_layout(model)
    entity, everybody = ENTITIES[layout.kind], range(1, SETTINGS.brokers + 1)
    mine = [step for step in storm() if step.entity == entity or (not step.entity and step.node in everybody)]
    read = [step for step in mine if step.action in layout.actions]
    return renumber(read[:lines])
