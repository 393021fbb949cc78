"""ListOffsets and OffsetForLeaderEpoch: start and end of a log and of its leader epochs."""

import pytest

from highwater.conformance.cases.support.offsets import epoch_end
from highwater.conformance.clause import clause, sweep
from highwater.conformance.client.broker import EARLIEST, LATEST, NOW_MS, Broker, Topic, batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, decrement, defect, increment
from highwater.conformance.expectations import expect
from highwater.conformance.targets.base import STOP_NODE
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from highwater.reference.wire.records import build_batch

MAX_TIMESTAMP, NONE = -3, -1
END_OFFSET = "topics.partitions.end_offset"
SEGMENT = 1 << 20
"""The smallest size that Apache Kafka 4 allows (KIP-1030)."""


@clause("LST-1")
@defect(Reply(ListOffsetsRequest, "topics.partitions.offset", increment))
@sweep(ListOffsetsRequest, 1, 10)
def test_both_ends_of_the_log(leader: Broker, topic: Topic, version: int) -> None:
    leader.produce(topic, batch(b"a", b"b", b"c"))
    for timestamp, offset in ((EARLIEST, 0), (LATEST, 3)):
        answer = leader.list_offset(topic, timestamp, version=version)
        expect(f"error code and offset for {timestamp}", (0, offset), (answer.error_code, answer.offset))


@clause("LST-2")
@defect(Reply(ListOffsetsRequest, "topics.partitions.offset", increment))
@pytest.mark.parametrize(("requested", "offset"), [(0, 0), (1000, 0), (1001, 1), (2000, 1), (3000, 2), (3001, NONE)])
def test_the_first_offset_not_before_a_time(leader: Broker, topic: Topic, requested: int, offset: int) -> None:
    for number in (1, 2, 3):
        leader.produce(topic, batch(b"v", timestamp_ms=NOW_MS + 1000 * number))
    answer = leader.list_offset(topic, NOW_MS + requested)
    expect("error code and offset", (0, offset), (answer.error_code, answer.offset))


@clause("LST-2", "earlier segment")
@defect(Reply(ListOffsetsRequest, "topics.partitions.offset", increment))
@pytest.mark.parametrize(("requested", "offset"), [(1000, 0), (1500, 0), (3000, 0), (3001, NONE)])
def test_a_later_segment_may_have_earlier_times(cluster: Cluster, requested: int, offset: int) -> None:
    topic = cluster.create_topic(configs={"segment.bytes": str(SEGMENT), "max.message.bytes": str(SEGMENT)})
    leader = cluster.leader(topic)
    for number in (3, 1):
        expect("error code", 0, leader.produce(topic, _of_more_than_half(number)).error_code)
    answer = leader.list_offset(topic, NOW_MS + requested)
    expect("error code and offset", (0, offset), (answer.error_code, answer.offset))


def _of_more_than_half(number: int) -> bytes:
    """Return a batch with a time, of which a segment holds only one."""
    return batch(bytes(SEGMENT * 6 // 10), timestamp_ms=NOW_MS + 1000 * number)


@clause("LST-3")
@defect(
    Request(ListOffsetsRequest, "topics.partitions.timestamp", LATEST),
    Reply(ListOffsetsRequest, "topics.partitions.timestamp", NONE),
)
def test_the_offset_of_the_largest_time(leader: Broker, topic: Topic) -> None:
    for number in (1, 3, 2):
        leader.produce(topic, batch(b"v", timestamp_ms=NOW_MS + 1000 * number))
    answer = leader.list_offset(topic, MAX_TIMESTAMP, version=leader.version_of(ListOffsetsRequest, 7))
    expect("offset and timestamp", (1, NOW_MS + 3000), (answer.offset, answer.timestamp))


@clause("LST-3", "equal times")
@pytest.mark.parametrize(
    "batches",
    [
        pytest.param([(3, 1, 3)], id="in a batch"),
        pytest.param([(3,), (1,), (3,)], id="in batches"),
        pytest.param([(1, 3, 3), (3, 2)], id="in both"),
    ],
)
@defect(Reply(ListOffsetsRequest, "topics.partitions.offset", 2))
def test_of_records_with_the_largest_time_the_first_is_returned(
    leader: Broker, topic: Topic, batches: list[tuple[int, ...]]
) -> None:
    version = leader.version_of(ListOffsetsRequest, 7)
    for times in batches:
        records = build_batch([(NOW_MS + 1000 * time, b"k", b"v", ()) for time in times])
        expect("error code of Produce", 0, leader.produce(topic, records).error_code)
    first = [time for times in batches for time in times].index(3)
    answer = leader.list_offset(topic, MAX_TIMESTAMP, version=version)
    expect("offset and timestamp", (first, NOW_MS + 3000), (answer.offset, answer.timestamp))


@clause("LST-5")
@defect(Request(ListOffsetsRequest, "topics.partitions.current_leader_epoch", -1))
def test_an_epoch_beyond_the_leaders_is_unknown(leader: Broker, topic: Topic) -> None:
    version = leader.version_of(ListOffsetsRequest, 4)
    answer = leader.list_offset(topic, LATEST, version=version, leader_epoch=topic.leader_epoch + 100)
    expect("error code", ErrorCode.UNKNOWN_LEADER_EPOCH, answer.error_code)


@clause("LST-6", "current")
@defect(
    Reply(OffsetForLeaderEpochRequest, END_OFFSET, decrement),
    Reply(OffsetForLeaderEpochRequest, "topics.partitions.leader_epoch", increment),
)
def test_the_current_epoch_ends_at_the_end(leader: Broker, topic: Topic) -> None:
    leader.produce(topic, batch(b"a", b"b"))
    answer = epoch_end(leader, topic, topic.leader_epoch)
    expect("epoch and end", (topic.leader_epoch, 2), (answer.leader_epoch, answer.end_offset))


@clause("LST-6", "unknown")
@defect(Reply(OffsetForLeaderEpochRequest, END_OFFSET, 1))
def test_an_epoch_that_never_was_has_no_end(leader: Broker, topic: Topic) -> None:
    leader.produce(topic, batch(b"a"))
    answer = epoch_end(leader, topic, topic.leader_epoch + 5)
    expect("epoch and end", (NONE, NONE), (answer.leader_epoch, answer.end_offset))


@clause("LST-6", "fenced")
@defect(Request(OffsetForLeaderEpochRequest, "topics.partitions.current_leader_epoch", -1))
def test_the_askers_own_epoch_is_checked(leader: Broker, topic: Topic) -> None:
    answer = epoch_end(leader, topic, 0, current=topic.leader_epoch + 100)
    expect("error code", ErrorCode.UNKNOWN_LEADER_EPOCH, answer.error_code)


@clause("LST-6", "failover")
@defect(
    Reply(OffsetForLeaderEpochRequest, END_OFFSET, increment),
    Request(OffsetForLeaderEpochRequest, "topics.partitions.current_leader_epoch", -1),
)
@pytest.mark.cluster_fault
def test_an_older_epoch_ends_where_the_next_began(cluster: Cluster) -> None:
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    before = cluster.create_topic(replicas=3)
    cluster.leader(before).produce(before, batch(b"a", b"b", b"c"))
    cluster.stop(before.leader_id)
    after = cluster.topic(before.name, excluded_leader=before.leader_id)
    leader = cluster.leader(after)
    cluster.eventually("a write to the new leader", lambda: leader.produce(after, batch(b"d")).error_code == 0)
    answer = epoch_end(leader, after, before.leader_epoch)
    expect("old epoch and its end", (before.leader_epoch, 3), (answer.leader_epoch, answer.end_offset))
    newest = epoch_end(leader, after, after.leader_epoch)
    expect("new epoch and its end", (after.leader_epoch, 4), (newest.leader_epoch, newest.end_offset))
    expect(
        "error code of the old epoch",
        ErrorCode.FENCED_LEADER_EPOCH,
        epoch_end(leader, after, 0, before.leader_epoch).error_code,
    )


@clause("LST-7")
@defect(Reply(ListOffsetsRequest, "topics.partitions.error_code", 0))
def test_an_unknown_partition_is_an_error(leader: Broker, topic: Topic) -> None:
    nowhere = Topic(topic.name, topic.leader, topic.leader_id, partition=1000)
    expect("error code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, leader.list_offset(nowhere, LATEST).error_code)
