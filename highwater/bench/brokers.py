"""Compare the reference broker with Apache Kafka 4.3.1 in one run; only the ratios matter.

The same client (librdkafka) with the same settings drives both; a row that Apache Kafka cannot fill, because Java or
Maven is missing, shows a dash.
"""

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from highwater.conformance.targets.apache_kafka import apache_kafka
from highwater.errors import UsageError

RECORDS: Final = 50_000
RECORD_BYTES: Final = 100
RATE: Final = 500  # records a second, for latencies
RATE_S: Final = 6
PARTITIONS: Final = 1_000
SERVER_FLAGS: Final = ("-server", "-Xms1G", "-Xmx1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")  # as its own scripts
UNTUNED: Final = {"num.network.threads": 3, "num.io.threads": 8, "background.threads": 10}  # Kafka's own defaults
NEVER_MS: Final = 3_600_000
PROMPT: Final = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50}  # or the wait of the client is measured
SESSION_MS: Final = 3_000
WAIT_S: Final = 120.0


class Brokers(Protocol):
    """A running cluster of either broker."""

    @property
    def addresses(self) -> Mapping[int, str]: ...
    def kill_node(self, node: int) -> None: ...
    def pid(self, node: int) -> int: ...


@contextmanager
def reference_cluster(brokers: int) -> Iterator[Brokers]:
    from highwater.conformance.targets.reference import ReferenceCluster

    # Apache Kafka leaves flushing to the operating system; use the same setting here.
    settings: dict[str, object] = {
        "metadata_store_session_timeout_ms": SESSION_MS,
        "log_flush_interval_ms": NEVER_MS,
    }
    with ReferenceCluster(brokers, settings=settings) as cluster:
        yield cluster


@contextmanager
def apache_cluster(brokers: int) -> Iterator[Brokers]:
    settings = {"broker.session.timeout.ms": SESSION_MS, "broker.heartbeat.interval.ms": SESSION_MS // 6}
    with apache_kafka(brokers, {**UNTUNED, **settings}, SERVER_FLAGS) as cluster:
        yield cluster


def bootstrap(cluster: Brokers) -> str:
    return ",".join(cluster.addresses.values())


def create(cluster: Brokers, topic: str, partitions: int, replicas: int) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap(cluster), **PROMPT})
    await_that(lambda: len(admin.list_topics(timeout=10).brokers) == len(cluster.addresses))
    admin.create_topics([NewTopic(topic, partitions, replicas)], operation_timeout=WAIT_S)[topic].result(WAIT_S)
    await_that(lambda: all(part.leader >= 0 for part in partitions_of(admin, topic)))
    return admin


def partitions_of(admin: AdminClient, topic: str) -> list[Any]:
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions
    return list(found.values()) if found else [PartitionMetadata()]


def await_that(step: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not step():
        if time.monotonic() > deadline:
            raise TimeoutError("the brokers did not reach the expected state")
        time.sleep(0.02)


# -- what is measured ----------------------------------------------------------------------------


def produce(cluster: Brokers, topic: str, count: int, value: bytes, **settings: Any) -> float:
    """Return acknowledged records a second."""
    options = {"bootstrap.servers": bootstrap(cluster), "queue.buffering.max.messages": 2 * count, **settings}
    producer, failed = Producer(options), []
    started = time.perf_counter()
    for number in range(count):
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
        if number % 1_000 == 0:
            producer.poll(0)
    if producer.flush(WAIT_S) or failed:
        raise TimeoutError(f"records were not acknowledged: {failed[:1]}")
    return count / (time.perf_counter() - started)


def consume(cluster: Brokers, topic: str, count: int) -> float:
    settings = {"bootstrap.servers": bootstrap(cluster), "group.id": f"read-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    seen, started = len(consumer.consume(1, WAIT_S)), time.perf_counter()  # exclude the time to join the group
    while seen < count:
        seen += len(consumer.consume(min(10_000, count - seen), 5))
    rate = count / (time.perf_counter() - started)
    consumer.close()
    return rate


def latencies(cluster: Brokers, topic: str) -> list[float]:
    """Return milliseconds to acknowledgement with acks=all, sending one record at a time at a fixed rate."""
    producer = Producer({"bootstrap.servers": bootstrap(cluster), "acks": "all", "linger.ms": 0})
    found: list[float] = []
    begin = time.perf_counter()
    for number in range(RATE * RATE_S):
        while time.perf_counter() < begin + number / RATE:
            producer.poll(0.001)  # wait instead of spinning: the brokers need the core
        sent = time.perf_counter()
        producer.produce(
            topic, bytes(RECORD_BYTES), on_delivery=lambda *_, sent=sent: found.append(time.perf_counter() - sent)
        )
    producer.flush(WAIT_S)
    return [1e3 * seconds for seconds in found[RATE:]]  # the first second warms up


def failover(cluster: Brokers) -> float:
    """Return seconds from SIGKILL of a leader, not the Apache Kafka controller, to a new leader."""
    admin = create(cluster, "failover", 12, 3)
    parts = admin.list_topics("failover", timeout=10).topics["failover"].partitions
    led = next(number for number, part in parts.items() if part.leader == 3)
    cluster.kill_node(3)
    started = time.perf_counter()

    def moved() -> bool:
        found = admin.list_topics("failover", timeout=5).topics["failover"].partitions
        return led in found and found[led].leader not in {-1, 3}

    await_that(moved)
    return time.perf_counter() - started


def rebalance(cluster: Brokers, members: int) -> float:
    """Return seconds until a new member and all others in a stable group have their assignments."""
    topic, partitions = f"group-{members}", 2 * members
    create(cluster, topic, partitions, 1)
    settings = {"bootstrap.servers": bootstrap(cluster), "group.id": topic, "session.timeout.ms": 45_000}
    consumers = [Consumer({**settings, "heartbeat.interval.ms": 500}) for _ in range(members)]
    stop, shares = threading.Event(), [0] * members

    def poll(number: int) -> None:
        mine = consumers[number]
        mine.subscribe([topic])
        while not stop.is_set():
            mine.poll(0.05)
            shares[number] = len(mine.assignment())

    def settled(count: int) -> bool:
        return sum(shares) == partitions and all(shares[:count])

    threads = [threading.Thread(target=poll, args=(number,)) for number in range(members)]
    try:
        for thread in threads[:-1]:
            thread.start()
        await_that(lambda: settled(members - 1))
        started = time.perf_counter()
        threads[-1].start()
        await_that(lambda: settled(members))
        return time.perf_counter() - started
    finally:
        stop.set()
        for thread, consumer in zip(threads, consumers, strict=True):
            thread.join()
            consumer.close()


def memory(cluster: Brokers) -> float:
    """Return resident MB of one broker with a thousand empty partitions."""
    create(cluster, "many", PARTITIONS, 1)
    status = Path(f"/proc/{cluster.pid(1)}/status").read_text().splitlines()
    return int(next(row for row in status if row.startswith("VmRSS")).split()[1]) / 1024


# -- the table -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    unit: str
    value: float


def throughput(cluster: Brokers, brokers: int) -> Iterator[Row]:
    create(cluster, "warm", 1, brokers)
    produce(cluster, "warm", 2 * RECORDS, bytes(RECORD_BYTES))  # warm up the JIT compiler of Apache Kafka
    for acks, batch_bytes in (("1", 16_384), ("all", 16_384), ("all", 1_000_000)):
        topic = f"load-{acks}-{batch_bytes}"
        create(cluster, topic, 1, brokers)
        rate = produce(cluster, topic, RECORDS, bytes(RECORD_BYTES), acks=acks, **{"batch.size": batch_bytes})
        yield Row(f"produce, {brokers} replicas, acks={acks}, batches of {batch_bytes // 1000} KB", "records/s", rate)
    yield Row(f"consume, {brokers} replicas", "records/s", consume(cluster, "load-all-1000000", RECORDS))
    create(cluster, "paced", 1, brokers)
    steps = statistics.quantiles(latencies(cluster, "paced"), n=1_000)
    for name, step in (("p50", 500), ("p99", 990), ("p99.9", 999)):
        yield Row(f"latency {name}, {brokers} replicas, acks=all, {RATE}/s", "ms", steps[step - 1])


def measure(start: Callable[[int], Any]) -> Iterator[Row]:
    with start(1) as cluster:
        yield from throughput(cluster, 1)
        for members in (3, 10, 50):
            yield Row(f"rebalance, {members} members", "s", rebalance(cluster, members))
    with start(1) as cluster:
        yield Row(f"memory, {PARTITIONS} partitions", "MB", memory(cluster))
    with start(3) as cluster:
        yield from throughput(cluster, 3)
        yield Row(f"new leader after SIGKILL, session {SESSION_MS / 1000:.0f} s", "s", failover(cluster))


def table() -> str:
    """Return a table of both results and their ratio."""
    mine = list(measure(reference_cluster))
    others: dict[str, float] = {}
    why = ""
    try:
        others = {row.what: row.value for row in measure(apache_cluster)}
    except UsageError as missing:
        why = f"\n(no Apache Kafka here: {missing})"
    lines = [f"{'':52} {'reference':>12} {'Kafka 4.3.1':>12} {'ratio':>7}"]
    for row in mine:
        other = others.get(row.what)
        figures = f"{row.value:12,.2f} {other:12,.2f} {row.value / other:7.2f}" if other else f"{row.value:12,.2f}"
        lines.append(f"{row.what + ', ' + row.unit:52} {figures}")
    return "\n".join(lines) + why
