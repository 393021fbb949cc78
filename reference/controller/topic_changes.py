"""Creation of topics and partitions: NonExistent to New to Online (kafka-0.9-controller, topic creation)."""

from reference.controller.cluster import TopicInfo, read_topics
from reference.controller.office import ControllerContext
from reference.controller.transitions import PartitionStatus, ReplicaStatus
from reference.procedures import Pending
from reference.replication.states import PartitionState, partition_path, state_path
from reference.store_messages import Create


class TopicChanges:
    """Apache Kafka: KafkaController.onNewPartitionCreation."""

    def __init__(self, controller_context: ControllerContext) -> None:
        self._controller_context = controller_context
        self._waiters: dict[str, list[Pending[None]]] = {}

    async def refresh(self, topic: str) -> None:
        """Read a topic and create its new partitions; the cached assignment of known ones wins (reassignment)."""
        cluster = self._controller_context.cluster
        stored = (await read_topics(self._controller_context.store, (topic,))).get(topic)
        self._controller_context.check_active()
        if stored is None:
            return
        known = cluster.topics.setdefault(topic, TopicInfo(stored.topic_id, {}))
        known.assignment = {**stored.assignment, **known.assignment}
        await self.create_partitions(topic)

    async def create_partitions(self, topic: str) -> None:
        """Create the missing partitions: the first live replica leads, the live replicas are the ISR."""
        controller_context, cluster = self._controller_context, self._controller_context.cluster
        if topic in cluster.deleting:
            return
        replies = []
        for key in cluster.partitions(topic):
            if key in cluster.states:
                continue
            self._create_states(key)
            live = tuple(replica for replica in cluster.replicas(key) if replica in cluster.brokers)
            if not live:
                continue
            state = PartitionState(live[0], 0, live, controller_context.epoch, 0)
            controller_context.store.begin_ensure(partition_path(*key))  # requests of one session take effect in order
            write = Create(
                state_path(*key), state.to_bytes(), label=controller_context.label(key, "ElectLeader", state)
            )
            replies.append((key, state, controller_context.conditional_write(write)))
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
            controller_context.spawn(self._report_online, topic, answers)

    def _create_states(self, key: tuple[str, int]) -> None:
        controller_context = self._controller_context
        if controller_context.partitions[key] == PartitionStatus.NON_EXISTENT:
            controller_context.partitions.move(key, PartitionStatus.NEW)
        for replica in controller_context.cluster.replicas(key):
            if controller_context.replicas[(*key, replica)] == ReplicaStatus.NON_EXISTENT:
                controller_context.replicas.move((*key, replica), ReplicaStatus.NEW)

    # -- waiting for topics --------------------------------------------------------------------------

    async def _report_online(self, topic: str, answers: list[Pending[object]]) -> None:
        for answer in answers:
            await self._controller_context.wait_for(answer)
        for pending in self._waiters.pop(topic, []):
            pending.resolve(None)

    def when_online(self, topic: str) -> Pending[None]:
        """Resolve when every live broker knows the leaders of the new partitions."""
        pending: Pending[None] = Pending()
        self._waiters.setdefault(topic, []).append(pending)
        return pending
