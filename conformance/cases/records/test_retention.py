"""Retention: closed segments are deleted by size and by time, with the settings that the topic has at the moment."""

import pytest

from highwater.conformance.cases.support.admin import change_configs, controller
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import EARLIEST, NOW_MS, Broker, Topic, batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, decrement, defect, increment
from highwater.conformance.expectations import expect
from highwater.conformance.failures import Unsupported
from highwater.conformance.models.settings import SET
from highwater.reference.wire.messages.configs import IncrementalAlterConfigsRequest
from highwater.reference.wire.messages.offsets import ListOffsetsRequest
from highwater.reference.wire.records import NewRecord, build_batch

pytestmark = pytest.mark.slow

DAY_MS = 86_400_000
LONGEST_INTERVAL_MS = 5_000
DELETED_S = 30.0
SEGMENTS = 6
UNLIMITED = {"retention.ms": "-1", "retention.bytes": "-1"}


def create_unlimited_topic(cluster: Cluster, segment_days: int, *, cleanup: str = "delete") -> Topic:
    """Return partition 2 of a topic that keeps all records; raises Unsupported if retention is seldom checked."""
    interval_ms = cluster.setting("log_retention_check_interval_ms")
    if interval_ms > LONGEST_INTERVAL_MS:
        raise Unsupported(f"the target's log.retention.check.interval.ms is {interval_ms}, above 5 s")
    return cluster.create_topic(
        partitions=3, configs={**UNLIMITED, "cleanup.policy": cleanup, "segment.ms": str(segment_days * DAY_MS)}
    )


def limit_retention(cluster: Cluster, topic: Topic, key: str, value: int) -> None:
    """Limit the retention of a topic whose records are all written: the next check has one correct result."""
    expect("error code", 0, change_configs(controller(cluster), topic.name, (key, SET, str(value))))


def write(leader: Broker, topic: Topic, *timestamps_ms: int) -> int:
    """Produce a batch of one record for each timestamp, and return the size of one."""
    for at in timestamps_ms:
        records: list[NewRecord] = [(at, b"k", b"v" * 500, ())]
        data = build_batch(records)
        expect("error code of Produce", 0, leader.produce(topic, data).error_code)
    return len(data)


def await_start(cluster: Cluster, leader: Broker, topic: Topic, offset: int) -> int:
    """Wait until the log starts at this offset or later, and return where it starts."""

    def poll() -> int | None:
        start = leader.list_offset(topic, EARLIEST).offset
        return start if start >= offset else None

    return cluster.eventually(f"a start of the log of at least {offset}", poll, DELETED_S)


@clause("FET-44", "size")
@defect(
    Request(IncrementalAlterConfigsRequest, "validate_only", True),
    Reply(ListOffsetsRequest, "topics.partitions.offset", increment),
)
def test_segments_are_deleted_while_more_than_the_limit_remains(cluster: Cluster) -> None:
    """Of six segments of equal size four remain, since three are smaller than the limit of three and a half."""
    topic = create_unlimited_topic(cluster, 1)
    leader = cluster.leader(topic)
    size = write(leader, topic, *(NOW_MS + 2 * DAY_MS * number for number in range(SEGMENTS)))
    limit_retention(cluster, topic, "retention.bytes", 3 * size + size // 2)
    expect("start of the log", 2, await_start(cluster, leader, topic, 2))
    expect("error code of a fetch at the start", 0, leader.fetch(topic, 2).error_code)
    expect("end of the log", SEGMENTS, leader.end_offset(topic))


@clause("FET-44", "time")
@defect(
    Request(IncrementalAlterConfigsRequest, "validate_only", True),
    Reply(ListOffsetsRequest, "topics.partitions.offset", decrement),
)
def test_the_newest_record_of_a_segment_decides_when_it_is_deleted(cluster: Cluster) -> None:
    """The second of three segments has a record that is older than the limit, and one that is not."""
    topic = create_unlimited_topic(cluster, 4)
    leader, now_ms = cluster.leader(topic), cluster.now_ms()
    write(leader, topic, *(now_ms - days * DAY_MS for days in (20, 9, 6, 1)))
    limit_retention(cluster, topic, "retention.ms", 7 * DAY_MS)
    expect("start of the log", 1, await_start(cluster, leader, topic, 1))
    expect("offset at the time of the oldest record", 1, leader.list_offset(topic, now_ms - 9 * DAY_MS).offset)
    expect("base offset of the next batch", 4, leader.produce(topic, batch(b"v", timestamp_ms=now_ms)).base_offset)


@clause("FET-44", "compacted")
@defect(Reply(ListOffsetsRequest, "topics.partitions.offset", increment))
def test_a_topic_that_is_compacted_and_deleted_has_a_retention_time(cluster: Cluster) -> None:
    """Each record has its own key, so that compaction removes none."""
    topic = create_unlimited_topic(cluster, 1, cleanup="compact,delete")
    leader, now_ms = cluster.leader(topic), cluster.now_ms()
    for days in (20, 10, 1):
        records: list[NewRecord] = [(now_ms - days * DAY_MS, b"k%d" % days, b"v", ())]
        expect("error code of Produce", 0, leader.produce(topic, build_batch(records)).error_code)
    limit_retention(cluster, topic, "retention.ms", 7 * DAY_MS)
    expect("start of the log", 2, await_start(cluster, leader, topic, 2))


@clause("FET-44", "no time")
@defect(Reply(ListOffsetsRequest, "topics.partitions.offset", increment))
def test_a_retention_time_of_0_keeps_nothing(cluster: Cluster) -> None:
    topic = create_unlimited_topic(cluster, 1)
    leader = cluster.leader(topic)
    write(leader, topic, NOW_MS, NOW_MS + 2 * DAY_MS)
    limit_retention(cluster, topic, "retention.ms", 0)
    expect("start of the log", 2, await_start(cluster, leader, topic, 2))
    expect("base offset of the next batch", 2, leader.produce(topic, batch(b"v")).base_offset)
