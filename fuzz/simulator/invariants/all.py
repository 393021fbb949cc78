"""All invariants of a simulated cluster, attached to its world."""

from collections.abc import Mapping
from functools import partial

from highwater.fuzz.simulator.clients.load import Clients, Consumer
from highwater.fuzz.simulator.cluster import OFFSETS_TOPIC, TOPIC, TRANSACTIONS_TOPIC, SimulatedCluster
from highwater.fuzz.simulator.invariants.groups import ObservedGroup
from highwater.fuzz.simulator.invariants.metadata import StoredState
from highwater.fuzz.simulator.invariants.old_consumers import ObservedOldConsumers
from highwater.fuzz.simulator.invariants.refusals import overhear
from highwater.fuzz.simulator.invariants.replication import ReplicatedPartition, Shown
from highwater.fuzz.simulator.invariants.transactions import ObservedTransactions
from highwater.fuzz.simulator.invariants.violations import Seen, Violation, ViolationError
from highwater.reference.broker import Broker
from highwater.reference.drivers.simulation.world import Host
from highwater.reference.effects import STORE
from highwater.reference.replication.partition import Partition, Role
from highwater.reference.replication.states import PartitionState


class Invariants:
    """Attach `after_event` to a world; raises ViolationError at the first event that breaks one."""

    def __init__(self, cluster: SimulatedCluster, clients: Clients) -> None:
        self._cluster, self._world = cluster, cluster.world
        self.last_moved = ""
        settings = cluster.settings
        self._clients = settings.clients
        self.seen = Seen()
        self._world.network.overhear = partial(overhear, self.seen)
        self.unclean: set[int] = set()
        self.unreadable: set[int] = set()  # brokers whose disk rots: what they read is not what they wrote
        keys = [(TOPIC, number) for number in range(settings.partitions)]
        keys += [(OFFSETS_TOPIC, 0)] if settings.clients.members else []
        keys += [(TRANSACTIONS_TOPIC, 0)] if settings.clients.transactional else []
        doubtful = (self.unclean, self.unreadable)
        self.partitions = {
            key: ReplicatedPartition(
                settings.replicas,
                settings.min_insync_replicas,
                doubtful,
                self.seen,
                self.violated,
                compacted=key[0] != TOPIC,
            )
            for key in keys
        }
        self._obeyed: dict[int, tuple[int, int]] = {}  # of a broker: its life, and whom it obeys in that
        self._shown: dict[int, tuple[int, list[Shown]]] = {}  # of a broker: its life, and what it showed last
        self._partitions = list(self.partitions.items())
        self.stored = StoredState(cluster, keys, self.seen, self.violated, self._stored)
        self.group = (
            ObservedGroup(cluster, clients.members, self.seen, self.violated) if settings.clients.members else None
        )

        self.transactions = ObservedTransactions(settings.partitions, self.unreadable, self.violated)
        self.old = ObservedOldConsumers(cluster, clients.old, self.seen, self.violated)

    def acknowledged(self, partition: int, offset: int, value: int) -> None:
        self.partitions[TOPIC, partition].acknowledged(offset)

    def committed(self, partitions: frozenset[tuple[str, int]], offset: int) -> None:
        if self.group is not None:
            self.group.committed(partitions, offset)

    def _stored(self, key: tuple[str, int], before: PartitionState | None) -> None:
        state = self.stored.states[key]
        if before is not None:
            # One that is let in by what its former life fetched goes again: the controller deals with its restart.
            joined = set(state.isr) - set(before.isr)
            self.unclean.difference_update([member for member in joined if self._cluster.is_settled(member)])
        self.partitions[key].stored(state)

    def after_event(self, host: Host) -> None:
        self.last_moved = host.name
        node = host.node
        if isinstance(node, Broker):
            broker_id = node.config.broker_id
            if self._obeyed.get(broker_id) != (host.life, node.replicas.controller_epoch):
                self._look_at_controller_epoch(host, broker_id, node.replicas.controller_epoch)
            if broker_id not in self.unreadable:
                self._look_at_replicas(host, broker_id, node.replicas.partitions)
            if self.group is not None:
                self.group.broker_moved(node)
        elif self._clients.old_consumers:
            self.old.after_event()
        elif host.name == STORE and node is not None:
            self.stored.after_event()
        elif self.group is not None and isinstance(node, Consumer):
            self.group.member_moved()

    def _look_at_replicas(self, host: Host, broker_id: int, replicas: Mapping[tuple[str, int], Partition]) -> None:
        """At those that show something new: most steps change nothing here."""
        shown: list[Shown] = [
            (each, each.log.log_end_offset, each.high_watermark, each.leader_epoch, each.role, each.isr,
             each.proposed_isr)
            for each in replicas.values()
        ]  # fmt: skip
        if self._shown.get(broker_id) == (host.life, shown):
            return
        self._shown[broker_id] = host.life, shown
        shown_by = dict(zip(replicas, shown, strict=True))
        for key, partition in self._partitions:
            last = partition.replicas.get(broker_id)
            if key not in shown_by:
                if last is not None:
                    partition.gone(host, broker_id)
            elif last is None or last.shown != shown_by[key]:
                replica = replicas[key]
                partition.look(host, broker_id, replica, shown_by[key])
                if self._clients.transactional and key[0] == TOPIC and replica.role is Role.LEADER:
                    self.transactions.look(key[1], replica)

    def _look_at_controller_epoch(self, host: Host, broker_id: int, obeyed: int) -> None:
        """BrokersGoForward: in one life a broker obeys no controller that is older than the last."""
        life, epoch = self._obeyed.get(broker_id, (0, -1))
        if life == host.life and obeyed < epoch:
            self.violated("BrokersGoForward", f"obeys controller epoch {obeyed} after {epoch}")
        self._obeyed[broker_id] = host.life, obeyed

    def readable_again(self) -> None:
        """Disks are sound; what they hold is read anew."""
        for partition in self.partitions.values():
            partition.forget(self.unreadable)
        self._shown.clear()
        self.unreadable.clear()

    def holds_committed(self, broker_id: int, key: tuple[str, int]) -> bool:
        """Has this running broker every committed record? (for the fault budget)"""
        broker = self._cluster.broker(broker_id)
        up = broker is not None and key in broker.replicas.partitions
        return up and self.partitions[key].holds_committed(broker_id)

    def violated(self, invariant: str, message: str) -> None:
        raise ViolationError(Violation(invariant, self._world.now_ms, self._world.events, self.last_moved, message))
