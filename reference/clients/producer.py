"""A producer without I/O: batching, linger, retries in order, idempotence, delivery timeout.

A node like the broker: `start`, `receive`, `fire`, `complete` and `closed` return effects, and so does `send`.  What
became of a record is told to `on_delivery`, once.  An idempotent producer writes nothing twice and leaves no gap: a
batch keeps its sequence through every retry, and no later batch overtakes it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reference.clients.batches import NO_PRODUCER_ID, Batch, PartitionQueue
from reference.clients.partitioners import StickyPartitioner
from reference.effects import Effect, Outbox, SetTimer
from reference.events import Instant, Request, Response, broker_peer
from reference.wire.errors import ErrorCode
from reference.wire.messages.init_producer_id import InitProducerIdRequest
from reference.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from reference.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from reference.wire.records import NewRecord

METADATA_VERSION, INIT_VERSION, PRODUCE_VERSION = 9, 1, 9
TICK: Final = "producer-tick"
MAX_IN_FLIGHT: Final = 5
"""As many batches as a leader remembers (KIP-98): more could not be told from gaps."""


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """Kafka's names; times in milliseconds, sizes in bytes."""

    acks: int = -1
    enable_idempotence: bool = True
    batch_size: int = 16_384
    linger_ms: int = 0
    max_in_flight: int = MAX_IN_FLIGHT
    retry_backoff_ms: int = 100
    request_timeout_ms: int = 1_000
    delivery_timeout_ms: int = 120_000

    def __post_init__(self) -> None:
        if self.enable_idempotence and (self.acks != -1 or not 0 < self.max_in_flight <= MAX_IN_FLIGHT):
            raise ValueError(f"idempotence needs acks -1 and at most {MAX_IN_FLIGHT} batches in flight")


@dataclass(frozen=True, slots=True)
class Delivery:
    """`offset` is -1 where the broker did not say or the record failed; after a timeout it may be in the log or not."""

    topic: str
    partition: int
    record: NewRecord
    offset: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that is under way; `batch` only for Produce."""

    broker_id: int
    due_ms: int
    queue: PartitionQueue | None = None
    batch: Batch | None = None


class Producer:
    """`bootstrap` are the brokers that are asked for metadata, in turn."""

    def __init__(
        self, bootstrap: Sequence[int], config: ProducerConfig, on_delivery: Callable[[Delivery], None]
    ) -> None:
        self._bootstrap, self._config, self._on_delivery = bootstrap, config, on_delivery
        self._partitioner = StickyPartitioner()
        self._out = Outbox()
        self._now = Instant(0, 0)
        self._turn = self._correlation_id = 0
        self._asked: dict[int, Asked] = {}
        self._leaders: dict[str, dict[int, int]] = {}
        self._unassigned: list[tuple[str, NewRecord]] = []  # of topics whose partitions are not known yet
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._producer = (NO_PRODUCER_ID, -1)
        self._refreshing = self._initialising = False
        self._idle_until_ms = 0  # after an answer that helps nobody

    # -- entrances -------------------------------------------------------------------------------

    def start(self, now: Instant) -> list[Effect]:
        return self._step(now, lambda: None)

    def send(self, now: Instant, topic: str, value: bytes | None, key: bytes | None = None) -> list[Effect]:
        """Take a record; it leaves when its batch does."""
        return self._step(now, lambda: self._unassigned.append((topic, (now.wall_ms, key, value, ()))))

    def receive(self, now: Instant, source: str, message: Response) -> list[Effect]:
        asked = self._asked.pop(message.correlation_id, None)
        return self._step(now, lambda: self._answered(asked, message.body) if asked else None)

    def fire(self, now: Instant, timer: str) -> list[Effect]:
        return self._step(now, lambda: None)

    def complete(self, now: Instant, token: str) -> list[Effect]:
        return []

    def closed(self, now: Instant, peer: str) -> list[Effect]:
        return self._step(now, lambda: self._give_up(lambda asked: broker_peer(asked.broker_id) == peer))

    def _step(self, now: Instant, work: Callable[[], None]) -> list[Effect]:
        self._now = now
        work()
        self._give_up(lambda asked: asked.due_ms <= now.monotonic_ms)
        self._expire()
        self._assign()
        self._go_on()
        self._out.add(SetTimer(TICK, self._next_tick_ms()))
        return self._out.drain()

    def _next_tick_ms(self) -> int:
        now_ms, config = self._now.monotonic_ms, self._config
        waits = [asked.due_ms - now_ms for asked in self._asked.values()]
        for queue in self._queues.values():
            for batch in queue.batches:
                waits.append(batch.created_ms + config.delivery_timeout_ms - now_ms)
                if not batch.in_flight:
                    waits.append(max(batch.retry_ms, batch.created_ms + config.linger_ms) - now_ms)
        waits.append(self._idle_until_ms - now_ms)
        return now_ms + min((wait for wait in waits if wait > 0), default=config.request_timeout_ms)

    # -- asking ----------------------------------------------------------------------------------

    def _ask(self, broker_id: int, body: Any, version: int, **what: Any) -> None:
        self._correlation_id += 1
        due_ms = self._now.monotonic_ms + self._config.request_timeout_ms
        self._asked[self._correlation_id] = Asked(broker_id, due_ms, **what)
        self._out.send(broker_peer(broker_id), Request(self._correlation_id, version, body, "producer"))

    def _next_broker(self) -> int:
        self._turn += 1
        return self._bootstrap[self._turn % len(self._bootstrap)]

    def _assign(self) -> None:
        """Give records their partition, where the topic's partitions are known."""
        left = []
        for topic, record in self._unassigned:
            partitions = self._leaders.get(topic)
            if not partitions:
                left.append((topic, record))
                continue
            number = self._partitioner.choose(topic, record[1], len(partitions))
            queue = self._queues.setdefault((topic, number), PartitionQueue(topic, number))
            if queue.append(record, self._now.monotonic_ms, self._config.batch_size):
                self._partitioner.batch_is_full(topic)
        self._unassigned = left

    def _go_on(self) -> None:
        """Ask for what is missing, and send what is ready."""
        if self._now.monotonic_ms < self._idle_until_ms:
            return
        topics = {topic for topic, _ in self._unassigned}
        topics |= {q.topic for q in self._queues.values() if q.batches and self._leader_of(q) < 0}
        if topics and not self._refreshing:
            self._refreshing = True
            wanted = tuple(MetadataRequestTopic(name=topic) for topic in sorted(topics))
            self._ask(self._next_broker(), MetadataRequest(topics=wanted), METADATA_VERSION)
        for queue in self._queues.values():
            if self._leader_of(queue) >= 0 and self._identified(queue):
                self._send_ready(queue)

    def _leader_of(self, queue: PartitionQueue) -> int:
        return self._leaders.get(queue.topic, {}).get(queue.partition, -1)

    def _identified(self, queue: PartitionQueue) -> bool:
        """Has the partition a producer id? One that broke off there is not used there again."""
        if not self._config.enable_idempotence or not queue.batches or queue.producer_id != NO_PRODUCER_ID:
            return True
        if self._producer[0] != NO_PRODUCER_ID and self._producer[0] not in queue.retired:
            queue.producer_id, queue.producer_epoch = self._producer
            return True
        if not self._initialising:
            self._initialising = True
            self._ask(self._next_broker(), InitProducerIdRequest(transactional_id=None), INIT_VERSION)
        return False

    def _send_ready(self, queue: PartitionQueue) -> None:
        config = self._config
        for batch in queue.ready(self._now.monotonic_ms, config.linger_ms, config.batch_size, config.max_in_flight):
            if not batch.sent and config.enable_idempotence:
                queue.identify(batch)
            batch.sent = batch.in_flight = True
            data = PartitionProduceData(index=queue.partition, records=batch.encode())
            topic = TopicProduceData(name=queue.topic, partition_data=(data,))
            body = ProduceRequest(acks=config.acks, timeout_ms=config.request_timeout_ms, topic_data=(topic,))
            self._ask(self._leader_of(queue), body, PRODUCE_VERSION, queue=queue, batch=batch)

    # -- answers ---------------------------------------------------------------------------------

    def _answered(self, asked: Asked, body: Any) -> None:
        if asked.queue is not None and asked.batch is not None:
            self._produced(asked.queue, asked.batch, body)
        elif isinstance(body, MetadataResponse):
            self._refreshing = False
            self._learn(body)
        else:
            self._initialising = False
            if body.error_code == ErrorCode.NONE:
                self._producer = (body.producer_id, body.producer_epoch)
            else:
                self._pause()

    def _learn(self, body: MetadataResponse) -> None:
        for topic in body.topics:
            if topic.name is not None and topic.error_code == ErrorCode.NONE:
                self._leaders[topic.name] = {p.partition_index: p.leader_id for p in topic.partitions}
            if topic.error_code != ErrorCode.NONE or any(p.leader_id < 0 for p in topic.partitions):
                self._pause()

    def _pause(self) -> None:
        self._idle_until_ms = self._now.monotonic_ms + self._config.retry_backoff_ms

    def _produced(self, queue: PartitionQueue, batch: Batch, body: ProduceResponse | None) -> None:
        if batch not in queue.batches:
            return  # given up meanwhile
        batch.in_flight = False
        if body is None:  # acks 0
            self._finish(queue, batch, ErrorCode.NONE, -1)
            return
        answer = body.responses[0].partition_responses[0]
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.NONE:
            self._finish(queue, batch, error, answer.base_offset)
        elif error.retriable or (error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and queue.batches[0] is not batch):
            self._retry(queue, batch)  # out of order: a batch before it is still to come
        else:
            self._fail_from(queue, batch, error)

    def _retry(self, queue: PartitionQueue, batch: Batch) -> None:
        batch.in_flight = False
        batch.retry_ms = self._now.monotonic_ms + self._config.retry_backoff_ms
        self._leaders[queue.topic][queue.partition] = -1  # whoever leads now is to be found out

    def _finish(self, queue: PartitionQueue, batch: Batch, error: ErrorCode, base_offset: int) -> None:
        queue.batches.remove(batch)
        for delta, record in enumerate(batch.records):
            offset = base_offset + delta if base_offset >= 0 else -1
            self._on_delivery(Delivery(queue.topic, queue.partition, record, offset, error))

    def _fail_from(self, queue: PartitionQueue, batch: Batch, error: ErrorCode) -> None:
        """Without its sequence the batches sent after it cannot go on; what was never sent gets another producer id."""
        if not self._config.enable_idempotence:
            self._finish(queue, batch, error, -1)
            return
        start = queue.batches.index(batch)
        for each in [each for each in list(queue.batches)[start:] if each.sent]:
            self._finish(queue, each, error, -1)
        queue.retire_identity()

    # -- time ------------------------------------------------------------------------------------

    def _give_up(self, which: Callable[[Asked], bool]) -> None:
        """No answer will come, or none in time; a batch may have been written: only its sequence can tell."""
        for correlation_id, asked in [(key, asked) for key, asked in self._asked.items() if which(asked)]:
            del self._asked[correlation_id]
            if asked.queue is None or asked.batch is None:
                self._refreshing = self._initialising = False
                self._pause()
            elif asked.batch in asked.queue.batches:
                self._retry(asked.queue, asked.batch)

    def _expire(self) -> None:
        """Records that could not be delivered within delivery.timeout.ms are given up."""
        oldest_ms = self._now.monotonic_ms - self._config.delivery_timeout_ms
        for queue in self._queues.values():
            while queue.batches and queue.batches[0].created_ms <= oldest_ms:
                first = queue.batches[0]
                if first.sent:
                    self._fail_from(queue, first, ErrorCode.REQUEST_TIMED_OUT)
                else:
                    self._finish(queue, first, ErrorCode.REQUEST_TIMED_OUT, -1)
