"""Runs that are steered: of each rare situation the story of faults that leads to it, and the seeds that it fits.

The clients are those that the seed draws, so what a run breaks is played again by its schedule alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, islice
from typing import Final, NamedTuple

from fuzz.guard_focus import SWARM, fault
from fuzz.schedule import Fault
from fuzz.search import SeedResult, run_seed
from fuzz.simulated_cluster import Focus, Load, Settings
from fuzz.swarm import draw_schedule, settings_of


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
