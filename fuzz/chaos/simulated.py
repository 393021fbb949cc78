"""The same schedule in virtual time, on the reference under any of its truncation rules."""

from typing import Final

from fuzz.chaos.settings import load_of, of_simulator
from fuzz.processes.nemesis import STORE
from fuzz.schedule import Schedule, check
from fuzz.search import SeedResult, run_seed
from fuzz.simulated_cluster import Settings

ERA: Final = ("UncleanRestartLeavesIsr", "HwNeedsMinIsr")
"""Rules of KIP-966, which no release that these schedules are run on has: with them the rest matters less."""


def simulate_schedule(schedule: Schedule, brokers: int, truncation: str) -> SeedResult:
    """With the sessions, checkpoints and topic of the schedule; other time-outs are the simulator's own."""
    load = load_of(schedule, brokers)
    settings = Settings(
        brokers=brokers, partitions=load.partitions, min_insync_replicas=load.min_insync_replicas,
        assigned=tuple(range(1, load.replicas + 1)), truncation=truncation, guards_off=ERA,
        node_settings=of_simulator(schedule),
    )  # fmt: skip
    check(schedule, [STORE, *map(str, range(1, brokers + 1))])
    return run_seed(schedule.seed, settings, schedule=schedule)
