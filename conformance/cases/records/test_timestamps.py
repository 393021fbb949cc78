"""Timestamps of records: CreateTime and LogAppendTime, their limits, and the fields of the reply."""

import struct

import pytest

from highwater.conformance.cases.support.producers import IdempotentProducer, sequenced
from highwater.conformance.clause import CODECS, clause, era, sweep
from highwater.conformance.client.broker import NOW_MS, Broker, Topic, batch, now_ms, produce_request, records_of
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, defect, increment, without_error
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Unsupported
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.offsets import ListOffsetsRequest
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.records import NewRecord, TimestampType, batch_headers, build_batch

ERROR = "responses.partition_responses.error_code"
DAY_MS = 86_400_000
MAX_TIMESTAMP, NONE = -3, -1
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


@clause("PRD-15")
@pytest.mark.parametrize("days", [-2, 2])
@defect(Reply(ProduceRequest, ERROR, without_error(ErrorCode.INVALID_TIMESTAMP)))
def test_a_time_too_far_from_the_brokers_is_refused(cluster: Cluster, days: int) -> None:
    limits = {f"message.timestamp.{side}.max.ms": str(DAY_MS) for side in ("before", "after")}
    topic = cluster.create_topic(configs=limits)
    leader = cluster.leader(topic)
    answer = leader.produce(topic, batch(b"v", timestamp_ms=now_ms(leader.clock) + days * DAY_MS))
    expect("error code", ErrorCode.INVALID_TIMESTAMP, answer.error_code)
    expect(
        "error code of a time within the limits",
        0,
        leader.produce(topic, batch(b"v", timestamp_ms=now_ms(leader.clock))).error_code,
    )
    expect("end offset", 1, leader.end_offset(topic))


@clause("PRD-15", "one limit")
@pytest.mark.parametrize(("side", "days"), [("before", -2), ("after", 2)])
@defect(Reply(ProduceRequest, ERROR, without_error(ErrorCode.INVALID_TIMESTAMP)))
def test_each_limit_is_for_one_direction(cluster: Cluster, side: str, days: int) -> None:
    topic = cluster.create_topic(
        configs={
            "message.timestamp.before.max.ms": str(10 * DAY_MS),
            "message.timestamp.after.max.ms": str(10 * DAY_MS),
            f"message.timestamp.{side}.max.ms": str(DAY_MS),
        }
    )
    leader = cluster.leader(topic)
    refused = leader.produce(topic, batch(b"v", timestamp_ms=now_ms(leader.clock) + days * DAY_MS))
    expect("error code", ErrorCode.INVALID_TIMESTAMP, refused.error_code)
    accepted = leader.produce(topic, batch(b"v", timestamp_ms=now_ms(leader.clock) - days * DAY_MS))
    expect("error code in the other direction", 0, accepted.error_code)


@clause("PRD-15", "older setting")
@era(until="3.9")
@pytest.mark.parametrize("days", [-2, 2])
@defect(Reply(ProduceRequest, ERROR, without_error(ErrorCode.INVALID_TIMESTAMP)))
def test_the_older_setting_limits_both_directions(cluster: Cluster, days: int) -> None:
    """Where the newer ones have their defaults (KIP-937, LogConfig.messageTimestampAfterMaxMs)."""
    topic = cluster.create_topic(configs={"message.timestamp.difference.max.ms": str(DAY_MS)})
    leader = cluster.leader(topic)
    answer = leader.produce(topic, batch(b"v", timestamp_ms=now_ms(leader.clock) + days * DAY_MS))
    expect("error code", ErrorCode.INVALID_TIMESTAMP, answer.error_code)


@clause("PRD-15", "append time")
@pytest.mark.parametrize("days", [-2, 2])
@defect(Reply(ProduceRequest, ERROR, ErrorCode.INVALID_TIMESTAMP))
def test_the_limits_do_not_concern_times_that_the_broker_replaces(cluster: Cluster, days: int) -> None:
    limits = {f"message.timestamp.{side}.max.ms": str(DAY_MS) for side in ("before", "after")}
    topic = cluster.create_topic(configs=limits | APPEND_TIME)
    answer = cluster.leader(topic).produce(topic, batch(b"v", timestamp_ms=cluster.now_ms() + days * DAY_MS))
    expect("error code", 0, answer.error_code)


@clause("PRD-15", "no time")
@defect(Reply(ProduceRequest, ERROR, ErrorCode.INVALID_TIMESTAMP))
def test_the_limits_do_not_concern_records_without_a_time(cluster: Cluster) -> None:
    limits = {f"message.timestamp.{side}.max.ms": str(DAY_MS) for side in ("before", "after")}
    topic = cluster.create_topic(configs=limits)
    answer = cluster.leader(topic).produce(topic, batch(b"v", timestamp_ms=-1))
    expect("error code", 0, answer.error_code)


@clause("PRD-27")
@sweep(ProduceRequest, 3)
@defect(Reply(ProduceRequest, "responses.partition_responses.log_append_time_ms", NOW_MS))
def test_the_clients_time_is_kept(leader: Broker, topic: Topic, version: int) -> None:
    answer = leader.produce(topic, batch(b"v", timestamp_ms=NOW_MS + 7), version=version)
    expect("append time of the reply", NONE, answer.log_append_time_ms)
    data = leader.fetch(topic, 0).records
    expect("time of the record", NOW_MS + 7, records_of(data)[0].timestamp)


@clause("PRD-27", "type of the client")
@era("3.9")  # 2.8.2 rejects the batch with INVALID_TIMESTAMP
@pytest.mark.parametrize("codec", CODECS)
@defect(Reply(FetchRequest, "responses.partitions.records", lambda data: data[:22] + b"\x08" + data[23:]))
def test_the_topic_says_what_kind_of_time_is_stored(leader: Broker, topic: Topic, codec: Compression) -> None:
    """With the type of the client, consumers would take the largest time of the batch for that of each record."""
    times = [NOW_MS, NOW_MS + 2000, NOW_MS + 1000]
    records: list[NewRecord] = [(each, b"k", b"v", ()) for each in times]
    stamped = build_batch(records, compression=codec, timestamp_type=TimestampType.LOG_APPEND_TIME)
    answer = leader.produce(topic, stamped)
    expect("error code and append time of the reply", (0, NONE), (answer.error_code, answer.log_append_time_ms))
    data = leader.fetch(topic, 0).records or b""
    header = next(header for _, header in batch_headers(data))
    expect(
        "type and largest time", (TimestampType.CREATE_TIME, max(times)), (header.timestamp_type, header.max_timestamp)
    )
    expect("times of the records", times, [record.timestamp for record in records_of(data)])


@clause("PRD-16", "codecs")
@pytest.mark.parametrize("codec", CODECS)
@defect(Reply(ProduceRequest, "responses.partition_responses.log_append_time_ms", NONE))
def test_the_brokers_time_replaces_every_records(cluster: Cluster, codec: Compression) -> None:
    topic = cluster.create_topic(configs=APPEND_TIME)
    leader = cluster.leader(topic)
    records = [(NOW_MS + 1000 * number, b"k", b"v", ()) for number in range(3)]
    answer = leader.produce(topic, build_batch(records, compression=codec))
    read = records_of(leader.fetch(topic, 0).records)
    expect("times of the records", True, [record.timestamp for record in read] == [answer.log_append_time_ms] * 3)


@clause("PRD-16", "repeated batch")
@defect(Reply(ProduceRequest, "responses.partition_responses.log_append_time_ms", NONE))
def test_a_repeated_batch_has_the_time_of_the_stored_one(cluster: Cluster) -> None:
    topic = cluster.create_topic(configs=APPEND_TIME)
    producer = IdempotentProducer.create(cluster, topic)
    records = sequenced(cluster.clock, producer.producer_id, producer.epoch, 0, b"v")
    leader = cluster.leader(topic)
    times = []
    for _ in range(2):
        answer = leader.produce(topic, records)
        expect("error code and offset", (0, 0), (answer.error_code, answer.base_offset))
        times.append(answer.log_append_time_ms)
    stored = only(tuple(records_of(leader.fetch(topic, 0).records))).timestamp
    expect(f"times of both replies and of the record: {times}", True, times == [stored] * 2)


@clause("LST-17")
@defect(Reply(ListOffsetsRequest, "topics.partitions.offset", increment))
def test_times_of_the_broker_are_looked_up_as_any(cluster: Cluster) -> None:
    topic = cluster.create_topic(configs=APPEND_TIME)
    leader = cluster.leader(topic)
    stored = leader.produce(topic, batch(b"a", b"b", timestamp_ms=NOW_MS)).log_append_time_ms
    for requested, offset in ((NOW_MS, 0), (stored, 0), (stored + 1, NONE)):
        expect(f"offset for {requested - stored} from the append", offset, leader.list_offset(topic, requested).offset)


@clause("PRD-28")
@pytest.mark.parametrize("order", [(1, 3, 2), (3, 1, 2)])
@defect(Reply(FetchRequest, "responses.partitions.records", lambda data: data[:35] + struct.pack(">q", 7) + data[43:]))
def test_a_batch_tells_its_largest_time(leader: Broker, topic: Topic, order: tuple[int, ...]) -> None:
    leader.produce(topic, build_batch([(NOW_MS + delta, b"k", b"v", ()) for delta in order]))
    header = next(header for _, header in batch_headers(leader.fetch(topic, 0).records or b""))
    expect("base and largest time", (NOW_MS + order[0], NOW_MS + 3), (header.base_timestamp, header.max_timestamp))


# -- rejected batches ------------------------------------------------------------------------------------


@clause("PRD-9", "none")
@defect(Reply(ProduceRequest, ERROR, without_error(ErrorCode.INVALID_RECORD)))
def test_no_batch_at_all_is_refused(leader: Broker, topic: Topic) -> None:
    expect("error code", ErrorCode.INVALID_RECORD, leader.produce(topic, b"").error_code)


@clause("PRD-29")
@sweep(ProduceRequest, 8)
@defect(
    Reply(ProduceRequest, "responses.partition_responses.record_errors", ()),
    Reply(ProduceRequest, "responses.partition_responses.error_message", None),
)
def test_the_records_at_fault_are_named(cluster: Cluster, version: int) -> None:
    topic = cluster.create_topic(configs={"cleanup.policy": "compact"})
    records = [(NOW_MS, b"k", b"v", ()), (NOW_MS, None, b"v", ()), (NOW_MS, b"k", b"v", ()), (NOW_MS, None, b"v", ())]
    answer = cluster.leader(topic).produce(topic, build_batch(records), version=version)
    expect("error code", ErrorCode.INVALID_RECORD, answer.error_code)
    expect(
        "indexes of the invalid records",
        True,
        [record_error.batch_index for record_error in answer.record_errors] == [1, 3],
    )
    expect("there is a message", True, bool(answer.error_message))


@clause("PRD-30")
@sweep(ProduceRequest, 10, 12)
@defect(
    Reply(ProduceRequest, "responses.partition_responses.current_leader.leader_id", NONE),
    Reply(ProduceRequest, "node_endpoints", ()),
)
def test_who_is_refused_hears_who_leads(cluster: Cluster, version: int) -> None:
    cluster.need_brokers(3)
    topic = cluster.create_topic(assignment=sorted(cluster.target.addresses))
    other = next(address for node, address in cluster.target.addresses.items() if node != topic.leader_id)
    broker = cluster.connect(other)
    broker.need(ProduceRequest, version)

    def hint() -> bool:
        reply = broker.call(_one_record(topic), version)
        answer = only(only(reply.responses).partition_responses)
        expect("error code", ErrorCode.NOT_LEADER_OR_FOLLOWER, answer.error_code)
        if answer.current_leader.leader_id == NONE and not reply.node_endpoints:
            raise Unsupported("the error reply has no leader")
        places = {endpoint.node_id: f"{endpoint.host}:{endpoint.port}" for endpoint in reply.node_endpoints}
        return answer.current_leader.leader_id == topic.leader_id and places == {topic.leader_id: topic.leader}

    cluster.eventually("the leader and its address in the reply", hint)


def _one_record(topic: Topic) -> ProduceRequest:
    return produce_request(topic, batch(b"v"))


@clause("PRD-31")
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", pytest.param("zstd", marks=era("2.1"))])
@defect(Reply(FetchRequest, "responses.partitions.records", lambda data: data[:22] + b"\0" + data[23:]))
def test_a_topic_with_a_codec_stores_in_it(cluster: Cluster, codec: str) -> None:
    topic = cluster.create_topic(configs={"compression.type": codec})
    leader = cluster.leader(topic)
    expect("error code", 0, leader.produce(topic, batch(b"v" * 500)).error_code)
    data = leader.fetch(topic, 0).records or b""
    header = next(header for _, header in batch_headers(data))
    expect("codec of the stored batch", codec, header.compression.name.lower())
    expect("value", b"v" * 500, records_of(data)[0].value)


@clause("PRD-31", "uncompressed")
@pytest.mark.parametrize("codec", CODECS)
@defect(Reply(FetchRequest, "responses.partitions.records", lambda data: data[:22] + b"\1" + data[23:]))
def test_a_topic_without_compression_stores_none(cluster: Cluster, codec: Compression) -> None:
    topic = cluster.create_topic(configs={"compression.type": "uncompressed"})
    leader = cluster.leader(topic)
    expect("error code", 0, leader.produce(topic, batch(b"v" * 500, compression=codec)).error_code)
    data = leader.fetch(topic, 0).records or b""
    header = next(header for _, header in batch_headers(data))
    expect("codec of the stored batch", "none", header.compression.name.lower())
    expect("value", b"v" * 500, records_of(data)[0].value)


@clause("PRD-32")
@defect(Reply(ProduceRequest, ERROR, without_error(ErrorCode.MESSAGE_TOO_LARGE)))
def test_the_limit_is_of_the_stored_batch(cluster: Cluster) -> None:
    """The batch of 10,000 bytes is smaller than the limit of 1,000 bytes after compression."""
    topic = cluster.create_topic(configs={"max.message.bytes": "1000"})
    leader = cluster.leader(topic)
    expect(
        "error code compressed", 0, leader.produce(topic, batch(b"x" * 10_000, compression=Compression.GZIP)).error_code
    )
    expect("error code plain", ErrorCode.MESSAGE_TOO_LARGE, leader.produce(topic, batch(b"x" * 10_000)).error_code)
