"""Producers and consumers in processes of their own, so that they do not share one interpreter lock.

All processes of one machine share the monotonic clock: they begin at the same time, and an end-to-end latency is a
difference of two of its readings.
"""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from highwater.pools import process_pool

START_S: Final = 0.5
"""Until all clients begin: the time in which each of them connects and asks for the leaders."""
LEAD_S: Final = 0.25
CONNECT_S: Final = 20.0
QUEUED: Final = 20_000
BURST: Final = 100
CLOSE_S: Final = 5.0
STAMP: Final = 8
"""Bytes of a record that hold the time at which it was sent, in nanoseconds of the monotonic clock."""
PURGED: Final = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})
BATCH_BYTES: Final = 16_384
"""The default of Kafka's own producer. That of librdkafka, a megabyte, would hide what the documents measured."""
QUEUE_BACKOFF_MS: Final = 5
"""How long librdkafka waits when its queue is full. Its default of a second would be most of what is measured here."""
WORKERS: Final = 4


@dataclass(frozen=True, slots=True)
class Sending:
    """What a producer does: send as fast as it can, or `rate` records a second.

    It starts at `begin` minus `LEAD_S`, so that its connections are open and its queue is full when counting begins.
    """

    settings: dict[str, Any]
    topic: str
    record_bytes: int
    begin: float
    seconds: float
    rate: float = 0.0


@dataclass(slots=True)
class Sent:
    """What was acknowledged before the end, errors by name, and with a rate the latencies in milliseconds."""

    acknowledged: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    latencies_ms: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a consumer does: read partitions from their start, until so many records were read or for `seconds`."""

    settings: dict[str, Any]
    topic: str
    partitions: list[int]
    begin: float
    seconds: float
    records: int | None = None
    stamped: bool = False


@dataclass(slots=True)
class Read:
    """Records read, seconds from the begin to the last of them, and end-to-end latencies in milliseconds."""

    records: int = 0
    seconds: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)


def send(sending: Sending) -> Sent:
    """Produce to all partitions in turn; what is not acknowledged at the end is dropped and does not count."""
    from confluent_kafka import Producer

    options = {
        "queue.buffering.max.messages": QUEUED, "batch.size": BATCH_BYTES, "linger.ms": 0,
        "sticky.partitioning.linger.ms": 0, **sending.settings,
    }  # fmt: skip
    producer, sent, errors = Producer(options), Sent(), Counter[str]()
    end = sending.begin + sending.seconds

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            sent.acknowledged += sending.begin <= time.monotonic() < end
        elif error.name() not in PURGED:
            errors[error.name()] += 1

    producer.list_topics(sending.topic, CONNECT_S)
    _wait_until(sending.begin - (0 if sending.rate else LEAD_S))
    if sending.rate:
        _send_paced(producer, sending, sent, errors)
    else:
        value = bytes(sending.record_bytes)
        while time.monotonic() < end:
            for _ in range(BURST):
                try:
                    producer.produce(sending.topic, value, on_delivery=delivered)
                except BufferError:
                    producer.poll(0.002)
            producer.poll(0)
        producer.purge()
    producer.flush(CLOSE_S)
    sent.errors = dict(errors)
    return sent


def _send_paced(producer: Any, sending: Sending, sent: Sent, errors: "Counter[str]") -> None:
    """Send records with their time at a fixed rate, and note how long each of them took to be acknowledged."""
    rest = bytes(max(0, sending.record_bytes - STAMP))

    def delivered(error: Any, message: Any, stamp: int) -> None:
        if error is not None:
            errors[error.name()] += 1
            return
        sent.acknowledged += 1
        sent.latencies_ms.append((time.monotonic_ns() - stamp) / 1e6)

    for number in range(int(sending.rate * sending.seconds)):
        due = sending.begin + number / sending.rate
        while time.monotonic() < due:
            producer.poll(min(0.001, max(0.0, due - time.monotonic())))  # wait instead of spinning
        stamp = time.monotonic_ns()
        producer.produce(
            sending.topic, stamp.to_bytes(STAMP) + rest,
            on_delivery=lambda error, message, stamp=stamp: delivered(error, message, stamp),
        )  # fmt: skip


def read(reading: Reading) -> Read:
    """Read the assigned partitions."""
    from confluent_kafka import Consumer, TopicPartition

    options = {"group.id": "bench", "enable.auto.commit": False, "fetch.wait.max.ms": 10,
               "fetch.queue.backoff.ms": QUEUE_BACKOFF_MS}  # fmt: skip
    consumer = Consumer({**options, **reading.settings})
    consumer.list_topics(reading.topic, CONNECT_S)
    found, end = Read(), reading.begin + reading.seconds
    if reading.records is not None:
        _wait_until(reading.begin)  # else records that are fetched before would count as read at once
    consumer.assign([TopicPartition(reading.topic, number, 0) for number in reading.partitions])
    while time.monotonic() < end and (reading.records is None or found.records < reading.records):
        messages = consumer.consume(1 if reading.stamped else 2_000, 0.05)
        now = time.monotonic()
        # An empty record has shown that the topic is replicated, before anything was measured.
        good = [message for message in messages if message.error() is None and message.value()]
        if good and (reading.records is not None or reading.begin <= now < end):
            found.records += len(good)
            found.seconds = now - reading.begin
        if reading.stamped:
            stamps = (int.from_bytes(message.value()[:STAMP]) for message in good)
            found.latencies_ms += [now * 1e3 - stamp / 1e6 for stamp in stamps]
    consumer.close()
    return found


def _wait_until(moment: float) -> None:
    while (left := moment - time.monotonic()) > 0:
        time.sleep(left)


class Clients:
    """Processes that run producers and consumers; they stay up between measurements, as starting one takes long."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def run(self, sending: list[Sending], reading: list[Reading]) -> tuple[list[Sent], list[Read]]:
        """Run all clients at the same time and return what each of them did."""
        assert len(sending) + len(reading) <= WORKERS
        sent: list[Future[Sent]] = [self._pool.submit(send, one) for one in sending]
        found: list[Future[Read]] = [self._pool.submit(read, one) for one in reading]
        return [future.result() for future in sent], [future.result() for future in found]


@contextmanager
def client_processes() -> Iterator[Clients]:
    """Start the processes of the clients, and end them with the block. They leave Ctrl-C to their parent."""
    with process_pool(WORKERS, "spawn") as pool:
        yield Clients(pool)
