"""What the controller is asked: ControlledShutdown (7), ElectLeaders (43), AlterPartitionReassignments (45),
ListPartitionReassignments (46), AlterPartition (56). A broker that is not the controller refuses."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from reference.controller.alter_partition import judge
from reference.controller.cluster import Key, StoreLostError
from reference.controller.controller import Controller
from reference.controller.election import elect_for_shutdown, elect_offline
from reference.controller.office import OfficeOverError
from reference.controller.reassignment import write_wish
from reference.controller.term import Term
from reference.events import Request
from reference.replication.states import NO_LEADER, PartitionState, state_path
from reference.store_messages import SetData
from reference.wire.errors import ErrorCode
from reference.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from reference.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from reference.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from reference.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from reference.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

PREFERRED: Final = 0
REFUSED: Final = (OfficeOverError, StoreLostError)


def _by_topic(keys: Iterable[Key]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(keys):
        topics.setdefault(topic, []).append(partition)
    return topics


class ControllerHandlers:
    def __init__(self, controller: Controller, name_of: Callable[[bytes], str | None]) -> None:
        self._controller, self._name_of = controller, name_of

    def _term(self) -> Term:
        """OfficeOverError unless this broker is the controller."""
        term = self._controller.term
        if term is None or not self._controller.active:
            raise OfficeOverError
        return term

    # -- controlled shutdown -----------------------------------------------------------------------

    async def controlled_shutdown(self, request: Request) -> ControlledShutdownResponse:
        """Move its leaders away and take it out of the ISRs; it may stop when none remains (KAFKA-340)."""
        body: ControlledShutdownRequest = request.body
        try:
            term = self._term()
            known = term.office.cluster.brokers.get(body.broker_id)
            if known is None:
                return ControlledShutdownResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE)
            if 0 <= body.broker_epoch < known.epoch:
                return ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
            remaining = await self._shut_down(term, body.broker_id)
        except REFUSED:
            return ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)
        return ControlledShutdownResponse(
            remaining_partitions=tuple(
                RemainingPartition(topic_name=topic, partition_index=partition) for topic, partition in remaining
            )
        )

    async def _shut_down(self, term: Term, broker_id: int) -> list[Key]:
        office, cluster = term.office, term.office.cluster
        cluster.leaving.add(broker_id)  # from now on nobody tells it to follow, or takes it into an ISR
        hosted = [key for key in cluster.hosted_by(broker_id) if key[0] not in cluster.deleting]

        def decide(key: Key, state: PartitionState) -> PartitionState | None:
            return elect_for_shutdown(state, cluster.replicas(key), cluster.live(key), cluster.leaving)

        await office.change(hosted, decide)
        followed = [key for key in hosted if cluster.states[key].leader != broker_id]
        if followed:  # it need not fetch any more
            office.send_stop(broker_id, followed, delete=False)
        return [key for key in hosted if cluster.states[key].leader == broker_id and len(cluster.replicas(key)) > 1]

    # -- elections ---------------------------------------------------------------------------------

    async def elect_leaders(self, request: Request) -> ElectLeadersResponse:
        body: ElectLeadersRequest = request.body
        everywhere = body.topic_partitions is None
        try:
            term = self._term()
            states = term.office.cluster.states
            asked = list(states)
            if body.topic_partitions is not None:
                asked = [(each.topic, number) for each in body.topic_partitions for number in each.partitions]
            known = [key for key in asked if key in states]
            if body.election_type == PREFERRED:
                changed = await term.elections.elect(known)
            else:
                changed = await term.office.change(known, lambda key, state: self._unclean(term, key, state))
            results = {key: self._outcome(term, key, changed, body.election_type) for key in asked}
        except REFUSED:
            return ElectLeadersResponse(error_code=ErrorCode.NOT_CONTROLLER)
        told = {
            key: code for key, code in results.items() if not (everywhere and code is ErrorCode.ELECTION_NOT_NEEDED)
        }
        return ElectLeadersResponse(
            replica_election_results=tuple(
                ReplicaElectionResult(
                    topic=topic,
                    partition_result=tuple(
                        PartitionResult(partition_id=number, error_code=told[topic, number], error_message=None)
                        for number in numbers
                    ),
                )
                for topic, numbers in _by_topic(told).items()
            )
        )

    def _unclean(self, term: Term, key: Key, state: PartitionState) -> PartitionState | None:
        """Only where nobody leads: whoever lives, in sync or not (KIP-460)."""
        cluster = term.office.cluster
        if state.leader != NO_LEADER and state.leader in cluster.live(key):
            return None
        return elect_offline(state, cluster.replicas(key), cluster.live(key), unclean=True)

    def _outcome(self, term: Term, key: Key, changed: list[Key], election_type: int) -> ErrorCode:
        cluster = term.office.cluster
        if key not in cluster.states:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        leader, preferred = cluster.states[key].leader, cluster.replicas(key)[0]
        if key in changed and leader != NO_LEADER:
            return ErrorCode.NONE
        if election_type == PREFERRED:
            return ErrorCode.ELECTION_NOT_NEEDED if leader == preferred else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        return ErrorCode.ELECTION_NOT_NEEDED if leader != NO_LEADER else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE

    # -- reassignment ------------------------------------------------------------------------------

    async def alter_reassignments(self, request: Request) -> AlterPartitionReassignmentsResponse:
        body: AlterPartitionReassignmentsRequest = request.body
        may_resize = body.allow_replication_factor_change
        try:
            term = self._term()
            responses = []
            for topic in body.topics:
                parts = [await self._reassign(term, topic.name, asked, may_resize) for asked in topic.partitions]
                responses.append(ReassignableTopicResponse(name=topic.name, partitions=tuple(parts)))
        except REFUSED:
            return AlterPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message=None)
        return AlterPartitionReassignmentsResponse(error_message=None, responses=tuple(responses))

    async def _reassign(
        self, term: Term, topic: str, asked: ReassignablePartition, may_resize: bool
    ) -> ReassignablePartitionResponse:
        key = (topic, asked.partition_index)
        error, message = self._refusal(term, key, asked.replicas, may_resize=may_resize)
        if error is ErrorCode.NONE:
            target = asked.replicas
            if target is None:  # back to where they came from
                adding = term.office.cluster.topics[topic].adding.get(key[1], ())
                running = term.reassignments.running[key]
                target = tuple(replica for replica in running.both if replica not in adding)
            await write_wish(term.office, key, target)
        return ReassignablePartitionResponse(partition_index=key[1], error_code=error, error_message=message)

    def _refusal(
        self, term: Term, key: Key, replicas: tuple[int, ...] | None, *, may_resize: bool
    ) -> tuple[ErrorCode, str | None]:
        cluster = term.office.cluster
        if key not in cluster.states or key[0] in cluster.deleting:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        if replicas is None:
            moving = key in term.reassignments.running
            return (ErrorCode.NONE if moving else ErrorCode.NO_REASSIGNMENT_IN_PROGRESS), None
        if not replicas or len(set(replicas)) != len(replicas):
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"replicas must be different brokers, not {list(replicas)}"
        unknown = sorted(set(replicas) - set(cluster.brokers))
        if unknown:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"brokers {unknown} are not alive"
        if not may_resize and len(replicas) != len(cluster.replicas(key)):
            return ErrorCode.INVALID_REPLICATION_FACTOR, "the number of replicas must not change"
        return ErrorCode.NONE, None

    async def list_reassignments(self, request: Request) -> ListPartitionReassignmentsResponse:
        body: ListPartitionReassignmentsRequest = request.body
        try:
            running = self._term().reassignments.running
        except REFUSED:
            return ListPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message=None)
        wanted = None
        if body.topics is not None:
            wanted = {(topic.name, number) for topic in body.topics for number in topic.partition_indexes}
        shown = {key: each for key, each in running.items() if wanted is None or key in wanted}
        return ListPartitionReassignmentsResponse(
            error_message=None,
            topics=tuple(
                OngoingTopicReassignment(
                    name=topic,
                    partitions=tuple(
                        OngoingPartitionReassignment(
                            partition_index=number,
                            replicas=shown[topic, number].both,
                            adding_replicas=shown[topic, number].adding,
                            removing_replicas=shown[topic, number].leaving,
                        )
                        for number in numbers
                    ),
                )
                for topic, numbers in _by_topic(shown).items()
            ),
        )

    # -- AlterPartition ------------------------------------------------------------------------------

    async def alter_partition(self, request: Request) -> AlterPartitionResponse:
        """A leader's proposals for the ISR: each taken or refused alone (KIP-497)."""
        body: AlterPartitionRequest = request.body
        try:
            term = self._term()
            asker = term.office.cluster.brokers.get(body.broker_id)
            if asker is None or body.broker_epoch != asker.epoch:
                return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
            topics = []
            for topic in body.topics:
                name = topic.topic_name or self._name_of(topic.topic_id)
                parts = [
                    await self._alter(term, (name or "", each.partition_index), body.broker_id, each)
                    for each in topic.partitions
                ]
                topics.append(
                    AlterPartitionResponseTopicData(
                        topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=tuple(parts)
                    )
                )
        except REFUSED:
            return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
        return AlterPartitionResponse(topics=tuple(topics))

    async def _alter(
        self, term: Term, key: Key, leader: int, asked: AlterPartitionRequestPartitionData
    ) -> AlterPartitionResponsePartitionData:
        office = term.office
        error, proposed = judge(office.cluster, office.context.guards, key, leader, asked)
        if proposed is not None:
            elr = office.elr(key, office.cluster.states[key], proposed.isr)
            proposed = replace(proposed, elr=elr, controller_epoch=office.epoch)
            label = proposed.label(f"{key[0]}-{key[1]}", "LeaderChangeIsr", leader)
            version = office.cluster.states[key].partition_epoch
            reply = await office.write(SetData(state_path(*key), proposed.to_bytes(), version, label))
            stat = reply.stats[-1] if reply.stats else None
            if stat is None:  # somebody wrote meanwhile: the leader hears of that
                error = ErrorCode.INVALID_UPDATE_VERSION
            else:
                proposed = replace(proposed, partition_epoch=stat.version)
                office.learn(key, proposed)
                office.send_metadata([key], office.cluster.brokers)
        if error is not ErrorCode.NONE:
            return AlterPartitionResponsePartitionData(partition_index=key[1], error_code=error)
        state = proposed or office.cluster.states[key]
        return AlterPartitionResponsePartitionData(
            partition_index=key[1],
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=state.partition_epoch,
        )
