"""Transactional producers: each transaction writes some records to one topic; every fourth is aborted."""

import contextlib
import itertools
import threading
from typing import Any

from highwater.fuzz.chaos.workload.producers import Values, silent_logger
from highwater.fuzz.chaos.workload.recorder import Recorder

ABORT_EVERY = 4
TRANSACTION_TIMEOUT_MS = 6_000
PATIENCE_S = 5.0
PAUSE_S = 0.02


class TransactionalProducer:
    """Sends transactions through confluent-kafka.

    A record is `ok` once its transaction is committed, and `fail` once it is certainly aborted.
    """

    client = "confluent-kafka"

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, processes: range, values: Values, recorder: Recorder,
        transactional_id: str,
    ) -> None:  # fmt: skip
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._processes, self._values, self._recorder = processes, values, recorder
        self._transactional_id = transactional_id

    def run(self, stop: threading.Event) -> None:
        from confluent_kafka import KafkaException

        producer = None
        for turn in itertools.count():
            if stop.wait(PAUSE_S):
                return
            try:
                producer = producer or self._make()
                self._transaction(producer, abort=turn % ABORT_EVERY == ABORT_EVERY - 1)
            except KafkaException:  # the next producer fences this one and aborts its open transaction
                producer = None

    def _make(self) -> Any:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self._transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "delivery.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "request.timeout.ms": 3_000,
                "socket.timeout.ms": 4_000,
                "reconnect.backoff.max.ms": 500,
            },
            logger=silent_logger(),
        )
        producer.init_transactions(PATIENCE_S)
        return producer

    def _transaction(self, producer: Any, *, abort: bool) -> None:
        """Run one transaction; record the outcome of every record before it returns or raises KafkaException."""
        opened: dict[int, dict[str, Any]] = {}
        outcome, error = "info", ""
        try:
            producer.begin_transaction()
            for process in self._processes:
                self._send(producer, process, opened)
            if abort:
                producer.flush(PATIENCE_S)  # otherwise the log has no records to abort
                producer.abort_transaction(PATIENCE_S)
                outcome = "fail"
            else:
                producer.commit_transaction(PATIENCE_S)
                outcome = "ok"
        except Exception as failure:
            error = str(failure)
            with contextlib.suppress(Exception):
                producer.abort_transaction(PATIENCE_S)
            raise
        finally:
            for process, where in opened.items():
                offset = where.pop("offset", -1)
                result = {"offset": offset} if outcome == "ok" else {"error": error or "aborted"}
                self._recorder.record(process, outcome, "send", **where, **result)

    def _send(self, producer: Any, process: int, opened: dict[int, dict[str, Any]]) -> None:
        value, partition = self._values.take(), process % self._partitions
        where = {"topic": self._topic, "partition": partition, "value": value, "client": self.client}
        self._recorder.record(process, "invoke", "send", **where)
        opened[process] = where

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                where["offset"] = message.offset()

        producer.produce(self._topic, b"%d" % value, partition=partition, on_delivery=delivered)
