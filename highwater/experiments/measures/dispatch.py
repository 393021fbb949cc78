"""Synchronous and asynchronous sending (`producer.type`): throughput, delay, and what a killed producer loses.

The producer of Kafka 0.7 sends to a broker of 0.7; librdkafka sends to the targets, where waiting for each record is
`sync`, and `linger.ms` is the queue time. Both send 200 messages at most at a time, the default of 0.7 and 0.8.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

from highwater.experiments.conditions import Condition, Found
from highwater.experiments.measures.producing import STAMP, Dispatch, producer_process
from highwater.experiments.plans import SYNC
from highwater.experiments.targets import Bench
from highwater.processes import python_command
from highwater.reference.drivers.kafka_0_7 import LISTENING, Exchange
from highwater.reference.legacy.delivery import SimpleConsumer
from highwater.reference.legacy.messages import Message
from highwater.reference.legacy.requests import OffsetsBefore, decode_offsets, decode_send, encode_request
from highwater.temporary import temporary_folder

TOPIC_0_7: Final = "dispatch"
WINDOWS: Final = 5
SETTLED_S: Final = 1.0
"""Records that have not arrived within this time after the last one are lost: their producer is dead."""
READY_S: Final = 30.0
FETCH_BYTES: Final = 1 << 20
FLUSH_SOON: Final = ("--flush-ms", "50", "--flush-messages", "10000")
FLUSH_EACH: Final = ("--flush-messages", "1")
"""A consumer of 0.7 reads only what is flushed, so that every request is flushed where delay is measured."""


class DispatchMeasure:
    """Measures one condition: throughput in windows, then the delay of paced records, whose producer is killed."""

    def __init__(self, window_s: float, paced_s: float, run: str) -> None:
        self._window_s, self._paced_s, self._run, self._topics = window_s, paced_s, run, 0

    def measure(self, bench: Bench | None, condition: Condition) -> Found:
        """Measure a target, or a broker of Kafka 0.7 without one. Raises TimeoutError, OSError and KafkaException."""
        with self._reader(bench, FLUSH_SOON) as (reader, address, topic):
            rates = self._rates(reader, _dispatch(bench, condition, address, topic, is_paced=False))
        with self._reader(bench, FLUSH_EACH) as (reader, address, topic):
            accepted, delays = self._delays(reader, _dispatch(bench, condition, address, topic, is_paced=True))
        if not delays:
            raise TimeoutError("no record was read")
        metrics = {
            "records_per_second": sum(rates) / len(rates), "delay": sorted(delays)[len(delays) // 2],
            "accepted": float(accepted), "lost": float(max(0, accepted - len(delays))),
        }  # fmt: skip
        return Found(metrics, {"records_per_second": rates, "delay": delays})

    @contextmanager
    def _reader(self, bench: Bench | None, options: tuple[str, ...]) -> Iterator[tuple["Reader", str, str]]:
        """Yield a reader of an empty topic with one partition, and where to send to."""
        if bench is None:
            with broker_of_0_7(*options) as address, closing(OldReader(address)) as old:
                yield old, address, TOPIC_0_7
            return
        self._topics += 1
        topic = f"dispatch-{self._run}-{self._topics}"
        bench.create_topic(topic, 1, 1)
        try:
            with closing(KafkaReader(bench, topic)) as reader:
                yield reader, bench.bootstrap, topic
        finally:
            bench.delete_topic(topic)

    def _rates(self, reader: "Reader", dispatch: Dispatch) -> list[float]:
        """Return the records that arrived in each window, per second."""
        rates, value = [], bytes(dispatch.record_bytes)
        with producer_process(dispatch) as (process, _):
            _await(lambda: bool(reader.poll()), process)
            reader.stored(value)
            for _ in range(WINDOWS):
                before, began = reader.stored(value), time.monotonic()
                time.sleep(self._window_s)
                rates.append((reader.stored(value) - before) / (time.monotonic() - began))
        return rates

    def _delays(self, reader: "Reader", dispatch: Dispatch) -> tuple[int, list[float]]:
        """Return how many records the producer had taken when it was killed, and the delays of those that arrived."""
        delays: list[float] = []

        def poll() -> bool:
            payloads, now = reader.poll(), time.monotonic_ns()
            delays.extend((now - int.from_bytes(payload[:STAMP])) / 1e6 for payload in payloads)
            return bool(payloads)

        with producer_process(dispatch) as (process, accepted):
            _await(lambda: accepted.value > 0, process)
            end = time.monotonic() + self._paced_s
            while time.monotonic() < end:
                poll()
            process.kill()
            process.join()
            taken = accepted.value
        last = time.monotonic()
        while time.monotonic() < last + SETTLED_S:
            if poll():
                last = time.monotonic()
        return taken, delays


def _dispatch(bench: Bench | None, condition: Condition, address: str, topic: str, *, is_paced: bool) -> Dispatch:
    is_sync = condition.settings["dispatch"] == SYNC
    return Dispatch(
        address, topic, None if is_sync else condition.number("queue_time_ms"), condition.number("record_bytes"),
        is_paced, None if bench is None else bench.client_settings,
    )  # fmt: skip


def _await(is_true: Callable[[], bool], process: Any) -> None:
    """Wait for something that the producer brings about; raises TimeoutError."""
    deadline = time.monotonic() + READY_S
    while not is_true():
        if time.monotonic() > deadline or not process.is_alive():
            raise TimeoutError("the producer sent nothing")


# -- readers ---------------------------------------------------------------------------------------


class OldReader:
    """Reads a partition of a broker of Kafka 0.7 with its simple consumer."""

    def __init__(self, address: str) -> None:
        self._exchange = Exchange(address)
        self._consumer = SimpleConsumer(self._exchange, TOPIC_0_7, 0, 0, FETCH_BYTES, FETCH_BYTES)

    def poll(self) -> list[bytes]:
        return [payload for payloads, _ in self._consumer.poll() for payload in payloads]

    def stored(self, value: bytes) -> int:
        """Return how many records like this one the log holds: an offset of 0.7 is a position in bytes."""
        request = encode_request(OffsetsBefore(TOPIC_0_7, 0, -1, 1))[4:]
        _, data = decode_send(self._exchange(request))
        return decode_offsets(data)[0] // len(Message(value).encode())

    def close(self) -> None:
        self._exchange.close()


class KafkaReader:
    """Reads a partition with librdkafka."""

    def __init__(self, bench: Bench, topic: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._consumer = Consumer(
            {"group.id": "bench", "enable.auto.commit": False, "fetch.wait.max.ms": 10, **bench.client_settings}
        )
        self._partition = TopicPartition(topic, 0, 0)
        self._consumer.assign([self._partition])

    def poll(self) -> list[bytes]:
        return [message.value() for message in self._consumer.consume(100, 0.002) if message.error() is None]

    def stored(self, value: bytes) -> int:
        return int(self._consumer.get_watermark_offsets(self._partition, READY_S)[1])

    def close(self) -> None:
        self._consumer.close()


Reader = OldReader | KafkaReader


@contextmanager
def broker_of_0_7(*options: str) -> Iterator[str]:
    """Run a broker of Kafka 0.7 in a process and yield its address."""
    with temporary_folder("0.7-") as folder:
        command = python_command("-m", "highwater.reference.drivers.kafka_0_7", str(folder / "data"), *options)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                yield process.stdout.readline().removeprefix(LISTENING).strip()
            finally:
                process.kill()
