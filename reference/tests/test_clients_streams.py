"""Kafka Streams 4.3.1 counts words exactly once (exactly_once_v2) while two leaders are killed."""

import itertools
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from highwater.errors import UsageError
from highwater.reference.drivers.cluster import Cluster
from highwater.reference.tests.clients.build import built
from highwater.reference.tests.test_clients import create
from highwater.releases import fetch_release
from highwater.toolchain import java

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(600), pytest.mark.long]
NAMES = itertools.count()
PARTITIONS = 3
LINES = 1_200
WORDS = ("high", "water", "mark", "leader", "epoch", "commit")
PATIENCE_S = 120.0


@pytest.fixture
def counting(bootstrap: str, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Run the program; yield its input and its output topic."""
    try:
        executable, jars = java().executable, fetch_release("streams-4.3.1")
    except UsageError as error:
        pytest.skip(str(error))
    folder = built("java", "javac", "-cp", f"{jars}/*", "-d", ".", "WordCount.java")
    source, output = (create(bootstrap, PARTITIONS) for _ in range(2))
    command = [str(executable), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*:{folder}"]
    command += ["WordCount", bootstrap, source, output, str(tmp_path)]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        yield source, output
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0, (tmp_path / "log").read_text()[-3_000:]
    finally:
        process.kill()
        process.wait()


def test_words_are_counted_exactly_once_while_leaders_are_killed(
    counting: tuple[str, str], shared_cluster: Cluster, bootstrap: str
) -> None:
    source, output = counting
    expected: Counter[str] = Counter()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number in range(LINES):
        words = [WORDS[(number * step) % len(WORDS)] for step in (1, 2, 5)]
        expected.update(words)
        producer.produce(source, " ".join(words).encode(), partition=number % PARTITIONS)
        producer.poll(0.01)
        if number in {LINES // 3, 2 * LINES // 3}:
            assert committed_counts(bootstrap, output, number), "the program counts already"
            kill_leader(shared_cluster, bootstrap, source if number < LINES // 2 else output)
    assert producer.flush(PATIENCE_S) == 0
    counts = committed_counts(bootstrap, output, sum(expected.values()))
    assert counts == {word: list(range(1, count + 1)) for word, count in expected.items()}


def kill_leader(cluster: Cluster, bootstrap: str, topic: str) -> None:
    """Kill the leader of partition 0 of a topic, and start it again."""
    leader = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, 10).topics[topic].partitions[0].leader
    cluster.kill(str(leader))
    time.sleep(1)
    cluster.start(str(leader))
    cluster.wait_until_ready()


def committed_counts(bootstrap: str, topic: str, expected: int) -> dict[str, list[int]]:
    """Return the committed counts of each word in the order of the log, after at least `expected` of them."""
    settings = {"bootstrap.servers": bootstrap, "group.id": f"{topic}-{next(NAMES)}", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.subscribe([topic])
    found: dict[str, list[int]] = defaultdict(list)
    deadline = time.monotonic() + PATIENCE_S
    while sum(map(len, found.values())) < expected and time.monotonic() < deadline:
        for message in consumer.consume(500, 1.0):
            if message.error() is None:
                found[(message.key() or b"").decode()].append(int(message.value() or b""))
    for message in consumer.consume(500, 2.0):  # a repeated count comes late
        found[(message.key() or b"").decode()].append(int(message.value() or b""))
    consumer.close()
    return dict(found)
