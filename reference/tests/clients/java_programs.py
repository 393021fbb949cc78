"""Run the Java programs of this folder with the client libraries of Apache Kafka 4.3.1."""

import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from highwater.errors import UsageError
from highwater.reference.drivers.cluster import Cluster
from highwater.reference.tests.clients.build import built
from highwater.releases import fetch_release
from highwater.toolchain import java

RELEASE = "streams-4.3.1"
PATIENCE_S = 120.0
SMALL = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@contextmanager
def running(program: str, *arguments: str, log: Path) -> Iterator[None]:
    """Run a program until the end of the block; then it must end by itself, without an error."""
    try:
        executable, jars = java().executable, fetch_release(RELEASE)
    except UsageError as error:
        pytest.skip(str(error))
    folder = built("java", "javac", "-cp", f"{jars}/*", "-d", ".", "WordCount.java", "Transform.java")
    command = [str(executable), *SMALL, "-cp", f"{jars}/*:{folder}", program, *arguments]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)
    try:
        yield
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0, log.read_text()[-3_000:]
    finally:
        process.kill()
        process.wait()


def leader_of(bootstrap: str, topic: str) -> str:
    """Return the id of the leader of partition 0."""
    return str(AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, 10).topics[topic].partitions[0].leader)


def kill_leader(cluster: Cluster, bootstrap: str, topic: str) -> None:
    """Kill the leader of partition 0 of a topic, and start it again."""
    leader = leader_of(bootstrap, topic)
    cluster.kill(leader)
    time.sleep(1)
    cluster.start(leader)
    cluster.wait_until_ready()


def committed_values(bootstrap: str, topic: str, expected: int) -> dict[str, list[str]]:
    """Return the committed values of each key in the order of the log, after at least `expected` records."""
    group = f"{topic}-{time.monotonic_ns()}"
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.subscribe([topic])
    found: dict[str, list[str]] = defaultdict(list)
    deadline = time.monotonic() + PATIENCE_S
    while sum(map(len, found.values())) < expected and time.monotonic() < deadline:
        _take(consumer, 1.0, found)
    _take(consumer, 2.0, found)  # a repeated record comes late
    consumer.close()
    return dict(found)


def _take(consumer: Consumer, timeout_s: float, found: dict[str, list[str]]) -> None:
    for message in consumer.consume(500, timeout_s):
        if message.error() is None:
            found[(message.key() or b"").decode()].append((message.value() or b"").decode())
