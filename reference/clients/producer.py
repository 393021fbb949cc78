"""A producer without I/O: batching, linger, ordered retries, idempotence, delivery timeout.

It is a node like the broker: `start`, `receive`, `fire`, `complete` and `closed` return effects, and so does `send`.
`on_delivery` is called once per record with its result. An idempotent producer writes no duplicates and leaves no gaps:
a batch keeps its sequence in every retry, and no later batch overtakes it.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from highwater.reference.clients.batches import NO_PRODUCER_ID, Batch, PartitionQueue
from highwater.reference.effects import Effect, Instant, Outbox, Request, Response, SetTimer, broker_peer
from highwater.reference.guards import Guards
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from highwater.reference.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from highwater.reference.wire.messages.transactions import InitProducerIdRequest
from highwater.reference.wire.records import NewRecord

# --------------------------------------------------------------------------------------------------
# The partition of a record: by the hash of its key, or sticky for records without a key.


SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit unsigned Murmur 2 hash with Kafka's seed."""
    value = SEED ^ len(data)
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * MULTIPLIER & MASK
        k = (k ^ k >> 24) * MULTIPLIER & MASK
        value = (value * MULTIPLIER & MASK) ^ k
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    value = (value ^ value >> 13) * MULTIPLIER & MASK
    return value ^ value >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key as Kafka's default partitioner does; it depends on the partition count."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitioner:
    """Assigns records without a key to one partition until its batch is full, then to the next one (KIP-480)."""

    def __init__(self) -> None:
        self._partition_counters: dict[str, int] = {}

    def choose(self, topic: str, key: bytes | None, partitions: int) -> int:
        if key is not None:
            return partition_of_key(key, partitions)
        return self._partition_counters.get(topic, 0) % partitions

    def batch_is_full(self, topic: str) -> None:
        self._partition_counters[topic] = self._partition_counters.get(topic, 0) + 1


METADATA_VERSION, INIT_VERSION, PRODUCE_VERSION = 9, 1, 9
TICK: Final = "producer-tick"
MAX_IN_FLIGHT: Final = 5
"""The number of batches per producer that a leader keeps (KIP-98); it could not deduplicate older ones."""


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """Producer settings with Kafka's names; times in milliseconds, sizes in bytes."""

    acks: int = -1
    enable_idempotence: bool = True
    batch_size: int = 16_384
    linger_ms: int = 0
    max_in_flight: int = MAX_IN_FLIGHT
    retry_backoff_ms: int = 100
    request_timeout_ms: int = 1_000
    delivery_timeout_ms: int = 120_000
    guards: Guards = field(default_factory=Guards)

    def __post_init__(self) -> None:
        if self.enable_idempotence and (self.acks != -1 or not 0 < self.max_in_flight <= MAX_IN_FLIGHT):
            raise ValueError(f"idempotence needs acks -1 and at most {MAX_IN_FLIGHT} batches in flight")


@dataclass(frozen=True, slots=True)
class Delivery:
    """The result of one record. `offset` is -1 if unknown or failed; after a timeout the record may be in the log."""

    topic: str
    partition: int
    record: NewRecord
    offset: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A pending request; `queue` and `batch` are set only for Produce."""

    broker_id: int
    due_ms: int
    queue: PartitionQueue | None = None
    batch: Batch | None = None


class Producer:
    """`bootstrap` are the ids of the brokers for metadata requests, used in turn."""

    def __init__(
        self, bootstrap: Sequence[int], config: ProducerConfig, on_delivery: Callable[[Delivery], None]
    ) -> None:
        self._bootstrap, self._config, self._on_delivery = bootstrap, config, on_delivery
        self._partitioner = StickyPartitioner()
        self._out = Outbox()
        self._now = Instant(0, 0)
        self._bootstrap_index = self._correlation_id = 0
        self._pending: dict[int, PendingRequest] = {}
        self._leaders: dict[str, dict[int, int]] = {}
        self._unassigned: list[tuple[str, NewRecord]] = []  # of topics whose partitions are not known yet
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._producer = (NO_PRODUCER_ID, -1)
        self._refreshing = self._initialising = False
        self._backoff_until_ms = 0  # set after a failed or incomplete response

    # -- events ------------------------------------------------------------------------------------

    def start(self, now: Instant) -> list[Effect]:
        return self._step(now, lambda: None)

    def send(self, now: Instant, topic: str, value: bytes | None, key: bytes | None = None) -> list[Effect]:
        """Accept a record; it is sent with its batch."""
        return self._step(now, lambda: self._unassigned.append((topic, (now.wall_ms, key, value, ()))))

    def receive(self, now: Instant, source: str, message: Response) -> list[Effect]:
        pending = self._pending.pop(message.correlation_id, None)
        return self._step(now, lambda: self._handle_response(pending, message.body) if pending else None)

    def fire(self, now: Instant, timer: str) -> list[Effect]:
        return self._step(now, lambda: None)

    def complete(self, now: Instant, token: str) -> list[Effect]:
        return []

    def closed(self, now: Instant, peer: str) -> list[Effect]:
        return self._step(now, lambda: self._cancel(lambda pending: broker_peer(pending.broker_id) == peer))

    def _step(self, now: Instant, action: Callable[[], None]) -> list[Effect]:
        self._now = now
        action()
        self._cancel(lambda pending: pending.due_ms <= now.monotonic_ms)
        self._expire()
        self._assign()
        self._send_due_requests()
        self._out.add(SetTimer(TICK, self._next_tick_ms()))
        return self._out.drain()

    def _next_tick_ms(self) -> int:
        now_ms, config = self._now.monotonic_ms, self._config
        waits = [pending.due_ms - now_ms for pending in self._pending.values()]
        for queue in self._queues.values():
            for batch in queue.batches:
                waits.append(batch.created_ms + config.delivery_timeout_ms - now_ms)
                if not batch.in_flight:
                    waits.append(max(batch.retry_ms, batch.created_ms + config.linger_ms) - now_ms)
        waits.append(self._backoff_until_ms - now_ms)
        return now_ms + min((wait for wait in waits if wait > 0), default=config.request_timeout_ms)

    # -- requests ----------------------------------------------------------------------------------

    def _send_request(self, broker_id: int, body: Any, version: int, **produce_fields: Any) -> None:
        self._correlation_id += 1
        due_ms = self._now.monotonic_ms + self._config.request_timeout_ms
        self._pending[self._correlation_id] = PendingRequest(broker_id, due_ms, **produce_fields)
        self._out.send(broker_peer(broker_id), Request(self._correlation_id, version, body, "producer"))

    def _next_broker(self) -> int:
        self._bootstrap_index += 1
        return self._bootstrap[self._bootstrap_index % len(self._bootstrap)]

    def _assign(self) -> None:
        """Assign waiting records to partitions, if the partitions of their topic are known."""
        remaining = []
        for topic, record in self._unassigned:
            partitions = self._leaders.get(topic)
            if not partitions:
                remaining.append((topic, record))
                continue
            number = self._partitioner.choose(topic, record[1], len(partitions))
            queue = self._queues.setdefault((topic, number), PartitionQueue(topic, number))
            if queue.append(record, self._now.monotonic_ms, self._config.batch_size):
                self._partitioner.batch_is_full(topic)
        self._unassigned = remaining

    def _send_due_requests(self) -> None:
        """Request missing metadata and producer ids, and send the batches that are ready."""
        if self._now.monotonic_ms < self._backoff_until_ms:
            return
        topics = {topic for topic, _ in self._unassigned}
        topics |= {q.topic for q in self._queues.values() if q.batches and self._leader_of(q) < 0}
        if topics and not self._refreshing:
            self._refreshing = True
            topic_requests = tuple(MetadataRequestTopic(name=topic) for topic in sorted(topics))
            self._send_request(self._next_broker(), MetadataRequest(topics=topic_requests), METADATA_VERSION)
        for queue in self._queues.values():
            if self._leader_of(queue) >= 0 and self._has_producer_id(queue):
                self._send_ready(queue)

    def _leader_of(self, queue: PartitionQueue) -> int:
        return self._leaders.get(queue.topic, {}).get(queue.partition, -1)

    def _has_producer_id(self, queue: PartitionQueue) -> bool:
        """Return whether the partition has a producer id, and request one if not; a retired id is not used again."""
        if not self._config.enable_idempotence or not queue.batches or queue.producer_id != NO_PRODUCER_ID:
            return True
        if self._producer[0] != NO_PRODUCER_ID and self._producer[0] not in queue.retired_ids:
            queue.producer_id, queue.producer_epoch = self._producer
            return True
        if not self._initialising:
            self._initialising = True
            self._send_request(self._next_broker(), InitProducerIdRequest(transactional_id=None), INIT_VERSION)
        return False

    def _send_ready(self, queue: PartitionQueue) -> None:
        config = self._config
        most = config.max_in_flight if config.guards.limit_in_flight else sys.maxsize
        for batch in queue.ready(self._now.monotonic_ms, config.linger_ms, config.batch_size, most):
            if config.enable_idempotence and not (batch.sent and config.guards.retry_keeps_sequence):
                queue.identify(batch)
            batch.sent = batch.in_flight = True
            data = PartitionProduceData(index=queue.partition, records=batch.encode())
            topic = TopicProduceData(name=queue.topic, partition_data=(data,))
            body = ProduceRequest(acks=config.acks, timeout_ms=config.request_timeout_ms, topic_data=(topic,))
            self._send_request(self._leader_of(queue), body, PRODUCE_VERSION, queue=queue, batch=batch)

    # -- responses ---------------------------------------------------------------------------------

    def _handle_response(self, pending: PendingRequest, body: Any) -> None:
        if pending.queue is not None and pending.batch is not None:
            self._handle_produce(pending.queue, pending.batch, body)
        elif isinstance(body, MetadataResponse):
            self._refreshing = False
            self._update_metadata(body)
        else:
            self._initialising = False
            if body.error_code == ErrorCode.NONE:
                self._producer = (body.producer_id, body.producer_epoch)
            else:
                self._back_off()

    def _update_metadata(self, body: MetadataResponse) -> None:
        for topic in body.topics:
            if topic.name is not None and topic.error_code == ErrorCode.NONE:
                self._leaders[topic.name] = {p.partition_index: p.leader_id for p in topic.partitions}
            if topic.error_code != ErrorCode.NONE or any(p.leader_id < 0 for p in topic.partitions):
                self._back_off()

    def _back_off(self) -> None:
        self._backoff_until_ms = self._now.monotonic_ms + self._config.retry_backoff_ms

    def _handle_produce(self, queue: PartitionQueue, batch: Batch, body: ProduceResponse | None) -> None:
        if batch not in queue.batches:
            return  # the batch has expired meanwhile
        batch.in_flight = False
        if body is None:  # acks 0
            self._finish(queue, batch, ErrorCode.NONE, -1)
            return
        answer = body.responses[0].partition_responses[0]
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.NONE:
            self._finish(queue, batch, error, answer.base_offset)
        elif error.retriable or (error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and queue.batches[0] is not batch):
            self._retry(queue, batch)  # out of order: an earlier batch of this partition is retried first
        else:
            self._fail_from(queue, batch, error)

    def _retry(self, queue: PartitionQueue, batch: Batch) -> None:
        batch.in_flight = False
        batch.retry_ms = self._now.monotonic_ms + self._config.retry_backoff_ms
        self._leaders[queue.topic][queue.partition] = -1  # find the current leader again

    def _finish(self, queue: PartitionQueue, batch: Batch, error: ErrorCode, base_offset: int) -> None:
        queue.batches.remove(batch)
        for delta, record in enumerate(batch.records):
            offset = base_offset + delta if base_offset >= 0 else -1
            self._on_delivery(Delivery(queue.topic, queue.partition, record, offset, error))

    def _fail_from(self, queue: PartitionQueue, batch: Batch, error: ErrorCode) -> None:
        """Fail a batch and all sent batches after it, because their sequences depend on it.

        Batches that were never sent get a new producer id.
        """
        if not self._config.enable_idempotence:
            self._finish(queue, batch, error, -1)
            return
        start = queue.batches.index(batch)
        for later in [later for later in list(queue.batches)[start:] if later.sent]:
            self._finish(queue, later, error, -1)
        queue.retire_identity()

    # -- time ------------------------------------------------------------------------------------

    def _cancel(self, condition: Callable[[PendingRequest], bool]) -> None:
        """Cancel requests without a response and retry their batches; the sequence prevents a duplicate."""
        for correlation_id, pending in [(key, pending) for key, pending in self._pending.items() if condition(pending)]:
            del self._pending[correlation_id]
            if pending.queue is None or pending.batch is None:
                self._refreshing = self._initialising = False
                self._back_off()
            elif pending.batch in pending.queue.batches:
                self._retry(pending.queue, pending.batch)

    def _expire(self) -> None:
        """Fail the records that were not delivered within delivery.timeout.ms."""
        oldest_ms = self._now.monotonic_ms - self._config.delivery_timeout_ms
        for queue in self._queues.values():
            while queue.batches and queue.batches[0].created_ms <= oldest_ms:
                first = queue.batches[0]
                if first.sent:
                    self._fail_from(queue, first, ErrorCode.REQUEST_TIMED_OUT)
                else:
                    self._finish(queue, first, ErrorCode.REQUEST_TIMED_OUT, -1)
