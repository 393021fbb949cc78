"""Replica placement for new partitions: round robin, across racks if every broker has one (KIP-36)."""

from collections.abc import Mapping
from itertools import zip_longest

Assignment = dict[int, tuple[int, ...]]


def assign_replicas(
    racks: Mapping[int, str | None], partitions: int, replication_factor: int, start: int, first_partition: int = 0
) -> Assignment:
    """Return partition -> replicas for `partitions` partitions from `first_partition` on.

    `racks` maps every candidate broker to its rack. Leaders are assigned round robin; the followers are shifted by one
    more in each round. A rack gets a second replica only after every rack has one. Racks are ignored unless every
    broker has one. Apache Kafka: AdminUtils.assignReplicasToBrokers.
    """
    if all(racks.values()):
        brokers = _interleave_racks(racks)
        rack_of = {broker: rack or "" for broker, rack in racks.items()}
    else:
        brokers = sorted(racks)
        rack_of = {broker: str(broker) for broker in brokers}
    assignment = {}
    for partition in range(first_partition, first_partition + partitions):
        shift = start + partition // len(brokers)
        assignment[partition] = _replicas(brokers, rack_of, replication_factor, (start + partition), shift)
    return assignment


def _interleave_racks(racks: Mapping[int, str | None]) -> list[int]:
    """Return the brokers with racks alternating, so that neighbours are in different racks."""
    brokers_by_rack = [
        sorted(b for b, rack in racks.items() if rack == name) for name in sorted({r or "" for r in racks.values()})
    ]
    return [broker for row in zip_longest(*brokers_by_rack) for broker in row if broker is not None]


def _replicas(
    brokers: list[int], rack_of: Mapping[int, str], factor: int, leader_index: int, shift: int
) -> tuple[int, ...]:
    count = len(brokers)
    first = brokers[leader_index % count]
    others = [brokers[(leader_index + 1 + (shift + number) % (count - 1)) % count] for number in range(count - 1)]
    chosen, used_racks = [first], {rack_of[first]}
    while len(chosen) < factor:
        remaining = [broker for broker in others if broker not in chosen]
        follower = next((broker for broker in remaining if rack_of[broker] not in used_racks), None)
        if follower is None:  # every rack has a replica of this round: start another round
            used_racks = set()
            continue
        chosen.append(follower)
        used_racks.add(rack_of[follower])
    return tuple(chosen)
