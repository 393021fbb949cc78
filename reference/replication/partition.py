"""One replica of a partition: leader or follower, ISR, high watermark, truncation.

The rules that keep acknowledged records are guards (`spec/guards.toml`), each read here once, by name.
Offsets: `log.log_end_offset` is the next to be written; the high watermark is the first not committed.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from reference.context import Context
from reference.procedures import Pending, spawn
from reference.replication.purgatory import Purgatory
from reference.replication.states import NO_LEADER, PartitionState, Remote, state_path
from reference.storage.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET
from reference.storage.log import Log, OffsetOutOfRangeError
from reference.store_client import StoreClient
from reference.store_messages import ANY_VERSION, SetData
from reference.wire.errors import ErrorCode
from reference.wire.records import BatchHeader

Waiter = Callable[[], None]
RETRY_MS = 200


class Role(StrEnum):
    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"


@dataclass(frozen=True, slots=True)
class Diverging:
    """The leader's answer to a follower whose last epoch is not a prefix of its log (KIP-595)."""

    epoch: int
    end_offset: int


@dataclass(slots=True)
class AckWaiter:
    """An acks=all produce: answered when the high watermark reaches `required_offset`."""

    required_offset: int
    pending: Pending[ErrorCode]
    ticket: str


class Partition:
    def __init__(
        self, context: Context, store: StoreClient, purgatory: Purgatory, topic: str, partition: int, log: Log
    ) -> None:
        self._context, self._store, self._purgatory = context, store, purgatory
        self.topic, self.partition = topic, partition
        self.entity = f"{topic}-{partition}"
        self.log = log
        self.high_watermark = log.log_start_offset
        self.role = Role.NONE
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.proposed_isr: tuple[int, ...] | None = None
        self.epoch_start_offset = 0
        self.min_insync_replicas: Callable[[], int] = lambda: 1
        self.is_alive: Callable[[int], bool] = lambda broker_id: True
        self.remotes: dict[int, Remote] = {}
        self._acks: deque[AckWaiter] = deque()
        self.append_waiters: dict[str, Waiter] = {}  # follower fetches: more was appended
        self.commit_waiters: dict[str, Waiter] = {}  # consumer fetches: the high watermark moved

    # -- roles -----------------------------------------------------------------------------------

    def accepts(self, leader_epoch: int) -> bool:
        """A LeaderAndIsr request must be newer than what this replica has acted on."""
        return leader_epoch > self.leader_epoch or not self._context.guards.fence_stale_leader_and_isr

    def become_leader(self, state: PartitionState, replicas: tuple[int, ...]) -> None:
        now_ms = self._context.now.monotonic_ms
        self.role, self.leader, self.leader_epoch = Role.LEADER, self._context.broker_id, state.leader_epoch
        self.partition_epoch, self.isr, self.proposed_isr = state.partition_epoch, state.isr, None
        self.replicas = replicas
        self.epoch_start_offset = self.log.log_end_offset
        self.log.epochs.assign(state.leader_epoch, self.epoch_start_offset)
        self.remotes = {
            replica: Remote(caught_up_ms=now_ms if replica in state.isr else 0)
            for replica in replicas
            if replica != self.leader
        }
        self._context.trace(
            self.entity,
            "BecomeLeader",
            leader_epoch=self.leader_epoch,
            log_end_offset=self.log.log_end_offset,
            high_watermark=self.high_watermark,
            isr=self.isr,
        )
        if self._advance_high_watermark(trace=True):
            self.settle()

    def become_follower(self, state: PartitionState, replicas: tuple[int, ...]) -> None:
        self.role, self.leader, self.leader_epoch = Role.FOLLOWER, state.leader, state.leader_epoch
        self.partition_epoch, self.isr, self.proposed_isr = state.partition_epoch, state.isr, None
        self.replicas = replicas
        self.remotes = {}
        if not self._context.guards.truncate_by_epoch:
            # Before KIP-101: whatever is past our own high watermark might not be the leader's.
            self.log.truncate_to(self.high_watermark)
        self._context.trace(
            self.entity,
            "BecomeFollower",
            leader_epoch=self.leader_epoch,
            leader=self.leader,
            log_end_offset=self.log.log_end_offset,
            high_watermark=self.high_watermark,
        )
        self._refuse_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def stop(self) -> None:
        self.role, self.leader = Role.NONE, NO_LEADER
        self._refuse_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _refuse_waiting(self, error: ErrorCode) -> None:
        waiting, self._acks = self._acks, deque()
        for waiter in waiting:
            self._purgatory.finish(waiter.ticket)
            waiter.pending.resolve(error)
        self._wake(self.append_waiters)
        self._wake(self.commit_waiters)

    # -- leader: write ---------------------------------------------------------------------------

    @property
    def effective_min_isr(self) -> int:
        """min.insync.replicas can ask for no more replicas than there are."""
        return min(self.min_insync_replicas(), len(self.replicas))

    def append(self, batch: bytes, header: BatchHeader) -> int:
        """Append one validated batch; returns its base offset."""
        base_offset = self.log.append_as_leader(batch, header, self.leader_epoch)
        self._context.trace(
            self.entity,
            "LeaderWrite",
            choices={"count": header.last_offset_delta + 1},
            log_end_offset=self.log.log_end_offset,
            leader_epoch=self.leader_epoch,
        )
        self._wake(self.append_waiters)
        if self._advance_high_watermark(trace=True):
            self.settle()
        return base_offset

    def committed(self, required_offset: int, timeout_ms: int) -> Pending[ErrorCode]:
        """Resolves when everything below `required_offset` is committed, or with an error code."""
        pending: Pending[ErrorCode] = Pending()
        if self.high_watermark >= required_offset or not self._context.guards.ack_after_commit:
            self._trace_ack(required_offset)
            pending.resolve(ErrorCode.NONE)
            return pending
        ticket = self._purgatory.park(timeout_ms, lambda: pending.resolve(ErrorCode.REQUEST_TIMED_OUT))
        self._acks.append(AckWaiter(required_offset, pending, ticket))
        return pending

    def _trace_ack(self, required_offset: int) -> None:
        self._context.trace(
            self.entity, "LeaderAck", choices={"last_offset": required_offset - 1}, high_watermark=self.high_watermark
        )

    # -- leader: high watermark and ISR ------------------------------------------------------------

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The committed ISR and whoever a pending proposal adds: they may count already (KIP-497)."""
        if self.proposed_isr is None:
            return self.isr
        return tuple(sorted({*self.isr, *self.proposed_isr}))

    def _advance_high_watermark(self, *, trace: bool) -> bool:
        """The high watermark is the smallest log end over the maximal ISR, and never falls."""
        if self.role is not Role.LEADER:
            return False
        guards = self._context.guards
        if guards.hw_needs_min_isr and len(self.isr) < self.effective_min_isr:
            return False
        ends = [self.log.log_end_offset]
        if guards.hw_needs_whole_isr:
            ends += [self.remotes[replica].log_end_offset for replica in self.maximal_isr if replica in self.remotes]
        candidate = min(ends)
        if candidate <= self.high_watermark:
            return False
        self.high_watermark = candidate
        if trace:
            self._context.trace(self.entity, "LeaderAdvanceHw", high_watermark=candidate)
        return True

    def settle(self) -> None:
        """Answer whoever waited for what has been committed by now."""
        error = ErrorCode.NONE
        if len(self.isr) < self.effective_min_isr:  # only without HwNeedsMinIsr
            error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        while self._acks and self._acks[0].required_offset <= self.high_watermark:
            waiter = self._acks.popleft()
            if not waiter.pending.done:
                self._purgatory.finish(waiter.ticket)
                self._trace_ack(waiter.required_offset)
                waiter.pending.resolve(error)
        self._wake(self.commit_waiters)

    def _can_join(self, replica: int, remote: Remote) -> bool:
        guards = self._context.guards
        caught_up = remote.log_end_offset >= self.high_watermark or not guards.expand_only_caught_up
        past_start = remote.log_end_offset >= self.epoch_start_offset or not guards.expand_after_epoch_start
        return replica not in self.isr and caught_up and past_start and self.is_alive(replica)

    def shrink_isr(self) -> None:
        """Drop members that have not caught up for replica.lag.time.max.ms."""
        if self.role is not Role.LEADER or self.proposed_isr is not None:
            return
        oldest_ms = self._context.now.monotonic_ms - self._context.config.replica_lag_time_max_ms
        end = self.log.log_end_offset
        lagging = {
            replica
            for replica, remote in self.remotes.items()
            if replica in self.isr and remote.log_end_offset < end and remote.caught_up_ms < oldest_ms
        }
        if lagging:
            self._propose(tuple(replica for replica in self.isr if replica not in lagging))

    def _propose(self, isr: tuple[int, ...]) -> None:
        self.proposed_isr = isr
        self._context.trace(self.entity, "LeaderProposeIsr", choices={"isr": isr})
        spawn(self._change_isr(isr, self.leader_epoch))

    async def _change_isr(self, isr: tuple[int, ...], epoch: int) -> None:
        """Write the ISR to the store; until the outcome is known the maximal ISR counts."""
        state = PartitionState(self.leader, self.leader_epoch, isr, controller_epoch=0)
        expected = self.partition_epoch if self._context.guards.isr_cas else ANY_VERSION
        label = state.label(self.entity, "LeaderChangeIsr", self._context.broker_id)
        path = state_path(self.topic, self.partition)
        reply = await self._store.call(SetData(path, state.to_bytes(), expected, label))
        if reply.error in {"ConnectionLoss", "SessionExpired"}:
            await self._purgatory.sleep(RETRY_MS)
        if not self._still(isr, epoch):
            return
        if not reply.error and reply.stat is not None:
            self._learn_isr(isr, reply.stat.version, accepted=True)
            return
        # Refused, or nobody knows: what the store holds decides.
        found = await self._store.get(path)
        if not self._still(isr, epoch):
            return
        if found.error or found.stat is None:
            await self._purgatory.sleep(RETRY_MS)
            if self._still(isr, epoch):
                spawn(self._change_isr(isr, epoch))
            return
        current = PartitionState.from_bytes(found.data, found.stat.version)
        if current.leader_epoch == self.leader_epoch:
            self._learn_isr(current.isr, current.partition_epoch, accepted=False)
        # Otherwise another leader epoch has begun: keep the maximal ISR until LeaderAndIsr says so.

    def _still(self, isr: tuple[int, ...], epoch: int) -> bool:
        return self.role is Role.LEADER and self.leader_epoch == epoch and self.proposed_isr == isr

    def _learn_isr(self, isr: tuple[int, ...], partition_epoch: int, *, accepted: bool) -> None:
        self.isr, self.partition_epoch, self.proposed_isr = isr, partition_epoch, None
        self._advance_high_watermark(trace=False)
        self._context.trace(
            self.entity,
            "LeaderLearnIsr",
            choices={"accepted": accepted},
            isr=self.isr,
            partition_epoch=self.partition_epoch,
            high_watermark=self.high_watermark,
        )
        self.settle()

    # -- leader: serving followers -----------------------------------------------------------------

    def check_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Is the asker's view of the leader epoch ours? -1 does not say (KIP-320)."""
        if self.role is not Role.LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if current_leader_epoch in {-1, self.leader_epoch}:
            return ErrorCode.NONE
        if current_leader_epoch > self.leader_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.FENCED_LEADER_EPOCH if self._context.guards.fence_stale_fetch else ErrorCode.NONE

    def diverging(self, last_fetched_epoch: int, fetch_offset: int) -> Diverging | None:
        """Where the asker's log leaves ours, if it does. OffsetOutOfRangeError when we cannot tell."""
        if last_fetched_epoch == UNDEFINED_EPOCH:
            return None
        epoch, end_offset = self.log.epochs.end_offset_for(last_fetched_epoch, self.log.log_end_offset)
        if end_offset == UNDEFINED_OFFSET:
            raise OffsetOutOfRangeError(fetch_offset)
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return Diverging(epoch, end_offset)
        return None

    def follower_fetched(self, replica: int, fetch_offset: int) -> None:
        """A follower's fetch offset is its log end: everything below is stored there."""
        remote = self.remotes.get(replica)
        if remote is None:
            return
        remote.fetched(fetch_offset, self.log.log_end_offset, self._context.now.monotonic_ms)
        self._advance_high_watermark(trace=False)

    def follower_settled(self, replica: int) -> None:
        """After its fetch was traced: may it join the ISR, and who waited for the high watermark?"""
        remote = self.remotes.get(replica)
        if remote is not None and self.proposed_isr is None and self._can_join(replica, remote):
            self._propose(tuple(sorted({*self.isr, replica})))
        self.settle()

    # -- follower --------------------------------------------------------------------------------

    def append_fetched(self, records: bytes, leader_high_watermark: int) -> None:
        """Append what the leader sent; CorruptBatchError leaves the log as it was before the bad batch."""
        count = self.log.append_as_follower(records) if records else 0
        self.high_watermark = max(self.high_watermark, min(leader_high_watermark, self.log.log_end_offset))
        self._context.trace(
            self.entity,
            "FollowerAppend",
            choices={"count": count},
            log_end_offset=self.log.log_end_offset,
            high_watermark=self.high_watermark,
        )
        self._wake(self.commit_waiters)

    def truncate_to_epoch_end(self, diverging: Diverging) -> None:
        """Cut to where both logs end the largest common epoch (KIP-279); the next fetch says if that is enough."""
        _, end = self.log.epochs.end_offset_for(diverging.epoch, self.log.log_end_offset)
        self.truncate_to(self.high_watermark if end == UNDEFINED_OFFSET else min(end, diverging.end_offset))

    def truncate_to(self, offset: int) -> None:
        self.log.truncate_to(offset)
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
        self._context.trace(
            self.entity,
            "TruncateToEpochEnd",
            choices={"offset": offset},
            log_end_offset=self.log.log_end_offset,
            high_watermark=self.high_watermark,
        )

    # -- waiting ---------------------------------------------------------------------------------

    def _wake(self, waiters: dict[str, Waiter]) -> None:
        for waiter in list(waiters.values()):
            waiter()
