"""Clients inside the simulation: one that creates the topic, and producers that write unique values one by one."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from highwater.reference.effects import Effect, Instant, Request, Response, Send, SetTimer, broker_peer
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from highwater.reference.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from highwater.reference.wire.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from highwater.reference.wire.records import build_batch

CREATE_VERSION, METADATA_VERSION, PRODUCE_VERSION = 5, 9, 9
TICK = "tick"
RETRY_MS = 100


class Client(ABC):
    """What both share: one request at a time, the next broker after an error or a silence."""

    def __init__(self, brokers: list[int], timeout_ms: int = 800) -> None:
        self._brokers, self._timeout_ms = brokers, timeout_ms
        self._turn = 0
        self._correlation_id = 0
        self._waiting = False
        self._out: list[Effect] = []
        self.now = Instant(0, 0)

    def _ask(self, broker_id: int, body: Any, version: int) -> None:
        self._correlation_id += 1
        self._waiting = True
        self._out.append(Send(broker_peer(broker_id), Request(self._correlation_id, version, body, "simulated")))
        self._wake(self._timeout_ms)

    def _wake(self, delay_ms: int) -> None:
        self._out.append(SetTimer(TICK, self.now.monotonic_ms + delay_ms))

    def _next_broker(self) -> int:
        self._turn += 1
        return self._brokers[self._turn % len(self._brokers)]

    @abstractmethod
    def _answered(self, body: Any) -> None:
        """The reply to the one request that is open."""

    @abstractmethod
    def _go_on(self) -> None:
        """Ask the next thing."""

    def _timed_out(self) -> None:  # noqa: B027 - most clients need to do nothing
        """Nobody answered in time."""

    def _drain(self) -> list[Effect]:
        effects, self._out = self._out, []
        return effects

    def start(self, now: Instant) -> list[Effect]:
        self.now = now
        self._go_on()
        return self._drain()

    def receive(self, now: Instant, source: str, message: Response) -> list[Effect]:
        self.now = now
        if self._waiting and message.correlation_id == self._correlation_id:  # a doubled request has two answers
            self._waiting = False
            self._answered(message.body)
        return self._drain()

    def fire(self, now: Instant, timer: str) -> list[Effect]:
        """The time for the answer is over, or the pause after an error."""
        self.now = now
        if self._waiting:
            self._correlation_id += 1  # a late answer counts no more
            self._timed_out()
        self._go_on()
        return self._drain()

    def complete(self, now: Instant, token: str) -> list[Effect]:
        return []

    def closed(self, now: Instant, peer: str) -> list[Effect]:
        return []


class Asker(Client):
    """Asks one thing of one broker after the other, until `settled` says that this is the answer."""

    def __init__(self, brokers: list[int], request: Any, version: int, settled: Callable[[Any], bool]) -> None:
        super().__init__(brokers, timeout_ms=3_000)
        self._request, self._version, self._settled = request, version, settled
        self.answer: Any = None

    @property
    def done(self) -> bool:
        return self.answer is not None

    def _go_on(self) -> None:
        if not self.done:
            self._ask(self._next_broker(), self._request, self._version)

    def _answered(self, body: Any) -> None:
        if self._settled(body):
            self.answer = body
        else:
            self._wake(RETRY_MS)


def topic_creator(brokers: list[int], topic: str, partitions: int, replicas: int, assigned: tuple[int, ...]) -> Asker:
    """Creates a topic; `assigned`, if not empty, are the replicas of its only partition."""
    wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=replicas)
    if assigned:
        place = CreatableReplicaAssignment(partition_index=0, broker_ids=assigned)
        wanted = CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=(place,))
    made = {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
    request = CreateTopicsRequest(topics=(wanted,), timeout_ms=2_000)
    return Asker(brokers, request, CREATE_VERSION, lambda reply: reply.topics[0].error_code in made)


class Producer(Client):
    """Writes 0, 1, 2 ... times `stride` plus `first` with acks=all; tells `on_ack(partition, offset, value)`."""

    def __init__(
        self, brokers: list[int], topic: str, partition: int, *, first: int, stride: int, pause_ms: int,
        on_ack: Callable[[int, int, int], None], leader: int = -1,
    ) -> None:  # fmt: skip
        super().__init__(brokers)
        self._topic, self._partition = topic, partition
        self._value, self._stride, self._pause_ms = first, stride, pause_ms
        self._on_ack = on_ack
        self._leader = leader  # believed; -1 asks who it is
        self.acked = 0
        self.stopped = False

    def _go_on(self) -> None:
        if self.stopped:
            return
        if self._leader < 0:
            topic = MetadataRequestTopic(name=self._topic)
            self._ask(self._next_broker(), MetadataRequest(topics=(topic,)), METADATA_VERSION)
        else:
            self._produce()

    def _produce(self) -> None:
        self._value += self._stride
        batch = build_batch([(self.now.wall_ms, None, b"%d" % self._value, ())])
        data = PartitionProduceData(index=self._partition, records=batch)
        topic = TopicProduceData(name=self._topic, partition_data=(data,))
        self._ask(self._leader, ProduceRequest(acks=-1, timeout_ms=600, topic_data=(topic,)), PRODUCE_VERSION)

    def _timed_out(self) -> None:
        self._leader = -1  # whoever was asked does not answer: find out who leads now

    def _answered(self, body: Any) -> None:
        if hasattr(body, "brokers"):
            found = [p for t in body.topics for p in t.partitions if p.partition_index == self._partition]
            self._leader = found[0].leader_id if found else -1
            self._wake(0 if self._leader >= 0 else RETRY_MS)
            return
        answer = body.responses[0].partition_responses[0]
        if answer.error_code == ErrorCode.NONE:
            self.acked += 1
            self._on_ack(self._partition, answer.base_offset, self._value)
            self._wake(self._pause_ms)
        else:
            self._leader = -1
            self._wake(RETRY_MS)
