"""Transactions: who may write in one, what ends it, and what a reader sees before and after."""

from contextlib import suppress
from typing import Any

import pytest

from conformance.broker import LATEST, Broker, Topic, batch, expect, only, records_of
from conformance.cases.members import GroupDriver
from conformance.cases.producers import init_producer_id
from conformance.cases.transactions import (
    ABORT,
    COMMIT,
    NEW_END,
    NEW_OFFSETS,
    NEW_PRODUCE,
    READ_COMMITTED,
    Transactional,
    committed_offset,
    committed_values,
    coordinator_of,
    eventually_stable,
    fetch_committed,
    find_transaction_coordinator,
    need_transaction_version,
    stored_records,
)
from conformance.clause import clause, sweep
from conformance.cluster import Cluster
from conformance.defects import Reply, Request, defect
from conformance.failures import Disconnected
from conformance.targets.base import STOP_NODE
from reference.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from reference.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from reference.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from reference.wire.messages.describe_transactions import DescribeTransactionsRequest
from reference.wire.messages.end_txn import EndTxnRequest
from reference.wire.messages.fetch import FetchRequest
from reference.wire.messages.find_coordinator import FindCoordinatorRequest
from reference.wire.messages.init_producer_id import InitProducerIdRequest
from reference.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from reference.wire.messages.list_transactions import ListTransactionsRequest
from reference.wire.messages.offset_fetch import OffsetFetchRequest
from reference.wire.messages.produce import ProduceRequest
from reference.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from reference.wire.records import batch_headers

UNKNOWN_PARTITION, NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER = 3, 16, 22, 25
FENCED_INSTANCE, ID_NOT_FOUND = 82, 105
INVALID_REQUEST, INVALID_EPOCH, INVALID_STATE, WRONG_ID, BAD_TIMEOUT = 42, 47, 48, 49, 50
NOT_AUTHORISED, NOT_ATTEMPTED, FENCED, ABORTABLE = 53, 55, 90, 120
LONGEST_MS = (1 << 31) - 1
PRODUCE_ERROR = "responses.partition_responses.error_code"
LAST_STABLE = "responses.partitions.last_stable_offset"


@pytest.fixture
def producer(cluster: Cluster) -> Transactional:
    return Transactional.ready(cluster)


@pytest.fixture
def new_producer(producer: Transactional) -> Transactional:
    """Of a cluster where a batch takes its partition in, and every end bumps the epoch."""
    need_transaction_version(producer.coordinator, 2)
    return producer


def fenced(cluster: Cluster, topic: Topic) -> Transactional:
    """An instance that had a transaction open when another of its transactional id came."""
    old = Transactional.ready(cluster)
    old.begin(topic)
    old.write(topic, 0)
    Transactional.ready(cluster, transactional_id=old.id)
    return old


# -- one instance at a time --------------------------------------------------------------------------


@clause("TXN-1", "epoch")
@defect(Reply(InitProducerIdRequest, "producer_epoch", 0))
@sweep(InitProducerIdRequest, 0, 5)
def test_the_next_instance_has_the_next_epoch(cluster: Cluster, version: int) -> None:
    first = Transactional(cluster)
    expect("error code and epoch", (0, 0), _code_and_epoch(first.init(version)))
    again = Transactional(cluster, first.id)
    expect("error code and epoch", (0, 1), _code_and_epoch(again.init(version)))
    expect("producer id", first.producer_id, again.producer_id)


def _code_and_epoch(reply: Any) -> tuple[int, int]:
    return reply.error_code, reply.producer_epoch


@clause("TXN-1", "Produce")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, 0))
def test_a_fenced_instance_cannot_write(cluster: Cluster, topic: Topic) -> None:
    old = fenced(cluster, topic)
    expect("error code of Produce", INVALID_EPOCH, old.produce(topic, 1).error_code)


@clause("TXN-1", "InitProducerId")
@defect(Reply(InitProducerIdRequest, "error_code", 0))
@pytest.mark.parametrize(("version", "error"), [(3, INVALID_EPOCH), (4, FENCED)], ids=["v3", "v4"])
def test_a_fenced_instance_cannot_come_back(cluster: Cluster, topic: Topic, version: int, error: int) -> None:
    old = fenced(cluster, topic)
    reply = old.init(version, producer_id=old.producer_id, producer_epoch=old.epoch)
    expect("error code of InitProducerId", error, reply.error_code)


FENCED_SINCE_2 = pytest.mark.parametrize(("version", "error"), [(1, INVALID_EPOCH), (2, FENCED)], ids=["v1", "v2"])


@clause("TXN-1", "AddPartitionsToTxn")
@defect(Reply(AddPartitionsToTxnRequest, "results_by_topic_v3_and_below.results_by_partition.partition_error_code", 0))
@FENCED_SINCE_2
def test_a_fenced_instance_cannot_add(cluster: Cluster, topic: Topic, version: int, error: int) -> None:
    expect("error code", error, fenced(cluster, topic).add(topic, version=version)[topic.name])


@clause("TXN-1", "AddOffsetsToTxn")
@defect(Reply(AddOffsetsToTxnRequest, "error_code", 0))
@FENCED_SINCE_2
def test_a_fenced_instance_cannot_add_offsets(cluster: Cluster, topic: Topic, version: int, error: int) -> None:
    expect("error code", error, fenced(cluster, topic).add_offsets(cluster.group(), version))


@clause("TXN-1", "EndTxn")
@defect(Reply(EndTxnRequest, "error_code", 0))
@FENCED_SINCE_2
def test_a_fenced_instance_cannot_commit(cluster: Cluster, topic: Topic, version: int, error: int) -> None:
    reply = fenced(cluster, topic).end_reply(commit=COMMIT, version=version)
    expect("error code of EndTxn", error, reply.error_code)


@clause("TXN-2")
@defect(Request(InitProducerIdRequest, "transactional_id", None))
def test_the_next_instance_aborts_what_is_open(cluster: Cluster, topic: Topic) -> None:
    fenced(cluster, topic)
    leader = cluster.leader(topic)
    eventually_stable(cluster, leader, topic, 2)
    expect("committed values", True, committed_values(leader, topic) == [])


@clause("TXN-3")
@defect(Reply(InitProducerIdRequest, "error_code", 0))
@pytest.mark.parametrize("timeout_ms", [LONGEST_MS, 0, -1], ids=["too long", "none", "negative"])
def test_a_timeout_out_of_bounds_is_refused(cluster: Cluster, timeout_ms: int) -> None:
    reply = Transactional(cluster, timeout_ms=timeout_ms).init()
    expect("error code of InitProducerId", BAD_TIMEOUT, reply.error_code)


@clause("TXN-3", "limit")
@defect(Reply(InitProducerIdRequest, "error_code", BAD_TIMEOUT))
def test_the_longest_timeout_is_taken(cluster: Cluster) -> None:
    longest = cluster.setting("transaction_max_timeout_ms")
    expect("error code at the limit", 0, Transactional(cluster, timeout_ms=longest).init().error_code)
    expect("error code beyond", BAD_TIMEOUT, Transactional(cluster, timeout_ms=longest + 1).init().error_code)


@clause("TXN-25")
@defect(Reply(InitProducerIdRequest, "producer_epoch", lambda epoch: epoch + 1))
def test_an_instance_may_bump_its_own_epoch(producer: Transactional) -> None:
    producer.coordinator.version_of(InitProducerIdRequest, 3)
    named = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
    for attempt in ("first", "repeated"):
        reply = producer.init(**named)
        expect(f"error, id, epoch of the {attempt} request", (0, named["producer_id"], 1), _whole(reply))


def _whole(reply: Any) -> tuple[int, int, int]:
    return reply.error_code, reply.producer_id, reply.producer_epoch


@clause("TXN-26")
@defect(Reply(InitProducerIdRequest, "error_code", 0))
def test_an_empty_transactional_id_is_refused(cluster: Cluster, broker: Broker) -> None:
    reply = init_producer_id(cluster, broker, transactional_id="")
    expect("error code", INVALID_REQUEST, reply.error_code)


# -- who coordinates ---------------------------------------------------------------------------------


@clause("TXN-21", "lookup")
@defect(Reply(FindCoordinatorRequest, "coordinators.port", 1), Reply(FindCoordinatorRequest, "port", 1))
@sweep(FindCoordinatorRequest, 1, 6)
def test_every_version_names_the_same_coordinator(cluster: Cluster, broker: Broker, version: int) -> None:
    name = cluster.name("x")
    known = coordinator_of(cluster, name)
    found = find_transaction_coordinator(broker, name, version)
    expect("error code", 0, found.error_code)
    expect("address", known, f"{found.host}:{found.port}")
    expect("address of that broker", cluster.target.addresses[found.node_id], known)


@clause("TXN-21", "wrong broker")
@defect(Reply(InitProducerIdRequest, "error_code", 0))
def test_another_broker_refuses(cluster: Cluster) -> None:
    cluster.need_brokers(2)
    name = cluster.name("x")
    right = coordinator_of(cluster, name)
    wrong = cluster.connect(next(each for each in cluster.target.addresses.values() if each != right))
    reply = wrong.call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000))
    expect("error code", NOT_COORDINATOR, reply.error_code)


@clause("TXN-28")
@defect(Reply(EndTxnRequest, "error_code", WRONG_ID))
@pytest.mark.cluster_fault
@pytest.mark.slow
def test_an_open_transaction_outlives_its_coordinator(cluster: Cluster) -> None:
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    topic = cluster.create_topic(replicas=3)
    producer = Transactional.ready(cluster)
    producer.begin(topic)
    producer.write(topic, 0, b"kept")
    gone = next(node for node, at in cluster.target.addresses.items() if at == producer.coordinator.address)
    cluster.kill(gone)
    cluster.eventually("the next coordinator to commit", lambda: _commits_elsewhere(cluster, producer), 20.0)
    leader = cluster.leader(cluster.topic(topic.name, than_leader=gone))
    cluster.eventually("the record to be committed", lambda: committed_values(leader, topic) == [b"kept"], 15.0)


def _commits_elsewhere(cluster: Cluster, producer: Transactional) -> bool:
    with suppress(Disconnected):
        again = Transactional(cluster, producer.id)
        again.producer_id, again.epoch = producer.producer_id, producer.epoch
        return bool(again.end_reply(commit=COMMIT).error_code == 0)
    return False


# -- writing ---------------------------------------------------------------------------------------------


@clause("TXN-4", "classic")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, 0))
@pytest.mark.parametrize(("version", "error"), [(10, INVALID_STATE), (11, ABORTABLE)], ids=["v10", "v11"])
def test_a_partition_must_be_added_first(topic: Topic, producer: Transactional, version: int, error: int) -> None:
    answer = producer.produce(topic, 0, version=version)
    expect("error code of Produce", error, answer.error_code)


@clause("TXN-4", "new")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, ABORTABLE))
def test_a_batch_takes_its_partition_in(cluster: Cluster, topic: Topic, new_producer: Transactional) -> None:
    new_producer.write(topic, 0, b"v", version=NEW_PRODUCE)
    new_producer.end(commit=COMMIT, version=NEW_END)
    leader = cluster.leader(topic)
    eventually_stable(cluster, leader, topic, 2)
    expect("committed values", True, committed_values(leader, topic) == [b"v"])


@clause("TXN-12")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, 0))
def test_a_transactional_batch_needs_a_transactional_id(topic: Topic, producer: Transactional) -> None:
    producer.begin(topic)
    answer = producer.produce(topic, 0, transactional_id=None)
    expect("error code of Produce", NOT_AUTHORISED, answer.error_code)


@clause("TXN-13")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, 0))
def test_a_plain_batch_does_not_belong_into_a_transaction(topic: Topic, producer: Transactional) -> None:
    producer.begin(topic)
    producer.write(topic, 0)
    answer = producer.produce(topic, 1, transactional=False)
    expect("error code of Produce", INVALID_STATE, answer.error_code)


@clause("TXN-11")
@defect(
    Reply(EndTxnRequest, "error_code", 0),
    Reply(AddOffsetsToTxnRequest, "error_code", 0),
    Reply(AddPartitionsToTxnRequest, "results_by_topic_v3_and_below.results_by_partition.partition_error_code", 0),
)
def test_another_producer_id_is_refused(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    producer.begin(topic)
    producer.producer_id += 1000
    expect("error code of AddPartitionsToTxn", WRONG_ID, producer.add(topic)[topic.name])
    expect("error code of AddOffsetsToTxn", WRONG_ID, producer.add_offsets(cluster.group()))
    expect("error code of EndTxn", WRONG_ID, producer.end_reply(commit=COMMIT).error_code)


@clause("TXN-11", "unknown")
@defect(Reply(EndTxnRequest, "error_code", 0))
def test_a_transactional_id_that_nobody_has_is_refused(cluster: Cluster) -> None:
    stranger = Transactional(cluster)
    stranger.producer_id, stranger.epoch = 7, 0
    expect("error code of EndTxn", WRONG_ID, stranger.end_reply(commit=COMMIT).error_code)


@clause("TXN-19")
@defect(Reply(AddPartitionsToTxnRequest, "results_by_topic_v3_and_below.results_by_partition.partition_error_code", 0))
def test_partitions_are_added_together_or_not_at_all(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    missing = Topic(cluster.name(), topic.leader, topic.leader_id)
    found = producer.add(topic, missing)
    expect("error code of the one that is missing", UNKNOWN_PARTITION, found[missing.name])
    expect("error code of the other", NOT_ATTEMPTED, found[topic.name])


@clause("TXN-30")
@defect(
    Reply(
        AddPartitionsToTxnRequest,
        "results_by_topic_v3_and_below.results_by_partition.partition_error_code",
        INVALID_STATE,
    )
)
@sweep(AddPartitionsToTxnRequest, 0, 3)
def test_a_partition_may_be_added_again(topic: Topic, producer: Transactional, version: int) -> None:
    for attempt in ("first", "second"):
        expect(f"error code of the {attempt} request", 0, producer.add(topic, version=version)[topic.name])


# -- the end ---------------------------------------------------------------------------------------------


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
@defect(Reply(FetchRequest, "responses.partitions.aborted_transactions", ()))
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
@defect(Reply(FetchRequest, LAST_STABLE, 2), Request(FetchRequest, "isolation_level", 0))
def test_an_open_transaction_holds_readers_back(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    leader = cluster.leader(topic)
    leader.produce(topic, batch(b"before"))
    producer.begin(topic)
    producer.write(topic, 0, b"open")
    leader.produce(topic, batch(b"behind"))
    expect("values that read_committed may see", True, committed_values(leader, topic) == [b"before"])
    part = fetch_committed(leader, topic)
    expect("last stable offset, high watermark", (1, 3), (part.last_stable_offset, part.high_watermark))
    expect("records from there on", b"", fetch_committed(leader, topic, 1).records or b"")
    producer.end(commit=COMMIT)
    eventually_stable(cluster, leader, topic, 4)
    expect("values after the commit", True, committed_values(leader, topic) == [b"before", b"open", b"behind"])


@clause("TXN-7", "ListOffsets")
@defect(Request(ListOffsetsRequest, "isolation_level", 0))
def test_the_end_for_read_committed_is_the_last_stable_offset(
    cluster: Cluster, topic: Topic, producer: Transactional
) -> None:
    producer.begin(topic)
    producer.write(topic, 0, b"open", b"too")
    part = ListOffsetsPartition(partition_index=topic.partition, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=READ_COMMITTED, topics=(ListOffsetsTopic(name=topic.name, partitions=(part,)),)
    )
    leader = cluster.leader(topic)
    version = leader.version_of(ListOffsetsRequest, 2)
    expect("offset", 0, only(only(leader.call(request, version).topics).partitions).offset)
    expect("end for read_uncommitted", 2, leader.end_offset(topic))


@clause("TXN-29")
@defect(Reply(FetchRequest, LAST_STABLE, 3))
def test_the_oldest_open_transaction_counts(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    second = Transactional.ready(cluster)
    for each in (producer, second):
        each.begin(topic)
        each.write(topic, 0)
    second.end(commit=COMMIT)
    leader = cluster.leader(topic)
    cluster.eventually("the marker of the second", lambda: leader.end_offset(topic) == 3)
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
    for each in topics:
        producer.write(each, 0, b"v")
    producer.end(commit=commit)
    for each in topics:
        leader = cluster.leader(each)
        eventually_stable(cluster, leader, each, 2)
        expect("committed values", True, committed_values(leader, each) == ([b"v"] if commit else []))
        expect("stored values", 2, len(stored_records(leader, each)))


@clause("TXN-8")
@defect(Reply(FetchRequest, LAST_STABLE, 0))
@pytest.mark.slow
def test_a_transaction_that_takes_too_long_is_aborted(cluster: Cluster, topic: Topic) -> None:
    scan_s = cluster.setting("transaction_abort_timed_out_transaction_cleanup_interval_ms") / 1000
    producer = Transactional.ready(cluster, timeout_ms=500)
    producer.begin(topic)
    producer.write(topic, 0)
    leader = cluster.leader(topic)
    eventually_stable(cluster, leader, topic, 2, 20.0 + 2 * scan_s)
    expect("committed values", True, committed_values(leader, topic) == [])
    expect("error code of EndTxn afterwards", FENCED, producer.end_reply(commit=COMMIT).error_code)


@clause("TXN-9", "empty")
@defect(Reply(EndTxnRequest, "error_code", 0))
@pytest.mark.parametrize("commit", [COMMIT, ABORT], ids=["commit", "abort"])
@sweep(EndTxnRequest, 0, 4)
def test_nothing_cannot_be_ended(producer: Transactional, version: int, commit: bool) -> None:
    expect("error code of EndTxn", INVALID_STATE, producer.end_reply(commit=commit, version=version).error_code)


@clause("TXN-9", "empty, new")
@defect(Reply(EndTxnRequest, "error_code", ABORTABLE))
@pytest.mark.parametrize(("commit", "error"), [(COMMIT, INVALID_STATE), (ABORT, 0)], ids=["commit", "abort"])
def test_nothing_may_be_aborted(new_producer: Transactional, commit: bool, error: int) -> None:
    expect("error code of EndTxn", error, new_producer.end_reply(commit=commit, version=NEW_END).error_code)


@clause("TXN-9", "repeated")
@defect(Reply(EndTxnRequest, "error_code", 1))
@pytest.mark.parametrize("commit", [COMMIT, ABORT], ids=["commit", "abort"])
def test_an_end_may_be_repeated_but_not_turned(topic: Topic, producer: Transactional, commit: bool) -> None:
    producer.begin(topic)
    producer.end(commit=commit)
    expect("error code of the same again", 0, producer.end_reply(commit=commit).error_code)
    expect("error code of the opposite", INVALID_STATE, producer.end_reply(commit=not commit).error_code)


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


@clause("TXN-15")
@defect(Reply(EndTxnRequest, "error_code", 0))
@pytest.mark.parametrize("commit", [COMMIT, ABORT], ids=["commit", "abort"])
def test_a_late_end_does_not_end_the_next(
    cluster: Cluster, topic: Topic, new_producer: Transactional, commit: bool
) -> None:
    late = Transactional(cluster, new_producer.id)
    late.producer_id, late.epoch = new_producer.producer_id, new_producer.epoch
    new_producer.write(topic, 0, version=NEW_PRODUCE)
    new_producer.end(commit=commit, version=NEW_END)
    new_producer.write(topic, 0, b"next", version=NEW_PRODUCE)
    expect("error code of the late EndTxn", FENCED, late.end_reply(commit=commit, version=NEW_END).error_code)
    expect("last stable offset", 2, fetch_committed(cluster.leader(topic), topic).last_stable_offset)
    new_producer.end(commit=COMMIT, version=NEW_END)


@clause("TXN-27")
@defect(Reply(EndTxnRequest, "error_code", FENCED))
def test_an_end_that_is_repeated_is_answered_alike(topic: Topic, new_producer: Transactional) -> None:
    new_producer.write(topic, 0, version=NEW_PRODUCE)
    for attempt in ("first", "repeated"):
        reply = new_producer.end_reply(commit=COMMIT, version=NEW_END)
        expect(f"error, id, epoch of the {attempt} EndTxn", (0, new_producer.producer_id, 1), _whole(reply))


# -- offsets ---------------------------------------------------------------------------------------------


@clause("TXN-10")
@defect(Reply(OffsetFetchRequest, "topics.partitions.committed_offset", 3))
@sweep(TxnOffsetCommitRequest, 0, 4)
def test_offsets_count_when_the_transaction_commits(
    cluster: Cluster, topic: Topic, producer: Transactional, version: int
) -> None:
    group = cluster.group()
    expect("error code of AddOffsetsToTxn", 0, producer.add_offsets(group))
    expect("error code of TxnOffsetCommit", 0, producer.commit_offset(group, topic, 42, version=version))
    expect("offset before the commit", -1, committed_offset(cluster, group, topic))
    producer.end(commit=COMMIT)
    cluster.eventually("the offset to count", lambda: committed_offset(cluster, group, topic) == 42)


@clause("TXN-10", "abort")
@defect(Reply(OffsetFetchRequest, "topics.partitions.committed_offset", 42))
def test_offsets_of_an_aborted_transaction_do_not_count(
    cluster: Cluster, topic: Topic, producer: Transactional
) -> None:
    group = cluster.group()
    for offset, commit in ((1, COMMIT), (2, ABORT)):
        expect("error code of AddOffsetsToTxn", 0, producer.add_offsets(group))
        expect("error code of TxnOffsetCommit", 0, producer.commit_offset(group, topic, offset))
        producer.end(commit=commit)
    producer.begin(topic)  # possible once the abort is complete
    expect("offset", 1, committed_offset(cluster, group, topic))


@clause("TXN-10", "new")
@defect(Reply(TxnOffsetCommitRequest, "topics.partitions.error_code", ABORTABLE))
def test_an_offset_takes_its_group_in(cluster: Cluster, topic: Topic, new_producer: Transactional) -> None:
    group = cluster.group()
    expect("error code", 0, new_producer.commit_offset(group, topic, 7, version=NEW_OFFSETS))
    new_producer.end(commit=COMMIT, version=NEW_END)
    cluster.eventually("the offset to count", lambda: committed_offset(cluster, group, topic) == 7)


@clause("TXN-10", "not added")
@defect(Reply(TxnOffsetCommitRequest, "topics.partitions.error_code", 0))
def test_a_group_must_be_added_first(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    error = producer.commit_offset(cluster.group(), topic, 7, version=3)
    expect("error code of TxnOffsetCommit", {INVALID_STATE}, error)


@clause("TXN-20")
@defect(Reply(TxnOffsetCommitRequest, "topics.partitions.error_code", 0))
@pytest.mark.parametrize(
    ("changed", "error"),
    [
        pytest.param({"generation_id": 100}, ILLEGAL_GENERATION, id="generation"),
        pytest.param({"member_id": "nobody", "group_instance_id": None}, UNKNOWN_MEMBER, id="member"),
        pytest.param({"member_id": "nobody"}, FENCED_INSTANCE, id="instance"),
    ],
)
def test_offsets_are_fenced_by_the_group(
    cluster: Cluster, topic: Topic, producer: Transactional, changed: dict[str, Any], error: int
) -> None:
    group = cluster.group()
    member = GroupDriver(cluster, group).stable_member(instance="one")
    named = {"generation_id": member.generation, "member_id": member.member_id, "group_instance_id": "one"}
    expect("error code of AddOffsetsToTxn", 0, producer.add_offsets(group))
    expect("error code of the member's", 0, producer.commit_offset(group, topic, 1, version=3, **named))
    expect("error code", error, producer.commit_offset(group, topic, 1, version=3, **(named | changed)))


# -- what administrators see (KIP-664) -------------------------------------------------------------------


def open_since(leader: Broker, topic: Topic, producer: Transactional) -> int:
    asked = TopicRequest(name=topic.name, partition_indexes=(topic.partition,))
    part = only(only(leader.call(DescribeProducersRequest(topics=(asked,))).topics).partitions)
    expect("error code of DescribeProducers", 0, part.error_code)
    return int(
        only(tuple(p for p in part.active_producers if p.producer_id == producer.producer_id)).current_txn_start_offset
    )


@clause("TXN-16")
@defect(Reply(DescribeProducersRequest, "topics.partitions.active_producers.current_txn_start_offset", 0))
def test_a_leader_tells_where_a_transaction_began(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    leader = cluster.leader(topic)
    leader.produce(topic, batch(b"before"))
    producer.begin(topic)
    producer.write(topic, 0)
    expect("start of the open transaction", 1, open_since(leader, topic, producer))
    producer.end(commit=COMMIT)
    cluster.eventually("no open transaction", lambda: open_since(leader, topic, producer) == -1)


def described(producer: Transactional) -> Any:
    return only(
        producer.coordinator.call(DescribeTransactionsRequest(transactional_ids=(producer.id,))).transaction_states
    )


@clause("TXN-17")
@defect(
    Reply(DescribeTransactionsRequest, "transaction_states.topics", ()),
    Reply(DescribeTransactionsRequest, "transaction_states.transaction_state", "Ongoing"),
)
def test_a_coordinator_describes_a_transaction(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    expect("state before the first", (0, "Empty"), _state(described(producer)))
    producer.begin(topic)
    found = described(producer)
    expect("state of an open one", (0, "Ongoing"), _state(found))
    expect("producer and timeout", (producer.producer_id, producer.epoch, 60_000), _identity(found))
    expect("topic, partitions", (topic.name, (0,)), (only(found.topics).topic, only(found.topics).partitions))
    producer.end(commit=COMMIT)
    cluster.eventually("the commit to be complete", lambda: _state(described(producer)) == (0, "CompleteCommit"))


def _state(found: Any) -> tuple[int, str]:
    return found.error_code, found.transaction_state


def _identity(found: Any) -> tuple[int, int, int]:
    return found.producer_id, found.producer_epoch, found.transaction_timeout_ms


@clause("TXN-17", "unknown")
@defect(Reply(DescribeTransactionsRequest, "transaction_states.error_code", 0))
def test_a_transactional_id_that_is_not_there_is_an_error(cluster: Cluster) -> None:
    expect("error code", ID_NOT_FOUND, described(Transactional(cluster)).error_code)


def listed(producer: Transactional, **filters: Any) -> bool:
    """Whether the open transaction of the producer passes."""
    version = producer.coordinator.version_of(ListTransactionsRequest, NEEDED.get(next(iter(filters), ""), 0))
    reply = producer.coordinator.call(ListTransactionsRequest(**filters), version)
    expect("error code of ListTransactions", 0, reply.error_code)
    found = [each for each in reply.transaction_states if each.transactional_id == producer.id]
    if found:
        expect("id and state", (producer.producer_id, "Ongoing"), (found[0].producer_id, found[0].transaction_state))
    return bool(found)


NEEDED = {"duration_filter": 1, "transactional_id_pattern": 2}


@clause("TXN-18")
@defect(Reply(ListTransactionsRequest, "transaction_states", ()))
@pytest.mark.parametrize(
    ("passing", "failing"),
    [
        pytest.param({}, {"producer_id_filters": (-5,)}, id="none"),
        pytest.param({"state_filters": ("Ongoing",)}, {"state_filters": ("Empty",)}, id="state"),
        pytest.param({"duration_filter": 0}, {"duration_filter": 3_600_000}, id="duration"),
        pytest.param({"transactional_id_pattern": "hw-.*"}, {"transactional_id_pattern": "no-.*"}, id="pattern"),
    ],
)
def test_a_filter_lets_some_pass(
    topic: Topic, producer: Transactional, passing: dict[str, Any], failing: dict[str, Any]
) -> None:
    producer.begin(topic)
    expect("listed", True, listed(producer, **passing))
    expect("listed under another filter", False, listed(producer, **failing))


@clause("TXN-18", "producer id")
@defect(Request(ListTransactionsRequest, "producer_id_filters", ()))
def test_producer_ids_are_a_filter(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    producer.begin(topic)
    expect("listed under its id", True, listed(producer, producer_id_filters=(producer.producer_id,)))
    expect("listed under another", False, listed(producer, producer_id_filters=(producer.producer_id + 1000,)))


@clause("TXN-18", "unknown state")
@defect(Reply(ListTransactionsRequest, "unknown_state_filters", ()))
def test_a_state_that_does_not_exist_is_named(topic: Topic, producer: Transactional) -> None:
    producer.begin(topic)
    request = ListTransactionsRequest(state_filters=("Ongoing", "Nonsense"))
    reply = producer.coordinator.call(request)
    expect("unknown states", True, reply.unknown_state_filters == ("Nonsense",))
    expect("listed", True, producer.id in {each.transactional_id for each in reply.transaction_states})
