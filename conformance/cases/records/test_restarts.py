"""What a broker restores of its logs when it restarts: positions of batches, open and aborted transactions."""

import pytest

from highwater.conformance.cases.support.admin import change_configs, controller
from highwater.conformance.cases.support.offsets import delete_records, epoch_end
from highwater.conformance.cases.support.producers import IdempotentProducer
from highwater.conformance.cases.support.replicas import restart_leader, values_at
from highwater.conformance.cases.support.transactions import (
    ABORT,
    COMMIT,
    Transactional,
    committed_values,
    eventually_stable,
    fetch_committed,
)
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import EARLIEST, NOW_MS, Broker, Topic, batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect
from highwater.conformance.expectations import expect
from highwater.conformance.failures import Unsupported
from highwater.conformance.models.settings import SET
from highwater.conformance.targets.base import STOP_NODE
from highwater.reference.wire.messages.configs import IncrementalAlterConfigsRequest
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.offsets import (
    DeleteRecordsRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.records import batch_headers, build_batch

pytestmark = [pytest.mark.cluster_fault, pytest.mark.slow]

DAY_MS = 86_400_000
BACK_S = 30.0
CLEANED_S = 60.0
"""Log cleaners of Apache Kafka run every 15 seconds by default."""
SMALLEST_SEGMENT = 1 << 20
"""Apache Kafka 4.1 and later accept no smaller segment.bytes."""
QUICK_SEGMENTS = {"segment.ms": "1000", "message.timestamp.after.max.ms": str((1 << 63) - 1)}
"""A record that is a day newer than the first one of its segment begins the next segment."""
PER_SEGMENT = 4
LONGEST_INTERVAL_MS = 5_000
NO_EPOCH = (-1, -1)


def create_single_replica(cluster: Cluster, **configs: str) -> Topic:
    """Return a topic whose only replica has to restore everything from its own disk."""
    cluster.need(STOP_NODE)
    return cluster.create_topic(replicas=1, configs=configs or None)


def write_at(leader: Broker, topic: Topic, at_ms: int, value: bytes = b"v") -> None:
    answer = leader.produce(topic, build_batch([(at_ms, b"k", value, ())]))
    expect("error code of Produce", 0, answer.error_code)


def tomorrow_ms(cluster: Cluster, days: int = 1) -> int:
    """Return a time that begins a segment after records of the present time."""
    return cluster.now_ms() + days * DAY_MS


@clause("FET-20", "after a restart")
@defect(Request(FetchRequest, "topics.partitions.fetch_offset", lambda offset: offset + 1))
def test_a_fetch_begins_at_its_batch_after_a_restart(cluster: Cluster) -> None:
    """Three segments, two of them closed, whose indexes have an entry for almost every batch."""
    topic = create_single_replica(cluster, **QUICK_SEGMENTS, **{"index.interval.bytes": "1"})
    leader, count = cluster.leader(topic), 3 * PER_SEGMENT
    for number in range(count):
        write_at(leader, topic, NOW_MS + number // PER_SEGMENT * DAY_MS + number, b"%d" % number)
    topic, leader = restart_leader(cluster, topic)
    for offset in range(count):
        found = [header.base_offset for _, header in batch_headers(leader.fetch(topic, offset).records or b"")]
        expect(f"first offset of a fetch at {offset}", offset, found[0] if found else None)


@clause("FET-44", "after a restart")
@defect(
    Request(IncrementalAlterConfigsRequest, "validate_only", True),
    Reply(ListOffsetsRequest, "topics.partitions.offset", 0),
)
def test_the_age_of_a_segment_counts_from_its_first_record_after_a_restart(cluster: Cluster) -> None:
    """The third record is older than segment.ms only in relation to the first; it begins a segment."""
    if cluster.setting("log_retention_check_interval_ms") > LONGEST_INTERVAL_MS:
        raise Unsupported("the target's log.retention.check.interval.ms is above 5 s")
    topic = create_single_replica(cluster, **{"segment.ms": str(3 * DAY_MS), "retention.ms": "-1"})
    for day in (0, 2):
        write_at(cluster.leader(topic), topic, NOW_MS + day * DAY_MS)
    topic, leader = restart_leader(cluster, topic)
    write_at(leader, topic, NOW_MS + 4 * DAY_MS)
    size = len(leader.fetch(topic, 2).records or b"")
    changed = change_configs(controller(cluster), topic.name, ("retention.bytes", SET, str(size)))
    expect("error code of the change", 0, changed)
    cluster.eventually("a log start of 2", lambda: leader.list_offset(topic, EARLIEST).offset == 2, BACK_S)


@clause("LST-6", "before the first epoch")
@defect(
    Reply(OffsetForLeaderEpochRequest, "topics.partitions.end_offset", -1),
    Reply(OffsetForLeaderEpochRequest, "topics.partitions.leader_epoch", -1),
)
def test_an_epoch_before_the_first_one_with_records_ends_where_that_begins(cluster: Cluster) -> None:
    """The first epoch ends without a record; DeleteRecords later removes all records of the second."""
    cluster.need_brokers(2)  # a broker that is alone may keep its epoch, since no other notices that it was away
    topics = [create_single_replica(cluster)]
    cluster.leader(topics[0]).version_of(DeleteRecordsRequest)
    for values in ((b"a", b"b"), (b"c", b"d")):
        topic, leader = restart_leader(cluster, topics[-1])
        expect("error code of Produce", 0, leader.produce(topic, batch(*values)).error_code)
        topics.append(topic)
    empty, former, current = (each.leader_epoch for each in topics)
    expect(f"the epochs {empty}, {former} and {current} grow", True, empty < former < current)

    def ends() -> list[tuple[int, int]]:
        answers = [epoch_end(leader, topic, epoch) for epoch in (empty, former, current, current + 1)]
        return [(answer.leader_epoch, answer.end_offset) for answer in answers]

    expect("ends of the epochs", True, ends() == [(empty, 0), (former, 2), (current, 4), NO_EPOCH])
    expect("error code and low watermark", (0, 3), delete_records(leader, topic, 3))
    expect("ends after the deletion", True, ends() == [(empty, 3), (former, 3), (current, 4), NO_EPOCH])


@clause("FET-45", "after a restart")
@defect(Reply(FetchRequest, "responses.partitions.records", b""))
def test_an_old_value_goes_although_its_segment_ends_with_a_young_one(cluster: Cluster) -> None:
    """The age of a segment is that of its first record (LogSegment.loadFirstBatchTimestamp); the limit is set last."""
    topic = create_single_replica(cluster, **{
        "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1", "segment.ms": str(10_000 * DAY_MS),
        "segment.bytes": str(SMALLEST_SEGMENT),
    })  # fmt: skip
    leader = cluster.leader(topic)
    write_at(leader, topic, NOW_MS, b"old")
    for _ in range(3):  # each with an entry in the time index
        write_at(leader, topic, cluster.now_ms(), b"young" * 1_000)
    for _ in range(4):  # closes the segment, and the next one
        write_at(leader, topic, cluster.now_ms(), b"f" * (SMALLEST_SEGMENT * 2 // 3))
    topic, leader = restart_leader(cluster, topic)
    changed = change_configs(controller(cluster), topic.name, ("max.compaction.lag.ms", SET, str(DAY_MS)))
    expect("error code of the change", 0, changed)
    cluster.eventually("the removal of the old value", lambda: b"old" not in values_at(leader, topic), CLEANED_S)
    expect("a value of the key is left", True, bool(values_at(leader, topic)))


@clause("TXN-7", "after a restart")
@defect(Request(FetchRequest, "isolation_level", 0))
def test_an_open_transaction_stays_open_over_a_restart(cluster: Cluster) -> None:
    """Its first record is the first one of the log, in a segment before several others, each with a snapshot."""
    topic, producer = create_single_replica(cluster, **QUICK_SEGMENTS), Transactional.initialize(cluster)
    producer.begin(topic)
    expect("offset", 0, producer.write(topic, 0, b"open"))
    for day in (1, 2, 3):
        write_at(cluster.leader(topic), topic, tomorrow_ms(cluster, day), b"behind")
    topic, leader = restart_leader(cluster, topic)
    part = fetch_committed(leader, topic)
    expect("last stable offset, high watermark", (0, 4), (part.last_stable_offset, part.high_watermark))
    expect("records for read_committed", b"", part.records or b"")
    producer.reconnect().end(commit=COMMIT)
    eventually_stable(cluster, leader, topic, 5, BACK_S)
    expect("values after the commit", True, committed_values(leader, topic) == [b"open", *[b"behind"] * 3])


@clause("TXN-6", "after a restart")
@defect(Reply(FetchRequest, "responses.partitions.aborted_transactions", ()))
def test_aborted_transactions_of_all_segments_are_named_after_a_restart(cluster: Cluster) -> None:
    topic, producer = create_single_replica(cluster, **QUICK_SEGMENTS), Transactional.initialize(cluster)
    leader, plain = cluster.leader(topic), list[bytes]()
    for number in range(3):
        producer.begin(topic)
        producer.write(topic, number, b"aborted %d" % number)
        producer.end(commit=ABORT)
        eventually_stable(cluster, leader, topic, 3 * number + 2)
        plain.append(b"plain %d" % number)
        write_at(leader, topic, tomorrow_ms(cluster, number + 1), plain[-1])
    topic, leader = restart_leader(cluster, topic)
    eventually_stable(cluster, leader, topic, 9, BACK_S)
    found = committed_values(leader, topic)
    expect(f"values for read_committed: {found}", True, found == plain)


@clause("IDM-8", "closed segment")
@defect(Reply(ProduceRequest, "responses.partition_responses.base_offset", 0))
def test_the_last_batch_in_a_closed_segment_outlives_a_restart(cluster: Cluster) -> None:
    topic = create_single_replica(cluster, **QUICK_SEGMENTS)
    before = IdempotentProducer.create(cluster, topic)
    for sequence in (0, 3):
        before.send_accepted(sequence, 3)
    for day in (1, 2, 3):
        write_at(before.broker, topic, tomorrow_ms(cluster, day))
    topic, leader = restart_leader(cluster, topic)
    producer = IdempotentProducer(leader, topic, before.producer_id, before.epoch)
    expect("offset of the repeated batch", 3, producer.send_accepted(3, 3))
    expect("offset of the next batch", 9, producer.send_accepted(6))
