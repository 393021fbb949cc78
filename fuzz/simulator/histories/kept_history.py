"""Record a simulated run as its clients see it: `history.ndjson`, the only input of the auditor.

`client_events.py` records requests and responses on the links of the clients; the assignment of each member is recorded
when it changes. A reader records the committed records of the leaders and the state of the group. After all faults have
ended it reads every partition from its start, and the log of every replica. No violation ends the run.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from highwater.fuzz.simulator.clients.load import GROUP, Clients, Consumer
from highwater.fuzz.simulator.cluster import TOPIC, SimulatedCluster
from highwater.fuzz.simulator.faults import Injector
from highwater.fuzz.simulator.histories.client_events import LinkObserver
from highwater.fuzz.simulator.histories.client_history import RecordedReads
from highwater.fuzz.simulator.histories.replica_reads import EVERYTHING, batches_of, committed_data, data_of
from highwater.fuzz.simulator.invariants.all import Invariants
from highwater.fuzz.simulator.invariants.violations import ViolationError
from highwater.fuzz.simulator.kept_seeds import KeptSeed
from highwater.fuzz.simulator.search import HEAL_MS
from highwater.fuzz.simulator.swarm import settings_of
from highwater.reference.broker import Broker
from highwater.reference.drivers.simulation.world import Host
from highwater.reference.effects import Request, Response, broker_peer
from highwater.reference.replication.partition import Partition, Role
from highwater.spec.formats.history import Config, Event, HistoryWriter

READ_EVERY_MS: Final = 100
WINDOW: Final = 200
RECENT: Final = 10
"""How many offsets a read covers: `WINDOW` every `READ_EVERY_MS`, `RECENT` when a replica changes."""
AFTER_PATIENCE_MS: Final = 500
AWAY_MS: Final = 2_500
CANDIDATE: Final = re.compile(r"(\d+) may be elected")


def record(seed: KeptSeed, path: Path, *, off: bool = True) -> Path:
    """Run a kept seed and write its history to `path`, which is returned; with `off` False the guard stays on."""
    settings = settings_of(seed.schedule.seed, seed.settings(off=off))
    cluster = SimulatedCluster(seed.schedule.seed, settings)
    clients = Clients()
    invariants = Invariants(cluster, clients)
    world = cluster.world
    config = Config(
        acks="all", idempotence=True, isolation="read_committed", min_insync_replicas=settings.min_insync_replicas,
        unclean_election=False, retention=False, compaction=False, replicas=settings.replicas, offset_expiry=False,
        patience_ms=HEAL_MS, transaction_timeout_ms=settings.clients.transaction_timeout_ms, source="simulator",
    )  # fmt: skip
    with path.open("wb") as sink:
        # A late copy of a commit takes effect again, so committed offsets prove nothing if messages are duplicated.
        commits_once = all(fault.kind != "duplicate" for fault in seed.schedule.faults)
        writer = HistoryWriter(sink, config)
        recorder = HistoryRecorder(cluster, invariants, writer, commits_once=commits_once)
        cluster.start()
        clients.start(
            cluster,
            replace(
                invariants.observers,
                on_ack=recorder.without_violations(invariants.acknowledged),
                on_committed=recorder.without_violations(invariants.committed),
                reads=RecordedReads(recorder, Unchecked()),
            ),
        )
        start_ms = world.now_ms
        injector = Injector(cluster, invariants)
        injector.schedule_faults(seed.schedule)
        recorder.run_until(start_ms + seed.schedule.duration_ms)
        world.loss_per_mille = 0
        injector.heal()
        if clients.administrator is not None:
            clients.administrator.stopped = True
        recorder.nemesis("phase", "heal")
        recorder.nemesis("faults over")
        recorder.run_until(world.now_ms + HEAL_MS + AFTER_PATIENCE_MS)
        recorder.nemesis("phase", "final")
        recorder.read_leaders(EVERYTHING)
        recorder.dump_all()
        writer.finish()
    return path


class Unchecked:
    """Observes what consumers receive and checks nothing: the auditor does."""

    def ignored(self, *observed: object) -> None:
        """Take no note."""

    read = listed = unreadable = out_of_range = offsets_committed = offsets_requested = offsets_fetched = ignored


class HistoryRecorder:
    """Writes the events of a run. It sets the hooks of the world: `overhear`, `before_delivery` and so on."""

    def __init__(
        self, cluster: SimulatedCluster, invariants: Invariants, writer: HistoryWriter, *,
        commits_once: bool,
    ) -> None:  # fmt: skip
        self._cluster, self._invariants, self._writer = cluster, invariants, writer
        self.commits_once = commits_once
        self._world = world = cluster.world
        self._elected = False
        self._fetchable: dict[str, frozenset[tuple[str, int]]] = {}  # partitions that each member may process
        self._replica_states: dict[tuple[int, int], tuple[Role, int, int]] = {}  # at the last read of each replica
        self._links = LinkObserver(self._event)
        overhear = world.network.overhear

        def recorded_send(source: str, target: str, message: Any) -> None:
            if overhear is not None:
                overhear(source, target, message)
            if isinstance(message, Request) and not source.startswith(("broker", "store")):
                self._links.on_request(source, target, message)

        def recorded_delivery(source: str, target: str, message: Any) -> None:
            if isinstance(message, Response):
                self._links.on_response(source, target, message)

        world.network.overhear = recorded_send
        world.before_delivery = recorded_delivery
        world.before_crash = self._crashed
        world.after_event = self._after_event

    def _event(self, process: str, kind: str, f: str, **fields: Any) -> None:
        now_ns = self._world.now_ms * 1_000_000
        self._writer.append(Event(index=0, time_ns=now_ns, process=process, type=kind, f=f, **fields))  # type: ignore[arg-type]

    def nemesis(self, f: str, value: Any = None, node: str | None = None) -> None:
        """Write an event of the process `nemesis`: a fault or a phase of the run."""
        self._event("nemesis", "info", f, value=value, node=node)

    # -- invariants --------------------------------------------------------------------------------

    def without_violations(self, check: Callable[..., None]) -> Callable[..., None]:
        """Return `check` without its ViolationError; the run continues, and the fault budget uses the checked state.

        The first violation that names a broker without all committed records makes that broker leader (`_elect`).
        """

        def checked(*arguments: Any) -> None:
            try:
                check(*arguments)
            except ViolationError as error:
                candidate = CANDIDATE.match(error.violation.message)
                if candidate is not None and not self._elected:
                    self._elected = True
                    self._world.schedule(0, partial(self._elect, broker_peer(int(candidate[1]))))

        return checked

    def _elect(self, candidate: str) -> None:
        """Crash all other brokers for `AWAY_MS`, so that the candidate is elected.

        The history shows that it lacks committed records only after it is leader.
        """
        self._start(candidate)
        others = [broker_peer(number) for number in self._cluster.broker_ids if broker_peer(number) != candidate]
        for other in filter(self._world.is_up, others):
            self._world.crash(other)
            self._world.schedule(AWAY_MS, partial(self._start, other))

    def _start(self, name: str) -> None:
        if not self._world.is_up(name):
            self._world.start(name)

    # -- processes ---------------------------------------------------------------------------------

    def _crashed(self, name: str) -> None:
        self.nemesis("kill", node=name.removeprefix("broker:"))
        self._links.crashed(name)
        if self._fetchable.pop(name, None) is not None:
            self._event(name, "info", "crash")

    def _after_event(self, host: Host) -> None:
        self.without_violations(self._invariants.after_event)(host)
        if isinstance(host.node, Broker):
            self._broker_changed(host.node)
        elif isinstance(host.node, Consumer):
            self._member_changed(host.name, host.node)

    def _broker_changed(self, broker: Broker) -> None:
        """Read each changed replica, followers too: a consumer that fetches there must see the same (KIP-392)."""
        for number in range(self._cluster.settings.partitions):
            replica = broker.replicas.partitions.get((TOPIC, number))
            if replica is None:
                continue
            where = broker.config.broker_id, number
            state = replica.role, replica.leader_epoch, replica.high_watermark
            if self._replica_states.get(where) != state:
                self._replica_states[where] = state
                self._read(broker.config.broker_id, replica, RECENT)

    def _member_changed(self, name: str, application: Consumer) -> None:
        member, before = application.member, self._fetchable.get(name, frozenset())
        if member.fetchable == before:
            return
        self._fetchable[name] = member.fetchable
        generation = {
            "group": GROUP, "generation_id": member.generation_id, "member_id": member.member_id,
            "instance_id": application.group_instance_id,
        }  # fmt: skip
        if before - member.fetchable:
            self._event(name, "info", "revoke", value=_named(before - member.fetchable), **generation)
        if member.fetchable - before:
            self._event(name, "ok", "assign", value=_named(member.fetchable), **generation)

    # -- readers -----------------------------------------------------------------------------------

    def run_until(self, end_ms: int) -> None:
        """Run the world until `end_ms` and read every `READ_EVERY_MS`."""
        while self._world.now_ms < end_ms:
            self._world.run_until(min(end_ms, self._world.now_ms + READ_EVERY_MS))
            self.read_leaders(WINDOW)

    def read_leaders(self, window: int) -> None:
        """Read the last `window` offsets from each broker that acts as leader, and the state of the group."""
        for broker_id, replica in self._replicas():
            if replica.role is Role.LEADER:
                self._read(broker_id, replica, window)
        if self._cluster.settings.clients.members:
            self._read_group()

    def _replicas(self) -> Iterator[tuple[int, Partition]]:
        for broker_id in self._cluster.broker_ids:
            for number in range(self._cluster.settings.partitions):
                replica = self._cluster.replica(broker_id, number)
                if replica is not None:
                    yield broker_id, replica

    def _operation(self, f: str, request: dict[str, Any], **response: Any) -> None:
        self._event("reader", "invoke", f, **request)
        self._event("reader", "ok", f, **request | response)

    def received(self, reader: str, f: str, node: int, request: dict[str, Any], response: dict[str, Any]) -> None:
        """Write the records that a consumer received, without the ends: the request was sent some time before."""
        if f == "fetch":
            process = f"{reader} {request['partition']}"
            self._event(process, "invoke", f, node=str(node), **request)
            self._event(process, "ok", f, node=str(node), **request, value=response["value"])

    def _read(self, broker_id: int, replica: Partition, window: int) -> None:
        end, log = replica.high_watermark, replica.log
        start = max(log.log_start_offset, end - window)
        where = {"topic": TOPIC, "partition": replica.partition, "node": str(broker_id)}
        leads = replica.role is Role.LEADER
        where |= {"position": start} | ({"leader_epoch": replica.leader_epoch} if leads else {})
        batches = list(batches_of(replica, start, end))
        response = {"high_watermark": end, "value": data_of(batches)}
        self._operation("fetch", where | {"isolation": "read_uncommitted"}, **response)
        if self._cluster.settings.clients.transactional:
            last_stable_offset = log.producers.last_stable_offset(end)
            response |= {
                "last_stable_offset": last_stable_offset,
                "value": committed_data(batches, last_stable_offset),
            }
            self._operation("fetch", where | {"isolation": "read_committed"}, **response)
        if leads:
            self._operation("metadata", {}, value={f"{TOPIC}-{replica.partition}": [broker_id, replica.leader_epoch]})

    def _read_group(self) -> None:
        broker_id = self._cluster.coordinator_of(GROUP)
        broker = self._cluster.broker(broker_id) if broker_id >= 0 else None
        group = broker.groups.groups.get(GROUP) if broker is not None else None
        if group is None:
            return
        request = {"group": GROUP, "node": str(broker_id)}
        self._operation("group", request, value={"state": str(group.state.value), "members": sorted(group.members)})
        if self.commits_once:
            offsets = {
                f"{topic}-{number}": committed.offset for (topic, number), committed in sorted(group.offsets.items())
            }
            self._operation("committed", request, value=offsets)

    def dump_all(self) -> None:
        """Write the whole log of each replica."""
        for broker_id, replica in self._replicas():
            start, end = replica.log.log_start_offset, replica.log.log_end_offset
            where = {"topic": TOPIC, "partition": replica.partition, "node": str(broker_id)}
            response = {
                "value": data_of(list(batches_of(replica, start, end))),
                "high_watermark": replica.high_watermark,
            }
            self._operation("log_dump", where, position=start, **response)


def _named(partitions: frozenset[tuple[str, int]]) -> list[str]:
    return [f"{topic}-{number}" for topic, number in sorted(partitions)]
