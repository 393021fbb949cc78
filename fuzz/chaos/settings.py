"""Converts the settings of a schedule, which have Kafka's names, to those of each kind of cluster."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from highwater.errors import UsageError
from highwater.fuzz.chaos.nemesis import STORE
from highwater.fuzz.chaos.workload.topic import TopicLoad
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
FULL_LOAD: Final = TopicLoad(wanderers=1, transactional_producers=2, group_observers=1)
BOOLEANS: Final = {"true": True, "false": False}


def settings_of_node(node: int | str, schedule: Schedule) -> dict[str, Option]:
    """Return the settings of one node: those of all nodes (`*`), overridden by its own."""
    return {**schedule.node_settings.get("*", {}), **schedule.node_settings.get(str(node), {})}


def reference_settings(settings: Mapping[str, Option]) -> dict[str, object]:
    """Return the settings with the names and units of the reference broker."""
    converted: dict[str, object] = {}
    for name, value in settings.items():
        own_name = RENAMED.get(name, name.replace(".", "_"))
        converted[own_name] = value * FACTOR.get(name, 1) if isinstance(value, int) else BOOLEANS.get(value, value)
    return converted


def simulator_settings(schedule: Schedule) -> dict[str, dict[str, object]]:
    """Return the settings of the simulator by node, without those of the topic."""
    return {
        node: reference_settings({name: value for name, value in own.items() if name not in TOPIC_SETTINGS})
        for node, own in schedule.node_settings.items()
    }


def kraft_settings(settings: Mapping[str, Option]) -> dict[str, Option]:
    """Return the settings for KRaft, where a broker has its session with the controller instead of ZooKeeper."""
    return {KRAFT_SESSION if name == SESSION else name: value for name, value in settings.items()}


def schedule_load(schedule: Schedule, brokers: int) -> TopicLoad:
    """Return the load on the topic that the schedule describes; UsageError if the topic is impossible."""
    common = settings_of_node("*", schedule)
    topic = {TOPIC_SETTINGS[name]: value for name, value in common.items() if name in TOPIC_SETTINGS}
    for name, value in topic.items():
        if not isinstance(value, int) or value < 1:
            raise UsageError(f"{name} is {value!r}", where="node_settings of *", hint="give a number of at least 1")
    replicas = topic.get("replicas", min(3, brokers))
    min_isr = max(1, replicas - 1)  # type: ignore[operator]  # checked above
    load = replace(FULL_LOAD, **{"replicas": replicas, "min_insync_replicas": min_isr, **topic})  # type: ignore[arg-type]
    if load.replicas > brokers:
        raise UsageError(f"{load.replicas} replicas on {brokers} brokers", where="node_settings of *")
    return load


# Simulation of a schedule.


KIP_966_GUARDS: Final = ("UncleanRestartLeavesIsr", "HwNeedsMinIsr")
"""Guards that are off: no release that these schedules run on has KIP-966, with which the others matter less."""


def simulate_schedule(schedule: Schedule, brokers: int, truncation: str) -> SeedResult:
    """Run the schedule in the simulator under a truncation rule and return the result.

    Sessions, checkpoints and the topic are those of the schedule; other time-outs are the defaults of the simulator.
    """
    load = schedule_load(schedule, brokers)
    settings = Settings(
        brokers=brokers, partitions=load.partitions, replication_factor=load.replicas,
        min_insync_replicas=load.min_insync_replicas,
        assigned=tuple(range(1, load.replicas + 1)), truncation=truncation, guards_off=KIP_966_GUARDS,
        node_settings=simulator_settings(schedule),
    )  # fmt: skip
    check(schedule, [STORE, *map(str, range(1, brokers + 1))])
    return run_seed(schedule.seed, settings, schedule=schedule)
