"""Deletion of a topic in eight steps, halted and resumed as brokers fail and return (kafka-0.9-controller).

A deletion waits while a broker that hosts a replica is down, and while the topic is being reassigned. If the
controller fails, the node under `/admin/delete_topics` remains, and the next controller repeats the steps from the
first. Apache Kafka: TopicDeletionManager.
"""

from collections.abc import Callable
from typing import Final

from highwater.reference.configuration.topics import config_path
from highwater.reference.controller.cluster import DELETE_TOPICS, TOPICS, Key, ReplicaKey
from highwater.reference.controller.context import ControllerContext
from highwater.reference.controller.steps import Step
from highwater.reference.controller.transitions import PartitionStatus, ReplicaStatus
from highwater.reference.procedures import Pending
from highwater.reference.store.messages import Delete
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.controller import StopReplicaResponse


def waits_for_replicas(controller_context: ControllerContext) -> bool:
    """Return whether a deletion waits for every replica; if off, a broker that was down may bring old data back."""
    return controller_context.broker_context.guards.deletion_awaits_replicas


class Deletions:
    """The deletions of one controller epoch; `is_moving` returns whether a topic is being reassigned."""

    def __init__(self, controller_context: ControllerContext, is_moving: Callable[[str], bool]) -> None:
        self.controller_context = controller_context
        self._is_moving = is_moving
        self._running: set[str] = set()
        self._waiters: dict[str, list[Pending[None]]] = {}
        self._waiting_for_move: set[str] = set()
        self._refusals: dict[str, dict[int, int]] = {}  # topic -> broker -> its epoch when it refused

    def start_or_resume(self, topic: str) -> None:
        """Start or resume the deletion of a topic; do nothing while it is halted or already running."""
        if self._is_moving(topic) and self.controller_context.broker_context.guards.deletion_waits_for_reassignment:
            self._waiting_for_move.add(
                topic
            )  # until then a topic like any other: leaders and ISRs change, or no move ends
            return
        self.controller_context.cluster.deleting.add(topic)
        if topic not in self._running and not self._is_halted(topic):
            self._running.add(topic)
            self.controller_context.spawn(self._delete, topic)

    def _is_halted(self, topic: str) -> bool:
        hosts = {
            replica
            for key in self.controller_context.cluster.partitions(topic)
            for replica in self.controller_context.cluster.replicas(key)
        }
        brokers = self.controller_context.cluster.brokers
        refusals = self._refusals.get(topic, {}).items()
        if any(brokers[broker].epoch == epoch for broker, epoch in refusals if broker in brokers):
            return True  # a broker that refused refuses again until it restarts
        return waits_for_replicas(self.controller_context) and not hosts <= set(brokers)

    def on_reassignment_end(self, topic: str) -> None:
        """Start the deletion that waited for the reassignment of this topic, if any."""
        if topic in self._waiting_for_move:
            self._waiting_for_move.discard(topic)
            self.start_or_resume(topic)

    async def _delete(self, topic: str) -> None:
        deletion = Deletion(self.controller_context, topic)
        done = await deletion.run_steps()
        self._running.discard(topic)
        self._refusals[topic] = deletion.refusals
        if done:
            del self._refusals[topic]
            for pending in self._waiters.pop(topic, []):
                pending.resolve(None)
        if topic in self.controller_context.cluster.deleting:
            self.start_or_resume(topic)  # the cause of the halt may be gone by now

    def on_replica_offline(self, replica: ReplicaKey) -> None:
        """Record that a replica is offline; if it was being deleted, its deletion waits for its broker."""
        status = self.controller_context.replicas[replica]
        if status == ReplicaStatus.DELETION_STARTED:
            self.controller_context.replicas.move(replica, ReplicaStatus.DELETION_INELIGIBLE)
        elif status in {ReplicaStatus.NEW, ReplicaStatus.ONLINE}:
            self.controller_context.replicas.move(replica, ReplicaStatus.OFFLINE)

    def when_deleted(self, topic: str) -> Pending[None]:
        """Resolve when the topic is deleted."""
        pending: Pending[None] = Pending()
        self._waiters.setdefault(topic, []).append(pending)
        return pending


class Deletion:
    """The deletion of one topic. A step returns False when it must wait for a broker.

    `refusals`: broker id -> its epoch, for brokers that answered StopReplica with an error.
    """

    def __init__(self, controller_context: ControllerContext, topic: str) -> None:
        self.controller_context, self.topic = controller_context, topic
        self.refusals: dict[int, int] = {}

    async def run_steps(self) -> bool:
        for step in STEPS:
            if not await step.run(self):
                return False
        return True

    @property
    def keys(self) -> list[Key]:
        return [
            key
            for key in self.controller_context.cluster.partitions(self.topic)
            if key in self.controller_context.cluster.states
        ]

    def _remaining_hosts(self) -> dict[int, list[Key]]:
        """Return broker id -> partitions whose replica there is not confirmed as deleted."""
        hosts: dict[int, list[Key]] = {}
        for key in self.keys:
            for replica in self.controller_context.cluster.replicas(key):
                if self.controller_context.replicas[(*key, replica)] != ReplicaStatus.DELETION_SUCCESSFUL:
                    hosts.setdefault(replica, []).append(key)
        return dict(sorted(hosts.items()))

    async def announce_deletion(self) -> bool:
        controller_context = self.controller_context
        controller_context.log(f"topic {self.topic}: deletion starts")
        for answer in controller_context.send_update_metadata(
            self.keys, controller_context.cluster.brokers, deleted=True
        ):
            await controller_context.wait_for(answer)
        return True

    async def mark_partitions_offline(self) -> bool:
        for key in self.controller_context.cluster.partitions(self.topic):
            if self.controller_context.partitions[key] in {PartitionStatus.NEW, PartitionStatus.ONLINE}:
                self.controller_context.partitions.move(key, PartitionStatus.OFFLINE)
        return True

    async def stop_replicas(self) -> bool:
        """Stop all replicas before the first is deleted, so that no follower fetches from a deleted log."""
        self._move_replicas(ReplicaStatus.OFFLINE)
        return await self._stop(delete=False) or not waits_for_replicas(self.controller_context)

    async def delete_replicas(self) -> bool:
        """Delete all replicas; those that are not confirmed are stopped again before the next try."""
        if self._replicas_in(ReplicaStatus.ONLINE):
            return False  # their broker has restarted since it stopped them
        self._move_replicas(ReplicaStatus.DELETION_STARTED)
        confirmed = await self._stop(delete=True)
        for replica in self._replicas_in(ReplicaStatus.DELETION_STARTED):
            self.controller_context.replicas.move(replica, ReplicaStatus.DELETION_INELIGIBLE)
        return confirmed or not waits_for_replicas(self.controller_context)

    async def _stop(self, *, delete: bool) -> bool:
        sent = [
            (host, keys, self.controller_context.send_stop_replica(host, keys, delete=delete))
            for host, keys in self._remaining_hosts().items()
        ]
        answers = [(host, keys, await self.controller_context.wait_for(answer)) for host, keys, answer in sent]
        for host, keys, answer in answers:
            stopped = _stopped_partitions(answer)
            for key in keys if delete else ():
                if key in stopped and self.controller_context.replicas[(*key, host)] == ReplicaStatus.DELETION_STARTED:
                    self.controller_context.replicas.move((*key, host), ReplicaStatus.DELETION_SUCCESSFUL)
            if answer is not None and not stopped.issuperset(keys):
                self._record_refusal(host, answer)
        return all(_stopped_partitions(answer).issuperset(keys) for _, keys, answer in answers)

    def _record_refusal(self, host: int, answer: StopReplicaResponse) -> None:
        info = self.controller_context.cluster.brokers.get(host)
        if info is not None:
            self.refusals[host] = info.epoch
            self.controller_context.log(
                f"topic {self.topic}: broker {host} did not stop its replicas (error {answer.error_code}); "
                "the deletion resumes when the broker restarts"
            )

    def _replicas_in(self, status: ReplicaStatus) -> list[ReplicaKey]:
        """Return the replicas in this state that are not confirmed as deleted."""
        remaining = [(*key, host) for host, keys in self._remaining_hosts().items() for key in keys]
        return [replica for replica in remaining if self.controller_context.replicas[replica] == status]

    def _move_replicas(self, status: ReplicaStatus) -> None:
        for host, keys in self._remaining_hosts().items():
            for key in keys:
                self.controller_context.replicas.move((*key, host), status)

    async def remove_replica_states(self) -> bool:
        for key in list(self.controller_context.cluster.partitions(self.topic)):
            for replica in self.controller_context.cluster.replicas(key):
                self.controller_context.replicas.forget((*key, replica))
            if self.controller_context.partitions[key] != PartitionStatus.NON_EXISTENT:
                self.controller_context.partitions.move(key, PartitionStatus.NON_EXISTENT)
        return True

    async def delete_topic_node(self) -> bool:
        await self.controller_context.delete_tree(f"{TOPICS}/{self.topic}")
        return True

    async def delete_config_node(self) -> bool:
        await self.controller_context.delete_tree(config_path(self.topic))
        return True

    async def delete_request_node(self) -> bool:
        await self.controller_context.write(Delete(f"{DELETE_TOPICS}/{self.topic}"))
        cluster = self.controller_context.cluster
        for key in self.keys:
            cluster.states.pop(key)
        cluster.topics.pop(self.topic, None)
        cluster.deleting.discard(self.topic)
        self.controller_context.log(f"topic {self.topic}: deleted")
        return True


def _stopped_partitions(answer: StopReplicaResponse | None) -> set[Key]:
    """Return the partitions that a broker stopped; none if it failed or if the request had a stale epoch."""
    if answer is None or answer.error_code != ErrorCode.NONE:
        return set()
    parts = answer.partition_errors
    return {(part.topic_name, part.partition_index) for part in parts if part.error_code == ErrorCode.NONE}


STEPS: Final[tuple[Step[Deletion, bool], ...]] = (
    Step("Send UpdateMetadata with the deletion to every broker: clients are rejected.", Deletion.announce_deletion),
    Step("Move its partitions to OfflinePartition.", Deletion.mark_partitions_offline),
    Step("Move its replicas to OfflineReplica: StopReplica ends fetching.", Deletion.stop_replicas),
    Step(
        "Move its replicas to ReplicaDeletionStarted: StopReplica deletes, each broker confirms.",
        Deletion.delete_replicas,
    ),
    Step("Remove the states of its replicas and partitions.", Deletion.remove_replica_states),
    Step("Delete the topic's node.", Deletion.delete_topic_node),
    Step("Delete the topic's settings.", Deletion.delete_config_node),
    Step("Delete the deletion request and the cached topic.", Deletion.delete_request_node),
)
