"""Producers of 0.7: partitions, queues, discovery, and both over TCP (kafka-0.7-design, "Producer")."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from highwater.reference.context import Context
from highwater.reference.drivers.kafka_0_7 import LISTENING, Exchange, ListedProducer
from highwater.reference.effects import Effect, Instant
from highwater.reference.legacy.broker import LegacyBroker
from highwater.reference.legacy.delivery import SimpleConsumer
from highwater.reference.legacy.log import LegacyLogConfig
from highwater.reference.legacy.messages import payloads
from highwater.reference.legacy.producer import (
    DispatchQueue,
    Item,
    LegacyProducer,
    NoBrokerError,
    ProducerConfig,
    QueueFullError,
    View,
    by_hash,
    listed,
    request_of,
)
from highwater.reference.legacy.requests import Produce, decode_request
from highwater.reference.storage.filesystem import FileSystem
from highwater.reference.tests.simulated import Hand
from highwater.reference.tests.test_legacy_consumer import Group
from highwater.reference.wire.compression import Compression


def item(payload: bytes, partition: int = 0, topic: str = "t") -> Item:
    return Item(topic, partition, payload)


# -- partitions ------------------------------------------------------------------------------------


@given(st.binary(), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), unique=True, min_size=1))
def test_a_key_has_one_partition_and_none_is_out_of_range(key: bytes, known: list[tuple[int, int]]) -> None:
    view = View(by_hash(random.Random(1).randrange), {}, {"t": sorted(known)})
    assert len({view.pick("t", key) for _ in range(5)}) == 1
    assert {view.pick("t", None) for _ in range(200)} <= set(known)


def test_keys_and_random_choices_use_every_partition() -> None:
    known = [(broker, number) for broker in range(3) for number in range(2)]
    view = View(by_hash(random.Random(1).randrange), {}, {"t": known})
    assert {view.pick("t", b"user %d" % number) for number in range(100)} == set(known)
    assert {view.pick("t", None) for _ in range(100)} == set(known)


def test_a_broker_list_ignores_keys_and_covers_all_its_brokers() -> None:
    view = listed({1: "a:1", 2: "b:2"}, 2, "t", random.Random(1).randrange)
    assert {view.pick("t", b"same") for _ in range(100)} == {(1, 0), (1, 1), (2, 0), (2, 1)}


def test_a_custom_partitioner_indexes_the_sorted_partitions() -> None:
    view = View(lambda key, count: count - 1, {}, {"t": [(0, 0), (0, 1), (4, 0)]})
    assert view.pick("t", b"any") == (4, 0)


def test_a_new_topic_is_created_on_any_broker_and_without_brokers_there_is_nowhere_to_send() -> None:
    view = View(by_hash(random.Random(1).randrange), {3: "a:1", 7: "b:2"})
    assert {view.pick("new", None) for _ in range(50)} == {(3, 0), (7, 0)}
    with pytest.raises(NoBrokerError):
        View(by_hash(random.Random(1).randrange)).pick("t", None)


# -- the queue -------------------------------------------------------------------------------------


def test_a_batch_leaves_when_it_is_full_or_when_its_oldest_message_is_due() -> None:
    queue = DispatchQueue(ProducerConfig("async", queue_time_ms=100, batch_size=3))
    queue.offer(10, item(b"a"))
    queue.offer(60, item(b"b"))
    assert (queue.take(109), queue.due_ms) == ([], 110)
    assert [taken.payload for taken in queue.take(110)] == [b"a", b"b"]
    assert queue.due_ms is None
    for number in range(4):
        queue.offer(200, item(b"%d" % number))
    assert [taken.payload for taken in queue.take(200)] == [b"0", b"1", b"2"]
    assert queue.take(200) == []
    assert [taken.payload for taken in queue.take(200, whatever=True)] == [b"3"]


def test_a_full_queue_takes_nothing_more() -> None:
    queue = DispatchQueue(ProducerConfig("async", queue_size=2, batch_size=2))
    queue.offer(0, item(b"a"))
    queue.offer(0, item(b"b"))
    with pytest.raises(QueueFullError):
        queue.offer(0, item(b"c"))
    queue.take(0)
    queue.offer(0, item(b"c"))


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_a_batch_is_one_request_with_a_message_set_for_each_partition(codec: Compression) -> None:
    frame = request_of([item(b"a", 1), item(b"b", 0), item(b"c", 1), item(b"d", 1, "other")], codec)
    request = decode_request(frame[4:])
    assert isinstance(request, tuple)
    produced = [one for one in request if isinstance(one, Produce)]
    found = {
        (one.topic, one.partition): [entry.message.payload for entry in payloads(one.messages)] for one in produced
    }
    assert found == {("t", 1): [b"a", b"c"], ("t", 0): [b"b"], ("other", 1): [b"d"]}
    assert isinstance(decode_request(request_of([item(b"a")])[4:]), Produce)


# -- discovery -------------------------------------------------------------------------------------


class BrokerNode(Hand):
    """A broker of 0.7 as a host of the simulator: it takes produce requests."""

    def __init__(self, fs: FileSystem) -> None:
        super().__init__()
        self.broker = LegacyBroker(fs, LegacyLogConfig(flush_messages=1), 4)

    def receive(self, now: Instant, source: str, message: Any) -> list[Effect]:
        self.broker.handle(message[4:], now.monotonic_ms)
        for log in self.broker.logs.values():
            log.flushed(now.monotonic_ms)
        return []

    def stored(self) -> list[bytes]:
        return [
            entry.message.payload
            for _, log in sorted(self.broker.logs.items())
            for entry in payloads(log.read(log.start, 1 << 20))
        ]


class Producing:
    """A group's cluster with brokers that store, and a producer."""

    def __init__(self, brokers: dict[int, dict[str, int]], config: ProducerConfig) -> None:
        self.group = Group(brokers)
        self.nodes: dict[int, BrokerNode] = {}
        for broker in brokers:
            self.add(broker)

        def make(context: Context) -> Any:
            self.producer = LegacyProducer(context, config, by_hash(random.Random(1).randrange))
            return self.producer

        self.group.start("producer", make)
        self.group.settle()

    def add(self, broker: int) -> None:
        def make(disk: FileSystem) -> BrokerNode:
            self.nodes[broker] = BrokerNode(disk)
            return self.nodes[broker]

        self.group.world.add(f"broker:{broker}", make)
        self.group.world.start(f"broker:{broker}")

    def send(self, payload: bytes, key: bytes | None = None, topic: str = "t") -> None:
        self.group.world.enter("producer", lambda now: self.producer.send(now, topic, [payload], key))

    def stored(self) -> dict[int, list[bytes]]:
        return {broker: node.stored() for broker, node in self.nodes.items()}


def test_a_producer_finds_brokers_and_partitions_in_zookeeper() -> None:
    run = Producing({0: {"t": 2}, 3: {"t": 1}}, ProducerConfig())
    assert run.producer.view.addresses == {0: "host0:9092", 3: "host3:9092"}
    assert run.producer.view.partitions == {"t": [(0, 0), (0, 1), (3, 0)]}
    for number in range(30):
        run.send(b"%d" % number)
    run.group.settle()
    stored = run.stored()
    assert sorted(stored[0] + stored[3], key=int) == [b"%d" % number for number in range(30)]
    assert stored[0]
    assert stored[3]


def test_watches_bring_brokers_that_come_and_go() -> None:
    run = Producing({0: {"t": 1}}, ProducerConfig())
    run.add(1)
    run.group.add_broker(1, {"t": 2, "u": 1})
    run.group.settle()
    assert run.producer.view.partitions == {"t": [(0, 0), (1, 0), (1, 1)], "u": [(1, 0)]}
    run.group.crash("broker0")
    run.group.settle()
    assert run.producer.view.addresses == {1: "host1:9092"}
    assert run.producer.view.partitions["t"] == [(1, 0), (1, 1)]


def test_a_producer_keeps_what_it_knows_while_the_store_is_down_and_reads_again_after_it() -> None:
    run = Producing({0: {"t": 1}}, ProducerConfig())
    run.group.world.hold("producer", "store")
    run.group.add_broker(1, {"t": 1})
    run.group.settle(300)
    run.send(b"while cut off")
    assert run.producer.view.addresses == {0: "host0:9092"}
    run.group.world.release("producer", "store")
    run.group.settle()
    assert run.producer.view.addresses == {0: "host0:9092", 1: "host1:9092"}
    assert run.stored()[0] == [b"while cut off"]


def test_an_asynchronous_producer_sends_after_queue_time_and_loses_its_queue_in_a_crash() -> None:
    run = Producing({0: {"t": 1}}, ProducerConfig("async", queue_time_ms=500, batch_size=3))
    for payload in (b"a", b"b", b"c", b"d"):
        run.send(payload)
    run.group.settle(100)
    assert run.stored()[0] == [b"a", b"b", b"c"]
    run.group.settle(500)
    assert run.stored()[0] == [b"a", b"b", b"c", b"d"]
    run.send(b"e")
    run.group.crash("producer")
    run.group.settle()
    assert run.stored()[0] == [b"a", b"b", b"c", b"d"]


# -- over TCP --------------------------------------------------------------------------------------


@contextmanager
def broker_process(folder: Path, *options: str) -> Iterator[str]:
    """Run a broker of 0.7 in a process and yield its address."""
    command = [sys.executable, "-m", "highwater.reference.drivers.kafka_0_7", str(folder), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().removeprefix(LISTENING).strip()
        finally:
            process.send_signal(signal.SIGKILL)


def read_all(address: str, count: int, partitions: int) -> list[list[bytes]]:
    """Return the payloads of each partition when there are `count` of them."""
    exchange = Exchange(address)
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    consumers = [SimpleConsumer(exchange, "t", number, 0) for number in range(partitions)]
    deadline = time.monotonic() + 30
    while sum(map(len, found)) < count:
        assert time.monotonic() < deadline, f"{sum(map(len, found))} of {count} are there"
        for consumer, mine in zip(consumers, found, strict=True):
            mine += [payload for entry, _ in consumer.poll() for payload in entry]
    exchange.close()
    return found


@pytest.mark.parametrize("config", [ProducerConfig(), ProducerConfig("async", queue_time_ms=50, batch_size=20)])
def test_what_is_sent_is_read_in_the_order_of_each_partition(tmp_path: Path, config: ProducerConfig) -> None:
    with broker_process(tmp_path, "--partitions", "2", "--flush-ms", "50") as address:
        producer = ListedProducer({0: address}, "t", config, partitions=2)
        for number in range(1_010):
            producer.send(b"%d" % number)
        producer.close()
        found = read_all(address, 1_010, 2)
    assert sorted((payload for mine in found for payload in mine), key=int) == [b"%d" % n for n in range(1_010)]
    assert all(mine == sorted(mine, key=int) for mine in found)


def test_a_broker_that_is_down_fails_the_request() -> None:
    producer = ListedProducer({0: "127.0.0.1:1"}, "t", ProducerConfig())
    with pytest.raises(ConnectionRefusedError):
        producer.send(b"a")
    producer = ListedProducer({0: "127.0.0.1:1"}, "t", ProducerConfig("async"))
    producer.send(b"a")
    producer.close()
    assert producer.failed == 1
