"""Batches are decoded before they are stored: one that no reader could read is refused, and the log is unchanged."""

import struct
from typing import Any

import pytest

from highwater.reference.drivers.simulation.world import WALL_CLOCK_START_MS
from highwater.reference.tests.simulated import Simulated
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import DecodeError, ErrorCode
from highwater.reference.wire.invalid_batches import InvalidBatch, invalid_batches, with_bytes
from highwater.reference.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from highwater.reference.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from highwater.reference.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from highwater.reference.wire.record_scan import MAX_INT64, MIN_INT64, scan_records
from highwater.reference.wire.records import NewRecord, batch_headers, build_batch, decode_records

NOW_MS = WALL_CLOCK_START_MS
TEN_YEARS_MS = 10 * 365 * 24 * 3_600_000
BASE_TIMESTAMP_AT, MAX_TIMESTAMP_AT = 27, 35
BATCHES = invalid_batches(NOW_MS)
names = pytest.mark.parametrize("invalid", BATCHES, ids=[each.name for each in BATCHES])


@pytest.fixture(scope="module")
def world() -> Simulated:
    simulated = Simulated(3)
    simulated.create("t")
    return simulated


def produce(world: Simulated, batch: bytes, topic: str = "t") -> Any:
    body = ProduceRequest(
        acks=-1,
        timeout_ms=2_000,
        topic_data=(TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=0, records=batch),)),),
    )
    return world.ask(body, 9, world.leader(topic)).responses[0].partition_responses[0]


def timed(world: Simulated, timestamp: int, topic: str = "t") -> tuple[int, int]:
    requested = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    body = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic, partitions=(requested,)),))
    found = world.ask(body, 7, world.leader(topic)).topics[0].partitions[0]
    return found.offset, found.timestamp


def create(world: Simulated, topic: str, **configs: str) -> None:
    wanted = CreatableTopic(
        name=topic,
        num_partitions=1,
        replication_factor=1,
        configs=tuple(
            CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()
        ),
    )
    world.wait(
        lambda: any(
            world.ask(CreateTopicsRequest(topics=(wanted,), timeout_ms=2_000), 5, each).topics[0].error_code
            in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
            for each in world.broker_ids
        )
    )
    world.wait(lambda: world.leader(topic) > 0)


@names
def test_an_invalid_batch_is_refused_and_changes_nothing(world: Simulated, invalid: InvalidBatch) -> None:
    end = world.end_offset("t")
    answer = produce(world, invalid.batch)
    assert (answer.error_code, answer.base_offset) == (invalid.errors[0], -1)
    assert world.end_offset("t") == end
    assert produce(world, build_batch([(NOW_MS, None, b"good", ())])).base_offset == end


@pytest.mark.parametrize(("base", "delta"), [(MAX_INT64, 1), (MIN_INT64, -1), (MIN_INT64, -(2**63))])
def test_a_timestamp_that_does_not_fit_into_64_bits_is_refused(world: Simulated, base: int, delta: int) -> None:
    """Found by the fuzzer: the largest timestamp could not be written into the header of the batch."""
    records: list[NewRecord] = [(0, None, b"first", ()), (delta, None, b"second", ())]
    batch = with_bytes(build_batch(records), BASE_TIMESTAMP_AT, struct.pack(">q", base))
    end = world.end_offset("t")
    assert produce(world, batch).error_code == ErrorCode.INVALID_RECORD
    assert world.end_offset("t") == end


@pytest.mark.parametrize("codec", Compression)
def test_every_record_that_our_own_encoder_writes_is_accepted(codec: Compression) -> None:
    values = [b"", b"v", b"v" * 63, b"v" * 64, b"v" * 8191, b"v" * 8192, b"v" * 20_000, None]
    records = [
        (NOW_MS + shift, key, value, headers)
        for shift in (-(1 << 40), -1, 0, 1, 1 << 40)
        for key in (None, b"", b"k" * 100)
        for value in values
        for headers in ((), (("name", None), ("other", b"x" * 200)))
    ]
    batch = build_batch(records, compression=codec)
    ((_, header),) = batch_headers(batch)
    scan = scan_records(batch, header)
    assert (scan.smallest_timestamp, scan.largest_timestamp) == (NOW_MS - (1 << 40), NOW_MS + (1 << 40))
    assert scan.keyless == tuple(index for index, record in enumerate(records) if record[1] is None)


def test_the_scan_refuses_whatever_the_decoder_refuses() -> None:
    """Each byte of the records is replaced by several others: what the scan accepts can be decoded.

    Header keys that are not UTF-8 are the exception, as in Apache Kafka; this batch has no headers.
    """
    good = build_batch([(NOW_MS, b"k", b"value", ()), (NOW_MS + 9, None, b"w" * 70, ())])
    accepted = 0
    for position in range(61, len(good)):
        for byte in range(256):
            batch = with_bytes(good, position, bytes((byte,)))
            ((_, header),) = batch_headers(batch)
            try:
                scan_records(batch, header)
            except DecodeError:
                continue
            accepted += 1
            offsets = [record.offset for record in decode_records(batch)[1]]
            assert offsets == [0, 1]
    assert accepted > 70 * 256  # bytes of keys and values may be any


def test_a_wrong_largest_timestamp_is_corrected(world: Simulated) -> None:
    """A search by time relies on it; Apache Kafka corrects it, too."""
    good = build_batch([(NOW_MS, None, b"v", ())])
    far = with_bytes(good, MAX_TIMESTAMP_AT, (NOW_MS + TEN_YEARS_MS).to_bytes(8, "big"))
    create(world, "times")
    assert produce(world, far, "times").error_code == ErrorCode.NONE
    assert timed(world, NOW_MS + 1, "times") == (-1, -1)
    assert timed(world, -3, "times") == (0, NOW_MS)


def test_timestamps_too_far_from_the_clock_are_refused_by_index(world: Simulated) -> None:
    create(
        world,
        "limited",
        **{"message.timestamp.after.max.ms": "3600000", "message.timestamp.before.max.ms": "1000000000"},
    )
    now_ms = NOW_MS + world.world.now_ms
    times = [now_ms, now_ms + TEN_YEARS_MS, -1, now_ms - TEN_YEARS_MS]
    answer = produce(world, build_batch([(at, None, b"v", ()) for at in times]), "limited")
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in answer.record_errors] == [1, 3]
    assert produce(world, build_batch([(at, None, b"v", ()) for at in (now_ms, -1)]), "limited").error_code == 0


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_clients_do_not_write_to_internal_topics(world: Simulated, topic: str) -> None:
    world.coordinator("g", 0)
    world.coordinator("x", 1)
    good = build_batch([(NOW_MS, b"k", b"v", ())])
    assert produce(world, good, topic).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_poisoned_batch_in_a_compacted_topic_stops_no_broker(world: Simulated) -> None:
    create(world, "compacted", **{"cleanup.policy": "compact"})
    for invalid in BATCHES:
        assert produce(world, invalid.batch, "compacted").error_code == invalid.errors[0], invalid.name
    keyless = produce(world, build_batch([(NOW_MS, b"k", b"v", ()), (NOW_MS, None, b"v", ())]), "compacted")
    assert (keyless.error_code, [each.batch_index for each in keyless.record_errors]) == (ErrorCode.INVALID_RECORD, [1])
    world.run(60_000)
    assert world.up == world.broker_ids
