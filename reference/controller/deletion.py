"""Deletion of a topic, in eight steps; halted while it cannot go on, and resumed (kafka-0.9-controller).

It waits while a broker that hosts a replica is down, and while replicas of the topic move. A controller that dies
leaves the topic's node under `/admin/delete_topics`, so that the next one takes the steps again.
"""

from collections.abc import Callable
from typing import Final

from reference.controller.cluster import Key, ReplicaKey
from reference.controller.office import Office
from reference.controller.paths import DELETE_TOPICS, TOPICS
from reference.controller.steps import Step
from reference.controller.transitions import PartitionStatus, ReplicaStatus
from reference.procedures import Pending
from reference.store_messages import Delete
from reference.topic_configs import config_path
from reference.wire.errors import ErrorCode
from reference.wire.messages.stop_replica import StopReplicaResponse


def awaits_replicas(office: Office) -> bool:
    """Off: a topic is forgotten while brokers that are down still have it, and may come back under its name."""
    return office.context.guards.deletion_awaits_replicas


class Deletions:
    """`moves` says whether replicas of a topic move."""

    def __init__(self, office: Office, moves: Callable[[str], bool]) -> None:
        self.office = office
        self._moves = moves
        self._running: set[str] = set()
        self._awaited: dict[str, list[Pending[None]]] = {}
        self._after_move: set[str] = set()
        self._refused: dict[str, dict[int, int]] = {}  # topic -> broker -> its epoch when it refused

    def want(self, topic: str) -> None:
        """Begin, or resume; does nothing while it is halted or under way."""
        if self._moves(topic) and self.office.context.guards.deletion_waits_for_reassignment:
            self._after_move.add(topic)  # until then a topic like any other: leaders and ISRs change, or no move ends
            return
        self.office.cluster.deleting.add(topic)
        if topic not in self._running and not self._halted(topic):
            self._running.add(topic)
            self.office.begin(self._delete, topic)

    def _halted(self, topic: str) -> bool:
        hosts = {
            replica for key in self.office.cluster.assigned(topic) for replica in self.office.cluster.replicas(key)
        }
        brokers = self.office.cluster.brokers
        refused = self._refused.get(topic, {}).items()
        if any(brokers[broker].epoch == epoch for broker, epoch in refused if broker in brokers):
            return True  # until it has another life: it would say the same again
        return awaits_replicas(self.office) and not hosts <= set(brokers)

    def moved(self, topic: str) -> None:
        """Nothing of it moves any more."""
        if topic in self._after_move:
            self._after_move.discard(topic)
            self.want(topic)

    async def _delete(self, topic: str) -> None:
        deletion = Deletion(self.office, topic)
        done = await deletion.take_steps()
        self._running.discard(topic)
        self._refused[topic] = deletion.refused
        if done:
            del self._refused[topic]
            for pending in self._awaited.pop(topic, []):
                pending.resolve(None)
        if topic in self.office.cluster.deleting:
            self.want(topic)  # what halted it may have passed meanwhile

    def replica_died(self, replica: ReplicaKey) -> None:
        """Its deletion waits for its broker; otherwise it is just offline."""
        status = self.office.replicas[replica]
        if status == ReplicaStatus.DELETION_STARTED:
            self.office.replicas.move(replica, ReplicaStatus.DELETION_INELIGIBLE)
        elif status in {ReplicaStatus.NEW, ReplicaStatus.ONLINE}:
            self.office.replicas.move(replica, ReplicaStatus.OFFLINE)

    def deleted(self, topic: str) -> Pending[None]:
        pending: Pending[None] = Pending()
        self._awaited.setdefault(topic, []).append(pending)
        return pending


class Deletion:
    """One topic on its way out. A step answers False when it must wait for a broker.

    `refused`: who answered that it did not do what it was told, and in which life (broker epoch).
    """

    def __init__(self, office: Office, topic: str) -> None:
        self.office, self.topic = office, topic
        self.refused: dict[int, int] = {}

    async def take_steps(self) -> bool:
        for step in STEPS:
            if not await step.take(self):
                return False
        return True

    @property
    def keys(self) -> list[Key]:
        return [key for key in self.office.cluster.assigned(self.topic) if key in self.office.cluster.states]

    def _hosts(self) -> dict[int, list[Key]]:
        """Who has what that is not known to be deleted."""
        hosts: dict[int, list[Key]] = {}
        for key in self.keys:
            for replica in self.office.cluster.replicas(key):
                if self.office.replicas[(*key, replica)] != ReplicaStatus.DELETION_SUCCESSFUL:
                    hosts.setdefault(replica, []).append(key)
        return dict(sorted(hosts.items()))

    async def tell_all(self) -> bool:
        office = self.office
        office.log(f"topic {self.topic}: deletion begins")
        for answer in office.send_metadata(self.keys, office.cluster.brokers, deleted=True):
            await office.ask(answer)
        return True

    async def close_partitions(self) -> bool:
        for key in self.office.cluster.assigned(self.topic):
            if self.office.partitions[key] in {PartitionStatus.NEW, PartitionStatus.ONLINE}:
                self.office.partitions.move(key, PartitionStatus.OFFLINE)
        return True

    async def stop_replicas(self) -> bool:
        """All stop before the first is deleted, so that nobody fetches from a log that goes."""
        self._move(ReplicaStatus.OFFLINE)
        return await self._stop(delete=False) or not awaits_replicas(self.office)

    async def delete_replicas(self) -> bool:
        self._move(ReplicaStatus.DELETION_STARTED)
        confirmed = await self._stop(delete=True)
        return confirmed or not awaits_replicas(self.office)

    async def _stop(self, *, delete: bool) -> bool:
        sent = [(host, keys, self.office.send_stop(host, keys, delete=delete)) for host, keys in self._hosts().items()]
        answers = [(host, keys, await self.office.ask(answer)) for host, keys, answer in sent]
        for host, keys, answer in answers:
            stopped = _stopped(answer)
            for key in keys if delete else ():
                if key in stopped and self.office.replicas[(*key, host)] == ReplicaStatus.DELETION_STARTED:
                    self.office.replicas.move((*key, host), ReplicaStatus.DELETION_SUCCESSFUL)
            if answer is not None and not stopped.issuperset(keys):
                self._refuses(host, answer)
        return all(_stopped(answer).issuperset(keys) for _, keys, answer in answers)

    def _refuses(self, host: int, answer: StopReplicaResponse) -> None:
        info = self.office.cluster.brokers.get(host)
        if info is not None:
            self.refused[host] = info.epoch
            self.office.log(
                f"topic {self.topic}: broker {host} refuses to stop its replicas (error {answer.error_code})"
            )

    def _move(self, status: ReplicaStatus) -> None:
        for host, keys in self._hosts().items():
            for key in keys:
                self.office.replicas.move((*key, host), status)

    async def forget_replicas(self) -> bool:
        for key in list(self.office.cluster.assigned(self.topic)):
            for replica in self.office.cluster.replicas(key):
                self.office.replicas.forget((*key, replica))
            if self.office.partitions[key] != PartitionStatus.NON_EXISTENT:
                self.office.partitions.move(key, PartitionStatus.NON_EXISTENT)
        return True

    async def forget_topic(self) -> bool:
        await self.office.delete_tree(f"{TOPICS}/{self.topic}")
        return True

    async def forget_config(self) -> bool:
        await self.office.delete_tree(config_path(self.topic))
        return True

    async def forget_wish(self) -> bool:
        await self.office.write(Delete(f"{DELETE_TOPICS}/{self.topic}"))
        cluster = self.office.cluster
        for key in self.keys:
            cluster.states.pop(key)
        cluster.topics.pop(self.topic, None)
        cluster.deleting.discard(self.topic)
        self.office.log(f"topic {self.topic}: deleted")
        return True


def _stopped(answer: StopReplicaResponse | None) -> set[Key]:
    """What a broker says that it stopped; a request for an earlier life of it, or from a zombie, stops nothing."""
    if answer is None or answer.error_code != ErrorCode.NONE:
        return set()
    parts = answer.partition_errors
    return {(part.topic_name, part.partition_index) for part in parts if part.error_code == ErrorCode.NONE}


STEPS: Final[tuple[Step[Deletion, bool], ...]] = (
    Step("UpdateMetadata tells every broker that the topic goes: clients are refused.", Deletion.tell_all),
    Step("Its partitions are OfflinePartition.", Deletion.close_partitions),
    Step("Its replicas are OfflineReplica: StopReplica ends fetching.", Deletion.stop_replicas),
    Step(
        "Its replicas are ReplicaDeletionStarted: StopReplica deletes, each broker confirms.", Deletion.delete_replicas
    ),
    Step("Replicas and partitions are NonExistent.", Deletion.forget_replicas),
    Step("The topic's node goes.", Deletion.forget_topic),
    Step("The topic's settings go.", Deletion.forget_config),
    Step("The wish goes, and the caches forget.", Deletion.forget_wish),
)
