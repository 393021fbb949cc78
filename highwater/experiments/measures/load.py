"""Throughput, in any of its experiments, and latency: clients at full speed or at a fixed rate."""

import statistics
import time
from typing import Any, Final

from highwater.experiments.clients import START_S, Clients, Read, Reading, Sending, Sent
from highwater.experiments.conditions import Condition, Found
from highwater.experiments.plans import Scale
from highwater.experiments.targets import Bench

FILL_S: Final = 120.0
PACED_RECORDS: Final = 100.0
"""Records a second when latency is measured, each a request of its own: else time in a queue would be measured."""
IN_STEP: Final = 0.95
"""The share of paced records that must be acknowledged within `LATE_S`."""
SLOWEST: Final = 10_000
"""Records below which no 99.99th percentile is given: it would be the largest value."""
LATE_S: Final = 1.0
ROUNDS: Final = 5
"""How often a rate is measured while many partitions exist; creating them takes longer."""


class LoadMeasure:
    """Measures conditions of the experiments throughput, partitions, size, clients and latency."""

    def __init__(self, clients: Clients, scale: Scale, run: str) -> None:
        self._clients, self._scale, self._run = clients, scale, run
        self._filled: dict[tuple[str, int, int], str] = {}
        self._topics = 0

    def warm_up(self, bench: Bench) -> None:
        """Send for a while, to all replicas: the JIT compiler of Apache Kafka needs some hundred thousand records."""
        topic = self._create(bench, 6, min(3, len(bench.addresses)))
        for acks in ("1", "all"):
            self._send(bench, topic, 1, 1_000, self._scale.warm_up_s / 2, acks=acks)
        bench.delete_topic(topic)

    def measure(self, bench: Bench, condition: Condition) -> Found:
        """Return the metrics of one condition; raises TimeoutError and KafkaException."""
        return Found(self._metrics(bench, condition))

    def _metrics(self, bench: Bench, condition: Condition) -> dict[str, float]:
        if condition.experiment == "latency":
            return self._latency(bench, condition)
        if condition.settings["clients"] == "consumers":
            return self._consume(bench, condition)
        topic = self._topic(bench, condition)
        try:
            return self._produce(bench, condition, topic)
        finally:
            bench.delete_topic(topic)

    def beside_idle(self, bench: Bench, condition: Condition) -> Found:
        """Return the rate beside idle partitions, and the time of their creation."""
        used, unused, started = self._topic(bench, condition), f"idle-{self._run}-{self._topics}", time.monotonic()
        try:
            bench.create_topic(unused, condition.number("idle"), condition.number("replicas"))
            created_ms = 1e3 * (time.monotonic() - started)
            rounds = [self._produce(bench, condition, used) for _ in range(ROUNDS + 1)][1:]  # the first warms up
        finally:
            bench.delete_topic(used)
            bench.delete_topic(unused)
        rates = [found["records_per_second"] for found in rounds]
        return Found(
            {"records_per_second": statistics.median(rates), "created": created_ms}, {"records_per_second": rates}
        )

    def _produce(self, bench: Bench, condition: Condition, topic: str) -> dict[str, float]:
        record_bytes, is_pair = condition.number("record_bytes"), condition.settings["clients"] == "pair"
        sent, found = self._send(
            bench, topic, condition.number("producers"), record_bytes, self._scale.seconds,
            acks=str(condition.settings["acks"]), read=condition.number("partitions") if is_pair else 0,
        )  # fmt: skip
        records = sum(one.records for one in found) if is_pair else sum(one.acknowledged for one in sent)
        return {**_rate(records, self._scale.seconds, record_bytes), **_errors(sent)}

    def _send(
        self, bench: Bench, topic: str, producers: int, record_bytes: int, seconds: float, *, acks: str, read: int = 0
    ) -> tuple[list[Sent], list[Read]]:
        """Run producers, and a consumer of the first `read` partitions beside them."""
        begin = time.monotonic() + START_S
        settings = {**bench.client_settings, "acks": acks}
        sending = [Sending(settings, topic, record_bytes, begin, seconds)] * producers
        reading = [Reading(bench.client_settings, topic, list(range(read)), begin, seconds)] if read else []
        return self._clients.run(sending, reading)

    def _consume(self, bench: Bench, condition: Condition) -> dict[str, float]:
        """Read a topic that was filled before, each consumer an equal share of its partitions."""
        partitions, record_bytes = condition.number("partitions"), condition.number("record_bytes")
        topic = self._filled_topic(bench, partitions, record_bytes)
        consumers, begin = condition.number("consumers"), time.monotonic() + START_S
        shares = [list(range(partitions))[first::consumers] for first in range(consumers)]
        per_partition = self._scale.records_to_read // partitions
        reading = [
            Reading(bench.client_settings, topic, share, begin, FILL_S, per_partition * len(share)) for share in shares
        ]
        _, found = self._clients.run([], reading)
        return _rate(sum(one.records for one in found), max(one.seconds for one in found), record_bytes)

    def _filled_topic(self, bench: Bench, partitions: int, record_bytes: int) -> str:
        """Return a topic with `records_to_read` records, equally many in each partition."""
        from confluent_kafka import Producer

        key = (bench.name, partitions, record_bytes)
        if key not in self._filled:
            topic = self._create(bench, partitions, 1)
            producer = Producer({**bench.client_settings, "acks": "1", "linger.ms": 5})
            for number in range(self._scale.records_to_read // partitions * partitions):
                while True:
                    try:
                        producer.produce(topic, bytes(record_bytes), partition=number % partitions)
                        break
                    except BufferError:
                        producer.poll(0.01)
            if producer.flush(FILL_S):
                raise TimeoutError(f"{topic} could not be filled within {FILL_S:g} s")
            self._filled[key] = topic
        return self._filled[key]

    def _latency(self, bench: Bench, condition: Condition) -> dict[str, float]:
        topic, seconds = self._topic(bench, condition), self._scale.latency_s
        begin = time.monotonic() + START_S
        settings = {**bench.client_settings, "acks": str(condition.settings["acks"])}
        sending = Sending(settings, topic, condition.number("record_bytes"), begin, seconds, PACED_RECORDS)
        partitions = list(range(condition.number("partitions")))
        reading = Reading(bench.client_settings, topic, partitions, begin, seconds + LATE_S, stamped=True)
        try:
            (sent,), (found,) = self._clients.run([sending], [reading])
        finally:
            bench.delete_topic(topic)
        if not found.latencies_ms or not sent.latencies_ms:
            raise TimeoutError("no record was acknowledged and read")
        in_time = sum(latency <= 1e3 * LATE_S for latency in sent.latencies_ms)
        if in_time < IN_STEP * PACED_RECORDS * seconds:
            raise TimeoutError(
                f"{in_time} of {PACED_RECORDS * seconds:g} records were acknowledged within {LATE_S:g} s: the brokers "
                f"do not keep up with {PACED_RECORDS:g} records/s, and what would be measured is a queue"
            )
        return {
            **{f"producer_{name}": value for name, value in quantiles(sent.latencies_ms).items()},
            **{f"consumer_{name}": value for name, value in quantiles(found.latencies_ms).items()},
            **_errors([sent]),
        }

    def _topic(self, bench: Bench, condition: Condition) -> str:
        return self._create(
            bench, condition.number("partitions"), condition.number("replicas"), condition.number("min_insync_replicas")
        )

    def _create(self, bench: Bench, partitions: int, replicas: int, min_insync_replicas: int = 1) -> str:
        self._topics += 1
        topic = f"bench-{self._run}-{self._topics}"
        bench.create_topic(topic, partitions, replicas, min_insync_replicas)
        if replicas > 1:
            await_replication(bench, topic, partitions)
        return topic


def await_replication(bench: Bench, topic: str, partitions: int) -> None:
    """Wait until an empty record in each partition has reached all replicas; raises TimeoutError.

    The ISR of a new topic is full before a follower has fetched: one that asks too early waits a second (KafkaConfig's
    replica.fetch.backoff.ms), which would be most of what is measured.
    """
    from confluent_kafka import Producer

    acknowledged: list[Any] = []
    producer = Producer({**bench.client_settings, "acks": "all", "linger.ms": 0})
    for number in range(partitions):
        producer.produce(topic, b"", partition=number, on_delivery=lambda error, _: acknowledged.append(error))
    producer.flush(FILL_S)
    if len(acknowledged) < partitions or any(acknowledged):
        errors = sorted({error.name() for error in acknowledged if error})
        raise TimeoutError(f"{topic}: not every partition stored a record on all its replicas: {', '.join(errors)}")


def quantiles(latencies_ms: list[float]) -> dict[str, float]:
    """Return average, minimum, maximum and percentiles of a document's table, without those that need more values."""
    ordered = sorted(latencies_ms)

    def share(part: float) -> float:
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))]

    found = {
        "average": statistics.fmean(ordered), "minimum": ordered[0], "maximum": ordered[-1], "p50": share(0.5),
        "p99": share(0.99),
    }  # fmt: skip
    return found | ({"p99_99": share(0.9999)} if len(ordered) >= SLOWEST else {})


def _rate(records: int, seconds: float, record_bytes: int) -> dict[str, float]:
    if not records:
        raise TimeoutError("no record was acknowledged or read")
    rate = records / seconds
    return {"records_per_second": rate, "megabytes_per_second": rate * record_bytes / 1e6}


def _errors(sent: list[Sent]) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in sent:
        for name, count in one.errors.items():
            found[f"error {name}"] = found.get(f"error {name}", 0) + count
    return found
