"""One broker on a simulated disk: full disks, damaged logs, deleted records, old clients."""

from collections.abc import Callable
from typing import Any

import pytest

from highwater.errors import UsageError
from highwater.reference.broker import Broker
from highwater.reference.configuration.broker import BrokerConfig, StoreConfig
from highwater.reference.drivers.simulation.disk import SimulatedDisk
from highwater.reference.drivers.simulation.world import World
from highwater.reference.effects import STORE, Request, Send, broker_peer
from highwater.reference.store.metadata_store import MetadataStore
from highwater.reference.tests.simulated import Hand
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.log_entries import decode_entry, entries
from highwater.reference.wire.message_sets import build_message_set
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from highwater.reference.wire.messages.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from highwater.reference.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from highwater.reference.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from highwater.reference.wire.records import Record, build_batch

CLIENT = "client"
ONE = broker_peer(1)


class Cluster:
    def __init__(self, **settings: Any) -> None:
        self.world = World(0)
        self.world.add(STORE, lambda disk: MetadataStore(StoreConfig(), disk))
        config = BrokerConfig(broker_id=1, offsets_topic_replication_factor=1, log_flush_interval_ms=100, **settings)
        self.world.add(ONE, lambda disk: Broker(config, disk))
        self.client = Hand()
        self.world.add(CLIENT, lambda disk: self.client)
        for name in (STORE, ONE, CLIENT):
            self.world.start(name)
        self.requests_sent = 0
        self.until(lambda: self.broker.cache.is_alive(1))

    @property
    def broker(self) -> Broker:
        node = self.world.hosts[ONE].node
        assert isinstance(node, Broker)
        return node

    @property
    def disk(self) -> SimulatedDisk:
        return self.world.hosts[ONE].disk

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(20_000):
            if condition():
                return
            self.world.run_until(self.world.now_ms + 1)
        raise AssertionError("it never came to be")

    def ask(self, body: Any, version: int) -> Any:
        self.requests_sent += 1
        number = self.requests_sent
        self.world.enter(CLIENT, lambda now: [Send(ONE, Request(number, version, body))])
        self.until(lambda: number in self.client.answers)
        return self.client.answers[number]

    def create(self, topic: str, **configs: str) -> None:
        settings = tuple(
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        )
        requested = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=settings)
        reply = self.ask(CreateTopicsRequest(topics=(requested,), timeout_ms=1_000), 4)
        assert reply.topics[0].error_code == ErrorCode.NONE
        self.until(lambda: (topic, 0) in self.broker.replicas.partitions)

    def produce(self, topic: str, records: bytes, version: int = 8, acks: int = -1) -> Any:
        data = TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=0, records=records),))
        reply = self.ask(ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=(data,)), version)
        return reply.responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int = 0, version: int = 11) -> Any:
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        requested = FetchTopic(topic=topic, partitions=(part,))
        return self.ask(FetchRequest(max_wait_ms=0, topics=(requested,)), version).responses[0].partitions[0]

    def values(self, topic: str, offset: int = 0) -> list[bytes]:
        found = self.fetch(topic, offset)
        assert found.error_code == ErrorCode.NONE
        data = found.records
        return [r.value or b"" for position, _ in entries(data) for r in decode_entry(data, position)[1]]

    def delete(self, topic: str, offset: int) -> Any:
        requested = DeleteRecordsTopic(
            name=topic, partitions=(DeleteRecordsPartition(partition_index=0, offset=offset),)
        )
        return self.ask(DeleteRecordsRequest(topics=(requested,), timeout_ms=1_000), 1).topics[0].partitions[0]

    def crash_and_start(self, *, lose_unflushed: bool = False) -> None:
        self.world.crash(ONE, lose_unflushed=lose_unflushed)
        self.world.start(ONE)


def batch(value: bytes, key: bytes | None = None, **kinds: Any) -> bytes:
    return build_batch([(1_000, key, value, ())], **kinds)


def led(cluster: Cluster, topic: str) -> bool:
    partition = cluster.broker.replicas.partitions.get((topic, 0))
    return partition is not None and partition.role == "leader"


@pytest.mark.parametrize("acks", [1, -1])
def test_a_full_disk_takes_one_replica_offline_and_not_the_broker(acks: int) -> None:
    cluster = Cluster()
    cluster.create("t")
    cluster.create("other")
    assert cluster.produce("t", batch(b"kept")).error_code == ErrorCode.NONE
    assert cluster.produce("other", batch(b"too")).error_code == ErrorCode.NONE
    cluster.world.run_until(cluster.world.now_ms + 500)  # wait for delayed writes
    cluster.disk.full = True
    assert cluster.produce("t", batch(b"lost"), acks=acks).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.fetch("t").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.produce("t", batch(b"lost")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.values("other") == [b"too"], "a partition without writes is still served"
    cluster.world.run_until(cluster.world.now_ms + 20_000)  # checkpoints fail on a full disk, too
    cluster.disk.full = False
    assert cluster.produce("other", batch(b"more")).error_code == ErrorCode.NONE
    assert cluster.produce("t", batch(b"lost")).error_code == ErrorCode.KAFKA_STORAGE_ERROR, (
        "the replica stays offline until a restart"
    )
    cluster.crash_and_start()
    cluster.until(lambda: led(cluster, "t"))
    assert cluster.values("t") == [b"kept"]
    assert cluster.produce("t", batch(b"again")).error_code == ErrorCode.NONE
    assert cluster.values("t") == [b"kept", b"again"]


def test_a_corrupt_flushed_batch_keeps_one_replica_offline() -> None:
    cluster = Cluster()
    cluster.create("t")
    cluster.create("other")
    for value in (b"one", b"two", b"three"):
        cluster.produce("t", batch(value))
    cluster.produce("other", batch(b"sound"))
    cluster.world.run_until(cluster.world.now_ms + 1_000)
    path = "t-0/00000000000000000000.log"
    data = bytearray(cluster.disk.read(path, 0, cluster.disk.size(path)))
    data[70] ^= 0xFF
    cluster.disk.write(path, bytes(data))
    cluster.crash_and_start()
    message = f"t-0 is offline: {path}: corrupt batch at offset 0, byte 0, in flushed data; "
    assert any(message in line.text for _, line in cluster.world.logged)
    cluster.until(lambda: led(cluster, "other"))
    assert cluster.values("other") == [b"sound"]
    assert cluster.produce("t", batch(b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.disk.read(path, 0, 1 << 20) == bytes(data), "the log was not truncated"
    cluster.broker.stop(cluster.broker._context.now)
    cluster.crash_and_start()
    assert ("t", 0) in cluster.broker.replicas.corrupt_logs, "a clean stop does not hide the damage from the next start"


@pytest.mark.parametrize("name", ["recovery-point", "replication", "log-start"])
@pytest.mark.parametrize("data", [b"", b"0\n7\n", b"\xff\xfe\x00"])
def test_a_damaged_checkpoint_is_logged_and_loses_no_records(name: str, data: bytes) -> None:
    cluster = Cluster()
    cluster.create("t")
    for value in (b"one", b"two"):
        cluster.produce("t", batch(value))
    cluster.world.run_until(cluster.world.now_ms + 10_000)
    path = f"{name}-offset-checkpoint"
    assert cluster.disk.exists(path)
    cluster.disk.write(path, data)
    cluster.crash_and_start()
    assert f"{path} is damaged; the broker treats it as empty" in [line.text for _, line in cluster.world.logged]
    cluster.until(lambda: led(cluster, "t"))
    assert cluster.values("t") == [b"one", b"two"]


def test_a_damaged_checkpoint_is_refused_under_truncation_by_high_watermark() -> None:
    """Before KIP-101 a follower truncated to its high watermark; an ignored checkpoint would truncate the whole log."""
    cluster = Cluster(truncation="high_watermark")
    cluster.disk.write("replication-offset-checkpoint", b"0\n7\n")
    cluster.world.crash(ONE, lose_unflushed=False)
    with pytest.raises(UsageError, match="replication-offset-checkpoint: The high watermark checkpoint is damaged"):
        cluster.world.start(ONE)


def test_deleted_records_stay_deleted_after_a_restart() -> None:
    cluster = Cluster(high_watermark_checkpoint_interval_ms=100)
    cluster.create("t")
    for value in (b"one", b"two", b"three"):
        cluster.produce("t", batch(value))
    assert cluster.delete("t", 9).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster.delete("unknown", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    deleted = cluster.delete("t", 2)
    assert (deleted.error_code, deleted.low_watermark) == (ErrorCode.NONE, 2)
    assert cluster.fetch("t", 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    cluster.world.run_until(cluster.world.now_ms + 1_000)
    cluster.crash_and_start()
    cluster.until(lambda: led(cluster, "t"))
    assert cluster.fetch("t", 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster.values("t", 2) == [b"three"]
    assert cluster.delete("t", -1).low_watermark == 3


def test_delete_records_is_refused_for_a_compacted_topic() -> None:
    cluster = Cluster()
    cluster.create("t", cleanup_policy="compact")
    assert cluster.delete("t", 0).error_code == ErrorCode.POLICY_VIOLATION


def test_retention_and_compaction_follow_the_topic_settings() -> None:
    cluster = Cluster(log_retention_check_interval_ms=500, log_cleaner_backoff_ms=500)
    cluster.create("compacted", cleanup_policy="compact", segment_bytes="200", min_cleanable_dirty_ratio="0.01")
    cluster.create("short", retention_bytes="0", segment_bytes="200")
    cluster.create("long", segment_bytes="200", retention_ms="-1")
    for number in range(10):
        for topic in ("compacted", "short", "long"):
            cluster.produce(topic, batch(b"%d" % number + bytes(100), b"ab"[number % 2 : number % 2 + 1]))
    cluster.world.run_until(cluster.world.now_ms + 3_000)
    assert [value[:1] for value in cluster.values("long")] == [b"0"], "a fetch returns one segment"
    assert cluster.broker.replicas.partitions["long", 0].log.log_start_offset == 0
    assert cluster.broker.replicas.partitions["short", 0].log.log_start_offset == 10
    log = cluster.broker.replicas.partitions["compacted", 0].log
    left = [
        record.offset
        for segment in log.segments
        for position, _ in segment.headers()
        for record in decode_entry(segment.read(position, 1 << 20))[1]
    ]
    assert left == [7, 8, 9], "the last of each key, and the active segment"


@pytest.mark.parametrize(("offset", "waits"), [(0, False), (1, False), (2, True)])
def test_a_fetch_waits_for_min_bytes_only_in_the_newest_segment(offset: int, waits: bool) -> None:
    """A read ends with its segment; kafka-go's test of compaction reads small segments with min_bytes=200."""
    cluster = Cluster()
    cluster.create("t", segment_bytes="200")
    for number in range(3):
        cluster.produce("t", batch(b"%d" % number + bytes(100)))
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    started = cluster.world.now_ms
    request = FetchRequest(max_wait_ms=1_000, min_bytes=1_000, topics=(FetchTopic(topic="t", partitions=(part,)),))
    assert cluster.ask(request, 11).responses[0].partitions[0].records
    assert (cluster.world.now_ms - started >= 1_000) is waits  # virtual time


def test_an_old_dirty_record_is_compacted_below_the_dirty_ratio() -> None:
    """KIP-354: max.compaction.lag.ms."""
    cluster = Cluster(log_cleaner_backoff_ms=500)
    common = {"cleanup_policy": "compact", "segment_bytes": "200", "min_cleanable_dirty_ratio": "0.9"}
    cluster.create("old", max_compaction_lag_ms="1000", **common)
    cluster.create("new", **common)
    for number in range(8):
        for topic in ("old", "new"):
            cluster.produce(topic, batch(b"%d" % number + bytes(100), b"ab"[number % 2 : number % 2 + 1]))
    cluster.world.run_until(cluster.world.now_ms + 5_000)
    assert cluster.broker.maintenance.cleaned_until("old", 0) == 7
    cluster.produce("old", batch(b"8" + bytes(100), b"a"))
    cluster.produce("new", batch(b"8" + bytes(100), b"a"))
    cluster.world.run_until(cluster.world.now_ms + 5_000)
    assert cluster.broker.maintenance.cleaned_until("old", 0) == 8, "a dirty share of one in eight is enough now"
    assert cluster.broker.maintenance.cleaned_until("new", 0) == 7


def test_down_conversion_can_be_disabled() -> None:
    """KIP-283: a broker need not convert for clients that are too old."""
    cluster = Cluster()
    cluster.create("t")
    cluster.create("new", message_downconversion_enable="false")
    for topic in ("t", "new"):
        cluster.produce(topic, batch(b"value"))
    assert [cluster.fetch(topic, version=3).error_code for topic in ("t", "new")] == [
        ErrorCode.NONE,
        ErrorCode.UNSUPPORTED_VERSION,
    ]
    assert cluster.fetch("new", version=4).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("broker", "topic"),
    [({"log_flush_interval_messages": 3}, {}), ({}, {"flush_messages": "3"})],
    ids=["broker", "topic"],
)
def test_a_flush_starts_after_flush_messages_records(broker: dict[str, Any], topic: dict[str, str]) -> None:
    cluster = Cluster(**broker)
    cluster.world.run_until(cluster.world.now_ms + 1_000)
    cluster.create("t", **topic)
    log = cluster.broker.replicas.partitions["t", 0].log
    path = log.segments[-1].path
    for number in range(3):
        assert log.unflushed_messages == number
        cluster.produce("t", batch(b"x"), acks=1)
    assert log.unflushed_messages == 0
    cluster.until(lambda: log.recovery_point == 3)
    cluster.world.crash(ONE, lose_unflushed=True)
    assert cluster.disk.size(path) > 0


RECORDS = [Record(0, 1_000, b"k", b"old"), Record(1, 1_001, None, b"older")]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_clients_produce_and_fetch_message_sets(version: int, codec: Compression) -> None:
    magic = int(version == 2)
    cluster = Cluster()
    cluster.create("t")
    first = cluster.produce("t", build_message_set(RECORDS, magic, codec), version)
    assert (first.error_code, first.base_offset) == (ErrorCode.NONE, 0)
    assert cluster.produce("t", build_message_set(RECORDS, magic, codec)[:-1], version).error_code == (
        ErrorCode.CORRUPT_MESSAGE
    )
    stored = cluster.fetch("t").records
    assert [(header.magic, header.compression) for _, header in entries(stored)] == [(2, codec)]
    cluster.produce("t", batch(b"new", compression=codec))
    data = cluster.fetch("t", version=version).records
    assert {header.magic for _, header in entries(data)} == {magic}
    records = [record for position, _ in entries(data) for record in decode_entry(data, position)[1]]
    assert [(r.offset, r.key, r.value) for r in records] == [(0, b"k", b"old"), (1, None, b"older"), (2, None, b"new")]
    assert [r.timestamp for r in records] == ([1_000, 1_001, 1_000] if magic else [-1, -1, -1])


def test_zstd_records_are_refused_to_an_old_client() -> None:
    cluster = Cluster()
    cluster.create("t")
    cluster.produce("t", batch(b"new", compression=Compression.ZSTD))
    assert cluster.fetch("t", version=3).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_log_of_an_old_release_is_served() -> None:
    """Before an upgrade the disk had message sets; batches are appended after them."""
    cluster = Cluster()
    cluster.create("t")
    cluster.world.crash(ONE, lose_unflushed=False)
    old = build_message_set(RECORDS, 1, Compression.GZIP)
    cluster.disk.write("t-0/00000000000000000000.log", old)
    cluster.world.start(ONE)
    cluster.until(lambda: led(cluster, "t"))
    assert cluster.produce("t", batch(b"new")).base_offset == 2
    assert cluster.values("t") == [b"old", b"older", b"new"]
    assert cluster.values("t", 2) == [b"new"]
