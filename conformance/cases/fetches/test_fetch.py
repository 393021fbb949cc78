"""Fetch: waiting, start offsets, high watermark and errors."""

import struct
from contextlib import suppress

import pytest

from highwater.conformance.cases.records.test_restarts import DAY_MS, QUICK_SEGMENTS
from highwater.conformance.clause import clause, sweep
from highwater.conformance.client.broker import NOW_MS, Broker, Topic, batch, fetch_request, records_of
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import GuardOff, Reply, Request, defect, increment
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import NoReply, TargetFailure, Unsupported
from highwater.conformance.targets.base import PAUSE_NODE
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.records import batch_headers
from highwater.reference.wire.registry import APIS

WAIT_MS = 400
SMALL_RECORDS = 40
RECORDS = "responses.partitions.records"
ERROR = "responses.partitions.error_code"
EPOCH_AT = 12


def drop_first_batch(data: bytes) -> bytes:
    starts = [position for position, _ in batch_headers(data)]
    return data[starts[1] :] if len(starts) > 1 else b""


def write_length_as_epoch(data: bytes) -> bytes:
    """Overwrite the leader epoch of the first batch with the length of the data, which differs in each reply."""
    return data[:EPOCH_AT] + struct.pack(">i", len(data)) + data[EPOCH_AT + 4 :]


@clause("FET-1")
@defect(Request(FetchRequest, "max_wait_ms", 0))
def test_an_empty_fetch_waits(leader: Broker, topic: Topic) -> None:
    began = leader.clock.monotonic()
    answer = leader.fetch(topic, 0, max_wait_ms=WAIT_MS)
    waited_ms = (leader.clock.monotonic() - began) * 1000
    expect("error code and records", (0, 0), (answer.error_code, len(answer.records or b"")))
    if waited_ms < WAIT_MS * 0.9:
        raise TargetFailure(f"expected a reply after {WAIT_MS} ms, actual {waited_ms:.0f} ms")


@clause("FET-39")
@defect(Reply(FetchRequest, "responses", ()))
def test_a_fetch_that_must_not_wait_brings_what_is_there(leader: Broker, topic: Topic) -> None:
    expect("error code of Produce", 0, leader.produce(topic, batch(b"a")).error_code)
    answer = leader.fetch(topic, 0, max_wait_ms=0)
    expect(
        "error code and values",
        (0, [b"a"]),
        (answer.error_code, [record.value for record in records_of(answer.records)]),
    )


@clause("FET-2")
@defect(Request(FetchRequest, "min_bytes", 1 << 20))
def test_new_records_wake_a_fetch(cluster: Cluster, leader: Broker, topic: Topic) -> None:
    version = leader.version_of(FetchRequest)
    number = leader.send(fetch_request(topic, max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20), version)
    cluster.leader(topic).produce(topic, batch(b"v"))

    reply = leader.receive(APIS[1], version, number)
    expect("number of records", 1, len(records_of(only(only(reply.responses).partitions).records)))


@clause("FET-2", "any partition")
@defect(Request(FetchRequest, "min_bytes", 1 << 20))
@pytest.mark.parametrize("written", [0, 1, 2])
def test_records_of_any_partition_wake_a_fetch(cluster: Cluster, written: int) -> None:
    node = min(cluster.target.addresses)
    topics = [cluster.create_topic(assignment=[node]) for _ in range(3)]
    leader = cluster.leader(topics[0])
    version = leader.version_of(FetchRequest)
    number = leader.send(fetch_request(*topics, max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20), version)
    cluster.leader(topics[written]).produce(topics[written], batch(b"v"))
    reply = leader.receive(APIS[1], version, number)
    found = {response.topic: len(records_of(only(response.partitions).records)) for response in reply.responses}
    expect("number of records", 1, found.get(topics[written].name))


@clause("FET-2", "together")
@defect(Request(FetchRequest, "min_bytes", 1 << 20))
def test_records_of_several_partitions_wake_a_fetch_together(cluster: Cluster) -> None:
    """Each partition has a third of min_bytes, the last one only after the fetch has arrived."""
    node = min(cluster.target.addresses)
    topics = [cluster.create_topic(assignment=[node]) for _ in range(3)]
    if len({topic.leader_id for topic in topics}) > 1:
        raise Unsupported("the target places replicas elsewhere than CreateTopics says")
    leader, writer = cluster.leader(topics[0]), cluster.leader(topics[0])
    for topic in topics[:2]:
        expect("error code of Produce", 0, writer.produce(topic, batch(b"v")).error_code)
    size = len(leader.fetch(topics[0], 0).records or b"")
    version = leader.version_of(FetchRequest)
    request = fetch_request(*topics, max_wait_ms=60_000, min_bytes=3 * size, max_bytes=1 << 20)
    number = leader.send(request, version)
    expect("error code of Produce", 0, writer.produce(topics[2], batch(b"v")).error_code)
    reply = leader.receive(APIS[1], version, number)
    found = {response.topic: len(records_of(only(response.partitions).records)) for response in reply.responses}
    expect("each topic has a record in the reply", True, found == {topic.name: 1 for topic in topics})


@clause("FET-2", "next segment")
@defect(Reply(FetchRequest, RECORDS, b""))
def test_records_of_the_next_segment_end_the_wait(cluster: Cluster) -> None:
    """A read ends with its segment, so it alone never has min_bytes (DelayedFetch, case F)."""
    topic = cluster.create_topic(configs=QUICK_SEGMENTS | {"retention.ms": "-1"})
    leader, sizes = cluster.leader(topic), []
    for offset, time_ms in enumerate((NOW_MS, NOW_MS + DAY_MS)):
        expect("error code of Produce", 0, leader.produce(topic, batch(b"v", timestamp_ms=time_ms)).error_code)
        sizes.append(len(leader.fetch(topic, offset).records or b""))
    request = fetch_request(topic, max_wait_ms=60_000, min_bytes=sum(sizes), max_bytes=1 << 20)
    found = records_of(only(only(leader.call(request).responses).partitions).records)
    expect("the first value in the reply", [b"v"], [record.value for record in found[:1]])


@clause("FET-1", "small records")
@defect(Request(FetchRequest, "max_wait_ms", 60_000))
def test_records_that_are_too_few_do_not_prolong_the_wait(cluster: Cluster, leader: Broker, topic: Topic) -> None:
    version = leader.version_of(FetchRequest)
    request = fetch_request(topic, max_wait_ms=WAIT_MS, min_bytes=1 << 19, max_bytes=1 << 20)
    number = leader.send(request, version)
    writer = cluster.leader(topic)
    for _ in range(SMALL_RECORDS):
        writer.produce(topic, batch(b"v"))
        with suppress(NoReply):
            reply = leader.receive(APIS[1], version, number, WAIT_MS / 4000)
            expect("error code", 0, only(only(reply.responses).partitions).error_code)
            return
    raise TargetFailure(f"no reply to a fetch of max_wait_ms {WAIT_MS} while {SMALL_RECORDS} records were written")


@clause("FET-3")
@defect(Reply(FetchRequest, RECORDS, b""))
def test_the_first_batch_comes_whole_however_small_the_limit(leader: Broker, topic: Topic) -> None:
    leader.produce(topic, batch(b"x" * 1000))
    leader.produce(topic, batch(b"y" * 1000))
    answer = leader.fetch(topic, 0, max_bytes=1)
    expect("values", [b"x" * 1000], [record.value for record in records_of(answer.records)])


@clause("FET-4")
@defect(Reply(FetchRequest, ERROR, 0))
@pytest.mark.parametrize("offset", [2, 1000, -7])
def test_an_offset_outside_of_the_log_is_an_error(leader: Broker, topic: Topic, offset: int) -> None:
    leader.produce(topic, batch(b"v"))
    expect("error code", ErrorCode.OFFSET_OUT_OF_RANGE, leader.fetch(topic, offset).error_code)


@clause("FET-5")
@defect(GuardOff("HwNeedsWholeIsr"), Reply(FetchRequest, "responses.partitions.high_watermark", increment))
@pytest.mark.cluster_fault
def test_nothing_past_the_high_watermark_is_shown(cluster: Cluster) -> None:
    cluster.need(PAUSE_NODE)
    cluster.need_brokers(3)
    topic = cluster.create_topic(replicas=3)
    leader = cluster.leader(topic)
    expect("error code with all followers running", 0, leader.produce(topic, batch(b"a")).error_code)
    cluster.pause(next(node for node in cluster.target.addresses if node != topic.leader_id))
    expect("error code with acks 1", 0, leader.produce(topic, batch(b"b"), acks=1).error_code)
    answer = leader.fetch(topic, 0)
    expect("values below the high watermark", [b"a"], [record.value for record in records_of(answer.records)])
    expect("high watermark", 1, answer.high_watermark)


@clause("FET-7")
@defect(Reply(FetchRequest, RECORDS, drop_first_batch))
def test_an_offset_inside_a_batch_brings_the_whole_batch(leader: Broker, topic: Topic) -> None:
    leader.produce(topic, batch(b"a", b"b", b"c"))
    leader.produce(topic, batch(b"d"))
    answer = leader.fetch(topic, 1)
    expect("offsets", [0, 1, 2, 3], [record.offset for record in records_of(answer.records)])


@clause("FET-8", "newer")
@defect(Request(FetchRequest, "topics.partitions.current_leader_epoch", -1))
def test_an_epoch_beyond_the_leaders_is_unknown(leader: Broker, topic: Topic) -> None:
    leader.version_of(FetchRequest, 9)
    answer = leader.fetch(topic, 0, leader_epoch=topic.leader_epoch + 100)
    expect("error code", ErrorCode.UNKNOWN_LEADER_EPOCH, answer.error_code)


@clause("FET-8", "older")
@defect(GuardOff("FenceStaleFetch"), Request(FetchRequest, "topics.partitions.current_leader_epoch", -1))
@pytest.mark.cluster_fault
def test_an_epoch_before_the_leaders_is_fenced(cluster: Cluster) -> None:
    cluster.need(PAUSE_NODE)
    cluster.need_brokers(3)
    before = cluster.create_topic(replicas=3)
    cluster.stop(before.leader_id)
    after = cluster.topic(before.name, excluded_leader=before.leader_id)
    leader = cluster.leader(after)
    leader.version_of(FetchRequest, 9)
    cluster.eventually(
        "FENCED_LEADER_EPOCH",
        lambda: leader.fetch(after, 0, leader_epoch=before.leader_epoch).error_code == ErrorCode.FENCED_LEADER_EPOCH,
    )
    expect("error code in the current epoch", 0, leader.fetch(after, 0, leader_epoch=after.leader_epoch).error_code)


@clause("FET-9", "unknown")
@defect(Reply(FetchRequest, "error_code", 0))
def test_an_unknown_session_is_an_error(leader: Broker) -> None:
    request = FetchRequest(session_id=123_456_789, session_epoch=1, max_wait_ms=0)
    reply = leader.call(request, leader.version_of(FetchRequest, 7))
    expect("error code", ErrorCode.FETCH_SESSION_ID_NOT_FOUND, reply.error_code)


@clause("FET-16")
@defect(Reply(FetchRequest, RECORDS, write_length_as_epoch))
def test_what_was_read_once_reads_the_same_again(leader: Broker, topic: Topic) -> None:
    first = b""
    for number in range(5):
        leader.produce(topic, batch(b"%d" % number))
        data = leader.fetch(topic, 0).records or b""
        expect("bytes that were read before are unchanged", True, data.startswith(first) and len(data) > len(first))
        first = data


@clause("FET-17")
@defect(Reply(FetchRequest, RECORDS, b""), Reply(FetchRequest, "responses.partitions.high_watermark", increment))
@sweep(FetchRequest, 4)
def test_records_come_back_in_each_version(leader: Broker, topic: Topic, version: int) -> None:
    leader.produce(topic, batch(b"a", b"b"))
    answer = leader.fetch(topic, 0, version=version)
    expect("values", [b"a", b"b"], [record.value for record in records_of(answer.records)])
    expect("error code and high watermark", (0, 2), (answer.error_code, answer.high_watermark))


@clause("FET-18")
@defect(Reply(FetchRequest, ERROR, 0))
def test_an_unknown_partition_is_an_error(leader: Broker, topic: Topic) -> None:
    nowhere = Topic(topic.name, topic.leader, topic.leader_id, partition=1000)
    expect("error code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, leader.fetch(nowhere, 0).error_code)


NO_REPLICA_HERE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
}
"""After each of them clients look for the leader again."""


@clause("FET-19")
@defect(Reply(FetchRequest, ERROR, 0))
def test_only_a_replica_is_read_from(cluster: Cluster, leader: Broker) -> None:
    cluster.need_brokers(3)
    topic = cluster.create_topic(replicas=1)
    other = next(address for node, address in cluster.target.addresses.items() if node != topic.leader_id)
    answer = cluster.connect(other).fetch(topic, 0)
    expect("error code", NO_REPLICA_HERE, answer.error_code)


@clause("FET-20")
@defect(Request(FetchRequest, "topics.partitions.fetch_offset", 0))
def test_a_fetch_begins_at_its_batch_and_not_before(leader: Broker, topic: Topic) -> None:
    for value in (b"a", b"b", b"c"):
        leader.produce(topic, batch(value))
    headers = [header.base_offset for _, header in batch_headers(leader.fetch(topic, 1).records or b"")]
    expect("base offsets", [1, 2], headers)
