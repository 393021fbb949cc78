"""Producers that are killed, in processes of their own: of Kafka 0.7, and with librdkafka.

A server that has imported what they need forks them, since starting a Python process for each of them takes long.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from typing import Any, Final

from highwater.experiments.clients import STAMP
from highwater.pools import end_with_parent
from highwater.reference.drivers.kafka_0_7 import ListedProducer
from highwater.reference.legacy.producer import ProducerConfig

__all__ = ["STAMP", "Dispatch", "producer_process"]

BATCH_MESSAGES: Final = 200
PACE: Final = 500.0
"""Records a second when delay is measured."""
FORKING: Final = multiprocessing.get_context("forkserver")


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What a producer process does: send as fast as it can, or at `PACE`, until it is killed."""

    address: str
    topic: str
    queue_time_ms: int | None
    record_bytes: int
    is_paced: bool
    librdkafka: dict[str, Any] | None


@contextmanager
def producer_process(dispatch: Dispatch) -> Iterator[tuple[Any, "Synchronized[int]"]]:
    """Run a producer and yield its process and the number of records that it has taken; kill it in the end."""
    FORKING.set_forkserver_preload([__name__, "confluent_kafka"])
    accepted = FORKING.Value("q", 0, lock=False)
    process = FORKING.Process(target=run_producer, args=(dispatch, accepted), daemon=True)
    process.start()
    try:
        yield process, accepted
    finally:
        process.kill()
        process.join()


def run_producer(dispatch: Dispatch, accepted: Any) -> None:
    """Send until killed, and count each record when the producer has taken it; if synchronous, when it is sent."""
    end_with_parent()
    send = _old_send(dispatch) if dispatch.librdkafka is None else _librdkafka_send(dispatch)
    rest, begin = bytes(dispatch.record_bytes - STAMP), time.monotonic()
    while True:
        if dispatch.is_paced:
            time.sleep(max(0.0, begin + accepted.value / PACE - time.monotonic()))
        send(time.monotonic_ns().to_bytes(STAMP) + rest)
        accepted.value += 1


def _old_send(dispatch: Dispatch) -> Callable[[bytes], None]:
    queue_time_ms = dispatch.queue_time_ms
    config = (
        ProducerConfig(batch_size=BATCH_MESSAGES)
        if queue_time_ms is None
        else ProducerConfig("async", queue_time_ms=queue_time_ms, batch_size=BATCH_MESSAGES)
    )
    return ListedProducer({0: dispatch.address}, dispatch.topic, config).send


def _librdkafka_send(dispatch: Dispatch) -> Callable[[bytes], None]:
    from confluent_kafka import Producer

    producer = Producer(
        {"acks": "1", "linger.ms": dispatch.queue_time_ms or 0, "batch.num.messages": BATCH_MESSAGES,
         "queue.buffering.max.messages": 10_000, **(dispatch.librdkafka or {})}
    )  # fmt: skip

    def send_async(value: bytes) -> None:
        while True:
            try:
                producer.produce(dispatch.topic, value)
                producer.poll(0)
                return
            except BufferError:
                producer.poll(0.01)

    def send_sync(value: bytes) -> None:
        producer.produce(dispatch.topic, value)
        producer.flush()

    return send_sync if dispatch.queue_time_ms is None else send_async
