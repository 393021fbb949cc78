"""The settings of a schedule, which have Kafka's names, as each kind of cluster takes them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from highwater.errors import UsageError
from highwater.fuzz.chaos.nemesis import STORE
from highwater.fuzz.chaos.workload.topic import Load
from highwater.fuzz.schedule import Option, Schedule, check
from highwater.fuzz.simulator.cluster import Settings
from highwater.fuzz.simulator.search import SeedResult, run_seed

SESSION: Final = "zookeeper.session.timeout.ms"
KRAFT_SESSION: Final = "broker.session.timeout.ms"
CHECKPOINT: Final = "replica.high.watermark.checkpoint.interval.ms"
BALANCE: Final = "leader.imbalance.check.interval.seconds"
TOPIC_SETTINGS: Final = {
    "num.partitions": "partitions",
    "default.replication.factor": "replicas",
    "min.insync.replicas": "min_insync_replicas",
}
RENAMED: Final = {
    SESSION: "metadata_store_session_timeout_ms",
    CHECKPOINT: "high_watermark_checkpoint_interval_ms",
    BALANCE: "leader_imbalance_check_interval_ms",
}
FACTOR: Final = {BALANCE: 1000}
EVERYBODY: Final = Load(wanderers=1, transactional_producers=2, group_observers=1)
TRUTH: Final = {"true": True, "false": False}


def settings_of(node: int | str, schedule: Schedule) -> dict[str, Option]:
    """Those of all brokers, then those of this one alone."""
    return {**schedule.node_settings.get("*", {}), **schedule.node_settings.get(str(node), {})}


def of_reference(settings: Mapping[str, Option]) -> dict[str, object]:
    """As the reference broker names and counts them."""
    found: dict[str, object] = {}
    for name, value in settings.items():
        told = RENAMED.get(name, name.replace(".", "_"))
        found[told] = value * FACTOR.get(name, 1) if isinstance(value, int) else TRUTH.get(value, value)
    return found


def of_simulator(schedule: Schedule) -> dict[str, dict[str, object]]:
    """By node, without what describes the topic."""
    return {
        node: of_reference({name: value for name, value in own.items() if name not in TOPIC_SETTINGS})
        for node, own in schedule.node_settings.items()
    }


def of_kraft(settings: Mapping[str, Option]) -> dict[str, Option]:
    """Without ZooKeeper the session is with the controller."""
    return {KRAFT_SESSION if name == SESSION else name: value for name, value in settings.items()}


def load_of(schedule: Schedule, brokers: int) -> Load:
    """The topic that the schedule's settings describe."""
    told = {TOPIC_SETTINGS[name]: value for name, value in settings_of("*", schedule).items() if name in TOPIC_SETTINGS}
    for name, value in told.items():
        if not isinstance(value, int) or value < 1:
            raise UsageError(f"{name} is {value!r}", where="node_settings of *", hint="give a number from 1 on")
    replicas = min(3, brokers)
    least = max(1, replicas - 1)
    load = replace(EVERYBODY, **{"replicas": replicas, "min_insync_replicas": least, **told})  # type: ignore[arg-type]
    if load.replicas > brokers:
        raise UsageError(f"{load.replicas} replicas on {brokers} brokers", where="node_settings of *")
    return load


# --------------------------------------------------------------------------------------------------
# The same schedule in virtual time, on the reference under any of its truncation rules.


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
