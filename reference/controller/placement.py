"""Which brokers hold a new partition: round robin, and over racks where all brokers name theirs (KIP-36)."""

from collections.abc import Mapping
from itertools import zip_longest

Assignment = dict[int, tuple[int, ...]]


def assign_replicas(
    racks: Mapping[int, str | None], partitions: int, replication_factor: int, start: int, first_partition: int = 0
) -> Assignment:
    """Replicas of partitions `first_partition` and on; `racks` has every broker that may be chosen.

    Leaders go round the brokers; followers are shifted by one more each time round. With racks, a rack gets a second
    replica only after each has one. Brokers without a rack beside some with one count as having none.
    """
    if all(racks.values()):
        brokers = _by_turns(racks)
        rack_of = {broker: rack or "" for broker, rack in racks.items()}
    else:
        brokers = sorted(racks)
        rack_of = {broker: str(broker) for broker in brokers}
    assignment = {}
    for partition in range(first_partition, first_partition + partitions):
        shift = start + partition // len(brokers)
        assignment[partition] = _replicas(brokers, rack_of, replication_factor, (start + partition), shift)
    return assignment


def _by_turns(racks: Mapping[int, str | None]) -> list[int]:
    """One broker of each rack after the other, so that neighbours stand in different racks."""
    shelves = [
        sorted(b for b, rack in racks.items() if rack == name) for name in sorted({r or "" for r in racks.values()})
    ]
    return [broker for turn in zip_longest(*shelves) for broker in turn if broker is not None]


def _replicas(brokers: list[int], rack_of: Mapping[int, str], factor: int, lead: int, shift: int) -> tuple[int, ...]:
    count = len(brokers)
    first = brokers[lead % count]
    others = [brokers[(lead + 1 + (shift + number) % (count - 1)) % count] for number in range(count - 1)]
    chosen, full = [first], {rack_of[first]}
    while len(chosen) < factor:
        left = [broker for broker in others if broker not in chosen]
        follower = next((broker for broker in left if rack_of[broker] not in full), None)
        if follower is None:  # every rack has its share: another round
            full = set()
            continue
        chosen.append(follower)
        full.add(rack_of[follower])
    return tuple(chosen)
