"""Isolation levels of Fetch, ListOffsets and OffsetFetch with open, committed and aborted transactions."""

from dataclasses import replace

import pytest

from highwater.conformance.cases.support.committed_offsets import commit, committed_part
from highwater.conformance.cases.support.transactions import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Transactional,
    eventually_stable,
    fetch_committed,
)
from highwater.conformance.clause import clause, sweep
from highwater.conformance.client.broker import LATEST, Broker, Topic, batch, now_ms
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import GuardOff, Reply, Request, defect, without_error
from highwater.conformance.expectations import expect, only
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import OffsetFetchRequest
from highwater.reference.wire.messages.fetch import AbortedTransaction, FetchRequest
from highwater.reference.wire.messages.offsets import ListOffsetsRequest
from highwater.reference.wire.messages.transactions import InitProducerIdRequest
from highwater.reference.wire.records import batch_headers, build_batch

NONE = -1
STRANGER = AbortedTransaction(producer_id=1_000_000, first_offset=0)


@pytest.fixture
def producer(cluster: Cluster, topic: Topic) -> Transactional:
    """Produce a record without transaction, then return a producer with an open transaction of one record."""
    cluster.connect().version_of(InitProducerIdRequest)
    # The current time, as in the transaction: an old timestamp would roll the segment, and a fetch stops at its end.
    cluster.leader(topic).produce(topic, batch(b"plain", timestamp_ms=cluster.now_ms()))
    producer = Transactional.initialize(cluster)
    producer.begin(topic)
    producer.write(topic, 0)
    return producer


def offsets_of(data: bytes | None) -> list[int]:
    return [header.base_offset for _, header in batch_headers(data or b"")]


@clause("FET-6", "open")
@sweep(FetchRequest, 4)
@defect(Request(FetchRequest, "isolation_level", READ_UNCOMMITTED))
def test_read_committed_ends_at_the_open_transaction(
    leader: Broker, topic: Topic, producer: Transactional, version: int
) -> None:
    answer = leader.fetch(topic, 0, version=version, isolation_level=READ_COMMITTED)
    expect("base offsets", True, offsets_of(answer.records) == [0])
    expect("last stable offset and high watermark", (1, 2), (answer.last_stable_offset, answer.high_watermark))
    whole = leader.fetch(topic, 0, version=version, isolation_level=READ_UNCOMMITTED)
    expect("base offsets for read_uncommitted", True, offsets_of(whole.records) == [0, 1])


@clause("FET-6", "aborted")
@sweep(FetchRequest, 4)
@defect(
    Reply(FetchRequest, "responses.partitions.aborted_transactions", ()),
    Request(FetchRequest, "isolation_level", READ_UNCOMMITTED),
)
def test_an_aborted_transaction_is_named(
    cluster: Cluster, leader: Broker, topic: Topic, producer: Transactional, version: int
) -> None:
    leader.need(FetchRequest, version)
    producer.end(commit=False)
    eventually_stable(cluster, leader, topic, 3)
    answer = leader.fetch(topic, 0, version=version, isolation_level=READ_COMMITTED)
    named = only(tuple(answer.aborted_transactions or ()))
    expect("producer and first offset", (producer.producer_id, 1), (named.producer_id, named.first_offset))
    expect("base offsets, marker included", True, offsets_of(answer.records) == [0, 1, 2])


@clause("FET-6", "behind")
@defect(Reply(FetchRequest, "responses.partitions.aborted_transactions", (STRANGER,)))
def test_an_aborted_transaction_is_not_named_behind_its_end(
    cluster: Cluster, leader: Broker, topic: Topic, producer: Transactional
) -> None:
    producer.end(commit=False)
    eventually_stable(cluster, leader, topic, 3)
    leader.produce(topic, batch(b"later"))
    answer = leader.fetch(topic, 3, isolation_level=READ_COMMITTED)
    expect("aborted transactions", 0, len(answer.aborted_transactions or ()))
    expect("base offsets", True, offsets_of(answer.records) == [3])


@clause("FET-6", "committed")
@defect(Reply(FetchRequest, "responses.partitions.aborted_transactions", (STRANGER,)))
def test_a_committed_transaction_is_named_nowhere(
    cluster: Cluster, leader: Broker, topic: Topic, producer: Transactional
) -> None:
    producer.end(commit=True)
    eventually_stable(cluster, leader, topic, 3)
    answer = fetch_committed(leader, topic)
    expect("aborted transactions", 0, len(answer.aborted_transactions or ()))
    expect("base offsets", True, offsets_of(answer.records) == [0, 1, 2])


@clause("FET-6", "inside")
@pytest.mark.parametrize("offset", [2, 3], ids=["second batch", "marker"])
@defect(Reply(FetchRequest, "responses.partitions.aborted_transactions", ()))
def test_an_aborted_transaction_that_began_before_the_fetch_is_named(
    cluster: Cluster, leader: Broker, topic: Topic, producer: Transactional, offset: int
) -> None:
    producer.write(topic, 1)
    producer.end(commit=False)
    eventually_stable(cluster, leader, topic, 4)
    leader.produce(topic, batch(b"later", timestamp_ms=cluster.now_ms()))
    answer = leader.fetch(topic, offset, isolation_level=READ_COMMITTED)
    named = only(tuple(answer.aborted_transactions or ()))
    expect("producer and first offset", (producer.producer_id, 1), (named.producer_id, named.first_offset))


@clause("LST-4", "time")
@defect(Request(ListOffsetsRequest, "isolation_level", READ_UNCOMMITTED))
def test_a_time_in_an_open_transaction_is_not_found(leader: Broker, topic: Topic, producer: Transactional) -> None:
    later_ms = now_ms(leader.clock) + 60_000
    records = [(later_ms, b"k", b"v", ())]
    expect("error code", 0, leader.produce(topic, build_batch(records)).error_code)
    version = leader.version_of(ListOffsetsRequest, 2)
    for level, offset in ((READ_COMMITTED, NONE), (READ_UNCOMMITTED, 2)):
        answer = leader.list_offset(topic, later_ms, version=version, isolation_level=level)
        expect(f"error code and offset for isolation level {level}", (0, offset), (answer.error_code, answer.offset))


@clause("OFF-7", "other partition")
@defect(Reply(OffsetFetchRequest, "groups.topics.partitions.error_code", ErrorCode.UNSTABLE_OFFSET_COMMIT))
def test_only_the_offset_of_the_transaction_is_unstable(cluster: Cluster, topic: Topic) -> None:
    group, producer = cluster.group(), Transactional.initialize(cluster)
    broker = cluster.coordinator(group)
    version = broker.version_of(OffsetFetchRequest, 7)
    other = replace(topic, partition=0) if topic.partition else cluster.create_topic()
    expect("error code of the plain commit", 0, commit(broker, group, other, 5))
    producer.add_offsets(group)
    expect("error code of the commit", 0, producer.commit_offset(group, topic, 42))
    for asked, expected in ((topic, (ErrorCode.UNSTABLE_OFFSET_COMMIT, NONE)), (other, (0, 5))):
        part = committed_part(broker, group, asked, version, require_stable=True)
        expect("error code and offset", expected, (part.error_code, part.committed_offset))
    producer.end(commit=False)


@clause("LST-4", "open")
@sweep(ListOffsetsRequest, 2, 10)
@defect(Request(ListOffsetsRequest, "isolation_level", READ_UNCOMMITTED))
def test_the_end_for_read_committed_is_the_last_stable_offset(
    leader: Broker, topic: Topic, producer: Transactional, version: int
) -> None:
    for level, end in ((READ_COMMITTED, 1), (READ_UNCOMMITTED, 2)):
        answer = leader.list_offset(topic, LATEST, version=version, isolation_level=level)
        expect(f"end for isolation level {level}", end, answer.offset)


@clause("OFF-7")
@sweep(OffsetFetchRequest, 7, 9)
@defect(
    Request(OffsetFetchRequest, "require_stable", False),
    *(
        Reply(OffsetFetchRequest, f"{place}.error_code", without_error(ErrorCode.UNSTABLE_OFFSET_COMMIT))
        for place in ("topics.partitions", "groups.topics.partitions")
    ),
    GuardOff("AwaitStableOffsets"),
)
def test_an_offset_of_an_open_transaction_is_unstable(cluster: Cluster, topic: Topic, version: int) -> None:
    group, producer = cluster.group(), Transactional.initialize(cluster)
    broker = cluster.coordinator(group)
    broker.need(OffsetFetchRequest, version)
    producer.add_offsets(group)
    expect("error code of the commit", 0, producer.commit_offset(group, topic, 42))
    open_one = committed_part(broker, group, topic, version, require_stable=True)
    expect("error code while the transaction is open", ErrorCode.UNSTABLE_OFFSET_COMMIT, open_one.error_code)
    loose = committed_part(broker, group, topic, version)
    expect("error code and offset without require_stable", (0, NONE), (loose.error_code, loose.committed_offset))
    producer.end(commit=True)

    def stable() -> bool:
        part = committed_part(broker, group, topic, version, require_stable=True)
        return (part.error_code, part.committed_offset) == (0, 42)

    cluster.eventually("the committed offset", stable)
