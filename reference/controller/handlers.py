"""Request handlers of the controller; any other broker answers NOT_CONTROLLER.

ControlledShutdown (7), ElectLeaders (43), AlterPartitionReassignments (45), ListPartitionReassignments (46),
AlterPartition (56).
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from highwater.reference.controller.alter_partition import validate_proposal
from highwater.reference.controller.cluster import Key, StoreLostError
from highwater.reference.controller.context import ControllerMovedError
from highwater.reference.controller.controller import Controller
from highwater.reference.controller.election import elect_for_shutdown, elect_offline
from highwater.reference.controller.epoch import Term
from highwater.reference.controller.reassignment import write_reassignments
from highwater.reference.effects import Request
from highwater.reference.refusals import shortened
from highwater.reference.replication.states import NO_LEADER, PartitionState, state_path
from highwater.reference.store.messages import SetData
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.controller import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from highwater.reference.wire.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    PartitionResult,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)

PREFERRED, UNCLEAN = 0, 1
ELECTION_TYPES: Final = (PREFERRED, UNCLEAN)
NOT_CONTROLLER_ERRORS: Final = (ControllerMovedError, StoreLostError)


def _refuse_election(request: Request, code: ErrorCode, message: str | None = None) -> ElectLeadersResponse:
    """Return an error for every requested partition, and from version 1 on for the whole request, too.

    As ElectLeadersRequest.getErrorResponse; version 0 has no error code of the whole.
    """
    body: ElectLeadersRequest = request.body
    return ElectLeadersResponse(
        error_code=code if request.api_version >= 1 else ErrorCode.NONE,
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=tuple(
                    PartitionResult(partition_id=number, error_code=code, error_message=message)
                    for number in topic.partitions
                ),
            )
            for topic in body.topic_partitions or ()
        ),
    )


def _by_topic(keys: Iterable[Key]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(keys):
        topics.setdefault(topic, []).append(partition)
    return topics


class ControllerHandlers:
    """`name_of` returns the name of a topic id, or None."""

    def __init__(self, controller: Controller, name_of: Callable[[bytes], str | None]) -> None:
        self._controller, self._name_of = controller, name_of

    def _term(self) -> Term:
        """Return the current term; raise ControllerMovedError unless this broker is the controller."""
        term = self._controller.term
        if term is None or not self._controller.active:
            raise ControllerMovedError
        return term

    # -- controlled shutdown -----------------------------------------------------------------------

    async def controlled_shutdown(self, request: Request) -> ControlledShutdownResponse:
        """Move leaders off a broker and remove it from ISRs; the response lists what it still leads (KAFKA-340)."""
        body: ControlledShutdownRequest = request.body
        try:
            term = self._term()
            known = term.controller_context.cluster.brokers.get(body.broker_id)
            if known is None:
                return ControlledShutdownResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE)
            if 0 <= body.broker_epoch < known.epoch:
                return ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
            remaining = await self._shut_down(term, body.broker_id)
        except NOT_CONTROLLER_ERRORS:
            return ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)
        return ControlledShutdownResponse(
            remaining_partitions=tuple(
                RemainingPartition(topic_name=topic, partition_index=partition) for topic, partition in remaining
            )
        )

    async def _shut_down(self, term: Term, broker_id: int) -> list[Key]:
        controller_context, cluster = term.controller_context, term.controller_context.cluster
        guards = controller_context.broker_context.guards
        # A member that has restarted may lack records, and must not stay behind as the only one in the ISR.
        await term.brokers.refresh()
        cluster.shutting_down.add(broker_id)  # from now on it receives no LeaderAndIsr
        hosted = [key for key in cluster.hosted_by(broker_id) if key[0] not in cluster.deleting]

        def decide(key: Key, state: PartitionState) -> PartitionState | None:
            trusted = cluster.live(key) - (cluster.unclean() if guards.unclean_restart_leaves_isr else set())
            return elect_for_shutdown(state, cluster.replicas(key), trusted, cluster.shutting_down)

        await controller_context.update_partitions(hosted, decide)
        hosted = [key for key in hosted if key in cluster.states]  # a topic may have been deleted meanwhile
        followed = [key for key in hosted if cluster.states[key].leader != broker_id]
        if followed:  # it no longer needs to fetch
            controller_context.send_stop_replica(broker_id, followed, delete=False)
        return [key for key in hosted if cluster.states[key].leader == broker_id and len(cluster.replicas(key)) > 1]

    # -- elections ---------------------------------------------------------------------------------

    async def elect_leaders(self, request: Request) -> ElectLeadersResponse:
        body: ElectLeadersRequest = request.body
        everywhere = body.topic_partitions is None
        if body.election_type not in ELECTION_TYPES and body.topic_partitions != ():
            return _refuse_election(request, ErrorCode.INVALID_REQUEST, f"Unknown election type {body.election_type}")
        try:
            term = self._term()
            states = term.controller_context.cluster.states
            requested = list(states)
            if body.topic_partitions is not None:
                requested = [(topic.topic, number) for topic in body.topic_partitions for number in topic.partitions]
            known = [key for key in requested if key in states]
            if body.election_type == PREFERRED:
                changed = await term.elections.elect(known)
            else:
                changed = await term.controller_context.update_partitions(
                    known, lambda key, state: self._elect_unclean(term, key, state)
                )
            results = {key: self._election_error(term, key, changed, body.election_type) for key in requested}
        except NOT_CONTROLLER_ERRORS:
            return _refuse_election(request, ErrorCode.NOT_CONTROLLER)
        reported = {
            key: code for key, code in results.items() if not (everywhere and code is ErrorCode.ELECTION_NOT_NEEDED)
        }
        return ElectLeadersResponse(
            replica_election_results=tuple(
                ReplicaElectionResult(
                    topic=topic,
                    partition_result=tuple(
                        PartitionResult(partition_id=number, error_code=reported[topic, number], error_message=None)
                        for number in numbers
                    ),
                )
                for topic, numbers in _by_topic(reported).items()
            )
        )

    def _elect_unclean(self, term: Term, key: Key, state: PartitionState) -> PartitionState | None:
        """Elect any live replica, in sync or not, for a partition without a live leader (KIP-460)."""
        cluster = term.controller_context.cluster
        if state.leader != NO_LEADER and state.leader in cluster.live(key):
            return None
        return elect_offline(state, cluster.replicas(key), cluster.live(key), unclean=True)

    def _election_error(self, term: Term, key: Key, changed: list[Key], election_type: int) -> ErrorCode:
        cluster = term.controller_context.cluster
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
            targets: dict[Key, tuple[int, ...] | None] = {}
            responses = []
            for topic in body.topics:
                parts = [
                    self._reassign(term, topic.name, requested, may_resize, targets) for requested in topic.partitions
                ]
                responses.append(ReassignableTopicResponse(name=topic.name, partitions=tuple(parts)))
            if targets:
                await write_reassignments(term.controller_context, targets)
        except NOT_CONTROLLER_ERRORS:
            return AlterPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message=None)
        return AlterPartitionReassignmentsResponse(error_message=None, responses=tuple(responses))

    def _reassign(
        self,
        term: Term,
        topic: str,
        requested: ReassignablePartition,
        may_resize: bool,
        targets: dict[Key, tuple[int, ...] | None],
    ) -> ReassignablePartitionResponse:
        """Check one partition, and add its new replicas to `targets`."""
        key = (topic, requested.partition_index)
        error, message = self._validate(term, key, requested.replicas, may_resize=may_resize)
        if error is ErrorCode.NONE:
            target = requested.replicas
            if target is None:  # cancel: back to the original replicas
                adding = term.controller_context.cluster.topics[topic].adding.get(key[1], ())
                running = term.reassignments.running[key]
                target = tuple(replica for replica in running.all_replicas if replica not in adding)
            targets[key] = target
        return ReassignablePartitionResponse(partition_index=key[1], error_code=error, error_message=message)

    def _validate(
        self, term: Term, key: Key, replicas: tuple[int, ...] | None, *, may_resize: bool
    ) -> tuple[ErrorCode, str | None]:
        cluster = term.controller_context.cluster
        if key not in cluster.states or key[0] in cluster.deleting:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        if replicas is None:
            moving = key in term.reassignments.running
            return (ErrorCode.NONE if moving else ErrorCode.NO_REASSIGNMENT_IN_PROGRESS), None
        if not replicas or len(set(replicas)) != len(replicas):
            return (
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                shortened(f"The replicas must be different brokers, not {list(replicas)}."),
            )
        unknown = sorted(set(replicas) - set(cluster.brokers))
        if unknown:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, shortened(f"The brokers {unknown} are not alive.")
        if not may_resize and len(replicas) != len(cluster.replicas(key)):
            return ErrorCode.INVALID_REPLICATION_FACTOR, "The number of replicas must not change."
        return ErrorCode.NONE, None

    async def list_reassignments(self, request: Request) -> ListPartitionReassignmentsResponse:
        body: ListPartitionReassignmentsRequest = request.body
        try:
            running = self._term().reassignments.running
        except NOT_CONTROLLER_ERRORS:
            return ListPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message=None)
        wanted = None
        if body.topics is not None:
            wanted = {(topic.name, number) for topic in body.topics for number in topic.partition_indexes}
        shown = {key: reassignment for key, reassignment in running.items() if wanted is None or key in wanted}
        return ListPartitionReassignmentsResponse(
            error_message=None,
            topics=tuple(
                OngoingTopicReassignment(
                    name=topic,
                    partitions=tuple(
                        OngoingPartitionReassignment(
                            partition_index=number,
                            replicas=shown[topic, number].all_replicas,
                            adding_replicas=shown[topic, number].adding,
                            removing_replicas=shown[topic, number].removing,
                        )
                        for number in numbers
                    ),
                )
                for topic, numbers in _by_topic(shown).items()
            ),
        )

    # -- AlterPartition ------------------------------------------------------------------------------

    async def alter_partition(self, request: Request) -> AlterPartitionResponse:
        """Accept or reject each ISR change that a leader proposes, independently of the others (KIP-497)."""
        body: AlterPartitionRequest = request.body
        try:
            term = self._term()
            registered = term.controller_context.cluster.brokers.get(body.broker_id)
            if registered is None or body.broker_epoch != registered.epoch:
                return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
            topics = []
            for topic in body.topics:
                name = topic.topic_name or self._name_of(topic.topic_id)
                parts = [
                    await self._alter(term, (name or "", proposal.partition_index), body.broker_id, proposal)
                    for proposal in topic.partitions
                ]
                topics.append(
                    AlterPartitionResponseTopicData(
                        topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=tuple(parts)
                    )
                )
        except NOT_CONTROLLER_ERRORS:
            return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
        return AlterPartitionResponse(topics=tuple(topics))

    async def _alter(
        self, term: Term, key: Key, leader: int, proposal: AlterPartitionRequestPartitionData
    ) -> AlterPartitionResponsePartitionData:
        controller_context = term.controller_context
        error, proposed = validate_proposal(
            controller_context.cluster, controller_context.broker_context.guards, key, leader, proposal
        )
        if proposed is not None:
            elr = controller_context.elr(key, controller_context.cluster.states[key], proposed.isr)
            proposed = replace(proposed, elr=elr, controller_epoch=controller_context.epoch)
            label = proposed.label(f"{key[0]}-{key[1]}", "LeaderChangeIsr", leader)
            version = controller_context.cluster.states[key].partition_epoch
            reply = await controller_context.write(SetData(state_path(*key), proposed.to_bytes(), version, label))
            stat = reply.stats[-1] if reply.stats else None
            if stat is None:
                # A concurrent write. If it was that of an earlier copy of this proposal, the proposal has succeeded: a
                # conflict would make the leader wait for a LeaderAndIsr that is never sent.
                error, changed = validate_proposal(
                    controller_context.cluster, controller_context.broker_context.guards, key, leader, proposal
                )
                if changed is not None:
                    error = ErrorCode.INVALID_UPDATE_VERSION
                proposed = None
            else:
                proposed = replace(proposed, partition_epoch=stat.version)
                controller_context.record_state(key, proposed)
                controller_context.send_update_metadata([key], controller_context.cluster.brokers)
        if error is not ErrorCode.NONE:
            return AlterPartitionResponsePartitionData(partition_index=key[1], error_code=error)
        state = proposed or controller_context.cluster.states[key]
        return AlterPartitionResponsePartitionData(
            partition_index=key[1],
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=state.partition_epoch,
        )
