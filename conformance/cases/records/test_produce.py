"""Produce: appended and rejected batches, and the acks values."""

import struct

import pytest
from crc32c import crc32c

from highwater.conformance.cases.support.admin import change_configs, controller
from highwater.conformance.cases.support.offsets import epoch_end
from highwater.conformance.cases.support.producers import IdempotentProducer, sequenced
from highwater.conformance.cases.support.replicas import await_isr
from highwater.conformance.clause import CODECS, clause, era, sweep
from highwater.conformance.client.broker import NOW_MS, Broker, Topic, batch, produce_request, records_of
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import GuardOff, Reply, Request, StaysOpen, defect, increment
from highwater.conformance.expectations import expect, only
from highwater.conformance.models.settings import SET
from highwater.conformance.targets.base import PAUSE_NODE, STOP_NODE
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from highwater.reference.wire.messages.topics import CreateTopicsRequest
from highwater.reference.wire.records import batch_headers, build_batch
from highwater.reference.wire.registry import api_of

MAGIC_AT, CRC_AT, ATTRIBUTES_AT, LAST_DELTA_AT, COUNT_AT = 16, 17, 21, 23, 57
EPOCH_AT = 12
SILENCE_S = 0.3
RECORD_ERRORS_SINCE = 8
RECORDS = "topic_data.partition_data.records"
ACCEPTED = Reply(ProduceRequest, "responses.partition_responses.error_code", 0)


def patched(data: bytes, position: int, replacement: bytes) -> bytes:
    """Replace bytes of a batch and recompute its checksum."""
    changed = data[:position] + replacement + data[position + len(replacement) :]
    return changed[:CRC_AT] + struct.pack(">I", crc32c(changed[ATTRIBUTES_AT:])) + changed[ATTRIBUTES_AT:]


def fix_checksum(data: bytes) -> bytes:
    return patched(data, len(data), b"")


def restore_client_epoch(data: bytes) -> bytes:
    return data[:EPOCH_AT] + struct.pack(">i", 99) + data[EPOCH_AT + 4 :]


def assert_refused(leader: Broker, topic: Topic, data: bytes | None, error: int | set[int]) -> None:
    """The broker returns the error and the log stays empty."""
    expect("error code of Produce", error, leader.produce(topic, data).error_code)
    expect("end offset after the error", 0, leader.end_offset(topic))


@clause("PRD-1")
@defect(Request(ProduceRequest, "acks", 1), Request(ProduceRequest, "topic_data", ()))
def test_acks_0_has_no_reply(cluster: Cluster, leader: Broker, topic: Topic) -> None:
    leader.send(produce_request(topic, batch(b"v"), acks=0), leader.version_of(ProduceRequest))
    leader.expect_silence(SILENCE_S)
    cluster.eventually("an end offset of 1", lambda: leader.end_offset(topic) == 1)


@clause("PRD-2")
@defect(StaysOpen(), Request(ProduceRequest, "acks", 1))
def test_an_error_under_acks_0_ends_the_connection(leader: Broker, topic: Topic) -> None:
    request = produce_request(topic, batch(b"v"), acks=0, partition=1000)
    leader.send(request, leader.version_of(ProduceRequest))
    leader.expect_disconnect()


@clause("PRD-2")
@pytest.mark.parametrize("refused", ["second partition", "first topic", "second topic"])
@defect(StaysOpen())
def test_an_error_of_any_partition_under_acks_0_ends_the_connection(
    cluster: Cluster, leader: Broker, topic: Topic, refused: str
) -> None:
    accepted, unknown = (topic.name, [topic.partition]), (cluster.name(), [0])
    requested: dict[str, list[tuple[str, list[int]]]] = {
        "second partition": [(topic.name, [topic.partition, 1000])],
        "first topic": [unknown, accepted],
        "second topic": [accepted, unknown],
    }
    topics = tuple(
        TopicProduceData(
            name=name,
            partition_data=tuple(PartitionProduceData(index=index, records=batch(b"v")) for index in indexes),
        )
        for name, indexes in requested[refused]
    )
    leader.send(ProduceRequest(acks=0, timeout_ms=4000, topic_data=topics), leader.version_of(ProduceRequest))
    leader.expect_disconnect()


@clause("PRD-3")
@defect(ACCEPTED, Request(ProduceRequest, "acks", -1))
@pytest.mark.parametrize("acks", [2, -2, 1000])
def test_other_acks_are_refused(leader: Broker, topic: Topic, acks: int) -> None:
    expect("error code", ErrorCode.INVALID_REQUIRED_ACKS, leader.produce(topic, batch(b"v"), acks=acks).error_code)
    expect("end offset after the error", 0, leader.end_offset(topic))


@clause("PRD-4")
@defect(Reply(ProduceRequest, "responses.partition_responses.base_offset", increment))
@sweep(ProduceRequest, 3)
def test_offsets_are_given_without_gaps(leader: Broker, topic: Topic, version: int) -> None:
    for base_offset in (0, 2, 4):
        answer = leader.produce(topic, batch(b"a", b"b"), version=version)
        expect("error code and base offset", (0, base_offset), (answer.error_code, answer.base_offset))
    read = records_of(leader.fetch(topic, 0).records)
    expect("offsets in the log", list(range(6)), [record.offset for record in read])


@clause("PRD-5", "partition")
@defect(ACCEPTED)
def test_an_unknown_partition_is_an_error(leader: Broker, topic: Topic) -> None:
    expect(
        "error code",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        leader.produce(topic, batch(b"v"), partition=1000).error_code,
    )


@clause("PRD-5", "topic")
@defect(ACCEPTED)
def test_an_unknown_topic_is_an_error(cluster: Cluster, broker: Broker) -> None:
    nowhere = Topic(cluster.name(), broker.address, 0)
    expect("error code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, broker.produce(nowhere, batch(b"v")).error_code)


@clause("PRD-6")
@defect(ACCEPTED)
@pytest.mark.parametrize("acks", [1, -1])
def test_only_the_leader_takes_records(cluster: Cluster, topic: Topic, acks: int) -> None:
    cluster.need_brokers(2)
    other = next(address for node, address in cluster.target.addresses.items() if node != topic.leader_id)
    expect(
        "error code",
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        cluster.connect(other).produce(topic, batch(b"v"), acks=acks).error_code,
    )
    expect("end offset at the leader", 0, cluster.leader(topic).end_offset(topic))


@clause("PRD-7")
@defect(Request(ProduceRequest, RECORDS, fix_checksum))
def test_a_wrong_checksum_is_refused(leader: Broker, topic: Topic) -> None:
    good = batch(b"value")
    assert_refused(leader, topic, good[:-1] + bytes([good[-1] ^ 1]), ErrorCode.CORRUPT_MESSAGE)


@clause("PRD-8")
@defect(Request(ProduceRequest, RECORDS, batch(b"v")))
@pytest.mark.parametrize("magic", [0, 1, 3])
def test_another_magic_is_refused(leader: Broker, topic: Topic, magic: int) -> None:
    data = batch(b"v")
    assert_refused(
        leader,
        topic,
        data[:MAGIC_AT] + bytes([magic]) + data[MAGIC_AT + 1 :],
        {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE},
    )


@clause("PRD-9", "two")
@defect(Request(ProduceRequest, RECORDS, batch(b"a")))
def test_two_batches_are_refused(leader: Broker, topic: Topic) -> None:
    assert_refused(leader, topic, batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD)


@clause("PRD-10", "count")
@defect(Request(ProduceRequest, RECORDS, batch(b"a", b"b")))  # KAFKA-6554
def test_a_wrong_record_count_is_refused(leader: Broker, topic: Topic) -> None:
    assert_refused(leader, topic, patched(batch(b"a", b"b"), COUNT_AT, struct.pack(">i", 1)), ErrorCode.INVALID_RECORD)


@clause("PRD-10", "delta")
@defect(Request(ProduceRequest, RECORDS, batch(b"a", b"b")))  # KAFKA-6554
def test_a_wrong_last_offset_delta_is_refused(leader: Broker, topic: Topic) -> None:
    assert_refused(
        leader, topic, patched(batch(b"a", b"b"), LAST_DELTA_AT, struct.pack(">i", 5)), ErrorCode.INVALID_RECORD
    )


@clause("PRD-11")
@defect(Request(ProduceRequest, RECORDS, batch(b"v")))
def test_a_control_batch_of_a_client_is_refused(leader: Broker, topic: Topic) -> None:
    assert_refused(leader, topic, batch(b"v", control=True), ErrorCode.INVALID_RECORD)


@clause("PRD-12")
@defect(ACCEPTED)
def test_zstd_is_refused_before_version_7(leader: Broker, topic: Topic) -> None:
    answer = leader.produce(topic, batch(b"v", compression=Compression.ZSTD), version=6)
    expect("error code", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, answer.error_code)


@clause("PRD-13")
@defect(Request(CreateTopicsRequest, "topics.configs", ()), ACCEPTED)
def test_a_batch_beyond_the_limit_is_refused(cluster: Cluster) -> None:
    topic = cluster.create_topic(configs={"max.message.bytes": "1000"})
    leader = cluster.leader(topic)
    assert_refused(leader, topic, batch(b"x" * 1000), ErrorCode.MESSAGE_TOO_LARGE)
    expect("error code below the limit", 0, leader.produce(topic, batch(b"x" * 100)).error_code)


@clause("PRD-13", "limit")
@defect(Reply(ProduceRequest, "responses.partition_responses.error_code", ErrorCode.MESSAGE_TOO_LARGE))
def test_the_largest_batch_is_accepted(cluster: Cluster) -> None:
    data = batch(b"x" * 1000)
    accepting = cluster.create_topic(configs={"max.message.bytes": str(len(data))})
    expect("error code at the limit", 0, cluster.leader(accepting).produce(accepting, data).error_code)
    refusing = cluster.create_topic(configs={"max.message.bytes": str(len(data) - 1)})
    assert_refused(cluster.leader(refusing), refusing, data, ErrorCode.MESSAGE_TOO_LARGE)


@clause("PRD-16")
@defect(
    Request(CreateTopicsRequest, "topics.configs", ()),
    Reply(ProduceRequest, "responses.partition_responses.log_append_time_ms", increment),
)
def test_the_broker_puts_its_time_where_the_topic_says_so(cluster: Cluster) -> None:
    topic = cluster.create_topic(configs={"message.timestamp.type": "LogAppendTime"})
    leader = cluster.leader(topic)
    answer = leader.produce(topic, batch(b"v", timestamp_ms=1000))
    expect("the reply has the current time", True, answer.log_append_time_ms > NOW_MS)
    record = only(tuple(records_of(leader.fetch(topic, 0).records)))
    expect("time of the stored record", answer.log_append_time_ms, record.timestamp)


@clause("PRD-17")
@defect(Request(ProduceRequest, RECORDS, batch(b"v")))
@pytest.mark.parametrize("codec", CODECS)
def test_each_codec_comes_back_as_it_was(leader: Broker, topic: Topic, codec: Compression) -> None:
    values = [b"value %d" % number * 20 for number in range(20)]
    expect("error code", 0, leader.produce(topic, batch(*values, compression=codec)).error_code)
    read = records_of(leader.fetch(topic, 0).records)
    expect("values", True, [record.value for record in read] == values)


@clause("PRD-18")
@defect(GuardOff("AppendNeedsMinIsr"), Request(CreateTopicsRequest, "topics.configs", ()))
@pytest.mark.cluster_fault
def test_too_small_an_isr_is_refused_for_acks_all_only(cluster: Cluster) -> None:
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    topic = cluster.create_topic(replicas=3, configs={"min.insync.replicas": "3"})
    follower = next(node for node in cluster.target.addresses if node != topic.leader_id)
    leader = cluster.leader(topic)
    # On a busy machine a follower may leave the ISR for a moment.
    cluster.eventually(
        "a Produce with all replicas in sync", lambda: leader.produce(topic, batch(b"a")).error_code == 0, 15.0
    )
    cluster.stop(follower)
    cluster.eventually("an ISR of two", lambda: len(cluster.isr_of(topic)) == 2, 15.0)
    cluster.eventually(
        "NOT_ENOUGH_REPLICAS",
        lambda: leader.produce(topic, batch(b"b"), timeout_ms=500).error_code == ErrorCode.NOT_ENOUGH_REPLICAS,
        5.0,
    )
    before = leader.produce(topic, batch(b"c"), acks=1)
    expect("error code with acks 1", 0, before.error_code)
    cluster.start(follower)


@clause("PRD-21")
@defect(GuardOff("AckAfterCommit"), Request(ProduceRequest, "acks", 1))
@pytest.mark.cluster_fault
def test_acks_all_times_out_while_a_member_of_the_isr_is_silent(cluster: Cluster) -> None:
    cluster.need(PAUSE_NODE)
    cluster.need_brokers(3)
    topic = cluster.create_topic(replicas=3)
    leader = cluster.leader(topic)
    expect("error code with all followers running", 0, leader.produce(topic, batch(b"a")).error_code)
    await_isr(cluster, topic, 3)
    cluster.pause(next(node for node in cluster.target.addresses if node != topic.leader_id))
    expect("error code", ErrorCode.REQUEST_TIMED_OUT, leader.produce(topic, batch(b"b"), timeout_ms=300).error_code)


@clause("PRD-21", "repeated")
@defect(Request(ProduceRequest, "acks", 1))
@pytest.mark.cluster_fault
def test_a_repeated_batch_is_acknowledged_no_earlier(cluster: Cluster) -> None:
    cluster.need(PAUSE_NODE)
    cluster.need_brokers(3)
    producer = IdempotentProducer.create(cluster, cluster.create_topic(replicas=3))
    producer.send_accepted(0, 2)
    await_isr(cluster, producer.topic, 3)
    cluster.pause(next(node for node in cluster.target.addresses if node != producer.topic.leader_id))
    records = sequenced(cluster.clock, producer.producer_id, producer.epoch, 2, b"a", b"b", b"c")
    for attempt in ("first", "repeated"):
        answer = producer.broker.produce(producer.topic, records, timeout_ms=300)
        expect(f"error code of the {attempt} batch", ErrorCode.REQUEST_TIMED_OUT, answer.error_code)


@clause("PRD-21", "several")
@defect(Reply(ProduceRequest, "responses.partition_responses.error_code", ErrorCode.REQUEST_TIMED_OUT))
@pytest.mark.cluster_fault
def test_all_that_wait_are_acknowledged_once_they_are_replicated(cluster: Cluster) -> None:
    cluster.need(PAUSE_NODE)
    cluster.need_brokers(3)
    topic = cluster.create_topic(replicas=3)
    follower = next(node for node in cluster.target.addresses if node != topic.leader_id)
    writers = [cluster.leader(topic) for _ in range(4)]
    expect("error code with all followers running", 0, writers[0].produce(topic, batch(b"v")).error_code)
    await_isr(cluster, topic, 3)
    cluster.pause(follower)
    version = writers[0].version_of(ProduceRequest)
    request = produce_request(topic, batch(b"v"), timeout_ms=20_000)
    numbers = [writer.send(request, version) for writer in writers]
    with cluster.leader(topic) as reader:
        cluster.eventually("the records in the log", lambda: _log_end(reader, topic) == 1 + len(writers))
    cluster.resume(follower)
    for writer, number in zip(writers, numbers, strict=True):
        reply = writer.receive(api_of(ProduceRequest), version, number, 25.0)
        expect("error code", 0, only(only(reply.responses).partition_responses).error_code)


def _log_end(leader: Broker, topic: Topic) -> int:
    """Return the end of the leader's log, which is above the high watermark: the end of its current epoch."""
    return epoch_end(leader, topic, topic.leader_epoch).end_offset


@clause("PRD-18", "altered")
@defect(Reply(ProduceRequest, "responses.partition_responses.error_code", 0))
@pytest.mark.cluster_fault
@pytest.mark.slow
def test_an_altered_min_insync_replicas_applies_at_once(cluster: Cluster) -> None:
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    topic = cluster.create_topic(replicas=3)
    leader = cluster.leader(topic)
    cluster.stop(next(node for node in cluster.target.addresses if node != topic.leader_id))
    cluster.eventually("an ISR of two", lambda: len(cluster.isr_of(topic)) == 2, 15.0)
    for wanted, error in (("2", 0), ("3", int(ErrorCode.NOT_ENOUGH_REPLICAS)), ("1", 0)):
        with controller(cluster) as broker:
            changed = change_configs(broker, topic.name, ("min.insync.replicas", SET, wanted))
        expect(f"error code of the change to {wanted}", 0, changed)

        def is_applied(error: int = error) -> bool:
            return leader.produce(topic, batch(b"v"), timeout_ms=500).error_code == error

        cluster.eventually(f"error code {error} with min.insync.replicas {wanted}", is_applied)


@clause("PRD-18", "more than replicas")
@era("3.7")  # KIP-966
@defect(Reply(ProduceRequest, "responses.partition_responses.error_code", ErrorCode.NOT_ENOUGH_REPLICAS))
def test_a_topic_never_needs_more_replicas_than_it_has(cluster: Cluster) -> None:
    """Partition.effectiveMinIsr: the smaller of min.insync.replicas and the number of replicas."""
    topic = cluster.create_topic(replicas=1, configs={"min.insync.replicas": "3"})
    leader = cluster.leader(topic)
    answer = leader.produce(topic, batch(b"v"))
    expect("error code and offset", (0, 0), (answer.error_code, answer.base_offset))
    cluster.eventually("the record to be committed", lambda: len(records_of(leader.fetch(topic, 0).records)) == 1)


@clause("PRD-19")
@defect(Request(ProduceRequest, RECORDS, batch(b"", None)))
def test_headers_and_nulls_are_kept(leader: Broker, topic: Topic) -> None:
    headers = (("h", b"1"), ("h", b"2"), ("null", None), ("empty", b""))
    written = [(NOW_MS, None, b"", headers), (NOW_MS, b"", None, ())]
    expect("error code", 0, leader.produce(topic, build_batch(written)).error_code)
    read = records_of(leader.fetch(topic, 0).records)
    expect(
        "records",
        True,
        [(record.timestamp, record.key, record.value, tuple(record.headers)) for record in read] == written,
    )


@clause("PRD-20")
@defect(
    ACCEPTED, Reply(ProduceRequest, "responses.partition_responses.error_code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
)
def test_one_bad_partition_fails_alone(leader: Broker, topic: Topic) -> None:
    data = tuple(PartitionProduceData(index=index, records=batch(b"v")) for index in (topic.partition, 1000))
    topics = (TopicProduceData(name=topic.name, partition_data=data),)
    reply = leader.call(ProduceRequest(acks=-1, timeout_ms=4000, topic_data=topics))
    answers = {partition.index: partition.error_code for partition in only(reply.responses).partition_responses}
    expect("error codes", True, answers == {topic.partition: 0, 1000: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    expect("end offset of the existing partition", 1, leader.end_offset(topic))


@clause("PRD-23")
@defect(Reply(FetchRequest, "responses.partitions.records", restore_client_epoch))
def test_the_leader_stamps_offset_and_epoch(leader: Broker, topic: Topic) -> None:
    for _ in range(2):
        leader.produce(topic, batch(b"v", partition_leader_epoch=99))
    headers = [header for _, header in batch_headers(leader.fetch(topic, 0).records or b"")]
    expect("base offsets", True, [header.base_offset for header in headers] == [0, 1])
    expect(
        "leader epochs are not those of the client",
        True,
        all(header.partition_leader_epoch != 99 for header in headers),
    )


@clause("PRD-22")
@defect(Request(ProduceRequest, RECORDS, batch(b"v")))
def test_a_base_offset_of_the_client_is_refused(leader: Broker, topic: Topic) -> None:
    assert_refused(leader, topic, batch(b"v", base_offset=7), ErrorCode.INVALID_RECORD)


@clause("PRD-14")
@defect(Request(CreateTopicsRequest, "topics.configs", ()), ACCEPTED)
@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_a_compacted_topic_needs_keys(cluster: Cluster, policy: str) -> None:
    topic = cluster.create_topic(configs={"cleanup.policy": policy})
    assert_refused(cluster.leader(topic), topic, build_batch([(NOW_MS, None, b"v", ())]), ErrorCode.INVALID_RECORD)


@clause("PRD-14", "each record")
@defect(Reply(ProduceRequest, "responses.partition_responses.record_errors", lambda errors: errors[:1]))
def test_every_record_without_a_key_is_reported(cluster: Cluster) -> None:
    topic = cluster.create_topic(configs={"cleanup.policy": "compact"})
    leader = cluster.leader(topic)
    leader.version_of(ProduceRequest, RECORD_ERRORS_SINCE)
    answer = leader.produce(topic, build_batch([(NOW_MS, key, b"v", ()) for key in (None, b"k", None)]))
    expect("error code", ErrorCode.INVALID_RECORD, answer.error_code)
    expect("indexes of the records", (0, 2), tuple(error.batch_index for error in answer.record_errors))


@clause("PRD-4", "partitions")
@defect(
    Request(ProduceRequest, "topic_data.partition_data.index", 0),
    Reply(ProduceRequest, "responses.partition_responses.base_offset", increment),
)
def test_each_partition_is_a_log_of_its_own(cluster: Cluster) -> None:
    last = cluster.create_topic(partitions=3)
    parts = [cluster.topic(last.name, partition=index) for index in range(3)]
    for count, part in enumerate(parts, 1):
        values = [b"%d of %d" % (number, part.partition) for number in range(count)]
        answer = cluster.leader(part).produce(part, batch(*values))
        expect(
            f"error code and base offset of partition {part.partition}", (0, 0), (answer.error_code, answer.base_offset)
        )
    for count, part in enumerate(parts, 1):
        leader = cluster.leader(part)
        found = [record.value for record in records_of(leader.fetch(part, 0).records)]
        expected = [b"%d of %d" % (number, part.partition) for number in range(count)]
        expect(f"values of partition {part.partition}: {found}", True, found == expected)
        expect(f"end offset of partition {part.partition}", count, leader.end_offset(part))
