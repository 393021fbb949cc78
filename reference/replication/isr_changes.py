"""How a leader gets a new ISR accepted: by a conditional write to the store (until 2.6), or by asking the controller.

Either way the answer may be lost, and then nobody knows; the maximal ISR counts until somebody does (KIP-497).
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from reference.context import Context
from reference.metadata_cache import MetadataCache
from reference.peers import Peers
from reference.replication.states import PartitionState, state_path
from reference.store_client import StoreClient
from reference.store_messages import ANY_VERSION, SetData
from reference.wire.errors import ErrorCode
from reference.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
)

ALTER_PARTITION_VERSION = 1  # topics by name
Replicas = tuple[int, ...]


class Outcome(StrEnum):
    TAKEN = "taken"
    REFUSED = "refused"  # for good: it changed nothing, and will not
    CONFLICT = "conflict"  # another state holds, and LeaderAndIsr will tell
    UNKNOWN = "unknown"  # perhaps taken, perhaps not: ask again


@dataclass(frozen=True, slots=True)
class Answer:
    """`isr` and `partition_epoch` are what holds now, where that is known."""

    outcome: Outcome
    isr: Replicas = ()
    partition_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a leader wants `isr` to be; the epochs are those of the state that it knows."""

    topic: str
    partition: int
    state: PartitionState
    isr: Replicas


class IsrChanges(Protocol):
    async def propose(self, proposal: Proposal) -> Answer: ...


class ByZooKeeper:
    """The leader writes the partition's node itself, if its version is still the one that it knows (KAFKA-2729)."""

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
            return Answer(Outcome.TAKEN, proposal.isr, reply.stat.version)
        if reply.error != "BadVersion":
            return Answer(Outcome.UNKNOWN)  # the same write again: the version lets one of the two through
        found = await self._store.get(path)
        if found.error or found.stat is None:
            return Answer(Outcome.UNKNOWN)
        current = PartitionState.from_bytes(found.data, found.stat.version)
        if current.leader_epoch != known.leader_epoch:
            return Answer(Outcome.CONFLICT)
        outcome = Outcome.TAKEN if current.isr == proposal.isr else Outcome.REFUSED
        return Answer(outcome, current.isr, current.partition_epoch)


OUTCOMES = {
    ErrorCode.NONE: Outcome.TAKEN,
    ErrorCode.FENCED_LEADER_EPOCH: Outcome.CONFLICT,
    ErrorCode.INVALID_UPDATE_VERSION: Outcome.CONFLICT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Outcome.CONFLICT,
    ErrorCode.INVALID_REQUEST: Outcome.CONFLICT,
    ErrorCode.INELIGIBLE_REPLICA: Outcome.REFUSED,
}


class ByAlterPartition:
    """The leader asks the controller (KIP-497). Any other error than those above means: ask again."""

    def __init__(self, context: Context, peers: Peers, cache: MetadataCache) -> None:
        self._context, self._peers, self._cache = context, peers, cache

    async def propose(self, proposal: Proposal) -> Answer:
        known = proposal.state
        asked = AlterPartitionRequestPartitionData(
            partition_index=proposal.partition,
            leader_epoch=known.leader_epoch,
            new_isr=proposal.isr,
            partition_epoch=known.partition_epoch,
        )
        request = AlterPartitionRequest(
            broker_id=self._context.broker_id,
            broker_epoch=self._context.broker_epoch,
            topics=(AlterPartitionRequestTopicData(topic_name=proposal.topic, partitions=(asked,)),),
        )
        reply = await self._peers.call(self._cache.controller_id, request, ALTER_PARTITION_VERSION)
        if reply is None or reply.error_code != ErrorCode.NONE:
            return Answer(Outcome.UNKNOWN)
        found = reply.topics[0].partitions[0]
        outcome = OUTCOMES.get(ErrorCode(found.error_code), Outcome.UNKNOWN)
        if outcome is Outcome.REFUSED:
            return Answer(outcome, known.isr, known.partition_epoch)
        return Answer(outcome, tuple(found.isr), found.partition_epoch)
