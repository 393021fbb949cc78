"""Idempotent producers: sequences, epochs, producer state and its expiration (KIP-98, KIP-360)."""

from typing import Any

import pytest

from highwater.reference.effects import broker_peer
from highwater.reference.guards import Guards
from highwater.reference.storage.producer_state import BATCHES_TO_RETAIN, SEQUENCE_MODULUS, ProducerStates
from highwater.reference.tests.simulated import Simulated
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.produce import PartitionProduceResponse
from highwater.reference.wire.messages.transactions import InitProducerIdRequest
from highwater.reference.wire.records import BatchHeader, build_batch, read_batch_header

TOPIC = "t"
PRODUCER = {"producer_id": 77, "producer_epoch": 0}


@pytest.fixture
def world() -> Simulated:
    world = Simulated()
    world.create(TOPIC)
    return world


def write(world: Simulated, sequence: int, *values: bytes, **changed: Any) -> PartitionProduceResponse:
    settings = {**PRODUCER, "base_sequence": sequence, **changed}
    answer: PartitionProduceResponse = world.produce(TOPIC, list(values or (b"v",)), **settings)
    return answer


def test_each_producer_gets_an_id_of_its_own_and_epoch_0(world: Simulated) -> None:
    requested = InitProducerIdRequest(transactional_id=None)
    answers = [world.ask(requested, version) for version in range(6)]
    assert len({answer.producer_id for answer in answers}) == 6
    assert {(answer.error_code, answer.producer_epoch) for answer in answers} == {(0, 0)}


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 0)])
def test_init_producer_id_takes_both_producer_id_and_epoch_or_neither(
    world: Simulated, producer_id: int, epoch: int
) -> None:
    requested = InitProducerIdRequest(transactional_id=None, producer_id=producer_id, producer_epoch=epoch)
    answer = world.ask(requested, 5)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


def test_producer_ids_are_allocated_in_blocks_and_unique() -> None:
    world = Simulated(3)
    ids = [world.ask(InitProducerIdRequest(transactional_id=None), 1, each).producer_id for each in (1, 2, 3, 1)]
    assert len(set(ids)) == 4
    assert len({producer_id // 1_000 for producer_id in ids}) == 3


def test_a_duplicate_of_the_last_five_batches_is_answered_with_its_offset(world: Simulated) -> None:
    offsets = [write(world, sequence).base_offset for sequence in range(7)]
    assert offsets == list(range(7))
    again = [write(world, sequence) for sequence in range(7)]
    remembered = 7 - BATCHES_TO_RETAIN
    assert [answer.base_offset for answer in again[remembered:]] == offsets[remembered:]
    assert {answer.error_code for answer in again[:remembered]} == {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
    assert world.end_offset(TOPIC) == 7


@pytest.mark.parametrize(
    ("sequence", "epoch", "error"),
    [
        (2, 5, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),  # a gap
        (1, 6, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),  # a new epoch must start at sequence 0
        (0, 6, ErrorCode.NONE),
        (1, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, 5, ErrorCode.NONE),
    ],
)
def test_sequence_and_epoch_accepted_after_sequence_0_of_epoch_5(
    world: Simulated, sequence: int, epoch: int, error: ErrorCode
) -> None:
    write(world, 0, producer_epoch=5)
    assert write(world, sequence, b"next", producer_epoch=epoch).error_code == error
    assert world.end_offset(TOPIC) == 1 + (error is ErrorCode.NONE)


def test_sequences_wrap_to_0(world: Simulated) -> None:
    assert write(world, SEQUENCE_MODULUS - 1, b"last").error_code == ErrorCode.NONE
    assert write(world, 0, b"first").error_code == ErrorCode.NONE
    assert write(world, 1, b"second", producer_id=78, producer_epoch=0).error_code == ErrorCode.NONE
    assert write(world, SEQUENCE_MODULUS - 2, b"1", b"2", b"3", producer_id=79).error_code == ErrorCode.NONE
    assert write(world, 1, b"4", producer_id=79).error_code == ErrorCode.NONE


def test_an_unknown_producer_may_begin_at_any_sequence(world: Simulated) -> None:
    """KIP-360: retention may have deleted the producer state with the records."""
    assert write(world, 1_000).error_code == ErrorCode.NONE
    assert write(world, 999).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("lose_unflushed", [False, True])
def test_producer_state_survives_a_restart(world: Simulated, lose_unflushed: bool) -> None:
    for sequence in range(3):
        write(world, sequence)
    world.run(3_000)  # longer than the flush interval
    world.world.crash(broker_peer(1), lose_unflushed=lose_unflushed)
    world.world.start(broker_peer(1))
    world.wait(lambda: world.leader(TOPIC) == 1)
    assert write(world, 2).base_offset == 2
    assert write(world, 4).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(world, 3).base_offset == 3


def test_producer_state_moves_with_the_leadership() -> None:
    world = Simulated(3)
    world.create(TOPIC)
    for sequence in range(6):
        assert write(world, sequence).error_code == ErrorCode.NONE
    before = world.leader(TOPIC)
    world.world.crash(broker_peer(before), lose_unflushed=False)
    world.wait(lambda: world.leader(TOPIC) not in {before, -1})
    answers = []

    def served() -> bool:
        answers.append(write(world, 3))
        return answers[-1].error_code == ErrorCode.NONE

    world.wait(served)
    assert answers[-1].base_offset == 3
    assert write(world, 8).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(world, 6).base_offset == 6


def test_the_state_of_an_idle_producer_expires() -> None:
    world = Simulated(producer_id_expiration_ms=2_000, producer_id_expiration_check_interval_ms=500)
    world.create(TOPIC)
    states = world.broker().replicas.partitions[TOPIC, 0].log.producers
    world.produce(TOPIC, [b"v"], producer_id=78, producer_epoch=0, base_sequence=0, age_ms=10_000)
    write(world, 0)
    assert set(states.entries) == {77, 78}
    world.run(1_000)  # expiration uses the timestamps of records
    assert set(states.entries) == {77}
    world.wait(lambda: not states.entries)


# -- the state alone -------------------------------------------------------------------------------


def header(sequence: int, offset: int, **changed: int) -> BatchHeader:
    fields = {
        "base_offset": offset, "batch_length": 100, "partition_leader_epoch": 0, "magic": 2, "crc": 0, "attributes": 0,
        "last_offset_delta": 0, "base_timestamp": 5, "max_timestamp": 5, "producer_id": 1, "producer_epoch": 0,
        "base_sequence": sequence, "record_count": 1,
    }  # fmt: skip
    return BatchHeader(**{**fields, **changed})


def states() -> ProducerStates:
    def no_marker(marker: BatchHeader) -> bytes:
        raise AssertionError(f"unexpected marker {marker}")

    return ProducerStates(no_marker)


def test_a_snapshot_keeps_the_last_batch_of_each_producer_and_open_transactions() -> None:
    before, after = states(), states()
    for sequence in range(3):
        before.update(header(sequence, sequence))
    before.update(header(0, 3, producer_id=2, attributes=0x10))
    assert after.restore(before.snapshot())
    assert after.entries[1].last_sequence == 2
    assert after.entries[2].transaction_start == 3
    assert after.last_stable_offset(10) == 3
    assert after.check(header(3, 4), Guards()) is ErrorCode.NONE
    assert after.snapshot() == before.snapshot()


def test_a_damaged_snapshot_is_refused() -> None:
    written = states()
    written.update(header(0, 0))
    whole = written.snapshot()
    for damaged in (b"", whole[:-1], whole + b"\0", whole[:20] + b"\xff" + whole[21:]):
        other = states()
        assert not other.restore(damaged)
        assert not other.entries


def test_a_control_batch_that_is_not_a_marker_is_ignored() -> None:
    """KRaft logs contain other control batches, and a damaged marker must not stop a broker."""
    for key, value in ((b"\0\0\0\2", b"\0" * 6), (b"\0", b""), (None, None)):
        batch = build_batch(
            [(0, key, value, ())], base_offset=1, producer_id=1, producer_epoch=0, transactional=True, control=True
        )
        known = ProducerStates(lambda marker, batch=batch: batch)  # type: ignore[misc]
        known.update(header(0, 0, attributes=0x10))
        assert known.update(read_batch_header(batch)) is None
        assert known.entries[1].transaction_start == 0
