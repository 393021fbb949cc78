"""A producer of Kafka 0.7 (kafka-0.7-design, "Producer", "Producer APIs").

It picks a broker partition for each message and sends at once (`producer.type=sync`), or from a queue for each broker
(`async`) when `batch.size` messages are in it or the oldest has waited for `queue.time`. Nothing is acknowledged: what
is in a queue or on its way when a process ends is lost. The brokers come from ZooKeeper (`zk.connect`), whose watches
keep them up to date, or from a list (`broker.list`). Like a broker, the producer has no I/O.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple
from zlib import crc32

from highwater.reference.context import Context
from highwater.reference.effects import Effect, Instant, broker_peer
from highwater.reference.legacy.messages import message_set
from highwater.reference.legacy.registry import BROKER_IDS, BROKER_TOPICS, BrokerPartition, StoreNode, read_partitions
from highwater.reference.legacy.requests import Produce, encode_request
from highwater.reference.procedures import spawn
from highwater.reference.store.client import StoreClient
from highwater.reference.store.messages import WatchEvent
from highwater.reference.wire.compression import Compression

QUEUE_TIMER: Final = "queue.time "
Partitioner = Callable[[bytes | None, int], int]
"""Maps a key and the number of broker partitions to an index into them, sorted by broker and partition."""
Draw = Callable[[int], int]
"""Returns a random number from 0 below its argument."""


class QueueFullError(Exception):
    """The queue of a broker holds `queue.size` messages; this one was not taken."""


class NoBrokerError(Exception):
    """No broker partition is known for the topic, since no broker is registered."""


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """Settings of 0.7 under their names, with its defaults."""

    producer_type: Literal["sync", "async"] = "sync"
    queue_time_ms: int = 5_000
    queue_size: int = 10_000
    batch_size: int = 200
    compression: Compression = Compression.NONE


class Item(NamedTuple):
    """A message with its partition on the broker that was picked."""

    topic: str
    partition: int
    payload: bytes


def by_hash(draw: Draw) -> Partitioner:
    """Return the default: hash(key) % numPartitions, and a random partition without a key."""
    return lambda key, count: draw(count) if key is None else crc32(key) % count


def at_random(draw: Draw) -> Partitioner:
    """Return what a `broker.list` uses: a random partition whatever the key."""
    return lambda key, count: draw(count)


@dataclass(slots=True)
class View:
    """The brokers and their partitions of each topic, as the producer knows them."""

    partitioner: Partitioner
    addresses: dict[int, str] = field(default_factory=dict)
    partitions: dict[str, list[BrokerPartition]] = field(default_factory=dict)

    def pick(self, topic: str, key: bytes | None) -> BrokerPartition:
        """Return the broker partition for a message; raises NoBrokerError.

        A topic that no broker has registered yet is created by its first message, on partition 0 of any broker.
        """
        known = self.partitions.get(topic) or [(broker, 0) for broker in sorted(self.addresses)]
        if not known:
            raise NoBrokerError(topic)
        index = self.partitioner(key, len(known))
        assert 0 <= index < len(known), f"the partitioner returned {index} of {len(known)} partitions"
        return known[index]


class DispatchQueue:
    """Messages for one broker that wait to be sent together."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._items: list[tuple[int, Item]] = []  # with the time at which each was taken in

    def __len__(self) -> int:
        return len(self._items)

    def offer(self, now_ms: int, item: Item) -> None:
        """Take a message in; raises QueueFullError."""
        if len(self._items) >= self._config.queue_size:
            raise QueueFullError(f"{self._config.queue_size} messages are waiting")
        self._items.append((now_ms, item))

    @property
    def due_ms(self) -> int | None:
        """Return when the oldest message has waited for `queue.time`; None if there is none."""
        return self._items[0][0] + self._config.queue_time_ms if self._items else None

    def take(self, now_ms: int, *, whatever: bool = False) -> list[Item]:
        """Remove and return a batch that is full or due, or else nothing; `whatever`: also one that is neither."""
        is_due = self.due_ms is not None and self.due_ms <= now_ms
        if not (whatever or is_due or len(self._items) >= self._config.batch_size):
            return []
        batch, self._items = self._items[: self._config.batch_size], self._items[self._config.batch_size :]
        return [item for _, item in batch]


def request_of(items: Iterable[Item], compression: Compression = Compression.NONE) -> bytes:
    """Return the framed request for one broker: one message set for each partition, in the order of the messages."""
    collated: dict[tuple[str, int], list[bytes]] = {}
    for topic, partition, payload in items:
        collated.setdefault((topic, partition), []).append(payload)
    produces = [Produce(*where, message_set(payloads, compression)) for where, payloads in collated.items()]
    return encode_request(produces[0] if len(produces) == 1 else tuple(produces))


class LegacyProducer(StoreNode):
    """A producer that finds its brokers in ZooKeeper. `view` is what it has read; it sends to `broker:ID`."""

    def __init__(self, context: Context, config: ProducerConfig, partitioner: Partitioner) -> None:
        super().__init__(context)
        self._config = config
        self.view = View(partitioner)
        self.store = StoreClient(
            context, on_session=self._begin_reading, on_event=self._on_event, on_resumed=self._begin_reading
        )
        self._queues: dict[int, DispatchQueue] = {}
        self._is_reading = self._has_changed = False

    def _fire(self, timer: str) -> None:
        if timer.startswith(QUEUE_TIMER):
            self._dispatch(int(timer.removeprefix(QUEUE_TIMER)))
        else:
            super()._fire(timer)

    # -- sending -----------------------------------------------------------------------------------

    def send(self, now: Instant, topic: str, payloads: Iterable[bytes], key: bytes | None = None) -> list[Effect]:
        """Send messages to the partition of their key. Raises NoBrokerError, and QueueFullError if asynchronous."""
        self._context.now = now
        broker, partition = self.view.pick(topic, key)
        items = [Item(topic, partition, payload) for payload in payloads]
        if self._config.producer_type == "sync":
            self._send(broker, items)
            return self._context.out.drain()
        queue = self._queues.setdefault(broker, DispatchQueue(self._config))
        for item in items:
            queue.offer(now.monotonic_ms, item)
        self._dispatch(broker)
        return self._context.out.drain()

    def _dispatch(self, broker: int) -> None:
        """Send what is full or due, and come back when the oldest of the rest is due.

        Messages for a broker that is gone go to it all the same, since their partition was picked: they are lost.
        """
        queue, now_ms = self._queues[broker], self._context.now.monotonic_ms
        while batch := queue.take(now_ms):
            self._send(broker, batch)
        if queue.due_ms is not None:
            self._context.timer(f"{QUEUE_TIMER}{broker}", queue.due_ms - now_ms)

    def _send(self, broker: int, items: list[Item]) -> None:
        self._context.out.send(broker_peer(broker), request_of(items, self._config.compression))

    # -- discovery ---------------------------------------------------------------------------------

    def _begin_reading(self) -> None:
        spawn(self._watch())

    async def _watch(self) -> None:
        """Watch the registries: brokers that come or go, topics that are new, and brokers that register for one."""
        for path in (BROKER_IDS, BROKER_TOPICS):
            await self.store.ensure(path)
            await self.store.watch(path)
        self._request_reading()

    def _on_event(self, event: WatchEvent) -> None:
        if event.path.startswith((BROKER_IDS, BROKER_TOPICS)):
            self._request_reading()

    def _request_reading(self) -> None:
        self._has_changed = True
        if not self._is_reading:
            self._is_reading = True
            spawn(self._read())

    async def _read(self) -> None:
        """Read the registries until nothing changes meanwhile; without a connection keep what is known."""
        while self._has_changed:
            self._has_changed = False
            ids = (await self.store.children(BROKER_IDS)).children
            found = {int(broker): await self.store.get(f"{BROKER_IDS}/{broker}") for broker in ids}
            topics = (await self.store.children(BROKER_TOPICS)).children
            partitions = {topic: await read_partitions(self.store, topic) for topic in topics}
            if self.store.connected:
                self.view.addresses = {
                    broker: reply.data.decode() for broker, reply in found.items() if not reply.error
                }
                self.view.partitions = partitions
        self._is_reading = False


def listed(brokers: Mapping[int, str], partitions: int, topic: str, draw: Draw) -> View:
    """Return the view of a `broker.list`: each request goes to a random partition, also of a broker that is down."""
    found = [(broker, number) for broker in sorted(brokers) for number in range(partitions)]
    return View(at_random(draw), dict(brokers), {topic: found})
