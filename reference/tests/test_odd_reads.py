"""Odd reads and deletions get the answers of Apache Kafka 4.3.1, and the replicas of a topic stay as many as asked."""

from typing import Any

import pytest

from highwater.reference.effects import STORE, broker_peer
from highwater.reference.replication import fetch
from highwater.reference.storage.log import OffsetOutOfRangeError
from highwater.reference.tests.simulated import Simulated
from highwater.reference.tests.transactional import Producer
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from highwater.reference.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from highwater.reference.wire.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from highwater.reference.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

E = ErrorCode


@pytest.fixture
def world() -> Simulated:
    world = Simulated()
    world.create("t")
    return world


@pytest.fixture
def pair() -> Simulated:
    pair = Simulated(2)
    pair.create("t", 4)
    return pair


def follower(world: Simulated, number: int = 0) -> int:
    return next(each for each in world.broker_ids if each != world.leader("t", number))


def delete_records(world: Simulated, offset: int, *numbers: int, timeout_ms: int = 10_000) -> DeleteRecordsRequest:
    parts = tuple(DeleteRecordsPartition(partition_index=number, offset=offset) for number in numbers)
    return DeleteRecordsRequest(topics=(DeleteRecordsTopic(name="t", partitions=parts),), timeout_ms=timeout_ms)


# -- fetch ----------------------------------------------------------------------------------------------


def test_a_session_reads_again_what_another_isolation_level_shows(world: Simulated) -> None:
    """Up to the last stable offset there is nothing; above it there is the record of an open transaction."""
    Producer(world, "tx").init().write("t", b"open")
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)

    def read(session: int, epoch: int, isolation_level: int, *parts: FetchPartition) -> Any:
        body = FetchRequest(
            replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=isolation_level,
            session_id=session, session_epoch=epoch, topics=(FetchTopic(topic="t", partitions=parts),) if parts else (),
        )  # fmt: skip
        return world.ask(body, 12)

    first = read(0, 0, 1, part)
    assert not first.responses[0].partitions[0].records
    assert read(first.session_id, 1, 1).responses == ()
    assert read(first.session_id, 2, 0).responses[0].partitions[0].records


def test_a_broker_returns_no_more_than_its_own_limit(world: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(5):
        world.produce("t", [b"v" * 1_000])
    every = len(world.fetch("t").records)
    monkeypatch.setattr(fetch, "FETCH_MAX_BYTES", 2_500)
    assert 1_000 < len(world.fetch("t").records) <= 2_500 < every


def test_a_fetch_below_the_log_start_is_out_of_range_and_no_divergence(world: Simulated) -> None:
    for _ in range(3):
        world.produce("t", [b"v"])
    world.ask(delete_records(world, 2, 0), 2)
    partition = world.broker().replicas.partitions["t", 0]
    epoch = partition.leader_epoch
    with pytest.raises(OffsetOutOfRangeError):
        partition.diverging(epoch, 1)
    assert partition.diverging(epoch, 2) is None
    assert partition.diverging(epoch, 4) is not None


def test_a_preferred_replica_has_the_offset(pair: Simulated) -> None:
    """KIP-392: its log may begin later, as after a reassignment."""
    other = follower(pair)
    for _ in range(3):
        pair.produce("t", [b"v"])
    pair.run(1_000)
    leader = pair.leader("t")
    partition = pair.broker(leader).replicas.partitions["t", 0]
    racks = {leader: "a", other: "b"}
    assert partition.preferred_read_replica("b", 1, racks.get) == other
    partition.remotes[other].log_start_offset = 2
    assert partition.preferred_read_replica("b", 1, racks.get) != other
    assert partition.preferred_read_replica("b", 2, racks.get) == other


@pytest.mark.parametrize(("replica_id", "expected"), [(-1, E.NOT_LEADER_OR_FOLLOWER), (-2, E.NONE)])
def test_a_follower_names_its_own_end_to_one_that_compares_replicas(
    pair: Simulated, replica_id: int, expected: ErrorCode
) -> None:
    pair.produce("t", [b"v"])
    pair.run(1_000)
    part = ListOffsetsPartition(partition_index=0, timestamp=-1)
    body = ListOffsetsRequest(replica_id=replica_id, topics=(ListOffsetsTopic(name="t", partitions=(part,)),))
    found = pair.ask(body, 5, follower(pair)).topics[0].partitions[0]
    assert (found.error_code, found.offset) == (expected, 1 if expected is E.NONE else -1)


# -- deletions and new partitions ------------------------------------------------------------------------


def test_a_deletion_of_records_ends_when_a_partition_leaves(pair: Simulated) -> None:
    """It waits for the follower; meanwhile the topic is deleted."""
    first = pair.leader("t")
    numbers = [number for number in range(4) if pair.leader("t", number) == first]
    assert len(numbers) == 2
    for number in numbers:
        pair.produce("t", [b"v"], number)
    pair.world.network.hold(broker_peer(follower(pair)), broker_peer(first))
    asked = pair.send(delete_records(pair, 1, *numbers, timeout_ms=60_000), 2, first)
    controller = pair.ask(MetadataRequest(topics=()), 9).controller_id
    gone = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),), timeout_ms=1_000)
    deleting = pair.send(gone, 6, controller)
    pair.run(2_000)
    pair.world.network.release(broker_peer(follower(pair)), broker_peer(first))
    pair.answer(deleting)
    found = [part for topic in pair.answer(asked).topics for part in topic.partitions]
    assert sorted(part.partition_index for part in found) == numbers
    assert {part.error_code for part in found} <= {E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION}


def test_new_partitions_do_not_have_fewer_replicas_while_a_broker_is_down() -> None:
    trio = Simulated(3)
    trio.create("t")
    controller = trio.ask(MetadataRequest(topics=()), 9).controller_id
    down = next(each for each in trio.broker_ids if each != controller)

    def add() -> ErrorCode:
        wanted = CreatePartitionsTopic(name="t", count=3, assignments=None)
        answer = trio.ask(CreatePartitionsRequest(topics=(wanted,), timeout_ms=5_000), 3, controller)
        return ErrorCode(answer.results[0].error_code)

    def replicas() -> list[int]:
        found = trio.ask(MetadataRequest(topics=(MetadataRequestTopic(name="t"),)), 9, controller).topics[0]
        return [len(part.replica_nodes) for part in found.partitions]

    trio.world.crash(broker_peer(down), lose_unflushed=False)
    trio.wait(lambda: len(trio.ask(MetadataRequest(topics=()), 9, controller).brokers) == 2)
    assert add() is E.INVALID_REPLICATION_FACTOR
    assert replicas() == [3]
    trio.world.start(broker_peer(down))
    trio.wait(lambda: add() is E.NONE)
    assert replicas() == [3, 3, 3]


# -- settings --------------------------------------------------------------------------------------------


def test_a_broker_that_does_not_know_the_settings_of_its_topics_deletes_nothing() -> None:
    """It starts while the metadata store is down, so that only the defaults are known: a retention time of a minute."""
    world = Simulated(log_retention_ms=60_000, log_segment_bytes=200, log_retention_check_interval_ms=1_000)
    forever = CreatableTopic(
        name="t", num_partitions=1, replication_factor=1,
        configs=(CreatableTopicConfig(name="retention.ms", value="-1"),),
    )  # fmt: skip
    assert world.ask(CreateTopicsRequest(topics=(forever,), timeout_ms=2_000), 7).topics[0].error_code == E.NONE
    world.wait(lambda: world.leader("t") > 0)
    for _ in range(5):
        assert world.produce("t", [b"v" * 100], age_ms=3_600_000).error_code == E.NONE
    world.run(10_000)  # until the high watermark is on disk
    for name in (broker_peer(1), STORE):
        world.world.crash(name, lose_unflushed=False)
    world.world.start(broker_peer(1))
    world.run(30_000)
    world.world.start(STORE)
    world.wait(lambda: world.end_offset("t") == 5)
    assert world.fetch("t").log_start_offset == 0
    world.run(10_000)
    assert world.fetch("t").log_start_offset == 0
