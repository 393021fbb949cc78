"""Readers: consumers with an assignment or in a group, and raw readers that record high watermarks."""

import itertools
import threading
from typing import Any

from highwater.fuzz.chaos.workload.producers import silent_logger
from highwater.fuzz.chaos.workload.raw_client import Leadership, RawClient, RawError
from highwater.fuzz.chaos.workload.recorder import Recorder
from highwater.fuzz.chaos.workload.topic import GROUP

BATCH = 200


def key_of(topic: str, partition: int) -> str:
    """Return the name of a partition in histories, such as `highwater-0`."""
    return f"{topic}-{partition}"


def _by_partition(messages: list[Any]) -> dict[str, list[list[int]]]:
    records: dict[str, list[list[int]]] = {}
    for message in messages:
        if message.error() is None:
            key = key_of(message.topic(), message.partition())
            records.setdefault(key, []).append([message.offset(), int(message.value())])
    return records


class ConfluentConsumer:
    """A confluent-kafka consumer: a member of `group`, or assigned all partitions from offset 0 if it is None.

    While `stalled` is set it does not poll, but it continues to send heartbeats.
    """

    client = "confluent-kafka"

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, process: int, recorder: Recorder, group: str | None,
        name: str = "", isolation: str = "read_uncommitted",
    ) -> None:  # fmt: skip
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._process, self._recorder, self._group, self.name = process, recorder, group, name
        self._isolation = isolation
        self.stalled = threading.Event()

    def run(self, stop: threading.Event) -> None:
        consumer = self._make()
        self._begin(consumer)
        while not stop.is_set():
            if self.stalled.is_set():
                stop.wait(0.05)
            else:
                self._poll(consumer)
        consumer.close()

    def read_all(self, deadline: threading.Event) -> bool:
        """Read every partition from its start to its end; return False if `deadline` is set first."""
        consumer = self._make()
        self._begin(consumer)
        ended: set[int] = set()
        while len(ended) < self._partitions and not deadline.is_set():
            ended |= self._poll(consumer)
        consumer.close()
        return len(ended) == self._partitions

    def _make(self) -> Any:
        from confluent_kafka import Consumer

        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self._group or f"alone-{self._process}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": self._group is not None,
                "enable.partition.eof": True,
                "auto.commit.interval.ms": 500,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                "isolation.level": self._isolation,
                "fetch.wait.max.ms": 100,
                "socket.timeout.ms": 4_000,
                "reconnect.backoff.max.ms": 500,
                "metadata.max.age.ms": 5_000,
            },
            logger=silent_logger(),
        )

    def _begin(self, consumer: Any) -> None:
        from confluent_kafka import TopicPartition

        if self._group is None:
            keys = [key_of(self._topic, partition) for partition in range(self._partitions)]
            self._recorder.record(self._process, "invoke", "assign", value=keys, client=self.client)
            consumer.assign([TopicPartition(self._topic, partition, 0) for partition in range(self._partitions)])
            self._recorder.record(self._process, "ok", "assign", value=keys, client=self.client)
        else:
            consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _poll(self, consumer: Any) -> set[int]:
        """Poll once, record it, and return the partitions whose end was reached."""
        from confluent_kafka import KafkaError, KafkaException

        self._recorder.record(self._process, "invoke", "poll", client=self.client)
        try:
            messages = consumer.consume(BATCH, timeout=0.2)
        except KafkaException as error:
            self._recorder.record(self._process, "info", "poll", error=str(error), client=self.client)
            return set()
        self._recorder.record(self._process, "ok", "poll", value=_by_partition(messages), client=self.client)
        errors = [(message.partition(), message.error()) for message in messages if message.error() is not None]
        return {partition for partition, error in errors if error.code() == KafkaError._PARTITION_EOF}

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        """Record the assignment: polls restart at the committed offset of the group."""
        keys = [key_of(assigned.topic, assigned.partition) for assigned in partitions]
        self._recorder.record(self._process, "info", "assign", value=keys, client=self.client)

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        keys = [key_of(revoked.topic, revoked.partition) for revoked in partitions]
        self._recorder.record(self._process, "info", "revoke", value=keys, client=self.client)


class RawReader:
    """Reads one partition with Fetch and its latest offset with ListOffsets, as one process of the history."""

    client = "raw"

    def __init__(self, bootstrap: str, topic: str, partition: int, process: int, recorder: Recorder) -> None:
        self._client = RawClient(bootstrap, timeout_s=1.5)
        self._topic, self._partition, self._process, self._recorder = topic, partition, process, recorder
        self._position = 0
        self._leader: Leadership | None = None

    def run(self, stop: threading.Event) -> None:
        turn = 0
        while not stop.wait(0.02):
            turn += 1
            try:
                if self._leader is None:
                    self._leader = self._find()
                    if self._leader is None:
                        continue
                if turn % 5:
                    self.fetch(self._leader)
                else:
                    self.list_latest(self._leader)
            except RawError:
                self._leader = None
        self._client.close()

    def _find(self) -> Leadership | None:
        try:
            _, leaders = self._client.metadata(self._topic)
        except RawError:
            return None
        leader = leaders.get(self._partition)
        return leader if leader is not None and leader.node >= 0 else None

    def _where(self, leader: Leadership) -> dict[str, Any]:
        return {
            "topic": self._topic,
            "partition": self._partition,
            "client": self.client,
            "node": str(leader.node),
            "leader_epoch": leader.leader_epoch,
        }

    def fetch(self, leader: Leadership) -> int:
        """Fetch from the position, record it and return the high watermark; record a failure and raise RawError."""
        where = {**self._where(leader), "position": self._position}
        self._recorder.record(self._process, "invoke", "fetch", **where)
        try:
            found = self._client.fetch(leader, self._topic, self._partition, self._position)
        except RawError as error:
            self._recorder.record(self._process, "fail", "fetch", error=str(error), **where)
            raise
        self._recorder.record(
            self._process, "ok", "fetch", value=found.records, high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset, log_start_offset=found.log_start_offset, **where,
        )  # fmt: skip
        self._position = found.next_offset
        return found.high_watermark

    def list_latest(self, leader: Leadership) -> None:
        """Request the latest offset and record it; a failure is recorded and raises RawError."""
        where = self._where(leader)
        self._recorder.record(self._process, "invoke", "list_offsets", **where)
        try:
            end = self._client.list_latest(leader, self._topic, self._partition)
        except RawError as error:
            self._recorder.record(self._process, "fail", "list_offsets", error=str(error), **where)
            raise
        self._recorder.record(self._process, "ok", "list_offsets", high_watermark=end, **where)

    def read_all(self, deadline: threading.Event) -> bool:
        """Read from offset 0 to the high watermark; return False if `deadline` is set before that."""
        self._position, self._leader = 0, None
        while not deadline.is_set():
            try:
                self._leader = self._leader or self._find()
                if self._leader is None:
                    raise RawError("no leader")
                if self.fetch(self._leader) <= self._position:
                    self._client.close()
                    return True
            except RawError:
                self._leader = None
                deadline.wait(0.1)
        return False


STAY_S = 2.0
"""How long a wanderer uses one consumer."""


class Wanderer(ConfluentConsumer):
    """Alternates between an assignment and a group, each time with a new consumer.

    Every fourth consumer crashes: it is dropped without close, so its group waits until its session expires.
    """

    def run(self, stop: threading.Event) -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            self._group = GROUP if number % 2 else None
            consumer = self._make()
            self._begin(consumer)
            self._stay(consumer, stop)
            if number % 4 == 3:
                self._recorder.record(self._process, "info", "crash", client=self.client)
            else:
                consumer.close()
            keys = [key_of(self._topic, partition) for partition in range(self._partitions)]
            self._recorder.record(self._process, "info", "revoke", value=keys, client=self.client)

    def _stay(self, consumer: Any, stop: threading.Event) -> None:
        over = threading.Event()
        timer = threading.Timer(STAY_S, over.set)
        timer.start()
        while not over.is_set() and not stop.is_set():
            self._poll(consumer)
        timer.cancel()
