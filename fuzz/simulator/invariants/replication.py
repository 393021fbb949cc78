"""Invariants of the replicas of one partition: no committed or acknowledged record is lost, and logs agree."""

from dataclasses import dataclass, field
from typing import Any

from highwater.fuzz.simulator.invariants.contents import CommittedLog
from highwater.fuzz.simulator.invariants.violations import About, SituationCounts, Violated
from highwater.reference.drivers.simulation.world import Host
from highwater.reference.replication.partition import Partition, Role
from highwater.reference.replication.states import PartitionState

Batch = tuple[int, int, int, int]  # base offset, last offset, leader epoch, CRC
ReplicaState = tuple[Any, ...]
RECENT = 64
"""Number of newest batches that are compared with other replicas; older ones were compared when they were new."""


@dataclass(slots=True)
class Replica:
    """A replica at the last check."""

    life: int
    role: Role = Role.NONE
    leader_epoch: int = -1
    high_watermark: int = 0
    log_end_offset: int = 0
    once_stored: int = 0  # highest log end offset before the last restart
    isr: tuple[int, ...] = ()
    proposed_isr: tuple[int, ...] | None = None
    batches: list[Batch] = field(default_factory=list)
    matched: int = 0  # number of its batches that equal committed batches
    passed: int = 0  # number of committed batches that it has, or whose records were compacted away
    state: ReplicaState | None = None  # the replica object and its checked attributes


class ReplicatedPartition:
    """The replicas of one partition, with all that any leader ever committed.

    `doubtful`: brokers that lost their log tail and have not rejoined the ISR, and brokers with corrupted disks. In a
    `compacted` log each replica drops and rewrites batches at its own time; the remaining ones keep offsets and epochs.
    """

    def __init__(
        self, name: str, brokers: int, min_insync_replicas: int, doubtful: tuple[set[int], set[int]],
        situations: SituationCounts, violated: Violated, *, contents: CommittedLog | None = None,
        compacted: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        self.contents = contents
        self.enough = min(min_insync_replicas, brokers)
        self._unclean, self._unreadable = doubtful
        self._situations, self._violated, self.compacted = situations, violated, compacted
        self.replicas: dict[int, Replica] = {}
        self._unread: set[int] = set()  # brokers that were forgotten and not checked since
        self.state: PartitionState | None = None
        self.eligible: frozenset[int] = frozenset()  # the ISR and the eligible leader replicas (KIP-966)
        self.committed: list[Batch] = []  # all that was below the high watermark of any leader
        self.committed_end = 0
        self.acknowledged_end = 0
        self._batches: dict[tuple[int, int], Batch] = {}  # (base offset, leader epoch) -> the batch that has both
        self._leaders: dict[int, int] = {}  # leader epoch -> its leader

    # -- events ------------------------------------------------------------------------------------

    def acknowledged(self, offset: int) -> None:
        """Record an acknowledged offset."""
        if offset >= self.acknowledged_end:
            self.acknowledged_end = offset + 1
            self._check_eligible("acknowledged", self.acknowledged_end)

    def stored(self, state: PartitionState) -> None:
        """Take the new partition state of the metadata store."""
        self.state = state
        self.eligible = frozenset(state.isr) | (self.eligible if len(state.isr) < self.enough else frozenset())
        self._check_eligible("committed", self.committed_end)
        leader = self.replicas.get(state.leader)
        if leader is not None:
            self._check_counts(state.leader, leader)

    def forget(self, broker_ids: set[int]) -> None:
        """Drop the known state of these brokers; their next check starts at the start of the log."""
        self._unread |= broker_ids & (self.replicas.keys() | self._in_sync())
        for broker_id in broker_ids & self.replicas.keys():
            del self.replicas[broker_id]

    def removed(self, host: Host, broker_id: int) -> None:
        """Handle a running broker without the replica: deleted, or not created since the last start."""
        last = self.replicas.get(broker_id)
        if last is not None and (last.log_end_offset or last.life != host.life):
            self._begin_life(host, broker_id)
            self._check_eligible("committed", self.committed_end)

    def update(self, host: Host, broker_id: int, replica: Partition, state: ReplicaState) -> None:
        """Check a replica whose state has changed."""
        last = self.replicas.get(broker_id)
        if last is None or last.life != host.life:
            last = self._begin_life(host, broker_id)
        last.state = state
        end = replica.log.log_end_offset
        if end != last.log_end_offset:
            self._read(last, replica, end)
        self._check_role(broker_id, last, replica)
        before, last.high_watermark = last.high_watermark, replica.high_watermark
        same_leader_epoch = replica.leader_epoch == last.leader_epoch and replica.role is last.role is Role.LEADER
        last.leader_epoch, last.role, last.log_end_offset = replica.leader_epoch, replica.role, end
        last.isr, last.proposed_isr = replica.isr, replica.proposed_isr
        self._check_high_watermark(last, before, same_leader_epoch=same_leader_epoch)
        if replica.role is Role.LEADER:
            self._check_counts(broker_id, last)

    def _begin_life(self, host: Host, broker_id: int) -> Replica:
        last = self.replicas.get(broker_id)
        stored = max(last.log_end_offset, last.once_stored) if last is not None else 0
        self.replicas[broker_id] = Replica(host.life, once_stored=stored)
        self._unread.discard(broker_id)
        return self.replicas[broker_id]

    def _broken(self, invariant: str, message: str, offset: int = -1) -> None:
        self._violated(invariant, f"{self.name}: {message}", About(self.name, offset))

    # -- logs --------------------------------------------------------------------------------------

    def _read(self, last: Replica, replica: Partition, end: int) -> None:
        """Read the appended batches, or drop the truncated ones."""
        batches = last.batches
        if end < last.log_end_offset:
            self._situations.add("truncation")
            self._situations["records truncated"] += last.log_end_offset - end
            while batches and batches[-1][1] >= end:
                batches.pop()
            last.matched = 0 if self.compacted else min(last.matched, len(batches))
            last.passed = last.matched
        start = batches[-1][1] + 1 if batches else 0
        if start >= end:
            return
        for header in replica.log.headers(start):
            crc = 0 if self.compacted else header.crc
            batch = (header.base_offset, header.last_offset, header.partition_leader_epoch, crc)
            if batches and batch[2] < batches[-1][2]:
                self._broken(
                    "EpochsAscend", f"epoch {batch[2]} at offset {batch[0]} after epoch {batches[-1][2]}", batch[0]
                )
            known = self._batches.setdefault((batch[0], batch[2]), batch)
            if known != batch:
                self._broken(
                    "LogMatching",
                    f"offset {batch[0]} of epoch {batch[2]} has different batches on two replicas",
                    batch[0],
                )
            batches.append(batch)

    def _check_high_watermark(self, last: Replica, before: int, *, same_leader_epoch: bool) -> None:
        if last.high_watermark > last.log_end_offset:
            self._broken(
                "HwWithinLog",
                f"the high watermark is {last.high_watermark}, the log end offset {last.log_end_offset}",
                last.log_end_offset,
            )
        if same_leader_epoch and last.high_watermark < before:
            self._broken(
                "HwNeverFalls",
                f"the high watermark falls from {before} to {last.high_watermark} in leader epoch {last.leader_epoch}",
                last.high_watermark,
            )
        if last.role is Role.LEADER and last.high_watermark > self.committed_end:
            self._match(last, "LeadersAgree")
            self._commit(last)
        else:
            self._match(last, "LeadersAgree" if last.role is Role.LEADER else "ReadersAgree")

    def _commit(self, leader: Replica) -> None:
        """Record the batches below the leader's high watermark as committed."""
        for batch in leader.batches[leader.matched :]:
            if batch[1] >= leader.high_watermark:
                break
            self.committed.append(batch)
            leader.matched += 1
        leader.passed = len(self.committed)
        self.committed_end = leader.high_watermark
        if self.contents is not None and leader.state is not None:
            self.contents.commit(leader.state[0])
        # A broker that joined the ISR while its log could not be read has no entry in `replicas` yet.
        unseen = self._unread | (self._unreadable & self._in_sync()) - self.replicas.keys()
        holders = len(unseen) + sum(self._has_stored(each, self.committed_end) for each in self.replicas)
        if holders < self.enough:
            self._broken(
                "EnoughHold",
                f"{self.committed_end} records are committed, and {holders} replicas have stored them",
                self.committed_end - 1,
            )
        self._check_eligible("committed", self.committed_end)

    def _in_sync(self) -> set[int]:
        return set(self.state.isr) if self.state is not None else set()

    def _has_stored(self, broker_id: int, end: int) -> bool:
        """Return whether the broker stored the log up to `end`, even if a crash has since lost the tail.

        The leader counts such a follower until it learns of the crash.
        """
        replica = self.replicas[broker_id]
        lost = broker_id in self._unclean and replica.once_stored >= end
        return lost or replica.log_end_offset >= end or broker_id in self._unreadable

    def _match(self, last: Replica, invariant: str) -> None:
        """Check that the replica has the committed batches below its high watermark."""
        batches, committed = last.batches, self.committed
        start = last.state[0].log.log_start_offset if last.state is not None else 0
        while last.passed < len(committed) and committed[last.passed][1] < start:  # deleted by retention or a client
            last.passed += 1
        while last.matched < len(batches) and batches[last.matched][1] < start:
            last.matched += 1
        while last.matched < len(batches) and last.passed < len(committed):
            found, expected = batches[last.matched], committed[last.passed]
            if found[1] >= last.high_watermark:
                break
            if found != expected and not (self.compacted and self._cleaned(last, found, expected)):
                self._broken(
                    invariant,
                    f"offset {found[0]} has epoch {found[2]}; committed is {expected[0]} of epoch {expected[2]}",
                    min(found[0], expected[0]),
                )
            if found == expected:
                last.matched += 1
                last.passed += 1

    def _cleaned(self, last: Replica, found: Batch, expected: Batch) -> bool:
        """Skip a batch that compaction removed on one of the replicas; return False if the two batches overlap."""
        if found[0] > expected[1]:
            last.passed += 1
        elif found[1] < expected[0]:
            last.matched += 1
        else:
            return False
        return True

    # -- roles -------------------------------------------------------------------------------------

    def _check_role(self, broker_id: int, last: Replica, replica: Partition) -> None:
        epoch, state = replica.leader_epoch, self.state
        if epoch < last.leader_epoch:
            self._broken("BrokersGoForward", f"the leader epoch falls from {last.leader_epoch} to {epoch}")
        if state is not None and epoch > state.leader_epoch:
            self._broken(
                "BrokersNotAhead", f"acts in leader epoch {epoch}; the metadata store has {state.leader_epoch}"
            )
        if replica.role is not Role.LEADER:
            return
        if last.role is not Role.LEADER or epoch != last.leader_epoch:
            self._situations.add("leader change" if self._leaders else "first leader")
            other = self._leaders.setdefault(epoch, broker_id)
            if other != broker_id:
                self._broken("OneLeaderPerEpoch", f"leads in epoch {epoch}, as {other} did")
        is_current = state is not None and (state.leader, state.leader_epoch) == (broker_id, epoch)
        if is_current and replica.log.log_end_offset < self.acknowledged_end:
            self._broken(
                "AckedSurvives",
                f"leads in epoch {epoch} with a log that ends at {replica.log.log_end_offset}; "
                f"offset {self.acknowledged_end - 1} was acknowledged",
                replica.log.log_end_offset,
            )

    def _check_counts(self, broker_id: int, leader: Replica) -> None:
        """LeaderCountsIsr: the leader waits for every replica that the metadata store has in the ISR."""
        state = self.state
        if state is None or leader.role is not Role.LEADER:
            return
        if (state.leader, state.leader_epoch) == (broker_id, leader.leader_epoch):
            missing = set(state.isr) - set(leader.isr) - set(leader.proposed_isr or ())
            if missing:
                self._broken("LeaderCountsIsr", f"the ISR is {state.isr}, and leader {broker_id} counts {leader.isr}")

    def _check_eligible(self, what: str, end: int) -> None:
        """CommittedOnEligible: every replica that may be elected has all records below `end`, except doubtful ones."""
        if self.state is None:
            return
        for member in (*self.state.isr, *self.state.elr):
            replica = self.replicas.get(member)
            doubtful = member in self._unclean or member in self._unreadable
            if replica is not None and replica.log_end_offset < end and not doubtful:
                self._broken(
                    "CommittedOnEligible",
                    f"broker {member} may be elected and lacks offset {replica.log_end_offset}; "
                    f"everything below {end} is {what}",
                    replica.log_end_offset,
                )

    def holds_committed(self, broker_id: int) -> bool:
        """Return whether the broker has every committed record (for the fault budget)."""
        replica = self.replicas.get(broker_id)
        return replica is not None and replica.log_end_offset >= self.committed_end
