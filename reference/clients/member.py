"""A group member without I/O: finds its coordinator, joins, syncs, keeps its place by heartbeats, commits, leaves.

A node like the broker; besides the entrances of every node the application has `poll`, `commit` and `leave`.  A
rebalance begins inside `poll`, as in Apache Kafka's consumer; who does not poll for `max_poll_interval_ms` leaves the
group (KIP-62).  The actions are those of `spec/eager_rebalance` and `spec/cooperative_rebalance`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from reference.clients.assignors import ASSIGNORS
from reference.clients.member_states import MEMBER_TABLE, MemberState
from reference.clients.ownership import Listener, Ownership
from reference.clients.subscriptions import (
    NO_GENERATION,
    Partition,
    Subscription,
    pack_assignment,
    unpack_assignment,
)
from reference.effects import Effect, Outbox, SetTimer
from reference.events import Instant, Request, Response, broker_peer
from reference.guards import Guards
from reference.wire.errors import DecodeError, ErrorCode
from reference.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from reference.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from reference.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from reference.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from reference.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from reference.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from reference.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

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
"""So much longer than the rebalance timeout a member waits for the answer to JoinGroup, as Apache Kafka's does."""

COORDINATOR_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
Flow = JoinGroupRequest | SyncGroupRequest | MetadataRequest
"""Of these one at a time is awaited: the steps of joining."""


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """Kafka's names; times in milliseconds. `assignors` by name, the preferred one first."""

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
class Asked:
    """A request that is under way, and as which member of which generation it was asked."""

    body: Any
    broker_id: int
    due_ms: int
    member_id: str
    generation: int


class GroupMember:
    """`bootstrap` are the brokers that are asked for the coordinator, in turn; `on_commit` hears how commits end."""

    def __init__(
        self, bootstrap: Sequence[int], config: MemberConfig, listener: Listener,
        on_commit: Callable[[ErrorCode], None] = lambda error: None,
    ) -> None:  # fmt: skip
        self._bootstrap, self._config, self._on_commit = bootstrap, config, on_commit
        self._guards = config.guards
        self._assignors = [ASSIGNORS[name] for name in config.assignors]
        self._has = Ownership(self._assignors, config.guards, listener)
        self._out = Outbox()
        self._now = Instant(0, 0)
        self._asked: dict[int, Asked] = {}
        self._late: dict[int, Asked] = {}  # given up, and answered perhaps; nothing, by MatchReplies
        self._turn = self._correlation_id = 0
        self._coordinator = -1
        self._retry_ms = self._beat_ms = self._polled_ms = 0
        self._rejoin = True
        self._joined: JoinGroupResponse = JoinGroupResponse()
        self._known: dict[str, Subscription] = {}  # members of which a leader was told
        self._counts: dict[str, int] = {}  # of each topic: the partitions that a leader divided
        self._refresh_ms = 0
        self.state = MemberState.UNJOINED
        self.member_id, self.generation_id = "", NO_GENERATION

    @property
    def owned(self) -> frozenset[Partition]:
        return self._has.owned

    @property
    def fetchable(self) -> frozenset[Partition]:
        """What the application may process between two polls, also while a rebalance is under way."""
        return self._has.owned - self._has.revoking

    # -- entrances -------------------------------------------------------------------------------

    def start(self, now: Instant) -> list[Effect]:
        self._polled_ms = now.monotonic_ms
        return self._step(now, lambda: None)

    def receive(self, now: Instant, source: str, message: Response) -> list[Effect]:
        number = message.correlation_id
        asked = self._asked.pop(number, None) or self._late.pop(number, None)
        return self._step(now, lambda: self._answered(asked, message.body) if asked else None)

    def fire(self, now: Instant, timer: str) -> list[Effect]:
        return self._step(now, self._check_poll)

    def complete(self, now: Instant, token: str) -> list[Effect]:
        return []

    def closed(self, now: Instant, peer: str) -> list[Effect]:
        return self._step(now, lambda: self._expire(lambda asked: broker_peer(asked.broker_id) == peer))

    def poll(self, now: Instant) -> list[Effect]:
        """Revoke what was taken away; join, if there is a reason to."""
        self._polled_ms = now.monotonic_ms
        return self._step(now, self._poll)

    def commit(self, now: Instant, offsets: Mapping[Partition, int]) -> list[Effect]:
        """Between JoinGroup and the answer to SyncGroup it fails at once: what is committed for may be about to go."""
        return self._step(now, lambda: self._commit(offsets))

    def leave(self, now: Instant) -> list[Effect]:
        """Close. A static member only stops: its place waits for it until the session expires (KIP-345)."""
        return self._step(now, self._leave)

    def _step(self, now: Instant, work: Callable[[], None]) -> list[Effect]:
        self._now = now
        work()
        self._expire(lambda asked: asked.due_ms <= now.monotonic_ms)
        if self.state is not MemberState.CLOSED:
            self._go_on()
            self._out.add(SetTimer(TICK, self._next_tick_ms()))
        return self._out.drain()

    def _next_tick_ms(self) -> int:
        now_ms, config = self._now.monotonic_ms, self._config
        due = [asked.due_ms for asked in self._asked.values()]
        due += [self._retry_ms, self._beat_ms, self._refresh_ms, self._polled_ms + config.max_poll_interval_ms]
        return min((each for each in due if each > now_ms), default=now_ms + config.heartbeat_interval_ms)

    # -- asking ----------------------------------------------------------------------------------

    def _ask(self, broker_id: int, body: Any, wait_ms: int | None = None) -> None:
        self._correlation_id += 1
        due_ms = self._now.monotonic_ms + (self._config.request_timeout_ms if wait_ms is None else wait_ms)
        self._asked[self._correlation_id] = Asked(body, broker_id, due_ms, self.member_id, self.generation_id)
        self._out.send(broker_peer(broker_id), Request(self._correlation_id, VERSIONS[type(body)], body, CONSUMER))

    def _is_asking(self, kind: type) -> bool:
        return any(isinstance(asked.body, kind) for asked in self._asked.values())

    def _go_on(self) -> None:
        """Find the coordinator, or show it that this member lives."""
        now_ms, config = self._now.monotonic_ms, self._config
        if self._coordinator < 0:
            if now_ms >= self._retry_ms and not self._is_asking(FindCoordinatorRequest):
                self._turn += 1
                broker_id = self._bootstrap[self._turn % len(self._bootstrap)]
                self._ask(broker_id, FindCoordinatorRequest(key=config.group_id))
        elif self.state is MemberState.STABLE and now_ms >= self._beat_ms:
            self._beat_ms = now_ms + config.heartbeat_interval_ms
            beat = HeartbeatRequest(
                group_id=config.group_id, generation_id=self.generation_id, member_id=self.member_id,
                group_instance_id=config.group_instance_id,
            )  # fmt: skip
            self._ask(self._coordinator, beat)
        elif self.state is MemberState.STABLE and self._counts and now_ms >= self._refresh_ms:
            self._ask_for_partitions()

    def _move(self, state: MemberState) -> None:
        MEMBER_TABLE.check(self.state, state)
        self.state = state

    # -- joining ---------------------------------------------------------------------------------

    def _poll(self) -> None:
        if self._has.revoking:
            self._has.revoke_taken()
            if self.state is MemberState.STABLE:
                self._rejoin = self._rejoin or self._guards.rejoin_after_revoke
        may_ask = self._coordinator >= 0 and self._now.monotonic_ms >= self._retry_ms
        if self._rejoin and may_ask and self.state in {MemberState.UNJOINED, MemberState.STABLE}:
            self._send_join()

    def _send_join(self) -> None:
        config = self._config
        self._forget_flow()
        self._has.prepare_join(is_member=self.generation_id != NO_GENERATION)
        self._move(MemberState.PREPARING_REBALANCE)
        join = JoinGroupRequest(
            group_id=config.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=CONSUMER,
            protocols=tuple(
                JoinGroupRequestProtocol(name=each.name, metadata=self._has.subscription(config.topics, each))
                for each in self._assignors
            ),
        )
        self._ask(self._coordinator, join, config.max_poll_interval_ms + JOIN_GRACE_MS)

    def _take_join_reply(self, body: JoinGroupResponse) -> None:
        if self.state is not MemberState.PREPARING_REBALANCE:
            return
        if body.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = body.member_id
            self._move(MemberState.UNJOINED)
            self._send_join()
            return
        if self._refused(ErrorCode(body.error_code)):
            return
        self._move(MemberState.COMPLETING_REBALANCE)
        self.member_id, self.generation_id = body.member_id, body.generation_id
        self._rejoin = False
        self._joined, self._counts = body, {}
        if body.leader == body.member_id and not body.skip_assignment:
            self._learn_members(body)
            self._ask_for_partitions()
        else:
            self._send_sync({})

    def _learn_members(self, body: JoinGroupResponse) -> None:
        members: dict[str, Subscription] = {}
        for each in body.members:
            members[each.member_id] = Subscription(frozenset())
            with suppress(DecodeError):  # nothing can be given to a member that cannot be understood
                members[each.member_id] = Subscription.decode(each.metadata, each.group_instance_id)
        self._known = members if self._guards.leader_assigns_members_only else {**self._known, **members}

    def _ask_for_partitions(self) -> None:
        self._refresh_ms = self._now.monotonic_ms + self._config.metadata_max_age_ms
        topics = sorted(frozenset[str]().union(*(each.topics for each in self._known.values())))
        wanted = tuple(MetadataRequestTopic(name=topic) for topic in topics)
        self._ask(self._coordinator, MetadataRequest(topics=wanted, allow_auto_topic_creation=False))

    def _take_metadata(self, body: MetadataResponse) -> None:
        """The leader divides what there is now; if later there is more or less, it joins again, and all do."""
        counts = {topic.name: len(topic.partitions) for topic in body.topics if topic.name and topic.partitions}
        if self.state is MemberState.STABLE:
            self._rejoin = self._rejoin or counts != self._counts
        if self.state is not MemberState.COMPLETING_REBALANCE:
            return
        self._counts = counts
        assignor = ASSIGNORS[self._joined.protocol_name or ""]
        shares = assignor.assign(self._known, counts, self._guards)
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
        self._ask(self._coordinator, sync, self._config.max_poll_interval_ms + JOIN_GRACE_MS)

    def _take_sync_reply(self, body: SyncGroupResponse) -> None:
        if self.state is not MemberState.COMPLETING_REBALANCE or self._refused(ErrorCode(body.error_code)):
            return
        self._forget_flow()
        self._move(MemberState.STABLE)
        self._beat_ms = self._now.monotonic_ms + self._config.heartbeat_interval_ms
        self._has.take(unpack_assignment(body.assignment), self.generation_id)
        if self._has.revoking and not self._guards.revoke_before_rejoin:
            self._send_join()

    # -- answers ---------------------------------------------------------------------------------

    def _answered(self, asked: Asked, body: Any) -> None:
        if self.state is MemberState.CLOSED:
            return
        match body:
            case FindCoordinatorResponse():
                found = body.error_code == ErrorCode.NONE
                self._coordinator = body.node_id if found else -1
                if not found:
                    self._pause()
            case JoinGroupResponse():
                self._take_join_reply(body)
            case MetadataResponse():
                self._take_metadata(body)
            case SyncGroupResponse():
                self._take_sync_reply(body)
            case HeartbeatResponse():
                self._take_error(asked, ErrorCode(body.error_code))
            case OffsetCommitResponse():
                errors = [ErrorCode(each.error_code) for topic in body.topics for each in topic.partitions]
                error = next((each for each in errors if each is not ErrorCode.NONE), ErrorCode.NONE)
                self._take_error(asked, error)
                self._on_commit(error)

    def _take_error(self, asked: Asked, error: ErrorCode) -> None:
        """Of a heartbeat or a commit; what is said to an earlier member id or generation concerns nobody any more."""
        now = (self.member_id, self.generation_id)
        if self.state is MemberState.STABLE and (asked.member_id, asked.generation) == now:
            self._refused(error)

    def _refused(self, error: ErrorCode) -> bool:
        """What follows from an error; no error, no refusal."""
        if error is ErrorCode.NONE:
            return False
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self._has.lose()
            self._move(MemberState.CLOSED)
        elif error is ErrorCode.REBALANCE_IN_PROGRESS and self.state is MemberState.STABLE:
            self._rejoin = self._rejoin or self._guards.rejoin_on_rebalance
        elif error in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}:
            self._lose(forget_id=error is ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            if error in COORDINATOR_MOVED:
                self._coordinator = -1
            self._step_back()
        return True

    def _lose(self, *, forget_id: bool) -> None:
        if forget_id:
            self.member_id = ""
        self.generation_id = NO_GENERATION
        self._rejoin = True
        self._has.lose()
        if self.state is not MemberState.UNJOINED:
            self._move(MemberState.UNJOINED)
        self._forget_flow()

    def _step_back(self) -> None:
        """Ask again after a pause. Who was joining has to begin anew; who was stable still has its place."""
        self._pause()
        if self.state in {MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE}:
            self._move(MemberState.UNJOINED)
            self._rejoin = True
            self._forget_flow()

    def _forget_flow(self) -> None:
        """Whatever still comes to an earlier step of joining is not for this one."""
        self._forget(lambda asked: isinstance(asked.body, Flow))

    def _forget(self, which: Callable[[Asked], bool]) -> list[Asked]:
        gone = {key: asked for key, asked in self._asked.items() if which(asked)}
        for key in gone:
            del self._asked[key]
        if not self._guards.match_replies:
            self._late.update(gone)
        return list(gone.values())

    # -- time ------------------------------------------------------------------------------------

    def _pause(self) -> None:
        self._retry_ms = self._now.monotonic_ms + self._config.retry_backoff_ms

    def _expire(self, which: Callable[[Asked], bool]) -> None:
        """No answer will come, or none in time: perhaps the coordinator is another now."""
        for asked in self._forget(which):
            if isinstance(asked.body, OffsetCommitRequest):
                self._on_commit(ErrorCode.REQUEST_TIMED_OUT)
            if asked.broker_id == self._coordinator:
                self._coordinator = -1
            if isinstance(asked.body, Flow | FindCoordinatorRequest) and self.state is not MemberState.CLOSED:
                self._step_back()

    def _check_poll(self) -> None:
        """An application that polls no more holds up its partitions: others shall have them (KIP-62)."""
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
        self._ask(self._coordinator, body)

    def _send_leave(self) -> None:
        if self._coordinator >= 0 and self._config.group_instance_id is None:
            identity = MemberIdentity(member_id=self.member_id)
            self._ask(self._coordinator, LeaveGroupRequest(group_id=self._config.group_id, members=(identity,)))

    def _leave(self) -> None:
        if self.state is MemberState.CLOSED:
            return
        self._has.revoke_all()
        if self.member_id:
            self._send_leave()
        self._move(MemberState.CLOSED)
