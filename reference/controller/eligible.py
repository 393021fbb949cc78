"""Eligible leader replicas: who left an ISR that was too small, and has everything committed (KIP-966).

While the ISR is smaller than min.insync.replicas the high watermark stands still, so whoever leaves it then lacks
nothing. Kept only where the controller writes every ISR (`isr_update = alter_partition`).
"""

from collections.abc import Collection

from reference.guards import Guards
from reference.replication.states import PartitionState


def next_elr(
    before: PartitionState, isr: Collection[int], unclean: Collection[int], min_isr: int, guards: Guards
) -> tuple[int, ...]:
    """The eligible replicas once `isr` is the ISR; `unclean` are those that may have lost their tail."""
    if not guards.keep_eligible:
        return ()
    if len(isr) >= min_isr:
        staying = () if guards.empty_eligible_at_min_isr else before.elr
    else:
        staying = (*before.elr, *before.isr)
    lost = unclean if guards.unclean_leaves_eligible else set(unclean) - set(before.elr)
    return tuple(sorted({replica for replica in staying if replica not in isr and replica not in lost}))


def trusted_isr(state: PartitionState, unclean: Collection[int]) -> tuple[int, ...]:
    """The ISR without those that may have lost their tail; empty where an eligible replica is to lead instead.

    When nobody is above doubt all stay: nobody else is known to have everything.
    """
    trusted = tuple(replica for replica in state.isr if replica not in unclean)
    if trusted or not set(unclean).issuperset(state.elr):
        return trusted
    return state.isr or state.elr
