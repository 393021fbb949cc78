"""Runs one chaos test: launches a cluster, puts it under load, injects a schedule and writes the history."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from highwater.errors import UsageError
from highwater.fuzz.chaos.capabilities import reject_unsupported, supported, wants_clock, wants_disk
from highwater.fuzz.chaos.cluster import ChaosCluster, launched_target
from highwater.fuzz.chaos.draw import draw_schedule, draw_settings
from highwater.fuzz.chaos.launch import open_cluster
from highwater.fuzz.chaos.races import draw_races, race_settings
from highwater.fuzz.chaos.settings import schedule_load
from highwater.fuzz.chaos.workload.run import UserClients, Workload
from highwater.fuzz.chaos.workload.topic import TopicLoad, consumer_names
from highwater.fuzz.proxy.run import FaultProxy
from highwater.fuzz.schedule import MESSAGE, Option, Schedule, check, write_schedule

WORKLOADS = {
    "send": ("confluent_producers", "kafka_python_producers"),
    "poll": ("assigned_consumers", "raw_readers"),
    "subscribe": ("group_members",),
    "wander": ("wanderers",),
    "transact": ("transactional_producers",),
    "observe": ("group_observers",),
}
"""The fields of `Load` that belong to each workload, by its name; they are zero if it is not requested."""
NO_WORKLOAD = "none"
SCHEDULE = "schedule.json"
MESSAGES = "messages.txt"
NEVER_DRAWN = frozenset({"rot", MESSAGE})
"""Kinds of fault that no drawn schedule has: some of them may break promises even on a correct Kafka."""


def requested_load(schedule: Schedule, brokers: int, workloads: str, rate: int) -> TopicLoad:
    """Return the load of the schedule with only the requested workloads; UsageError for an unknown one."""
    names = workloads.split(",") if workloads != NO_WORKLOAD else []
    unknown = [name for name in names if name not in WORKLOADS]
    if unknown:
        raise UsageError(
            f"no workload {unknown[0]!r}", where="--workload", hint=f"known: {', '.join(WORKLOADS)}, {NO_WORKLOAD}"
        )
    left_out: dict[str, Any] = {part: 0 for name, parts in WORKLOADS.items() if name not in names for part in parts}
    return replace(schedule_load(schedule, brokers), rate=rate, **left_out)


def chaos(
    target: str, schedule: Schedule | None, folder: Path, *, seconds: float, seed: int, workloads: str, rate: int = 0,
    packets: bool = False, races: bool = False, trace: Path | None = None, keep: Path | None = None,
    say: Callable[[str], None] = lambda line: None, stop: threading.Event | None = None,
    user_clients: Callable[[str], AbstractContextManager[UserClients | None]] = lambda bootstrap: nullcontext(),
) -> Path:  # fmt: skip
    """Run `schedule`, or one drawn from `seed`, and return the path of the history.

    `races`: draw a schedule that searches for the loss of KIP-101. `user_clients`: starts the clients of the user once
    the cluster is up.

    Raises UsageError for faults and nodes that the target does not have, if possible before the target is started.
    """
    launched = launched_target(target)
    frame = schedule or Schedule(duration_ms=1, seed=seed)
    races = races and launched is not None and launched.brokers > 1
    if launched is not None:
        if schedule is None:
            settings = (race_settings if races else draw_settings)(seed, launched.brokers)
            frame = Schedule(duration_ms=1, seed=seed, node_settings=settings)
        load = requested_load(frame, launched.brokers, workloads, rate)
        check(frame, [*launched.nodes, *consumer_names(load)], where=target)
    say(f"starting {target}")
    disks, clocks = any(map(wants_disk, frame.faults)), any(map(wants_clock, frame.faults))
    with open_cluster(target, frame, disks=disks, packets=packets, clocks=clocks, trace=trace, keep=keep) as cluster:
        load = requested_load(frame, len(cluster.addresses), workloads, rate)
        if schedule is None and races:
            schedule = draw_races(seed, seconds, cluster.nodes, frame.node_settings)
        schedule = schedule or _draw(cluster, load, seed, seconds, frame.node_settings)
        check(schedule, [*cluster.nodes, *consumer_names(load)], where=target)
        reject_unsupported(schedule, cluster, target)
        write_schedule(folder / SCHEDULE, schedule)
        with _proxied(cluster.bootstrap, schedule, folder) as proxy:
            bootstrap = proxy.bootstrap if proxy is not None else cluster.bootstrap
            with user_clients(bootstrap) as running_clients:
                workload = Workload(
                    bootstrap, cluster.addresses, cluster.faults, load, cluster.revive, target, say, running_clients,
                    proxy,
                )  # fmt: skip
                say(f"{schedule.duration_ms / 1000:g} s of load, {len(schedule.faults)} faults")
                return workload.run(folder, schedule, stop)


@contextmanager
def _proxied(bootstrap: str, schedule: Schedule, folder: Path) -> Iterator[FaultProxy | None]:
    """Open a proxy for the clients if the schedule has faults of their messages; write what each of them did."""
    if all(fault.kind != MESSAGE for fault in schedule.faults):
        yield None
        return
    with FaultProxy(bootstrap, seed=schedule.seed) as proxy:
        try:
            yield proxy
        finally:
            (folder / MESSAGES).write_text("".join(f"{line}\n" for line in proxy.table()))


def _draw(
    cluster: ChaosCluster, load: TopicLoad, seed: int, seconds: float, settings: dict[str, dict[str, Option]]
) -> Schedule:
    clients = consumer_names(load)
    kinds = [kind for kind in supported(cluster) if kind not in NEVER_DRAWN and (kind != "stall" or clients)]
    return draw_schedule(seed, seconds, kinds, cluster.nodes, clients, settings)
