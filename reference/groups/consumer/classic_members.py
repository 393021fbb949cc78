"""Serve JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members that use the classic protocol in a consumer group.

Such a member is assigned like the others, by the broker. JoinGroup is answered at once, with the member epoch as
generation and without a leader; SyncGroup returns the assignment; a heartbeat is REBALANCE_IN_PROGRESS when the member
has to join again, to revoke partitions or to get others. It reports what it owns in its subscription (KIP-429), and an
eager member, which revokes all before it joins, nothing. Requests of classic groups go on to their coordinator.

Apache Kafka: GroupMetadataManager, classicGroupJoinToConsumerGroup, classicGroupSyncToConsumerGroup and others.
"""

from dataclasses import replace
from typing import Final

from highwater.reference.context import Context
from highwater.reference.effects import Request
from highwater.reference.groups.checks import refuse_join
from highwater.reference.groups.consumer.conversion import become_classic, encoded_assignment, known_parts
from highwater.reference.groups.consumer.coordinator import ConsumerGroupCoordinator, known_static, unknown_member
from highwater.reference.groups.consumer.group import ClassicMember, ConsumerGroup, ConsumerMember, MemberState
from highwater.reference.groups.consumer.steps import GroupSteps, Step
from highwater.reference.groups.coordinator import LEAVE_BATCH_SINCE, MEMBER_ID_REQUIRED_SINCE, GroupCoordinator
from highwater.reference.groups.group import Group, Protocols
from highwater.reference.groups.store import GroupStore
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.refusals import RefusedRequestError
from highwater.reference.wire.errors import DecodeError, ErrorCode
from highwater.reference.wire.messages.consumer_groups import decode_subscription
from highwater.reference.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

CONSUMER: Final = "consumer"


class ClassicMembers:
    """Handlers of the classic requests, for groups of both kinds."""

    def __init__(
        self,
        context: Context,
        store: GroupStore,
        cache: MetadataCache,
        steps: GroupSteps,
        classic: GroupCoordinator,
        consumers: ConsumerGroupCoordinator,
    ) -> None:
        self._context, self._store, self._cache, self._steps = context, store, cache, steps
        self._classic, self._consumers = classic, consumers
        steps.on_upgrade, steps.on_only_classic = classic.hand_over, self._downgrade

    def _group(self, group_id: str) -> ConsumerGroup | None:
        """Return the group if it is a consumer group with members that this broker coordinates."""
        found = self._store.groups.get(group_id)
        is_owned = self._store.check(group_id) is ErrorCode.NONE
        has_members = found is not None and found.consumer is not None and found.consumer.members
        return found.consumer if found is not None and is_owned and has_members else None

    # -- join and sync -----------------------------------------------------------------------------

    async def join(self, request: Request) -> JoinGroupResponse:
        """Respond to JoinGroup, in a consumer group at once."""
        body: JoinGroupRequest = request.body
        group, config = self._group(body.group_id), self._context.config
        if group is None:
            return await self._classic.join(request)
        least, most = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not least <= body.session_timeout_ms <= most:
            return refuse_join(ErrorCode.INVALID_SESSION_TIMEOUT, body.member_id)
        try:
            response = self._join(group, request)
        except RefusedRequestError as refused:
            return refuse_join(refused.error, "")
        error = await self._store.committed(group)
        return response if error is ErrorCode.NONE else refuse_join(error, body.member_id)

    def _join(self, group: ConsumerGroup, request: Request) -> JoinGroupResponse:
        body: JoinGroupRequest = request.body
        protocols = tuple((protocol.name, protocol.metadata) for protocol in body.protocols)
        if body.protocol_type != CONSUMER or not _supports(group, body.member_id, protocols):
            raise RefusedRequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        is_known = body.member_id in group.members
        if len(group.members) >= self._context.config.group_consumer_max_size and not is_known:
            raise RefusedRequestError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        member_id = body.member_id or self._consumers.make_member_id()
        is_dynamic = body.group_instance_id is None
        if is_dynamic and not body.member_id and request.api_version >= MEMBER_ID_REQUIRED_SINCE:
            return refuse_join(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        try:
            subscription = decode_subscription(protocols[0][1])
        except DecodeError as error:
            raise RefusedRequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from error
        step = Step(group)
        member = self._member_to_join(step, member_id, body)
        updated = replace(
            member,
            instance_id=body.group_instance_id,
            rack_id=subscription.rack_id,
            client_id=request.client_id or "",
            client_host=f"/{request.client_host}",
            rebalance_timeout_ms=body.rebalance_timeout_ms
            if body.rebalance_timeout_ms >= 0
            else body.session_timeout_ms,
            topics=tuple(sorted(set(subscription.topics))),
            pattern="",
            classic=ClassicMember(body.session_timeout_ms, protocols),
        )
        reported = known_parts(subscription.owned_partitions, self._cache)
        joined = self._steps.advance(step, member, updated, reported)
        self._steps.end_rebalance_timeout(group, member_id)
        self._steps.await_member(group, joined)
        return JoinGroupResponse(
            generation_id=joined.epoch, protocol_type=CONSUMER, protocol_name=protocols[0][0], member_id=member_id
        )

    def _member_to_join(self, step: Step, member_id: str, body: JoinGroupRequest) -> ConsumerMember:
        """Return the member, or a new one: a member id that the group does not know is accepted, but no instance id."""
        instance_id = body.group_instance_id
        if instance_id is None:
            return step.group.members.get(member_id) or ConsumerMember(member_id)
        static = step.group.static_member(instance_id)
        if body.member_id:
            return known_static(static, instance_id, member_id)
        return ConsumerMember(member_id) if static is None else self._consumers.replace_member(step, static, member_id)

    async def sync(self, request: Request) -> SyncGroupResponse:
        """Return the assignment of a classic member of a consumer group; otherwise as the classic coordinator does."""
        body: SyncGroupRequest = request.body
        group = self._group(body.group_id)
        if group is None:
            return await self._classic.sync(request)
        try:
            member, classic = self._find(group, body.member_id, body.group_instance_id)
            protocol = classic.protocols[0][0]
            if body.protocol_type not in {None, CONSUMER} or body.protocol_name not in {None, protocol}:
                raise RefusedRequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            _check_generation(member, body.generation_id)
            if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
                self._steps.await_member(group, member)
                raise RefusedRequestError(ErrorCode.REBALANCE_IN_PROGRESS)
        except RefusedRequestError as refused:
            return SyncGroupResponse(error_code=refused.error)
        self._steps.end_rebalance_timeout(group, member.member_id)
        self._steps.start_session(group, member)
        assignment = encoded_assignment(member, self._cache)
        error = await self._store.committed(group)
        if error is not ErrorCode.NONE:
            return SyncGroupResponse(error_code=error)
        return SyncGroupResponse(protocol_type=CONSUMER, protocol_name=protocol, assignment=assignment)

    # -- heartbeat and leave -----------------------------------------------------------------------

    async def heartbeat(self, request: Request) -> HeartbeatResponse:
        """Restart the session; REBALANCE_IN_PROGRESS if the member has to join again, within its rebalance timeout."""
        body: HeartbeatRequest = request.body
        group = self._group(body.group_id)
        if group is None:
            return await self._classic.heartbeat(request)
        try:
            member, _ = self._find(group, body.member_id, body.group_instance_id)
            _check_generation(member, body.generation_id)
        except RefusedRequestError as refused:
            return HeartbeatResponse(error_code=refused.error)
        self._steps.start_session(group, member)
        if not _must_join(group, member):
            return HeartbeatResponse()
        self._steps.await_member(group, member)
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)

    async def leave(self, request: Request) -> LeaveGroupResponse:
        """Remove members of either protocol from a consumer group; an administrator may name any (KIP-345)."""
        body: LeaveGroupRequest = request.body
        group = self._group(body.group_id)
        if group is None:
            return await self._classic.leave(request)
        batch = request.api_version >= LEAVE_BATCH_SINCE
        leaving = body.members if batch else (MemberIdentity(member_id=body.member_id),)
        found = [_leaving(group, identity) for identity in leaving]
        members = {each.member_id: each for each in found if isinstance(each, ConsumerMember)}
        try:
            self._steps.remove(Step(group), members.values())
        except RefusedRequestError as refused:
            return LeaveGroupResponse(error_code=refused.error)
        errors = [each if isinstance(each, ErrorCode) else ErrorCode.NONE for each in found]
        error = await self._store.committed(group)
        if error is not ErrorCode.NONE or not batch:
            return LeaveGroupResponse(error_code=error if error is not ErrorCode.NONE else errors[0])
        results = zip(leaving, errors, strict=True)
        return LeaveGroupResponse(
            members=tuple(
                MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=error)
                for each, error in results
            )
        )

    def _find(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> tuple[ConsumerMember, ClassicMember]:
        """Return the classic member; raises UNKNOWN_MEMBER_ID for one of the consumer protocol, too."""
        member = group.members.get(member_id)
        if instance_id is not None:
            member = known_static(group.static_member(instance_id), instance_id, member_id)
        if member is None or member.classic is None:
            raise unknown_member(f"Member {member_id} is not a classic member.")
        return member, member.classic

    # -- conversion --------------------------------------------------------------------------------

    def _downgrade(self, group: Group) -> None:
        """Make a classic group of a consumer group whose members are all classic, and let them join (KIP-848)."""
        config, former = self._context.config, group.consumer
        is_allowed = config.group_consumer_migration_policy in {"downgrade", "bidirectional"}
        if not is_allowed or former is None or len(former.members) > config.group_max_size:
            return
        if self._store.end_consumer(group, lambda: become_classic(group, self._cache)) is ErrorCode.NONE:
            for member_id in former.members:
                self._steps.end_timers(former, member_id)
            self._classic.take_over(group)


def _supports(group: ConsumerGroup, member_id: str, protocols: Protocols) -> bool:
    """Return whether one of the protocols is supported by all other classic members (supportsClassicProtocols)."""
    others = [m.classic for m in group.members.values() if m.classic is not None and m.member_id != member_id]
    known = [{name for name, _ in other.protocols} for other in others]
    return any(all(name in names for names in known) for name, _ in protocols)


def _check_generation(member: ConsumerMember, generation_id: int) -> None:
    if generation_id != member.epoch:
        raise RefusedRequestError(ErrorCode.ILLEGAL_GENERATION)


def _must_join(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return whether the next JoinGroup of the member would change its assignment or epoch."""
    if member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    missing = group.target.get(member.member_id, frozenset()) - member.assigned.keys()
    is_waiting = member.state is MemberState.UNRELEASED_PARTITIONS
    return is_waiting and not any(part in missing for part in group.owners())


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember | ErrorCode:
    member = group.members.get(identity.member_id)
    if identity.group_instance_id is not None:
        member = group.static_member(identity.group_instance_id)
        if member is not None and identity.member_id not in {"", member.member_id}:
            return ErrorCode.FENCED_INSTANCE_ID
    return member or ErrorCode.UNKNOWN_MEMBER_ID
