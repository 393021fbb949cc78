"""Change a consumer group: what a heartbeat, a JoinGroup, a leave and a timeout have in common.

A `Step` applies each change at once, and writes all of them in one batch. `advance` brings one member forward: its
subscription, the group epoch, the target assignment, its current assignment. `remove` takes members out. Apache Kafka:
GroupMetadataManager, the parts that consumerGroupHeartbeat and classicGroupJoinToConsumerGroup share.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from highwater.reference.context import Context
from highwater.reference.groups.consumer.assignors import ASSIGNORS, Subscriber
from highwater.reference.groups.consumer.changes import (
    apply,
    current_change,
    group_change,
    member_change,
    member_tombstones,
    pattern_change,
    target_change,
    target_epoch_change,
)
from highwater.reference.groups.consumer.group import (
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Part,
    ResolvedPattern,
)
from highwater.reference.groups.consumer.reconciliation import Goal, reconcile
from highwater.reference.groups.consumer.records import Change
from highwater.reference.groups.consumer.subscriptions import (
    compile_pattern,
    matching_topics,
    metadata_hash,
    topic_ids,
)
from highwater.reference.groups.group import Group
from highwater.reference.groups.store import GroupStore
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.refusals import RefusedRequestError
from highwater.reference.replication.purgatory import Purgatory
from highwater.reference.wire.errors import ErrorCode

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


class GroupSteps:
    """The steps of all consumer groups of this broker, and the timeouts of their members.

    `on_upgrade` is called with a classic group that becomes a consumer group, and `on_only_classic` with a consumer
    group when all its members use the classic protocol, after the last other one was removed.
    """

    def __init__(self, context: Context, purgatory: Purgatory, store: GroupStore, cache: MetadataCache) -> None:
        self._context, self._purgatory, self._store, self._cache = context, purgatory, store, cache
        self.on_upgrade: Callable[[Group], None] = lambda group: None
        self.on_only_classic: Callable[[Group], None] = lambda group: None

    def write(self, step: Step) -> None:
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
        """Let the group be that of its id; a classic group of this id gives its members up."""
        holder = self._store.groups.get(group.group_id) or self._store.create(group.group_id)
        if holder.consumer is None:
            self.on_upgrade(holder)
        holder.consumer = group
        for member in group.members.values():
            if member.member_id not in group.timers.sessions:
                self.start_session(group, member)

    def advance(
        self, step: Step, member: ConsumerMember, updated: ConsumerMember, reported: frozenset[Part] | None
    ) -> ConsumerMember:
        """Bring a member forward that is `updated` by its request, write that, and return the member as it is then."""
        group = step.group
        try:
            if not self._cache.version:  # all topics would seem to be deleted, and be taken from the members
                raise RefusedRequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            subscription_changed = self._update_member(step, member, updated)
        except RefusedRequestError:
            group.restore(step.before)
            raise
        self._update_epoch(step, subscription_changed=subscription_changed or group.epoch == 0)
        self._update_target(step)
        progressed = self._reconcile(step, member.member_id, reported)
        self.write(step)
        found = group.members[member.member_id]
        self.start_session(group, found)
        if progressed and found.classic is None:
            self._start_rebalance_timeout(group, found)
        return found

    def remove(self, step: Step, members: Iterable[ConsumerMember]) -> None:
        """Remove members; the next request of another one computes the target without them."""
        group, gone = step.group, [member.member_id for member in members]
        if not gone:
            return
        for member_id in gone:
            step.add(*member_tombstones(group.group_id, member_id))
        self._update_epoch(step, subscription_changed=True)
        self.write(step)
        for member_id in gone:
            self.end_timers(group, member_id)
        holder = self._store.groups.get(group.group_id)
        if holder is not None and group.members and all(member.classic for member in group.members.values()):
            self.on_only_classic(holder)

    def end_rebalance_timeout(self, group: ConsumerGroup, member_id: str) -> None:
        self._purgatory.finish(group.timers.rebalances.pop(member_id, ""))

    def await_member(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Remove a classic member unless it goes on, with JoinGroup or SyncGroup, within its rebalance timeout."""
        timeout_ms = member.rebalance_timeout_ms
        rebalances = group.timers.rebalances
        if member.member_id not in rebalances:
            rebalances[member.member_id] = self._purgatory.park(
                timeout_ms, lambda: self._expire(group, member.member_id)
            )

    def _update_member(self, step: Step, member: ConsumerMember, updated: ConsumerMember) -> bool:
        """Store the member if it is new or has changed; return whether its subscription is another one than before."""
        group = step.group
        if updated.pattern != member.pattern and updated.pattern:
            compile_pattern(updated.pattern)
        if updated != group.members.get(member.member_id):
            step.add(member_change(group.group_id, updated))
        return (updated.topics, updated.pattern) != (member.topics, member.pattern)

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
                self.start_session(group, member)
                if member.classic is None:
                    self._start_rebalance_timeout(group, member)

    def resign(self, groups: Iterable[Group]) -> None:
        """End the timeouts after another broker became the coordinator."""
        for group in (group.consumer for group in groups if group.consumer is not None):
            for member_id in group.members:
                self.end_timers(group, member_id)

    def start_session(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Start the session timeout again: that of the broker, or the one that a classic member has chosen."""
        sessions, member_id = group.timers.sessions, member.member_id
        self._purgatory.finish(sessions.get(member_id, ""))
        timeout_ms = self._context.config.group_consumer_session_timeout_ms
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        sessions[member_id] = self._purgatory.park(timeout_ms, lambda: self._expire(group, member_id))

    def _start_rebalance_timeout(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Remove a member that has to revoke and does not leave its epoch in time: others wait for its partitions."""
        rebalances = group.timers.rebalances
        self.end_rebalance_timeout(group, member.member_id)
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            return

        def is_over() -> None:
            current = group.members.get(member.member_id)
            if current is not None and current.epoch == member.epoch:
                self._expire(group, member.member_id)

        rebalances[member.member_id] = self._purgatory.park(member.rebalance_timeout_ms, is_over)

    def end_timers(self, group: ConsumerGroup, member_id: str) -> None:
        for tickets in (group.timers.sessions, group.timers.rebalances):
            self._purgatory.finish(tickets.pop(member_id, ""))

    def _expire(self, group: ConsumerGroup, member_id: str) -> None:
        """Remove a member that does not send heartbeats, or does not revoke; try again if that cannot be written."""
        holder, member = self._store.groups.get(group.group_id), group.members.get(member_id)
        if holder is None or holder.consumer is not group or member is None:
            self.end_timers(group, member_id)
            return
        try:
            self.remove(Step(group), [member])
        except RefusedRequestError:
            ticket = self._purgatory.park(RETRY_MS, lambda: self._expire(group, member_id))
            group.timers.sessions[member_id] = ticket
