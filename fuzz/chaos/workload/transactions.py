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


class TransactionalWorkload:
    """Sends transactions through confluent-kafka.

    A record is `ok` once it is in the log; `end_txn` has the outcome of its transaction. The process of the producer
    itself, `control`, runs the transactions; each record has a process of its own.
    """

    client = "confluent-kafka"

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, processes: range, values: Values, recorder: Recorder,
        transactional_id: str, control: int,
    ) -> None:  # fmt: skip
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._processes, self._values, self._recorder = processes, values, recorder
        self._transactional_id, self._control = transactional_id, control
        self._turns = itertools.count()

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
        txn = f"{self._transactional_id} {next(self._turns)}"
        opened: dict[int, dict[str, Any]] = {}
        producer.begin_transaction()
        self._recorder.record(self._control, "info", "begin_txn", txn=txn, value=self._transactional_id)
        try:
            for process in self._processes:
                self._send(producer, process, txn, opened)
            if abort:
                producer.flush(PATIENCE_S)  # otherwise the log has no records to abort
            self._end(producer, txn, "abort" if abort else "commit")
        finally:
            for process, where in opened.items():
                offset = where.pop("offset", None)
                kind, result = ("info", {}) if offset is None else ("ok", {"offset": offset})
                self._recorder.record(process, kind, "send", **where, **result)

    def _end(self, producer: Any, txn: str, how: str) -> None:
        """End a transaction and record the outcome; a commit that failed is aborted without a record of it."""
        self._recorder.record(self._control, "invoke", "end_txn", txn=txn, value=how)
        try:
            (producer.abort_transaction if how == "abort" else producer.commit_transaction)(PATIENCE_S)
        except Exception as failure:
            self._recorder.record(self._control, "info", "end_txn", txn=txn, value=how, error=str(failure))
            with contextlib.suppress(Exception):
                producer.abort_transaction(PATIENCE_S)
            raise
        self._recorder.record(self._control, "ok", "end_txn", txn=txn, value=how)

    def _send(self, producer: Any, process: int, txn: str, opened: dict[int, dict[str, Any]]) -> None:
        value, partition = self._values.take(), process % self._partitions
        where = {"topic": self._topic, "partition": partition, "value": value, "client": self.client, "txn": txn}
        self._recorder.record(process, "invoke", "send", **where)
        opened[process] = where

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                where["offset"] = message.offset()

        producer.produce(self._topic, b"%d" % value, partition=partition, on_delivery=delivered)
