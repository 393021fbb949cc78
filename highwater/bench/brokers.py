"""Compare the reference broker with Apache Kafka 4.3.1, side by side in one run; only the ratios matter.

Both clusters run at the same time, and each figure is taken of one and the other in turn, `ROUNDS` times: a machine
that is slower for a while is so for both.  The table shows medians, and the smallest and largest value of each.  The
same client (librdkafka) with the same settings drives both.  Apache Kafka has what its own scripts give it (a heap of
1 GB, G1), threads for two cores, and a load before the first figure, until its rate grows no more: its JIT compiler
needs that.

What this does not show: more than one machine, disks that are slower than the page cache, and more than two cores,
where Apache Kafka has threads to use them and the reference has not.  A row that Apache Kafka cannot fill, because Java
or Maven is missing, shows a dash, and so does a figure that could not be taken, with the reason.
"""

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, ElectionType, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from highwater.bench.picture import COLOURS, Row, draw_rows
from highwater.conformance.targets.apache_kafka import apache_kafka
from highwater.errors import UsageError

ROUNDS: Final = 5
RECORDS: Final = 50_000
RECORD_BYTES: Final = 100
RATE: Final = 500  # records a second, for latencies
RATE_S: Final = 6
CURVE: Final = (100, 1_000, 2_000)  # partitions of the cluster
IDLE_S: Final = 10.0
WARM_UPS: Final = 12  # at most so many loads, until the rate grows by less than a twentieth
SERVER_FLAGS: Final = ("-server", "-Xms1G", "-Xmx1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")  # as its own scripts
FOR_TWO_CORES: Final = {"num.network.threads": 2, "num.io.threads": 2, "background.threads": 2}
NEVER_MS: Final = 3_600_000
PROMPT: Final = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50, "log_level": 0}
"""Of a client that looks for new leaders: otherwise its waits are measured. It expects lost connections."""
SESSION_MS: Final = 3_000
WAIT_S: Final = 120.0
PICTURE: Final = Path("results/partitions.svg")
LOAD, FAILOVER = "load", "failover"
REFERENCE, APACHE = "reference", "Apache Kafka"


class Brokers(Protocol):
    """A running cluster of either broker."""

    @property
    def addresses(self) -> Mapping[int, str]: ...
    def kill_node(self, node: int) -> None: ...
    def stop_node(self, node: int) -> None: ...
    def start_node(self, node: int) -> None: ...
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
    with apache_kafka(brokers, {**FOR_TWO_CORES, **settings}, SERVER_FLAGS) as cluster:
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
    settings = {
        "bootstrap.servers": bootstrap(cluster),
        "group.id": f"read-{topic}-{time.monotonic_ns()}",
        "auto.offset.reset": "earliest",
    }
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


def new_leader(cluster: Brokers, end: Callable[[int], None]) -> float:
    """Return seconds from the end of a leader, not the Apache Kafka controller, to a new leader for all it led."""
    admin = AdminClient({"bootstrap.servers": bootstrap(cluster), **PROMPT})
    node = max(cluster.addresses)
    if not cluster.pid(node):  # it was ended in the round before
        cluster.start_node(node)
    await_that(lambda: node in _leaders(admin) or _prefer(admin))
    started = time.perf_counter()
    end(node)
    await_that(lambda: not {node, -1} & _leaders(admin))
    return time.perf_counter() - started


def _leaders(admin: AdminClient) -> set[int]:
    return {part.leader for part in partitions_of(admin, FAILOVER)}


def _prefer(admin: AdminClient) -> bool:
    """Ask that preferred replicas lead; return False, since that takes a while."""
    futures = admin.elect_leaders(ElectionType.PREFERRED, None)
    with suppress(KafkaException):
        futures.result(WAIT_S)
    return False


def rebalance(cluster: Brokers, members: int) -> float:
    """Return seconds until a new member and all others in a stable group have their assignments."""
    topic, partitions = f"group-{members}-{time.monotonic_ns()}", 2 * members
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
            if thread.ident is not None:
                thread.join()
            consumer.close()


# -- side by side --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Figure:
    """`measure` returns the values of one round, one for each of `names`."""

    names: tuple[str, ...]
    unit: str
    measure: Callable[[Brokers], tuple[float, ...]]


@dataclass(slots=True)
class Sample:
    """The values of one row and one cluster; `fault` is why there are none."""

    values: list[float] = field(default_factory=list)
    fault: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values) if self.values else 0.0

    def __str__(self) -> str:
        if not self.values:
            return "-"
        return f"{self.median:,.2f} ({min(self.values):,.2f} to {max(self.values):,.2f})"


def load(acks: str, batch_bytes: int, replicas: int) -> Figure:
    name = f"produce, {replicas} replicas, acks={acks}, batches of {batch_bytes // 1000} KB"
    settings = {"acks": acks, "batch.size": batch_bytes}
    return Figure((name,), "records/s", lambda c: (produce(c, LOAD, RECORDS, bytes(RECORD_BYTES), **settings),))


def joins(members: int) -> Figure:
    return Figure((f"rebalance, {members} members",), "s", lambda c: (rebalance(c, members),))


def paced(cluster: Brokers) -> tuple[float, ...]:
    steps = statistics.quantiles(latencies(cluster, LOAD), n=1_000)
    return steps[499], steps[989], steps[998]


def figures(brokers: int) -> Iterator[Figure]:
    """Yield what is measured on clusters of so many brokers, in order."""
    yield load("1", 16_384, brokers)
    yield load("all", 16_384, brokers)
    yield load("all", 1_000_000, brokers)
    yield Figure((f"consume, {brokers} replicas",), "records/s", lambda c: (consume(c, LOAD, RECORDS),))
    names = tuple(f"latency {name}, {brokers} replicas, acks=all, {RATE}/s" for name in ("p50", "p99", "p99.9"))
    yield Figure(names, "ms", paced)
    for members in (3, 10):
        yield joins(members)
    if brokers > 1:
        killed = f"new leaders after SIGKILL, session {SESSION_MS / 1000:.0f} s"
        yield Figure(("new leaders after SIGTERM",), "s", lambda c: (new_leader(c, c.stop_node),))
        yield Figure((killed,), "s", lambda c: (new_leader(c, c.kill_node),))


def warm_up(cluster: Brokers, brokers: int) -> None:
    """Load until the rate stops to grow: the JIT compiler of Apache Kafka needs some hundred thousand records."""
    create(cluster, LOAD, 1, brokers)
    create(cluster, FAILOVER, 12, brokers)
    last = 0.0
    for _ in range(WARM_UPS):
        rate = produce(cluster, LOAD, RECORDS, bytes(RECORD_BYTES), acks="all")
        if last and rate < 1.05 * last:
            return
        last = max(last, rate)


def side_by_side(clusters: Mapping[str, Brokers], brokers: int) -> Iterator[tuple[str, str, dict[str, Sample]]]:
    """Yield name, unit and samples of each row; a cluster without an answer in one round is not asked again for it."""
    for cluster in clusters.values():
        warm_up(cluster, brokers)
    for figure in figures(brokers):
        samples = {name: [Sample() for _ in figure.names] for name in clusters}
        for _ in range(ROUNDS):
            for name, cluster in clusters.items():
                if not samples[name][0].fault:
                    _take(figure, cluster, samples[name])
        for number, row in enumerate(figure.names):
            yield row, figure.unit, {name: each[number] for name, each in samples.items()}


def _take(figure: Figure, cluster: Brokers, samples: list[Sample]) -> None:
    try:
        for sample, value in zip(samples, figure.measure(cluster), strict=True):
            sample.values.append(value)
    except (TimeoutError, KafkaException) as error:
        for sample in samples:
            sample.fault = str(error) or type(error).__name__


def table() -> Iterator[str]:
    """Yield the lines of a table of both results and their ratio, each as soon as it is known."""
    yield f"{'':52} {'reference':>34} {'Apache Kafka 4.3.1':>34} {'ratio':>7}"
    for brokers in (1, 3):
        with ExitStack() as stack:
            clusters = {REFERENCE: stack.enter_context(reference_cluster(brokers))}
            try:
                clusters[APACHE] = stack.enter_context(apache_cluster(brokers))
            except UsageError as missing:
                yield f"(no Apache Kafka here: {missing})"
            for row, unit, samples in side_by_side(clusters, brokers):
                yield _line(row, unit, samples)


def _line(row: str, unit: str, samples: Mapping[str, Sample]) -> str:
    mine, other = samples[REFERENCE], samples.get(APACHE, Sample())
    ratio = f"{mine.median / other.median:7.2f}" if mine.values and other.values else f"{'-':>7}"
    faults = "".join(f"\n    {name}: {sample.fault}" for name, sample in samples.items() if sample.fault)
    return f"{row + ', ' + unit:52} {mine!s:>34} {other!s:>34} {ratio}{faults}"


# -- many partitions -----------------------------------------------------------------------------


def curve() -> Iterator[str]:
    """Yield what a cluster of three reference brokers does with more and more partitions, and what they cost idle.

    The picture has a dot for each round: its rate as a share of the median with the fewest partitions.
    """
    rates: dict[int, list[float]] = {}
    with reference_cluster(3) as cluster:
        create(cluster, LOAD, 12, 3)
        produce(cluster, LOAD, RECORDS, bytes(RECORD_BYTES), acks="all")
        exist = 12
        for partitions in CURVE:
            started = time.perf_counter()
            create(cluster, f"idle-{partitions}", partitions - exist, 3)
            created_s, added, exist = time.perf_counter() - started, partitions - exist, partitions
            rates[partitions] = found = sorted(
                produce(cluster, LOAD, RECORDS, bytes(RECORD_BYTES), acks="all", **{"batch.size": 1_000})
                for _ in range(ROUNDS)
            )
            share = statistics.median(found) / statistics.median(rates[CURVE[0]])
            yield (
                f"{partitions:6,} partitions: {added:,} more created in {created_s:.1f} s; acks=all, batches of 1 KB: "
                f"{statistics.median(found):,.0f} records/s ({found[0]:,.0f} to {found[-1]:,.0f}), "
                f"{share:.2f} of the first row"
            )
        busy = {node: _busy_s(cluster.pid(node)) for node in cluster.addresses}
        time.sleep(IDLE_S)
        shares = [100 * (_busy_s(cluster.pid(node)) - before) / IDLE_S for node, before in busy.items()]
        used = [resident_mb(cluster.pid(node)) for node in cluster.addresses]
        yield f"idle with {exist:,} partitions: at most {max(shares):.1f} % of a core and {max(used):.0f} MB each"
        yield f"all {CURVE[-1]:,} at once: created in {_created_s():.1f} s"
    yield f"picture: {_draw(rates)}"


def _created_s() -> float:
    """Return the seconds in which a new cluster of three creates a topic with the most partitions, three replicas."""
    with reference_cluster(3) as cluster:
        create(cluster, LOAD, 1, 3)  # the first request waits for the controller
        started = time.perf_counter()
        create(cluster, "many", CURVE[-1], 3)
        return time.perf_counter() - started


def _draw(rates: Mapping[int, list[float]]) -> Path:
    first = statistics.median(rates[CURVE[0]])
    rows = [
        Row(f"{partitions:,} partitions", [rate / first for rate in found], COLOURS[REFERENCE])
        for partitions, found in rates.items()
    ]
    return draw_rows(PICTURE, f"Records/s, acks=all, as a share of the rate with {CURVE[0]} partitions", rows)


def _busy_s(pid: int) -> float:
    """Return the processor seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    line = next(row for row in Path(f"/proc/{pid}/status").read_text().splitlines() if row.startswith("VmRSS"))
    return int(line.split()[1]) / 1024
