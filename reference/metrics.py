"""The meters of a broker as Prometheus reads them, named after Apache Kafka's (kafka.server, kafka.controller …)."""

import re
from collections.abc import Iterator
from typing import Final

from reference.broker import Broker
from reference.meters import Labels
from reference.replication.partition import Role
from reference.replication.states import NO_LEADER

Sample = tuple[str, Labels, int]
WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def exposition(broker: Broker, driver_gauges: dict[str, int]) -> str:
    """Prometheus' text format 0.0.4. What only a driver knows, such as connections, comes from there."""
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
        samples = [(name, labels, count) for (each, labels), count in sorted(counts.items()) if each == name]
        yield metric_name(name) + "_total", "counter", samples


def metric_name(meter: str) -> str:
    """`IsrShrinksPerSec` becomes `kafka_isr_shrinks`: the rate is for Prometheus to compute."""
    return "kafka_" + WORD.sub("_", meter.removesuffix("PerSec")).lower()


def _braces(labels: Labels) -> str:
    return "{" + ",".join(f'{key}="{value}"' for key, value in labels) + "}" if labels else ""


def _replica_gauges(broker: Broker) -> dict[str, int]:
    """What this broker holds; under-replicated is a partition that it leads, as its leader sees it."""
    partitions = broker.replicas.partitions.values()
    led = [each for each in partitions if each.role is Role.LEADER]
    lags = [each.log.log_end_offset - remote.log_end_offset for each in led for remote in each.remotes.values()]
    return {
        "PartitionCount": len(partitions),
        "LeaderCount": len(led),
        "UnderReplicatedPartitions": sum(len(each.isr) < len(each.replicas) for each in led),
        "UnderMinIsrPartitionCount": sum(not each.has_enough(each.isr) for each in led),
        "OfflineReplicaCount": sum(each.offline for each in partitions) + len(broker.replicas.refused),
        "ReplicaMaxLag": max(lags, default=0),
        "LogSizeBytes": sum(segment.size for each in partitions for segment in each.log.segments),
        "PurgatorySize": len(broker.purgatory),
    }


def _controller_gauges(broker: Broker) -> dict[str, int]:
    """Of the whole cluster, so they are told by the controller alone, and are 0 elsewhere."""
    term = broker.controller.term if broker.controller.active else None
    states = {} if term is None else term.office.cluster.states
    preferred = {} if term is None else {key: term.office.cluster.replicas(key)[0] for key in states}
    return {
        "ActiveControllerCount": int(term is not None),
        "GlobalPartitionCount": len(states),
        "GlobalTopicCount": len({topic for topic, _ in states}),
        "OfflinePartitionsCount": sum(state.leader == NO_LEADER for state in states.values()),
        "PreferredReplicaImbalanceCount": sum(state.leader != preferred[key] for key, state in states.items()),
    }
