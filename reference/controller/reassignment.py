"""Partition reassignment in the eleven steps of kafka-0.8-principles and kafka-0.9-controller.

OAR are the original assigned replicas, RAR the reassigned (target) replicas. The request stays in the store until the
last step, and the stored assignment includes OAR until the last but one. If the controller fails at any step, its
successor can therefore start again at the first. Apache Kafka: KafkaController.onPartitionReassignment.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from highwater.reference.context import from_json, to_json
from highwater.reference.controller.cluster import REASSIGN, TOPICS, Key, StoreLostError, TopicInfo, read_topics
from highwater.reference.controller.context import ControllerContext
from highwater.reference.controller.election import elect_reassigned, with_new_epoch
from highwater.reference.controller.steps import Step
from highwater.reference.controller.transitions import ReplicaStatus
from highwater.reference.replication.states import PartitionState
from highwater.reference.store.messages import Create, Delete, SetData

Replicas = tuple[int, ...]


class SupersededError(Exception):
    """A newer request replaced the reassignment of this partition."""


class Reassignments:
    """The reassignments of one controller epoch; `on_end(topic)` is called after each one completes."""

    def __init__(self, controller_context: ControllerContext, on_end: Callable[[str], None]) -> None:
        self._controller_context, self._on_end = controller_context, on_end
        self.running: dict[Key, Reassignment] = {}

    def is_moving(self, topic: str) -> bool:
        return any(key[0] == topic for key in self.running)

    async def resume(self) -> None:
        """Start the reassignments that the store requests, after a failover and when the request node changes."""
        for key, target in (await read_reassignments(self._controller_context)).items():
            running = self.running.get(key)
            if (
                key not in self._controller_context.cluster.states
                or key[0] in self._controller_context.cluster.deleting
            ):
                await write_reassignments(self._controller_context, {key: None})
            elif running is None or (running.target != target and not running.is_deleting):
                original = self._controller_context.cluster.replicas(
                    key
                )  # after a failover this may already be OAR + RAR
                if running is not None:
                    running.superseded, original = True, running.all_replicas
                self.running[key] = Reassignment(self._controller_context, key, original, target)
                self._controller_context.spawn(self._run, self.running[key])

    async def _run(self, reassignment: "Reassignment") -> None:
        key = reassignment.key
        try:
            for number, step in enumerate(STEPS, 1):
                reassignment.check_superseded()
                await step.run(reassignment)
                self._controller_context.log(f"{key[0]}-{key[1]} reassignment step {number}: {step.description}")
                self._controller_context.broker_context.trace(
                    f"{key[0]}-{key[1]}", "ReassignmentStep", choices={"step": number, "target": reassignment.target}
                )
        except SupersededError:
            return
        del self.running[key]
        await self.resume()  # a newer request may have arrived too late to replace this one
        self._on_end(key[0])


class Reassignment:
    """The reassignment of one partition; the methods that STEPS lists are its steps."""

    def __init__(self, controller_context: ControllerContext, key: Key, original: Replicas, target: Replicas) -> None:
        self.controller_context, self.key, self.target = controller_context, key, target
        self.superseded = False
        self.is_deleting = False  # from then on it runs to its end, and a newer request waits
        already_adding = controller_context.cluster.topics[key[0]].adding.get(key[1], ())
        self.all_replicas = tuple(dict.fromkeys((*target, *original)))
        self.adding = tuple(replica for replica in target if replica not in original or replica in already_adding)
        self.removing = tuple(replica for replica in original if replica not in target)

    @property
    def state(self) -> PartitionState:
        return self.controller_context.cluster.states[self.key]

    def check_superseded(self) -> None:
        if self.superseded:
            raise SupersededError

    def _assign(self, replicas: Replicas) -> None:
        self.controller_context.cluster.topics[self.key[0]].assignment[self.key[1]] = replicas

    async def assign_both(self) -> None:
        assigned = (
            self.all_replicas
            if self.controller_context.broker_context.guards.announce_both_replica_sets
            else self.target
        )
        self._assign(assigned)
        await self._persist(assigned, adding=self.adding, removing=self.removing)

    async def _persist(self, replicas: Replicas, *, adding: Replicas = (), removing: Replicas = ()) -> None:
        """Replace one partition in the stored topic, and keep partitions that were added since it was cached."""
        topic, partition = self.key
        info = self.controller_context.cluster.topics[topic]
        _set_moving(info, partition, adding, removing)
        stored: TopicInfo | None = replace(info, assignment=dict(info.assignment))
        while stored is not None:
            stored.assignment[partition] = replicas
            write = SetData(f"{TOPICS}/{topic}", stored.to_bytes(), stored.version)
            reply = await self.controller_context.write(write)
            if reply.error != "BadVersion":
                info.version = next((stat.version for stat in reply.stats if stat is not None), stored.version)
                return
            stored = (await read_topics(self.controller_context.store, (topic,))).get(topic)
            if stored is not None:
                _set_moving(stored, partition, adding, removing)

    async def bump_leader_epoch(self) -> None:
        """Start a new leader epoch, so that LeaderAndIsr reaches every replica with the full replica list."""
        await self.controller_context.update_partitions(
            [self.key], lambda key, state: with_new_epoch(state, state.leader, state.isr)
        )

    async def start_new_replicas(self) -> None:
        for replica in self.adding:
            if self.controller_context.replicas[(*self.key, replica)] == ReplicaStatus.NON_EXISTENT:
                self.controller_context.replicas.move((*self.key, replica), ReplicaStatus.NEW)

    async def wait_until_in_sync(self) -> None:
        enforced = self.controller_context.broker_context.guards.await_target_in_sync
        while enforced and not set(self.target) <= set(self.state.isr):
            await self.controller_context.wait_for(self.controller_context.when_state_changes(self.key))
            self.check_superseded()

    async def bring_online(self) -> None:
        for replica in self.target:
            if replica in self.controller_context.cluster.brokers:
                self.controller_context.replicas.move((*self.key, replica), ReplicaStatus.ONLINE)

    async def update_cached_assignment(self) -> None:
        """Set the cached assignment to RAR; a successor needs the stored one to know which replicas to stop."""
        self._assign(self.target)
        if not self.controller_context.broker_context.guards.persist_assignment_last:
            await self._persist(self.target)

    async def move_leader(self) -> None:
        """Elect a leader from RAR, waiting while no RAR replica can lead.

        The removed replicas do not receive the new epoch: they would fetch with it and rejoin the ISR.
        """
        if not self.controller_context.broker_context.guards.move_leader_to_target:
            return
        while not await self.controller_context.update_partitions([self.key], self._elect_target):
            await self.controller_context.wait_for(self.controller_context.when_state_changes(self.key))
            self.check_superseded()

    def _elect_target(self, key: Key, state: PartitionState) -> PartitionState | None:
        return elect_reassigned(state, self.target, self.controller_context.cluster.live(key))

    async def stop_old_replicas(self) -> None:
        self.is_deleting = True
        if self.controller_context.broker_context.guards.shrink_before_delete:
            await self.controller_context.update_partitions([self.key], self._shrink_to_target)
        await self._stop(delete=False)
        for replica in self.removing:
            if self.controller_context.replicas[(*self.key, replica)] in {ReplicaStatus.ONLINE, ReplicaStatus.NEW}:
                self.controller_context.replicas.move((*self.key, replica), ReplicaStatus.OFFLINE)

    def _shrink_to_target(self, key: Key, state: PartitionState) -> PartitionState | None:
        isr = tuple(replica for replica in state.isr if replica in self.target)
        return with_new_epoch(state, state.leader, isr) if isr and isr != state.isr else None

    async def delete_old_replicas(self) -> None:
        """Delete the removed replicas; a broker that is down keeps its copy, which is no longer assigned."""
        for replica in self.removing:
            if self.controller_context.replicas[(*self.key, replica)] == ReplicaStatus.OFFLINE:
                self.controller_context.replicas.move((*self.key, replica), ReplicaStatus.DELETION_STARTED)
        await self._stop(delete=True)
        for replica in self.removing:
            self.controller_context.replicas.forget((*self.key, replica))

    async def _stop(self, *, delete: bool) -> None:
        for answer in [
            self.controller_context.send_stop_replica(replica, [self.key], delete=delete) for replica in self.removing
        ]:
            await self.controller_context.wait_for(answer)

    async def persist_assignment(self) -> None:
        await self._persist(self.target)

    async def finish(self) -> None:
        await write_reassignments(self.controller_context, {self.key: None}, expected=self.target)
        self.controller_context.send_update_metadata([self.key], self.controller_context.cluster.brokers)


def _set_moving(info: TopicInfo, partition: int, adding: Replicas, removing: Replicas) -> None:
    for moving, moved in ((info.adding, adding), (info.removing, removing)):
        moving.pop(partition, None)
        moving.update({partition: moved} if moved else {})


STEPS: Final[tuple[Step[Reassignment, None], ...]] = (
    Step("Set the stored assignment to OAR + RAR.", Reassignment.assign_both),
    Step("Start a new leader epoch and send LeaderAndIsr to OAR + RAR.", Reassignment.bump_leader_epoch),
    Step("Move RAR - OAR to NewReplica.", Reassignment.start_new_replicas),
    Step("Wait until every replica of RAR is in the ISR.", Reassignment.wait_until_in_sync),
    Step("Move RAR to OnlineReplica.", Reassignment.bring_online),
    Step("Set the cached assignment to RAR.", Reassignment.update_cached_assignment),
    Step("Elect a leader from RAR and send LeaderAndIsr.", Reassignment.move_leader),
    Step("Move OAR - RAR to OfflineReplica: shrink the ISR, then StopReplica.", Reassignment.stop_old_replicas),
    Step("Move OAR - RAR to NonExistentReplica: delete their data.", Reassignment.delete_old_replicas),
    Step("Set the stored assignment to RAR.", Reassignment.persist_assignment),
    Step("Delete the request.", Reassignment.finish),
)


# -- the request node -----------------------------------------------------------------------------------


def parse_reassignments(data: bytes) -> dict[Key, Replicas]:
    entries = from_json(data)["partitions"]
    return {(entry["topic"], int(entry["partition"])): tuple(entry["replicas"]) for entry in entries}


def reassignments_to_bytes(requested: dict[Key, Replicas]) -> bytes:
    entries = [{"topic": key[0], "partition": key[1], "replicas": target} for key, target in sorted(requested.items())]
    return to_json({"version": 1, "partitions": entries})


async def read_reassignments(controller_context: ControllerContext) -> dict[Key, Replicas]:
    found = await controller_context.wait_for(controller_context.store.get(REASSIGN))
    if found.error not in {"", "NoNode"}:
        raise StoreLostError(found.error)
    return parse_reassignments(found.data) if not found.error else {}


async def write_reassignments(
    controller_context: ControllerContext, targets: Mapping[Key, Replicas | None], *, expected: Replicas | None = None
) -> None:
    """Add or replace requests in one write; a target of None removes one, and removes the node with the last one.

    With `expected`, do nothing unless the stored targets equal it: a newer request must survive.
    """
    while True:
        found = await controller_context.wait_for(controller_context.store.get(REASSIGN))
        requested = parse_reassignments(found.data) if found.stat is not None else {}
        version = found.stat.version if found.stat is not None else 0
        if expected is not None and any(requested.get(key) != expected for key in targets):
            return
        requested = {key: target for key, target in {**requested, **targets}.items() if target is not None}
        if found.stat is None and not requested:
            return
        operation = (
            Delete(REASSIGN, version)
            if not requested
            else SetData(REASSIGN, reassignments_to_bytes(requested), version)
        )
        if found.stat is None:
            operation = Create(REASSIGN, reassignments_to_bytes(requested))  # type: ignore[assignment]
        if not (await controller_context.write(operation)).error:
            return
