"""DeleteRecords (KIP-107) in the replies of Fetch, ListOffsets and Produce: the log start moves, the end does not."""

import pytest

from highwater.conformance.cases.support.offsets import delete_records, epoch_end
from highwater.conformance.cases.support.replicas import expect_values, restart_leader, values_at
from highwater.conformance.clause import clause, sweep
from highwater.conformance.client.broker import EARLIEST, NOW_MS, Broker, Topic, batch, records_of
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, decrement, defect
from highwater.conformance.expectations import expect, only
from highwater.conformance.targets.base import PAUSE_NODE, STOP_NODE
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from highwater.reference.wire.messages.produce import ProduceRequest

ALL = -1
WRITTEN = 5
DELETION_MS = 500
"""Less than the time after which a broker that is paused counts as dead: a deletion does not wait for it any more."""
TOPICS = 6


@pytest.fixture
def filled_topic(leader: Broker, topic: Topic) -> Topic:
    """Return a topic with five batches of one record, whose timestamps are one second apart."""
    leader.version_of(DeleteRecordsRequest)
    for number in range(WRITTEN):
        leader.produce(topic, batch(b"%d" % number, timestamp_ms=NOW_MS + 1000 * number))
    return topic


@clause("FET-11", "below")
@defect(Reply(FetchRequest, "responses.partitions.error_code", 0))
def test_a_deleted_record_is_out_of_range(leader: Broker, filled_topic: Topic) -> None:
    expect("error code and low watermark", (0, 2), delete_records(leader, filled_topic, 2))
    for offset in (0, 1):
        expect(f"error code at {offset}", ErrorCode.OFFSET_OUT_OF_RANGE, leader.fetch(filled_topic, offset).error_code)


@clause("FET-11", "start")
@sweep(FetchRequest, 5)
@defect(Reply(FetchRequest, "responses.partitions.log_start_offset", 0))
def test_the_log_start_is_told_with_what_is_left(leader: Broker, filled_topic: Topic, version: int) -> None:
    delete_records(leader, filled_topic, 2)
    answer = leader.fetch(filled_topic, 2, version=version)
    expect("error code and log start", (0, 2), (answer.error_code, answer.log_start_offset))
    expect("offsets", True, [record.offset for record in records_of(answer.records)] == [2, 3, 4])


@clause("FET-11", "all")
@sweep(DeleteRecordsRequest)
@defect(Reply(DeleteRecordsRequest, "topics.partitions.low_watermark", 0))
def test_minus_1_deletes_up_to_the_high_watermark(leader: Broker, filled_topic: Topic, version: int) -> None:
    expect("error code and low watermark", (0, WRITTEN), delete_records(leader, filled_topic, ALL, version))
    expect("end offset", WRITTEN, leader.end_offset(filled_topic))
    expect("records at the end", b"", leader.fetch(filled_topic, WRITTEN).records or b"")


@clause("FET-11", "beyond")
@defect(Reply(DeleteRecordsRequest, "topics.partitions.error_code", 0))
def test_what_was_not_written_cannot_be_deleted(leader: Broker, filled_topic: Topic) -> None:
    expect("error code", ErrorCode.OFFSET_OUT_OF_RANGE, delete_records(leader, filled_topic, WRITTEN + 1)[0])
    expect("first record", 0, records_of(leader.fetch(filled_topic, 0).records)[0].offset)


@clause("LST-8", "start")
@sweep(ListOffsetsRequest, 1, 10)
@defect(Reply(ListOffsetsRequest, "topics.partitions.offset", 0))
def test_the_earliest_offset_follows(leader: Broker, filled_topic: Topic, version: int) -> None:
    delete_records(leader, filled_topic, 3)
    expect("earliest offset", 3, leader.list_offset(filled_topic, EARLIEST, version=version).offset)


@clause("LST-8", "time")
@defect(Request(ListOffsetsRequest, "topics.partitions.timestamp", EARLIEST))
def test_a_deleted_time_is_answered_by_what_is_left(leader: Broker, filled_topic: Topic) -> None:
    delete_records(leader, filled_topic, 3)
    expect("offset of the first record's time", 3, leader.list_offset(filled_topic, NOW_MS).offset)
    expect("offset of the last record's time", 4, leader.list_offset(filled_topic, NOW_MS + 4000).offset)


@clause("PRD-24")
@sweep(ProduceRequest, 5)
@defect(
    Reply(ProduceRequest, "responses.partition_responses.log_start_offset", 0),
    Reply(ProduceRequest, "responses.partition_responses.base_offset", decrement),
)
def test_a_produce_tells_where_the_log_begins(leader: Broker, filled_topic: Topic, version: int) -> None:
    delete_records(leader, filled_topic, ALL)
    answer = leader.produce(filled_topic, batch(b"v"), version=version)
    expect("base offset and log start", (WRITTEN, WRITTEN), (answer.base_offset, answer.log_start_offset))


@clause("ADM-6", "in a segment")
@defect(Request(DeleteRecordsRequest, "topics.partitions.offset", ALL))
def test_the_rest_of_a_segment_remains(cluster: Cluster) -> None:
    topic = cluster.create_topic(configs={"segment.ms": "100"})
    leader = cluster.leader(topic)
    for number in range(WRITTEN):  # each timestamp that is two days later begins a segment
        timestamp_ms = NOW_MS + 86_400_000 * 2 * (number // 2)
        expect("error code", 0, leader.produce(topic, batch(b"%d" % number, timestamp_ms=timestamp_ms)).error_code)
    expect("error code and low watermark", (0, 1), delete_records(leader, topic, 1))
    expect("first remaining record", 1, records_of(leader.fetch(topic, 1).records)[0].offset)
    expect("earliest offset", 1, leader.list_offset(topic, EARLIEST).offset)


@clause("ADM-6", "backward")
@defect(Reply(DeleteRecordsRequest, "topics.partitions.low_watermark", 1))
def test_a_smaller_offset_does_not_move_the_log_start_back(leader: Broker, filled_topic: Topic) -> None:
    expect("error code and low watermark", (0, 3), delete_records(leader, filled_topic, 3))
    expect("error code and low watermark of the second request", (0, 3), delete_records(leader, filled_topic, 1))
    expect("error code of a fetch", ErrorCode.OFFSET_OUT_OF_RANGE, leader.fetch(filled_topic, 1).error_code)


@clause("LST-6", "deleted records")
@defect(Reply(OffsetForLeaderEpochRequest, "topics.partitions.end_offset", -1))
def test_the_epoch_of_the_log_start_is_kept(leader: Broker, filled_topic: Topic) -> None:
    for offset in (2, ALL):
        delete_records(leader, filled_topic, offset)
        answer = epoch_end(leader, filled_topic, filled_topic.leader_epoch)
        found = (answer.leader_epoch, answer.end_offset)
        expect(f"epoch and end after the deletion up to {offset}", (filled_topic.leader_epoch, WRITTEN), found)


@clause("ADM-6", "followers")
@defect(Reply(DeleteRecordsRequest, "topics.partitions.error_code", 0))
@pytest.mark.cluster_fault
def test_a_deletion_waits_for_the_followers(cluster: Cluster) -> None:
    cluster.need(PAUSE_NODE)
    cluster.need_brokers(3)
    topic = cluster.create_topic(replicas=3)
    leader = cluster.leader(topic)
    leader.version_of(DeleteRecordsRequest)
    for number in range(WRITTEN):
        expect("error code", 0, leader.produce(topic, batch(b"%d" % number)).error_code)
    expect("error code and low watermark", (0, 1), delete_records(leader, topic, 1))
    cluster.pause(next(node for node in cluster.target.addresses if node != topic.leader_id))
    error, _ = delete_records(leader, topic, 2, timeout_ms=300)
    expect("error code with a follower that does not answer", ErrorCode.REQUEST_TIMED_OUT, error)


@clause("ADM-6", "timeout")
@defect(Reply(DeleteRecordsRequest, "topics.partitions.error_code", 0))
@pytest.mark.cluster_fault
@pytest.mark.slow
def test_the_timeout_is_that_of_the_request(cluster: Cluster) -> None:
    """Partitions of several topics wait for a follower at the same time, not one after the other."""
    cluster.need(PAUSE_NODE)
    cluster.need_brokers(3)
    nodes = sorted(cluster.target.addresses)
    topics = [cluster.create_topic(assignment=nodes) for _ in range(TOPICS)]
    leader = cluster.leader(topics[0])
    leader.version_of(DeleteRecordsRequest)
    for topic in topics:
        expect("error code", 0, leader.produce(topic, batch(b"a", b"b")).error_code)
    cluster.pause(nodes[-1])
    part = DeleteRecordsPartition(partition_index=0, offset=1)
    named = tuple(DeleteRecordsTopic(name=topic.name, partitions=(part,)) for topic in topics)
    started = cluster.clock.monotonic()
    reply = leader.call(DeleteRecordsRequest(topics=named, timeout_ms=DELETION_MS))
    took_s = cluster.clock.monotonic() - started
    expect(
        "error codes",
        [ErrorCode.REQUEST_TIMED_OUT] * TOPICS,
        [only(topic.partitions).error_code for topic in reply.topics],
    )
    expect(f"{took_s:.1f} s are less than three times the timeout", True, took_s < 3 * DELETION_MS / 1000)


@clause("ADM-6", "restart")
@defect(Reply(ListOffsetsRequest, "topics.partitions.offset", 0))
@pytest.mark.cluster_fault
@pytest.mark.slow
def test_deleted_records_do_not_return_after_a_restart(cluster: Cluster) -> None:
    cluster.need(STOP_NODE)
    topic = cluster.create_topic(replicas=1)
    leader = cluster.leader(topic)
    leader.version_of(DeleteRecordsRequest)
    for number in range(WRITTEN):
        leader.produce(topic, batch(b"%d" % number))
    expect("error code and low watermark", (0, 3), delete_records(leader, topic, 3))
    cluster.stop(topic.leader_id)
    cluster.start(topic.leader_id)
    again = cluster.topic(topic.name)
    found = cluster.eventually("the earliest offset", lambda: _earliest(cluster, again))
    expect("earliest offset", 3, found)


@clause("ADM-20", "deleted records")
@defect(
    Reply(ListOffsetsRequest, "topics.partitions.offset", 3),
    Reply(ProduceRequest, "responses.partition_responses.base_offset", WRITTEN),
)
@pytest.mark.cluster_fault
@pytest.mark.slow
def test_a_topic_that_is_created_again_begins_at_0(cluster: Cluster) -> None:
    """The broker has read the log start and the high watermark of the former topic at its restart."""
    cluster.need(STOP_NODE)
    topic = cluster.create_topic(replicas=1)
    leader = cluster.leader(topic)
    leader.version_of(DeleteRecordsRequest)
    for number in range(WRITTEN):
        expect("error code of Produce", 0, leader.produce(topic, batch(b"%d" % number)).error_code)
    expect("error code and low watermark", (0, 3), delete_records(leader, topic, 3))
    topic, leader = restart_leader(cluster, topic, offset=3)
    cluster.delete_topics(topic.name)
    again = cluster.create_topic(name=topic.name, assignment=[topic.leader_id])
    leader = cluster.leader(again)
    expect("earliest and end offset", (0, 0), (leader.list_offset(again, EARLIEST).offset, leader.end_offset(again)))
    answer = leader.produce(again, batch(b"new"))
    expect("error code and base offset", (0, 0), (answer.error_code, answer.base_offset))
    again, leader = restart_leader(cluster, again)
    expect("earliest offset after a restart", 0, leader.list_offset(again, EARLIEST).offset)
    expect_values("values after a restart", [b"new"], values_at(leader, again))


def _earliest(cluster: Cluster, topic: Topic) -> int | None:
    with cluster.leader(topic) as leader:
        answer = leader.list_offset(topic, EARLIEST)
    return None if answer.error_code else answer.offset
