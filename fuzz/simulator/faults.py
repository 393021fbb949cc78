"""Carries a fault schedule out on a simulated cluster, within the fault budget.

The budget is that of IsrCommit (MayCrash): of those who may be elected, the ISR and eligible leader replicas, fewer
than min.insync.replicas may have lost a tail at once, and one that runs has all that was committed. To the protocol
every unclean restart may have lost its tail, so who crashed or restarted is in doubt until the controller has dealt
with that (KIP-966). Until a loser has caught up, a crash that would be one too many is spared. That somebody holds
everything is not enough: while two that lost their tails are in the ISR on paper, the third may leave it.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from highwater.fuzz.schedule import EVERYTHING, ROLE, Fault, Schedule, check
from highwater.fuzz.simulator.cluster import TOPIC, SimulatedCluster
from highwater.fuzz.simulator.invariants.all import Invariants
from highwater.reference.broker import Broker
from highwater.reference.clients.application import Application
from highwater.reference.controller.cluster import CONTROLLER
from highwater.reference.drivers.simulation.disk import Lose, SimulatedDisk
from highwater.reference.effects import STORE, Effect, Instant, broker_peer
from highwater.reference.store.messages import Delete
from highwater.reference.wire.records import HEADER_SIZE

Undo = Callable[[], None]
PARTITION: Final = re.compile(r"(leader|followers)\((?P<topic>[^,]+),(?P<number>\d+)\)")
CRC_COVERS: Final = 21  # from the attributes of a batch on
BATCH_OVERHEAD: Final = 12  # base offset and length, which the length does not count
KEEP_ELIGIBLE: Final = "KeepEligible"
LEAVING_MS: Final = 2_000  # a controlled shutdown that takes longer is cut short


class Injector:
    """`log` tells what was done, line by line."""

    def __init__(self, cluster: SimulatedCluster, invariants: Invariants) -> None:
        self._cluster, self._invariants, self._seen = cluster, invariants, invariants.seen
        self._world = cluster.world
        self._undo: dict[int, list[Undo]] = {}
        self._lost_tail, self._rotten = invariants.unclean, invariants.unreadable
        self._failing_disk: set[int] = set()
        self.log: list[str] = []
        self._begin: dict[str, Callable[[Fault, str], Undo | None]] = {
            "kill": self._kill,
            "bounce": self._bounce,
            "pause": self._pause,
            "cut": lambda fault, node: self._spoil(fault, node, cut=1),
            "clog": lambda fault, node: self._spoil(fault, node, clog=1),
            "delay": lambda fault, node: self._spoil(
                fault, node, delay_ms=fault.number("ms"), spread_ms=fault.number("spread_ms")
            ),
            "loss": lambda fault, node: self._spoil(fault, node, loss_per_mille=fault.number("per_mille")),
            "duplicate": lambda fault, node: self._spoil(fault, node, duplicate_per_mille=fault.number("per_mille")),
            "disconnect": self._disconnect,
            "slow_flush": self._slow_flush,
            "fail_flush": partial(self._spoil_disk, attribute="flush_fails"),
            "full_disk": partial(self._spoil_disk, attribute="full"),
            "rot": self._rot,
            "clock": self._jump,
            "expire": self._expire,
            "depose": self._depose,
            "stall": self._stall,
        }

    # -- a schedule --------------------------------------------------------------------------------

    def arrange(self, schedule: Schedule) -> None:
        """All faults of it, counted from now; UsageError for one that the simulator has not, or a node it has not."""
        check(schedule, [self._id(name) for name in self._world.hosts])
        if any(fault.options.get("what", EVERYTHING) != EVERYTHING for fault in schedule.faults):
            self._world.network.separate_connections()
        for number, fault in enumerate(schedule.in_order()):
            self._world.schedule(fault.at_ms, partial(self._inject, number, fault))

    def _inject(self, number: int, fault: Fault) -> None:
        begin = self._begin.get(fault.kind)
        if begin is None:
            self._tell(f"{fault.kind}: unsupported, virtual messages have no size in time")
            return
        for node in self._resolve(fault.nodes):
            self._tell(f"{fault.kind} {self._id(node)}")
            undo = begin(fault, node)
            if undo is not None:
                self._undo.setdefault(number, []).append(undo)
        if fault.for_ms:
            self._world.schedule(fault.for_ms, partial(self._end, number))
        self._seen.add(fault.kind)

    def _end(self, number: int) -> None:
        for undo in self._undo.pop(number, []):
            undo()

    def heal(self) -> None:
        """Every fault is over, and everything runs."""
        for number in list(self._undo):
            self._end(number)
        for host in self._world.hosts.values():
            host.disk.heal()
            if self._id(host.name) in map(str, self._rotten) and host.node is not None:
                self._world.crash(host.name)  # a replica that met bad data is offline until the next start
            self._start(host.name)
        self._invariants.readable_again()
        self._tell("all faults are over")

    def _tell(self, what: str) -> None:
        self.log.append(f"{self._world.now_ms:>6} ms  {what}")

    # -- whom ----------------------------------------------------------------------------------------

    def _id(self, host: str) -> str:
        return host.removeprefix("broker:")

    def _resolve(self, nodes: tuple[str, ...]) -> list[str]:
        """Names of hosts; a role that nobody has right now is nobody."""
        found: dict[str, None] = {}
        for node in nodes:
            found.update(dict.fromkeys(self._role(node)))
        return list(found)

    def _role(self, node: str) -> Iterator[str]:
        cluster = self._cluster
        if ROLE.fullmatch(node) and node != "all" and not self._world.is_up(STORE):
            return
        if node == "all":
            yield from map(broker_peer, cluster.broker_ids)
        elif node == "controller" or node.startswith("coordinator("):
            broker_id = cluster.controller() if node == "controller" else cluster.coordinator_of(node[12:-1])
            if broker_id > 0:
                yield broker_peer(broker_id)
        elif role := PARTITION.fullmatch(node):
            state = cluster.stored(int(role["number"])) if role["topic"] == TOPIC else None
            if state is not None:
                is_leader = role[1] == "leader"
                yield from (broker_peer(b) for b in cluster.broker_ids if (b == state.leader) is is_leader)
        else:
            yield broker_peer(int(node)) if node.isdigit() else node

    def _links(self, fault: Fault, node: str) -> Iterator[tuple[str, str]]:
        mine = set(self._resolve(fault.nodes))
        of, direction = str(fault.option("of")), fault.option("direction")
        for other in self._world.hosts:
            is_broker = other.startswith("broker:")
            wanted = {
                "others": other not in mine,
                "brokers": is_broker and other not in mine,
                "clients": not is_broker and other != STORE,
            }.get(of, self._id(other) == of)
            if not wanted or other == node:
                continue
            if direction != "in":
                yield node, other
            if direction != "out":
                yield other, node

    # -- processes -----------------------------------------------------------------------------------

    def _start(self, host: str) -> None:
        if self._world.is_up(host):
            self._world.resume(host)
        else:
            self._world.start(host)

    def _kill(self, fault: Fault, node: str) -> Undo | None:
        if not self._world.is_up(node):
            return None
        lose: Lose = fault.option("lose")  # type: ignore[assignment]  # checked by the table of kinds
        if node.startswith("broker:"):
            broker_id = int(self._id(node))
            others_hold = self._others_hold(broker_id)
            self._lost_tail.difference_update([other for other in self._lost_tail if self._holds_all(other)])
            if (self._lost_tail - {broker_id} or broker_id in self._rotten) and not others_hold:
                self._tell(f"{self._id(node)} is spared by the fault budget")
                return None
            lose = lose if others_hold and not self._failing_disk - {broker_id} else "nothing"
            if lose != "nothing" or broker_id in self._rotten:
                self._lost_tail.add(broker_id)
        if lose != "nothing":
            self._seen.add("lost tail")
            self._tell(f"{self._id(node)} loses what was not flushed ({lose})")
        self._world.crash(node, lose=lose)
        return lambda: self._start(node)

    def _bounce(self, fault: Fault, node: str) -> Undo | None:
        broker = self._world.hosts[node].node
        if not isinstance(broker, Broker):
            return self._kill(Fault(at_ms=0, kind="kill", nodes=fault.nodes), node)
        self._world.enter(node, broker.shut_down)
        self._stop_when_done(node, broker, self._world.now_ms + LEAVING_MS)

        def undo() -> None:
            self._stop_when_done(node, broker, 0)
            self._start(node)

        return undo

    def _stop_when_done(self, node: str, broker: Broker, until_ms: int) -> None:
        host = self._world.hosts[node]
        if host.node is not broker:
            return
        if not broker.may_stop and self._world.now_ms < until_ms:
            self._world.schedule(20, lambda: self._stop_when_done(node, broker, until_ms))
            return
        if not host.paused and not host.disk.full:
            self._world.enter(node, broker.stop)
            host.disk.flush_all()
        self._world.crash(node)

    def _pause(self, fault: Fault, node: str) -> Undo:
        self._world.pause(node)
        return lambda: self._world.resume(node)

    def _stall(self, fault: Fault, node: str) -> Undo | None:
        application = self._world.hosts[node].node
        if not isinstance(application, Application):
            return None
        application.polling = False
        return lambda: setattr(application, "polling", True)

    def _expire(self, fault: Fault, node: str) -> None:
        if self._world.is_up(STORE):
            self._world.enter(STORE, lambda now: self._cluster.store().expire(now, node))

    def _depose(self, fault: Fault, node: str) -> None:
        """As an operator does who deletes the controller's node, through whatever broker has a session."""
        brokers = map(self._cluster.broker, self._cluster.broker_ids)
        found = next((broker for broker in brokers if broker is not None and broker.store.connected), None)
        if found is None:
            return

        def delete(now: Instant) -> list[Effect]:
            found.store.call(Delete(CONTROLLER))
            return found.fire(now, "nobody's")

        self._world.enter(broker_peer(found.config.broker_id), delete)

    # -- network -------------------------------------------------------------------------------------

    def _spoil(self, fault: Fault, node: str, **more: int) -> Undo:
        links, spoil = list(self._links(fault, node)), self._world.network.add_faults
        what = str(fault.option("what"))
        kind = "" if what == EVERYTHING else what
        for source, target in links:
            spoil(source, target, kind, **more)
        less = {name: -amount for name, amount in more.items()}

        def undo() -> None:
            for source, target in links:
                spoil(source, target, kind, **less)

        return undo

    def _disconnect(self, fault: Fault, node: str) -> None:
        for source, target in self._links(fault, node):
            if source == node:
                self._world.network.disconnect(source, target)

    # -- disk and clock ------------------------------------------------------------------------------

    def _slow_flush(self, fault: Fault, node: str) -> Undo:
        disk = self._world.hosts[node].disk
        before, disk.flush_ms = disk.flush_ms, fault.number("ms")
        return lambda: setattr(disk, "flush_ms", before)

    def _spoil_disk(self, fault: Fault, node: str, attribute: str) -> Undo | None:
        """It may end the process, or take replicas offline until the next start; nothing is lost by that."""
        if not node.startswith("broker:"):
            return None
        broker_id = int(self._id(node))
        if self._lost_tail or self._failing_disk or not self._others_hold(broker_id):
            self._tell(f"{broker_id} is spared by the fault budget")
            return None
        host = self._world.hosts[node]
        setattr(host.disk, attribute, True)
        self._failing_disk.add(broker_id)

        def undo() -> None:
            setattr(host.disk, attribute, False)
            self._failing_disk.discard(broker_id)
            if self._world.is_up(node):
                self._world.crash(node)
            self._start(node)

        return undo

    def _rot(self, fault: Fault, node: str) -> Undo | None:
        """Counts as a lost tail: recovery may cut the log there."""
        broker_id = int(self._id(node)) if node.startswith("broker:") else 0
        if not broker_id or self._lost_tail or self._failing_disk or not self._others_hold(broker_id):
            self._tell(f"{self._id(node)} is spared by the fault budget")
            return None
        self._world.crash(node)
        self._lost_tail.add(broker_id)
        if rot_newest_segment(self._world.hosts[node].disk, f"{TOPIC}-0", fault.number("bit")):
            self._rotten.add(broker_id)
        return lambda: self._start(node)

    def _jump(self, fault: Fault, node: str) -> Undo:
        host = self._world.hosts[node]
        by_ms = -fault.number("by_ms") if fault.option("back") else fault.number("by_ms")
        host.wall_offset_ms += by_ms
        return lambda: setattr(host, "wall_offset_ms", host.wall_offset_ms - by_ms)

    # -- the budget ----------------------------------------------------------------------------------

    def _holds_all(self, broker_id: int) -> bool:
        """All that was committed of each partition of which it has a replica, and for the controller, too."""
        broker = self._cluster.broker(broker_id)
        return (
            broker is not None
            and self._cluster.is_settled(broker_id)
            and all(
                self._invariants.holds_committed(broker_id, key)
                for key in self._invariants.partitions
                if key in broker.replicas.partitions
            )
        )

    def _others_hold(self, broker_id: int) -> bool:
        """May this broker be in doubt, too? (MayCrash of IsrCommit)

        Of those that may be elected fewer than min.insync.replicas are in doubt at once, and another, settled and
        sound, holds all that was committed. Where it is to be shown what the lack of `KeepEligible` does, those count
        too whom the rule would keep.
        """
        if not self._world.is_up(STORE):
            return False
        unsettled = {other for other in self._cluster.broker_ids if not self._cluster.is_settled(other)}
        doubted = self._lost_tail | self._failing_disk | unsettled
        kept = KEEP_ELIGIBLE in self._cluster.settings.guards_off
        for key, partition in self._invariants.partitions.items():
            state = self._cluster.stored(key[1], key[0])
            if state is None:
                continue
            others = (partition.eligible if kept else {*state.isr, *state.elr}) - {broker_id}
            in_doubt = 1 + len(others & doubted)
            sound = others - doubted - self._rotten
            if in_doubt >= partition.enough or not any(self._invariants.holds_committed(each, key) for each in sound):
                return False
        return True


def rot_newest_segment(disk: SimulatedDisk, folder: str, bit: int) -> bool:
    """Flip a bit that a CRC covers; offsets and leader epochs have none that could tell, in Apache Kafka neither."""
    paths = [f"{folder}/{name}" for name in disk.names(folder) if name.endswith(".log")]
    covered: list[int] = []
    position, size = 0, disk.size(paths[-1]) if paths else 0
    while position + HEADER_SIZE <= size:
        length = int.from_bytes(disk.read(paths[-1], position + 8, 4), "big")
        covered += range(position + CRC_COVERS, min(position + BATCH_OVERHEAD + length, size))
        position += BATCH_OVERHEAD + length
    if covered:
        disk.rot(paths[-1], covered[bit // 8 % len(covered)], 1 << bit % 8)
    return bool(covered)
