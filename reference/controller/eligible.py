"""Eligible leader replicas (ELR): replicas outside the ISR that have all committed records (KIP-966).

While the ISR is smaller than min.insync.replicas the high watermark does not advance, so a replica that leaves the ISR
then has every committed record. The ELR is maintained only if the controller writes every ISR
(`isr_update = alter_partition`).
"""

from collections.abc import Collection

from reference.guards import Guards
from reference.replication.states import PartitionState


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
