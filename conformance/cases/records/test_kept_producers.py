"""What a broker keeps of producers whose last batch is in a closed segment, was compacted, or was aborted."""

from itertools import count

import pytest

from highwater.conformance.cases.records.test_compaction import CLEANED_S, LATER_ACCEPTED, QUICK_COMPACTION
from highwater.conformance.cases.records.test_restarts import LONGEST_INTERVAL_MS, QUICK_SEGMENTS, create_single_replica
from highwater.conformance.cases.support.offsets import delete_records
from highwater.conformance.cases.support.producers import IdempotentProducer
from highwater.conformance.cases.support.replicas import restart_leader
from highwater.conformance.cases.support.transactions import COMMIT, Transactional, eventually_stable
from highwater.conformance.clause import clause, era
from highwater.conformance.client.broker import NOW_MS, Broker, Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect, increment
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Unsupported
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.messages.transactions import DescribeProducersRequest, ProducerState, TopicRequest
from highwater.reference.wire.records import BatchHeader, batch_headers, build_batch

DAY_MS = 86_400_000
ANOTHER = count(1)
"""Makes a planted defect change what a broker describes with each request."""
PRODUCE_ERROR = "responses.partition_responses.error_code"


def states(leader: Broker, topic: Topic) -> dict[int, ProducerState]:
    """Return what the leader says of each producer of the partition (DescribeProducers)."""
    named = TopicRequest(name=topic.name, partition_indexes=(topic.partition,))
    part = only(only(leader.call(DescribeProducersRequest(topics=(named,))).topics).partitions)
    expect("error code of DescribeProducers", 0, part.error_code)
    return {producer.producer_id: producer for producer in part.active_producers}


def later(now: int, days: int) -> bytes:
    """Build a batch without a producer that is some days later, and so begins a segment."""
    return build_batch([(now + days * DAY_MS, b"later", b"v", ())])


@clause("IDM-8", "described after a restart")
@pytest.mark.cluster_fault
@pytest.mark.slow
@defect(
    Reply(
        DescribeProducersRequest,
        "topics.partitions.active_producers.last_timestamp",
        lambda timestamp: timestamp + next(ANOTHER),
    )
)
def test_a_producer_of_a_closed_segment_is_described_as_before_a_restart(cluster: Cluster) -> None:
    """The last segment has no batch of the first producer and of the transactions, and one of the second."""
    topic = create_single_replica(cluster, **QUICK_SEGMENTS)
    first, second = (IdempotentProducer.create(cluster, topic) for _ in range(2))
    ended, still_open = (Transactional.initialize(cluster) for _ in range(2))
    leader = first.broker
    leader.version_of(DescribeProducersRequest)
    first.send_accepted(0, 2)
    second.send_accepted(0)
    for producer in (ended, still_open):
        producer.begin(topic)
        producer.write(topic, 0)
    ended.end(commit=COMMIT)
    eventually_stable(cluster, leader, topic, 4)
    for day in (1, 2):
        expect("error code of Produce", 0, leader.produce(topic, later(cluster.now_ms(), day)).error_code)
    second.send_accepted(1)
    before = states(leader, topic)
    known = sorted(each.producer_id for each in (first, second, ended, still_open))
    expect(f"producers {sorted(before)}", True, sorted(before) == known)
    topic, leader = restart_leader(cluster, topic)
    expect("producers after the restart", before, states(leader, topic))


@clause("IDM-8", "deleted segments")
@pytest.mark.slow
@defect(Reply(ProduceRequest, "responses.partition_responses.base_offset", 0))
@era("3.9")  # 2.8.2 forgets a producer whose records are deleted
def test_the_state_outlives_the_segments(cluster: Cluster) -> None:
    """A broker removes the files some time after the records are deleted."""
    interval_ms = cluster.setting("log_retention_check_interval_ms")
    if interval_ms > LONGEST_INTERVAL_MS:
        raise Unsupported("the target's log.retention.check.interval.ms is above 5 s")
    topic = cluster.create_topic(configs=QUICK_SEGMENTS)
    producer = IdempotentProducer.create(cluster, topic)
    leader = producer.broker
    for sequence in range(3):
        producer.send_accepted(sequence)
    expect("error code of Produce", 0, leader.produce(topic, later(cluster.now_ms(), 1)).error_code)
    expect("error code and low watermark", (0, 3), delete_records(leader, topic, 3))
    leader.expect_silence(3 * interval_ms / 1000)
    expect("offset of the repeated batch", 2, producer.send_accepted(2))
    expect("error code of a gap", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, producer.send(4).error_code)
    expect("offset of the next batch", 4, producer.send_accepted(3))


@clause("FET-36", "last batch of a producer")
@era("1.1")  # KAFKA-5494
@pytest.mark.slow
@defect(
    Reply(FetchRequest, "responses.partitions.records", b""),
    Reply(ProduceRequest, "responses.partition_responses.base_offset", increment),
)
def test_compaction_keeps_the_last_batch_of_a_producer_without_its_records(cluster: Cluster) -> None:
    """A broker that loads the log again knows the producer from this batch alone."""
    topic = cluster.create_topic(configs={**QUICK_COMPACTION, **LATER_ACCEPTED})
    producer = IdempotentProducer.create(cluster, topic)
    leader = producer.broker
    for sequence in range(3):  # the first record of each batch has the same key
        producer.send_accepted(sequence)
    for day in range(1, 4):
        expect("error code of Produce", 0, leader.produce(topic, _same_key(cluster.now_ms(), day)).error_code)

    def of_producer() -> list[BatchHeader]:
        data = leader.fetch(topic, 0).records or b""
        return [header for _, header in batch_headers(data) if header.producer_id == producer.producer_id]

    def is_emptied() -> bool:
        return [header.record_count for header in of_producer()] == [0]

    cluster.eventually("one batch of the producer, without records", is_emptied, CLEANED_S)
    kept = only(tuple(of_producer()))
    expect("first offset, sequence", (2, 2), (kept.base_offset, kept.base_sequence))
    expect("offset of the repeated batch", 2, producer.send_accepted(2))
    expect("error code of a gap", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, producer.send(4).error_code)
    expect("offset of the next batch", leader.end_offset(topic), producer.send_accepted(3))


def _same_key(now: int, day: int) -> bytes:
    """Build a batch with the key of the first record of each batch of a producer, which begins a segment."""
    return build_batch([(now + day * DAY_MS, b"k0", b"later", ())])


@clause("TXN-1", "aborted batch")
@defect(
    Reply(ProduceRequest, PRODUCE_ERROR, 0),
    Request(ProduceRequest, "topic_data.partition_data.records", later(NOW_MS, 0)),
)
@pytest.mark.parametrize("again", ["the same batch", "the next batch"])
def test_a_fenced_instance_cannot_write_after_the_abort(cluster: Cluster, again: str) -> None:
    """The marker of the abort has the next epoch, which the partition keeps: KIP-360, `ProducerAppendInfo`."""
    topic = cluster.create_topic()
    old = Transactional.initialize(cluster)
    old.begin(topic)
    old.write(topic, 0)
    Transactional.initialize(cluster, transactional_id=old.id)
    with cluster.leader(topic) as leader:
        eventually_stable(cluster, leader, topic, 2)
    sequence = 0 if again == "the same batch" else 1
    expect("error code", ErrorCode.INVALID_PRODUCER_EPOCH, old.produce(topic, sequence).error_code)
    with cluster.leader(topic) as leader:
        expect("log end", 2, leader.end_offset(topic))
