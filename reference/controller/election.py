"""Leader election: the four leader selectors of kafka-0.9-controller, as pure functions.

Each returns the new partition state, with an incremented leader epoch, or None for no change. Apache Kafka:
PartitionLeaderElectionAlgorithms.
"""

from collections.abc import Collection
from dataclasses import replace

from highwater.reference.guards import Guards
from highwater.reference.replication.states import NO_LEADER, PartitionState

Replicas = tuple[int, ...]


def elect_offline(
    state: PartitionState, replicas: Replicas, live: Collection[int], *, unclean: bool
) -> PartitionState | None:
    """Elect the first live replica of the ISR after the leader failed; the ISR keeps its live members.

    If no ISR member is alive, a live eligible leader replica becomes leader and sole ISR member (KIP-966). If there is
    none either and `unclean` is set, any live replica does, and the records that it lacks are lost. Otherwise the
    partition has no leader and keeps its ISR, so that only those members can lead again. None if the partition had no
    leader and still has none.
    """
    live_isr = tuple(replica for replica in state.isr if replica in live)
    candidates = [replica for replica in replicas if replica in live_isr]
    if candidates:
        return with_new_epoch(state, candidates[0], live_isr)
    eligible = [replica for replica in replicas if replica in state.elr and replica in live]
    if eligible:
        return with_new_epoch(state, eligible[0], (eligible[0],))
    survivors = [replica for replica in replicas if replica in live] if unclean else []
    if survivors:
        return with_new_epoch(state, survivors[0], (survivors[0],))
    return None if state.leader == NO_LEADER else with_new_epoch(state, NO_LEADER, state.isr)


def elect_reassigned(state: PartitionState, target: Replicas, live: Collection[int]) -> PartitionState | None:
    """Elect a live, in-sync target replica, or None if there is none; the epoch rises even if the leader stays."""
    if state.leader in target and state.leader in live:
        return with_new_epoch(state, state.leader, state.isr)
    candidates = [replica for replica in target if replica in live and replica in state.isr]
    return with_new_epoch(state, candidates[0], state.isr) if candidates else None


def elect_preferred(
    state: PartitionState, replicas: Replicas, live: Collection[int], *, only_in_sync: bool = True
) -> PartitionState | None:
    """Elect the preferred (first assigned) replica if it is alive and in the ISR; the ISR is unchanged."""
    preferred = replicas[0]
    electable = preferred in live and (preferred in state.isr or not only_in_sync)
    if state.leader == preferred or not electable:
        return None
    return with_new_epoch(state, preferred, tuple(sorted({*state.isr, preferred})))


def elect_for_shutdown(
    state: PartitionState, replicas: Replicas, live: Collection[int], shutting_down: Collection[int]
) -> PartitionState | None:
    """Remove the brokers in controlled shutdown from the ISR, and elect another live member if one of them leads.

    None if no other ISR member is alive, or if the ISR would not change.
    """
    isr = tuple(replica for replica in state.isr if replica in live and replica not in shutting_down)
    if not isr or isr == state.isr:
        return None
    leader = state.leader if state.leader in isr else next(replica for replica in replicas if replica in isr)
    return with_new_epoch(state, leader, isr)


def shrink(state: PartitionState, removed: Collection[int]) -> PartitionState | None:
    """Remove members from the ISR; None if the ISR is unchanged or would become empty."""
    isr = tuple(replica for replica in state.isr if replica not in removed)
    return with_new_epoch(state, state.leader, isr) if isr and isr != state.isr else None


def with_new_epoch(state: PartitionState, leader: int, isr: Replicas) -> PartitionState:
    """Return the state with this leader and ISR; every decision of the controller starts a new leader epoch."""
    return replace(state, leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1)


# --------------------------------------------------------------------------------------------------
# Eligible leader replicas (ELR): replicas outside the ISR that have all committed records (KIP-966).
#
# While the ISR is smaller than min.insync.replicas the high watermark does not advance, so a replica that leaves the
# ISR then has every committed record. The ELR is maintained only if the controller writes every ISR
# (`isr_update = alter_partition`).


def next_elr(
    before: PartitionState, isr: Collection[int], unclean: Collection[int], min_isr: int, guards: Guards
) -> tuple[int, ...]:
    """Return the ELR for the new `isr`; `unclean` are brokers that may have lost the end of their logs."""
    if not guards.keep_eligible:
        return ()
    if len(isr) >= min_isr:
        staying = () if guards.empty_eligible_at_min_isr else before.elr
    else:
        staying = (*before.elr, *before.isr)
    lost = unclean if guards.unclean_leaves_eligible else set(unclean) - set(before.elr)
    return tuple(sorted({replica for replica in staying if replica not in isr and replica not in lost}))


def trusted_isr(state: PartitionState, unclean: Collection[int]) -> tuple[int, ...]:
    """Return the ISR without the `unclean` brokers; empty if an eligible leader replica should lead instead.

    If every member of ISR and ELR is unclean, all stay: no other replica is known to have all committed records.
    """
    trusted = tuple(replica for replica in state.isr if replica not in unclean)
    if trusted or not set(unclean).issuperset(state.elr):
        return trusted
    return state.isr or state.elr
