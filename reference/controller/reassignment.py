"""Moving a partition to other brokers, in the eleven steps of kafka-0.8-principles and kafka-0.9-controller.

OAR are the replicas that it had, RAR those that it shall have. The wish stands in the store until the last step, and
the store keeps the old replicas until the last but one: whichever step a controller does not survive, its successor
begins at the first one, and ends well.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from reference.context import from_json, to_json
from reference.controller.cluster import Key, StoreLostError
from reference.controller.election import elect_reassigned, succeed
from reference.controller.office import Office
from reference.controller.paths import REASSIGN, TOPICS
from reference.controller.steps import Step
from reference.controller.transitions import ReplicaStatus
from reference.replication.states import PartitionState
from reference.store_messages import Create, Delete, SetData

Replicas = tuple[int, ...]


class SupersededError(Exception):
    """Another wish for the partition came meanwhile."""


class Reassignments:
    """All that are under way in this term; `on_end` hears of each topic of which nothing moves any more."""

    def __init__(self, office: Office, on_end: Callable[[str], None]) -> None:
        self._office, self._on_end = office, on_end
        self.running: dict[Key, Reassignment] = {}

    def moves(self, topic: str) -> bool:
        return any(key[0] == topic for key in self.running)

    async def resume(self) -> None:
        """Take up what the store wishes: after a failover, and when the node of wishes changes."""
        for key, target in (await read_wishes(self._office)).items():
            running = self.running.get(key)
            if key not in self._office.cluster.states or key[0] in self._office.cluster.deleting:
                await write_wish(self._office, key, None)
            elif running is None or (running.target != target and not running.is_deleting):
                original = self._office.cluster.replicas(key)  # after a failover: OAR and RAR already
                if running is not None:
                    running.superseded, original = True, running.both
                self.running[key] = Reassignment(self._office, key, original, target)
                self._office.begin(self._run, self.running[key])

    async def _run(self, reassignment: "Reassignment") -> None:
        key = reassignment.key
        try:
            for number, step in enumerate(STEPS, 1):
                reassignment.check()
                await step.take(reassignment)
                self._office.log(f"{key[0]}-{key[1]} reassignment step {number}: {step.sentence}")
                self._office.context.trace(
                    f"{key[0]}-{key[1]}", "ReassignmentStep", choices={"step": number, "target": reassignment.target}
                )
        except SupersededError:
            return
        del self.running[key]
        await self.resume()  # another wish may have come too late for this move
        self._on_end(key[0])


class Reassignment:
    def __init__(self, office: Office, key: Key, original: Replicas, target: Replicas) -> None:
        self.office, self.key, self.target = office, key, target
        self.superseded = False
        self.is_deleting = False  # from here on it goes to its end, and another wish waits
        begun = office.cluster.topics[key[0]].adding.get(key[1], ())
        self.both = tuple(dict.fromkeys((*target, *original)))
        self.adding = tuple(replica for replica in target if replica not in original or replica in begun)
        self.leaving = tuple(replica for replica in original if replica not in target)

    @property
    def state(self) -> PartitionState:
        return self.office.cluster.states[self.key]

    def check(self) -> None:
        if self.superseded:
            raise SupersededError

    def _assign(self, replicas: Replicas) -> None:
        self.office.cluster.topics[self.key[0]].assignment[self.key[1]] = replicas

    async def announce_both(self) -> None:
        both = self.both if self.office.context.guards.announce_both_replica_sets else self.target
        self._assign(both)
        await self._persist(both, adding=self.adding, removing=self.leaving)

    async def _persist(self, replicas: Replicas, *, adding: Replicas = (), removing: Replicas = ()) -> None:
        topic, partition = self.key
        info = self.office.cluster.topics[topic]
        info.adding[partition], info.removing[partition] = adding, removing
        for moving in (info.adding, info.removing):
            if not moving[partition]:
                del moving[partition]
        stored = replace(info, assignment={**info.assignment, partition: replicas})
        await self.office.write(SetData(f"{TOPICS}/{topic}", stored.to_bytes()))

    async def raise_epoch(self) -> None:
        """So that every replica, old or new, hears of all the others."""
        await self.office.change([self.key], lambda key, state: succeed(state, state.leader, state.isr))

    async def start_new(self) -> None:
        for replica in self.adding:
            if self.office.replicas[(*self.key, replica)] == ReplicaStatus.NON_EXISTENT:
                self.office.replicas.move((*self.key, replica), ReplicaStatus.NEW)

    async def await_in_sync(self) -> None:
        guarded = self.office.context.guards.await_target_in_sync
        while guarded and not set(self.target) <= set(self.state.isr):
            await self.office.ask(self.office.next_state(self.key))
            self.check()

    async def bring_online(self) -> None:
        for replica in self.target:
            if replica in self.office.cluster.brokers:
                self.office.replicas.move((*self.key, replica), ReplicaStatus.ONLINE)

    async def replace_cache(self) -> None:
        """Not yet the store: a successor would not know whom to stop."""
        self._assign(self.target)
        if not self.office.context.guards.persist_assignment_last:
            await self._persist(self.target)

    async def move_leader(self) -> None:
        """Waits while none of the new replicas may lead. Those that leave are not told of the new epoch:

        they would fetch in it, and be let into the ISR again.
        """
        if not self.office.context.guards.move_leader_to_target:
            return
        while not await self.office.change([self.key], self._led_by_target):
            await self.office.ask(self.office.next_state(self.key))
            self.check()

    def _led_by_target(self, key: Key, state: PartitionState) -> PartitionState | None:
        return elect_reassigned(state, self.target, self.office.cluster.live(key))

    async def stop_old(self) -> None:
        self.is_deleting = True
        if self.office.context.guards.shrink_before_delete:
            await self.office.change([self.key], self._without_leaving)
        await self._stop(delete=False)
        for replica in self.leaving:
            if self.office.replicas[(*self.key, replica)] in {ReplicaStatus.ONLINE, ReplicaStatus.NEW}:
                self.office.replicas.move((*self.key, replica), ReplicaStatus.OFFLINE)

    def _without_leaving(self, key: Key, state: PartitionState) -> PartitionState | None:
        isr = tuple(replica for replica in state.isr if replica in self.target)
        return succeed(state, state.leader, isr) if isr and isr != state.isr else None

    async def delete_old(self) -> None:
        """A broker that is down keeps its copy, and no rights."""
        for replica in self.leaving:
            if self.office.replicas[(*self.key, replica)] == ReplicaStatus.OFFLINE:
                self.office.replicas.move((*self.key, replica), ReplicaStatus.DELETION_STARTED)
        await self._stop(delete=True)
        for replica in self.leaving:
            self.office.replicas.forget((*self.key, replica))

    async def _stop(self, *, delete: bool) -> None:
        for answer in [self.office.send_stop(replica, [self.key], delete=delete) for replica in self.leaving]:
            await self.office.ask(answer)

    async def persist_assignment(self) -> None:
        await self._persist(self.target)

    async def finish(self) -> None:
        await write_wish(self.office, self.key, None, former=self.target)
        self.office.send_metadata([self.key], self.office.cluster.brokers)


STEPS: Final[tuple[Step[Reassignment, None], ...]] = (
    Step("The store's assigned replicas are OAR and RAR together.", Reassignment.announce_both),
    Step("A new leader epoch, and LeaderAndIsr to all of them.", Reassignment.raise_epoch),
    Step("The replicas of RAR - OAR are NewReplica.", Reassignment.start_new),
    Step("Every replica of RAR is in sync with the leader.", Reassignment.await_in_sync),
    Step("The replicas of RAR are OnlineReplica.", Reassignment.bring_online),
    Step("The cached assigned replicas are RAR.", Reassignment.replace_cache),
    Step("A leader out of RAR, and LeaderAndIsr.", Reassignment.move_leader),
    Step("OAR - RAR are OfflineReplica: out of the ISR, then StopReplica.", Reassignment.stop_old),
    Step("OAR - RAR are NonExistentReplica: their data are deleted.", Reassignment.delete_old),
    Step("The store's assigned replicas are RAR.", Reassignment.persist_assignment),
    Step("The wish is deleted.", Reassignment.finish),
)


# -- the node of wishes ------------------------------------------------------------------------------


def parse_wishes(data: bytes) -> dict[Key, Replicas]:
    entries = from_json(data)["partitions"]
    return {(entry["topic"], int(entry["partition"])): tuple(entry["replicas"]) for entry in entries}


def wishes_to_bytes(wishes: dict[Key, Replicas]) -> bytes:
    entries = [{"topic": key[0], "partition": key[1], "replicas": target} for key, target in sorted(wishes.items())]
    return to_json({"version": 1, "partitions": entries})


async def read_wishes(office: Office) -> dict[Key, Replicas]:
    found = await office.ask(office.store.get(REASSIGN))
    if found.error not in {"", "NoNode"}:
        raise StoreLostError(found.error)
    return parse_wishes(found.data) if not found.error else {}


async def write_wish(office: Office, key: Key, target: Replicas | None, *, former: Replicas | None = None) -> None:
    """Add or replace one wish; None takes it away, and the last one takes the node with it.

    `former`: takes that one away, and no other.
    """
    while True:
        found = await office.ask(office.store.get(REASSIGN))
        wishes = parse_wishes(found.data) if found.stat is not None else {}
        version = found.stat.version if found.stat is not None else 0
        if former is not None and wishes.get(key) != former:
            return
        if target is None:
            wishes.pop(key, None)
        else:
            wishes[key] = target
        if found.stat is None and not wishes:
            return
        operation = Delete(REASSIGN, version) if not wishes else SetData(REASSIGN, wishes_to_bytes(wishes), version)
        if found.stat is None:
            operation = Create(REASSIGN, wishes_to_bytes(wishes))  # type: ignore[assignment]
        if not (await office.write(operation)).error:
            return
