"""Invariants of the simulator in the world of a case: of the controller, and of each partition that a case creates.

A partition is watched from its first state in the metadata store until its topic is deleted or an unclean leader is
elected, which may lose committed records. The name of a deleted topic is not watched again: replicas of the old topic
may be left on brokers for a while.
"""

from highwater.fuzz.simulator.cluster import ClusterState
from highwater.fuzz.simulator.invariants.metadata import AcceptedControllerEpochs, Key, StoredState, name_of
from highwater.fuzz.simulator.invariants.replication import ReplicatedPartition
from highwater.fuzz.simulator.invariants.violations import (
    NOTHING,
    About,
    SituationCounts,
    Violation,
    ViolationError,
)
from highwater.reference.broker import Broker
from highwater.reference.controller.cluster import TOPICS, parse_topic
from highwater.reference.drivers.simulation.world import Host
from highwater.reference.effects import STORE
from highwater.reference.replication.partition import Partition
from highwater.reference.replication.states import PartitionState


class CaseInvariants:
    """Checks the node of each event; raises ViolationError at the first violation."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster, self._world = cluster, cluster.world
        self._situations = SituationCounts()
        self._stored = StoredState(cluster, (), self._situations, self._violated, self._changed)
        self._partitions: dict[Key, ReplicatedPartition] = {}
        self._forgotten: set[Key] = set()
        self._controller_epochs = AcceptedControllerEpochs(self._violated)
        self._node = ""
        self.unclean: set[int] = set()
        """The brokers that have lost an unflushed tail and not rejoined the ISR since."""
        cluster.world.after_event = self.after_event

    @property
    def watched(self) -> int:
        """Return how many partitions are or were watched."""
        return len(self._partitions) + len(self._forgotten)

    def after_event(self, host: Host) -> None:
        """Check the node that handled the event."""
        self._node, node = host.name, host.node
        if isinstance(node, Broker):
            self._controller_epochs.check(host, node.config.broker_id, node.replicas.controller_epoch)
            for key, replica in node.replicas.partitions.items():
                if (partition := self._partitions.get(key)) is not None:
                    self._check_replica(host, node.config.broker_id, partition, replica)
        elif host.name == STORE and node is not None:
            self._watch_topics()
            self._stored.after_event()

    def _check_replica(self, host: Host, broker_id: int, partition: ReplicatedPartition, replica: Partition) -> None:
        if "compact" in replica.log.config.cleanup_policy and not partition.compacted:
            partition = self._begin_compaction((replica.topic, replica.partition), partition)
        last = partition.replicas.get(broker_id)
        state = (
            replica, replica.log.log_end_offset, replica.high_watermark, replica.leader_epoch, replica.role,
            replica.isr, replica.proposed_isr,
        )  # fmt: skip
        if last is None or last.life != host.life or last.state != state:
            partition.update(host, broker_id, replica, state)

    # -- what is watched ---------------------------------------------------------------------------

    def _watch_topics(self) -> None:
        store = self._cluster.store()
        topics = {
            name: topic
            for name in store.names(TOPICS)
            if (topic := store.peek(f"{TOPICS}/{name}", lambda data, version: parse_topic(data))) is not None
        }
        for name, topic in topics.items():
            for number, assigned in topic.assignment.items():
                key = name, number
                if key not in self._partitions and key not in self._forgotten:
                    self._partitions[key] = self._new_partition(key, len(assigned), compacted=False)
                    self._stored.watch(key)
        for key in [key for key in self._partitions if key[0] not in topics]:
            self._forget(key)

    def _new_partition(self, key: Key, replicas: int, *, compacted: bool) -> ReplicatedPartition:
        return ReplicatedPartition(
            name_of(key), replicas, 1, (self.unclean, set()), self._situations, self._violated, compacted=compacted
        )

    def _begin_compaction(self, key: Key, before: ReplicatedPartition) -> ReplicatedPartition:
        """Begin again with a partition whose topic is compacted from now on: batches are compared without content."""
        partition = self._partitions[key] = self._new_partition(key, before.enough, compacted=True)
        if before.state is not None:
            partition.stored(before.state)
        return partition

    def _forget(self, key: Key) -> None:
        del self._partitions[key]
        self._stored.forget(key)
        self._forgotten.add(key)

    def _changed(self, key: Key, before: PartitionState | None) -> None:
        state = self._stored.states[key]
        if before is not None:
            self.unclean -= {member for member in set(state.isr) - set(before.isr) if self._restart_is_handled(member)}
        if before is not None and state.leader >= 0 and state.leader not in (*before.isr, *before.elr):
            self._forget(key)  # an unclean election
        else:
            self._partitions[key].stored(state)

    def _restart_is_handled(self, broker_id: int) -> bool:
        """Return whether the controller has handled an unclean restart: until then it removes the broker again."""
        broker = self._cluster.broker(broker_id)
        return broker is not None and broker.replicas.started_clean

    def _violated(self, invariant: str, message: str, about: About = NOTHING) -> None:
        raise ViolationError(Violation(invariant, self._world.now_ms, self._world.events, self._node, message, about))
