"""New topics and new partitions: NonExistent to New to Online (kafka-0.9-controller, topic creation)."""

from reference.controller.cluster import TopicInfo, read_topics
from reference.controller.office import Office
from reference.controller.transitions import PartitionStatus, ReplicaStatus
from reference.procedures import Pending
from reference.replication.states import PartitionState, partition_path, state_path
from reference.store_messages import Create


class TopicChanges:
    def __init__(self, office: Office) -> None:
        self._office = office
        self._online: dict[str, list[Pending[None]]] = {}

    async def look(self, topic: str) -> None:
        """A new topic, or more partitions of one. Who is assigned while replicas move, reassignments know better."""
        cluster = self._office.cluster
        found = (await read_topics(self._office.store, (topic,))).get(topic)
        self._office.check()
        if found is None:
            return
        known = cluster.topics.setdefault(topic, TopicInfo(found.topic_id, {}))
        known.assignment = {**found.assignment, **known.assignment}
        await self.create_partitions(topic)

    async def create_partitions(self, topic: str) -> None:
        """The first live replica leads, the live ones are the ISR."""
        office, cluster = self._office, self._office.cluster
        if topic in cluster.deleting:
            return
        replies = []
        for key in cluster.assigned(topic):
            if key in cluster.states:
                continue
            self._begin(key)
            live = tuple(replica for replica in cluster.replicas(key) if replica in cluster.brokers)
            if not live:
                continue
            state = PartitionState(live[0], 0, live, office.epoch, 0)
            office.store.begin_to_ensure(partition_path(*key))  # requests of one session take effect in order
            write = Create(state_path(*key), state.to_bytes(), label=office.label(key, "ElectLeader", state))
            replies.append((key, state, office.conditionally(write)))
        created = []
        for key, state, pending in replies:
            if not (await office.ask(pending)).error:
                office.learn(key, state)
                created.append(key)
                for replica in cluster.replicas(key):
                    if replica in cluster.brokers:
                        office.replicas.move((*key, replica), ReplicaStatus.ONLINE)
        if created:
            answers = office.announce(created, cluster.brokers)
            office.begin(self._tell_online, topic, answers)

    def _begin(self, key: tuple[str, int]) -> None:
        office = self._office
        if office.partitions[key] == PartitionStatus.NON_EXISTENT:
            office.partitions.move(key, PartitionStatus.NEW)
        for replica in office.cluster.replicas(key):
            if office.replicas[(*key, replica)] == ReplicaStatus.NON_EXISTENT:
                office.replicas.move((*key, replica), ReplicaStatus.NEW)

    # -- who waits for it ----------------------------------------------------------------------------

    async def _tell_online(self, topic: str, answers: list[Pending[object]]) -> None:
        for answer in answers:
            await self._office.ask(answer)
        for pending in self._online.pop(topic, []):
            pending.resolve(None)

    def online(self, topic: str) -> Pending[None]:
        """Resolves when every live broker knows the new partitions' leaders."""
        pending: Pending[None] = Pending()
        self._online.setdefault(topic, []).append(pending)
        return pending
