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
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from highwater.reference.context import Context
from highwater.reference.effects import Request
from highwater.reference.groups.consumer.assignors import ASSIGNORS, Subscriber
from highwater.reference.groups.consumer.changes import (
    apply,
    by_topic,
    current_change,
    group_change,
    member_change,
    member_tombstones,
    pattern_change,
    target_change,
    target_epoch_change,
)
from highwater.reference.groups.consumer.checks import check_epoch, check_request
from highwater.reference.groups.consumer.group import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Part,
    ResolvedPattern,
)
from highwater.reference.groups.consumer.reconciliation import Goal, leave_for_a_while, reconcile
from highwater.reference.groups.consumer.records import Change
from highwater.reference.groups.consumer.subscriptions import (
    compile_pattern,
    matching_topics,
    metadata_hash,
    topic_ids,
)
from highwater.reference.groups.group import Group, GroupState
from highwater.reference.groups.records import GroupMetadataKey
from highwater.reference.groups.store import GroupStore
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.refusals import RefusedRequestError
from highwater.reference.replication.purgatory import Purgatory
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)

RETRY_MS: Final = 500
"""The pause before a member is removed again if the records could not be written."""


@dataclass(slots=True)
class Step:
    """The changes of one request: each is applied at once, and all are written in one batch."""

    group: ConsumerGroup
    changes: list[Change] = field(default_factory=list)
    before: ConsumerGroup = field(init=False)

    def __post_init__(self) -> None:
        self.before = self.group.snapshot()

    def add(self, *changes: Change) -> None:
        for change in changes:
            apply(self.group, change)
        self.changes += changes


class ConsumerGroupCoordinator:
    """The coordinator of groups with the consumer protocol."""

    def __init__(self, context: Context, purgatory: Purgatory, store: GroupStore, cache: MetadataCache) -> None:
        self._context, self._purgatory, self._store, self._cache = context, purgatory, store, cache
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
        subscription_changed = self._update_member(step, member, _updated(member, request))
        self._update_epoch(step, subscription_changed=subscription_changed or group.epoch == 0)
        self._update_target(step)
        progressed = self._reconcile(step, member.member_id, reported)
        self._write(step)
        self._start_session(group, member.member_id)
        if progressed:
            self._start_rebalance_timeout(group, group.members[member.member_id])
        updated = group.members[member.member_id]
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
        """Begin a step of the group; a join creates the group, also in place of a classic group without members."""
        found = self._store.groups.get(group_id)
        is_free = found is None or (found.consumer is None and found.state is GroupState.EMPTY)
        if not joins or not is_free:
            return Step(self._find(group_id))
        step = Step(ConsumerGroup(group_id))
        if found is not None:
            step.changes.append(Change(GroupMetadataKey(group=group_id), None))
        return step

    def _write(self, step: Step) -> None:
        """Append the changes to the log; raises RefusedRequestError, without any change, if they cannot be."""
        group = step.group
        group.check_invariants()
        group.check_follows(step.before)
        if not step.changes:
            return
        error = self._store.append_changes(group, step.changes)
        if error is not ErrorCode.NONE:
            group.restore(step.before)
            raise RefusedRequestError(error)
        if self._store.coordinated.error(self._store.partition_for(group.group_id)) is ErrorCode.NONE:
            self._install(group)

    def _install(self, group: ConsumerGroup) -> None:
        holder = self._store.groups.get(group.group_id) or self._store.create(group.group_id)
        if holder.consumer is None:
            for ticket in holder.pending_members.values():
                self._purgatory.finish(ticket)
            holder.forget_classic()
        holder.consumer = group

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
                return self._replace_static(step, static, body.member_id)
            member = member if joins else _known_static(static, body.instance_id, body.member_id)
        if member is None and not joins:
            raise _unknown(f"Member {body.member_id} is not a member of group {body.group_id}.")
        if member is None:
            return ConsumerMember(body.member_id or self._make_member_id())
        check_epoch(member, body.member_epoch, reported)
        return member

    def _make_member_id(self) -> str:
        """Return a unique id for a client that chooses none (version 0), without random numbers."""
        self._member_ids += 1
        seed = f"consumer:{self._context.broker_id}:{self._context.broker_epoch}:{self._member_ids}"
        return urlsafe_b64encode(sha256(seed.encode()).digest()[:16]).decode().rstrip("=")

    def _replace_static(self, step: Step, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Give the assignment of a static member that has left for a while to its next life."""
        if old.epoch != LEAVE_STATIC_EPOCH and old.classic is None:
            message = f"The instance id {old.instance_id} is used by member {old.member_id}."
            raise RefusedRequestError(ErrorCode.UNRELEASED_INSTANCE_ID, message)
        group, target = step.group, step.group.target.get(old.member_id, frozenset())
        member = replace(old, member_id=member_id, epoch=0, previous_epoch=0)
        step.add(*member_tombstones(group.group_id, old.member_id))
        step.add(member_change(group.group_id, member), target_change(group.group_id, member_id, target))
        step.add(current_change(group.group_id, member))
        self._end_timers(group, old.member_id)
        return member

    def _update_member(self, step: Step, member: ConsumerMember, updated: ConsumerMember) -> bool:
        """Store the member if it is new or has changed; return whether its subscription is another one than before."""
        group = step.group
        if updated.pattern != member.pattern and updated.pattern:
            compile_pattern(updated.pattern)
        if updated != group.members.get(member.member_id):
            step.add(member_change(group.group_id, updated))
        return (updated.topics, updated.pattern) != (member.topics, member.pattern)

    def _leave(self, body: ConsumerGroupHeartbeatRequest) -> tuple[ConsumerGroup, ConsumerGroupHeartbeatResponse]:
        """Remove the member, or let a static member leave for a while (consumerGroupLeave)."""
        group = self._find(body.group_id)
        member = group.members.get(body.member_id)
        if body.instance_id is not None:
            member = _known_static(group.static_member(body.instance_id), body.instance_id, body.member_id)
        if member is None:
            raise _unknown(f"Member {body.member_id} is not a member of group {body.group_id}.")
        step = Step(group)
        if body.member_epoch == LEAVE_STATIC_EPOCH:
            step.add(current_change(group.group_id, leave_for_a_while(member, LEAVE_STATIC_EPOCH)))
            self._write(step)
            self._purgatory.finish(group.timers.rebalances.pop(member.member_id, ""))
        else:
            self._remove(step, member)
        return group, ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=body.member_epoch)

    def _remove(self, step: Step, member: ConsumerMember) -> None:
        """Remove a member; the next heartbeat of another one computes the target without it."""
        group = step.group
        step.add(*member_tombstones(group.group_id, member.member_id))
        self._update_epoch(step, subscription_changed=True)
        self._write(step)
        self._end_timers(group, member.member_id)

    # -- epochs and assignments --------------------------------------------------------------------

    def _update_epoch(self, step: Step, *, subscription_changed: bool) -> None:
        """Increment the group epoch if a subscription or the metadata of a subscribed topic is not as it was."""
        group, version = step.group, self._cache.version
        metadata_changed = group.metadata_version != version
        if not subscription_changed and not metadata_changed:
            return
        group.metadata_version = version
        matched = self._resolve_patterns(step, again=metadata_changed)
        found = metadata_hash(self._cache, group)
        if subscription_changed or matched or found != group.metadata_hash:
            step.add(group_change(group.group_id, group.epoch + 1, found))

    def _resolve_patterns(self, step: Step, *, again: bool) -> bool:
        """Search the topics of new patterns, `again` of all; return whether a known one matches others than before."""
        group, changed = step.group, False
        used = {member.pattern for member in group.members.values() if member.pattern}
        step.add(*(pattern_change(group.group_id, pattern, None) for pattern in sorted(group.patterns.keys() - used)))
        for pattern in sorted(used):
            known = group.patterns.get(pattern)
            if known is not None and not again:
                continue
            topics = matching_topics(self._cache, pattern)
            if known is None or topics != known.topics:
                changed = True
                resolved = ResolvedPattern(topics, self._cache.version, self._context.now.wall_ms)
                step.add(pattern_change(group.group_id, pattern, resolved))
        return changed

    def _subscribed_ids(self, group: ConsumerGroup, member: ConsumerMember) -> frozenset[bytes]:
        return frozenset(topic_ids(self._cache, group.subscribed_topics(member)))

    def _update_target(self, step: Step) -> None:
        """Compute the target assignment of the group epoch (TargetAssignmentBuilder)."""
        group = step.group
        if group.epoch <= group.assignment_epoch:
            return
        subscribers = [
            Subscriber(
                member.member_id,
                self._subscribed_ids(group, member),
                member.instance_id,
                group.target.get(member.member_id, frozenset()),
            )
            for member in group.members.values()
        ]
        assign = ASSIGNORS[group.preferred_assignor(self._context.config.group_consumer_assignors)]
        target = assign(subscribers, topic_ids(self._cache, group.all_subscribed_topics()))
        for member_id, parts in sorted(target.items()):
            if group.target.get(member_id) != parts:
                step.add(target_change(group.group_id, member_id, parts))
        step.add(target_epoch_change(group.group_id, group.epoch, self._context.now.wall_ms))

    def _reconcile(self, step: Step, member_id: str, reported: frozenset[Part] | None) -> bool:
        """Take the member one step nearer to its target; return whether it could."""
        group = step.group
        member = group.members[member_id]
        if member.is_reconciled_to(group.assignment_epoch):
            return False
        target = group.target.get(member_id, frozenset())
        goal = Goal(group.assignment_epoch, target, self._subscribed_ids(group, member))
        taken = {part for part, owner in group.owners().items() if owner.member_id != member_id}
        updated = reconcile(member, goal, taken, reported)
        if updated == member:
            return False
        step.add(current_change(group.group_id, updated))
        return True

    # -- timeouts ----------------------------------------------------------------------------------

    def resume(self, groups: Iterable[Group]) -> None:
        """Start the timeouts of all members after this broker has loaded their groups."""
        for group in (group.consumer for group in groups if group.consumer is not None):
            for member in group.members.values():
                self._start_session(group, member.member_id)
                self._start_rebalance_timeout(group, member)

    def resign(self, groups: Iterable[Group]) -> None:
        """End the timeouts after another broker became the coordinator."""
        for group in (group.consumer for group in groups if group.consumer is not None):
            for member_id in group.members:
                self._end_timers(group, member_id)

    def _start_session(self, group: ConsumerGroup, member_id: str) -> None:
        sessions = group.timers.sessions
        self._purgatory.finish(sessions.get(member_id, ""))
        timeout_ms = self._context.config.group_consumer_session_timeout_ms
        sessions[member_id] = self._purgatory.park(timeout_ms, lambda: self._expire(group, member_id))

    def _start_rebalance_timeout(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Remove a member that has to revoke and does not leave its epoch in time: others wait for its partitions."""
        rebalances = group.timers.rebalances
        self._purgatory.finish(rebalances.pop(member.member_id, ""))
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            return

        def is_over() -> None:
            current = group.members.get(member.member_id)
            if current is not None and current.epoch == member.epoch:
                self._expire(group, member.member_id)

        rebalances[member.member_id] = self._purgatory.park(member.rebalance_timeout_ms, is_over)

    def _end_timers(self, group: ConsumerGroup, member_id: str) -> None:
        for tickets in (group.timers.sessions, group.timers.rebalances):
            self._purgatory.finish(tickets.pop(member_id, ""))

    def _expire(self, group: ConsumerGroup, member_id: str) -> None:
        """Remove a member that does not send heartbeats, or does not revoke; try again if that cannot be written."""
        holder, member = self._store.groups.get(group.group_id), group.members.get(member_id)
        if holder is None or holder.consumer is not group or member is None:
            return
        try:
            self._remove(Step(group), member)
        except RefusedRequestError:
            ticket = self._purgatory.park(RETRY_MS, lambda: self._expire(group, member_id))
            group.timers.sessions[member_id] = ticket


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


def _known_static(member: ConsumerMember | None, instance_id: str, member_id: str) -> ConsumerMember:
    """Return the member with this instance id; raises RefusedRequestError if there is none, or if it has another id."""
    if member is None:
        raise _unknown(f"The instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        message = f"The instance id {instance_id} was taken over by member {member.member_id}."
        raise RefusedRequestError(ErrorCode.FENCED_INSTANCE_ID, message)
    return member


def _unknown(message: str) -> RefusedRequestError:
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
