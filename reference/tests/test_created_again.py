"""A topic that is created again has nothing of the one before: log start, compacted part, damage."""

from typing import Final

from highwater.reference.replication.partition import Role
from highwater.reference.tests.simulated import Simulated
from highwater.reference.tests.test_storage_service import Cluster, batch, led
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import MetadataRequest
from highwater.reference.wire.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from highwater.reference.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

COMPACT: Final = {"cleanup_policy": "compact", "segment_bytes": "200"}


def replace_topic(cluster: Cluster, **configs: str) -> None:
    cluster.until(lambda: cluster.broker.controller.active and "t" in cluster.broker.cache.topics)
    reply = cluster.ask(DeleteTopicsRequest(topic_names=("t",), timeout_ms=1_000), 4)
    assert reply.responses[0].error_code == ErrorCode.NONE
    cluster.create("t", **configs)
    cluster.until(lambda: led(cluster, "t"))


def test_the_log_starts_at_zero_again() -> None:
    """The log start that the broker read when it started is that of the deleted log."""
    cluster = Cluster(high_watermark_checkpoint_interval_ms=200)
    cluster.create("t")
    for value in (b"0", b"1", b"2"):
        cluster.produce("t", batch(value))
    assert cluster.delete("t", 2).error_code == ErrorCode.NONE
    cluster.world.run_until(cluster.world.now_ms + 1_000)
    cluster.crash_and_start()
    cluster.until(lambda: led(cluster, "t"))
    assert cluster.broker.replicas.partitions["t", 0].log.log_start_offset == 2
    replace_topic(cluster)
    assert cluster.produce("t", batch(b"new")).base_offset == 0
    cluster.crash_and_start()
    cluster.until(lambda: led(cluster, "t"))
    assert cluster.values("t") == [b"new"]


def test_nothing_is_compacted_yet() -> None:
    cluster = Cluster(log_cleaner_backoff_ms=200)
    cluster.create("t", **COMPACT)
    for number in range(8):
        cluster.produce("t", batch(b"%d" % number + bytes(100), b"a"))
    cluster.world.run_until(cluster.world.now_ms + 1_000)
    assert cluster.broker.maintenance.cleaned_until("t", 0) == 7
    replace_topic(cluster, **COMPACT)
    assert cluster.broker.maintenance.cleaned_until("t", 0) == 0


def test_a_damaged_log_is_deleted_too() -> None:
    cluster = Cluster(high_watermark_checkpoint_interval_ms=200)
    cluster.create("t")
    for value in (b"0", b"1"):
        cluster.produce("t", batch(value))
    cluster.world.run_until(cluster.world.now_ms + 1_000)
    cluster.world.crash(ONE := "broker:1")
    path = "t-0/00000000000000000000.log"
    data = cluster.disk.read(path, 0, cluster.disk.size(path))
    cluster.disk.write(path, data[:64] + b"\xff" + data[65:])
    cluster.world.start(ONE)
    cluster.until(lambda: ("t", 0) in cluster.broker.replicas.corrupt_logs)
    replace_topic(cluster)
    assert cluster.produce("t", batch(b"new")).base_offset == 0
    assert cluster.values("t") == [b"new"]


def test_a_disk_error_in_a_truncation_takes_one_replica_offline() -> None:
    cluster = Cluster()
    cluster.create("t")
    cluster.create("other")
    cluster.produce("t", batch(b"0"))
    partition = cluster.broker.replicas.partitions["t", 0]

    def fail(offset: int) -> bool:
        raise OSError(5, "Input/output error")

    partition.log.truncate_to = fail  # type: ignore[method-assign]
    partition.truncate_to(0)
    assert partition.role is Role.OFFLINE
    assert cluster.produce("other", batch(b"1")).error_code == ErrorCode.NONE


def test_partitions_are_not_added_while_one_is_reassigned() -> None:
    """The number of replicas is larger meanwhile; Apache Kafka refuses, too (AdminManager.createPartitions)."""
    world = Simulated(3)
    assignment = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    controller = world.ask(MetadataRequest(topics=()), 9).controller_id
    world.ask(CreateTopicsRequest(topics=(assignment,), timeout_ms=2_000), 4, controller)
    leader = world.leader("t")
    target = next(each for each in (1, 2, 3) if each not in {leader, controller})
    world.world.pause(f"broker:{target}")
    moved = ReassignablePartition(partition_index=0, replicas=(target,))
    world.ask(
        AlterPartitionReassignmentsRequest(topics=(ReassignableTopic(name="t", partitions=(moved,)),), timeout_ms=500),
        0,
        controller,
    )
    world.run(300)
    body = CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="t", count=3),), timeout_ms=2_000)
    assert world.ask(body, 1, controller).results[0].error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS
