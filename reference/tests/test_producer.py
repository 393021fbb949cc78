"""The producer without I/O: partitioning, batching, retries, and exactly-once writes."""

import warnings
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.reference.clients.producer import (
    Delivery,
    Producer,
    ProducerConfig,
    StickyPartitioner,
    murmur2,
    partition_of_key,
)
from highwater.reference.effects import Instant, Response, Send, broker_peer
from highwater.reference.tests.simulated import Simulated
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from highwater.reference.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from highwater.reference.wire.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from highwater.reference.wire.records import batch_headers, decode_records

TOPIC = "t"
NAME = "producer"


@given(st.binary(max_size=40))
@settings(max_examples=200, deadline=None)
def test_murmur2_agrees_with_apache_kafka(key: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka.partitioner.default import murmur2 as theirs
    assert murmur2(key) == theirs(key) & 0xFFFFFFFF


def test_records_without_a_key_stick_until_a_batch_is_full() -> None:
    partitioner = StickyPartitioner()
    assert {partitioner.choose(TOPIC, None, 3) for _ in range(5)} == {0}
    partitioner.batch_is_full(TOPIC)
    assert {partitioner.choose(TOPIC, None, 3) for _ in range(5)} == {1}
    assert partitioner.choose(TOPIC, b"k", 3) == partition_of_key(b"k", 3)


# -- without a broker -------------------------------------------------------------------------------


class ByHand:
    """A producer whose broker is the test."""

    def __init__(self, **config: Any) -> None:
        self.delivered: list[Delivery] = []
        self.producer = Producer([1], ProducerConfig(**config), self.delivered.append)
        self.now_ms = 0
        self.open: list[Any] = []
        self.producer_ids = 0
        self._take(self.producer.start(self.now))

    @property
    def now(self) -> Instant:
        return Instant(self.now_ms, self.now_ms)

    def _take(self, effects: list[Any]) -> None:
        """Answer Metadata and InitProducerId at once and keep Produce requests in `open`."""
        for request in [effect.message for effect in effects if isinstance(effect, Send)]:
            if isinstance(request.body, MetadataRequest):
                partition = MetadataResponsePartition(partition_index=0, leader_id=1)
                topic = MetadataResponseTopic(name=TOPIC, partitions=(partition,))
                self.answer(request, MetadataResponse(topics=(topic,)))
            elif isinstance(request.body, InitProducerIdRequest):
                self.producer_ids += 1
                self.answer(request, InitProducerIdResponse(producer_id=self.producer_ids, producer_epoch=0))
            else:
                self.open.append(request)

    def answer(self, request: Any, body: Any) -> None:
        self._take(self.producer.receive(self.now, broker_peer(1), Response(request.correlation_id, 0, body)))

    def produced(self, request: Any, error: ErrorCode = ErrorCode.NONE, offset: int = 0) -> None:
        self.open.remove(request)
        part = PartitionProduceResponse(index=0, error_code=error, base_offset=offset)
        self.answer(
            request, ProduceResponse(responses=(TopicProduceResponse(name=TOPIC, partition_responses=(part,)),))
        )

    def send(self, *values: bytes) -> None:
        for value in values:
            self._take(self.producer.send(self.now, TOPIC, value))

    def wait(self, wait_ms: int) -> None:
        self.now_ms += wait_ms
        self._take(self.producer.fire(self.now, "producer-tick"))

    def sequences(self) -> list[tuple[int, int, int]]:
        """Return producer id, first sequence and record count of each open batch."""
        found = [next(batch_headers(r.body.topic_data[0].partition_data[0].records))[1] for r in self.open]
        return [(header.producer_id, header.base_sequence, header.record_count) for header in found]


def test_lingering_records_are_sent_in_one_batch() -> None:
    hand = ByHand(linger_ms=10)
    hand.send(b"1", b"2", b"3")
    hand.wait(9)
    assert hand.sequences() == []
    hand.wait(1)
    assert hand.sequences() == [(1, 0, 3)]


def test_a_full_batch_does_not_linger() -> None:
    hand = ByHand(linger_ms=10, batch_size=60)
    hand.send(b"x" * 30, b"y" * 30)
    assert hand.sequences() == [(1, 0, 1)]


def test_at_most_five_batches_are_in_flight_and_a_retry_keeps_its_sequence() -> None:
    hand = ByHand()
    hand.send(*(b"%d" % number for number in range(7)))
    assert hand.sequences() == [(1, number, 1) for number in range(5)]
    first, second, *_ = hand.open
    hand.produced(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    hand.produced(first, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    hand.wait(100)
    assert hand.sequences() == [(1, number, 1) for number in (2, 3, 4, 0, 1)]
    assert hand.delivered == []


def test_a_later_batch_waits_while_the_oldest_of_five_is_retried() -> None:
    """The broker remembers five batches: with a sixth after it the first one, which is retried, would be refused."""
    hand = ByHand()
    hand.send(*(b"%d" % number for number in range(7)))
    first, *others = hand.open
    hand.produced(first, ErrorCode.REQUEST_TIMED_OUT)
    for request in others:
        hand.produced(request)
    hand.wait(100)
    assert hand.sequences() == [(1, 0, 1)]
    hand.produced(hand.open[0])
    assert hand.sequences() == [(1, 5, 2)]


def test_an_expired_batch_resets_the_producer_id_and_sequences() -> None:
    hand = ByHand(delivery_timeout_ms=1_000, request_timeout_ms=5_000)
    hand.send(b"lost")
    hand.wait(1_000)
    assert [(each.error, each.offset) for each in hand.delivered] == [(ErrorCode.REQUEST_TIMED_OUT, -1)]
    hand.open.clear()
    hand.send(b"next")
    assert hand.sequences() == [(2, 0, 1)]


def test_a_fatal_error_is_reported_and_the_next_record_is_sent() -> None:
    hand = ByHand()
    hand.send(b"large")
    hand.produced(hand.open[0], ErrorCode.MESSAGE_TOO_LARGE)
    hand.send(b"small")
    hand.produced(hand.open[0], offset=7)
    assert [(each.error, each.offset) for each in hand.delivered] == [
        (ErrorCode.MESSAGE_TOO_LARGE, -1),
        (ErrorCode.NONE, 7),
    ]


def test_idempotence_requires_acks_all_and_at_most_five_in_flight() -> None:
    with pytest.raises(ValueError, match="idempotence needs acks -1 and at most 5 batches in flight"):
        ProducerConfig(acks=1)
    with pytest.raises(ValueError, match="at most 5"):
        ProducerConfig(max_in_flight=6)


# -- against the broker ----------------------------------------------------------------------------


def stored(world: Simulated, topic: str = TOPIC) -> list[bytes]:
    """Return every value in the leader's log, in order."""
    log = world.broker(world.leader(topic)).replicas.partitions[topic, 0].log
    values: list[bytes] = []
    for header in log.headers(0):
        data = log.read(header.base_offset, header.size, log.log_end_offset, at_least_one=True)
        values += [record.value or b"" for record in decode_records(data)[1]]
    return values


@pytest.mark.parametrize("seed", range(6))
def test_no_record_is_duplicated_or_lost_when_links_break_and_leaders_crash(seed: int) -> None:
    """A broken connection loses requests or replies, so a retried batch may be in the log already."""
    print(f"seed {seed}")
    world = Simulated(3, seed)
    world.create(TOPIC)
    delivered: list[Delivery] = []
    producer = Producer(world.broker_ids, ProducerConfig(linger_ms=2, batch_size=200), delivered.append)
    world.world.add(NAME, lambda disk: producer)
    world.world.start(NAME)
    world.world.loss_per_mille = 30
    total = 300
    for number in range(total):
        world.world.enter(NAME, lambda now, n=number: producer.send(now, TOPIC, b"%d" % n))  # type: ignore[misc]
        world.run(3)
        if number == total // 2:
            leader = broker_peer(world.leader(TOPIC))
            world.world.crash(leader, lose_unflushed=False)
            world.world.schedule(1_500, partial(world.world.start, leader))
    world.world.loss_per_mille = 0
    world.wait(lambda: len(delivered) == total)
    assert {each.error for each in delivered} == {ErrorCode.NONE}
    assert stored(world) == [b"%d" % number for number in range(total)]
    offsets = {each.record[2]: each.offset for each in delivered}
    assert all(offset in {-1, number} for number, offset in enumerate(offsets[b"%d" % n] for n in range(total)))


def test_without_idempotence_a_lost_reply_duplicates_a_record() -> None:
    """Shows that the test above can fail."""
    world = Simulated()
    world.create(TOPIC)
    delivered: list[Delivery] = []
    producer = Producer([1], ProducerConfig(enable_idempotence=False), delivered.append)
    world.world.add(NAME, lambda disk: producer)
    world.world.start(NAME)
    world.world.enter(NAME, lambda now: producer.send(now, TOPIC, b"0"))
    world.wait(lambda: len(delivered) == 1)
    world.world.hold(broker_peer(1), NAME)
    world.world.enter(NAME, lambda now: producer.send(now, TOPIC, b"1"))
    world.run(200)
    world.world.drop(broker_peer(1), NAME)
    world.world.release(broker_peer(1), NAME)
    world.wait(lambda: len(delivered) == 2)
    assert stored(world) == [b"0", b"1", b"1"]
