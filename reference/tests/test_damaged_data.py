"""Stored data that cannot be decoded takes one partition of one broker offline, loudly; the others take over."""

from collections.abc import Callable
from typing import Any

import pytest

from highwater.reference.drivers.simulation.world import WALL_CLOCK_START_MS
from highwater.reference.effects import broker_peer
from highwater.reference.tests.simulated import Simulated
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.invalid_batches import with_payload
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from highwater.reference.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from highwater.reference.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from highwater.reference.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from highwater.reference.wire.records import HEADER_SIZE, batch_headers, build_batch

GROUP = "g"
NOW_MS = WALL_CLOCK_START_MS
SEGMENT = "00000000000000000000.log"
KNOWN_KEY_OF_NO_OFFSET = b"\x00\x01\x7f\xff"  # version 1, then a string that is not there


@pytest.fixture
def world() -> Simulated:
    return Simulated(3, offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)


def damage(world: Simulated, broker_id: int, folder: str, change: Callable[[bytes], bytes]) -> None:
    """Replace the last batch of a log by another one with a right CRC, on one broker, while it runs."""
    disk = world.world.hosts[broker_peer(broker_id)].disk
    path = f"{folder}/{SEGMENT}"
    data = disk.read(path, 0, disk.size(path))
    position, header = list(batch_headers(data))[-1]
    changed = change(data[position:])
    assert len(changed) == header.size
    disk.write(path, data[:position] + data[position : position + 16] + changed[16:])


def unreadable(batch: bytes) -> bytes:
    return with_payload(batch, b"\xff" * (len(batch) - HEADER_SIZE))


def errors(world: Simulated, broker_id: int) -> list[str]:
    return [line.text for node, line in world.world.logged if node == broker_peer(broker_id) and line.level == "error"]


def said(world: Simulated, broker_id: int, partition: str) -> str:
    (text,) = [text for text in errors(world, broker_id) if text.startswith(f"{partition} is offline")]
    return text


def timed(world: Simulated, timestamp: int) -> Any:
    requested = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    body = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name="t", partitions=(requested,)),))
    return world.ask(body, 5, world.leader("t")).topics[0].partitions[0]


def commit(world: Simulated, offset: int) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    body = OffsetCommitRequest(group_id=GROUP, topics=(OffsetCommitRequestTopic(name="t", partitions=(partition,)),))
    return int(world.ask(body, 5, world.coordinator(GROUP, 0)).topics[0].partitions[0].error_code)


def committed(world: Simulated, broker_id: int) -> tuple[int, int]:
    """Return what one broker answers: the error code and the offset."""
    body = OffsetFetchRequest(group_id=GROUP, topics=(OffsetFetchRequestTopic(name="t", partition_indexes=(0,)),))
    answer = world.ask(body, 5, broker_id)
    (topic,) = answer.topics or [None]
    found = (topic.partitions[0].error_code, topic.partitions[0].committed_offset) if topic else (0, -1)
    return (int(answer.error_code or found[0]), int(found[1]))


def test_a_search_by_time_that_meets_damaged_records_ends_and_another_replica_answers(world: Simulated) -> None:
    world.create("t")
    world.produce("t", [b"one"])
    world.run(1_000)
    leader = world.leader("t")
    damage(world, leader, "t-0", unreadable)
    assert timed(world, NOW_MS).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    text = said(world, leader, "t-0")
    assert f"t-0/{SEGMENT}, byte 0, offset 0: " in text
    assert "delete the folder of this partition" in text
    world.wait(lambda: world.leader("t") not in {leader, -1})
    assert (timed(world, NOW_MS).error_code, timed(world, NOW_MS).offset) == (ErrorCode.NONE, 0)
    assert world.produce("t", [b"two"]).error_code == ErrorCode.NONE
    assert world.up == world.broker_ids
    world.wait(lambda: offline(world) == {(leader,)})
    world.world.crash(broker_peer(leader))
    world.run(2_000)
    world.world.hosts[broker_peer(leader)].disk.delete_folder("t-0")  # what the log says
    world.world.start(broker_peer(leader))
    world.wait(lambda: offline(world) == {()})


def offline(world: Simulated) -> set[tuple[int, ...]]:
    """Return the offline replicas of t-0, as each broker that is up shows them; (-1,) if it knows none yet."""
    body = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
    found = [world.ask(body, 9, each).topics[0].partitions for each in world.up]
    return {parts[0].offline_replicas if parts else (-1,) for parts in found}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(unreadable, id="records of 0xFF"),
        pytest.param(
            lambda batch: with_payload(
                batch,
                build_batch([(NOW_MS, KNOWN_KEY_OF_NO_OFFSET, b"v" * (len(batch) - HEADER_SIZE - 11), ())])[
                    HEADER_SIZE:
                ],
            ),
            id="a key that is none",
        ),
    ],
)
def test_offsets_that_cannot_be_loaded_are_never_answered_as_none(
    world: Simulated, change: Callable[[bytes], bytes]
) -> None:
    """The next coordinator has damaged data: it does not own the group, and a third replica takes over."""
    world.create("t")
    assert commit(world, 7) == ErrorCode.NONE
    world.run(1_000)
    first = world.coordinator(GROUP, 0)
    others = [each for each in world.broker_ids if each != first]
    for each in others[:1]:
        damage(world, each, "__consumer_offsets-0", change)
    world.world.crash(broker_peer(first))
    answers: set[tuple[int, int]] = set()

    def answered() -> bool:
        answers.update(committed(world, each) for each in others)
        return (0, 7) in answers

    world.wait(answered)
    assert {error for error, offset in answers if offset != 7} <= {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
    assert world.up == others
    assert f"__consumer_offsets-0/{SEGMENT}" in said(world, others[0], "__consumer_offsets-0")
    world.world.start(broker_peer(first))
    world.wait(lambda: commit(world, 8) == ErrorCode.NONE)


def test_all_replicas_damaged_leaves_no_coordinator_and_all_brokers(world: Simulated) -> None:
    world.create("t")
    assert commit(world, 7) == ErrorCode.NONE
    world.run(1_000)
    first = world.coordinator(GROUP, 0)
    others = [each for each in world.broker_ids if each != first]
    for each in others:
        damage(world, each, "__consumer_offsets-0", unreadable)
    world.world.crash(broker_peer(first))
    for _ in range(40):
        world.run(250)
        for each in others:
            error, offset = committed(world, each)
            assert (offset, error != ErrorCode.NONE) == (-1, True)
    assert world.up == others
    assert world.produce("t", [b"one"]).error_code == ErrorCode.NONE


def test_compaction_that_meets_damaged_records_takes_only_that_partition_offline() -> None:
    world = Simulated(
        3, log_cleaner_backoff_ms=200, log_roll_ms=100, log_cleaner_min_cleanable_ratio=0.01, log_flush_interval_ms=100
    )
    for topic in ("t", "other"):
        create_compacted(world, topic)
        for value in (b"one", b"two"):
            world.produce(topic, [value])
    leader = world.leader("t")
    damage(world, leader, "t-0", unreadable)
    world.run(1_000)
    world.produce("t", [b"three"])  # a new segment: the damaged one may be cleaned
    world.wait(lambda: bool(errors(world, leader)))
    assert f"t-0/{SEGMENT}, byte " in said(world, leader, "t-0")
    world.wait(lambda: world.leader("t") not in {leader, -1})
    for topic in ("t", "other"):
        world.wait(lambda topic=topic: world.produce(topic, [b"more"]).error_code == ErrorCode.NONE)
    assert world.up == world.broker_ids


def create_compacted(world: Simulated, topic: str) -> None:
    wanted = CreatableTopic(
        name=topic,
        num_partitions=1,
        replication_factor=3,
        configs=(CreatableTopicConfig(name="cleanup.policy", value="compact"),),
    )
    body = CreateTopicsRequest(topics=(wanted,), timeout_ms=2_000)
    for each in world.broker_ids:
        world.ask(body, 5, each)
    world.wait(lambda: world.leader(topic) > 0)
