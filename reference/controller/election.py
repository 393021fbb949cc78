"""Who leads next: Kafka's four leader selectors (kafka-0.9-controller). Pure functions of a partition and its brokers.

Each answers the new state, whose leader epoch is a new one, or None when nothing is to change.
"""

from collections.abc import Collection
from dataclasses import replace

from reference.replication.states import NO_LEADER, PartitionState

Replicas = tuple[int, ...]


def elect_offline(
    state: PartitionState, replicas: Replicas, live: Collection[int], *, unclean: bool
) -> PartitionState | None:
    """The leader is gone: the first live replica of the ISR leads, and the ISR keeps its live members.

    With nobody left an eligible leader replica leads, alone (KIP-966). Without one the partition has no leader and
    keeps its ISR, so that only they may lead again; `unclean` lets any live replica lead then, alone, and what it
    lacks is lost. None when there was no leader and still is none.
    """
    live_isr = tuple(replica for replica in state.isr if replica in live)
    candidates = [replica for replica in replicas if replica in live_isr]
    if candidates:
        return succeed(state, candidates[0], live_isr)
    eligible = [replica for replica in replicas if replica in state.elr and replica in live]
    if eligible:
        return succeed(state, eligible[0], (eligible[0],))
    survivors = [replica for replica in replicas if replica in live] if unclean else []
    if survivors:
        return succeed(state, survivors[0], (survivors[0],))
    return None if state.leader == NO_LEADER else succeed(state, NO_LEADER, state.isr)


def elect_reassigned(state: PartitionState, target: Replicas, live: Collection[int]) -> PartitionState | None:
    """A live, in-sync one of the new replicas leads; the ISR stays. The epoch rises in any case (step 7)."""
    if state.leader in target and state.leader in live:
        return succeed(state, state.leader, state.isr)
    candidates = [replica for replica in target if replica in live and replica in state.isr]
    return succeed(state, candidates[0], state.isr) if candidates else None


def elect_preferred(
    state: PartitionState, replicas: Replicas, live: Collection[int], *, only_in_sync: bool = True
) -> PartitionState | None:
    """The first assigned replica leads, if it lives and is in the ISR; the ISR stays."""
    preferred = replicas[0]
    fit = preferred in live and (preferred in state.isr or not only_in_sync)
    if state.leader == preferred or not fit:
        return None
    return succeed(state, preferred, tuple(sorted({*state.isr, preferred})))


def elect_for_shutdown(
    state: PartitionState, replicas: Replicas, live: Collection[int], leaving: Collection[int]
) -> PartitionState | None:
    """A live member of the ISR that does not shut down leads, and the others that do leave the ISR.

    Of partitions that a leaving broker only follows it just leaves the ISR. None when nobody else could lead.
    """
    isr = tuple(replica for replica in state.isr if replica in live and replica not in leaving)
    if not isr or isr == state.isr:
        return None
    leader = state.leader if state.leader in isr else next(replica for replica in replicas if replica in isr)
    return succeed(state, leader, isr)


def shrink(state: PartitionState, gone: Collection[int]) -> PartitionState | None:
    """Take members out of the ISR; None when nobody is to go, or when nobody would stay."""
    isr = tuple(replica for replica in state.isr if replica not in gone)
    return succeed(state, state.leader, isr) if isr and isr != state.isr else None


def succeed(state: PartitionState, leader: int, isr: Replicas) -> PartitionState:
    """The next state: whatever the controller decides begins a new leader epoch."""
    return replace(state, leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1)
