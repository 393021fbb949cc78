"""Commit a leader's ISR change: by a conditional write to ZooKeeper (until 2.6) or by AlterPartition to the controller.

The answer may be lost in both cases. Until the leader knows the outcome it must use the maximal ISR: the union of the
committed and the proposed one (KIP-497).
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from highwater.reference.context import Context
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.peers import Peers
from highwater.reference.replication.states import PartitionState, state_path
from highwater.reference.store.client import StoreClient
from highwater.reference.store.messages import ANY_VERSION, SetData
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.controller import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
)

ALTER_PARTITION_VERSION = 1  # topics by name
Replicas = tuple[int, ...]


class Outcome(StrEnum):
    ACCEPTED = "accepted"
    REJECTED = "rejected"  # final: the proposal changed nothing and will not be applied later
    CONFLICT = "conflict"  # the partition has a newer state, which LeaderAndIsr will deliver
    UNKNOWN = "unknown"  # applied or not: propose again


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a proposal; `isr` and `partition_epoch` are the committed state where it is known."""

    outcome: Outcome
    isr: Replicas = ()
    partition_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Proposal:
    """A leader's request to change the ISR to `isr`; `state` is the last state that the leader knows."""

    topic: str
    partition: int
    state: PartitionState
    isr: Replicas


class IsrChanges(Protocol):
    async def propose(self, proposal: Proposal) -> Answer: ...


class ZkIsrManager:
    """Write the partition's state node, on condition that its version is the one the leader knows (KAFKA-2729)."""

    def __init__(self, context: Context, store: StoreClient) -> None:
        self._context, self._store = context, store

    async def propose(self, proposal: Proposal) -> Answer:
        known = proposal.state
        state = replace(known, isr=proposal.isr, elr=())
        expected = known.partition_epoch if self._context.guards.isr_cas else ANY_VERSION
        label = state.label(f"{proposal.topic}-{proposal.partition}", "LeaderChangeIsr", self._context.broker_id)
        path = state_path(proposal.topic, proposal.partition)
        reply = await self._store.call(SetData(path, state.to_bytes(), expected, label))
        if not reply.error and reply.stat is not None:
            return Answer(Outcome.ACCEPTED, proposal.isr, reply.stat.version)
        if reply.error != "BadVersion":
            return Answer(Outcome.UNKNOWN)  # safe to repeat: the version check lets only one of the writes succeed
        found = await self._store.get(path)
        if found.error or found.stat is None:
            return Answer(Outcome.UNKNOWN)
        current = PartitionState.from_bytes(found.data, found.stat.version)
        if current.leader_epoch != known.leader_epoch:
            return Answer(Outcome.CONFLICT)
        outcome = Outcome.ACCEPTED if current.isr == proposal.isr else Outcome.REJECTED
        return Answer(outcome, current.isr, current.partition_epoch)


OUTCOMES = {
    ErrorCode.NONE: Outcome.ACCEPTED,
    ErrorCode.FENCED_LEADER_EPOCH: Outcome.CONFLICT,
    ErrorCode.INVALID_UPDATE_VERSION: Outcome.CONFLICT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Outcome.CONFLICT,
    ErrorCode.INVALID_REQUEST: Outcome.CONFLICT,
    ErrorCode.INELIGIBLE_REPLICA: Outcome.REJECTED,
}


class AlterPartitionManager:
    """Send AlterPartition to the controller (KIP-497). Errors outside `OUTCOMES` are retried."""

    def __init__(self, context: Context, peers: Peers, cache: MetadataCache) -> None:
        self._context, self._peers, self._cache = context, peers, cache

    async def propose(self, proposal: Proposal) -> Answer:
        known = proposal.state
        requested = AlterPartitionRequestPartitionData(
            partition_index=proposal.partition,
            leader_epoch=known.leader_epoch,
            new_isr=proposal.isr,
            partition_epoch=known.partition_epoch,
        )
        request = AlterPartitionRequest(
            broker_id=self._context.broker_id,
            broker_epoch=self._context.broker_epoch,
            topics=(AlterPartitionRequestTopicData(topic_name=proposal.topic, partitions=(requested,)),),
        )
        reply = await self._peers.call(self._cache.controller_id, request, ALTER_PARTITION_VERSION)
        if reply is None or reply.error_code != ErrorCode.NONE:
            return Answer(Outcome.UNKNOWN)
        found = reply.topics[0].partitions[0]
        outcome = OUTCOMES.get(ErrorCode(found.error_code), Outcome.UNKNOWN)
        if outcome is Outcome.REJECTED:
            return Answer(outcome, known.isr, known.partition_epoch)
        return Answer(outcome, tuple(found.isr), found.partition_epoch)
