"""A broker's metrics in Prometheus format, named after Apache Kafka's (kafka.server, kafka.controller …)."""

import re
from collections.abc import Iterator
from typing import Final

from highwater.reference.broker import Broker
from highwater.reference.meters import Labels
from highwater.reference.replication.partition import Role
from highwater.reference.replication.states import NO_LEADER

Sample = tuple[str, Labels, int]
WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def exposition(broker: Broker, driver_gauges: dict[str, int]) -> str:
    """Return all metrics in Prometheus' text format 0.0.4; `driver_gauges` adds those of the driver (connections)."""
    lines = []
    for name, kind, samples in _families(broker, driver_gauges):
        lines.append(f"# TYPE {name} {kind}")
        lines += [f"{name}{_braces(labels)} {value}" for _, labels, value in samples]
    return "\n".join(lines) + "\n"


def _families(broker: Broker, driver_gauges: dict[str, int]) -> Iterator[tuple[str, str, list[Sample]]]:
    gauges = {**_replica_gauges(broker), **_controller_gauges(broker), **driver_gauges}
    for name, value in sorted(gauges.items()):
        yield metric_name(name), "gauge", [(name, (), value)]
    counts = broker.meters.counts
    for name in sorted({name for name, _ in counts}):
        samples = [(name, labels, count) for (meter, labels), count in sorted(counts.items()) if meter == name]
        yield metric_name(name) + "_total", "counter", samples


def metric_name(meter: str) -> str:
    """Convert `IsrShrinksPerSec` to `kafka_isr_shrinks`; Prometheus computes the rate."""
    return "kafka_" + WORD.sub("_", meter.removesuffix("PerSec")).lower()


def _braces(labels: Labels) -> str:
    return "{" + ",".join(f'{key}="{value}"' for key, value in labels) + "}" if labels else ""


def _replica_gauges(broker: Broker) -> dict[str, int]:
    """Return the gauges of this broker's replicas; under-replicated counts only partitions that it leads."""
    partitions = broker.replicas.partitions.values()
    led = [partition for partition in partitions if partition.role is Role.LEADER]
    lags = [
        partition.log.log_end_offset - remote.log_end_offset
        for partition in led
        for remote in partition.remotes.values()
    ]
    return {
        "PartitionCount": len(partitions),
        "LeaderCount": len(led),
        "UnderReplicatedPartitions": sum(len(partition.isr) < len(partition.replicas) for partition in led),
        "UnderMinIsrPartitionCount": sum(not partition.has_min_isr(partition.isr) for partition in led),
        "OfflineReplicaCount": sum(partition.offline for partition in partitions) + len(broker.replicas.corrupt_logs),
        "ReplicaMaxLag": max(lags, default=0),
        "LogSizeBytes": sum(segment.size for partition in partitions for segment in partition.log.segments),
        "PurgatorySize": len(broker.purgatory),
    }


def _controller_gauges(broker: Broker) -> dict[str, int]:
    """Return the gauges of the whole cluster; 0 on every broker that is not the controller."""
    term = broker.controller.term if broker.controller.active else None
    states = {} if term is None else term.controller_context.cluster.states
    preferred = {} if term is None else {key: term.controller_context.cluster.replicas(key)[0] for key in states}
    return {
        "ActiveControllerCount": int(term is not None),
        "GlobalPartitionCount": len(states),
        "GlobalTopicCount": len({topic for topic, _ in states}),
        "OfflinePartitionsCount": sum(state.leader == NO_LEADER for state in states.values()),
        "PreferredReplicaImbalanceCount": sum(state.leader != preferred[key] for key, state in states.items()),
    }
