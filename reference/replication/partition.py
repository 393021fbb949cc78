"""One replica of a partition: leader and follower roles, ISR, high watermark and truncation.

Theory of operation
-------------------
A replica is in one role: NONE (the controller has not assigned one yet, or stopped it), LEADER, FOLLOWER, or OFFLINE
after a disk error, which only a restart of the broker ends. The controller alone changes roles, by LeaderAndIsr
(`become_leader`, `become_follower`, `stop`); `accepts` fences requests of an older leader epoch.

Two offsets describe the log: `log.log_end_offset` is the offset of the next record, and the high watermark is the first
offset that is not committed. A leader learns how far a follower is from the follower's next fetch, because the fetch
offset is the follower's log end. The high watermark becomes the smallest log end of all replicas that count:

* those of the ISR, since any of them may be elected;
* those of a proposed ISR, since the controller may have accepted the proposal already (KIP-497);
* caught-up followers outside the ISR, since their next fetch may make them join (KIP-966, KAFKA-15021).

A Produce with acks=all waits in `_acks`, in the order of the log, until the high watermark has passed it.
Consumer fetches wait in `commit_waiters`, follower fetches in `append_waiters`. Fetch sessions stay registered there as
long as they live: what changes a fetch response must call the waiters, or no session reads the partition again.

A follower truncates before it fetches, to the end of its last epoch in the leader's log (KIP-101, KIP-279, KIP-320).
Until 0.10 it truncated to its own high watermark, which loses acknowledged records: the guard `truncate_by_epoch`.

Invariants, checked where they are cheap: the high watermark is between the log start and the log end; it only moves
forward while the replica leads; a leader does not follow itself: `remotes` holds the other replicas, and is empty on a
follower.

Not here: reading and writing requests (`produce`, `fetch`), the fetcher of a follower (`fetcher`), how an ISR change
reaches the controller (`isr_changes`), timers and the set of partitions (`replica_manager`). All rules that protect
acknowledged records are guards (`spec/guards.toml`), read by name. Apache Kafka: kafka.cluster.Partition.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter

from highwater.reference.context import Context
from highwater.reference.procedures import Pending, spawn
from highwater.reference.replication.isr_changes import Answer, IsrChanges, Outcome, Proposal
from highwater.reference.replication.purgatory import Purgatory
from highwater.reference.replication.states import NO_LEADER, FetchClock, PartitionState, Remote
from highwater.reference.storage.corruption import HINT, DamagedDataError
from highwater.reference.storage.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET
from highwater.reference.storage.log import Log, OffsetOutOfRangeError, retain
from highwater.reference.wire.errors import DecodeError, ErrorCode
from highwater.reference.wire.records import BatchHeader

Waiter = Callable[[], None]
RETRY_MS = 200
END_OF_TIME_MS = 1 << 62


class Role(StrEnum):
    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"
    OFFLINE = "offline"  # its disk failed (KIP-112)


@dataclass(frozen=True, slots=True)
class Diverging:
    """The largest common epoch and its end offset, returned to a follower whose log diverges (KIP-595)."""

    epoch: int
    end_offset: int


@dataclass(slots=True)
class AckWaiter:
    """A waiting Produce with acks=all: completes when the high watermark reaches `required_offset`."""

    required_offset: int
    pending: Pending[ErrorCode]
    ticket: str


_required_offset: Callable[[AckWaiter], int] = attrgetter("required_offset")


class Storage:
    """Context manager that takes the partition offline if its disk fails, or if its data cannot be decoded.

    It is a class because every append enters it: `contextlib.contextmanager` would cost three times as much.
    """

    __slots__ = ("_partition",)

    def __init__(self, partition: "Partition") -> None:
        self._partition = partition

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, OSError | DecodeError):
            return False
        self._partition.take_offline(error)
        return True


class Partition:
    def __init__(
        self, context: Context, isr_changes: IsrChanges, purgatory: Purgatory, topic: str, partition: int, log: Log
    ) -> None:
        self._context, self._isr_changes, self._purgatory = context, isr_changes, purgatory
        self.topic, self.partition = topic, partition
        self.entity = f"{topic}-{partition}"
        self.log = log
        self._storage = Storage(self)
        self.high_watermark = log.log_start_offset
        self.role = Role.NONE
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.controller_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.proposed_isr: tuple[int, ...] | None = None
        self.epoch_start_offset = 0
        self.min_insync_replicas: Callable[[], int] = lambda: 1
        self.is_alive: Callable[[int], bool] = lambda broker_id: True
        self.on_offline: Callable[[Partition], None] = lambda partition: None
        self.on_flush_due: Callable[[], None] = lambda: None
        self.remotes: dict[int, Remote] = {}
        self._acks: deque[AckWaiter] = deque()
        self.append_waiters: dict[str, Waiter] = {}  # follower fetches: called after an append
        self.commit_waiters: dict[str, Waiter] = {}  # consumer fetches: called when the high watermark advances

    # -- roles -----------------------------------------------------------------------------------

    def accepts(self, leader_epoch: int) -> bool:
        """Return whether a LeaderAndIsr request is newer than the last one that this replica applied."""
        return leader_epoch > self.leader_epoch or not self._context.guards.fence_stale_leader_and_isr

    def become_leader(self, state: PartitionState, replicas: tuple[int, ...]) -> None:
        now_ms = self._context.now.monotonic_ms
        self.role, self.leader, self.leader_epoch = Role.LEADER, self._context.broker_id, state.leader_epoch
        self._apply_state(state, replicas)
        if not self._context.guards.rebuild_window:
            self.log.producers.expire(END_OF_TIME_MS)
        self.epoch_start_offset = self.log.log_end_offset
        self.log.epochs.assign(state.leader_epoch, self.epoch_start_offset)
        # A replica that is being reassigned away is no longer assigned, but counts until it has left the ISR.
        self.remotes = {
            replica: Remote(caught_up_ms=now_ms if replica in state.isr else 0)
            for replica in dict.fromkeys((*replicas, *state.isr))
            if replica != self.leader
        }
        self._context.trace(
            self.entity,
            "BecomeLeader",
            leader_epoch=self.leader_epoch,
            log_end_offset=self.log.log_end_offset,
            high_watermark=self.high_watermark,
            isr=self.isr,
            min_insync_replicas=self.effective_min_isr,
            controller_epoch=self.controller_epoch,
            partition_epoch=self.partition_epoch,
        )
        assert self.leader not in self.remotes, "a leader does not follow itself"
        assert self.log.log_start_offset <= self.high_watermark or self.log.log_end_offset == self.log.log_start_offset
        if self._advance_high_watermark(trace=True):
            self.complete_committed()
        self._wake(self.append_waiters)  # the fetches in progress are of an older leader epoch
        self._wake(self.commit_waiters)

    def become_follower(self, state: PartitionState, replicas: tuple[int, ...]) -> None:
        self.role, self.leader, self.leader_epoch = Role.FOLLOWER, state.leader, state.leader_epoch
        self._apply_state(state, replicas)
        self.remotes = {}
        if not self._context.guards.truncate_by_epoch:
            # Before KIP-101: records above the own high watermark may be missing in the leader's log.
            self.log.truncate_to(self.high_watermark)
        self._context.trace(
            self.entity,
            "BecomeFollower",
            leader_epoch=self.leader_epoch,
            leader=self.leader,
            log_end_offset=self.log.log_end_offset,
            high_watermark=self.high_watermark,
            controller_epoch=self.controller_epoch,
            partition_epoch=self.partition_epoch,
        )
        self._fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _apply_state(self, state: PartitionState, replicas: tuple[int, ...]) -> None:
        self.partition_epoch, self.isr, self.proposed_isr = state.partition_epoch, state.isr, None
        self.controller_epoch, self.replicas = state.controller_epoch, replicas

    @property
    def offline(self) -> bool:
        return self.role is Role.OFFLINE

    def storage(self) -> "Storage":
        """Return a context manager: a disk error or damaged data in it takes only this replica offline (KIP-112)."""
        return self._storage

    def take_offline(self, error: OSError | DecodeError) -> None:
        remedy = HINT if isinstance(error, DecodeError) else "Fix the disk, then restart the broker."
        text = str(error) if isinstance(error, DamagedDataError) else f"{error}. {remedy}"
        self._context.log("log", f"{self.entity} is offline: {text}", "error")
        self.role, self.leader = Role.OFFLINE, NO_LEADER
        self._fail_waiting(ErrorCode.KAFKA_STORAGE_ERROR)
        self.on_offline(self)

    def stop(self) -> None:
        self.role, self.leader = Role.NONE, NO_LEADER
        self._fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _fail_waiting(self, error: ErrorCode) -> None:
        waiting, self._acks = self._acks, deque()
        for waiter in waiting:
            self._purgatory.finish(waiter.ticket)
            waiter.pending.resolve(error)
        self._wake(self.append_waiters)
        self._wake(self.commit_waiters)

    # -- leader: write ---------------------------------------------------------------------------

    @property
    def effective_min_isr(self) -> int:
        """Return min.insync.replicas, at most the number of assigned replicas."""
        return min(self.min_insync_replicas(), len(self.replicas))

    def has_min_isr(self, isr: tuple[int, ...]) -> bool:
        """Return whether an ISR contains all replicas or at least min.insync.replicas."""
        return len(isr) >= len(self.replicas) or len(isr) >= self.min_insync_replicas()

    def append(self, batch: bytes, header: BatchHeader) -> int:
        """Append one validated batch; return its base offset, or -1 if the disk failed."""
        base_offset = -1
        self._count_session_fetches()
        with self.storage():
            base_offset = self.log.append_as_leader(batch, header, self.leader_epoch)
        if self.offline:
            return base_offset
        self._flush_if_due()
        self._context.trace(
            self.entity,
            "LeaderWrite",
            choices={"count": header.last_offset_delta + 1},
            log_end_offset=self.log.log_end_offset,
            leader_epoch=self.leader_epoch,
        )
        self._wake(self.append_waiters)
        if self._advance_high_watermark(trace=True):
            self.complete_committed()
        return base_offset

    def _flush_if_due(self) -> None:
        """Flush after flush.messages records (kafka-0.7-design, "Writes"); a timer does the flush by time."""
        if self.log.unflushed_messages >= self.log.config.flush_messages:
            self.on_flush_due()

    def committed(self, required_offset: int, timeout_ms: int) -> Pending[ErrorCode]:
        """Resolve with NONE when all records below `required_offset` are committed, or with an error code."""
        pending: Pending[ErrorCode] = Pending()
        if self.offline:
            pending.resolve(ErrorCode.KAFKA_STORAGE_ERROR)
            return pending
        if self.high_watermark >= required_offset or not self._context.guards.ack_after_commit:
            self._trace_ack(required_offset)
            pending.resolve(ErrorCode.NONE)
            return pending
        ticket = self._purgatory.park(timeout_ms, lambda: pending.resolve(ErrorCode.REQUEST_TIMED_OUT))
        insort(self._acks, AckWaiter(required_offset, pending, ticket), key=_required_offset)
        return pending

    def _trace_ack(self, required_offset: int) -> None:
        self._context.trace(
            self.entity, "LeaderAck", choices={"last_offset": required_offset - 1}, high_watermark=self.high_watermark
        )

    # -- leader: high watermark and ISR ------------------------------------------------------------

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Return the committed ISR plus the replicas of a pending proposal, which may be in force (KIP-497)."""
        if self.proposed_isr is None:
            return self.isr
        return tuple(sorted({*self.isr, *self.proposed_isr}))

    def _advance_high_watermark(self, *, trace: bool) -> bool:
        """Set the high watermark to the smallest log end of the replicas it waits for; return whether it advanced."""
        if self.role is not Role.LEADER or self.log.log_end_offset <= self.high_watermark:
            return False
        if not self.has_min_isr(self.isr) and self._context.guards.hw_needs_min_isr:
            return False
        candidate = self.log.log_end_offset
        for replica, remote in self.remotes.items():
            if remote.log_end_offset < candidate and self._blocks_high_watermark(replica, remote):
                candidate = remote.log_end_offset
        if candidate <= self.high_watermark:
            return False
        assert candidate <= self.log.log_end_offset, "a record is committed before it is appended"
        self.high_watermark = candidate
        if trace:
            self._context.trace(self.entity, "LeaderAdvanceHw", high_watermark=candidate)
        return True

    def _blocks_high_watermark(self, replica: int, remote: Remote) -> bool:
        """Return whether the high watermark must wait for this follower.

        It waits for the maximal ISR and for caught-up followers that may join the ISR (KIP-966, KAFKA-15021).
        """
        guards = self._context.guards
        if not guards.hw_needs_whole_isr:
            return False
        if replica in self.isr:
            return True
        if replica in self.maximal_isr:
            return guards.hw_waits_for_proposed
        if remote.log_end_offset < self.high_watermark or not remote.caught_up_since(self._oldest_ms):
            return False
        return self.is_alive(replica) or not guards.wait_only_for_eligible

    @property
    def _oldest_ms(self) -> int:
        return self._context.now.monotonic_ms - self._context.config.replica_lag_time_max_ms

    def complete_committed(self) -> None:
        """Complete every waiting Produce below the high watermark, and wake the waiting consumer fetches."""
        error = ErrorCode.NONE
        reached = bool(self._acks) and self._acks[0].required_offset <= self.high_watermark
        if reached and not self.has_min_isr(self.maximal_isr) and self._context.guards.ack_needs_min_isr:
            error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        while self._acks and self._acks[0].required_offset <= self.high_watermark:
            waiter = self._acks.popleft()
            if not waiter.pending.done:
                self._purgatory.finish(waiter.ticket)
                if error is ErrorCode.NONE:
                    self._trace_ack(waiter.required_offset)
                waiter.pending.resolve(error)
        self._wake(self.commit_waiters)

    def _can_join(self, replica: int, remote: Remote) -> bool:
        guards = self._context.guards
        caught_up = remote.log_end_offset >= self.high_watermark or not guards.expand_only_caught_up
        past_start = remote.log_end_offset >= self.epoch_start_offset or not guards.expand_after_epoch_start
        return replica not in self.isr and caught_up and past_start and self.is_alive(replica)

    def check_isr(self) -> None:
        """Propose to remove lagging followers from the ISR. ReplicaManager calls this on a timer.

        It advances the high watermark first: a follower that no longer blocks it may have timed out since.
        """
        if self.role is not Role.LEADER:
            return
        if self._advance_high_watermark(trace=True):
            self.complete_committed()
        if not self._may_propose:
            return
        lagging = {
            replica for replica, remote in self.remotes.items() if replica in self.isr and self._lags(remote)
        }  # fmt: skip
        if lagging:
            self._propose(tuple(replica for replica in self.isr if replica not in lagging))

    def _lags(self, remote: Remote) -> bool:
        """Return whether a follower exceeds replica.lag.time.max.ms or, until 0.9, replica.lag.max.messages."""
        config, missing = self._context.config, self.log.log_end_offset - remote.log_end_offset
        by_messages = config.isr_lag == "messages_and_time" and missing > config.replica_lag_max_messages
        return missing > 0 and (by_messages or remote.caught_up_ms < self._oldest_ms)

    @property
    def _may_propose(self) -> bool:
        return self.proposed_isr is None or not self._context.guards.one_proposal_at_a_time

    def _propose(self, isr: tuple[int, ...]) -> None:
        self._context.meters.mark("IsrShrinksPerSec" if len(isr) < len(self.isr) else "IsrExpandsPerSec")
        self.proposed_isr = isr
        self._context.trace(self.entity, "LeaderProposeIsr", choices={"isr": isr})
        spawn(self._change_isr(isr, self.leader_epoch))

    async def _change_isr(self, isr: tuple[int, ...], epoch: int) -> None:
        """Propose an ISR until the outcome is known; until then the maximal ISR counts."""
        guards = self._context.guards
        while self._is_current_proposal(isr, epoch):
            known = PartitionState(self.leader, epoch, self.isr, self.controller_epoch, self.partition_epoch)
            answer = await self._isr_changes.propose(Proposal(self.topic, self.partition, known, isr))
            if not self._is_current_proposal(isr, epoch):
                return
            if answer.outcome in {Outcome.ACCEPTED, Outcome.REJECTED}:
                self._apply_answer(answer)
            elif answer.outcome is Outcome.CONFLICT:
                if not guards.await_state_after_conflict:
                    self.proposed_isr = None
                return  # a newer leader epoch exists: keep the maximal ISR until LeaderAndIsr arrives
            elif not guards.keep_proposal_until_answered:
                self.proposed_isr = None
            else:
                await self._purgatory.sleep(RETRY_MS)

    def _is_current_proposal(self, isr: tuple[int, ...], epoch: int) -> bool:
        return self.role is Role.LEADER and self.leader_epoch == epoch and self.proposed_isr == isr

    def _apply_answer(self, answer: Answer) -> None:
        if answer.partition_epoch < self.partition_epoch and self._context.guards.ignore_stale_state:
            return
        self._count_session_fetches()
        self.isr, self.partition_epoch, self.proposed_isr = answer.isr, answer.partition_epoch, None
        self._advance_high_watermark(trace=False)
        self._context.trace(
            self.entity,
            "LeaderLearnIsr",
            choices={"accepted": answer.outcome is Outcome.ACCEPTED},
            isr=self.isr,
            partition_epoch=self.partition_epoch,
            high_watermark=self.high_watermark,
        )
        self.complete_committed()

    # -- leader: serving followers -----------------------------------------------------------------

    def check_epoch(self, current_leader_epoch: int, *, from_follower: bool = False) -> ErrorCode:
        """Compare the requester's leader epoch with this replica's; -1 skips the check (KIP-320).

        Then only a leader passes, unless the requester may read from a follower (KIP-392). The epoch is compared first
        (Apache Kafka's Partition.getLocalLog): a client that asks a former leader learns which of the two is outdated.
        """
        if self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.role is not Role.NONE and current_leader_epoch != -1:
            if current_leader_epoch > self.leader_epoch:
                return ErrorCode.UNKNOWN_LEADER_EPOCH
            if current_leader_epoch < self.leader_epoch and self._context.guards.fence_stale_fetch:
                return ErrorCode.FENCED_LEADER_EPOCH
        passes = self.role is Role.LEADER or (self.role is Role.FOLLOWER and from_follower)
        return ErrorCode.NONE if passes else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def diverging(self, last_fetched_epoch: int, fetch_offset: int) -> Diverging | None:
        """Return where the requester's log diverges from this one, or None.

        Raises OffsetOutOfRangeError if the leader epoch cache does not cover `last_fetched_epoch`.
        """
        if last_fetched_epoch == UNDEFINED_EPOCH:
            return None
        epoch, end_offset = self.log.epochs.end_offset_for(last_fetched_epoch, self.log.log_end_offset)
        if end_offset == UNDEFINED_OFFSET or fetch_offset < self.log.log_start_offset:
            raise OffsetOutOfRangeError(fetch_offset)
        # KIP-101 compared end offsets only; an epoch that the leader never had also means divergence (KIP-279).
        unknown_epoch = epoch < last_fetched_epoch and self._context.guards.truncate_to_common_epoch
        if unknown_epoch or end_offset < fetch_offset:
            return Diverging(epoch, end_offset)
        return None

    def update_follower_state(self, replica: int, fetch_offset: int, session: FetchClock | None = None) -> bool:
        """Record a follower's log end, which is its fetch offset; return whether the high watermark advanced.

        `session` is the follower's fetch session: its later fetches count for this partition without being recorded.
        """
        remote = self.remotes.get(replica)
        if remote is None:
            return False
        leader_end = self.log.log_end_offset
        remote.count_session_fetches(leader_end)
        remote.update_fetch_state(fetch_offset, leader_end, self._context.now.monotonic_ms)
        remote.session = session
        return self._advance_high_watermark(trace=False)

    def maybe_expand_isr(self, replica: int) -> None:
        """Expand the ISR if the follower may join; call it after the fetch is traced."""
        remote = self.remotes.get(replica)
        if remote is not None and self._may_propose and self._can_join(replica, remote):
            self._propose(tuple(sorted({*self.isr, replica})))

    def is_settled(self, replica: int) -> bool:
        """Return whether a follower's next fetch at the log end would change nothing.

        False while records are not committed or the follower is not in the ISR: what they wait for, such as a smaller
        min.insync.replicas or a broker's registration, calls no waiter.
        """
        joined = replica in self.isr or replica not in self.remotes
        return joined and self.high_watermark >= self.log.log_end_offset

    def leave_session(self, replica: int, session: FetchClock) -> None:
        """Stop counting the fetches of a session that is closed or no longer includes this partition."""
        remote = self.remotes.get(replica)
        if remote is not None and remote.session is session:
            remote.count_session_fetches(self.log.log_end_offset)
            remote.session = None

    def _count_session_fetches(self) -> None:
        for remote in self.remotes.values():
            remote.count_session_fetches(self.log.log_end_offset)

    def preferred_read_replica(self, rack: str, fetch_offset: int, rack_of: Callable[[int], str | None]) -> int:
        """Return the ISR follower in the reader's rack with the largest log end offset, or -1 (KIP-392).

        -1 also if the leader is in that rack, if this replica is not the leader, or if the offset is before the log:
        a follower would refuse it, too.
        """
        is_before = fetch_offset < self.log.log_start_offset
        if self.role is not Role.LEADER or rack_of(self.leader) == rack or is_before:
            return NO_LEADER
        near = [
            (remote.log_end_offset, -replica)
            for replica, remote in self.remotes.items()
            if replica in self.isr
            and rack_of(replica) == rack
            and remote.log_start_offset <= fetch_offset <= remote.log_end_offset
        ]
        return -max(near)[1] if near else NO_LEADER

    # -- follower --------------------------------------------------------------------------------

    def append_fetched(self, records: bytes, leader_high_watermark: int) -> None:
        """Append the fetched batches. Raises CorruptBatchError; the batches before the corrupt one stay appended."""
        count = 0
        with self.storage():
            count = self.log.append_as_follower(records) if records else 0
        if self.offline:
            return
        self._flush_if_due()
        self.raise_high_watermark(leader_high_watermark)
        self._context.trace(
            self.entity,
            "FollowerAppend",
            choices={"count": count},
            log_end_offset=self.log.log_end_offset,
            high_watermark=self.high_watermark,
        )
        self._wake(self.commit_waiters)

    def advance_log_start(self, offset: int) -> None:
        """Advance the log start (KIP-107), and call the waiters: fetch responses and requests carry it."""
        with self.storage():
            self.log.advance_log_start(offset)
        self._wake(self.commit_waiters)

    def retain(self, wall_ms: int) -> None:
        """Delete the expired segments, and call the waiters if that advanced the log start."""
        log_start = self.log.log_start_offset
        with self.storage():
            retain(self.log, wall_ms, self.high_watermark)
        if self.log.log_start_offset > log_start:
            self._wake(self.commit_waiters)

    def restart_at(self, offset: int) -> None:
        """Replace the log by an empty one at `offset`, the leader's log start, because the leader deleted the rest."""
        with self.storage():
            self.log.truncate_fully(offset)
            self.high_watermark = offset
        self._wake(self.commit_waiters)

    def raise_high_watermark(self, leader_high_watermark: int) -> None:
        self.high_watermark = max(self.high_watermark, min(leader_high_watermark, self.log.log_end_offset))

    def truncate_to_epoch_end(self, diverging: Diverging) -> None:
        """Truncate to the end of the largest common epoch (KIP-279); the next fetch may report divergence again."""
        if not self._context.guards.truncate_to_common_epoch:
            self.truncate_to(min(diverging.end_offset, self.log.log_end_offset))
            return
        _, end = self.log.epochs.end_offset_for(diverging.epoch, self.log.log_end_offset)
        self.truncate_to(self.high_watermark if end == UNDEFINED_OFFSET else min(end, diverging.end_offset))

    def truncate_to(self, offset: int) -> None:
        # The leader epoch cache drops entries past the end even if no record is removed (KAFKA-10706).
        if offset < self.log.log_end_offset or self._context.guards.forget_truncated_epochs:
            before = dict(self.log.producers.entries)
            with self.storage():
                self.log.truncate_to(offset)
            if not self._context.guards.forget_truncated_batches:
                self.log.producers.remember_batches(before)
        if self.offline:
            return
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
        self._context.trace(
            self.entity,
            "TruncateToEpochEnd",
            choices={"offset": offset},
            log_end_offset=self.log.log_end_offset,
            high_watermark=self.high_watermark,
        )
        self._wake(self.commit_waiters)

    # -- waiting ---------------------------------------------------------------------------------

    def _wake(self, waiters: dict[str, Waiter]) -> None:
        for waiter in list(waiters.values()):
            waiter()
