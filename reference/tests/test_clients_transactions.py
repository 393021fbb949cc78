"""Transactional producers of third-party clients against a cluster of three processes."""

import asyncio
import itertools
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from highwater.reference.tests.apache_kafka.programs import output_of
from highwater.reference.tests.test_clients import create

pytestmark = pytest.mark.xdist_group("cluster")
IDS = itertools.count()
PATIENCE_S = 40.0
ABORTED, COMMITTED = [b"aborted-%d" % n for n in range(5)], [b"committed-%d" % n for n in range(5)]


def transactional_id() -> str:
    return f"transactional-{next(IDS)}"


def producer_of(bootstrap: str, name: str, **settings: Any) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 1, **settings})
    producer.init_transactions(PATIENCE_S)
    return producer


def send_all(producer: Producer, topic: str, values: list[bytes]) -> None:
    for value in values:
        producer.produce(topic, value)
    producer.flush(PATIENCE_S)


def read(bootstrap: str, topic: str, count: int, isolation: str = "read_committed") -> list[bytes]:
    """Return the first `count` records that a consumer without a group reads."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": f"unused-{topic}", "isolation.level": isolation,
            "enable.auto.commit": False, "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        found += [message.value() for message in consumer.consume(100, timeout=0.5) if message.error() is None]
    consumer.close()
    return found


def awaited(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
    return True


def committed_offset(bootstrap: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)
    finally:
        consumer.close()
    return int(found.offset)


def test_confluent_kafka_commits_and_aborts(bootstrap: str) -> None:
    topic = create(bootstrap)
    producer = producer_of(bootstrap, transactional_id())
    for values, end in ((ABORTED, producer.abort_transaction), (COMMITTED, producer.commit_transaction)):
        producer.begin_transaction()
        send_all(producer, topic, values)
        end(PATIENCE_S)
    assert read(bootstrap, topic, len(COMMITTED)) == COMMITTED
    assert read(bootstrap, topic, 10, "read_uncommitted") == ABORTED + COMMITTED


def test_confluent_kafka_sends_offsets_with_the_transaction(bootstrap: str) -> None:
    source, target = create(bootstrap), create(bootstrap)
    group = f"group-{source}"
    writer = producer_of(bootstrap, transactional_id())
    writer.begin_transaction()
    send_all(writer, source, COMMITTED)
    writer.commit_transaction(PATIENCE_S)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "isolation.level": "read_committed",
        }
    )  # fmt: skip
    consumer.subscribe([source])
    producer = producer_of(bootstrap, transactional_id())
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < len(COMMITTED) and time.monotonic() < deadline:
        found += [message.value() for message in consumer.consume(10, timeout=0.5) if message.error() is None]
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        send_all(producer, target, [value.upper() for value in found])
        position = consumer.position([TopicPartition(source, 0)])  # it may count the marker
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), PATIENCE_S)
        end(PATIENCE_S)
        if end == producer.abort_transaction:
            assert committed_offset(bootstrap, group, source) < 0
    consumer.close()
    assert awaited(lambda: committed_offset(bootstrap, group, source) == position[0].offset >= len(COMMITTED))
    assert read(bootstrap, target, len(COMMITTED)) == [value.upper() for value in COMMITTED]


def test_confluent_kafka_fences_a_zombie(bootstrap: str) -> None:
    topic, name = create(bootstrap), transactional_id()
    zombie = producer_of(bootstrap, name)
    zombie.begin_transaction()
    send_all(zombie, topic, ABORTED)
    successor = producer_of(bootstrap, name)
    successor.begin_transaction()
    send_all(successor, topic, COMMITTED)
    successor.commit_transaction(PATIENCE_S)
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].fatal()
    assert read(bootstrap, topic, len(COMMITTED)) == COMMITTED


def test_kafka_python_commits_and_aborts(bootstrap: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaConsumer, KafkaProducer
    topic = create(bootstrap)
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), transactional_id=transactional_id())
    producer.init_transactions()
    for values, end in ((ABORTED, producer.abort_transaction), (COMMITTED, producer.commit_transaction)):
        producer.begin_transaction()
        for value in values:
            producer.send(topic, value).get(PATIENCE_S)
        end()
    producer.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap.split(","), auto_offset_reset="earliest", group_id=None,
        isolation_level="read_committed", consumer_timeout_ms=int(PATIENCE_S * 1000),
    )  # fmt: skip
    found = [record.value for record in itertools.islice(consumer, len(COMMITTED))]
    consumer.close()
    assert found == COMMITTED


def test_aiokafka_commits_aborts_and_sends_offsets(bootstrap: str) -> None:
    topic, source = create(bootstrap), create(bootstrap)
    assert asyncio.run(_aiokafka(bootstrap, topic, source)) == COMMITTED
    assert awaited(lambda: committed_offset(bootstrap, f"group-{topic}", source) == 7)


async def _aiokafka(bootstrap: str, topic: str, source: str) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.structs import TopicPartition as Partition

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id())
    await producer.start()
    for values, end in ((ABORTED, producer.abort_transaction), (COMMITTED, producer.commit_transaction)):
        await producer.begin_transaction()
        for value in values:
            await producer.send_and_wait(topic, value)
        await producer.send_offsets_to_transaction({Partition(source, 0): len(values) + 2}, f"group-{topic}")
        await end()
    await producer.stop()
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    await consumer.start()
    found: list[bytes] = []
    while len(found) < len(COMMITTED):
        for records in (await asyncio.wait_for(consumer.getmany(timeout_ms=500), PATIENCE_S)).values():
            found += [record.value for record in records]
    await consumer.stop()
    return found


def test_the_java_client_works_under_transaction_version_2(bootstrap: str) -> None:
    """The finalized feature makes it use EndTxn 5, Produce 12 and no AddPartitionsToTxn."""
    topic, name, count = create(bootstrap), transactional_id(), 300
    printed = output_of(
        "ProducerPerformance", "--topic", topic, "--num-records", str(count), "--record-size", "10",
        "--throughput", "1000", "--bootstrap-server", bootstrap, "--transactional-id", name,
        "--transaction-duration-ms", "50",
    )  # fmt: skip
    assert f"{count} records sent" in printed, printed
    assert len(read(bootstrap, topic, count)) == count
    arguments = ("--bootstrap-server", bootstrap, "describe", "--transactional-id", name)
    described = output_of("TransactionsCommand", *arguments)
    columns, values = (line.split() for line in described.splitlines()[-2:])
    row = dict(zip(columns, values, strict=False))
    assert row["TransactionalId"] == name, described
    assert int(row["ProducerEpoch"]) > 1, "each transaction bumps the epoch"
