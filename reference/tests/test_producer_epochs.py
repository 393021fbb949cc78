"""The last epochs of a producer id (KIP-360, KIP-890), in the simulator with ids that have epochs 0 and 1 only."""

import pytest

from highwater.reference.effects import broker_peer
from highwater.reference.tests.simulated import Simulated
from highwater.reference.tests.test_transactions import TOPIC, settled, slow
from highwater.reference.tests.transactional import Producer
from highwater.reference.wire.errors import ErrorCode

LARGEST = 2


def world_of(brokers: int = 1, *guards_off: str) -> Simulated:
    world = Simulated(brokers, producer_epoch_max=LARGEST, guards_off=guards_off)
    world.create(TOPIC, 2)
    return world


def last(world: Simulated, *, newest: bool = True, timeout_ms: int = 60_000) -> Producer:
    """Return a producer with the last epoch of its id."""
    producer = Producer(world, "tx", newest=newest, timeout_ms=timeout_ms).init().init(bump=True)
    assert producer.epoch == LARGEST - 1
    return producer


def test_each_transaction_is_visible_across_the_ids_of_a_producer() -> None:
    world, ids = world_of(), set()
    producer = Producer(world, "tx", newest=True).init()
    for number in range(7):
        ids.add(producer.producer_id)
        producer.write(TOPIC, b"%d" % number)
        producer.commit()
    settled(world)
    assert world.read_committed(TOPIC) == [b"%d" % number for number in range(7)]
    assert len(ids) == 4


def test_a_repeated_init_at_the_last_epoch_gets_the_same_answer() -> None:
    producer = Producer(world_of(), "tx").init()
    first, again = producer.try_init(bump=True), producer.try_init(bump=True)
    assert (first.producer_id, first.producer_epoch) == (producer.producer_id, LARGEST - 1)
    assert first == again


def test_an_init_for_the_previous_id_is_fenced_once_another_instance_has_begun() -> None:
    """It received the id and the epoch of that instance."""
    world = world_of()
    old = last(world)
    first, again = old.try_init(bump=True), old.try_init(bump=True)
    assert first == again
    assert (first.error_code, first.producer_epoch) == (ErrorCode.NONE, 0)
    assert first.producer_id != old.producer_id
    Producer(world, "tx").init()
    assert old.try_init(bump=True).error_code == ErrorCode.PRODUCER_FENCED


def test_the_id_of_an_end_is_usable_before_the_markers_are_written() -> None:
    """It was refused with INVALID_PRODUCER_ID_MAPPING, which ends a producer (KAFKA-18660)."""
    world = world_of(3)
    slow(world, "WriteTxnMarkersRequest", 300)
    producer = last(world)
    for number in range(6):
        producer.write(TOPIC, b"a%d" % number)
        producer.write(TOPIC, b"b%d" % number, number=1)
        producer.commit()
    settled(world)
    assert world.read_committed(TOPIC) == [b"a%d" % number for number in range(6)]


@pytest.mark.parametrize("guard", ["", "NewIdAfterFence"])
def test_the_producer_of_a_transaction_that_timed_out_never_gets_the_largest_epoch(guard: str) -> None:
    """KAFKA-20090."""
    world = world_of(1, *filter(None, [guard]))
    producer = last(world, timeout_ms=1_000)
    old_id = producer.producer_id
    producer.write(TOPIC, b"too long")
    settled(world)
    assert producer.try_end(commit=False) is ErrorCode.NONE  # it seems to be repeated
    if guard:
        assert (producer.producer_id, producer.epoch) == (old_id, LARGEST)
        return
    assert producer.producer_id != old_id
    producer.write(TOPIC, b"next")
    producer.commit()
    settled(world)
    assert world.read_committed(TOPIC) == [b"next"]


@pytest.mark.parametrize("guard", ["", "PersistNextId"])
def test_the_next_coordinator_knows_the_id_that_an_end_has_returned(guard: str) -> None:
    world = world_of(3, *filter(None, [guard]))
    slow(world, "WriteTxnMarkersRequest", 3_000)
    producer = last(world)
    decided = world.coordinator("tx", 1)
    number = next(number for number in (0, 1) if world.leader(TOPIC, number) != decided)
    producer.write(TOPIC, b"v", number=number)
    producer.commit()
    world.world.crash(broker_peer(decided), lose_unflushed=False)
    world.wait(lambda: world.coordinator("tx", 1) not in {-1, decided})
    settled(world, number=number)
    error = producer.try_write(TOPIC, b"next", number=number)
    assert error is (ErrorCode.INVALID_PRODUCER_ID_MAPPING if guard else ErrorCode.NONE)


def test_a_classic_producer_gets_a_new_id_from_init_only() -> None:
    world = world_of()
    producer = last(world, newest=False)
    old_id = producer.producer_id
    for value in (b"first", b"second"):
        producer.write(TOPIC, value)
        producer.commit()
    assert producer.producer_id == old_id
    producer.init(bump=True)
    assert (producer.producer_id != old_id, producer.epoch) == (True, 0)
    settled(world)
    assert world.read_committed(TOPIC) == [b"first", b"second"]
