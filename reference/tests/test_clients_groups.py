"""Groups of third-party clients on a cluster of three processes: assignors, static members, offsets for times."""

import asyncio
import itertools
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from highwater.reference.tests.test_clients import create

pytestmark = pytest.mark.xdist_group("cluster")
GROUPS = itertools.count()
PARTITIONS = 4
PATIENCE_S = 60.0
FIRST_MS = 1_700_000_000_000


def new_group() -> str:
    return f"clients-groups-{next(GROUPS)}"


def member(bootstrap: str, group: str, topic: str, **settings: Any) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 500,
            **settings,
        }
    )
    consumer.subscribe([topic])
    return consumer


def shares(members: list[Consumer]) -> list[list[int]]:
    return [sorted(each.partition for each in consumer.assignment()) for consumer in members]


def wait(members: list[Consumer], condition: Callable[[list[list[int]]], bool]) -> list[list[int]]:
    """Poll all members until their assignments satisfy the condition."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition(shares(members)):
        assert time.monotonic() < deadline, shares(members)
        for consumer in members:
            consumer.poll(0.1)
    return shares(members)


def is_whole(found: list[list[int]]) -> bool:
    return sorted(itertools.chain(*found)) == list(range(PARTITIONS)) and all(found)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_confluent_kafka_rebalances_when_members_join_and_leave(bootstrap: str, strategy: str) -> None:
    topic, group = create(bootstrap, PARTITIONS), new_group()
    settings = {"partition.assignment.strategy": strategy}
    members = [member(bootstrap, group, topic, **settings) for _ in range(2)]
    wait(members, is_whole)
    members.pop(0).close()
    assert wait(members, is_whole) == [list(range(PARTITIONS))]
    members[0].close()


@pytest.mark.parametrize("assignor", ["uniform", "range"])
@pytest.mark.parametrize("subscription", ["name", "pattern"])
def test_confluent_kafka_rebalances_by_the_consumer_protocol(bootstrap: str, assignor: str, subscription: str) -> None:
    """KIP-848: the broker assigns. A member commits, and the next one reads on from there."""
    topic, group = create(bootstrap, PARTITIONS), new_group()
    produce(bootstrap, topic, range(20))
    subscribed = topic if subscription == "name" else f"^{topic}$"
    members = [consumer_member(bootstrap, group, subscribed, assignor) for _ in range(2)]
    read: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(read) < 20 or not is_whole(shares(members)):
        assert time.monotonic() < deadline, (len(read), shares(members))
        for consumer in members:
            message = consumer.poll(0.1)
            if message is not None and not message.error():
                read.append(message.value() or b"")
                consumer.commit(message, asynchronous=False)
    assert sorted(map(int, set(read))) == list(range(20))
    members.pop(0).close()
    assert wait(members, is_whole) == [list(range(PARTITIONS))]
    members[0].close()
    produce(bootstrap, topic, [20])
    last = consumer_member(bootstrap, group, topic, assignor)
    found = None
    while found is None and time.monotonic() < deadline + PATIENCE_S:
        found = last.poll(0.5)
    assert found is not None
    assert found.value() == b"20", "all before it was committed"
    last.close()


def consumer_member(bootstrap: str, group: str, topic: str, assignor: str) -> Consumer:
    """Return a consumer with the protocol of KIP-848, whose timeouts are those of the broker."""
    settings = {"group.protocol": "consumer", "group.remote.assignor": assignor, "enable.auto.commit": False}
    known = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**known, **settings})
    consumer.subscribe([topic])
    return consumer


def produce(bootstrap: str, topic: str, numbers: Iterable[int]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def test_a_static_member_of_confluent_kafka_gets_its_partitions_back(bootstrap: str) -> None:
    topic, group = create(bootstrap, PARTITIONS), new_group()
    members = [member(bootstrap, group, topic, **{"group.instance.id": name}) for name in ("a", "b")]
    before = wait(members, is_whole)
    was = described(bootstrap, group)
    members[0].close()  # a static member does not leave
    members[0] = member(bootstrap, group, topic, **{"group.instance.id": "a"})
    assert wait(members, is_whole) == before
    now = described(bootstrap, group)
    assert {name: share for name, (_, share) in now.items()} == {name: share for name, (_, share) in was.items()}
    assert now["a"][0] != was["a"][0], "another process, with another member id"
    assert now["b"][0] == was["b"][0]
    for consumer in members:
        consumer.close()


def described(bootstrap: str, group: str) -> dict[str, tuple[str, list[int]]]:
    """Return the member id and partitions of each static member, as DescribeGroups reports them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_consumer_groups([group])[group].result(20)
    return {
        each.group_instance_id: (each.member_id, sorted(p.partition for p in each.assignment.topic_partitions))
        for each in found.members
    }


def test_offsets_for_times_are_those_of_the_first_record_at_or_after(bootstrap: str) -> None:
    topic = create(bootstrap)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(5):
        producer.produce(topic, b"%d" % number, timestamp=FIRST_MS + 1_000 * number)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": new_group()})
    requested = {0: 0, FIRST_MS: 0, FIRST_MS + 1: 1, FIRST_MS + 4_000: 4}
    for timestamp, offset in requested.items():
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], timeout=20)
        assert found.offset == offset
    consumer.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaConsumer, TopicPartition as Theirs  # noqa: I001
    theirs = KafkaConsumer(bootstrap_servers=bootstrap.split(","))
    partition = Theirs(topic, 0)
    for timestamp, offset in requested.items():
        assert theirs.offsets_for_times({partition: timestamp})[partition].offset == offset
    assert theirs.offsets_for_times({partition: FIRST_MS + 9_000})[partition] is None
    theirs.close()
    assert asyncio.run(_aiokafka_offset_for(bootstrap, topic, FIRST_MS + 2_500)) == 3


async def _aiokafka_offset_for(bootstrap: str, topic: str, timestamp: int) -> int:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.structs import TopicPartition as Theirs

    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    found = await consumer.offsets_for_times({Theirs(topic, 0): timestamp})
    await consumer.stop()
    return int(found[Theirs(topic, 0)].offset)


@pytest.mark.parametrize(
    "strategy", ["RangePartitionAssignor", "RoundRobinPartitionAssignor", "StickyPartitionAssignor"]
)
def test_kafka_python_shares_partitions(bootstrap: str, strategy: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaConsumer
        from kafka.coordinator.assignors import range as ranges
        from kafka.coordinator.assignors import roundrobin
        from kafka.coordinator.assignors.sticky import sticky_assignor
    known = {**vars(ranges), **vars(roundrobin), **vars(sticky_assignor)}
    topic, group = create(bootstrap, PARTITIONS), new_group()
    members = [
        KafkaConsumer(
            topic, bootstrap_servers=bootstrap.split(","), group_id=group, heartbeat_interval_ms=500,
            partition_assignment_strategy=[known[strategy]],
        )
        for _ in range(2)
    ]  # fmt: skip
    deadline = time.monotonic() + PATIENCE_S
    found: list[list[int]] = [[], []]
    with ThreadPoolExecutor() as pool:  # if poll returns during a join, this client sends no heartbeats
        while not is_whole(found):
            assert time.monotonic() < deadline, found
            list(pool.map(lambda consumer: consumer.poll(timeout_ms=2_000), members))
            found = [sorted(each.partition for each in consumer.assignment()) for consumer in members]
    for consumer in members:
        consumer.close()


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky"])
def test_aiokafka_shares_partitions_with_static_members(bootstrap: str, strategy: str) -> None:
    topic = create(bootstrap, PARTITIONS)
    assert is_whole(asyncio.run(_aiokafka_group(bootstrap, topic, new_group(), strategy)))


async def _aiokafka_group(bootstrap: str, topic: str, group: str, strategy: str) -> list[list[int]]:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    assignors = {
        "range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor, "sticky": StickyPartitionAssignor,
    }  # fmt: skip
    members = [
        AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, group_instance_id=name, heartbeat_interval_ms=500,
            partition_assignment_strategy=(assignors[strategy],),
        )
        for name in ("a", "b")
    ]  # fmt: skip
    await asyncio.gather(*(consumer.start() for consumer in members))
    deadline = time.monotonic() + PATIENCE_S
    found: list[list[int]] = [[], []]
    while not is_whole(found) and time.monotonic() < deadline:
        await asyncio.gather(*(consumer.getmany(timeout_ms=100) for consumer in members))
        found = [sorted(each.partition for each in consumer.assignment()) for consumer in members]
    await asyncio.gather(*(consumer.stop() for consumer in members))
    return found
