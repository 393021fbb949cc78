"""Execute a fault schedule on a simulated cluster, within the fault budget.

The budget is that of IsrCommit (MayCrash): of the replicas that may be elected (ISR and eligible leader replicas) fewer
than min.insync.replicas may have lost their log tail at once, and a running one has all committed records. The protocol
treats every unclean restart as a lost tail, so a restarted broker is in doubt until the controller has handled the
restart (KIP-966). A crash beyond the budget is skipped until such a broker has caught up. One complete replica is not
enough: while the ISR still contains two brokers that lost their tails, the complete third one may leave it.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from highwater.fuzz.schedule import CLIENTS, EVERYTHING, MESSAGE, ROLE, Fault, Schedule, check
from highwater.fuzz.simulator.cluster import SimulatedCluster
from highwater.fuzz.simulator.disk_faults import (
    LOGS,
    LOST,
    MISDIRECTED,
    REJECTED,
    rot_file,
    rot_newest_segment,
)
from highwater.fuzz.simulator.invariants.all import Invariants
from highwater.fuzz.simulator.invariants.derived_files import damaged_batches
from highwater.fuzz.simulator.message_faults import MessageFaults
from highwater.reference.broker import Broker
from highwater.reference.clients.application import Application
from highwater.reference.controller.cluster import CONTROLLER
from highwater.reference.drivers.simulation.disk import Lose
from highwater.reference.drivers.simulation.world import Host
from highwater.reference.effects import STORE, Effect, Instant, broker_peer
from highwater.reference.store.messages import Delete

Undo = Callable[[], None]
PARTITION: Final = re.compile(r"(leader|followers)\((?P<topic>[^,]+),(?P<number>\d+)\)")
KEEP_ELIGIBLE: Final = "KeepEligible"
STRUCK: Final = "message struck"
"""The situation that a fault of messages met a request."""
LEAVING_MS: Final = 2_000  # a controlled shutdown that takes longer ends with a crash


class Injector:
    """Starts and ends the faults of a schedule. `log` has a line for each fault that was started or skipped.

    `on_fault` receives the kind of a fault when it begins, and `kind over` at its end.
    """

    def __init__(self, cluster: SimulatedCluster, invariants: Invariants) -> None:
        self._cluster, self._invariants, self._situations = cluster, invariants, invariants.situations
        self._world = cluster.world
        self._messages = MessageFaults(cluster.world.network, lambda: self._situations.add(STRUCK))
        self._undo: dict[int, list[Undo]] = {}
        self._lost_tail, self._rotten = invariants.unclean, invariants.unreadable
        self._lost_flushed: set[str] = set()  # hosts whose disk lost what it had acknowledged as flushed
        self._failing_disk: set[int] = set()
        self.on_fault: Callable[[str], None] = lambda name: None
        self.log: list[str] = []
        self._changed_ms = 0
        self._begin: dict[str, Callable[[Fault, str], Undo | None]] = {
            "kill": self._kill,
            "bounce": self._bounce,
            "pause": self._pause,
            "cut": lambda fault, node: self._add_link_faults(fault, node, cut=1),
            "clog": lambda fault, node: self._add_link_faults(fault, node, clog=1),
            "delay": lambda fault, node: self._add_link_faults(
                fault, node, delay_ms=fault.number("ms"), spread_ms=fault.number("spread_ms")
            ),
            "loss": lambda fault, node: self._add_link_faults(fault, node, loss_per_mille=fault.number("per_mille")),
            "duplicate": lambda fault, node: self._add_link_faults(
                fault, node, duplicate_per_mille=fault.number("per_mille")
            ),
            "disconnect": self._disconnect,
            "slow_flush": self._slow_flush,
            "fail_flush": partial(self._set_disk_fault, attribute="flush_fails"),
            "full_disk": partial(self._set_disk_fault, attribute="full"),
            "rot": self._rot,
            "rot_file": self._rot,
            "misdirect": self._rot,
            "volatile_disk": self._make_volatile,
            "clock": self._shift_clock,
            "expire": self._expire,
            "depose": self._depose,
            "stall": self._stall,
            MESSAGE: lambda fault, node: self._messages.add(str(fault.option("line"))),
        }

    # -- a schedule --------------------------------------------------------------------------------

    def schedule_faults(self, schedule: Schedule) -> None:
        """Schedule all faults, with times relative to now; raises UsageError for an unknown kind, option or node."""
        check(schedule, [self._id(name) for name in self._world.hosts])
        self._messages.faults.seed = schedule.seed
        if any(fault.options.get("what", EVERYTHING) != EVERYTHING for fault in schedule.faults):
            self._world.network.separate_connections()
        for number, fault in enumerate(schedule.in_order()):
            self._world.schedule(fault.at_ms, partial(self._inject, number, fault))

    def was_calm(self, since_ms: int) -> bool:
        """Return whether no fault is active, and none has begun or ended since a time."""
        return not self._undo and not self._world.loss_per_mille and self._changed_ms <= since_ms

    def _inject(self, number: int, fault: Fault) -> None:
        self._changed_ms = self._world.now_ms
        begin = self._begin.get(fault.kind)
        if begin is None:
            self._log(f"{fault.kind} is skipped: the simulator does not model bandwidth")
            return
        for node in self._resolve(fault.nodes):
            self._log(f"{fault.kind} {self._id(node)}")
            undo = begin(fault, node)
            if undo is not None:
                self._undo.setdefault(number, []).append(undo)
        self.on_fault(fault.kind)
        if number in self._undo:
            self._undo[number].append(partial(self.on_fault, f"{fault.kind} over"))
        if fault.for_ms:
            self._world.schedule(fault.for_ms, partial(self._end, number))
        self._situations.add(fault.kind)
        self._invariants.meetings.began(fault.kind, self._world.now_ms, fault.for_ms)

    def _end(self, number: int) -> None:
        self._changed_ms = self._world.now_ms
        for undo in self._undo.pop(number, []):
            undo()

    def heal(self) -> None:
        """End all faults and start all nodes."""
        for message, about in damaged_batches(self._cluster, sorted(self._rotten)):
            self._invariants.violated("DamageIsRemoved", message, about)
        for number in list(self._undo):
            self._end(number)
        for host in self._world.hosts.values():
            host.disk.heal()
            if self._id(host.name) in map(str, self._rotten) and host.node is not None:
                self._world.crash(host.name)  # a replica that met bad data is offline until the next start
            self._start(host.name)
            if host.name in self._lost_flushed:
                self._delete_rejected(host)
        self._changed_ms = self._world.now_ms
        self._invariants.readable_again()
        self._log("all faults have ended")

    def _delete_rejected(self, host: Host) -> None:
        """Do what the error of a broker says that rejects flushed data: delete the folder, and start it again."""
        rejected = list(host.node.replicas.corrupt_logs) if isinstance(host.node, Broker) else []
        if not rejected:
            return
        self._world.crash(host.name)
        for topic, partition in rejected:
            host.disk.delete_folder(f"{topic}-{partition}")
        self._situations.add(REJECTED)
        self._start(host.name)

    def _log(self, what: str) -> None:
        self.log.append(f"{self._world.now_ms:>6} ms  {what}")

    # -- nodes and links -----------------------------------------------------------------------------

    def _id(self, host: str) -> str:
        return host.removeprefix("broker:")

    def _resolve(self, nodes: tuple[str, ...]) -> list[str]:
        """Return the names of the hosts; a role that no broker has at this time yields none."""
        found: dict[str, None] = {}
        for node in nodes:
            found.update(dict.fromkeys(self._role(node)))
        return list(found)

    def _role(self, node: str) -> Iterator[str]:
        cluster = self._cluster
        if node == CLIENTS:
            yield node
            return
        if ROLE.fullmatch(node) and node != "all" and not self._world.is_up(STORE):
            return
        if node == "all":
            yield from map(broker_peer, cluster.broker_ids)
        elif node == "controller" or node.startswith("coordinator("):
            broker_id = cluster.controller() if node == "controller" else cluster.coordinator_of(node[12:-1])
            if broker_id > 0:
                yield broker_peer(broker_id)
        elif role := PARTITION.fullmatch(node):
            state = cluster.stored(int(role["number"]), role["topic"])
            if state is not None:
                is_leader = role[1] == "leader"
                yield from (broker_peer(b) for b in cluster.broker_ids if (b == state.leader) is is_leader)
        else:
            yield broker_peer(int(node)) if node.isdigit() else node

    def _links(self, fault: Fault, node: str) -> Iterator[tuple[str, str]]:
        own = set(self._resolve(fault.nodes))
        of, direction = str(fault.option("of")), fault.option("direction")
        for other in self._world.hosts:
            is_broker = other.startswith("broker:")
            selected = {
                "others": other not in own,
                "brokers": is_broker and other not in own,
                "clients": not is_broker and other != STORE,
            }.get(of, self._id(other) == of)
            if not selected or other == node:
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
            within_budget = self._is_within_budget(broker_id)
            self._lost_tail.difference_update([other for other in self._lost_tail if self._holds_all_committed(other)])
            if (self._lost_tail - {broker_id} or broker_id in self._rotten) and not within_budget:
                self._log(f"skipped for {self._id(node)}: beyond the fault budget")
                return None
            lose = lose if within_budget and not self._failing_disk - {broker_id} else "nothing"
            if lose != "nothing" or broker_id in self._rotten:
                self._lost_tail.add(broker_id)
        if lose != "nothing":
            self._situations.add("lost tail")
            for about in sorted(self._world.hosts[node].disk.unstored):
                self._situations.add(LOST[about])
                if about == "flushes":
                    self._lost_flushed.add(node)
            self._log(f"{self._id(node)} loses its unflushed data ({lose})")
        self._world.crash(node, lose=lose)
        return lambda: self._start(node)

    def _bounce(self, fault: Fault, node: str) -> Undo | None:
        broker = self._world.hosts[node].node
        if not isinstance(broker, Broker):
            return self._kill(Fault(at_ms=0, kind="kill", nodes=fault.nodes), node)
        if not self._may_leave(int(self._id(node))):
            self._log(f"skipped for {self._id(node)}: beyond the fault budget")
            return None
        self._world.enter(node, broker.shut_down)
        self._stop_when_done(node, broker, self._world.now_ms + LEAVING_MS * self._cluster.settings.pace)

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
        if node.startswith("broker:") and not self._may_leave(int(self._id(node))):
            self._log(f"skipped for {self._id(node)}: beyond the fault budget")
        elif self._world.is_up(STORE):
            self._world.enter(STORE, lambda now: self._cluster.store().expire(now, node))

    def _depose(self, fault: Fault, node: str) -> None:
        """Delete the controller's node in the store, as an operator does, through any broker with a session."""
        brokers = map(self._cluster.broker, self._cluster.broker_ids)
        found = next((broker for broker in brokers if broker is not None and broker.store.connected), None)
        if found is None:
            return

        def delete(now: Instant) -> list[Effect]:
            found.store.call(Delete(CONTROLLER))
            return found.fire(now, "no such timer")

        self._world.enter(broker_peer(found.config.broker_id), delete)

    # -- network -------------------------------------------------------------------------------------

    def _add_link_faults(self, fault: Fault, node: str, **more: int) -> Undo:
        links, add_faults = list(self._links(fault, node)), self._world.network.add_faults
        what = str(fault.option("what"))
        kind = "" if what == EVERYTHING else what
        for source, target in links:
            add_faults(source, target, kind, **more)
        less = {name: -amount for name, amount in more.items()}

        def undo() -> None:
            for source, target in links:
                add_faults(source, target, kind, **less)

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

    def _set_disk_fault(self, fault: Fault, node: str, attribute: str) -> Undo | None:
        """Make the disk fail until the end of the fault, then restart the broker.

        The broker may stop, or take replicas offline until then; it loses no flushed data.
        """
        if not node.startswith("broker:"):
            return None
        broker_id = int(self._id(node))
        if self._lost_tail or self._failing_disk or not self._is_within_budget(broker_id):
            self._log(f"skipped for {broker_id}: beyond the fault budget")
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

    def _make_volatile(self, fault: Fault, node: str) -> Undo | None:
        """Let the disk acknowledge what it does not store; the budget counts the kill that loses it."""
        disk, about = self._world.hosts[node].disk, str(fault.option("about"))
        disk.volatile.add(about)
        return lambda: disk.store_again(about)

    def _rot(self, fault: Fault, node: str) -> Undo | None:
        """Crash the broker and flip a bit of its files; this counts as a lost tail, as recovery may truncate there.

        A write that hit another log corrupts both. A broker that is down is left alone: after a clean stop it checks no
        CRC when it starts, as in Apache Kafka.
        """
        broker_id = int(self._id(node)) if node.startswith("broker:") and self._world.is_up(node) else 0
        if not broker_id or self._lost_tail or self._failing_disk or not self._is_within_budget(broker_id):
            self._log(f"skipped for {self._id(node)}: down, or beyond the fault budget")
            return None
        self._world.crash(node)
        self._lost_tail.add(broker_id)
        disk, folders = self._world.hosts[node].disk, [f"{LOGS[str(fault.option('of'))]}-0"]
        if fault.kind == "rot_file":
            if rot_file(disk, folders[0], str(fault.option("file")), fault.number("bit")):
                self._situations.add(f"rotten {fault.option('file')}")
            return lambda: self._start(node)
        if fault.kind == "misdirect":
            folders.append(f"{LOGS[str(fault.option('instead'))]}-0")
        damaged = [folder for folder in folders if rot_newest_segment(disk, folder, fault.number("bit"))]
        if damaged:
            self._rotten.add(broker_id)
            self._situations.add(MISDIRECTED if fault.kind == "misdirect" else f"rotten {fault.option('of')} log")
        return lambda: self._start(node)

    def _shift_clock(self, fault: Fault, node: str) -> Undo:
        host = self._world.hosts[node]
        by_ms = -fault.number("by_ms") if fault.option("back") else fault.number("by_ms")
        host.wall_offset_ms += by_ms
        return lambda: setattr(host, "wall_offset_ms", host.wall_offset_ms - by_ms)

    # -- the budget ----------------------------------------------------------------------------------

    def _holds_all_committed(self, broker_id: int) -> bool:
        """Return whether the broker has all committed records of its replicas and its restart has been handled."""
        broker = self._cluster.broker(broker_id)
        return (
            broker is not None
            and self._cluster.is_restart_handled(broker_id)
            and all(
                self._invariants.holds_committed(broker_id, key)
                for key in self._invariants.partitions
                if key in broker.replicas.partitions
            )
        )

    def _may_leave(self, broker_id: int) -> bool:
        """Return whether a broker may leave: not if only brokers that lost their tails would stay in an ISR without it.

        A controlled shutdown or the end of its session takes it out of the ISR, also if the others have died and their
        sessions go on. Only eligible leader replicas (KIP-966) remember then who has all records.
        """
        if not self._world.is_up(STORE):
            return not self._lost_tail
        states = [self._cluster.stored(key[1], key[0]) for key in self._invariants.partitions]
        others = [{*state.isr, *state.elr} - {broker_id} for state in states if state and broker_id in state.isr]
        return not any(mine and mine <= self._lost_tail for mine in others)

    def _is_within_budget(self, broker_id: int) -> bool:
        """Return whether the budget allows this broker to lose its tail (MayCrash of IsrCommit).

        Of the replicas that may be elected, fewer than min.insync.replicas may be in doubt, this broker included, and
        another one that is not in doubt must have all committed records. With the guard `KeepEligible` off, replicas
        that it would keep eligible count as well.
        """
        if not self._world.is_up(STORE):
            return False
        restarting = {other for other in self._cluster.broker_ids if not self._cluster.is_restart_handled(other)}
        in_doubt_now = self._lost_tail | self._failing_disk | restarting
        counts_all_eligible = KEEP_ELIGIBLE in self._cluster.settings.guards_off
        for key, partition in self._invariants.partitions.items():
            state = self._cluster.stored(key[1], key[0])
            if state is None:
                continue
            others = (partition.eligible if counts_all_eligible else {*state.isr, *state.elr}) - {broker_id}
            in_doubt = 1 + len(others & in_doubt_now)
            sound = others - in_doubt_now - self._rotten
            if in_doubt >= partition.enough or not any(self._invariants.holds_committed(other, key) for other in sound):
                return False
        return True
