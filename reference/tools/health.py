"""What the partitions of a cluster lack, from its metadata (`highwater doctor --bootstrap-server`)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from highwater.reference.client.cluster import ClusterClient

RESTART = "look into the log of the broker: start it again, or follow what it says about damaged data"
WAIT = "it follows the leader again by itself; if it does not, look into the logs of both"


@dataclass(frozen=True, slots=True)
class Problem:
    """What a partition lacks, and what to do; `partition` is the topic and the number, as in names of folders."""

    partition: str
    lacks: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Health:
    """How many topics and partitions there are, and what lacks something, internal topics first."""

    topics: int
    partitions: int
    problems: tuple[Problem, ...]


def health(cluster: ClusterClient) -> Health:
    """Return what every partition of a cluster lacks. Raises UsageError if no broker answers."""
    topics = sorted(cluster.metadata().topics, key=lambda topic: (not topic.is_internal, str(topic.name)))
    parts = [(topic, part) for topic in topics for part in sorted(topic.partitions, key=_number)]
    found = (Problem(f"{topic.name}-{_number(part)}", *lack) for topic, part in parts for lack in lacking(part))
    return Health(len(topics), len(parts), tuple(found))


def _number(part: Any) -> int:
    return int(part.partition_index)


def lacking(part: Any) -> Iterator[tuple[str, str]]:
    """Yield what a partition of a Metadata response lacks, and what to do."""
    if part.leader_id < 0:
        yield "a leader", f"start one of brokers {_list(part.isr_nodes)}, or elect an unclean one: highwater elect"
    for replica in part.offline_replicas:
        yield f"replica {replica}: it is offline", RESTART
    outside = set(part.replica_nodes) - set(part.isr_nodes) - set(part.offline_replicas)
    for replica in sorted(outside):
        yield f"replica {replica} in the ISR", WAIT


def _list(brokers: tuple[int, ...]) -> str:
    return ", ".join(map(str, brokers)) or "that were in the ISR last"
