"""A run of the simulator as its clients saw it: `history.ndjson` for the auditor, which is told nothing else.

What producers and group members ask and are answered is overheard on their links. A reader beside them reads every
partition from its start, from whoever leads it; in the end, once all faults are over, so does the last one. No
invariant is looked at, so that the run goes on where one would end it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from fuzz.faults import Injector
from fuzz.invariants.every import Invariants
from fuzz.kept import Kept
from fuzz.load import Clients
from fuzz.search import HEAL_MS
from fuzz.simulated_cluster import TOPIC, SimulatedCluster
from fuzz.swarm import settings_of
from reference.clients.subscriptions import unpack_assignment
from reference.events import Request, Response
from reference.replication.partition import Partition, Role
from reference.wire.errors import ErrorCode
from reference.wire.messages.offset_commit import OffsetCommitRequest
from reference.wire.messages.produce import ProduceRequest
from reference.wire.messages.sync_group import SyncGroupRequest
from reference.wire.records import batch_headers, decode_records
from spec.formats.history import Config, Event, HistoryWriter

READ_EVERY_MS: Final = 100
EVERYTHING: Final = 1 << 26


def record(kept: Kept, path: Path, *, off: bool = True) -> Path:
    """Play a kept seed, with its guard off, and write what was seen."""
    settings = settings_of(kept.schedule.seed, kept.settings(off=off))
    cluster = SimulatedCluster(kept.schedule.seed, settings)
    clients = Clients()
    invariants = Invariants(cluster, clients)
    world = cluster.world
    config = Config(
        acks="all", idempotence=True, isolation="read_uncommitted", min_insync_replicas=settings.min_insync_replicas,
        unclean_election=False, retention=False, compaction=False, replicas=settings.replicas, offset_expiry=False,
        patience_ms=HEAL_MS, source="simulator",
    )  # fmt: skip
    with path.open("wb") as sink:
        recorder = Recorder(cluster, HistoryWriter(sink, config))
        cluster.start()
        clients.start(cluster, invariants.acknowledged, invariants.committed)
        began_ms = world.now_ms
        injector = Injector(cluster, invariants)
        injector.arrange(kept.schedule)
        recorder.watch_until(began_ms + kept.schedule.duration_ms)
        world.loss_per_mille = 0
        injector.heal()
        recorder.nemesis("heal")
        recorder.watch_until(world.now_ms + HEAL_MS)
        recorder.nemesis("final")
        recorder.read_all()
        recorder.dump_all()
    return path


class Recorder:
    """One process for each value that is sent and each request that is open, so that none has two at a time."""

    def __init__(self, cluster: SimulatedCluster, writer: HistoryWriter) -> None:
        self._cluster, self._writer = cluster, writer
        self._world = cluster.world
        self._asked: dict[tuple[str, int], tuple[str, Any]] = {}
        self._sent: set[tuple[int, str]] = set()
        self._answered: set[tuple[int, str]] = set()
        send, hand_over = self._world.network.send, self._world.hand_over

        def overheard_send(source: str, target: str, message: Any) -> None:
            if isinstance(message, Request) and not source.startswith(("broker", "store")):
                self._asks(source, target, message)
            send(source, target, message)

        def overheard_answer(source: str, target: str, message: Any) -> None:
            if isinstance(message, Response):
                asked = self._asked.pop((target, message.correlation_id), None)
                if asked is not None and message.body is not None:
                    self._answers(target, source, message.correlation_id, asked[1], message.body)
            hand_over(source, target, message)

        self._world.network.send = overheard_send  # type: ignore[method-assign]
        self._world.hand_over = overheard_answer  # type: ignore[method-assign]

    def _event(self, process: str, kind: str, f: str, **fields: Any) -> None:
        now_ns = self._world.now_ms * 1_000_000
        self._writer.append(Event(index=0, time_ns=now_ns, process=process, type=kind, f=f, **fields))  # type: ignore[arg-type]

    def nemesis(self, phase: str) -> None:
        self._event("nemesis", "info", "phase", value=phase)

    # -- requests and answers ----------------------------------------------------------------------

    def _asks(self, source: str, target: str, message: Request) -> None:
        body = message.body
        if isinstance(body, ProduceRequest):
            for partition, value in _values(body):
                if (partition, value) not in self._sent:  # else it is sent again
                    self._sent.add((partition, value))
                    self._event(f"send {value}", "invoke", "send", topic=TOPIC, partition=partition, value=value)
        elif isinstance(body, OffsetCommitRequest):
            self._event(f"{source} {message.correlation_id}", "invoke", "commit", **_commit(body))
        elif isinstance(body, SyncGroupRequest):
            self._event(f"{source} {message.correlation_id}", "invoke", "sync", **_member(body), node=target)
        else:
            return
        self._asked[source, message.correlation_id] = target, body

    def _answers(self, source: str, target: str, correlation_id: int, asked: Any, body: Any) -> None:
        process = f"{source} {correlation_id}"
        if isinstance(asked, ProduceRequest):
            self._acknowledged(asked, body)
        elif isinstance(asked, OffsetCommitRequest):
            errors = {part.error_code for topic in body.topics for part in topic.partitions}
            self._event(process, "ok" if errors == {ErrorCode.NONE} else "info", "commit", **_commit(asked))
        elif body.error_code == ErrorCode.NONE:
            keys = [f"{topic}-{number}" for topic, number in sorted(unpack_assignment(body.assignment))]
            self._event(process, "ok", "sync", value=keys, **_member(asked), node=target)
        else:
            self._event(process, "info", "sync", **_member(asked), node=target)

    def _acknowledged(self, asked: ProduceRequest, body: Any) -> None:
        answers = {part.index: part for topic in body.responses for part in topic.partition_responses}
        places: dict[int, int] = {}
        for partition, value in _values(asked):
            place = places.get(partition, 0)
            places[partition] = place + 1
            answer = answers[partition]
            if answer.error_code == ErrorCode.NONE and (partition, value) not in self._answered:
                self._answered.add((partition, value))
                offset = answer.base_offset + place if answer.base_offset >= 0 else -1
                self._event(f"send {value}", "ok", "send", topic=TOPIC, partition=partition, value=value, offset=offset)

    # -- readers -----------------------------------------------------------------------------------

    def watch_until(self, end_ms: int) -> None:
        while self._world.now_ms < end_ms:
            self._world.run_until(min(end_ms, self._world.now_ms + READ_EVERY_MS))
            self.read_all()

    def _replicas(self) -> Iterator[tuple[int, Partition]]:
        for broker_id in self._cluster.broker_ids:
            for number in range(self._cluster.settings.partitions):
                replica = self._cluster.replica(broker_id, number)
                if replica is not None:
                    yield broker_id, replica

    def read_all(self) -> None:
        """A fetch from the start, of each broker that takes itself for a leader; and which epoch it leads."""
        for broker_id, replica in self._replicas():
            if replica.role is not Role.LEADER:
                continue
            where = {"topic": TOPIC, "partition": replica.partition, "node": str(broker_id)}
            where |= {"position": replica.log.log_start_offset, "leader_epoch": replica.leader_epoch}
            self._event("reader", "invoke", "fetch", **where)
            end = replica.high_watermark
            self._event("reader", "ok", "fetch", value=_records(replica, end), high_watermark=end, **where)
            told = {f"{TOPIC}-{replica.partition}": [broker_id, replica.leader_epoch]}
            self._event("reader", "invoke", "metadata")
            self._event("reader", "ok", "metadata", value=told)

    def dump_all(self) -> None:
        for broker_id, replica in self._replicas():
            where = {"topic": TOPIC, "partition": replica.partition, "node": str(broker_id)}
            self._event("reader", "invoke", "log_dump", **where)
            end = replica.log.log_end_offset
            self._event(
                "reader", "ok", "log_dump", position=replica.log.log_start_offset, value=_records(replica, end),
                high_watermark=replica.high_watermark, **where,
            )  # fmt: skip


def _values(body: ProduceRequest) -> Iterator[tuple[int, str]]:
    for topic in body.topic_data:
        for part in topic.partition_data:
            for _, value in _decoded(part.records or b""):
                yield part.index, value


def _decoded(data: bytes) -> Iterator[tuple[int, str]]:
    for position, header in batch_headers(data):
        if not header.is_control:
            for record in decode_records(data, position)[1]:
                yield record.offset, (record.value or b"").decode()


def _records(replica: Partition, until: int) -> list[tuple[int, str]]:
    start = replica.log.log_start_offset
    data = replica.log.read(start, EVERYTHING, until, at_least_one=False) if until > start else b""
    return list(_decoded(data))


def _member(body: Any) -> dict[str, Any]:
    return {
        "group": body.group_id, "generation_id": body.generation_id, "member_id": body.member_id,
        "instance_id": body.group_instance_id,
    }  # fmt: skip


def _commit(body: OffsetCommitRequest) -> dict[str, Any]:
    value = {
        f"{topic.name}-{part.partition_index}": part.committed_offset
        for topic in body.topics
        for part in topic.partitions
    }
    told = {"member_id": body.member_id, "instance_id": body.group_instance_id}
    return {"group": body.group_id, "generation_id": body.generation_id_or_member_epoch, "value": value, **told}
