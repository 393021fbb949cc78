"""Odd requests and values get the answers of Apache Kafka 4.3.1, and what was accepted can be read and restarted."""

from typing import Any

import pytest

from highwater.reference.drivers.simulation.disk import SimulatedDisk
from highwater.reference.groups.group import Group, Member
from highwater.reference.groups.offsets import may_be_subscribed
from highwater.reference.storage.cleaner import clean, cleanable_end, install
from highwater.reference.storage.log import Log, LogConfig, retain
from highwater.reference.tests.simulated import Simulated
from highwater.reference.tests.test_broker_settings import alter
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from highwater.reference.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from highwater.reference.wire.messages.consumer_groups import ConsumerProtocolSubscription, encode_subscription
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from highwater.reference.wire.messages.metadata import ApiVersionsRequest, MetadataRequest, MetadataRequestTopic
from highwater.reference.wire.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from highwater.reference.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from highwater.reference.wire.record_scan import scan_records
from highwater.reference.wire.records import TimestampType, batch_headers, build_batch, decode_records

FOLDER, NOW = "t-0", 1_000_000
INT64_MAX = (1 << 63) - 1
E = ErrorCode


@pytest.fixture
def world() -> Simulated:
    world = Simulated()
    world.create("t")
    return world


def create(world: Simulated, *topics: CreatableTopic) -> list[ErrorCode]:
    answer = world.ask(CreateTopicsRequest(topics=topics, timeout_ms=2_000), 7)
    return [ErrorCode(each.error_code) for each in answer.topics]


def topic(name: str, partitions: int = 1, factor: int = 1, **configs: str) -> CreatableTopic:
    settings = tuple(CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items())
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=settings)


def metadata(world: Simulated, *names: str, create: bool = False) -> list[tuple[str | None, ErrorCode]]:
    topics = tuple(MetadataRequestTopic(name=name) for name in names)
    answer = world.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=create), 9)
    return [(each.name, ErrorCode(each.error_code)) for each in answer.topics]


def retention_of(world: Simulated, name: str) -> str | None:
    resource = DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=("retention.ms",))
    answer = world.ask(DescribeConfigsRequest(resources=(resource,)), 4)
    value: str | None = answer.results[0].configs[0].value
    return value


# -- topics --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (topic("t", no_such_setting="1"), E.TOPIC_ALREADY_EXISTS),
        (topic("a b", no_such_setting="1"), E.INVALID_TOPIC_EXCEPTION),
        (topic("new", no_such_setting="1"), E.INVALID_CONFIG),
        (topic("new", 0, 0), E.INVALID_REPLICATION_FACTOR),
        (topic("new", 0), E.INVALID_PARTITIONS),
        (topic("new", 10_001), E.POLICY_VIOLATION),
        (topic("__cluster_metadata"), E.INVALID_REQUEST),
    ],
)
def test_the_checks_of_a_creation_have_an_order(world: Simulated, asked: CreatableTopic, expected: ErrorCode) -> None:
    assert create(world, asked) == [expected]


def test_the_partitions_of_all_topics_of_a_request_are_limited(world: Simulated) -> None:
    assert create(world, topic("a", 5_000), topic("b", 5_001)) == [E.POLICY_VIOLATION] * 2


def test_a_topic_that_is_named_twice_has_one_result(world: Simulated) -> None:
    assert create(world, topic("a"), topic("a"), topic("b")) == [E.INVALID_REQUEST, E.NONE]
    twice = (CreatePartitionsTopic(name="t", count=2, assignments=None),) * 2
    answer = world.ask(CreatePartitionsRequest(topics=twice, timeout_ms=2_000), 3)
    assert [each.error_code for each in answer.results] == [E.INVALID_REQUEST]


def test_a_refused_creation_leaves_the_settings_of_the_topic(world: Simulated) -> None:
    """Both requests come before the broker knows the topic of the first."""
    sent = [
        world.send(CreateTopicsRequest(topics=(topic("a", retention_ms=value),), timeout_ms=2_000), 7)
        for value in ("111111", "222222")
    ]
    errors = [world.answer(number).topics[0].error_code for number in sent]
    assert sorted(errors) == [E.NONE, E.TOPIC_ALREADY_EXISTS]
    world.wait(lambda: world.leader("a") > 0)
    assert retention_of(world, "a") == ("111111" if errors[0] == E.NONE else "222222")


def test_metadata_creates_what_it_may_and_nothing_else(world: Simulated) -> None:
    assert create(world, topic("a.b")) == [E.NONE]
    assert metadata(world, "__consumer_offsets") == [("__consumer_offsets", E.UNKNOWN_TOPIC_OR_PARTITION)]
    assert metadata(world, "new", "a_b", create=True)[0] == ("new", E.UNKNOWN_TOPIC_OR_PARTITION)
    world.run(2_000)
    missing = E.UNKNOWN_TOPIC_OR_PARTITION
    assert metadata(world, "new", "a_b", "__consumer_offsets") == [
        ("new", E.NONE), ("a_b", missing), ("__consumer_offsets", missing),
    ]  # fmt: skip


def test_ids_of_topics_precede_names(world: Simulated) -> None:
    create(world, topic("u"))
    topic_id = world.ask(MetadataRequest(topics=(MetadataRequestTopic(name="t"),)), 12).topics[0].topic_id
    asked = (MetadataRequestTopic(name="u"), MetadataRequestTopic(topic_id=topic_id, name=None))
    assert [each.name for each in world.ask(MetadataRequest(topics=asked), 12).topics] == ["t"]


def test_older_clients_see_no_feature_whose_least_version_is_0(world: Simulated) -> None:
    body = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    assert [bool(world.ask(body, version).supported_features) for version in (3, 4)] == [False, True]


def test_records_of_an_internal_topic_are_not_deleted(world: Simulated) -> None:
    world.coordinator("g", 0)
    part = DeleteRecordsPartition(partition_index=0, offset=0)
    asked = DeleteRecordsTopic(name="__consumer_offsets", partitions=(part,))
    world.wait(lambda: world.leader("__consumer_offsets") > 0)
    answer = world.ask(DeleteRecordsRequest(topics=(asked,), timeout_ms=1_000), 2)
    assert answer.topics[0].partitions[0].error_code == E.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("value", ["+5000", "005000", "5000"])
def test_a_broker_goes_on_with_any_value_that_it_accepts(world: Simulated, value: str) -> None:
    assert alter(world, "", "log.retention.ms", value)[0] is E.NONE
    world.run(1_000)
    assert create(world, topic("after")) == [E.NONE]


# -- records -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epoch", "expected"), [(-1, E.NOT_LEADER_OR_FOLLOWER), (0, E.UNKNOWN_LEADER_EPOCH)])
def test_a_broker_without_a_replica_reads_nothing(world: Simulated, epoch: int, expected: ErrorCode) -> None:
    world.produce("t", [b"v"])
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=epoch)
    body = FetchRequest(
        replica_id=77, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1,
        topics=(FetchTopic(topic="t", partitions=(part,)),),
    )  # fmt: skip
    found = world.ask(body, 12).responses[0].partitions[0]
    assert (found.error_code, found.records) == (expected, b"")


def test_only_a_broker_sets_append_times(world: Simulated) -> None:
    create(world, topic("times", message_timestamp_type="LogAppendTime"))
    assert world.produce("times", [b"v"]).error_code == E.NONE
    answer = world.produce("times", [b"v"], timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert (answer.error_code, answer.record_errors[0].batch_index) == (E.INVALID_TIMESTAMP, 0)


def test_a_batch_may_not_grow_past_the_limit(world: Simulated) -> None:
    create(world, topic("plain", compression_type="uncompressed", max_message_bytes="1000"))
    assert world.produce("plain", [b"x" * 5_000], compression=Compression.GZIP).error_code == E.MESSAGE_TOO_LARGE


def test_an_incomplete_batch_behind_a_batch_is_cut_off(world: Simulated) -> None:
    body = world.produce_request("t", [b"v"])
    data = body.topic_data[0].partition_data[0]
    batch = data.records or b""
    object.__setattr__(data, "records", batch + batch[:40])
    assert world.ask(body, 9, world.leader("t")).responses[0].partition_responses[0].error_code == E.NONE
    assert [header.record_count for _, header in batch_headers(world.fetch("t").records)] == [1]


def test_a_transactional_batch_without_an_id_refuses_the_whole_request(world: Simulated) -> None:
    create(world, topic("other"))
    plain = world.produce_request("other", [b"v"])
    bad = world.produce_request("t", [b"v"], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    object.__setattr__(plain, "topic_data", (*plain.topic_data, *bad.topic_data))
    answer = world.ask(plain, 9)
    errors = [part.error_code for each in answer.responses for part in each.partition_responses]
    assert errors == [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert world.end_offset("other") == 0


@pytest.mark.parametrize(
    ("position", "new"), [(75, b"\xff"), (65, b"\x81\x00")], ids=["header key", "null key of two bytes"]
)
def test_what_the_scan_accepts_can_be_decoded(position: int, new: bytes) -> None:
    batch = build_batch([(NOW, None, b"value", (("h", b"1"),))])
    changed = bytearray(batch)
    if len(new) == 1:
        changed[batch.index(b"h", 61)] = new[0]
    else:
        changed[position : position + 1] = new
        changed[61] += 2  # the length of the record, as a zigzag varint
        changed[8:12] = (len(changed) - 12).to_bytes(4, "big")
    ((_, header),) = batch_headers(bytes(changed))
    scan = scan_records(bytes(changed), header)
    (record,) = decode_records(bytes(changed))[1]
    assert (record.value, scan.keyless) == (b"value", (0,))
    again = build_batch([record[1:]])
    assert decode_records(again)[1][0][1:] == record[1:]


# -- groups ---------------------------------------------------------------------------------------------


def committed(world: Simulated, metadata: str) -> ErrorCode:
    world.coordinator("g", 0)
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata=metadata)
    topics = (OffsetCommitRequestTopic(name="t", partitions=(part,)),)
    body = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics)
    world.wait(lambda: world.ask(body, 8).topics[0].partitions[0].error_code != E.NOT_COORDINATOR)
    return ErrorCode(world.ask(body, 8).topics[0].partitions[0].error_code)


def test_metadata_is_measured_as_java_does(world: Simulated) -> None:
    sizes = [4_096 * "é", 4_097 * "é", 2_048 * "😀", 2_049 * "😀"]
    large = E.OFFSET_METADATA_TOO_LARGE
    assert [committed(world, each) for each in sizes] == [E.NONE, large, E.NONE, large]


def group(*members: bytes, kind: str = "consumer", protocol: str | None = "range") -> Group:
    found = Group("g", protocol_type=kind, protocol=protocol)
    for number, metadata in enumerate(members):
        member = Member(str(number), None, "", "", 1_000, 1_000, (("range", metadata),))
        found.members[member.member_id] = member
    return found


def test_a_subscription_that_is_not_known_may_be_of_any_topic() -> None:
    known = encode_subscription(ConsumerProtocolSubscription(topics=("t",)))
    assert [may_be_subscribed(group(known), name) for name in ("t", "u")] == [True, False]
    assert may_be_subscribed(group(known, b"?"), "u")
    assert may_be_subscribed(group(known, protocol=None), "u")
    assert not may_be_subscribed(group(), "t")
    assert not may_be_subscribed(group(b"?", kind="connect"), "t")


# -- logs ----------------------------------------------------------------------------------------------


def append(log: Log, key: bytes, value: bytes | None, timestamp: int = NOW, **batch: Any) -> None:
    data = build_batch([(timestamp, key, value, ())], **batch)
    ((_, header),) = batch_headers(data)
    log.append_as_leader(data, header, 0)


def compact(log: Log) -> None:
    log.begin_flush()
    log.complete_flush()
    install(log, clean(log, 0, cleanable_end(log, NOW, log.log_end_offset), NOW))


@pytest.mark.parametrize("timestamp", [NOW, NOW - INT64_MAX, 0])
def test_a_tombstone_is_readable_whatever_its_times_are(timestamp: int) -> None:
    config = LogConfig(segment_bytes=400, cleanup_policy=frozenset({"compact"}), delete_retention_ms=INT64_MAX)
    log = Log(SimulatedDisk(), FOLDER, config)
    append(log, b"a", None, timestamp)
    for _ in range(8):
        append(log, b"b", bytes(50))
    compact(log)
    (first, *_) = [log.decode(batch)[1] for batch in [log.read(0, 1 << 20, 9, at_least_one=True)]]
    assert (first[0].key, first[0].value, first[0].timestamp) == (b"a", None, timestamp)


def test_a_segment_that_compaction_has_emptied_does_not_stop_retention() -> None:
    policy = frozenset({"compact", "delete"})
    log = Log(SimulatedDisk(), FOLDER, LogConfig(segment_bytes=300, cleanup_policy=policy, retention_ms=1_000))
    for number in range(12):
        append(log, b"a" if number < 6 else b"%d" % number, bytes(50))
    compact(log)
    assert not log.segments[0].size
    retain(log, NOW, log.log_end_offset)
    assert log.log_start_offset == 0, "nothing is old yet"
    retain(log, NOW + 2_000, log.log_end_offset)
    assert log.log_start_offset == log.log_end_offset


@pytest.mark.parametrize("clean_stop", [True, False])
def test_a_producer_whose_batches_are_deleted_is_known_after_a_restart(clean_stop: bool) -> None:
    fs = SimulatedDisk()
    log = Log(fs, FOLDER, LogConfig(segment_bytes=300))
    append(log, b"k", b"v", producer_id=7, producer_epoch=3, base_sequence=0)
    for _ in range(12):
        append(log, b"k", bytes(100))
    log.advance_log_start(log.log_end_offset)
    log.close()
    again = Log(fs, FOLDER, LogConfig(segment_bytes=300), recovery_point=log.log_end_offset, clean=clean_stop)
    assert again.producers.entries[7].epoch == 3


def test_the_last_stable_offset_is_not_before_the_log() -> None:
    log = Log(SimulatedDisk(), FOLDER, LogConfig())
    append(log, b"k", b"v", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    append(log, b"k", b"w")
    assert log.producers.last_stable_offset(2) == 0
    log.advance_log_start(1)
    assert log.producers.last_stable_offset(2) == 1
