"""Serve ConsumerGroupHeartbeat (key 68), the whole membership protocol of a consumer group (KIP-848).

Theory of operation
-------------------
A heartbeat runs to its end before the next event. It

1. finds the member by id, or by instance id, and compares its epoch: the current one is accepted; the previous one only
   with partitions that the member has, as the reply with the newer one may be lost; 0 always, as a member that was
   fenced joins with it again (KAFKA-19233);
2. stores a new or changed member, and increments the group epoch if its subscription, or the metadata of the topics, is
   another one;
3. computes the target assignment if the group epoch is ahead of the assignment epoch;
4. takes the member one step nearer to its target;
5. writes the records of all that in one batch, and responds when they are committed. Until then other heartbeats see
   the new state; they write behind it, so that they cannot be committed without it.

A session that expires, or a member that does not revoke in its rebalance timeout, is removed as if it had left. Its
epoch -1 removes a member, -2 keeps the assignment of a static member for its next life.

Apache Kafka: GroupMetadataManager.consumerGroupHeartbeat. One difference: it searches the topics of a new pattern in
the background, and the topics of all patterns every ten seconds; here both happen in the heartbeat that needs them.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256

from highwater.reference.context import Context
from highwater.reference.effects import Request
from highwater.reference.groups.consumer.changes import (
    by_topic,
    current_change,
    member_change,
    member_tombstones,
    target_change,
)
from highwater.reference.groups.consumer.checks import check_epoch, check_request
from highwater.reference.groups.consumer.conversion import changes_of_classic
from highwater.reference.groups.consumer.group import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    Part,
)
from highwater.reference.groups.consumer.reconciliation import leave_for_a_while
from highwater.reference.groups.consumer.records import Change
from highwater.reference.groups.consumer.steps import GroupSteps, Step
from highwater.reference.groups.group import Group
from highwater.reference.groups.records import GroupMetadataKey
from highwater.reference.groups.store import GroupStore
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.refusals import RefusedRequestError
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)


class ConsumerGroupCoordinator:
    """The coordinator of groups with the consumer protocol."""

    def __init__(self, context: Context, store: GroupStore, cache: MetadataCache, steps: GroupSteps) -> None:
        self._context, self._store, self._cache, self._steps = context, store, cache, steps
        self._member_ids = 0

    async def heartbeat(self, request: Request) -> ConsumerGroupHeartbeatResponse:
        """Respond with the member's epoch, and its assignment if it has changed, when both are committed."""
        body: ConsumerGroupHeartbeatRequest = request.body
        try:
            check_request(body, request.api_version, self._context.config.group_consumer_assignors)
            if (error := self._store.check(body.group_id)) is not ErrorCode.NONE:
                raise RefusedRequestError(error)
            group, response = self._leave(body) if body.member_epoch < 0 else self._heartbeat(request)
        except RefusedRequestError as refused:
            return ConsumerGroupHeartbeatResponse(error_code=refused.error, error_message=refused.message)
        error = await self._store.committed(group)
        return response if error is ErrorCode.NONE else ConsumerGroupHeartbeatResponse(error_code=error)

    def _heartbeat(self, request: Request) -> tuple[ConsumerGroup, ConsumerGroupHeartbeatResponse]:
        body: ConsumerGroupHeartbeatRequest = request.body
        step = self._begin(body.group_id, joins=body.member_epoch == JOIN_EPOCH)
        group = step.group
        reported = None if body.topic_partitions is None else _parts(body.topic_partitions)
        member = self._find_member(step, body, reported)
        updated = self._steps.advance(step, member, _updated(member, request), reported)
        is_shown = _is_full(body) or updated.assigned.keys() != member.assigned.keys()
        return group, ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=updated.epoch,
            heartbeat_interval_ms=self._context.config.group_consumer_heartbeat_interval_ms,
            assignment=_assignment(updated.assigned) if is_shown else None,
        )

    # -- groups ------------------------------------------------------------------------------------

    def _find(self, group_id: str) -> ConsumerGroup:
        """Return the consumer group; raises GROUP_ID_NOT_FOUND."""
        found = self._store.groups.get(group_id)
        if found is None or found.consumer is None:
            raise RefusedRequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        return found.consumer

    def _begin(self, group_id: str, *, joins: bool) -> Step:
        """Begin a step of the group; a join creates it, or makes it of a classic group (convertToConsumerGroup)."""
        found = self._store.groups.get(group_id)
        if not joins or (found is not None and found.consumer is not None):
            return Step(self._find(group_id))
        if found is not None and found.members and not self._may_upgrade(found):
            return Step(self._find(group_id))
        step = Step(ConsumerGroup(group_id))
        if found is not None:
            step.changes.append(Change(GroupMetadataKey(group=group_id), None))
            step.add(*changes_of_classic(found, self._cache))
        return step

    def _may_upgrade(self, group: Group) -> bool:
        config = self._context.config
        is_allowed = config.group_consumer_migration_policy in {"upgrade", "bidirectional"}
        return is_allowed and group.protocol_type == "consumer" and len(group.members) <= config.group_consumer_max_size

    # -- members -----------------------------------------------------------------------------------

    def _find_member(
        self, step: Step, body: ConsumerGroupHeartbeatRequest, reported: frozenset[Part] | None
    ) -> ConsumerMember:
        """Return the member, or a new one if it joins (getOrMaybeSubscribe...ConsumerGroupMember)."""
        group, joins = step.group, body.member_epoch == JOIN_EPOCH
        if len(group.members) >= self._context.config.group_consumer_max_size and body.member_id not in group.members:
            raise RefusedRequestError(ErrorCode.GROUP_MAX_SIZE_REACHED, "The consumer group is full.")
        member = group.members.get(body.member_id)
        if body.instance_id is not None:
            static = group.static_member(body.instance_id)
            if joins and static is not None:
                if static.epoch != LEAVE_STATIC_EPOCH and static.classic is None:
                    message = f"The instance id {static.instance_id} is used by member {static.member_id}."
                    raise RefusedRequestError(ErrorCode.UNRELEASED_INSTANCE_ID, message)
                return self.replace_member(step, static, body.member_id)
            member = member if joins else known_static(static, body.instance_id, body.member_id)
        if member is None and not joins:
            raise unknown_member(f"Member {body.member_id} is not a member of group {body.group_id}.")
        if member is None:
            return ConsumerMember(body.member_id or self.make_member_id())
        check_epoch(member, body.member_epoch, reported)
        return member

    def make_member_id(self) -> str:
        """Return a unique id for a client that chooses none (version 0), without random numbers."""
        self._member_ids += 1
        seed = f"consumer:{self._context.broker_id}:{self._context.broker_epoch}:{self._member_ids}"
        return urlsafe_b64encode(sha256(seed.encode()).digest()[:16]).decode().rstrip("=")

    def replace_member(self, step: Step, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Give the assignment of a static member to its next life, with another member id."""
        group, target = step.group, step.group.target.get(old.member_id, frozenset())
        member = replace(old, member_id=member_id, epoch=0, previous_epoch=0)
        step.add(*member_tombstones(group.group_id, old.member_id))
        step.add(member_change(group.group_id, member), target_change(group.group_id, member_id, target))
        step.add(current_change(group.group_id, member))
        return member

    def _leave(self, body: ConsumerGroupHeartbeatRequest) -> tuple[ConsumerGroup, ConsumerGroupHeartbeatResponse]:
        """Remove the member, or let a static member leave for a while (consumerGroupLeave)."""
        group = self._find(body.group_id)
        member = group.members.get(body.member_id)
        if body.instance_id is not None:
            member = known_static(group.static_member(body.instance_id), body.instance_id, body.member_id)
        if member is None:
            raise unknown_member(f"Member {body.member_id} is not a member of group {body.group_id}.")
        step = Step(group)
        if body.member_epoch == LEAVE_STATIC_EPOCH:
            step.add(current_change(group.group_id, leave_for_a_while(member, LEAVE_STATIC_EPOCH)))
            self._steps.write(step)
            self._steps.end_rebalance_timeout(group, member.member_id)
        else:
            self._steps.remove(step, [member])
        return group, ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=body.member_epoch)


def _updated(member: ConsumerMember, request: Request) -> ConsumerMember:
    """Return the member with what the heartbeat says; null and -1 mean unchanged."""
    body: ConsumerGroupHeartbeatRequest = request.body
    names, pattern = body.subscribed_topic_names, body.subscribed_topic_regex
    timeout_ms = member.rebalance_timeout_ms if body.rebalance_timeout_ms == -1 else body.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if body.instance_id is None else body.instance_id,
        rack_id=member.rack_id if body.rack_id is None else body.rack_id,
        rebalance_timeout_ms=timeout_ms,
        assignor=member.assignor if body.server_assignor is None else body.server_assignor,
        topics=member.topics if names is None else tuple(sorted(set(names))),
        pattern=member.pattern if pattern is None else pattern,
        client_id=request.client_id or "",
        client_host=f"/{request.client_host}",
        classic=None,
    )


def known_static(member: ConsumerMember | None, instance_id: str, member_id: str) -> ConsumerMember:
    """Return the member with this instance id; raises RefusedRequestError if there is none, or if it has another id."""
    if member is None:
        raise unknown_member(f"The instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        message = f"The instance id {instance_id} was taken over by member {member.member_id}."
        raise RefusedRequestError(ErrorCode.FENCED_INSTANCE_ID, message)
    return member


def unknown_member(message: str) -> RefusedRequestError:
    return RefusedRequestError(ErrorCode.UNKNOWN_MEMBER_ID, message)


def _is_full(body: ConsumerGroupHeartbeatRequest) -> bool:
    """Return whether the request has all fields: a member sends it when it joins, and to get its assignment again."""
    subscribes = body.subscribed_topic_names is not None or body.subscribed_topic_regex is not None
    says_all = body.rebalance_timeout_ms != -1 and subscribes and body.topic_partitions is not None
    return body.member_epoch == JOIN_EPOCH or says_all


def _parts(topics: Iterable[HeartbeatTopicPartitions]) -> frozenset[Part]:
    return frozenset((topic.topic_id, number) for topic in topics for number in topic.partitions)


def _assignment(parts: Iterable[Part]) -> HeartbeatAssignment:
    return HeartbeatAssignment(
        topic_partitions=tuple(
            HeartbeatTopicPartitions(topic_id=topic, partitions=tuple(numbers))
            for topic, numbers in by_topic(parts).items()
        )
    )
