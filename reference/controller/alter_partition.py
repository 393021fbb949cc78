"""Validation of the ISR changes that leaders propose with AlterPartition (KIP-497, KIP-841, KIP-903)."""

from collections.abc import Mapping
from dataclasses import replace

from highwater.reference.controller.cluster import Cluster, Key
from highwater.reference.guards import Guards
from highwater.reference.replication.states import PartitionState
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.controller import AlterPartitionRequestPartitionData

UNKNOWN_EPOCH = -1
Verdict = tuple[ErrorCode, PartitionState | None]


def validate_proposal(
    cluster: Cluster, guards: Guards, key: Key, leader: int, proposal: AlterPartitionRequestPartitionData
) -> Verdict:
    """Return an error code, and the state to write if the proposal is accepted and changes the ISR.

    `leader` is the broker that sent the request. Apache Kafka: ReplicationControlManager.alterPartition.
    """
    state = cluster.states.get(key)
    if state is None or key[0] in cluster.deleting:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    epochs = {replica.broker_id: replica.broker_epoch for replica in proposal.new_isr_with_epochs}
    isr = tuple(sorted(epochs or proposal.new_isr))
    error = _check_epochs(state, guards, leader, proposal)
    if error is not ErrorCode.NONE:
        # A retry of a proposal that was accepted, whose response was lost, succeeds (KIP-497).
        same = (state.leader, state.leader_epoch, state.isr) == (leader, proposal.leader_epoch, isr)
        return (ErrorCode.NONE, None) if same else (error, None)
    if not isr or leader not in isr or not set(isr) <= set(cluster.replicas(key)):
        return ErrorCode.INVALID_REQUEST, None
    joining = {member: epochs.get(member, UNKNOWN_EPOCH) for member in isr if member not in state.isr}
    if not _are_eligible(cluster, guards, joining):
        return ErrorCode.INELIGIBLE_REPLICA, None
    return ErrorCode.NONE, None if isr == state.isr else replace(state, isr=isr)


def _check_epochs(
    state: PartitionState, guards: Guards, leader: int, proposal: AlterPartitionRequestPartitionData
) -> ErrorCode:
    """Compare leader and partition epochs; return NOT_CONTROLLER if this controller is the stale one (KAFKA-14154)."""
    if proposal.leader_epoch > state.leader_epoch:
        return ErrorCode.NOT_CONTROLLER if guards.defer_to_newer_leader else ErrorCode.FENCED_LEADER_EPOCH
    if proposal.leader_epoch < state.leader_epoch and guards.fence_old_leader:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leader != state.leader and guards.fence_old_leader:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch > state.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if proposal.partition_epoch < state.partition_epoch and guards.isr_cas:
        return ErrorCode.INVALID_UPDATE_VERSION
    return ErrorCode.NONE


def _are_eligible(cluster: Cluster, guards: Guards, joining: Mapping[int, int]) -> bool:
    """Return whether every joining replica is alive, with the broker epoch that the leader saw (-1: not checked)."""
    for member, epoch in joining.items():
        known = cluster.brokers.get(member)
        if known is None:
            if guards.refuse_fenced:
                return False
        elif epoch not in {UNKNOWN_EPOCH, known.epoch} and guards.refuse_former_life:
            return False
    return True
