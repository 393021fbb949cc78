"""Third-party clients against a cluster of three processes."""

import asyncio
import itertools
import time
import warnings
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from highwater.reference.drivers.cluster import Cluster

pytestmark = pytest.mark.xdist_group("cluster")
NAMES = itertools.count()
RECORDS = 60


def create(bootstrap: str, partitions: int = 1, replicas: int = 3) -> str:
    name = f"clients-{next(NAMES)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, partitions, replicas)]).values():
        future.result(20)
    return name


def produce(bootstrap: str, topic: str, count: int = RECORDS, **settings: Any) -> list[int]:
    """Return the offsets of the records, in the order of their delivery reports."""
    offsets: list[int] = []
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 1, **settings})
    for number in range(count):
        producer.produce(
            topic, b"%d" % number, key=b"%d" % number,
            on_delivery=lambda error, message: errors.append(error) if error else offsets.append(message.offset()),
        )  # fmt: skip
    assert producer.flush(30) == 0
    assert not errors
    return offsets


def consume(consumer: Consumer, count: int, seconds: float = 30.0) -> list[int]:
    found: list[int] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(500, timeout=0.5):
            if message.error() is None:
                found.append(int(message.value()))
    return found


def group_consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_confluent_kafka_writes_and_reads_back(bootstrap: str, codec: str, idempotent: bool) -> None:
    topic = create(bootstrap)
    settings: dict[str, Any] = {"compression.type": codec, "enable.idempotence": idempotent}
    assert sorted(produce(bootstrap, topic, RECORDS, **settings)) == list(range(RECORDS))
    consumer = group_consumer(bootstrap, f"group-{topic}")
    consumer.subscribe([topic])
    assert consume(consumer, RECORDS) == list(range(RECORDS))
    consumer.close()


def test_a_group_continues_at_its_committed_offset(bootstrap: str) -> None:
    topic = create(bootstrap, partitions=2)
    produce(bootstrap, topic)
    first = group_consumer(bootstrap, f"group-{topic}")
    first.subscribe([topic])
    assert sorted(consume(first, RECORDS)) == list(range(RECORDS))
    committed = first.commit(asynchronous=False)
    assert sum(each.offset for each in committed) == RECORDS
    first.close()
    produce(bootstrap, topic, 10)
    second = group_consumer(bootstrap, f"group-{topic}")
    second.subscribe([topic])
    assert sorted(consume(second, 10)) == list(range(10))
    second.close()


def test_two_members_share_the_partitions(bootstrap: str) -> None:
    topic = create(bootstrap, partitions=4)
    members = [group_consumer(bootstrap, f"group-{topic}") for _ in range(2)]
    for member in members:
        member.subscribe([topic])
    deadline = time.monotonic() + 40
    shares: list[set[int]] = [set(), set()]
    while time.monotonic() < deadline and [len(share) for share in shares] != [2, 2]:
        for member in members:
            member.poll(0.2)
        shares = [{each.partition for each in member.assignment()} for member in members]
    assert shares[0] | shares[1] == {0, 1, 2, 3}
    assert not shares[0] & shares[1]
    for member in members:
        member.close()


def test_kafka_python_writes_and_reads_back(bootstrap: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaConsumer, KafkaProducer
    topic = create(bootstrap)
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all")
    sent = [producer.send(topic, b"%d" % number) for number in range(RECORDS)]
    assert [future.get(20).offset for future in sent] == list(range(RECORDS))
    producer.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap.split(","), group_id=f"group-{topic}", auto_offset_reset="earliest",
        consumer_timeout_ms=15_000,
    )  # fmt: skip
    assert [int(record.value) for record in itertools.islice(consumer, RECORDS)] == list(range(RECORDS))
    consumer.close()


def test_aiokafka_writes_and_reads_back(bootstrap: str) -> None:
    topic = create(bootstrap)
    assert asyncio.run(_aiokafka(bootstrap, topic)) == list(range(RECORDS))


async def _aiokafka(bootstrap: str, topic: str) -> list[int]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
    await producer.start()
    for number in range(RECORDS):
        await producer.send_and_wait(topic, b"%d" % number)
    await producer.stop()
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=f"group-{topic}", auto_offset_reset="earliest"
    )
    await consumer.start()
    found: list[int] = []
    while len(found) < RECORDS:
        for records in (await asyncio.wait_for(consumer.getmany(timeout_ms=500), 20)).values():
            found += [int(record.value) for record in records]
    await consumer.stop()
    return found


def test_no_record_is_lost_when_the_leader_is_killed(shared_cluster: Cluster, bootstrap: str) -> None:
    topic = create(bootstrap)
    produce(bootstrap, topic, **{"enable.idempotence": True})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    leader = admin.list_topics(topic, 10).topics[topic].partitions[0].leader
    shared_cluster.kill(str(leader))
    try:
        produce(bootstrap, topic, **{"enable.idempotence": True})
    finally:
        shared_cluster.start(str(leader))
        shared_cluster.wait_until_ready()
    consumer = group_consumer(bootstrap, f"group-{topic}")
    consumer.subscribe([topic])
    assert consume(consumer, 2 * RECORDS) == [*range(RECORDS), *range(RECORDS)]
    consumer.close()
