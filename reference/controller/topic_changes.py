"""Creation of topics and partitions: NonExistent to New to Online (kafka-0.9-controller, topic creation)."""

from collections.abc import Mapping
from itertools import zip_longest

from highwater.reference.controller.cluster import TopicInfo, read_topics
from highwater.reference.controller.context import ControllerContext
from highwater.reference.controller.transitions import PartitionStatus, ReplicaStatus
from highwater.reference.procedures import Pending
from highwater.reference.replication.states import PartitionState, partition_path, state_path
from highwater.reference.store.messages import Create, StoreReply


class TopicChanges:
    """Apache Kafka: KafkaController.onNewPartitionCreation."""

    def __init__(self, controller_context: ControllerContext) -> None:
        self._controller_context = controller_context
        self._waiters: dict[str, list[tuple[int, Pending[None]]]] = {}  # of a topic: how many partitions, and who waits

    async def refresh(self, *topics: str) -> None:
        """Read topics and create their new partitions; the cached assignment of known ones wins (reassignment)."""
        cluster = self._controller_context.cluster
        found = await read_topics(self._controller_context.store, topics)
        self._controller_context.check_active()
        for topic, stored in found.items():
            known = cluster.topics.setdefault(topic, TopicInfo(stored.topic_id, {}))
            known.assignment, known.version = {**stored.assignment, **known.assignment}, stored.version
        await self.create_partitions(*found)

    async def create_partitions(self, *topics: str) -> None:
        """Create the missing partitions: the first live replica leads, the live replicas are the ISR.

        The states of all of them are written together, and announced in one request to each broker.
        """
        controller_context = self._controller_context
        cluster = controller_context.cluster
        missing = [
            key
            for topic in topics
            if topic not in cluster.deleting
            for key in cluster.partitions(topic)
            if key not in cluster.states
        ]
        replies = [
            (key, state, self._begin_creation(key, state)) for key in missing if (state := self._first_state(key))
        ]
        created = []
        for key, state, pending in replies:
            if not (await controller_context.wait_for(pending)).error:
                controller_context.record_state(key, state)
                created.append(key)
                for replica in cluster.replicas(key):
                    if replica in cluster.brokers:
                        controller_context.replicas.move((*key, replica), ReplicaStatus.ONLINE)
        if created:
            answers = controller_context.announce(created, cluster.brokers)
            with_new = dict.fromkeys(topic for topic, _ in created)
            online = {topic: sum(key in cluster.states for key in cluster.partitions(topic)) for topic in with_new}
            controller_context.spawn(self._report_online, online, answers)

    def _first_state(self, key: tuple[str, int]) -> PartitionState | None:
        """Return the state of a new partition, or None while none of its replicas is live."""
        cluster = self._controller_context.cluster
        self._create_states(key)
        live = tuple(replica for replica in cluster.replicas(key) if replica in cluster.brokers)
        return PartitionState(live[0], 0, live, self._controller_context.epoch, 0) if live else None

    def _begin_creation(self, key: tuple[str, int], state: PartitionState) -> Pending[StoreReply]:
        """Begin to write the first state of a partition; requests of one session take effect in order."""
        controller_context = self._controller_context
        controller_context.store.begin_ensure(partition_path(*key))
        label = controller_context.label(key, "ElectLeader", state)
        return controller_context.conditional_write(Create(state_path(*key), state.to_bytes(), label=label))

    def _create_states(self, key: tuple[str, int]) -> None:
        controller_context = self._controller_context
        if controller_context.partitions[key] == PartitionStatus.NON_EXISTENT:
            controller_context.partitions.move(key, PartitionStatus.NEW)
        for replica in controller_context.cluster.replicas(key):
            if controller_context.replicas[(*key, replica)] == ReplicaStatus.NON_EXISTENT:
                controller_context.replicas.move((*key, replica), ReplicaStatus.NEW)

    # -- waiting for topics --------------------------------------------------------------------------

    async def _report_online(self, online: Mapping[str, int], answers: list[Pending[object]]) -> None:
        """When every broker has answered, resolve for each topic who waits for at most so many partitions."""
        for answer in answers:
            await self._controller_context.wait_for(answer)
        for topic, count in online.items():
            waiting = self._waiters.pop(topic, [])
            if remaining := [(wanted, pending) for wanted, pending in waiting if wanted > count]:
                self._waiters[topic] = remaining
            for wanted, pending in waiting:
                if wanted <= count:
                    pending.resolve(None)

    def when_online(self, topic: str, partitions: int) -> Pending[None]:
        """Resolve when every live broker knows the leaders of so many partitions."""
        pending: Pending[None] = Pending()
        self._waiters.setdefault(topic, []).append((partitions, pending))
        return pending


# --------------------------------------------------------------------------------------------------
# Replica placement for new partitions: round robin, across racks if every broker has one (KIP-36).


Assignment = dict[int, tuple[int, ...]]


def assign_replicas(
    racks: Mapping[int, str | None], partitions: int, replication_factor: int, start: int, first_partition: int = 0
) -> Assignment:
    """Return partition -> replicas for `partitions` partitions from `first_partition` on.

    `racks` maps every candidate broker to its rack. Leaders are assigned round robin; the followers are shifted by one
    more in each round. A rack gets a second replica only after every rack has one. Racks are ignored unless every
    broker has one. Apache Kafka: AdminUtils.assignReplicasToBrokers.
    """
    if all(racks.values()):
        brokers = _interleave_racks(racks)
        rack_of = {broker: rack or "" for broker, rack in racks.items()}
    else:
        brokers = sorted(racks)
        rack_of = {broker: str(broker) for broker in brokers}
    assignment = {}
    for partition in range(first_partition, first_partition + partitions):
        shift = start + partition // len(brokers)
        assignment[partition] = _replicas(brokers, rack_of, replication_factor, (start + partition), shift)
    return assignment


def _interleave_racks(racks: Mapping[int, str | None]) -> list[int]:
    """Return the brokers with racks alternating, so that neighbours are in different racks."""
    brokers_by_rack = [
        sorted(b for b, rack in racks.items() if rack == name) for name in sorted({r or "" for r in racks.values()})
    ]
    return [broker for row in zip_longest(*brokers_by_rack) for broker in row if broker is not None]


def _replicas(
    brokers: list[int], rack_of: Mapping[int, str], factor: int, leader_index: int, shift: int
) -> tuple[int, ...]:
    count = len(brokers)
    first = brokers[leader_index % count]
    others = [brokers[(leader_index + 1 + (shift + number) % (count - 1)) % count] for number in range(count - 1)]
    chosen, used_racks = [first], {rack_of[first]}
    while len(chosen) < factor:
        remaining = [broker for broker in others if broker not in chosen]
        follower = next((broker for broker in remaining if rack_of[broker] not in used_racks), None)
        if follower is None:  # every rack has a replica of this round: start another round
            used_racks = set()
            continue
        chosen.append(follower)
        used_racks.add(rack_of[follower])
    return tuple(chosen)
