"""A run of the simulator as its clients saw it: `history.ndjson` for the auditor, which is told nothing else.

What clients ask and are answered is overheard on their links (`client_events.py`), and members tell what they may process.
A reader beside them reads what leaders have and what the group's coordinator answers; in the end, once all faults are
over, it reads every partition from its start, and what each replica holds. No violation ends the run.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from highwater.fuzz.simulator.client_events import Overheard
from highwater.fuzz.simulator.clients.load import GROUP, Clients, Consumer
from highwater.fuzz.simulator.clients.transactions import TRANSACTION_TIMEOUT_MS
from highwater.fuzz.simulator.cluster import TOPIC, SimulatedCluster
from highwater.fuzz.simulator.faults import Injector
from highwater.fuzz.simulator.invariants.all import Invariants
from highwater.fuzz.simulator.invariants.violations import ViolationError
from highwater.fuzz.simulator.kept_seeds import Kept
from highwater.fuzz.simulator.search import HEAL_MS
from highwater.fuzz.simulator.swarm import settings_of
from highwater.reference.broker import Broker
from highwater.reference.drivers.simulation.world import Host
from highwater.reference.effects import Request, Response, broker_peer
from highwater.reference.replication.partition import Partition, Role
from highwater.reference.storage.producer_state import read_marker
from highwater.reference.wire.records import BatchHeader, batch_headers, decode_records
from highwater.spec.formats.history import Config, Event, HistoryWriter

READ_EVERY_MS: Final = 100
WINDOW: Final = 200
RECENT: Final = 10
"""How far back from the end a reader looks while the run goes on: every so often, and whenever a replica moves."""
EVERYTHING: Final = 1 << 26
AFTER_PATIENCE_MS: Final = 500
AWAY_MS: Final = 2_500
CANDIDATE: Final = re.compile(r"(\d+) may be elected")
Records = list[tuple[int, str]]


def record(kept: Kept, path: Path, *, off: bool = True) -> Path:
    """Play a kept seed, with its guard off, and write what was seen."""
    settings = settings_of(kept.schedule.seed, kept.settings(off=off))
    cluster = SimulatedCluster(kept.schedule.seed, settings)
    clients = Clients()
    invariants = Invariants(cluster, clients)
    world = cluster.world
    config = Config(
        acks="all", idempotence=True, isolation="read_committed", min_insync_replicas=settings.min_insync_replicas,
        unclean_election=False, retention=False, compaction=False, replicas=settings.replicas, offset_expiry=False,
        patience_ms=HEAL_MS, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS, source="simulator",
    )  # fmt: skip
    with path.open("wb") as sink:
        # A copy of a commit that comes late counts again, so nothing follows from what is committed then.
        commits_once = all(fault.kind != "duplicate" for fault in kept.schedule.faults)
        recorder = Recorder(cluster, invariants, HistoryWriter(sink, config), commits_once=commits_once)
        cluster.start()
        clients.start(cluster, recorder.unheeded(invariants.acknowledged), recorder.unheeded(invariants.committed))
        began_ms = world.now_ms
        injector = Injector(cluster, invariants)
        injector.arrange(kept.schedule)
        recorder.watch_until(began_ms + kept.schedule.duration_ms)
        world.loss_per_mille = 0
        injector.heal()
        if clients.administrator is not None:
            clients.administrator.stopped = True
        recorder.nemesis("phase", "heal")
        recorder.nemesis("faults over")
        recorder.watch_until(world.now_ms + HEAL_MS + AFTER_PATIENCE_MS)
        recorder.nemesis("phase", "final")
        recorder.look(EVERYTHING)
        recorder.dump_all()
    return path


class Recorder:
    def __init__(
        self, cluster: SimulatedCluster, invariants: Invariants, writer: HistoryWriter, *,
        commits_once: bool,
    ) -> None:  # fmt: skip
        self._cluster, self._invariants, self._writer = cluster, invariants, writer
        self._commits_once = commits_once
        self._world = world = cluster.world
        self._elected = False
        self._has: dict[str, frozenset[tuple[str, int]]] = {}  # what each member may process
        self._stands: dict[tuple[int, int], tuple[Role, int, int]] = {}  # of each replica, when it was read last
        self._overheard = Overheard(self._event)
        send, hand_over, crash = world.network.send, world.hand_over, world.crash

        def overheard_send(source: str, target: str, message: Any) -> None:
            if isinstance(message, Request) and not source.startswith(("broker", "store")):
                self._overheard.asks(source, target, message)
            send(source, target, message)

        def overheard_answer(source: str, target: str, message: Any) -> None:
            if isinstance(message, Response):
                self._overheard.answers(source, target, message)
            hand_over(source, target, message)

        def told_crash(name: str, **how: Any) -> None:
            self._crashed(name)
            crash(name, **how)

        world.network.send = overheard_send  # type: ignore[method-assign]
        world.hand_over = overheard_answer  # type: ignore[method-assign]
        world.crash = told_crash  # type: ignore[method-assign]
        world.after_event = self._after_event

    def _event(self, process: str, kind: str, f: str, **fields: Any) -> None:
        now_ns = self._world.now_ms * 1_000_000
        self._writer.append(Event(index=0, time_ns=now_ns, process=process, type=kind, f=f, **fields))  # type: ignore[arg-type]

    def nemesis(self, f: str, value: Any = None, node: str | None = None) -> None:
        self._event("nemesis", "info", f, value=value, node=node)

    # -- invariants --------------------------------------------------------------------------------

    def unheeded(self, watch: Callable[..., None]) -> Callable[..., None]:
        """The invariants go on watching, since the fault budget follows from what they saw."""

        def watched(*given: Any) -> None:
            try:
                watch(*given)
            except ViolationError as error:
                candidate = CANDIDATE.match(error.violation.message)
                if candidate is not None and not self._elected:
                    self._elected = True
                    self._world.schedule(0, partial(self._elect, broker_peer(int(candidate[1]))))

        return watched

    def _elect(self, candidate: str) -> None:
        """Who may be elected and lacks what is committed is harmless until it is: the others go away for a while."""
        self._start(candidate)
        others = [broker_peer(each) for each in self._cluster.broker_ids if broker_peer(each) != candidate]
        for other in filter(self._world.is_up, others):
            self._world.crash(other)
            self._world.schedule(AWAY_MS, partial(self._start, other))

    def _start(self, name: str) -> None:
        if not self._world.is_up(name):
            self._world.start(name)

    # -- processes ---------------------------------------------------------------------------------

    def _crashed(self, name: str) -> None:
        self.nemesis("kill", node=name.removeprefix("broker:"))
        if self._has.pop(name, None) is not None:
            self._event(name, "info", "crash")

    def _after_event(self, host: Host) -> None:
        self.unheeded(self._invariants.after_event)(host)
        if isinstance(host.node, Broker):
            self._broker_moved(host.node)
        elif isinstance(host.node, Consumer):
            self._member_moved(host.name, host.node)

    def _broker_moved(self, broker: Broker) -> None:
        """Followers are read, too: what they show must be what leaders show (KIP-392)."""
        for number in range(self._cluster.settings.partitions):
            replica = broker.replicas.partitions.get((TOPIC, number))
            if replica is None:
                continue
            where = broker.config.broker_id, number
            stands = replica.role, replica.leader_epoch, replica.high_watermark
            if self._stands.get(where) != stands:
                self._stands[where] = stands
                self._read(broker.config.broker_id, replica, RECENT)

    def _member_moved(self, name: str, application: Consumer) -> None:
        member, before = application.member, self._has.get(name, frozenset())
        if member.fetchable == before:
            return
        self._has[name] = member.fetchable
        who = {"group": GROUP, "generation_id": member.generation_id, "member_id": member.member_id}
        if before - member.fetchable:
            self._event(name, "info", "revoke", value=_named(before - member.fetchable), **who)
        if member.fetchable - before:
            self._event(name, "ok", "assign", value=_named(member.fetchable), **who)

    # -- readers -----------------------------------------------------------------------------------

    def watch_until(self, end_ms: int) -> None:
        while self._world.now_ms < end_ms:
            self._world.run_until(min(end_ms, self._world.now_ms + READ_EVERY_MS))
            self.look(WINDOW)

    def look(self, window: int) -> None:
        """At each partition, at each broker that takes itself for its leader, and at the group."""
        for broker_id, replica in self._replicas():
            if replica.role is Role.LEADER:
                self._read(broker_id, replica, window)
        if self._cluster.settings.clients.members:
            self._ask_for_group()

    def _replicas(self) -> Iterator[tuple[int, Partition]]:
        for broker_id in self._cluster.broker_ids:
            for number in range(self._cluster.settings.partitions):
                replica = self._cluster.replica(broker_id, number)
                if replica is not None:
                    yield broker_id, replica

    def _ask(self, f: str, asked: dict[str, Any], **told: Any) -> None:
        self._event("reader", "invoke", f, **asked)
        self._event("reader", "ok", f, **asked | told)

    def _read(self, broker_id: int, replica: Partition, window: int) -> None:
        end, log = replica.high_watermark, replica.log
        start = max(log.log_start_offset, end - window)
        where = {"topic": TOPIC, "partition": replica.partition, "node": str(broker_id)}
        leads = replica.role is Role.LEADER
        where |= {"position": start} | ({"leader_epoch": replica.leader_epoch} if leads else {})
        batches = list(_batches(replica, start, end))
        told = {"high_watermark": end, "value": _data(batches)}
        self._ask("fetch", where | {"isolation": "read_uncommitted"}, **told)
        if self._cluster.settings.clients.transactional:
            stable = log.producers.last_stable_offset(end)
            told |= {"last_stable_offset": stable, "value": _not_aborted(batches, stable)}
            self._ask("fetch", where | {"isolation": "read_committed"}, **told)
        if leads:
            self._ask("metadata", {}, value={f"{TOPIC}-{replica.partition}": [broker_id, replica.leader_epoch]})

    def _ask_for_group(self) -> None:
        broker_id = self._cluster.coordinator_of(GROUP)
        broker = self._cluster.broker(broker_id) if broker_id >= 0 else None
        group = broker.groups.groups.get(GROUP) if broker is not None else None
        if group is None:
            return
        asked = {"group": GROUP, "node": str(broker_id)}
        self._ask("group", asked, value={"state": str(group.state.value), "members": sorted(group.members)})
        if self._commits_once:
            offsets = {f"{topic}-{number}": each.offset for (topic, number), each in sorted(group.offsets.items())}
            self._ask("committed", asked, value=offsets)

    def dump_all(self) -> None:
        for broker_id, replica in self._replicas():
            start, end = replica.log.log_start_offset, replica.log.log_end_offset
            where = {"topic": TOPIC, "partition": replica.partition, "node": str(broker_id)}
            told = {"value": _data(list(_batches(replica, start, end))), "high_watermark": replica.high_watermark}
            self._ask("log_dump", where, position=start, **told)


def _named(partitions: frozenset[tuple[str, int]]) -> list[str]:
    return [f"{topic}-{number}" for topic, number in sorted(partitions)]


def _batches(replica: Partition, start: int, end: int) -> Iterator[tuple[BatchHeader, bytes]]:
    while start < end:
        data = replica.log.read(start, EVERYTHING, end, at_least_one=True)
        if not data:
            return
        for position, header in batch_headers(data):
            yield header, data[position : position + header.size]
            start = header.next_offset


def _data(batches: list[tuple[BatchHeader, bytes]]) -> Records:
    return [
        (record.offset, (record.value or b"").decode())
        for header, batch in batches
        if not header.is_control
        for record in decode_records(batch)[1]
    ]


def _not_aborted(batches: list[tuple[BatchHeader, bytes]], stable: int) -> Records:
    """What a client keeps of a read_committed answer: all below the last stable offset but what was aborted."""
    kept: Records = []
    undecided: dict[int, Records] = {}
    for header, batch in batches:
        marker = read_marker(batch) if header.is_control else None
        if marker is not None:
            decided = undecided.pop(header.producer_id, [])
            kept += decided if marker.committed else []
        elif header.is_transactional and not header.is_control:
            undecided.setdefault(header.producer_id, []).extend(_data([(header, batch)]))
        else:
            kept += _data([(header, batch)])
    shown = [*kept, *(pair for waiting in undecided.values() for pair in waiting)]
    return sorted(pair for pair in shown if pair[0] < stable)
