"""What must hold after every event of a simulation. Each look is at the replica that just moved, and at what is new.

Names are those of the properties in `spec/hw_truncation/HwTruncation.tla`.
"""

from dataclasses import dataclass, field

from fuzz.simulated_cluster import SimulatedCluster
from reference.broker import Broker
from reference.drivers.simulation.world import Host
from reference.replication.partition import Partition, Role

Batch = tuple[int, int, int]  # last offset, leader epoch, CRC


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str
    at_ms: int
    event: int
    broker: int
    message: str

    def __str__(self) -> str:
        return f"{self.invariant} at {self.at_ms} ms, event {self.event}, broker {self.broker}: {self.message}"


class ViolationError(Exception):
    def __init__(self, violation: Violation) -> None:
        super().__init__(str(violation))
        self.violation = violation


@dataclass(slots=True)
class Look:
    """A replica as it was when last looked at."""

    life: int = 0
    role: Role = Role.NONE
    leader_epoch: int = -1
    high_watermark: int = 0
    log_end_offset: int = 0
    matched: int = 0  # below this offset its log was found equal to what was committed


@dataclass(slots=True)
class Committed:
    """What any leader has ever had below its high watermark, and what was acknowledged."""

    batches: dict[int, Batch] = field(default_factory=dict)  # by base offset
    end: int = 0
    acknowledged_end: int = 0


class Invariants:
    """Attach `after_event` to a world; raises ViolationError at the first event that breaks one."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster, self._world = cluster, cluster.world
        self._looks: dict[tuple[int, int], Look] = {}
        self.committed: dict[int, Committed] = {n: Committed() for n in range(cluster.settings.partitions)}
        self.seen: set[str] = set()  # interesting situations, so that a sweep can tell what it never saw

    def acknowledged(self, partition: int, offset: int, value: int) -> None:
        committed = self.committed[partition]
        committed.acknowledged_end = max(committed.acknowledged_end, offset + 1)

    def after_event(self, host: Host) -> None:
        broker = host.node
        if not isinstance(broker, Broker):
            return
        for number, committed in self.committed.items():
            replica = broker.replicas.partitions.get(("t", number))
            if replica is not None:
                self._look(host.life, broker.config.broker_id, replica, committed)

    def _look(self, life: int, broker_id: int, replica: Partition, committed: Committed) -> None:
        log = replica.log
        look = self._looks.get((broker_id, replica.partition))
        if look is None or look.life != life:
            look = self._looks[broker_id, replica.partition] = Look(life)
        unchanged = (
            look.high_watermark == replica.high_watermark
            and look.log_end_offset == log.log_end_offset
            and look.leader_epoch == replica.leader_epoch
            and look.role is replica.role
        )
        if unchanged and not (replica.role is Role.LEADER and committed.acknowledged_end > replica.high_watermark):
            return
        if replica.high_watermark > log.log_end_offset:
            self._violated("HwWithinLog", broker_id, f"{replica.high_watermark} > {log.log_end_offset}")
        if log.log_end_offset < look.log_end_offset:
            self.seen.add("truncation")
        if replica.leader_epoch == look.leader_epoch and replica.role is look.role is Role.LEADER:
            if replica.high_watermark < look.high_watermark:
                self._violated("HwMonotonic", broker_id, f"{look.high_watermark} to {replica.high_watermark}")
        elif replica.role is Role.LEADER:
            self.seen.add("leader change" if look.leader_epoch >= 0 or replica.leader_epoch > 0 else "first leader")
        look.matched = min(look.matched, log.log_end_offset)
        self._check_leader(broker_id, replica, committed)
        if replica.role is Role.LEADER:
            self._extend(replica, committed)
        self._match(broker_id, replica, look, committed)
        look.high_watermark, look.log_end_offset = replica.high_watermark, log.log_end_offset
        look.leader_epoch, look.role = replica.leader_epoch, replica.role

    def _check_leader(self, broker_id: int, replica: Partition, committed: Committed) -> None:
        """The leader of the stored epoch has all that was acknowledged (the promise of design.md, section 4)."""
        if replica.role is not Role.LEADER or committed.acknowledged_end <= replica.log.log_end_offset:
            return
        stored = self._cluster.stored(replica.partition)
        if stored is not None and stored.leader == broker_id and stored.leader_epoch == replica.leader_epoch:
            self._violated(
                "AcknowledgedNotLost", broker_id,
                f"leader of epoch {replica.leader_epoch} ends at {replica.log.log_end_offset}, "
                f"but offset {committed.acknowledged_end - 1} was acknowledged",
            )  # fmt: skip

    def _extend(self, replica: Partition, committed: Committed) -> None:
        """What a leader commits is committed for good."""
        if replica.high_watermark <= committed.end:
            return
        for header in replica.log.headers(committed.end):
            if header.last_offset >= replica.high_watermark:
                break
            committed.batches[header.base_offset] = (header.last_offset, header.partition_leader_epoch, header.crc)
        committed.end = replica.high_watermark

    def _match(self, broker_id: int, replica: Partition, look: Look, committed: Committed) -> None:
        """Logs agree below the high watermark: every replica holds there what was committed."""
        upto = min(replica.high_watermark, committed.end)
        if look.matched >= upto:
            return
        for header in replica.log.headers(look.matched):
            if header.last_offset >= upto:
                break
            held = (header.last_offset, header.partition_leader_epoch, header.crc)
            if committed.batches.get(header.base_offset) != held:
                self._violated(
                    "LogMatching", broker_id,
                    f"offset {header.base_offset} holds epoch {held[1]}, another replica committed "
                    f"{committed.batches.get(header.base_offset)}",
                )  # fmt: skip
        look.matched = upto

    def holds_committed(self, broker_id: int, partition: int) -> bool:
        """Has this running broker every committed record? (for the fault budget)"""
        replica = self._cluster.replica(broker_id, partition)
        return replica is not None and replica.log.log_end_offset >= self.committed[partition].end

    def _violated(self, invariant: str, broker_id: int, message: str) -> None:
        raise ViolationError(Violation(invariant, self._world.now_ms, self._world.events, broker_id, message))
