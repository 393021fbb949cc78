"""Produces unique values through real clients. Each record in flight is one process of the history."""

import contextlib
import itertools
import logging
import queue
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from highwater.fuzz.chaos.workload.recorder import Recorder

# Errors after which nothing was written for certain; after any other error the outcome is unknown.
DEFINITE = {"MSG_SIZE_TOO_LARGE", "TOPIC_AUTHORIZATION_FAILED", "INVALID_REQUIRED_ACKS", "UNSUPPORTED_COMPRESSION_TYPE"}
SEND_TIMEOUT_MS = 6_000
MAX_RETRIES = 2_147_483_647


class Values:
    """Generates unique integers for all producers of a run."""

    def __init__(self) -> None:
        self._next = itertools.count(1)
        self._lock = threading.Lock()

    def take(self) -> int:
        with self._lock:
            return next(self._next)


def silent_logger() -> logging.Logger:
    """Return a logger that drops librdkafka's messages about killed brokers; the history records the faults."""
    logger = logging.getLogger("highwater.librdkafka")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


class ConfluentProducer:
    """Sends through confluent-kafka, with one record in flight for each of `processes`."""

    client = "confluent-kafka"

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, processes: range, values: Values, recorder: Recorder,
        acks: str, idempotence: bool, rate: int = 0, retries: int | None = None,
    ) -> None:  # fmt: skip
        self._bootstrap, self._topic, self._partitions, self._acks = bootstrap, topic, partitions, acks
        self._retries = {} if retries is None else {"retries": min(retries, MAX_RETRIES)}
        self._idempotence, self._pause_s = idempotence, 1 / rate if rate else 0.001
        self._values, self._recorder = values, recorder
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for process in processes:
            self._free.put(process)
        self._processes = processes

    def _make(self) -> Any:
        from confluent_kafka import Producer

        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": self._acks,
                "enable.idempotence": self._idempotence,
                "linger.ms": 2,
                "delivery.timeout.ms": SEND_TIMEOUT_MS,
                "request.timeout.ms": 3_000,
                "socket.timeout.ms": 4_000,
                "metadata.max.age.ms": 5_000,
                "reconnect.backoff.max.ms": 500,
                **self._retries,
            },
            logger=silent_logger(),
        )

    def run(self, stop: threading.Event) -> None:
        from confluent_kafka import KafkaException

        producer = self._make()
        for number in itertools.count():
            if stop.is_set():
                break
            try:
                self._send_next(producer, number % self._partitions)
            except (
                KafkaException
            ):  # an idempotent producer is unusable after a fatal error; the next one gets a new producer id
                self._abandon(producer)
                producer = self._make()
            stop.wait(self._pause_s)
        self._abandon(producer, SEND_TIMEOUT_MS / 1000 + 1)

    def _send_next(self, producer: Any, partition: int) -> None:
        """Send one record if a process is free; in any case run the delivery callbacks."""
        try:
            process = self._free.get(timeout=0.01)
        except queue.Empty:
            producer.poll(0)
            return
        self._send(producer, process, partition)
        producer.poll(0)

    def _abandon(self, producer: Any, patience_s: float = 1.0) -> None:
        """Flush for at most `patience_s`, then purge: the outcome of the remaining records is unknown."""
        from confluent_kafka import KafkaException

        with contextlib.suppress(KafkaException):
            producer.flush(patience_s)
        producer.purge()
        with contextlib.suppress(KafkaException):
            producer.flush(1.0)

    def _send(self, producer: Any, process: int, partition: int) -> None:
        from confluent_kafka import KafkaException

        value = self._values.take()
        where = {"topic": self._topic, "partition": partition, "value": value, "client": self.client}
        self._recorder.record(process, "invoke", "send", **where)

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                epoch = message.leader_epoch()
                self._recorder.record(process, "ok", "send", offset=message.offset(), leader_epoch=epoch, **where)
            else:
                kind = "fail" if error.name() in DEFINITE else "info"
                self._recorder.record(process, kind, "send", error=error.name(), **where)
            self._free.put(process)

        try:
            producer.produce(self._topic, b"%d" % value, partition=partition, on_delivery=delivered)
        except (KafkaException, BufferError) as error:
            # The producer rejected the record before queueing it: nothing was sent.
            self._recorder.record(process, "fail", "send", error=str(error), **where)
            self._free.put(process)
            if isinstance(error, KafkaException):
                raise


class KafkaPythonProducer:
    """Sends through kafka-python, one record at a time, as one process of the history."""

    client = "kafka-python"

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, process: int, values: Values, recorder: Recorder, acks: str,
        idempotence: bool, rate: int = 0,
    ) -> None:  # fmt: skip
        self._bootstrap, self._topic, self._partitions, self._process = bootstrap, topic, partitions, process
        self._pause_s = 1 / rate if rate else 0.004
        self._values, self._recorder, self._acks, self._idempotence = values, recorder, acks, idempotence
        with warnings.catch_warnings():  # kafka-python uses deprecated features of Python
            warnings.simplefilter("ignore", DeprecationWarning)
            import kafka
            import kafka.errors
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        self._library = kafka

    def run(self, stop: threading.Event) -> None:
        """Send until `stop` is set.

        After an error a new producer is created: kafka-python 3.0 drops its producer id then and requests no new one.
        """
        producer = self._make(stop)
        for partition in self._partition_sequence(stop):
            value = self._values.take()
            where = {"topic": self._topic, "partition": partition, "value": value, "client": self.client}
            self._recorder.record(self._process, "invoke", "send", **where)
            try:
                sent = producer.send(self._topic, b"%d" % value, partition=partition)
                found = sent.get(timeout=SEND_TIMEOUT_MS / 1000 + 2)
            except self._library.errors.KafkaError as error:
                self._recorder.record(self._process, "info", "send", error=type(error).__name__, **where)
                self._close(producer)
                producer = self._make(stop)
            else:
                self._recorder.record(self._process, "ok", "send", offset=found.offset, **where)
        self._close(producer)

    def _make(self, stop: threading.Event) -> Any:
        """Return a producer once a broker answers, or None if `stop` is set first."""
        while not stop.wait(0.05):
            try:
                return self._library.KafkaProducer(
                    bootstrap_servers=self._bootstrap.split(","),
                    acks="all" if self._acks == "all" else int(self._acks),
                    enable_idempotence=self._idempotence,
                    delivery_timeout_ms=SEND_TIMEOUT_MS,
                    request_timeout_ms=3_000,
                    linger_ms=0,
                )
            except self._library.errors.KafkaError:
                continue
        return None

    def _close(self, producer: Any) -> None:
        # It also raises KafkaError if records in flight are not acknowledged in time.
        if producer is not None:
            with contextlib.suppress(self._library.errors.KafkaError):
                producer.close(timeout=0.1)

    def _partition_sequence(self, stop: threading.Event) -> Iterator[int]:
        turn = 0
        while not stop.wait(self._pause_s):
            yield turn % self._partitions
            turn += 1
