"""Replicas of one partition: what was committed or acknowledged is kept, and logs agree."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from highwater.fuzz.simulator.invariants.violations import Seen
from highwater.reference.drivers.simulation.world import Host
from highwater.reference.replication.partition import Partition, Role
from highwater.reference.replication.states import PartitionState

Batch = tuple[int, int, int, int]  # base offset, last offset, leader epoch, CRC
Violated = Callable[[str, str], None]
Shown = tuple[Any, ...]
RECENT = 64
"""So many batches are compared by epoch with those of other replicas; older ones were when they were new."""


@dataclass(slots=True)
class Replica:
    """A replica as it was when last looked at."""

    life: int
    role: Role = Role.NONE
    leader_epoch: int = -1
    high_watermark: int = 0
    log_end_offset: int = 0
    once_stored: int = 0  # where the log ended in a former life
    isr: tuple[int, ...] = ()
    proposed_isr: tuple[int, ...] | None = None
    batches: list[Batch] = field(default_factory=list)
    matched: int = 0  # so many batches were found equal to what was committed
    passed: int = 0  # so many committed batches were found, or had been cleaned away
    shown: Shown | None = None  # the replica itself, and all of it that is looked at


class ReplicatedPartition:
    """`doubtful`: brokers that lost their tail and have not joined the ISR again, and those whose disk rots.

    The cleaner of a `compacted` log drops batches and rewrites others, at its own time on every replica; those that
    stay keep their offsets and epochs.
    """

    def __init__(
        self, brokers: int, min_insync_replicas: int, doubtful: tuple[set[int], set[int]], seen: Seen,
        violated: Violated, *, compacted: bool = False,
    ) -> None:  # fmt: skip
        self.enough = min(min_insync_replicas, brokers)
        self._unclean, self._unreadable = doubtful
        self._seen, self._violated, self._compacted = seen, violated, compacted
        self.replicas: dict[int, Replica] = {}
        self.state: PartitionState | None = None
        self.eligible: frozenset[int] = frozenset()  # the ISR, and who may be elected beside it by the rules of KIP-966
        self.committed: list[Batch] = []  # what any leader ever had below its high watermark
        self.committed_end = 0
        self.acknowledged_end = 0
        self._known: dict[tuple[int, int], Batch] = {}  # (base offset, leader epoch) -> the one batch that has both
        self._leaders: dict[int, int] = {}  # leader epoch -> who led

    # -- what happens ------------------------------------------------------------------------------

    def acknowledged(self, offset: int) -> None:
        if offset >= self.acknowledged_end:
            self.acknowledged_end = offset + 1
            self._check_eligible("acknowledged", self.acknowledged_end)

    def stored(self, state: PartitionState) -> None:
        """The store holds another state."""
        self.state = state
        self.eligible = frozenset(state.isr) | (self.eligible if len(state.isr) < self.enough else frozenset())
        self._check_eligible("committed", self.committed_end)
        leader = self.replicas.get(state.leader)
        if leader is not None:
            self._check_counts(state.leader, leader)

    def forget(self, broker_ids: set[int]) -> None:
        for broker_id in broker_ids:
            self.replicas.pop(broker_id, None)

    def gone(self, host: Host, broker_id: int) -> None:
        """The broker runs, and has no such replica: it was deleted, or never made in this life."""
        last = self.replicas.get(broker_id)
        if last is not None and (last.log_end_offset or last.life != host.life):
            self._begin_life(host, broker_id)
            self._check_eligible("committed", self.committed_end)

    def look(self, host: Host, broker_id: int, replica: Partition, shown: Shown) -> None:
        """Something of what a replica shows has changed."""
        last = self.replicas.get(broker_id)
        if last is None or last.life != host.life:
            last = self._begin_life(host, broker_id)
        last.shown = shown
        end = replica.log.log_end_offset
        if end != last.log_end_offset:
            self._read(last, replica, end)
        self._check_role(broker_id, last, replica)
        before, last.high_watermark = last.high_watermark, replica.high_watermark
        same_office = replica.leader_epoch == last.leader_epoch and replica.role is last.role is Role.LEADER
        last.leader_epoch, last.role, last.log_end_offset = replica.leader_epoch, replica.role, end
        last.isr, last.proposed_isr = replica.isr, replica.proposed_isr
        self._check_high_watermark(last, before, same_office=same_office)
        if replica.role is Role.LEADER:
            self._check_counts(broker_id, last)

    def _begin_life(self, host: Host, broker_id: int) -> Replica:
        last = self.replicas.get(broker_id)
        stored = max(last.log_end_offset, last.once_stored) if last is not None else 0
        self.replicas[broker_id] = Replica(host.life, once_stored=stored)
        return self.replicas[broker_id]

    # -- logs --------------------------------------------------------------------------------------

    def _read(self, last: Replica, replica: Partition, end: int) -> None:
        """Take in what was appended, or forget what was cut."""
        batches = last.batches
        if end < last.log_end_offset:
            self._seen.add("truncation")
            self._seen["records truncated"] += last.log_end_offset - end
            while batches and batches[-1][1] >= end:
                batches.pop()
            last.matched = 0 if self._compacted else min(last.matched, len(batches))
            last.passed = last.matched
        start = batches[-1][1] + 1 if batches else 0
        if start >= end:
            return
        for header in replica.log.headers(start):
            crc = 0 if self._compacted else header.crc
            batch = (header.base_offset, header.last_offset, header.partition_leader_epoch, crc)
            if batches and batch[2] < batches[-1][2]:
                self._violated("EpochsAscend", f"epoch {batch[2]} at offset {batch[0]} after epoch {batches[-1][2]}")
            known = self._known.setdefault((batch[0], batch[2]), batch)
            if known != batch:
                self._violated(
                    "LogMatching", f"offset {batch[0]} of epoch {batch[2]} is another batch than on another replica"
                )
            batches.append(batch)

    def _check_high_watermark(self, last: Replica, before: int, *, same_office: bool) -> None:
        if last.high_watermark > last.log_end_offset:
            self._violated("HwWithinLog", f"high watermark {last.high_watermark}, log end {last.log_end_offset}")
        if same_office and last.high_watermark < before:
            self._violated("HwNeverFalls", f"from {before} to {last.high_watermark} in epoch {last.leader_epoch}")
        if last.role is Role.LEADER and last.high_watermark > self.committed_end:
            self._match(last, "LeadersAgree")
            self._commit(last)
        else:
            self._match(last, "LeadersAgree" if last.role is Role.LEADER else "ReadersAgree")

    def _commit(self, leader: Replica) -> None:
        """What a leader commits is committed for good."""
        for batch in leader.batches[leader.matched :]:
            if batch[1] >= leader.high_watermark:
                break
            self.committed.append(batch)
            leader.matched += 1
        leader.passed = len(self.committed)
        self.committed_end = leader.high_watermark
        holders = sum(self._has_stored(broker_id, self.committed_end) for broker_id in self.replicas)
        if holders < self.enough:
            self._violated(
                "EnoughHold", f"{self.committed_end} records are committed, and {holders} replicas have stored them"
            )
        self._check_eligible("committed", self.committed_end)

    def _has_stored(self, broker_id: int, end: int) -> bool:
        """A leader counts what a follower fetched, until it hears of the crash that took it."""
        replica = self.replicas[broker_id]
        lost = broker_id in self._unclean and replica.once_stored >= end
        return lost or replica.log_end_offset >= end or broker_id in self._unreadable

    def _match(self, last: Replica, invariant: str) -> None:
        """Below its high watermark every replica holds what was committed there."""
        batches, committed = last.batches, self.committed
        while last.matched < len(batches) and last.passed < len(committed):
            held, wanted = batches[last.matched], committed[last.passed]
            if held[1] >= last.high_watermark:
                break
            if held != wanted and not (self._compacted and self._cleaned(last, held, wanted)):
                self._violated(
                    invariant, f"offset {held[0]} holds epoch {held[2]}; committed was {wanted[0]} of epoch {wanted[2]}"
                )
            if held == wanted:
                last.matched += 1
                last.passed += 1

    def _cleaned(self, last: Replica, held: Batch, wanted: Batch) -> bool:
        """Pass over a batch that is gone here, or was gone where it was committed; False when they contradict."""
        if held[0] > wanted[1]:
            last.passed += 1
        elif held[1] < wanted[0]:
            last.matched += 1
        else:
            return False
        return True

    # -- roles -------------------------------------------------------------------------------------

    def _check_role(self, broker_id: int, last: Replica, replica: Partition) -> None:
        epoch, state = replica.leader_epoch, self.state
        if epoch < last.leader_epoch:
            self._violated("BrokersGoForward", f"leader epoch {last.leader_epoch} to {epoch}")
        if state is not None and epoch > state.leader_epoch:
            self._violated("BrokersNotAhead", f"acts in leader epoch {epoch}, the store holds {state.leader_epoch}")
        if replica.role is not Role.LEADER:
            return
        if last.role is not Role.LEADER or epoch != last.leader_epoch:
            self._seen.add("leader change" if self._leaders else "first leader")
            other = self._leaders.setdefault(epoch, broker_id)
            if other != broker_id:
                self._violated("OneLeaderPerEpoch", f"leads in epoch {epoch}, as {other} did")
        present = state is not None and (state.leader, state.leader_epoch) == (broker_id, epoch)
        if present and replica.log.log_end_offset < self.acknowledged_end:
            self._violated(
                "AckedSurvives",
                f"leads in epoch {epoch} with a log that ends at {replica.log.log_end_offset}; "
                f"offset {self.acknowledged_end - 1} was acknowledged",
            )

    def _check_counts(self, broker_id: int, leader: Replica) -> None:
        """The leader counts everybody whom the store has in the ISR."""
        state = self.state
        if state is None or leader.role is not Role.LEADER:
            return
        if (state.leader, state.leader_epoch) == (broker_id, leader.leader_epoch):
            missing = set(state.isr) - set(leader.isr) - set(leader.proposed_isr or ())
            if missing:
                self._violated("LeaderCountsIsr", f"the ISR is {state.isr}, and leader {broker_id} counts {leader.isr}")

    def _check_eligible(self, what: str, end: int) -> None:
        """Whoever may be elected has all of it, but for those that lost their tail and are about to leave the ISR."""
        if self.state is None:
            return
        for member in (*self.state.isr, *self.state.elr):
            replica = self.replicas.get(member)
            doubtful = member in self._unclean or member in self._unreadable
            if replica is not None and replica.log_end_offset < end and not doubtful:
                self._violated(
                    "CommittedOnEligible",
                    f"{member} may be elected and ends at {replica.log_end_offset}; everything below {end} is {what}",
                )

    def holds_committed(self, broker_id: int) -> bool:
        """Has this broker every committed record? (for the fault budget)"""
        replica = self.replicas.get(broker_id)
        return replica is not None and replica.log_end_offset >= self.committed_end
