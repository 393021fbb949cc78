"""Which of a leader's proposals for the ISR the controller takes (KIP-497, KIP-841, KIP-903)."""

from collections.abc import Mapping
from dataclasses import replace

from reference.controller.cluster import Cluster, Key
from reference.guards import Guards
from reference.replication.states import PartitionState
from reference.wire.errors import ErrorCode
from reference.wire.messages.alter_partition import AlterPartitionRequestPartitionData

UNKNOWN_EPOCH = -1
Verdict = tuple[ErrorCode, PartitionState | None]


def judge(
    cluster: Cluster, guards: Guards, key: Key, leader: int, asked: AlterPartitionRequestPartitionData
) -> Verdict:
    """An error code, and the state to be written if the proposal is taken and changes something."""
    state = cluster.states.get(key)
    if state is None or key[0] in cluster.deleting:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    epochs = {each.broker_id: each.broker_epoch for each in asked.new_isr_with_epochs}
    isr = tuple(sorted(epochs or asked.new_isr))
    error = _stale(state, guards, leader, asked)
    if error is not ErrorCode.NONE:
        # Asked again what was taken already, its answer lost: taken (KIP-497).
        same = (state.leader, state.leader_epoch, state.isr) == (leader, asked.leader_epoch, isr)
        return (ErrorCode.NONE, None) if same else (error, None)
    if not isr or leader not in isr or not set(isr) <= set(cluster.replicas(key)):
        return ErrorCode.INVALID_REQUEST, None
    joining = {member: epochs.get(member, UNKNOWN_EPOCH) for member in isr if member not in state.isr}
    if not _fit(cluster, guards, joining):
        return ErrorCode.INELIGIBLE_REPLICA, None
    return ErrorCode.NONE, None if isr == state.isr else replace(state, isr=isr)


def _stale(state: PartitionState, guards: Guards, leader: int, asked: AlterPartitionRequestPartitionData) -> ErrorCode:
    """A leader that is behind is fenced; a controller behind the leader says that it is none (KAFKA-14154)."""
    if asked.leader_epoch > state.leader_epoch:
        return ErrorCode.NOT_CONTROLLER if guards.defer_to_newer_leader else ErrorCode.FENCED_LEADER_EPOCH
    if asked.leader_epoch < state.leader_epoch and guards.fence_old_leader:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leader != state.leader and guards.fence_old_leader:
        return ErrorCode.INVALID_REQUEST
    if asked.partition_epoch > state.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if asked.partition_epoch < state.partition_epoch and guards.isr_cas:
        return ErrorCode.INVALID_UPDATE_VERSION
    return ErrorCode.NONE


def _fit(cluster: Cluster, guards: Guards, joining: Mapping[int, int]) -> bool:
    """Whoever joins is alive, and in the life in which the leader saw it; an epoch of -1 does not say."""
    for member, epoch in joining.items():
        known = cluster.brokers.get(member)
        if known is None:
            if guards.refuse_fenced:
                return False
        elif epoch not in {UNKNOWN_EPOCH, known.epoch} and guards.refuse_former_life:
            return False
    return True
