"""What the clients of a simulated run see, as a history in memory for the auditor.

It has the requests and responses on the links of the clients, what readers receive, the assignments of group members,
crashes, and after the faults one read of each partition from its start. It is about topic `t`: what a
consume-transform-produce client writes elsewhere is left out, and so is what intruders send.
"""

from dataclasses import replace
from typing import Any, Final, Protocol

import msgspec

from highwater.fuzz.schedule import Schedule
from highwater.fuzz.simulator.clients.load import Observers
from highwater.fuzz.simulator.clients.readers import LATEST, READER_GROUP, ConsumedBatch, ListedOffsets, ReadObserver
from highwater.fuzz.simulator.cluster import TOPIC, Settings, SimulatedCluster
from highwater.fuzz.simulator.histories.client_events import LinkObserver
from highwater.fuzz.simulator.histories.replica_reads import batches_of, committed_data, data_of
from highwater.reference.clients.application import Application
from highwater.reference.drivers.simulation.world import Host
from highwater.reference.effects import Request, Response
from highwater.reference.wire.messages.committed_offsets import OffsetFetchRequest
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.offsets import ListOffsetsRequest
from highwater.spec.formats.history import NEMESIS, Config, Event

READS: Final = (FetchRequest, ListOffsetsRequest, OffsetFetchRequest)
NOT_CLIENTS: Final = ("broker", "store", "program:")  # programs are judged by their own models
ABORT_CHECK_MS: Final = 10_000
"""By so much later than its time-out a transaction may be aborted: the interval of the coordinator's checks."""
WRITES_ELSEWHERE: Final = ("transformer", "intruder", "client:")


def config_of(settings: Settings, schedule: Schedule, patience_ms: int) -> Config:
    """Return the settings that verdicts depend on.

    A late copy of a request without a producer id is stored again, as a retry would be.
    """
    stored_twice = settings.clients.producers > 0 and not _sent_once(schedule)
    return Config(
        acks="all", idempotence=not stored_twice, isolation="read_committed", replicas=settings.replicas,
        min_insync_replicas=settings.min_insync_replicas, unclean_election=False, retention=False, compaction=False,
        offset_expiry=False, patience_ms=patience_ms, source="simulator",
        transaction_timeout_ms=settings.clients.transaction_timeout_ms + ABORT_CHECK_MS,
    )  # fmt: skip


def _sent_once(schedule: Schedule) -> bool:
    return all(fault.kind != "duplicate" for fault in schedule.faults)


class ClientHistory:
    """Records the events of a run. It sets the hooks of the world: `overhear`, `before_delivery` and so on.

    A reader says what it received when the response arrives, but the event `invoke` belongs where the request was sent.
    So each event is kept with its place, and all are sorted at the end. Of a broker in `rotten` nothing is recorded: a
    batch header has no checksum for its offset.
    """

    def __init__(self, cluster: SimulatedCluster, schedule: Schedule, rotten: set[int]) -> None:
        self._cluster, self._world, self._rotten = cluster, cluster.world, rotten
        self.commits_once = _sent_once(schedule)
        self._events: list[tuple[int, Event]] = []
        self._places = 0
        self._asked: dict[str, tuple[int, int]] = {}  # place and time of the newest request of each reader
        self._fetchable: dict[str, frozenset[tuple[str, int]]] = {}  # partitions that each member may process
        self._links = LinkObserver(self._write)
        self._wrap()

    def events(self) -> list[Event]:
        """Return the events in their order, numbered from 1; the header of a file has the number 0."""
        ordered = sorted(self._events, key=lambda placed: placed[0])
        return [msgspec.structs.replace(event, index=number) for number, (_, event) in enumerate(ordered, 1)]

    def nemesis(self, f: str, value: Any = None, node: str | None = None) -> None:
        """Add an event of the process `nemesis`: a fault or a phase of the run."""
        self._write(NEMESIS, "info", f, value=value, node=node)

    def observers(self, observers: Observers) -> Observers:
        """Return the observers, of which that of reads also records them."""
        return replace(observers, reads=RecordedReads(self, observers.reads))

    def read_all(self) -> None:
        """Read each partition from its start at its leader, as consumers of both isolation levels see it."""
        self.nemesis("phase", "final")
        for number in range(self._cluster.settings.partitions):
            leader = self._cluster.leader(number)
            replica = self._cluster.replica(leader, number) if leader > 0 and leader not in self._rotten else None
            if replica is None:
                continue
            start, end = replica.log.log_start_offset, replica.high_watermark
            stable_end = replica.log.producers.last_stable_offset(end)
            batches = list(batches_of(replica, start, end))
            where = {"partition": number, "node": str(leader), "position": start, "leader_epoch": replica.leader_epoch}
            ends = {"high_watermark": end, "last_stable_offset": stable_end}
            for isolation, value in (
                ("read_uncommitted", data_of(batches)), ("read_committed", committed_data(batches, stable_end))
            ):  # fmt: skip
                request = where | {"topic": TOPIC, "isolation": isolation}
                self._write("final", "invoke", "fetch", **request)
                self._write("final", "ok", "fetch", **request, **ends, value=value)

    # -- events ------------------------------------------------------------------------------------

    def _write(self, process: str, kind: str, f: str, **fields: Any) -> None:
        self._put(self._next_place(), self._world.now_ms, process, kind, f, **fields)

    def _next_place(self) -> int:
        self._places += 1
        return self._places

    def _put(self, place: int, at_ms: int, process: str, kind: str, f: str, **fields: Any) -> None:
        event = Event(index=0, time_ns=at_ms * 1_000_000, process=process, type=kind, f=f, **fields)  # type: ignore[arg-type]
        self._events.append((place, event))

    def received(self, reader: str, f: str, node: int, request: dict[str, Any], response: dict[str, Any]) -> None:
        """Add an operation of a reader: it began with its newest request, and ends now."""
        if node in self._rotten:
            return
        place, at_ms = self._asked[reader]
        process = f"{reader} {f} {request.get('partition', '')}"
        self._put(place, at_ms, process, "invoke", f, node=str(node), **request)
        self._write(process, "ok", f, node=str(node), **request, **response)

    # -- the world ---------------------------------------------------------------------------------

    def _wrap(self) -> None:
        world = self._world
        overhear, after_event = world.network.overhear, world.after_event

        def recorded_send(source: str, target: str, message: Any) -> None:
            if overhear is not None:
                overhear(source, target, message)
            if isinstance(message, Request) and not source.startswith(NOT_CLIENTS):
                self._requested(source, target, message)

        def recorded_delivery(source: str, target: str, message: Any) -> None:
            if isinstance(message, Response) and not target.startswith(NOT_CLIENTS):
                self._links.on_response(source, target, message)

        def recorded_event(host: Host) -> None:
            after_event(host)
            if isinstance(host.node, Application):
                self._member_changed(host.name, host.node)

        world.network.overhear = recorded_send
        world.before_delivery = recorded_delivery
        world.before_crash = self._crashed
        world.after_event = recorded_event

    def _requested(self, source: str, target: str, message: Request) -> None:
        if isinstance(message.body, READS):
            self._asked[source] = self._next_place(), self._world.now_ms
        elif not source.startswith(WRITES_ELSEWHERE):
            self._links.on_request(source, target, message)

    def _crashed(self, name: str) -> None:
        self.nemesis("kill", node=name.removeprefix("broker:"))
        self._links.crashed(name)
        if self._fetchable.pop(name, None) is not None:
            self._write(name, "info", "crash")

    def _member_changed(self, name: str, application: Application) -> None:
        member, before = application.member, self._fetchable.get(name, frozenset())
        if member.fetchable == before:
            return
        self._fetchable[name] = member.fetchable
        membership = {
            "group": application.group_id, "generation_id": member.generation_id, "member_id": member.member_id,
            "instance_id": application.group_instance_id,
        }  # fmt: skip
        if before - member.fetchable:
            self._write(name, "info", "revoke", value=_named(before - member.fetchable), **membership)
        if member.fetchable - before:
            self._write(name, "ok", "assign", value=_named(member.fetchable), **membership)


class ReadRecorder(Protocol):
    """Where `RecordedReads` writes; with `commits_once` no commit takes effect a second time."""

    commits_once: bool

    def received(self, reader: str, f: str, node: int, request: dict[str, Any], response: dict[str, Any]) -> None: ...


class RecordedReads:
    """Records what readers receive, and passes it on."""

    def __init__(self, history: ReadRecorder, observer: ReadObserver) -> None:
        self._history, self._observer = history, observer
        self.unreadable, self.out_of_range = observer.unreadable, observer.out_of_range
        self.offsets_committed = observer.offsets_committed

    def read(self, read: ConsumedBatch) -> None:
        """Record the records of one partition in a response."""
        isolation = "read_committed" if read.read_committed else "read_uncommitted"
        request = {
            "topic": TOPIC, "partition": read.partition, "position": read.position, "isolation": isolation,
            "leader_epoch": read.leader_epoch,
        }  # fmt: skip
        response = {
            "value": [(offset, value.decode()) for offset, value in read.fetched.records],
            "high_watermark": read.data.high_watermark, "last_stable_offset": read.data.last_stable_offset,
        }  # fmt: skip
        self._history.received(read.reader, "fetch", read.broker_id, request, response)
        self._observer.read(read)

    def listed(self, listed: ListedOffsets) -> None:
        """Record a log end that ListOffsets returned."""
        if listed.timestamp == LATEST:
            end = "last_stable_offset" if listed.read_committed else "high_watermark"
            isolation = "read_committed" if listed.read_committed else "read_uncommitted"
            request = {
                "topic": TOPIC, "partition": listed.partition, "isolation": isolation,
                "leader_epoch": listed.leader_epoch if listed.leader_epoch >= 0 else None,
            }  # fmt: skip
            self._history.received(listed.reader, "list_offsets", listed.broker_id, request, {end: listed.offset})
        self._observer.listed(listed)

    def offsets_requested(self, broker_id: int, group: str) -> object:
        """Return what `offsets_fetched` needs."""
        return broker_id, group, self._observer.offsets_requested(broker_id, group)

    def offsets_fetched(self, reader: str, token: object, offsets: dict[int, int]) -> None:
        """Record the committed offsets in a response, unless a late copy of a commit may have changed them."""
        assert isinstance(token, tuple)
        broker_id, group, inner = token
        if self._history.commits_once and group == READER_GROUP:
            value = {f"{TOPIC}-{number}": offset for number, offset in offsets.items()}
            self._history.received(reader, "committed", broker_id, {"group": group}, {"value": value})
        self._observer.offsets_fetched(reader, inner, offsets)


def _named(partitions: frozenset[tuple[str, int]]) -> list[str]:
    return [f"{topic}-{number}" for topic, number in sorted(partitions)]
