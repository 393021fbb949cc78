"""The end of a transaction, and the records that are read before and after it."""

from dataclasses import replace
from math import ceil
from typing import Any

import pytest

from highwater.conformance.cases.support.producers import sequenced
from highwater.conformance.cases.support.transactions import (
    ABORT,
    COMMIT,
    NEW_END,
    NEW_PRODUCE,
    READ_COMMITTED,
    Transactional,
    code_id_epoch,
    committed_values,
    eventually_stable,
    fetch_committed,
    stored_records,
)
from highwater.conformance.cases.topics.test_replicas import delete_records
from highwater.conformance.clause import clause, sweep
from highwater.conformance.client.broker import LATEST, Topic, batch, produce_request, records_of
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import GuardOff, Reply, Request, defect
from highwater.conformance.expectations import expect, only
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.offsets import ListOffsetsRequest
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.messages.transactions import EndTxnRequest
from highwater.reference.wire.records import batch_headers

PRODUCE_ERROR = "responses.partition_responses.error_code"
ENDS = 10
LAST_STABLE = "responses.partitions.last_stable_offset"


@clause("TXN-5")
@defect(Reply(FetchRequest, "responses.partitions.records", b""))
@sweep(EndTxnRequest, 0, 4)
def test_what_is_committed_is_seen(cluster: Cluster, topic: Topic, producer: Transactional, version: int) -> None:
    producer.begin(topic)
    producer.write(topic, 0, b"a", b"b")
    producer.end(commit=COMMIT, version=version)
    leader = cluster.leader(topic)
    eventually_stable(cluster, leader, topic, 3)
    expect("committed values", True, committed_values(leader, topic) == [b"a", b"b"])


@clause("TXN-5", "marker")
@defect(Reply(FetchRequest, "responses.partitions.records", b""))
@pytest.mark.parametrize("commit", [COMMIT, ABORT], ids=["commit", "abort"])
def test_a_marker_takes_an_offset(cluster: Cluster, topic: Topic, producer: Transactional, commit: bool) -> None:
    producer.begin(topic)
    producer.write(topic, 0)
    producer.end(commit=commit)
    leader = cluster.leader(topic)
    eventually_stable(cluster, leader, topic, 2)
    data = leader.fetch(topic, 1).records or b""
    header = only(tuple(header for _, header in batch_headers(data)))
    expect("marker: control, transactional, offset", (True, True, 1), _marks(header))
    expect("producer id", producer.producer_id, header.producer_id)
    key = only(tuple(records_of(data))).key
    expect("key: version 0, and 1 for commit, 0 for abort", b"\0\0\0\1" if commit else b"\0\0\0\0", key)


def _marks(header: Any) -> tuple[bool, bool, int]:
    return header.is_control, header.is_transactional, header.base_offset


@clause("TXN-6")
@defect(Reply(FetchRequest, "responses.partitions.aborted_transactions", ()), GuardOff("HideAborted"))
def test_what_is_aborted_is_named(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    producer.begin(topic)
    producer.write(topic, 0, b"no")
    producer.end(commit=ABORT)
    producer.begin(topic)
    producer.write(topic, 1, b"yes")
    producer.end(commit=COMMIT)
    leader = cluster.leader(topic)
    eventually_stable(cluster, leader, topic, 4)
    aborted = only(fetch_committed(leader, topic).aborted_transactions or ())
    expect("id and first offset", (producer.producer_id, 0), (aborted.producer_id, aborted.first_offset))
    expect("committed values", True, committed_values(leader, topic) == [b"yes"])


@clause("TXN-7")
@defect(Reply(FetchRequest, LAST_STABLE, 2), Request(FetchRequest, "isolation_level", 0), GuardOff("StableBeforeOpen"))
def test_an_open_transaction_holds_readers_back(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    leader = cluster.leader(topic)
    leader.produce(topic, batch(b"before"))
    producer.begin(topic)
    producer.write(topic, 0, b"open")
    leader.produce(topic, batch(b"behind"))
    expect("values for read_committed", True, committed_values(leader, topic) == [b"before"])
    part = fetch_committed(leader, topic)
    expect("last stable offset, high watermark", (1, 3), (part.last_stable_offset, part.high_watermark))
    expect("records from the last stable offset on", b"", fetch_committed(leader, topic, 1).records or b"")
    producer.end(commit=COMMIT)
    eventually_stable(cluster, leader, topic, 4)
    expect("values after the commit", True, committed_values(leader, topic) == [b"before", b"open", b"behind"])


@clause("TXN-7", "position")
@defect(Reply(FetchRequest, "responses.partitions.error_code", ErrorCode.OFFSET_OUT_OF_RANGE))
def test_a_position_in_an_open_transaction_is_in_range(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    producer.begin(topic)
    for sequence in range(2):
        producer.write(topic, sequence)
    for offset in range(3):
        found = fetch_committed(cluster.leader(topic), topic, offset)
        expect(f"error code and records at {offset}", (0, b""), (found.error_code, found.records or b""))


@clause("TXN-6", "after a deletion")
@defect(Reply(FetchRequest, "responses.partitions.aborted_transactions", ()))
def test_an_aborted_transaction_that_lost_its_start_is_named(
    cluster: Cluster, topic: Topic, producer: Transactional
) -> None:
    producer.begin(topic)
    for sequence in range(2):
        producer.write(topic, sequence)
    producer.end(commit=ABORT)
    leader = cluster.leader(topic)
    eventually_stable(cluster, leader, topic, 3)
    expect("error code of DeleteRecords", 0, delete_records(leader, topic, 1).error_code)
    aborted = fetch_committed(leader, topic, 1).aborted_transactions or ()
    expect("producers", [producer.producer_id], [transaction.producer_id for transaction in aborted])


@clause("TXN-7", "ListOffsets")
@defect(Request(ListOffsetsRequest, "isolation_level", 0))
def test_the_end_for_read_committed_is_the_last_stable_offset(
    cluster: Cluster, topic: Topic, producer: Transactional
) -> None:
    producer.begin(topic)
    producer.write(topic, 0, b"open", b"too")
    leader = cluster.leader(topic)
    version = leader.version_of(ListOffsetsRequest, 2)
    found = leader.list_offset(topic, LATEST, version=version, isolation_level=READ_COMMITTED)
    expect("offset", 0, found.offset)
    expect("end for read_uncommitted", 2, leader.end_offset(topic))


@clause("TXN-29")
@defect(Reply(FetchRequest, LAST_STABLE, 3))
def test_the_oldest_open_transaction_counts(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    second = Transactional.initialize(cluster)
    for transaction in (producer, second):
        transaction.begin(topic)
        transaction.write(topic, 0)
    leader = cluster.leader(topic)
    expect("last stable offset while both are open", 0, fetch_committed(leader, topic).last_stable_offset)
    second.end(commit=COMMIT)
    cluster.eventually("the marker of the second transaction", lambda: leader.end_offset(topic) == 3)
    expect("last stable offset", 0, fetch_committed(leader, topic).last_stable_offset)
    producer.end(commit=COMMIT)
    eventually_stable(cluster, leader, topic, 4)


@clause("TXN-23")
@defect(Reply(FetchRequest, "responses.partitions.records", b""))
def test_read_uncommitted_waits_for_no_end(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    producer.begin(topic)
    producer.write(topic, 0, b"open")
    part = cluster.leader(topic).fetch(topic, 0)
    expect("values", True, [record.value for record in records_of(part.records)] == [b"open"])


@clause("TXN-22")
@defect(Reply(FetchRequest, "responses.partitions.records", b""))
@pytest.mark.parametrize("commit", [COMMIT, ABORT], ids=["commit", "abort"])
def test_partitions_end_together(cluster: Cluster, topic: Topic, producer: Transactional, commit: bool) -> None:
    topics = (topic, cluster.create_topic())
    producer.begin(*topics)
    for written_topic in topics:
        producer.write(written_topic, 0, b"v")
    producer.end(commit=commit)
    for written_topic in topics:
        leader = cluster.leader(written_topic)
        eventually_stable(cluster, leader, written_topic, 2)
        expect("committed values", True, committed_values(leader, written_topic) == ([b"v"] if commit else []))
        expect("stored values", 2, len(stored_records(leader, written_topic)))


@clause("TXN-22", "deleted topic")
@defect(Reply(FetchRequest, LAST_STABLE, 0))
def test_a_transaction_ends_without_the_topic_that_was_deleted(
    cluster: Cluster, topic: Topic, producer: Transactional
) -> None:
    deleted = cluster.create_topic()
    producer.begin(topic, deleted)
    for written_topic in (topic, deleted):
        producer.write(written_topic, 0, b"v")
    cluster.delete_topics(deleted.name)
    producer.end(commit=COMMIT)
    leader = cluster.leader(topic)
    eventually_stable(cluster, leader, topic, 2)
    expect("committed values", True, committed_values(leader, topic) == [b"v"])
    producer.begin(topic)  # succeeds once the commit is complete


@clause("TXN-8")
@defect(Reply(FetchRequest, LAST_STABLE, 0), GuardOff("TimeoutFences"))
@pytest.mark.slow
def test_a_transaction_that_takes_too_long_is_aborted(cluster: Cluster, topic: Topic) -> None:
    scan_s = cluster.setting("transaction_abort_timed_out_transaction_cleanup_interval_ms") / 1000
    producer = Transactional.initialize(cluster, timeout_ms=500)
    producer.begin(topic)
    producer.write(topic, 0)
    leader = cluster.leader(topic)
    eventually_stable(cluster, leader, topic, 2, 20.0 + 2 * scan_s)
    expect("committed values", True, committed_values(leader, topic) == [])
    expect("error code of EndTxn afterwards", ErrorCode.PRODUCER_FENCED, producer.end_reply(commit=COMMIT).error_code)


@clause("TXN-9", "empty")
@defect(Reply(EndTxnRequest, "error_code", 0))
@pytest.mark.parametrize("commit", [COMMIT, ABORT], ids=["commit", "abort"])
@sweep(EndTxnRequest, 0, 4)
def test_nothing_cannot_be_ended(producer: Transactional, version: int, commit: bool) -> None:
    expect(
        "error code of EndTxn",
        ErrorCode.INVALID_TXN_STATE,
        producer.end_reply(commit=commit, version=version).error_code,
    )


@clause("TXN-9", "empty, new")
@defect(Reply(EndTxnRequest, "error_code", ErrorCode.TRANSACTION_ABORTABLE))
@pytest.mark.parametrize(
    ("commit", "error"), [(COMMIT, ErrorCode.INVALID_TXN_STATE), (ABORT, 0)], ids=["commit", "abort"]
)
def test_nothing_may_be_aborted(new_producer: Transactional, commit: bool, error: int) -> None:
    expect("error code of EndTxn", error, new_producer.end_reply(commit=commit, version=NEW_END).error_code)


@clause("TXN-9", "repeated")
@defect(Reply(EndTxnRequest, "error_code", 1))
@pytest.mark.parametrize("commit", [COMMIT, ABORT], ids=["commit", "abort"])
def test_an_end_may_be_repeated_but_not_turned(topic: Topic, producer: Transactional, commit: bool) -> None:
    producer.begin(topic)
    producer.end(commit=commit)
    expect("error code of a repeated EndTxn", 0, producer.end_reply(commit=commit).error_code)
    expect(
        "error code of the opposite EndTxn",
        ErrorCode.INVALID_TXN_STATE,
        producer.end_reply(commit=not commit).error_code,
    )


@clause("TXN-24")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, 45))
def test_sequences_go_on_in_the_next_transaction(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    for sequence in range(3):
        producer.begin(topic)
        producer.write(topic, sequence)
        producer.end(commit=COMMIT)
    eventually_stable(cluster, cluster.leader(topic), topic, 6)


@clause("TXN-14")
@defect(Reply(EndTxnRequest, "producer_epoch", 0))
def test_each_end_bumps_the_epoch(cluster: Cluster, topic: Topic, new_producer: Transactional) -> None:
    for epoch in (0, 1, 2):
        expect("epoch", epoch, new_producer.epoch)
        new_producer.write(topic, 0, b"%d" % epoch, version=NEW_PRODUCE)
        new_producer.end(commit=COMMIT, version=NEW_END)
    leader = cluster.leader(topic)
    eventually_stable(cluster, leader, topic, 6)
    expect("committed values", True, committed_values(leader, topic) == [b"0", b"1", b"2"])


@clause("TXN-7", "recompressed")
@defect(Reply(FetchRequest, LAST_STABLE, 1))
def test_a_batch_that_the_broker_compresses_stays_in_its_transaction(cluster: Cluster, producer: Transactional) -> None:
    """The broker rewrites the batch with the codec of the topic, and keeps its other attributes (LogValidator)."""
    topic = cluster.create_topic(configs={"compression.type": "gzip"})
    producer.begin(topic)
    producer.write(topic, 0, b"open")
    leader = cluster.leader(topic)
    expect("last stable offset of an open transaction", 0, fetch_committed(leader, topic).last_stable_offset)
    producer.end(commit=ABORT)
    eventually_stable(cluster, leader, topic, 2)
    expect("committed values", True, committed_values(leader, topic) == [])


@clause("TXN-4", "right after an end")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, ErrorCode.CONCURRENT_TRANSACTIONS))
def test_a_first_batch_waits_for_the_markers_before_it(
    cluster: Cluster, topic: Topic, new_producer: Transactional
) -> None:
    """The leader tries again for add.partitions.to.txn.retry.backoff.max.ms (KIP-890), which suffices now and then."""
    leader, accepted = cluster.leader(topic), 0
    for _ in range(ENDS):
        new_producer.write(topic, 0, version=NEW_PRODUCE)
        new_producer.end(commit=COMMIT, version=NEW_END)
        first = sequenced(cluster.clock, new_producer.producer_id, new_producer.epoch, 0, b"v", transactional=True)
        request = replace(produce_request(topic, first), transactional_id=new_producer.id)
        error = only(only(leader.call(request, NEW_PRODUCE).responses).partition_responses).error_code
        expect("error code of the first batch", {0, ErrorCode.CONCURRENT_TRANSACTIONS}, error)
        if not error:
            accepted += 1
            new_producer.end(commit=COMMIT, version=NEW_END)
    expect(f"{accepted} of {ENDS} first batches are accepted at once", True, accepted > 0)


@clause("TXN-15")
@defect(Reply(EndTxnRequest, "error_code", 0), GuardOff("FenceStaleEndTxn"))
@pytest.mark.parametrize("commit", [COMMIT, ABORT], ids=["commit", "abort"])
def test_a_late_end_does_not_end_the_next(
    cluster: Cluster, topic: Topic, new_producer: Transactional, commit: bool
) -> None:
    late = Transactional(cluster, new_producer.id)
    late.producer_id, late.epoch = new_producer.producer_id, new_producer.epoch
    new_producer.write(topic, 0, version=NEW_PRODUCE)
    new_producer.end(commit=commit, version=NEW_END)
    new_producer.write(topic, 0, b"next", version=NEW_PRODUCE)
    expect(
        "error code of the late EndTxn",
        ErrorCode.PRODUCER_FENCED,
        late.end_reply(commit=commit, version=NEW_END).error_code,
    )
    expect("last stable offset", 2, fetch_committed(cluster.leader(topic), topic).last_stable_offset)
    new_producer.end(commit=COMMIT, version=NEW_END)


@clause("TXN-27")
@defect(Reply(EndTxnRequest, "error_code", ErrorCode.PRODUCER_FENCED))
def test_an_end_that_is_repeated_is_answered_alike(topic: Topic, new_producer: Transactional) -> None:
    new_producer.write(topic, 0, version=NEW_PRODUCE)
    for attempt in ("first", "repeated"):
        reply = new_producer.end_reply(commit=COMMIT, version=NEW_END)
        expect(f"error, id, epoch of the {attempt} EndTxn", (0, new_producer.producer_id, 1), code_id_epoch(reply))


@clause("TXN-8", "partitions added")
@defect(Reply(FetchRequest, LAST_STABLE, 0))
@pytest.mark.slow
def test_adding_partitions_does_not_prolong_a_transaction(cluster: Cluster, topic: Topic) -> None:
    scan_s = cluster.setting("transaction_abort_timed_out_transaction_cleanup_interval_ms") / 1000
    producer = Transactional.initialize(cluster, timeout_ms=1_500)
    patience_s, pause_s = 10.0 + 2 * scan_s, 0.4
    other = cluster.create_topic(partitions=ceil(patience_s / pause_s))
    parts = [replace(other, partition=index) for index in range(ceil(patience_s / pause_s))]
    producer.begin(topic)
    producer.write(topic, 0)
    leader = cluster.leader(topic)

    def is_aborted() -> bool:
        if parts:
            producer.add(parts.pop())
            cluster.clock.sleep(pause_s)
        return fetch_committed(leader, topic).last_stable_offset == 2

    cluster.eventually("the abort", is_aborted, patience_s)
    expect("partitions that were not added before the abort", True, bool(parts))
