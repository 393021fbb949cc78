"""Who leads next. Pure functions of a partition's state, its replicas and the brokers that are alive."""

from collections.abc import Collection
from dataclasses import replace

from reference.replication.states import NO_LEADER, PartitionState


def elect(
    state: PartitionState, replicas: tuple[int, ...], live: Collection[int], *, controller_epoch: int, unclean: bool
) -> PartitionState:
    """The first live replica of the ISR leads, and the ISR keeps its live members.

    With nobody left the partition has no leader and keeps its ISR, so that only they may lead again;
    `unclean` lets any live replica lead then, alone, and what it lacks is lost.
    """
    live_isr = tuple(replica for replica in state.isr if replica in live)
    candidates = [replica for replica in replicas if replica in live_isr]
    if candidates:
        leader, isr = candidates[0], live_isr
    else:
        survivors = [replica for replica in replicas if replica in live] if unclean else []
        leader, isr = (survivors[0], (survivors[0],)) if survivors else (NO_LEADER, state.isr)
    return replace(
        state, leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1, controller_epoch=controller_epoch
    )


def shrink(state: PartitionState, gone: Collection[int], *, controller_epoch: int) -> PartitionState | None:
    """Take members out of the ISR; None when nobody is to go, or when nobody would stay."""
    isr = tuple(replica for replica in state.isr if replica not in gone)
    if not isr or isr == state.isr:
        return None
    return replace(state, isr=isr, leader_epoch=state.leader_epoch + 1, controller_epoch=controller_epoch)


def assign_replicas(
    brokers: list[int], partitions: int, replication_factor: int, start: int, first_partition: int = 0
) -> dict[int, tuple[int, ...]]:
    """Round robin over brokers, the followers shifted by one more each time round (Kafka's placement without racks)."""
    count = len(brokers)
    assignment = {}
    for partition in range(first_partition, first_partition + partitions):
        lead = (start + partition) % count
        shift = start + partition // count
        others = [
            brokers[(lead + 1 + (shift + number) % (count - 1)) % count] for number in range(replication_factor - 1)
        ]
        assignment[partition] = (brokers[lead], *others)
    return assignment
