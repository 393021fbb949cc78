"""Faults of a simulation: drawn from the seed as an absolute schedule, and kept within the fault budget."""

from functools import partial

from fuzz.invariants import Invariants
from fuzz.simulated_cluster import SimulatedCluster
from reference.drivers.simulation.chance import Chance
from reference.events import broker_peer
from spec.formats.schedule import Fault, Schedule, Verb

LOAD_MS = 6_000
MAX_FAULTS = 6
KINDS: list[tuple[Verb, Verb]] = [("kill", "restart"), ("pause", "resume")]


def draw_schedule(seed: int, brokers: int) -> Schedule:
    """Swarm testing: first which kinds of fault this run has, then when and whom they hit."""
    chance = Chance(seed)
    kinds = [kind for n, kind in enumerate(KINDS) if chance.draw("kinds", n, 3) > 0] or KINDS[:1]
    faults: list[Fault] = []
    for n in range(1 + chance.draw("faults", 0, MAX_FAULTS)):
        at_ms = chance.draw("at", n, LOAD_MS)
        lasts_ms = (40, 150, 700, 2_000)[chance.draw("lasts", n, 4)] + chance.draw("lasts more", n, 60)
        verb, undo = kinds[chance.draw("verb", n, len(kinds))]
        target = str(1 + chance.draw("target", n, brokers))
        faults += [
            Fault(at_ms=at_ms, verb=verb, target=target),
            Fault(at_ms=at_ms + lasts_ms, verb=undo, target=target),
        ]
    return Schedule(faults=tuple(sorted(faults, key=lambda fault: fault.at_ms)), duration_ms=LOAD_MS)


class Injector:
    """Carries a schedule out within the fault budget: some member of each ISR always has all that was committed.

    (TLC shows that a zombie leader makes more necessary: all that the member has acknowledged to its leader.)

    A crash loses the unflushed tail only while another running member of the ISR holds everything. Until the loser
    has caught up again, a crash that would take the last such member is spared: to the protocol every unclean
    restart may have lost its tail, so that would be one tail too many for min.insync.replicas = 2 (KIP-966).
    """

    def __init__(self, cluster: SimulatedCluster, invariants: Invariants) -> None:
        self._cluster, self._invariants, self._world = cluster, invariants, cluster.world
        self._lost_tail: set[int] = set()
        self.log: list[str] = []

    def arrange(self, schedule: Schedule) -> None:
        for fault in schedule.faults:
            self._world.schedule(fault.at_ms, partial(self.inject, fault))

    def inject(self, fault: Fault) -> None:
        broker_id = int(fault.target)
        peer = broker_peer(broker_id)
        note = ""
        match fault.verb:
            case "kill":
                note = self._kill(broker_id, wants_loss=self._world.chance.draw("lose", fault.at_ms, 4) > 0)
            case "restart":
                if not self._world.is_up(peer):
                    self._world.start(peer)
            case "pause":
                self._world.pause(peer)
                self._invariants.seen.add("pause")
            case "resume":
                self._world.resume(peer)
        self.log.append(f"{self._world.now_ms:>6} ms  {fault.verb} broker {fault.target}{note}")

    def _kill(self, broker_id: int, *, wants_loss: bool) -> str:
        if not self._world.is_up(broker_peer(broker_id)):
            return ", which is down"
        others_hold = self._others_hold(broker_id)
        self._lost_tail = {b for b in self._lost_tail if not self._holds_all(b)}
        if self._lost_tail - {broker_id} and not others_hold:
            return " is spared by the fault budget"
        lose = wants_loss and others_hold
        self._world.crash(broker_peer(broker_id), lose_unflushed=lose)
        self._invariants.seen.add("lost tail" if lose else "crash")
        if lose:
            self._lost_tail.add(broker_id)
        return ", which loses what was not flushed" if lose else ""

    def _holds_all(self, broker_id: int) -> bool:
        return all(self._invariants.holds_committed(broker_id, number) for number in self._invariants.committed)

    def _others_hold(self, broker_id: int) -> bool:
        """Is there for each partition another running member of the ISR that holds all that was committed?"""
        for partition in self._invariants.committed:
            state = self._cluster.stored(partition)
            members = [member for member in state.isr if member != broker_id] if state else []
            if not any(self._invariants.holds_committed(member, partition) for member in members):
                return False
        return True

    def heal(self) -> None:
        for broker_id in self._cluster.broker_ids:
            peer = broker_peer(broker_id)
            if self._world.is_up(peer):
                self._world.resume(peer)
            else:
                self._world.start(peer)
