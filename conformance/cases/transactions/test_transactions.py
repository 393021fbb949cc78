"""Transactions: fencing of producers, coordinators, and writes in a transaction."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from highwater.conformance.cases.support.committed_offsets import coordinated_offset
from highwater.conformance.cases.support.producers import init_producer_id
from highwater.conformance.cases.support.transactions import (
    COMMIT,
    NEW_END,
    NEW_PRODUCE,
    Transactional,
    code_id_epoch,
    committed_values,
    coordinator_of,
    eventually_stable,
    find_transaction_coordinator,
)
from highwater.conformance.clause import clause, sweep
from highwater.conformance.client.broker import Broker, Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import GuardOff, Reply, Request, defect
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Disconnected, Unsupported
from highwater.conformance.targets.base import STOP_NODE
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

LONGEST_MS = (1 << 31) - 1
FENCED = ErrorCode.PRODUCER_FENCED
PRODUCE_ERROR = "responses.partition_responses.error_code"
VERIFIED_ERROR = "results_by_transaction.topic_results.results_by_partition.partition_error_code"
NOT_ADDED = ErrorCode.TRANSACTION_ABORTABLE
NOT_ADDED_BEFORE_5, ABORTABLE_SINCE = ErrorCode.INVALID_TXN_STATE, 5
"""Up to AddPartitionsToTxn 4 older brokers have this error for a partition that is not in the transaction."""


def fenced_producer(cluster: Cluster, topic: Topic) -> Transactional:
    """Return a producer with an open transaction that another producer with the same id has fenced."""
    old = Transactional.initialize(cluster)
    old.begin(topic)
    old.write(topic, 0)
    Transactional.initialize(cluster, transactional_id=old.id)
    return old


# -- fencing -----------------------------------------------------------------------------------------


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
    old = fenced_producer(cluster, topic)
    expect("error code of Produce", ErrorCode.INVALID_PRODUCER_EPOCH, old.produce(topic, 1).error_code)


@clause("TXN-1", "InitProducerId")
@defect(Reply(InitProducerIdRequest, "error_code", 0))
@pytest.mark.parametrize(
    ("version", "error"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)], ids=["v3", "v4"]
)
def test_a_fenced_instance_cannot_come_back(cluster: Cluster, topic: Topic, version: int, error: int) -> None:
    old = fenced_producer(cluster, topic)
    reply = old.init(version, producer_id=old.producer_id, producer_epoch=old.epoch)
    expect("error code of InitProducerId", error, reply.error_code)


FENCED_SINCE_2 = pytest.mark.parametrize(
    ("version", "error"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)], ids=["v1", "v2"]
)


@clause("TXN-1", "AddPartitionsToTxn")
@defect(
    Reply(AddPartitionsToTxnRequest, "results_by_topic_v3_and_below.results_by_partition.partition_error_code", 0),
    GuardOff("FenceStaleAdd"),
)
@FENCED_SINCE_2
def test_a_fenced_instance_cannot_add(cluster: Cluster, topic: Topic, version: int, error: int) -> None:
    expect("error code", error, fenced_producer(cluster, topic).add(topic, version=version)[topic.name])


@clause("TXN-1", "AddOffsetsToTxn")
@defect(Reply(AddOffsetsToTxnRequest, "error_code", 0))
@FENCED_SINCE_2
def test_a_fenced_instance_cannot_add_offsets(cluster: Cluster, topic: Topic, version: int, error: int) -> None:
    expect("error code", error, fenced_producer(cluster, topic).add_offsets(cluster.group(), version))


@clause("TXN-1", "fenced")
@defect(Reply(TxnOffsetCommitRequest, "topics.partitions.error_code", 0))
@sweep(TxnOffsetCommitRequest)
def test_a_fenced_instance_cannot_commit_offsets(cluster: Cluster, topic: Topic, version: int) -> None:
    group, old = cluster.group(), Transactional.initialize(cluster)
    expect("error code of AddOffsetsToTxn", 0, old.add_offsets(group))
    new = Transactional.initialize(cluster, transactional_id=old.id)
    for _ in range(2):
        error = old.commit_offset(group, topic, 7, version=version)
        expect("error code of TxnOffsetCommit", ErrorCode.INVALID_PRODUCER_EPOCH, error)
        expect("error code of AddOffsetsToTxn of the new instance", 0, new.add_offsets(group))
    expect("error code of the new instance", 0, new.commit_offset(group, topic, 8))
    new.end(commit=COMMIT)
    cluster.eventually("the offset of the new instance", lambda: coordinated_offset(cluster, group, topic) == 8)


@clause("TXN-1", "EndTxn")
@defect(Reply(EndTxnRequest, "error_code", 0))
@FENCED_SINCE_2
def test_a_fenced_instance_cannot_commit(cluster: Cluster, topic: Topic, version: int, error: int) -> None:
    reply = fenced_producer(cluster, topic).end_reply(commit=COMMIT, version=version)
    expect("error code of EndTxn", error, reply.error_code)


@clause("TXN-2")
@defect(Request(InitProducerIdRequest, "transactional_id", None), GuardOff("InitAbortsOpen"))
def test_the_next_instance_aborts_what_is_open(cluster: Cluster, topic: Topic) -> None:
    fenced_producer(cluster, topic)
    leader = cluster.leader(topic)
    eventually_stable(cluster, leader, topic, 2)
    expect("committed values", True, committed_values(leader, topic) == [])


@clause("TXN-3")
@defect(Reply(InitProducerIdRequest, "error_code", 0))
@pytest.mark.parametrize("timeout_ms", [LONGEST_MS, 0, -1], ids=["too long", "none", "negative"])
def test_a_timeout_out_of_bounds_is_refused(cluster: Cluster, timeout_ms: int) -> None:
    reply = Transactional(cluster, timeout_ms=timeout_ms).init()
    expect("error code of InitProducerId", ErrorCode.INVALID_TRANSACTION_TIMEOUT, reply.error_code)


@clause("TXN-3", "limit")
@defect(Reply(InitProducerIdRequest, "error_code", ErrorCode.INVALID_TRANSACTION_TIMEOUT))
def test_the_longest_timeout_is_taken(cluster: Cluster) -> None:
    longest = cluster.setting("transaction_max_timeout_ms")
    expect("error code at the limit", 0, Transactional(cluster, timeout_ms=longest).init().error_code)
    expect(
        "error code above the limit",
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        Transactional(cluster, timeout_ms=longest + 1).init().error_code,
    )


@clause("TXN-25")
@defect(Reply(InitProducerIdRequest, "producer_epoch", lambda epoch: epoch + 1), GuardOff("InitBumpsEpoch"))
def test_an_instance_may_bump_its_own_epoch(producer: Transactional) -> None:
    producer.coordinator.version_of(InitProducerIdRequest, 3)
    named = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
    for attempt in ("first", "repeated"):
        reply = producer.init(**named)
        expect(f"error, id, epoch of the {attempt} request", (0, named["producer_id"], 1), code_id_epoch(reply))


@clause("TXN-26")
@defect(Reply(InitProducerIdRequest, "error_code", 0))
def test_an_empty_transactional_id_is_refused(cluster: Cluster, broker: Broker) -> None:
    reply = init_producer_id(cluster, broker, transactional_id="")
    expect("error code", ErrorCode.INVALID_REQUEST, reply.error_code)


# -- coordinators ------------------------------------------------------------------------------------


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


@clause("TXN-28")
@defect(Reply(EndTxnRequest, "error_code", ErrorCode.INVALID_PRODUCER_ID_MAPPING))
@pytest.mark.cluster_fault
@pytest.mark.slow
def test_an_open_transaction_outlives_its_coordinator(cluster: Cluster) -> None:
    """The partition already has a marker of the coordinator that is killed."""
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    topic = cluster.create_topic(replicas=3)
    producer = Transactional.initialize(cluster)
    for sequence, value in enumerate((b"first", b"kept")):
        producer.begin(topic)
        producer.write(topic, sequence, value)
        if value == b"first":
            producer.end(commit=COMMIT)
    gone = next(node for node, at in cluster.target.addresses.items() if at == producer.coordinator.address)
    cluster.kill(gone)
    cluster.eventually("a commit by the new coordinator", lambda: _commit_through_new_coordinator(producer), 20.0)
    leader = cluster.leader(cluster.topic(topic.name, excluded_leader=gone))
    cluster.eventually("both records", lambda: committed_values(leader, topic) == [b"first", b"kept"], 15.0)


def _commit_through_new_coordinator(producer: Transactional) -> bool:
    with suppress(Disconnected):
        return bool(producer.reconnect().end_reply(commit=COMMIT).error_code == 0)
    return False


# -- writing ---------------------------------------------------------------------------------------------


@clause("TXN-4", "classic")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, 0), GuardOff("VerifyBeforeAppend"))
@pytest.mark.parametrize(
    ("version", "error"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)], ids=["v10", "v11"]
)
def test_a_partition_must_be_added_first(topic: Topic, producer: Transactional, version: int, error: int) -> None:
    answer = producer.produce(topic, 0, version=version)
    expect("error code of Produce", error, answer.error_code)


@clause("TXN-4", "new")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, ErrorCode.TRANSACTION_ABORTABLE))
def test_a_batch_takes_its_partition_in(cluster: Cluster, topic: Topic, new_producer: Transactional) -> None:
    new_producer.write(topic, 0, b"v", version=NEW_PRODUCE)
    new_producer.end(commit=COMMIT, version=NEW_END)
    leader = cluster.leader(topic)
    eventually_stable(cluster, leader, topic, 2)
    expect("committed values", True, committed_values(leader, topic) == [b"v"])


@clause("IDM-4", "transaction")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, 0), GuardOff("BeginAtZero"))
@pytest.mark.parametrize("sequence", [1, 5])
def test_a_transaction_begins_at_0_in_each_partition(
    cluster: Cluster, topic: Topic, new_producer: Transactional, sequence: int
) -> None:
    """Otherwise the second batch in flight would be stored where the first one was rejected (KIP-890)."""
    leader, refused = cluster.leader(topic), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    expect("error code", refused, new_producer.produce(topic, sequence, version=NEW_PRODUCE).error_code)
    expect("base offset of the first batch", 0, new_producer.write(topic, 0, version=NEW_PRODUCE))
    expect("base offset of the next batch", 1, new_producer.write(topic, 1, version=NEW_PRODUCE))
    new_producer.end(commit=COMMIT, version=NEW_END)
    eventually_stable(cluster, leader, topic, 3)
    expect("error code in the next epoch", refused, new_producer.produce(topic, 2, version=NEW_PRODUCE).error_code)
    expect("base offset in the next epoch", 3, new_producer.write(topic, 0, version=NEW_PRODUCE))


@clause("TXN-4", "other partition")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, 0))
@pytest.mark.parametrize("added", [0, 1])
def test_another_partition_of_the_topic_does_not_count(cluster: Cluster, producer: Transactional, added: int) -> None:
    last = cluster.create_topic(partitions=3)
    producer.begin(replace(last, partition=added))
    answer = producer.produce(last, 0, version=10)
    expect("error code of Produce", ErrorCode.INVALID_TXN_STATE, answer.error_code)


@clause("TXN-4", "next transaction")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, 0))
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_the_partitions_of_the_last_transaction_do_not_count(
    cluster: Cluster, topic: Topic, producer: Transactional, commit: bool
) -> None:
    producer.begin(topic)
    producer.write(topic, 0)
    producer.end(commit=commit)
    eventually_stable(cluster, cluster.leader(topic), topic, 2)
    producer.begin(cluster.create_topic())
    expect("error code of Produce", ErrorCode.INVALID_TXN_STATE, producer.produce(topic, 1, version=10).error_code)


@clause("TXN-12")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, 0))
def test_a_transactional_batch_needs_a_transactional_id(topic: Topic, producer: Transactional) -> None:
    producer.begin(topic)
    answer = producer.produce(topic, 0, transactional_id=None)
    expect("error code of Produce", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, answer.error_code)


@clause("TXN-13")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, 0))
def test_a_plain_batch_does_not_belong_into_a_transaction(topic: Topic, producer: Transactional) -> None:
    producer.begin(topic)
    producer.write(topic, 0)
    answer = producer.produce(topic, 1, transactional=False)
    expect("error code of Produce", ErrorCode.INVALID_TXN_STATE, answer.error_code)


@clause("TXN-11")
@defect(
    Reply(EndTxnRequest, "error_code", 0),
    Reply(AddOffsetsToTxnRequest, "error_code", 0),
    Reply(AddPartitionsToTxnRequest, "results_by_topic_v3_and_below.results_by_partition.partition_error_code", 0),
    GuardOff("FenceOldProducerId"),
)
def test_another_producer_id_is_refused(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    producer.begin(topic)
    producer.producer_id += 1000
    expect("error code of AddPartitionsToTxn", ErrorCode.INVALID_PRODUCER_ID_MAPPING, producer.add(topic)[topic.name])
    expect(
        "error code of AddOffsetsToTxn", ErrorCode.INVALID_PRODUCER_ID_MAPPING, producer.add_offsets(cluster.group())
    )
    expect("error code of EndTxn", ErrorCode.INVALID_PRODUCER_ID_MAPPING, producer.end_reply(commit=COMMIT).error_code)


@clause("TXN-11", "unknown")
@defect(Reply(EndTxnRequest, "error_code", 0))
def test_a_transactional_id_that_nobody_has_is_refused(cluster: Cluster) -> None:
    stranger = Transactional(cluster)
    stranger.producer_id, stranger.epoch = 7, 0
    expect("error code of EndTxn", ErrorCode.INVALID_PRODUCER_ID_MAPPING, stranger.end_reply(commit=COMMIT).error_code)


@clause("TXN-19")
@defect(Reply(AddPartitionsToTxnRequest, "results_by_topic_v3_and_below.results_by_partition.partition_error_code", 0))
def test_partitions_are_added_together_or_not_at_all(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    missing = Topic(cluster.name(), topic.leader, topic.leader_id)
    found = producer.add(topic, missing)
    expect("error code of the missing partition", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, found[missing.name])
    expect("error code of the other partition", ErrorCode.OPERATION_NOT_ATTEMPTED, found[topic.name])


@clause("TXN-19", "none")
@defect(Reply(EndTxnRequest, "error_code", 0))
def test_where_one_partition_is_refused_no_transaction_begins(
    cluster: Cluster, topic: Topic, producer: Transactional
) -> None:
    missing = Topic(cluster.name(), topic.leader, topic.leader_id)
    found = producer.add(topic, missing)
    expect("error code of the missing partition", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, found[missing.name])
    expect("error code of EndTxn", ErrorCode.INVALID_TXN_STATE, producer.end_reply(commit=COMMIT).error_code)


@clause("TXN-30")
@defect(
    Reply(
        AddPartitionsToTxnRequest,
        "results_by_topic_v3_and_below.results_by_partition.partition_error_code",
        ErrorCode.INVALID_TXN_STATE,
    )
)
@sweep(AddPartitionsToTxnRequest, 0, 3)
def test_a_partition_may_be_added_again(topic: Topic, producer: Transactional, version: int) -> None:
    for attempt in ("first", "second"):
        expect(f"error code of the {attempt} request", 0, producer.add(topic, version=version)[topic.name])


@clause("TXN-30", "with another")
@defect(Reply(ProduceRequest, PRODUCE_ERROR, ErrorCode.INVALID_TXN_STATE))
def test_a_partition_is_added_beside_one_that_is_known(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    other = cluster.create_topic()
    producer.begin(topic)
    producer.begin(topic, other)
    for written_topic in (topic, other):
        producer.write(written_topic, 0, version=10)
    producer.end(commit=COMMIT)
    for written_topic in (topic, other):
        eventually_stable(cluster, cluster.leader(written_topic), written_topic, 2)


@clause("TXN-1", "older epochs")
@defect(Reply(InitProducerIdRequest, "error_code", 0))
@pytest.mark.parametrize("back", [1, 2, 3], ids=lambda back: f"{back} back")
def test_an_instance_of_any_older_epoch_is_fenced(cluster: Cluster, topic: Topic, back: int) -> None:
    first = Transactional.initialize(cluster)
    for _ in range(3):
        last = Transactional.initialize(cluster, transactional_id=first.id)
    first.producer_id, first.epoch = last.producer_id, last.epoch - back
    version = first.coordinator.version_of(InitProducerIdRequest, 4)
    expect("error code of AddPartitionsToTxn", FENCED, first.add(topic)[topic.name])
    expect("error code of AddOffsetsToTxn", FENCED, first.add_offsets(cluster.group()))
    reply = first.init(version, producer_id=first.producer_id, producer_epoch=first.epoch)
    expect("error code of InitProducerId", FENCED, reply.error_code)
    last.begin(topic)


# -- verification by the leaders of partitions (KIP-890) --------------------------------------------------


@clause("TXN-41")
@defect(
    Reply(AddPartitionsToTxnRequest, "results_by_transaction", lambda results: results[:1]),
    Reply(AddPartitionsToTxnRequest, VERIFIED_ERROR, 0),
)
@sweep(AddPartitionsToTxnRequest, 4, 5)
def test_each_partition_of_each_transaction_is_verified_by_itself(
    cluster: Cluster, producer: Transactional, version: int
) -> None:
    first, added, last = (cluster.create_topic() for _ in range(3))
    unknown, second = (_with_same_coordinator(cluster, producer) for _ in range(2))
    expect("error code of InitProducerId", 0, second.init().error_code)
    producer.begin(first, added)
    second.begin(last)
    expected: dict[str, dict[str, int]] = {
        unknown.id: dict.fromkeys((first.name, added.name, last.name), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        producer.id: {first.name: 0, last.name: NOT_ADDED, added.name: 0},
        second.id: {first.name: NOT_ADDED, last.name: 0},
    }
    requested = tuple(_verification(each, expected[each.id]) for each in (unknown, producer, second))
    reply = producer.coordinator.call(AddPartitionsToTxnRequest(transactions=requested), version)
    if reply.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise Unsupported("the client may not send AddPartitionsToTxn as brokers do")
    found = {
        result.transactional_id: {
            topic.name: _verification_error(only(topic.results_by_partition).partition_error_code, version)
            for topic in result.topic_results
        }
        for result in reply.results_by_transaction
    }
    expect("error codes", expected, found)


def _with_same_coordinator(cluster: Cluster, producer: Transactional) -> Transactional:
    """Return another transactional id, which has no producer yet, of the same coordinator."""
    ids = (cluster.name("x") for _ in range(100))
    found = next((name for name in ids if coordinator_of(cluster, name) == producer.coordinator.address), None)
    if found is None:
        raise Unsupported("none of 100 transactional ids has the same coordinator")
    return Transactional(cluster, found)


def _verification_error(error: int, version: int) -> int:
    return NOT_ADDED if version < ABORTABLE_SINCE and error == NOT_ADDED_BEFORE_5 else error


def _verification(producer: Transactional, names: Iterable[str]) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=producer.id, producer_id=max(producer.producer_id, 0), producer_epoch=max(producer.epoch, 0),
        verify_only=True, topics=tuple(AddPartitionsToTxnTopic(name=name, partitions=(0,)) for name in names),
    )  # fmt: skip
