"""A group member without I/O: finds its coordinator, joins, syncs, sends heartbeats, commits offsets, leaves.

It is a node like the broker; the application also calls `poll`, `commit` and `leave`. A rebalance begins inside `poll`,
as in Apache Kafka's consumer. A member that does not poll for `max_poll_interval_ms` leaves the group (KIP-62). The
actions are those of `spec/eager_rebalance` and `spec/cooperative_rebalance`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from highwater.reference.clients.assignors import ASSIGNORS
from highwater.reference.clients.ownership import Listener, Ownership
from highwater.reference.clients.subscriptions import (
    NO_GENERATION,
    Partition,
    Subscription,
    pack_assignment,
    unpack_assignment,
)
from highwater.reference.effects import Effect, Instant, Outbox, Request, Response, SetTimer, broker_peer
from highwater.reference.guards import Guards
from highwater.reference.state_table import StateTable
from highwater.reference.wire.errors import DecodeError, ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from highwater.reference.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from highwater.reference.wire.messages.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

# --------------------------------------------------------------------------------------------------
# The states of a group member and every transition between them (Apache Kafka's AbstractCoordinator).


class MemberState(StrEnum):
    UNJOINED = "Unjoined"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    CLOSED = "Closed"


S = MemberState
_REJECTED: Final = "rejected, or timed out: joins again at the next poll"
_ENDED: Final = "left the group, or fenced by another process with the same group.instance.id"

MEMBER_TABLE: Final = StateTable(
    "member",
    "kafka-2.4-rebalance; KIP-429; Apache Kafka AbstractCoordinator",
    S.UNJOINED,
    {
        (S.UNJOINED, S.PREPARING_REBALANCE): "poll: an eager member revokes all; sends JoinGroup with claims",
        (S.STABLE, S.PREPARING_REBALANCE): "poll after REBALANCE_IN_PROGRESS or a revocation; the same actions",
        (S.PREPARING_REBALANCE, S.COMPLETING_REBALANCE): "JoinGroup response; the leader assigns; sends SyncGroup",
        (S.COMPLETING_REBALANCE, S.STABLE): "SyncGroup response; adds new partitions, revokes removed ones at a poll",
        (S.PREPARING_REBALANCE, S.UNJOINED): _REJECTED,
        (S.COMPLETING_REBALANCE, S.UNJOINED): _REJECTED,
        (S.STABLE, S.UNJOINED): "unknown member id or illegal generation: all partitions are lost",
        (S.UNJOINED, S.CLOSED): _ENDED,
        (S.PREPARING_REBALANCE, S.CLOSED): _ENDED,
        (S.COMPLETING_REBALANCE, S.CLOSED): _ENDED,
        (S.STABLE, S.CLOSED): _ENDED,
    },
)


VERSIONS: Final[Mapping[type, int]] = {
    FindCoordinatorRequest: 2,
    MetadataRequest: 9,
    JoinGroupRequest: 9,
    SyncGroupRequest: 5,
    HeartbeatRequest: 4,
    OffsetCommitRequest: 8,
    LeaveGroupRequest: 5,
}
CONSUMER: Final = "consumer"
TICK: Final = "member-tick"
JOIN_GRACE_MS: Final = 5_000
"""A member waits this much longer than the rebalance timeout for JoinGroup, as in Apache Kafka's client."""

COORDINATOR_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
RebalanceRequest = JoinGroupRequest | SyncGroupRequest | MetadataRequest
"""The requests of a rebalance; at most one of them is pending."""


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """Consumer settings with Kafka's names; times in milliseconds. `assignors` are names, the preferred one first."""

    group_id: str
    topics: frozenset[str]
    assignors: tuple[str, ...] = ("range",)
    group_instance_id: str | None = None
    session_timeout_ms: int = 6_000
    heartbeat_interval_ms: int = 2_000
    max_poll_interval_ms: int = 10_000
    request_timeout_ms: int = 1_000
    retry_backoff_ms: int = 100
    metadata_max_age_ms: int = 5_000
    guards: Guards = field(default_factory=Guards)


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A pending request, with the member id and generation at the time it was sent."""

    body: Any
    broker_id: int
    due_ms: int
    member_id: str
    generation: int


class GroupMember:
    """`bootstrap` are the ids of the brokers for FindCoordinator, in turn; `on_commit` gets the result of commits."""

    def __init__(
        self, bootstrap: Sequence[int], config: MemberConfig, listener: Listener,
        on_commit: Callable[[ErrorCode], None] = lambda error: None,
    ) -> None:  # fmt: skip
        self._bootstrap, self._config, self._on_commit = bootstrap, config, on_commit
        self._guards = config.guards
        self._assignors = [ASSIGNORS[name] for name in config.assignors]
        self._ownership = Ownership(self._assignors, config.guards, listener)
        self._out = Outbox()
        self._now = Instant(0, 0)
        self._pending: dict[int, PendingRequest] = {}
        self._late: dict[
            int, PendingRequest
        ] = {}  # cancelled, but a response is still handled; empty with guard MatchReplies
        self._bootstrap_index = self._correlation_id = 0
        self._coordinator = -1
        self._retry_ms = self._heartbeat_ms = self._polled_ms = 0
        self._rejoin = True
        self._joined: JoinGroupResponse = JoinGroupResponse()
        self._members: dict[str, Subscription] = {}  # leader only: the members of the JoinGroup response
        self._partition_counts: dict[str, int] = {}  # leader only: partitions per topic at the last assignment
        self._refresh_ms = 0
        self.state = MemberState.UNJOINED
        self.member_id, self.generation_id = "", NO_GENERATION

    @property
    def owned(self) -> frozenset[Partition]:
        return self._ownership.owned

    @property
    def fetchable(self) -> frozenset[Partition]:
        """Return the partitions that the application may process, also during a rebalance."""
        return self._ownership.owned - self._ownership.revoking

    # -- events ------------------------------------------------------------------------------------

    def start(self, now: Instant) -> list[Effect]:
        self._polled_ms = now.monotonic_ms
        return self._step(now, lambda: None)

    def receive(self, now: Instant, source: str, message: Response) -> list[Effect]:
        number = message.correlation_id
        pending = self._pending.pop(number, None) or self._late.pop(number, None)
        return self._step(now, lambda: self._handle_response(pending, message.body) if pending else None)

    def fire(self, now: Instant, timer: str) -> list[Effect]:
        return self._step(now, self._check_poll)

    def complete(self, now: Instant, token: str) -> list[Effect]:
        return []

    def closed(self, now: Instant, peer: str) -> list[Effect]:
        return self._step(now, lambda: self._expire(lambda pending: broker_peer(pending.broker_id) == peer))

    def poll(self, now: Instant) -> list[Effect]:
        """Revoke removed partitions, and join the group if a rebalance is needed."""
        self._polled_ms = now.monotonic_ms
        return self._step(now, self._poll)

    def commit(self, now: Instant, offsets: Mapping[Partition, int]) -> list[Effect]:
        """Commit offsets. Fails at once during a rebalance, because the partitions may be about to be reassigned."""
        return self._step(now, lambda: self._commit(offsets))

    def leave(self, now: Instant) -> list[Effect]:
        """Leave and close. A static member sends no LeaveGroup, and stays until its session expires (KIP-345)."""
        return self._step(now, self._leave)

    def _step(self, now: Instant, action: Callable[[], None]) -> list[Effect]:
        self._now = now
        action()
        self._expire(lambda pending: pending.due_ms <= now.monotonic_ms)
        if self.state is not MemberState.CLOSED:
            self._send_due_requests()
            self._out.add(SetTimer(TICK, self._next_tick_ms()))
        return self._out.drain()

    def _next_tick_ms(self) -> int:
        now_ms, config = self._now.monotonic_ms, self._config
        due = [pending.due_ms for pending in self._pending.values()]
        due += [self._retry_ms, self._heartbeat_ms, self._refresh_ms, self._polled_ms + config.max_poll_interval_ms]
        return min((due_ms for due_ms in due if due_ms > now_ms), default=now_ms + config.heartbeat_interval_ms)

    # -- requests ----------------------------------------------------------------------------------

    def _send_request(self, broker_id: int, body: Any, wait_ms: int | None = None) -> None:
        self._correlation_id += 1
        due_ms = self._now.monotonic_ms + (self._config.request_timeout_ms if wait_ms is None else wait_ms)
        self._pending[self._correlation_id] = PendingRequest(
            body, broker_id, due_ms, self.member_id, self.generation_id
        )
        self._out.send(broker_peer(broker_id), Request(self._correlation_id, VERSIONS[type(body)], body, CONSUMER))

    def _is_pending(self, kind: type) -> bool:
        return any(isinstance(pending.body, kind) for pending in self._pending.values())

    def _send_due_requests(self) -> None:
        """Send what is due: FindCoordinator, a heartbeat, or the leader's metadata refresh."""
        now_ms, config = self._now.monotonic_ms, self._config
        if self._coordinator < 0:
            if now_ms >= self._retry_ms and not self._is_pending(FindCoordinatorRequest):
                self._bootstrap_index += 1
                broker_id = self._bootstrap[self._bootstrap_index % len(self._bootstrap)]
                self._send_request(broker_id, FindCoordinatorRequest(key=config.group_id))
        elif self.state is MemberState.STABLE and now_ms >= self._heartbeat_ms:
            self._heartbeat_ms = now_ms + config.heartbeat_interval_ms
            heartbeat = HeartbeatRequest(
                group_id=config.group_id, generation_id=self.generation_id, member_id=self.member_id,
                group_instance_id=config.group_instance_id,
            )  # fmt: skip
            self._send_request(self._coordinator, heartbeat)
        elif self.state is MemberState.STABLE and self._partition_counts and now_ms >= self._refresh_ms:
            self._request_metadata()

    def _transition(self, state: MemberState) -> None:
        MEMBER_TABLE.check(self.state, state)
        self.state = state

    # -- joining ---------------------------------------------------------------------------------

    def _poll(self) -> None:
        if self._ownership.revoking:
            self._ownership.revoke_removed()
            if self.state is MemberState.STABLE:
                self._rejoin = self._rejoin or self._guards.rejoin_after_revoke
        may_ask = self._coordinator >= 0 and self._now.monotonic_ms >= self._retry_ms
        if self._rejoin and may_ask and self.state in {MemberState.UNJOINED, MemberState.STABLE}:
            self._send_join()

    def _send_join(self) -> None:
        config = self._config
        self._cancel_rebalance_requests()
        self._ownership.prepare_join(is_member=self.generation_id != NO_GENERATION)
        self._transition(MemberState.PREPARING_REBALANCE)
        join = JoinGroupRequest(
            group_id=config.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=CONSUMER,
            protocols=tuple(
                JoinGroupRequestProtocol(
                    name=assignor.name, metadata=self._ownership.subscription(config.topics, assignor)
                )
                for assignor in self._assignors
            ),
        )
        self._send_request(self._coordinator, join, config.max_poll_interval_ms + JOIN_GRACE_MS)

    def _handle_join(self, body: JoinGroupResponse) -> None:
        if self.state is not MemberState.PREPARING_REBALANCE:
            return
        if body.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = body.member_id
            self._transition(MemberState.UNJOINED)
            self._send_join()
            return
        if self._handle_error(ErrorCode(body.error_code)):
            return
        self._transition(MemberState.COMPLETING_REBALANCE)
        self.member_id, self.generation_id = body.member_id, body.generation_id
        self._rejoin = False
        self._joined, self._partition_counts = body, {}
        if body.leader == body.member_id and not body.skip_assignment:
            self._update_members(body)
            self._request_metadata()
        else:
            self._send_sync({})

    def _update_members(self, body: JoinGroupResponse) -> None:
        members: dict[str, Subscription] = {}
        for member in body.members:
            members[member.member_id] = Subscription(frozenset())
            with suppress(DecodeError):  # a member with undecodable metadata gets no partition
                members[member.member_id] = Subscription.decode(member.metadata, member.group_instance_id)
        self._members = members if self._guards.leader_assigns_members_only else {**self._members, **members}

    def _request_metadata(self) -> None:
        self._refresh_ms = self._now.monotonic_ms + self._config.metadata_max_age_ms
        topics = sorted(frozenset[str]().union(*(member.topics for member in self._members.values())))
        requested = tuple(MetadataRequestTopic(name=topic) for topic in topics)
        self._send_request(self._coordinator, MetadataRequest(topics=requested, allow_auto_topic_creation=False))

    def _handle_metadata(self, body: MetadataResponse) -> None:
        """Assign the partitions of the topics (leader); later, rejoin if the partition counts have changed."""
        counts = {topic.name: len(topic.partitions) for topic in body.topics if topic.name and topic.partitions}
        if self.state is MemberState.STABLE:
            self._rejoin = self._rejoin or counts != self._partition_counts
        if self.state is not MemberState.COMPLETING_REBALANCE:
            return
        self._partition_counts = counts
        assignor = ASSIGNORS[self._joined.protocol_name or ""]
        shares = assignor.assign(self._members, counts, self._guards)
        self._send_sync({member_id: pack_assignment(share) for member_id, share in shares.items()})

    def _send_sync(self, assignments: Mapping[str, bytes]) -> None:
        sync = SyncGroupRequest(
            group_id=self._config.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=CONSUMER,
            protocol_name=self._joined.protocol_name,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in assignments.items()
            ),
        )
        self._send_request(self._coordinator, sync, self._config.max_poll_interval_ms + JOIN_GRACE_MS)

    def _handle_sync(self, body: SyncGroupResponse) -> None:
        if self.state is not MemberState.COMPLETING_REBALANCE or self._handle_error(ErrorCode(body.error_code)):
            return
        self._cancel_rebalance_requests()
        self._transition(MemberState.STABLE)
        self._heartbeat_ms = self._now.monotonic_ms + self._config.heartbeat_interval_ms
        self._ownership.apply_assignment(unpack_assignment(body.assignment), self.generation_id)
        if self._ownership.revoking and not self._guards.revoke_before_rejoin:
            self._send_join()

    # -- responses ---------------------------------------------------------------------------------

    def _handle_response(self, pending: PendingRequest, body: Any) -> None:
        if self.state is MemberState.CLOSED:
            return
        match body:
            case FindCoordinatorResponse():
                found = body.error_code == ErrorCode.NONE
                self._coordinator = body.node_id if found else -1
                if not found:
                    self._back_off()
            case JoinGroupResponse():
                self._handle_join(body)
            case MetadataResponse():
                self._handle_metadata(body)
            case SyncGroupResponse():
                self._handle_sync(body)
            case HeartbeatResponse():
                self._handle_member_error(pending, ErrorCode(body.error_code))
            case OffsetCommitResponse():
                codes = [ErrorCode(part.error_code) for topic in body.topics for part in topic.partitions]
                error = next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
                self._handle_member_error(pending, error)
                self._on_commit(error)

    def _handle_member_error(self, pending: PendingRequest, error: ErrorCode) -> None:
        """Handle the error of a heartbeat or commit, unless it was sent with an older member id or generation."""
        current = (self.member_id, self.generation_id)
        if self.state is MemberState.STABLE and (pending.member_id, pending.generation) == current:
            self._handle_error(error)

    def _handle_error(self, error: ErrorCode) -> bool:
        """Handle the error code of a response; return False if there is no error."""
        if error is ErrorCode.NONE:
            return False
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self._ownership.lose()
            self._transition(MemberState.CLOSED)
        elif error is ErrorCode.REBALANCE_IN_PROGRESS and self.state is MemberState.STABLE:
            self._rejoin = self._rejoin or self._guards.rejoin_on_rebalance
        elif error in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}:
            self._lose(forget_id=error is ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            if error in COORDINATOR_MOVED:
                self._coordinator = -1
            self._retry_later()
        return True

    def _lose(self, *, forget_id: bool) -> None:
        if forget_id:
            self.member_id = ""
        self.generation_id = NO_GENERATION
        self._rejoin = True
        self._ownership.lose()
        if self.state is not MemberState.UNJOINED:
            self._transition(MemberState.UNJOINED)
        self._cancel_rebalance_requests()

    def _retry_later(self) -> None:
        """Retry after a backoff. A rebalance in progress restarts with JoinGroup; a stable member remains stable."""
        self._back_off()
        if self.state in {MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE}:
            self._transition(MemberState.UNJOINED)
            self._rejoin = True
            self._cancel_rebalance_requests()

    def _cancel_rebalance_requests(self) -> None:
        """Cancel the pending requests of a rebalance, so that late responses to them are not used."""
        self._cancel(lambda pending: isinstance(pending.body, RebalanceRequest))

    def _cancel(self, condition: Callable[[PendingRequest], bool]) -> list[PendingRequest]:
        cancelled = {key: pending for key, pending in self._pending.items() if condition(pending)}
        for key in cancelled:
            del self._pending[key]
        if not self._guards.match_replies:
            self._late.update(cancelled)
        return list(cancelled.values())

    # -- time ------------------------------------------------------------------------------------

    def _back_off(self) -> None:
        self._retry_ms = self._now.monotonic_ms + self._config.retry_backoff_ms

    def _expire(self, condition: Callable[[PendingRequest], bool]) -> None:
        """Cancel requests without a response; their coordinator may have changed, so find it again."""
        for pending in self._cancel(condition):
            if isinstance(pending.body, OffsetCommitRequest):
                self._on_commit(ErrorCode.REQUEST_TIMED_OUT)
            if pending.broker_id == self._coordinator:
                self._coordinator = -1
            if (
                isinstance(pending.body, RebalanceRequest | FindCoordinatorRequest)
                and self.state is not MemberState.CLOSED
            ):
                self._retry_later()

    def _check_poll(self) -> None:
        """Leave the group if the application has stopped polling: other members get its partitions (KIP-62)."""
        late = self._now.monotonic_ms - self._polled_ms >= self._config.max_poll_interval_ms
        if late and self.generation_id != NO_GENERATION and self.state is not MemberState.CLOSED:
            self._send_leave()
            self._lose(forget_id=True)

    # -- commit and leave --------------------------------------------------------------------------

    def _commit(self, offsets: Mapping[Partition, int]) -> None:
        if self.state is not MemberState.STABLE or self._coordinator < 0:
            self._on_commit(ErrorCode.REBALANCE_IN_PROGRESS)
            return
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, number), offset in sorted(offsets.items()):
            partition = OffsetCommitRequestPartition(partition_index=number, committed_offset=offset)
            topics.setdefault(topic, []).append(partition)
        body = OffsetCommitRequest(
            group_id=self._config.group_id,
            generation_id_or_member_epoch=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id,
            topics=tuple(OffsetCommitRequestTopic(name=name, partitions=tuple(t)) for name, t in topics.items()),
        )
        self._send_request(self._coordinator, body)

    def _send_leave(self) -> None:
        if self._coordinator >= 0 and self._config.group_instance_id is None:
            identity = MemberIdentity(member_id=self.member_id)
            self._send_request(
                self._coordinator, LeaveGroupRequest(group_id=self._config.group_id, members=(identity,))
            )

    def _leave(self) -> None:
        if self.state is MemberState.CLOSED:
            return
        self._ownership.revoke_all()
        if self.member_id:
            self._send_leave()
        self._transition(MemberState.CLOSED)
