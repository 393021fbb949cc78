"""Simulated clients: one that repeats a request until it succeeds, and producers of unique values."""

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
PRODUCE_TIMEOUT_MS = 600


class Client(ABC):
    """Base class: has one request open at a time, and sends to the next broker after an error or a time-out.

    `pace` multiplies its time-outs and pauses (`Settings.pace`); it is set before the client starts.
    """

    pace = 1

    def __init__(self, brokers: list[int], timeout_ms: int = 800) -> None:
        self._brokers, self._timeout_ms = brokers, timeout_ms
        self._turn = 0
        self._correlation_id = 0
        self._waiting = False
        self._out: list[Effect] = []
        self.now = Instant(0, 0)

    def _send_request(self, broker_id: int, body: Any, version: int) -> None:
        self._correlation_id += 1
        self._waiting = True
        self._out.append(Send(broker_peer(broker_id), Request(self._correlation_id, version, body, "simulated")))
        self._set_timer(self._timeout_ms)

    def _set_timer(self, delay_ms: int) -> None:
        self._out.append(SetTimer(TICK, self.now.monotonic_ms + delay_ms * self.pace))

    def _next_broker(self) -> int:
        self._turn += 1
        return self._brokers[self._turn % len(self._brokers)]

    @abstractmethod
    def _handle_reply(self, body: Any) -> None:
        """Handle the response to the open request."""

    @abstractmethod
    def _send_next(self) -> None:
        """Send the next request."""

    def _timed_out(self) -> None:  # noqa: B027 - most clients need to do nothing
        """Handle a missing response."""

    def _drain(self) -> list[Effect]:
        effects, self._out = self._out, []
        return effects

    def start(self, now: Instant) -> list[Effect]:
        self.now = now
        self._send_next()
        return self._drain()

    def receive(self, now: Instant, source: str, message: Response) -> list[Effect]:
        self.now = now
        if self._waiting and message.correlation_id == self._correlation_id:  # a duplicated request has two responses
            self._waiting = False
            self._handle_reply(message.body)
        return self._drain()

    def fire(self, now: Instant, timer: str) -> list[Effect]:
        """Send the next request: the open one timed out, or the pause after an error has ended."""
        self.now = now
        if self._waiting:
            self._correlation_id += 1  # so that a late response is ignored
            self._timed_out()
        self._send_next()
        return self._drain()

    def complete(self, now: Instant, token: str) -> list[Effect]:
        return []

    def closed(self, now: Instant, peer: str) -> list[Effect]:
        return []


class RetryingClient(Client):
    """Sends the same request to one broker after the other until `is_final(response)` is true."""

    def __init__(self, brokers: list[int], request: Any, version: int, is_final: Callable[[Any], bool]) -> None:
        super().__init__(brokers, timeout_ms=3_000)
        self._request, self._version, self._is_final = request, version, is_final
        self.response: Any = None

    @property
    def done(self) -> bool:
        """Return whether the final response has arrived."""
        return self.response is not None

    def _send_next(self) -> None:
        if not self.done:
            self._send_request(self._next_broker(), self._request, self._version)

    def _handle_reply(self, body: Any) -> None:
        if self._is_final(body):
            self.response = body
        else:
            self._set_timer(RETRY_MS)


def topic_creator(
    brokers: list[int], topic: str, partitions: int, replicas: int, assigned: tuple[int, ...]
) -> RetryingClient:
    """Return a client that creates a topic; `assigned`, if not empty, are the replicas of its only partition."""
    creatable = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=replicas)
    if assigned:
        place = CreatableReplicaAssignment(partition_index=0, broker_ids=assigned)
        creatable = CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=(place,))
    accepted = {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
    request = CreateTopicsRequest(topics=(creatable,), timeout_ms=2_000)
    return RetryingClient(brokers, request, CREATE_VERSION, lambda reply: reply.topics[0].error_code in accepted)


def produce_request(
    topic: str, partition: int, batch: bytes, *, pace: int, transactional_id: str | None = None
) -> ProduceRequest:
    """Return a request with acks=all for one batch."""
    data = TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=partition, records=batch),))
    timeout_ms = PRODUCE_TIMEOUT_MS * pace
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=timeout_ms, topic_data=(data,))


class Producer(Client):
    """Writes `first` plus 1, 2, 3 ... times `stride` with acks=all; calls `on_ack(partition, offset, value)`."""

    def __init__(
        self, brokers: list[int], topic: str, partition: int, *, first: int, stride: int, pause_ms: int,
        on_ack: Callable[[int, int, bytes], None], leader: int = -1,
    ) -> None:  # fmt: skip
        super().__init__(brokers)
        self._topic, self._partition = topic, partition
        self._value, self._stride, self._pause_ms = first, stride, pause_ms
        self._on_ack = on_ack
        self._leader = leader  # broker id; -1: request metadata first
        self.acked = 0
        self.stopped = False

    def _send_next(self) -> None:
        if self.stopped:
            return
        if self._leader < 0:
            topic = MetadataRequestTopic(name=self._topic)
            self._send_request(self._next_broker(), MetadataRequest(topics=(topic,)), METADATA_VERSION)
        else:
            self._produce()

    def _produce(self) -> None:
        self._value += self._stride
        batch = build_batch([(self.now.wall_ms, None, b"%d" % self._value, ())])
        body = produce_request(self._topic, self._partition, batch, pace=self.pace)
        self._send_request(self._leader, body, PRODUCE_VERSION)

    def _timed_out(self) -> None:
        self._leader = -1  # the broker did not respond: request metadata for the current leader

    def _handle_reply(self, body: Any) -> None:
        if hasattr(body, "brokers"):
            found = [p for t in body.topics for p in t.partitions if p.partition_index == self._partition]
            self._leader = found[0].leader_id if found else -1
            self._set_timer(0 if self._leader >= 0 else RETRY_MS)
            return
        response = body.responses[0].partition_responses[0]
        if response.error_code == ErrorCode.NONE:
            self.acked += 1
            self._on_ack(self._partition, response.base_offset, b"%d" % self._value)
            self._set_timer(self._pause_ms)
        else:
            self._leader = -1
            self._set_timer(RETRY_MS)
