"""What a cluster is put under: the topic, and how many of which client."""

from dataclasses import dataclass
from typing import Final

TOPIC: Final = "highwater"
TRANSACTIONS_TOPIC: Final = "highwater-transactions"
GROUP: Final = "workload"


@dataclass(frozen=True, slots=True)
class Load:
    """How much of which client. A process of the history is one record in flight, one consumer or one reader.

    Partition n is led by the nth broker first, so that a schedule can name brokers by id.
    """

    partitions: int = 2
    replicas: int = 3
    min_insync_replicas: int = 2
    acks: str = "all"
    confluent_producers: int = 2
    in_flight: int = 8
    kafka_python_producers: int = 1
    assigned_consumers: int = 1
    raw_readers: int = 1  # of each partition
    group_members: int = 2
    wanderers: int = 0
    transactional_producers: int = 0
    group_observers: int = 0
    rate: int = 0  # records a second of each producer at most; 0: as fast as it goes


def consumer_names(load: Load) -> list[str]:
    """What schedules call the consumers of a load."""
    alone = [f"consumer-{number}" for number in range(1, load.assigned_consumers + 1)]
    return alone + [f"member-{number}" for number in range(1, load.group_members + 1)]
