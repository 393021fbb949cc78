"""Check all invariants of a simulated cluster after each event of its world."""

from highwater.fuzz.simulator.clients.load import Clients, Consumer, Observers
from highwater.fuzz.simulator.cluster import COMPACTED, OFFSETS_TOPIC, OUTPUT_TOPIC, TOPIC, SimulatedCluster
from highwater.fuzz.simulator.exchanges import Exchanges
from highwater.fuzz.simulator.invariants.committed_offsets import CommittedOffsets
from highwater.fuzz.simulator.invariants.contents import CommittedContents, CommittedLog
from highwater.fuzz.simulator.invariants.groups import ObservedGroup
from highwater.fuzz.simulator.invariants.loads import loads_of
from highwater.fuzz.simulator.invariants.metadata import AcceptedControllerEpochs, StoredState
from highwater.fuzz.simulator.invariants.old_consumers import ObservedOldConsumers
from highwater.fuzz.simulator.invariants.readers import ObservedReaders
from highwater.fuzz.simulator.invariants.refusals import record_refusals
from highwater.fuzz.simulator.invariants.replication import ReplicaState, ReplicatedPartition
from highwater.fuzz.simulator.invariants.transactions import ObservedTransactions
from highwater.fuzz.simulator.invariants.transforms import ObservedTransform
from highwater.fuzz.simulator.invariants.violations import (
    NOTHING,
    About,
    SituationCounts,
    Violation,
    ViolationError,
)
from highwater.fuzz.simulator.meetings import Meetings
from highwater.reference.broker import Broker
from highwater.reference.drivers.simulation.world import Host
from highwater.reference.effects import STORE, Request
from highwater.reference.replication.partition import Partition, Role
from highwater.reference.replication.states import PartitionState


class Invariants:
    """All invariants of one run. The world calls `after_event`, which raises ViolationError at the first violation.

    `unclean` has the brokers whose log tail may be lost and that have not rejoined the ISR since.
    """

    def __init__(self, cluster: SimulatedCluster, clients: Clients) -> None:
        self._cluster, self._world = cluster, cluster.world
        self.last_node = ""
        settings = cluster.settings
        self._clients = settings.clients
        self.situations = SituationCounts(dict.fromkeys(loads_of(settings.clients), 1))
        self.exchanges = Exchanges()
        self.meetings = Meetings(settings.clients)
        self._world.network.overhear = self._overhear
        self.unclean: set[int] = set()
        self.unreadable: set[int] = set()  # brokers with flipped bits on the disk; their logs are not checked
        keys = [(TOPIC, number) for number in range(settings.partitions)]
        keys += [(OUTPUT_TOPIC, 0)] if settings.clients.transforms else []
        keys += [(topic, 0) for topic in settings.internal_topics]
        self.rotten: set[int] = set()  # brokers that ever were unreadable
        self.contents = {
            number: CommittedContents(f"{TOPIC}-{number}", self.violated) for number in range(settings.partitions)
        }
        offsets = CommittedOffsets(self._coordinator_epoch, self.rotten, self.violated)
        self.readers = ObservedReaders(self.contents, offsets, self.rotten, self.situations, self.violated)
        transform = ObservedTransform(self.contents, self.rotten, self.situations, self.violated)
        logs: dict[tuple[str, int], CommittedLog] = {(TOPIC, n): contents for n, contents in self.contents.items()}
        logs |= {(OUTPUT_TOPIC, 0): transform.output, (OFFSETS_TOPIC, 0): offsets}
        doubtful = (self.unclean, self.unreadable)
        self.partitions = {
            key: ReplicatedPartition(
                f"{key[0]}-{key[1]}",
                settings.replicas,
                settings.min_insync_replicas,
                doubtful,
                self.situations,
                self.violated,
                contents=logs.get(key),
                compacted=key[0] in COMPACTED,
            )
            for key in keys
        }
        self._controller_epochs = AcceptedControllerEpochs(self.violated)
        self._replica_states: dict[int, tuple[int, list[ReplicaState | None]]] = {}  # broker -> life, its replicas
        self._partitions = list(self.partitions.items())
        self.stored = StoredState(cluster, keys, self.situations, self.violated, self._stored)
        self.group = (
            ObservedGroup(cluster, clients.members, self.situations, self.violated)
            if settings.clients.members
            else None
        )

        self.transactions = ObservedTransactions(
            settings.partitions, self.unreadable, clients.asked_to_commit, self.violated
        )
        self.old = ObservedOldConsumers(cluster, clients.old, self.situations, self.violated)

    @property
    def observers(self) -> Observers:
        """What the clients call."""
        return Observers(
            self.acknowledged, self.committed, self.stored_invalid, self.refused_invalid, self.readers
        )  # fmt: skip

    def acknowledged(self, partition: int, offset: int, value: bytes) -> None:
        """Record that a producer received an acknowledgement of this value for this offset."""
        self.partitions[TOPIC, partition].acknowledged(offset)
        self.contents[partition].acknowledged(offset, value)

    def committed(self, partitions: frozenset[tuple[str, int]], offset: int) -> None:
        """Record that a member received a successful OffsetCommit response."""
        if self.group is not None:
            self.group.committed(partitions, offset)

    def stored_invalid(self, what: str) -> None:
        """NothingInvalidStored: no broker says that it stored an unreadable batch, or a client's internal record."""
        self.violated("NothingInvalidStored", f"a broker stored {what}", About(node=self.last_node))

    def refused_invalid(self) -> None:
        """Record that a broker refused an invalid batch for what it is."""
        self.situations.add("invalid batch refused")

    def _overhear(self, source: str, target: str, message: object) -> None:
        record_refusals(self.situations, message)
        if isinstance(message, Request):
            self.meetings.requested(type(message.body), self._world.now_ms)
        if self._cluster.tracing:
            self.exchanges.on_message(self._world.now_ms, source, target, message)

    def _coordinator_epoch(self, broker_id: int) -> int:
        """Return the leader epoch in which the broker is the coordinator, for itself and in the store; else -1."""
        broker, state = self._cluster.broker(broker_id), self.stored.states.get((OFFSETS_TOPIC, 0))
        log = broker.replicas.partitions.get((OFFSETS_TOPIC, 0)) if broker is not None else None
        if log is None or state is None or (state.leader, state.leader_epoch) != (broker_id, log.leader_epoch):
            return -1
        return log.leader_epoch

    def _stored(self, key: tuple[str, int], before: PartitionState | None) -> None:
        state = self.stored.states[key]
        if before is not None:
            # The leader may add a restarted broker because of earlier fetches; the controller then removes it again.
            # So it stays unclean until the controller has handled the restart.
            joined = set(state.isr) - set(before.isr)
            self.unclean.difference_update([member for member in joined if self._cluster.is_restart_handled(member)])
        self.partitions[key].stored(state)

    def after_event(self, host: Host) -> None:
        """Check the node that handled the event."""
        self.last_node = host.name
        node = host.node
        if isinstance(node, Broker):
            broker_id = node.config.broker_id
            self._controller_epochs.check(host, broker_id, node.replicas.controller_epoch)
            if broker_id in self.unreadable:
                self.rotten.add(broker_id)
            else:
                self._check_replicas(host, broker_id, node.replicas.partitions)
            if self.group is not None:
                self.group.broker_changed(node)
        elif self._clients.old_consumers:
            self.old.after_event()
        elif host.name == STORE and node is not None:
            self.stored.after_event()
        elif self.group is not None and isinstance(node, Consumer):
            self.group.member_changed()

    def _check_replicas(self, host: Host, broker_id: int, replicas: dict[tuple[str, int], Partition]) -> None:
        """Check the replicas of the known partitions whose state has changed; most events change none."""
        states: list[ReplicaState | None] = [
            (replica, replica.log.log_end_offset, replica.high_watermark, replica.leader_epoch, replica.role,
             replica.isr, replica.proposed_isr)
            if (replica := replicas.get(key)) is not None
            else None
            for key in self.partitions
        ]  # fmt: skip
        if self._replica_states.get(broker_id) == (host.life, states):
            return
        self._replica_states[broker_id] = host.life, states
        for (key, partition), state in zip(self._partitions, states, strict=True):
            last = partition.replicas.get(broker_id)
            if state is None:
                if last is not None:
                    partition.removed(host, broker_id)
            elif last is None or last.state != state:
                replica = replicas[key]
                partition.update(host, broker_id, replica, state)
                if self._clients.transactional and key[0] == TOPIC and replica.role is Role.LEADER:
                    self.transactions.update(key[1], replica)

    def readable_again(self) -> None:
        """Check the brokers in `unreadable` again, from the start of their logs: all disks are healed."""
        for partition in self.partitions.values():
            partition.forget(self.unreadable)
        self._replica_states.clear()
        self.unreadable.clear()

    def holds_committed(self, broker_id: int, key: tuple[str, int]) -> bool:
        """Return whether the broker runs and has every committed record of the partition (for the fault budget)."""
        broker = self._cluster.broker(broker_id)
        up = broker is not None and key in broker.replicas.partitions
        return up and self.partitions[key].holds_committed(broker_id)

    def violated(self, invariant: str, message: str, about: About = NOTHING) -> None:
        """Raise ViolationError for this event."""
        now_ms, events = self._world.now_ms, self._world.events
        raise ViolationError(Violation(invariant, now_ms, events, self.last_node, message, about))
