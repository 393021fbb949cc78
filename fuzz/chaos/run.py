"""One chaos run: a cluster, its load, a schedule; the history is what comes of it."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from highwater.errors import UsageError
from highwater.fuzz.chaos.capabilities import refuse_unsupported, supported, wants_clock, wants_disk
from highwater.fuzz.chaos.cluster import Field, launched
from highwater.fuzz.chaos.draw import draw_schedule, draw_settings
from highwater.fuzz.chaos.launch import open_field
from highwater.fuzz.chaos.races import draw_races, race_settings
from highwater.fuzz.chaos.settings import load_of
from highwater.fuzz.chaos.workload.run import UserClients, Workload
from highwater.fuzz.chaos.workload.topic import Load, consumer_names
from highwater.fuzz.schedule import Option, Schedule, check, write_schedule

WORKLOADS = {
    "send": ("confluent_producers", "kafka_python_producers"),
    "poll": ("assigned_consumers", "raw_readers"),
    "subscribe": ("group_members",),
    "wander": ("wanderers",),
    "transact": ("transactional_producers",),
    "observe": ("group_observers",),
}
"""By name: the parts of a `Load` that are left out with them."""
NOBODY = "none"
SCHEDULE = "schedule.json"
BEYOND = frozenset({"rot"})
"""Never drawn: two of them may be more than a correct Kafka survives."""


def chosen_load(schedule: Schedule, brokers: int, workloads: str, rate: int) -> Load:
    """The topic of the schedule, and of all clients those that are named; UsageError for one that is not known."""
    names = workloads.split(",") if workloads != NOBODY else []
    unknown = [name for name in names if name not in WORKLOADS]
    if unknown:
        raise UsageError(
            f"no workload {unknown[0]!r}", where="--workload", hint=f"known: {', '.join(WORKLOADS)}, {NOBODY}"
        )
    left_out: dict[str, Any] = {part: 0 for name, parts in WORKLOADS.items() if name not in names for part in parts}
    return replace(load_of(schedule, brokers), rate=rate, **left_out)


def chaos(
    target: str, schedule: Schedule | None, folder: Path, *, seconds: float, seed: int, workloads: str, rate: int = 0,
    packets: bool = False, races: bool = False, trace: Path | None = None,
    say: Callable[[str], None] = lambda line: None, stop: threading.Event | None = None,
    user_clients: Callable[[str], AbstractContextManager[UserClients | None]] = lambda bootstrap: nullcontext(),
) -> Path:  # fmt: skip
    """Run `schedule`, or one drawn from `seed`, and return the path of the history. `races`: one of a search.
    `user_clients` starts the clients of the user once the cluster is up.

    UsageError for faults and nodes that the target does not have, before it is started where that is known.
    """
    told = launched(target)
    frame = schedule or Schedule(duration_ms=1, seed=seed)
    races = races and told is not None and told.brokers > 1
    if told is not None:
        if schedule is None:
            settings = (race_settings if races else draw_settings)(seed, told.brokers)
            frame = Schedule(duration_ms=1, seed=seed, node_settings=settings)
        load = chosen_load(frame, told.brokers, workloads, rate)
        check(frame, [*told.nodes, *consumer_names(load)], where=target)
    say(f"starting {target}")
    disks, clocks = any(map(wants_disk, frame.faults)), any(map(wants_clock, frame.faults))
    with open_field(target, frame, disks=disks, packets=packets, clocks=clocks, trace=trace) as field:
        load = chosen_load(frame, len(field.addresses), workloads, rate)
        if schedule is None and races:
            schedule = draw_races(seed, seconds, field.nodes, frame.node_settings)
        schedule = schedule or _drawn(field, load, seed, seconds, frame.node_settings)
        check(schedule, [*field.nodes, *consumer_names(load)], where=target)
        refuse_unsupported(schedule, field, target)
        write_schedule(folder / SCHEDULE, schedule)
        with user_clients(field.bootstrap) as running_clients:
            workload = Workload(
                field.bootstrap, field.addresses, field.faults, load, field.revive, target, say, running_clients
            )  # fmt: skip
            say(f"{schedule.duration_ms / 1000:g} s of load, {len(schedule.faults)} faults")
            return workload.run(folder, schedule, stop)


def _drawn(field: Field, load: Load, seed: int, seconds: float, settings: dict[str, dict[str, Option]]) -> Schedule:
    clients = consumer_names(load)
    kinds = [kind for kind in supported(field) if kind not in BEYOND and (kind != "stall" or clients)]
    return draw_schedule(seed, seconds, kinds, field.nodes, clients, settings)
