"""Serve JoinGroup, SyncGroup, Heartbeat and LeaveGroup of the classic group protocol.

Theory of operation
-------------------
A group moves along `GROUP_TABLE` (groups/group.py): Empty, PreparingRebalance, CompletingRebalance, Stable, Dead.

* PreparingRebalance: JoinGroup requests wait (`pending_join`) until every known member has joined or the rebalance
  timeout has expired; members that have not joined by then are removed.
* CompletingRebalance: the generation is incremented. The response to the leader lists all members with their metadata;
  the other members get an empty list. SyncGroup requests wait (`pending_sync`) for the leader's assignments.
* Stable: the assignments are written to `__consumer_offsets`, and only then every SyncGroup is completed: a coordinator
  that takes over must know every assignment that a member has received (guard PersistBeforeSyncReply).

A member is identified by member id and generation; a static member also by its instance id, whose newest member id
fences the earlier ones (KIP-345). A request with an older generation or a fenced id changes nothing.

Every method runs to its end before the next event, so no two requests of a group interleave except where a procedure
awaits a write of the log; after the write it checks that the group is still the one it started with.

Invariants: a generation never decreases; in CompletingRebalance and Stable there is a leader and it is a member; a
waiting JoinGroup exists only in PreparingRebalance, a waiting SyncGroup only in CompletingRebalance.

Not here: committed offsets (`offsets`), what a coordinator stores and loads (`store`), checks of a single request
(`checks`), expiry by time (`expiry`). Apache Kafka: GroupCoordinator (classic groups), GroupMetadata.
"""

from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256

from highwater.reference.context import Context
from highwater.reference.effects import Request
from highwater.reference.groups.checks import MemberChecks, join_response, member_list, refuse_join, sync_response
from highwater.reference.groups.group import NO_GENERATION, Group, GroupState, InitialDelay, Member, Protocols
from highwater.reference.groups.store import GroupStore
from highwater.reference.groups.tracing import ANSWERED, PARKED
from highwater.reference.procedures import Pending, spawn, start_procedure
from highwater.reference.replication.purgatory import Purgatory
from highwater.reference.wire.errors import ErrorCode
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

MEMBER_ID_REQUIRED_SINCE = 4
NEW_MEMBER_JOIN_MS = 300_000  # a client that is gone cannot be noticed while its first JoinGroup waits, and may retry
MEMBER_ID_PREFIX_MAX = 255  # characters: a longer prefix could exceed the length limit of a string
LEAVE_BATCH_SINCE = 3
PROTOCOL_SINCE = 5  # of SyncGroup: the protocol type and name that the member expects are mandatory (KIP-559)
SKIP_ASSIGNMENT_SINCE = 9
UNKNOWN_GROUP_SINCE = 9  # of OffsetCommit: a commit of a member of an unknown group gets GROUP_ID_NOT_FOUND (KIP-848)
NO_PROTOCOL_NAME_SINCE = 7  # before, a response without a protocol has an empty name


class GroupCoordinator:
    """The membership part of Apache Kafka's GroupCoordinator."""

    def __init__(self, context: Context, purgatory: Purgatory, store: GroupStore) -> None:
        self._context, self._purgatory, self._store = context, purgatory, store
        self._guards = context.guards
        self._checks = MemberChecks(store, context.guards)
        self._trace = store.trace
        self._member_ids = 0

    # -- join ------------------------------------------------------------------------------------

    async def join(self, request: Request) -> JoinGroupResponse:
        """Respond to JoinGroup when the join phase of the rebalance ends."""
        response = await self._join(request)
        if response.protocol_name is None and request.api_version < NO_PROTOCOL_NAME_SINCE:
            return replace(response, protocol_name="")
        return response

    async def _join(self, request: Request) -> JoinGroupResponse:
        body: JoinGroupRequest = request.body
        error = self._store.check(body.group_id)
        config = self._context.config
        if error is ErrorCode.NONE and not (
            config.group_min_session_timeout_ms <= body.session_timeout_ms <= config.group_max_session_timeout_ms
        ):
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error is not ErrorCode.NONE:
            return refuse_join(error, body.member_id)
        group = self._store.groups.get(body.group_id)
        if group is None:
            if body.member_id:
                return refuse_join(ErrorCode.UNKNOWN_MEMBER_ID, body.member_id)
            group = self._store.create(body.group_id)
        if group.consumer is not None:
            error = self._store.end_consumer(group)
            if error is not ErrorCode.NONE:
                return refuse_join(error, body.member_id)
        protocols = tuple((protocol.name, protocol.metadata) for protocol in body.protocols)
        if not group.supports(body.protocol_type, protocols, shared=self._guards.one_protocol_for_all):
            return refuse_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, body.member_id)
        handler = self._join_new if not body.member_id else self._join_known
        return await handler(group, request, protocols)

    def _new_member(self, request: Request, member_id: str, protocols: Protocols) -> Member:
        body: JoinGroupRequest = request.body
        rebalance_ms = body.rebalance_timeout_ms if body.rebalance_timeout_ms >= 0 else body.session_timeout_ms
        return Member(
            member_id,
            body.group_instance_id,
            request.client_id or "",
            f"/{request.client_host}",
            body.session_timeout_ms,
            rebalance_ms,
            protocols,
        )

    def _make_member_id(self, prefix: str | None) -> str:
        """Return a unique id without random numbers: it hashes broker id, broker epoch and a counter."""
        self._member_ids += 1
        seed = f"{self._context.broker_id}:{self._context.broker_epoch}:{self._member_ids}"
        digest = sha256(seed.encode()).hexdigest()
        prefix = (prefix or "member")[:MEMBER_ID_PREFIX_MAX]
        return f"{prefix}-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"

    async def _join_new(self, group: Group, request: Request, protocols: Protocols) -> JoinGroupResponse:
        body: JoinGroupRequest = request.body
        if body.group_instance_id in group.static_members:
            return await self._replace_static(group, request, protocols)
        if len(group.members) + len(group.pending_members) >= self._context.config.group_max_size:
            return refuse_join(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        member_id = self._make_member_id(body.group_instance_id or request.client_id)
        dynamic = body.group_instance_id is None and request.api_version >= MEMBER_ID_REQUIRED_SINCE
        if dynamic and self._guards.require_member_id:
            group.pending_members[member_id] = self._purgatory.park(
                body.session_timeout_ms, lambda: self._forget_pending(group, member_id)
            )
            self._trace.step(group, "TakeMemberId", member_id=member_id)
            return refuse_join(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        return await self._add_and_rebalance(group, request, member_id, protocols)

    def _forget_pending(self, group: Group, member_id: str) -> None:
        if group.pending_members.pop(member_id, None) is not None:
            self._complete_if_all_joined(group)

    async def _add_and_rebalance(
        self, group: Group, request: Request, member_id: str, protocols: Protocols
    ) -> JoinGroupResponse:
        group.protocol_type = request.body.protocol_type
        member = self._new_member(request, member_id, protocols)
        if group.initial_delay is not None:
            group.initial_delay.has_newcomer = group.generation_id == 0
        group.add(member)
        self._trace.join(group, request, member, PARKED)
        joined = start_procedure(self._rejoin, group, member)
        if member.pending_join is not None:
            member.session_ticket = self._purgatory.park(NEW_MEMBER_JOIN_MS, lambda: self._expire(group, member))
        return await joined

    async def _rejoin(self, group: Group, member: Member) -> JoinGroupResponse:
        """Begin a rebalance unless one is in progress, and wait for the end of its join phase."""
        if member.pending_join is not None:  # a second JoinGroup of the member replaces the first
            member.pending_join.resolve(refuse_join(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        pending: Pending[JoinGroupResponse] = Pending()
        member.pending_join = pending
        self._end_session(member)
        self._begin_rebalance(group)
        return await pending

    async def _join_known(self, group: Group, request: Request, protocols: Protocols) -> JoinGroupResponse:
        body: JoinGroupRequest = request.body
        if body.member_id in group.pending_members:
            if body.group_instance_id is not None:
                return refuse_join(ErrorCode.UNKNOWN_MEMBER_ID, body.member_id)
            self._purgatory.finish(group.pending_members.pop(body.member_id))
            return await self._add_and_rebalance(group, request, body.member_id, protocols)
        error = self._checks.check_member(group, body.member_id, body.group_instance_id)
        if error is not ErrorCode.NONE:
            self._trace.rejected_join(group, body, error)
            return refuse_join(error, body.member_id)
        member = group.members[body.member_id]
        unchanged = member.protocols == protocols
        no_rebalance_needed = group.state is GroupState.COMPLETING_REBALANCE or (
            group.state is GroupState.STABLE and member.member_id != group.leader
        )
        if unchanged and no_rebalance_needed:
            self._trace.join(group, request, member, ANSWERED)
            return join_response(group, member)
        self._update(member, request, protocols)
        self._trace.join(group, request, member, PARKED, changed=not unchanged)
        return await self._rejoin(group, member)

    def _update(self, member: Member, request: Request, protocols: Protocols) -> None:
        updated = self._new_member(request, member.member_id, protocols)
        member.protocols, member.client_id, member.client_host = protocols, updated.client_id, updated.client_host
        member.session_timeout_ms = updated.session_timeout_ms
        member.rebalance_timeout_ms = updated.rebalance_timeout_ms

    async def _replace_static(self, group: Group, request: Request, protocols: Protocols) -> JoinGroupResponse:
        """Give a restarted static member a new id and, in Stable, its previous assignment (KIP-345)."""
        body: JoinGroupRequest = request.body
        old_id = group.static_members[body.group_instance_id or ""]
        if group.state is not GroupState.STABLE and not self._guards.new_member_id_on_static_rejoin:
            self._update(group.members[old_id], request, protocols)
            self._trace.join(group, request, group.members[old_id], PARKED)
            return await self._rejoin(group, group.members[old_id])
        was_leader = group.leader == old_id
        old = group.members.pop(old_id)
        self._fence(old)
        member = self._new_member(request, self._make_member_id(body.group_instance_id), protocols)
        member.assignment = old.assignment
        group.add(member)
        if was_leader:
            group.leader = member.member_id
        chosen = group.protocol or ""
        # Other metadata for the same protocol begins no rebalance in Apache Kafka up to 4.3 (KAFKA-12759).
        keeps_assignment = group.state is GroupState.STABLE and group.choose_protocol() == chosen
        self._trace.join(group, request, member, ANSWERED if keeps_assignment else PARKED)
        if keeps_assignment:
            if self._guards.persist_static_rejoin:
                error = await self._store.save_group(group)
                if error is not ErrorCode.NONE:
                    self._restore_static(group, member, old, was_leader=was_leader)
                    return refuse_join(error, "")
            self._start_session(group, member)
            response = join_response(group, member)
            if not was_leader:
                return response
            if request.api_version >= SKIP_ASSIGNMENT_SINCE:
                return replace(response, skip_assignment=True, members=member_list(group))
            return replace(response, leader=old_id, members=())
        return await self._rejoin(group, member)

    def _restore_static(self, group: Group, member: Member, old: Member, *, was_leader: bool) -> None:
        """Let the old id be a member again, as the new one could not be stored (updateStaticMemberAndRebalance)."""
        if group.members.get(member.member_id) is not member or group.state is not GroupState.STABLE:
            return  # a rebalance has begun since: every member joins again
        group.remove(member.member_id)
        group.add(old)
        if was_leader:
            group.leader = old.member_id
        self._start_session(group, old)

    def _fence(self, member: Member) -> None:
        """Reject the pending requests of a static member's old id with the fencing error."""
        self._end_session(member)
        if member.pending_join is not None:
            member.pending_join.resolve(refuse_join(self._checks.fencing_error, member.member_id))
        member.answer_syncs(SyncGroupResponse(error_code=self._checks.fencing_error))

    # -- rebalance -------------------------------------------------------------------------------

    def _begin_rebalance(self, group: Group) -> None:
        if group.state is GroupState.PREPARING_REBALANCE:
            self._complete_if_all_joined(group)
            return
        self._refuse_syncing(group, ErrorCode.REBALANCE_IN_PROGRESS)
        self._purgatory.finish(group.rebalance_ticket)
        was_empty = group.state is GroupState.EMPTY
        group.move_to(GroupState.PREPARING_REBALANCE)
        group.incarnation += 1
        delay_ms = self._context.config.group_initial_rebalance_delay_ms
        if was_empty and delay_ms > 0:
            self._await_first_members(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
            return
        self._await_joins(group)
        self._complete_if_all_joined(group)

    def _await_first_members(self, group: Group, delay_ms: int, left_ms: int) -> None:
        """Wait, and once more as long as another member joins during the wait (KIP-134; InitialDelayedJoin)."""

        def is_over() -> None:
            delay, group.initial_delay = group.initial_delay, None
            if delay is not None and delay.has_newcomer and delay.left_ms > 0:
                next_ms = min(self._context.config.group_initial_rebalance_delay_ms, delay.left_ms)
                self._await_first_members(group, next_ms, delay.left_ms - next_ms)
            else:
                self._join_timed_out(group)

        group.initial_delay = InitialDelay(left_ms)
        group.rebalance_ticket = self._purgatory.park(delay_ms, is_over)

    def _await_joins(self, group: Group) -> None:
        group.rebalance_ticket = self._purgatory.park(group.rebalance_timeout_ms, lambda: self._join_timed_out(group))

    def _complete_if_all_joined(self, group: Group) -> None:
        if group.initial_delay is not None:
            return
        complete = group.all_joined if self._guards.await_all_members else group.any_joined
        if group.state is GroupState.PREPARING_REBALANCE and complete and group.members:
            self._complete_join(group)

    def _join_timed_out(self, group: Group) -> None:
        """Remove dynamic members that did not join; if only static members that did not join remain, wait again."""
        for member in [m for m in group.members.values() if m.pending_join is None and m.instance_id is None]:
            self._end_session(member)
            group.remove(member.member_id)
            if not group.any_joined:  # otherwise the CompleteJoin step shows which members were removed
                self._trace.step(group, "ExpireSession", member_id=member.member_id)
        if group.members and all(member.pending_join is None for member in group.members.values()):
            self._await_joins(group)
        else:
            self._complete_join(group)

    def _complete_join(self, group: Group) -> None:
        """End the join phase: begin the next generation and complete the JoinGroup of its members."""
        self._purgatory.finish(group.rebalance_ticket)
        group.initial_delay = None
        group.generation_id += 1
        if not group.members:
            group.protocol, group.leader = None, None
            group.move_to(GroupState.EMPTY)
            self._trace.step(group, "CompleteJoin", leader="", protocol="")
            spawn(self._save_ignoring_errors(group))
            return
        joined_members = [member for member in group.members.values() if member.pending_join is not None]
        if group.members[group.leader or ""].pending_join is None:
            group.leader = joined_members[0].member_id
        assert group.leader in group.members, "the leader of a generation is one of its members"
        group.protocol = group.choose_protocol()
        group.move_to(GroupState.COMPLETING_REBALANCE)
        self._trace.step(group, "CompleteJoin", leader=group.leader, protocol=group.protocol)
        incarnation = group.incarnation
        group.rebalance_ticket = self._purgatory.park(
            group.rebalance_timeout_ms, lambda: self._expire_unsynced(group, incarnation)
        )
        for member in group.members.values():
            member.owes_sync = member.pending_join is not None
        for member in joined_members:
            pending, member.pending_join = member.pending_join, None
            self._start_session(group, member)
            if pending is not None:
                pending.resolve(join_response(group, member))

    async def _save_ignoring_errors(self, group: Group, assignments: dict[str, bytes] | None = None) -> None:
        await self._store.save_group(group, assignments)

    def _expire_unsynced(self, group: Group, incarnation: int) -> None:
        """Remove members that joined but did not send SyncGroup: they would block the group (KAFKA-12890).

        In a stable group they would keep partitions that they do not know of.
        """
        if group.incarnation != incarnation or not self._guards.expire_unsynced_members:
            return
        if group.state is GroupState.STABLE:
            self._remove_unsynced(group)
        if group.state is not GroupState.COMPLETING_REBALANCE:
            return
        for member in [m for m in group.members.values() if not m.pending_syncs]:
            self._end_session(member)
            group.remove(member.member_id)
        self._trace.step(group, "ExpireUnsynced")
        self._begin_rebalance(group)
        if not group.members:
            self._complete_join(group)

    def _remove_unsynced(self, group: Group) -> None:
        """Remove the members that owe a SyncGroup; for the model their sessions end."""
        unsynced = [member.member_id for member in group.members.values() if member.owes_sync]
        for member_id in unsynced:
            self._remove_member(group, member_id, "ExpireSession")
        if unsynced:
            self._members_left(group)

    def _end_wait_for_syncs(self, group: Group) -> None:
        if not any(member.owes_sync for member in group.members.values()):
            self._purgatory.finish(group.rebalance_ticket)

    # -- sync ------------------------------------------------------------------------------------

    async def sync(self, request: Request) -> SyncGroupResponse:
        """Respond to SyncGroup when the assignments of the leader are stored."""
        body: SyncGroupRequest = request.body
        if request.api_version >= PROTOCOL_SINCE and None in {body.protocol_type, body.protocol_name}:
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        error, group = self._checks.find_group(
            body.group_id, body.member_id, body.group_instance_id, body.generation_id,
            fenced=self._guards.fence_stale_sync,
        )  # fmt: skip
        if group is None or error is not ErrorCode.NONE:
            if group is not None:
                self._trace.sync(group, body, error.name)
            return SyncGroupResponse(error_code=error)
        if body.protocol_type not in {None, group.protocol_type} or body.protocol_name not in {None, group.protocol}:
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        member = group.members[body.member_id]
        if group.state is GroupState.PREPARING_REBALANCE:
            self._trace.sync(group, body, ErrorCode.REBALANCE_IN_PROGRESS.name)
            return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        self._trace.sync(group, body, ANSWERED if group.state is GroupState.STABLE else PARKED)
        member.owes_sync = False
        if group.state is GroupState.STABLE:
            self._end_wait_for_syncs(group)
            self._start_session(group, member)
            return sync_response(group, member)
        pending: Pending[SyncGroupResponse] = Pending()
        member.pending_syncs.append(pending)
        self._start_session(group, member)
        if member.member_id == group.leader:
            spawn(self._store_assignments(group, {a.member_id: a.assignment for a in body.assignments}))
        return await pending

    async def _store_assignments(self, group: Group, assignments: dict[str, bytes]) -> None:
        """Store the assignments, then complete every pending SyncGroup with them."""
        incarnation = group.incarnation
        error = ErrorCode.NONE
        if self._guards.persist_before_sync_reply:
            error = await self._store.save_group(group, assignments)
        else:
            spawn(self._save_ignoring_errors(group, assignments))
        if group.state is not GroupState.COMPLETING_REBALANCE or group.incarnation != incarnation:
            return
        if error is not ErrorCode.NONE:
            self._trace.step(group, "StoreFailed")
            self._refuse_syncing(group, error)
            self._begin_rebalance(group)
            return
        self._trace.leader_sync(group, assignments)
        group.move_to(GroupState.STABLE)
        self._end_wait_for_syncs(group)
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.pending_syncs:
                self._start_session(group, member)
                member.answer_syncs(sync_response(group, member))

    def _refuse_syncing(self, group: Group, error: ErrorCode) -> None:
        for member in group.members.values():
            member.answer_syncs(SyncGroupResponse(error_code=error))

    # -- heartbeat and leave -----------------------------------------------------------------------

    async def heartbeat(self, request: Request) -> HeartbeatResponse:
        """Restart the session timeout; REBALANCE_IN_PROGRESS makes the member rejoin."""
        body: HeartbeatRequest = request.body
        error, group = self._checks.find_group(
            body.group_id, body.member_id, body.group_instance_id, body.generation_id,
            fenced=self._guards.fence_stale_heartbeat,
        )  # fmt: skip
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # the member is not known yet, nor is it known to be gone
            return HeartbeatResponse()
        if group is None or error is not ErrorCode.NONE:
            return HeartbeatResponse(error_code=error)
        self._start_session(group, group.members[body.member_id])
        rebalancing = group.state is GroupState.PREPARING_REBALANCE
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE)

    async def leave(self, request: Request) -> LeaveGroupResponse:
        """Remove the members; from version 3 on one request removes several (KIP-345)."""
        body: LeaveGroupRequest = request.body
        error = self._store.check(body.group_id)
        if error is not ErrorCode.NONE:
            return LeaveGroupResponse(error_code=error)
        batch = request.api_version >= LEAVE_BATCH_SINCE
        leaving = body.members if batch else (MemberIdentity(member_id=body.member_id),)
        group = self._store.groups.get(body.group_id)
        results = [(identity, self._leave_one(group, identity)) for identity in leaving]
        if group is not None and any(error is ErrorCode.NONE for _, error in results):
            self._members_left(group)
        if not batch:
            return LeaveGroupResponse(error_code=results[0][1])
        return LeaveGroupResponse(
            members=tuple(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
                )
                for identity, error in results
            )
        )

    def _leave_one(self, group: Group | None, identity: MemberIdentity) -> ErrorCode:
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = identity.member_id
        if member_id in group.pending_members:
            self._purgatory.finish(group.pending_members.pop(member_id))
            return ErrorCode.NONE
        if identity.group_instance_id is not None and not member_id:
            member_id = group.static_members.get(identity.group_instance_id, "")
        error = self._checks.check_member(group, member_id, identity.group_instance_id)
        if error is ErrorCode.NONE:
            self._remove_member(group, member_id, "Expel")
        return error

    def _remove_member(self, group: Group, member_id: str, action: str) -> None:
        member = group.remove(member_id)
        if member is None:
            return
        self._trace.step(group, action, member_id=member_id)
        self._end_session(member)
        if member.pending_join is not None:
            member.pending_join.resolve(refuse_join(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
        member.answer_syncs(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))

    def _members_left(self, group: Group) -> None:
        """Rebalance the remaining members; without any the group becomes Empty at once."""
        if group.state in {GroupState.STABLE, GroupState.COMPLETING_REBALANCE}:
            self._begin_rebalance(group)
        if group.state is GroupState.PREPARING_REBALANCE:
            if group.members:
                self._complete_if_all_joined(group)
            elif not group.pending_members and group.initial_delay is None:
                self._complete_join(group)

    # -- sessions and checks -----------------------------------------------------------------------

    def _start_session(self, group: Group, member: Member) -> None:
        self._end_session(member)
        member.session_ticket = self._purgatory.park(
            member.session_timeout_ms, lambda: self._session_expired(group, member)
        )

    def _end_session(self, member: Member) -> None:
        self._purgatory.finish(member.session_ticket)

    def _session_expired(self, group: Group, member: Member) -> None:
        waiting = member.pending_join is not None or bool(member.pending_syncs)
        if waiting:
            self._start_session(group, member)
        else:
            self._expire(group, member)

    def _expire(self, group: Group, member: Member) -> None:
        if group.members.get(member.member_id) is member:
            self._remove_member(group, member.member_id, "ExpireSession")
            self._members_left(group)

    def resume(self, groups: Iterable[Group]) -> None:
        """Restart the session timeouts after this broker became the coordinator of these groups."""
        for group in groups:
            for member in group.members.values():
                self._start_session(group, member)

    def resign(self, groups: Iterable[Group]) -> None:
        """Complete all pending requests with NOT_COORDINATOR after another broker became the coordinator."""
        for group in groups:
            self._purgatory.finish(group.rebalance_ticket)
            for member in group.members.values():
                self._end_session(member)
                if member.pending_join is not None:
                    member.pending_join.resolve(refuse_join(ErrorCode.NOT_COORDINATOR, member.member_id))
            self._refuse_syncing(group, ErrorCode.NOT_COORDINATOR)
            if group.state is not GroupState.DEAD:
                group.move_to(GroupState.DEAD)

    def hand_over(self, group: Group) -> None:
        """Give up the members of a group that becomes a consumer group: those that wait have to join again."""
        self._purgatory.finish(group.rebalance_ticket)
        for ticket in group.pending_members.values():
            self._purgatory.finish(ticket)
        for member in group.members.values():
            self._end_session(member)
            if member.pending_join is not None:
                member.pending_join.resolve(refuse_join(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
            member.answer_syncs(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        group.forget_classic()

    def take_over(self, group: Group) -> None:
        """Let the members of what was a consumer group join again."""
        for member in group.members.values():
            self._start_session(group, member)
        self._begin_rebalance(group)

    def check_commit(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int, version: int
    ) -> ErrorCode:
        """Return NONE if the member may commit offsets; a client without a generation may if the group is empty.

        The group id may be empty, as that of clients of early versions was.
        """
        error = self._store.check(group_id, may_be_empty=True)
        if error is not ErrorCode.NONE:
            return error
        group = self._store.groups.get(group_id)
        if generation_id < 0 and (group is None or group.state is GroupState.EMPTY):
            return ErrorCode.NONE
        if group is None:
            is_new = version >= UNKNOWN_GROUP_SINCE
            return ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION
        if generation_id == NO_GENERATION and not member_id and instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error, _ = self._checks.find_committer(group_id, member_id, instance_id, generation_id)
        if error is ErrorCode.NONE and group.state is GroupState.COMPLETING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is ErrorCode.NONE and member_id in group.members:
            self._start_session(group, group.members[member_id])
        return error

    def check_transactional_commit(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Check like `check_commit`, but allow a client without member and generation in any group (KIP-447)."""
        error, group = self._store.check(group_id), self._store.groups.get(group_id)
        is_empty, is_nameless = group is None or group.state is GroupState.EMPTY, not member_id and instance_id is None
        if error is not ErrorCode.NONE or (generation_id < 0 and (is_empty or is_nameless)):
            return error
        if group is None:  # as in Apache Kafka 4: OffsetMetadataManager.validateTransactionalOffsetCommit
            return ErrorCode.ILLEGAL_GENERATION
        return self._checks.find_committer(group_id, member_id, instance_id, generation_id)[0]
