"""The clients of a run: producers of every kind, eager and cooperative group members, an administrator."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Final, TypeVar

from highwater.fuzz.simulator.clients.intruders import Intruder
from highwater.fuzz.simulator.clients.old_consumers import OldConsumers
from highwater.fuzz.simulator.clients.producers import Client, Producer
from highwater.fuzz.simulator.clients.readers import READER_GROUP, GroupReader, Reader, ReadObserver
from highwater.fuzz.simulator.clients.transactions import TransactionalProducer
from highwater.fuzz.simulator.clients.transformer import Transformer
from highwater.fuzz.simulator.cluster import CLASSIC, TOPIC, Load, SimulatedCluster
from highwater.reference.clients.application import POLL, POLL_MS, Application
from highwater.reference.clients.assignors import ASSIGNORS
from highwater.reference.clients.member import MemberConfig
from highwater.reference.clients.producer import Delivery, ProducerConfig
from highwater.reference.clients.producer import Producer as IdempotentProducer
from highwater.reference.clients.subscriptions import Partition
from highwater.reference.drivers.simulation.chance import Chance
from highwater.reference.effects import Effect, Instant, Node, Response, Send, SetTimer, broker_peer
from highwater.reference.guards import Guards
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import OffsetCommitRequest, OffsetCommitResponse
from highwater.reference.wire.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from highwater.reference.wire.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest

N = TypeVar("N", bound=Node)
C = TypeVar("C", MemberConfig, ProducerConfig)

GROUP: Final = "g"
SIDE_TOPIC: Final = "side"
WRITE: Final = "write"
POLLS_A_COMMIT: Final = 4
HURRY: Final = 4  # the pause is divided by this when `Load.hurries`
MEMBER_NUMBERS: Final = 16
GENERATION_STEP: Final = 10_000_000 * MEMBER_NUMBERS
"""A committed offset encodes generation, time in ms and member number, in this order of weight.

So an offset that is committed later, or in a later generation, is greater.
"""

VersionedRequest = tuple[object, int]  # request body, API version
OnAck = Callable[[int, int, bytes], None]
OnCommitted = Callable[[frozenset[Partition], int], None]


@dataclass(frozen=True, slots=True)
class Observers:
    """What the clients of a run call when they see something.

    `on_ack(partition, offset, value)` for each record, `on_committed(partitions, offset)` for each commit;
    `on_stored(what)` and `on_refused()` for what an intruder wrote; `reads` for what consumers see.
    """

    on_ack: OnAck
    on_committed: OnCommitted
    on_stored: Callable[[str], None]
    on_refused: Callable[[], None]
    reads: ReadObserver


class Writer:
    """An idempotent reference producer with an application that sends one record every `pause_ms`.

    `leader_of` returns the broker that leads a partition: one that no longer does, and does not know it yet, refuses
    batches that it has not replicated.
    """

    def __init__(
        self, brokers: list[int], number: int, pause_ms: int, on_ack: OnAck, leader_of: Callable[[int], int],
        guards: Guards, *, pace: int,
    ) -> None:  # fmt: skip
        self._number, self._pause_ms, self._on_ack, self._leader_of = number, pause_ms * pace, on_ack, leader_of
        config = paced(ProducerConfig(request_timeout_ms=800, guards=guards), pace)
        self._producer = IdempotentProducer(brokers, config, self._delivered)
        self._written = 0
        self.acked = 0
        self.refused: set[bytes] = set()  # the first value of each batch with a sequence that the broker refused
        self._is_first, self._source = False, ""
        self.stopped = False

    def _delivered(self, delivery: Delivery) -> None:
        if delivery.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._is_first:
            if self._source == broker_peer(self._leader_of(delivery.partition)):
                self.refused.add(delivery.record[2] or b"")
            self._is_first = False  # the batches behind it fail with it, and may be stored
        if delivery.error is ErrorCode.NONE:
            self.acked += 1
            if delivery.offset >= 0:
                self._on_ack(delivery.partition, delivery.offset, delivery.record[2] or b"")

    def start(self, now: Instant) -> list[Effect]:
        return [*self._producer.start(now), SetTimer(WRITE, now.monotonic_ms + self._pause_ms)]

    def receive(self, now: Instant, source: str, message: Response) -> list[Effect]:
        self._is_first, self._source = True, source
        return self._producer.receive(now, source, message)

    def fire(self, now: Instant, timer: str) -> list[Effect]:
        if timer != WRITE:
            return self._producer.fire(now, timer)
        self._written += 1
        effects = [] if self.stopped else self._producer.send(now, TOPIC, b"once %d %d" % (self._number, self._written))
        return [*effects, SetTimer(WRITE, now.monotonic_ms + self._pause_ms)]

    def complete(self, now: Instant, token: str) -> list[Effect]:
        return []

    def closed(self, now: Instant, peer: str) -> list[Effect]:
        return self._producer.closed(now, peer)


class Consumer(Application):
    """A group member that regularly commits offsets of all partitions that it may process."""

    def __init__(
        self, name: str, bootstrap: list[int], config: MemberConfig, on_committed: OnCommitted, *, commits: bool,
        pace: int,
    ) -> None:  # fmt: skip
        super().__init__(name, bootstrap, config, POLL_MS * pace)
        self.assignors = config.assignors
        self._number = int(name.partition(":")[2])
        self._polls, self._commits_offsets = 0, commits
        self._commits: dict[int, tuple[frozenset[Partition], int]] = {}  # open requests, by correlation id
        self._on_committed = on_committed
        self._eager = not all(ASSIGNORS[assignor].is_cooperative for assignor in config.assignors)
        self.disturbed: frozenset[Partition] = frozenset()  # revoked although no assignment took it away

    def receive(self, now: Instant, source: str, message: Response) -> list[Effect]:
        commit, body = self._commits.pop(message.correlation_id, None), message.body
        if commit is not None and isinstance(body, OffsetCommitResponse):
            errors = {part.error_code for topic in body.topics for part in topic.partitions}
            if errors == {ErrorCode.NONE}:
                self._on_committed(*commit)
        return super().receive(now, source, message)

    def revoked(self, partitions: frozenset[Partition]) -> None:
        """Record in `disturbed` the partitions that a cooperative member revokes although it may still process them."""
        super().revoked(partitions)
        if not self._eager:
            self.disturbed |= partitions & self.member.fetchable

    def fire(self, now: Instant, timer: str) -> list[Effect]:
        effects = super().fire(now, timer)
        if timer == POLL and self.polling:
            self._polls += 1
            owned = self.member.fetchable
            if owned and self._commits_offsets and self._polls % POLLS_A_COMMIT == 0:
                time_and_member = now.monotonic_ms * MEMBER_NUMBERS + self._number
                effects += self._commit(now, owned, self.member.generation_id * GENERATION_STEP + time_and_member)
        return effects

    def _commit(self, now: Instant, owned: frozenset[Partition], offset: int) -> list[Effect]:
        effects = self.commit(now, dict.fromkeys(owned, offset))
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message.body, OffsetCommitRequest):
                self._commits[effect.message.correlation_id] = owned, offset
        return effects


class Administrator(Client):
    """Reassigns replicas, elects preferred leaders, creates and deletes `side`: one request every 200 to 800 ms.

    It sends to one broker after the other, as it does not know the controller; with `hurries` or `moves_side` to all.
    """

    def __init__(self, brokers: list[int], chance: Chance, replicas: int, load: Load) -> None:
        super().__init__(brokers)
        self._chance, self._replicas, self._load = chance, replicas, load
        self._actions = [self._reassign, self._elect, *([self._create, self._delete] if load.deletes else [])]
        if load.moves_side:
            self._actions = [self._create, partial(self._reassign, SIDE_TOPIC), self._delete]
        self._requests_sent = 0
        self.stopped = False

    def _send_next(self) -> None:
        if self.stopped:
            return
        self._requests_sent += 1
        drawn = self._chance.draw("work", self._requests_sent, len(self._actions))
        body, version = self._actions[self._requests_sent % len(self._actions) if self._load.moves_side else drawn]()
        sends_to_all = self._load.hurries or self._load.moves_side
        for broker_id in self._brokers if sends_to_all else [self._next_broker()]:
            self._send_request(broker_id, body, version)
        pause_ms = 200 + self._chance.draw("pause", self._requests_sent, 600)
        self._set_timer(pause_ms // HURRY if self._load.hurries else pause_ms)

    def _handle_reply(self, body: object) -> None:
        """Ignore the reply: the next request follows in any case."""

    def _reassign(self, name: str = TOPIC) -> VersionedRequest:
        first = self._chance.draw("move", self._requests_sent, len(self._brokers))
        target = tuple(self._brokers[(first + n) % len(self._brokers)] for n in range(self._replicas))
        partition = ReassignablePartition(partition_index=0, replicas=target)
        topic = ReassignableTopic(name=name, partitions=(partition,))
        return AlterPartitionReassignmentsRequest(topics=(topic,)), 0

    def _elect(self) -> VersionedRequest:
        return ElectLeadersRequest(election_type=0, topic_partitions=None), 2

    def _create(self) -> VersionedRequest:
        topic = CreatableTopic(name=SIDE_TOPIC, num_partitions=1, replication_factor=self._replicas)
        return CreateTopicsRequest(topics=(topic,), timeout_ms=500), 5

    def _delete(self) -> VersionedRequest:
        return DeleteTopicsRequest(topic_names=(SIDE_TOPIC,), timeout_ms=500), 3


@dataclass(slots=True)
class Clients:
    """The clients of one run. `members` has the newest process of each name: a restart creates a new object."""

    writers: list[Producer | Writer | TransactionalProducer] = field(default_factory=list)
    members: dict[str, Consumer] = field(default_factory=dict)
    readers: dict[str, Reader | GroupReader] = field(default_factory=dict)
    administrator: Administrator | None = None
    old: OldConsumers = field(default_factory=OldConsumers)

    def asked_to_commit(self, producer: int, transaction: int) -> bool:
        """Return whether a transactional producer has sent EndTxn with a commit in this transaction."""
        names = {writer.number: writer for writer in self.writers if isinstance(writer, TransactionalProducer)}
        return transaction in names[producer].asked

    def start(self, cluster: SimulatedCluster, observers: Observers) -> None:
        """Start the clients of `Settings.load`."""
        load, brokers, pace = cluster.settings.clients, cluster.broker_ids, cluster.settings.pace
        on_ack, on_committed = observers.on_ack, observers.on_committed
        for number in range(load.producers):
            producer = Producer(
                brokers, TOPIC, number % cluster.settings.partitions, first=number, stride=load.producers,
                pause_ms=5 + 20 * number, on_ack=on_ack,
            )  # fmt: skip
            self.writers.append(_started(cluster, f"producer:{number}", producer))
        for number in range(load.idempotent):
            guards = Guards().without(*cluster.settings.guards_off)
            writer = Writer(brokers, number, 20, on_ack, cluster.leader, guards, pace=pace)
            self.writers.append(_started(cluster, f"idempotent:{number}", writer))
        classic = "EndTxnBumpsEpoch" in cluster.settings.guards_off
        for number in range(load.transactional):
            transactional = TransactionalProducer(
                brokers, number, cluster.settings.partitions, classic=classic,
                transaction_timeout_ms=load.transaction_timeout_ms,
            )  # fmt: skip
            self.writers.append(_started(cluster, f"transactional:{number}", transactional))
        for number in range(len(load.members)):
            self._start_member(cluster, number, on_committed)
        self._start_readers(cluster, observers.reads)
        if load.old_consumers:
            self.old.start(cluster, load.old_consumers)
        if load.intruder:
            intruder = Intruder(brokers, cluster.world.chance, observers.on_stored, observers.on_refused)
            _started(cluster, "intruder:0", intruder)
        if load.administrator:
            administrator = Administrator(brokers, cluster.world.chance, cluster.settings.replicas, load)
            self.administrator = _started(cluster, "administrator:0", administrator)

    def _start_readers(self, cluster: SimulatedCluster, observer: ReadObserver) -> None:
        load, brokers, partitions = cluster.settings.clients, cluster.broker_ids, range(cluster.settings.partitions)
        for number in range(load.readers):
            name = f"reader:{number}"
            reader = partial(Reader, brokers, name, partitions, observer, read_committed=number % 2 == 1)
            self._start_reader(cluster, name, reader)
        for number in range(load.group_readers):
            name = f"group-reader:{number}"
            config = MemberConfig(
                READER_GROUP, frozenset({TOPIC}), session_timeout_ms=1_500, heartbeat_interval_ms=300,
                max_poll_interval_ms=2_500, request_timeout_ms=500,
            )  # fmt: skip
            pace = cluster.settings.pace
            member = partial(GroupReader, name, brokers, paced(config, pace), observer, read_committed=True, pace=pace)
            self._start_reader(cluster, name, member)
        if load.transforms:
            name, classic = "transformer:0", load.transforms == CLASSIC
            transformer = partial(Transformer, brokers, name, partitions, observer, classic=classic)
            self._start_reader(cluster, name, transformer)

    def _start_reader(self, cluster: SimulatedCluster, name: str, new: Callable[[], Reader | GroupReader]) -> None:
        def make(_: object) -> Reader | GroupReader:
            reader = self.readers[name] = new()
            if isinstance(reader, Reader):
                reader.pace = cluster.settings.pace
            return reader

        cluster.world.add(name, make)
        cluster.world.start(name)

    def _start_member(self, cluster: SimulatedCluster, number: int, on_committed: OnCommitted) -> None:
        load, name, pace = cluster.settings.clients, f"member:{number}", cluster.settings.pace
        config = MemberConfig(
            GROUP, frozenset({TOPIC}), tuple(load.members[number].split("+")),
            group_instance_id=f"i{number // load.twins}" if load.twins else None,
            session_timeout_ms=1_500, heartbeat_interval_ms=200, max_poll_interval_ms=2_500, request_timeout_ms=500,
            guards=Guards().without(*cluster.settings.guards_off),
        )  # fmt: skip

        def make(_: object) -> Consumer:
            self.members[name] = Consumer(
                name, cluster.broker_ids, paced(config, pace), on_committed, commits=load.commits, pace=pace
            )
            return self.members[name]

        cluster.world.add(name, make)
        cluster.world.start(name)


def paced(config: C, pace: int) -> C:
    """Return the settings of a client with all times multiplied by `pace`."""
    times = {field.name: getattr(config, field.name) for field in fields(config) if field.name.endswith("_ms")}
    return replace(config, **{name: ms * pace for name, ms in times.items()})


def _started(cluster: SimulatedCluster, name: str, node: N) -> N:
    if isinstance(node, Client):
        node.pace = cluster.settings.pace
    cluster.world.add(name, lambda disk: node)
    cluster.world.start(name)
    return node
