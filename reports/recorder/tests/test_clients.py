"""Three client libraries through the proxy, with transactions and a group: their histories are told, and hold."""

import asyncio
import re
import signal
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from highwater.conformance.targets.reference import ReferenceCluster
from highwater.reports.audit import audit
from highwater.reports.importers.formats import open_history
from highwater.reports.verdicts import AuditResult
from highwater.spec.formats.history import Config, Event

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]
RECORDS = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[ReferenceCluster]:
    with ReferenceCluster(2) as running:
        yield running


def recorded(cluster: ReferenceCluster, out: Path, clients: Callable[[str], None]) -> tuple[Config, list[Event]]:
    """What the proxy wrote while `clients` ran with its address."""
    command = [sys.executable, "-m", "highwater", "record", "--listen", "127.0.0.1:0"]
    command += ["--upstream", cluster.bootstrap.split(",")[0], "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            found = re.search(r"Connect clients to (\S+);", proxy.stdout.readline())
            assert found
            clients(found[1])
        finally:
            proxy.send_signal(signal.SIGINT)
            told = proxy.communicate(timeout=60)[0]
    assert proxy.returncode == 0
    assert "operations recorded" in told
    history = open_history(str(out))
    events = list(history.events)
    assert history.quarantine.count == 0, history.quarantine.lines
    return history.config, events


def completed(events: list[Event], f: str, kind: str = "ok") -> list[Event]:
    return [event for event in events if event.f == f and event.type == kind]


def read_values(events: list[Event]) -> Counter[str]:
    """Each record once, however often it was fetched."""
    pairs = {
        (event.topic, event.partition, offset): value
        for event in completed(events, "fetch")
        for offset, value in event.value or ()
    }
    return Counter(pairs.values())


def held(result: AuditResult) -> None:
    assert [finding.name for finding in result.findings if finding.severity != "information"] == []
    assert result.verdict == "valid"


def with_confluent(bootstrap: str) -> None:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("c", 2, 2)])["c"].result(60)
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "transactional.id": "t", "linger.ms": 5}
    producer = Producer(settings)
    producer.init_transactions(60)
    for commit in (True, False, True):
        producer.begin_transaction()
        for number in range(RECORDS // 3):
            producer.produce("c", value=b"same", key=str(number).encode())
        producer.flush(60)
        producer.commit_transaction(60) if commit else producer.abort_transaction(60)
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})
    consumer.subscribe(["c"])
    seen = 0
    while seen < RECORDS * 2 // 3:
        messages = consumer.consume(50, 1.0)
        seen += len(messages)
    consumer.commit(asynchronous=False)
    consumer.close()


def test_confluent_kafka_with_transactions_and_a_group(cluster: ReferenceCluster, tmp_path: Path) -> None:
    config, events = recorded(cluster, tmp_path / "history.ndjson", with_confluent)
    assert (config.acks, config.idempotence, config.isolation) == ("all", True, "read_committed")
    assert (config.compaction, config.unclean_election) == (False, False)
    sends = completed(events, "send")
    assert len(sends) == RECORDS
    assert len({event.value for event in events if event.f == "send" and event.type == "invoke"}) == RECORDS
    ends = [event.value for event in events if event.f == "end_txn" and event.type == "invoke"]
    assert ends == ["commit", "abort", "commit"]
    assert len({event.txn for event in events if event.f == "send" and event.type == "invoke"}) == 3
    values = read_values(events)
    assert len(values) == RECORDS * 2 // 3
    assert set(values.values()) == {1}
    assert sum(sum(event.value.values()) for event in completed(events, "commit")) >= RECORDS * 2 // 3
    assert completed(events, "sync")[-1].value == ["c-0", "c-1"]
    assert {event.node for event in completed(events, "fetch")} <= {"1", "2"}
    held(audit(tmp_path / "history.ndjson"))


def with_kafka_python(bootstrap: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaConsumer, KafkaProducer
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks=1, enable_idempotence=False)
    for number in range(RECORDS):
        producer.send("k", value=b"v%d" % number).get(60)
    producer.close()
    consumer = KafkaConsumer(
        "k", bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest", consumer_timeout_ms=60_000
    )
    for number, _ in enumerate(consumer, 1):
        if number == RECORDS:
            break
    consumer.close()


def test_kafka_python_without_idempotence(cluster: ReferenceCluster, tmp_path: Path) -> None:
    config, events = recorded(cluster, tmp_path / "history.ndjson", with_kafka_python)
    assert (config.acks, config.idempotence, config.isolation) == ("1", False, "read_uncommitted")
    sent = [event.value for event in events if event.f == "send" and event.type == "invoke"]
    assert sorted(sent) == sorted(f"v{number}" for number in range(RECORDS))
    assert read_values(events) == Counter(sent)
    held(audit(tmp_path / "history.ndjson"))


async def _aiokafka(bootstrap: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        for number in range(RECORDS):
            await producer.send("a", b"v%d" % (number % 3))
        await producer.flush()
    async with AIOKafkaConsumer("a", bootstrap_servers=bootstrap, group_id="h", auto_offset_reset="earliest") as reader:
        for _ in range(RECORDS):
            await asyncio.wait_for(reader.getone(), 60)


def test_aiokafka_with_equal_values_and_a_group(cluster: ReferenceCluster, tmp_path: Path) -> None:
    _, events = recorded(cluster, tmp_path / "history.ndjson", lambda bootstrap: asyncio.run(_aiokafka(bootstrap)))
    assert len(completed(events, "send")) == RECORDS
    assert len(read_values(events)) == RECORDS
    held(audit(tmp_path / "history.ndjson"))


def test_a_history_that_cannot_be_written_is_an_error(cluster: ReferenceCluster) -> None:
    command = [sys.executable, "-m", "highwater", "record", "--listen", "127.0.0.1:0"]
    command += ["--upstream", cluster.bootstrap.split(",")[0], "--out", "/dev/full"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 2
    assert "/dev/full: cannot write (No space left on device)" in ended.stderr


def test_a_connection_that_is_lost_leaves_its_requests_open(tmp_path: Path) -> None:
    """The broker goes while a client waits for it; the file stays whole."""
    from confluent_kafka import Producer

    with ReferenceCluster(1) as cluster:

        def clients(bootstrap: str) -> None:
            producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 3_000, "acks": "all"})
            producer.produce("l", b"first")
            assert producer.flush(60) == 0
            cluster.stop_node(1)
            producer.produce("l", b"second")
            assert producer.flush(60) == 0

        _, events = recorded(cluster, tmp_path / "history.ndjson", clients)
    assert [event.offset for event in completed(events, "send")] == [0]
    assert audit(tmp_path / "history.ndjson").verdict != "invalid"
