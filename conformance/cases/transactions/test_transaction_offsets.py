"""Offsets committed in a transaction, and descriptions of transactions (KIP-664)."""

from typing import Any

import pytest

from highwater.conformance.cases.support.committed_offsets import (
    OFFSETS_TOPIC,
    ONE_GROUP,
    by_topic,
    commit,
    coordinated_offset,
    error_codes,
    expected_errors,
    expected_parts,
    java_hash,
    mixed_commits,
    settled,
    stored_parts,
)
from highwater.conformance.cases.support.members import GroupDriver
from highwater.conformance.cases.support.transactions import (
    ABORT,
    COMMIT,
    NEW_END,
    NEW_OFFSETS,
    Transactional,
    describe_transaction,
)
from highwater.conformance.clause import clause, sweep
from highwater.conformance.client.broker import Broker, Topic, batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect
from highwater.conformance.expectations import expect, only
from highwater.reference.wire.errors import COORDINATOR_UNAVAILABLE, TRANSACTION_NOT_READY, ErrorCode
from highwater.reference.wire.messages.committed_offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from highwater.reference.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TopicRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

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
    expect("offset before the commit", -1, coordinated_offset(cluster, group, topic))
    producer.end(commit=COMMIT)
    cluster.eventually("the committed offset", lambda: coordinated_offset(cluster, group, topic) == 42)


@clause("TXN-10", "two commits")
@defect(Reply(OffsetFetchRequest, "topics.partitions.committed_offset", -1))
def test_all_offsets_of_a_transaction_count(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    group, other = cluster.group(), cluster.create_topic()
    expect("error code of AddOffsetsToTxn", 0, producer.add_offsets(group))
    for committed, offset in ((topic, 42), (other, 43), (other, 44)):
        expect("error code of TxnOffsetCommit", 0, producer.commit_offset(group, committed, offset))
    producer.end(commit=COMMIT)
    cluster.eventually("the last offset", lambda: coordinated_offset(cluster, group, other) == 44)
    expect("offset of the first commit", 42, coordinated_offset(cluster, group, topic))


@clause("TXN-10", "smaller")
@defect(Reply(OffsetFetchRequest, "topics.partitions.committed_offset", 9))
def test_the_offset_of_a_transaction_may_be_the_smaller_one(
    cluster: Cluster, topic: Topic, producer: Transactional
) -> None:
    """A consumer may seek back. The later commit counts (GroupMetadata, CommitRecordMetadataAndOffset.olderThan)."""
    group = cluster.group()
    expect("error code of OffsetCommit", 0, commit(cluster.coordinator(group), group, topic, 9))
    expect("error code of AddOffsetsToTxn", 0, producer.add_offsets(group))
    expect("error code of TxnOffsetCommit", 0, producer.commit_offset(group, topic, 5))
    producer.end(commit=COMMIT)
    cluster.eventually("the smaller offset", lambda: coordinated_offset(cluster, group, topic) == 5)


@clause("TXN-10", "mixed")
@defect(
    Reply(TxnOffsetCommitRequest, "topics.partitions.error_code", 0),
    Reply(OffsetFetchRequest, "groups.topics.partitions.committed_leader_epoch", -1),
)
def test_each_offset_of_a_transaction_is_committed_or_refused_by_itself(
    cluster: Cluster, producer: Transactional
) -> None:
    group, commits = cluster.group(), mixed_commits(cluster)
    expect("error code of AddOffsetsToTxn", 0, producer.add_offsets(group))
    topics = tuple(
        TxnOffsetCommitRequestTopic(
            name=name, partitions=tuple(TxnOffsetCommitRequestPartition(**each.fields) for each in wanted)
        )
        for name, wanted in by_topic(commits).items()
    )
    expect("error codes", expected_errors(commits), error_codes(producer.commit_offsets(group, topics)))
    broker, expected = cluster.coordinator(group), expected_parts(commits)
    expect("offsets before the commit", {}, stored_parts(broker, group))
    producer.end(commit=COMMIT)
    found = settled(cluster, lambda: stored_parts(broker, group), expected)
    expect("offsets, leader epochs and metadata", True, found == expected)


@clause("OFF-14", "open transaction")
@defect(Reply(OffsetFetchRequest, "topics.partitions.committed_offset", 5))
def test_an_offset_committed_after_that_of_an_open_transaction_remains(
    cluster: Cluster, topic: Topic, producer: Transactional
) -> None:
    group = cluster.group()
    expect("error code of AddOffsetsToTxn", 0, producer.add_offsets(group))
    expect("error code of TxnOffsetCommit", 0, producer.commit_offset(group, topic, 5))
    with cluster.coordinator(group) as broker:
        expect("error code of OffsetCommit", 0, commit(broker, group, topic, 9))
    producer.end(commit=COMMIT)
    producer.begin(topic)  # succeeds once the commit is complete
    expect("offset", 9, coordinated_offset(cluster, group, topic))


@clause("TXN-10", "several groups")
@defect(Reply(OffsetFetchRequest, "topics.partitions.committed_offset", -1))
def test_offsets_of_several_groups_count_together(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    """The offsets of the groups are in one partition of the offsets topic, which has one marker for both."""
    groups = groups_of_one_partition(cluster, 2)
    for number, group in enumerate(groups):
        expect("error code of AddOffsetsToTxn", 0, producer.add_offsets(group))
        expect("error code of TxnOffsetCommit", 0, producer.commit_offset(group, topic, 40 + number))
    producer.end(commit=COMMIT)
    for number, group in enumerate(groups):

        def is_committed(group: str = group, offset: int = 40 + number) -> bool:
            return coordinated_offset(cluster, group, topic) == offset

        cluster.eventually(f"the offset of group {number}", is_committed)


def groups_of_one_partition(cluster: Cluster, count: int) -> list[str]:
    """Return groups whose offsets are in the same partition of the offsets topic, if the target has one."""
    cluster.coordinator(cluster.group())  # the topic is created for the first group
    found = cluster.describe(OFFSETS_TOPIC)
    partitions = max(len(found.partitions), 1) if found else 1
    by_partition: dict[int, list[str]] = {}
    while True:
        group = cluster.name("g")
        alike = by_partition.setdefault(java_hash(group) % partitions, [])
        alike.append(group)
        if len(alike) == count:
            return alike


@clause("OFF-18", "open transaction")
@defect(Reply(OffsetFetchRequest, "topics.partitions.committed_offset", 5))
def test_offsets_of_a_deleted_topic_are_no_longer_pending(
    cluster: Cluster, topic: Topic, producer: Transactional
) -> None:
    group, deleted = cluster.group(), cluster.create_topic()
    expect("error code of AddOffsetsToTxn", 0, producer.add_offsets(group))
    for committed, offset in ((topic, 4), (deleted, 5)):
        expect("error code of TxnOffsetCommit", 0, producer.commit_offset(group, committed, offset))
    cluster.delete_topics(deleted.name)
    requested = OffsetFetchRequestTopic(name=deleted.name, partition_indexes=(deleted.partition,))

    def is_stable() -> bool:
        with cluster.coordinator(group) as broker:
            broker.need(OffsetFetchRequest, ONE_GROUP)
            reply = broker.call(OffsetFetchRequest(group_id=group, topics=(requested,), require_stable=True), ONE_GROUP)
        error: int = only(only(reply.topics).partitions).error_code
        return error != ErrorCode.UNSTABLE_OFFSET_COMMIT

    cluster.eventually("no pending offset of the deleted topic", is_stable, 20.0)
    producer.end(commit=COMMIT)
    cluster.eventually("the offset of the other topic", lambda: coordinated_offset(cluster, group, topic) == 4)
    expect("offset of the deleted topic", -1, coordinated_offset(cluster, group, deleted))


@clause("TXN-10", "abort")
@defect(Reply(OffsetFetchRequest, "topics.partitions.committed_offset", 42))
def test_offsets_of_an_aborted_transaction_do_not_count(
    cluster: Cluster, topic: Topic, producer: Transactional
) -> None:
    group = cluster.group()
    for offset, outcome in ((1, COMMIT), (2, ABORT)):
        expect("error code of AddOffsetsToTxn", 0, producer.add_offsets(group))
        expect("error code of TxnOffsetCommit", 0, producer.commit_offset(group, topic, offset))
        producer.end(commit=outcome)
    producer.begin(topic)  # succeeds once the abort is complete
    expect("offset", 1, coordinated_offset(cluster, group, topic))


@clause("TXN-10", "new")
@defect(Reply(TxnOffsetCommitRequest, "topics.partitions.error_code", ErrorCode.TRANSACTION_ABORTABLE))
def test_an_offset_takes_its_group_in(cluster: Cluster, topic: Topic, new_producer: Transactional) -> None:
    group = cluster.group()
    expect("error code", 0, new_producer.commit_offset(group, topic, 7, version=NEW_OFFSETS))
    new_producer.end(commit=COMMIT, version=NEW_END)
    cluster.eventually("the committed offset", lambda: coordinated_offset(cluster, group, topic) == 7)


@clause("TXN-10", "not added")
@defect(Reply(TxnOffsetCommitRequest, "topics.partitions.error_code", 0))
def test_a_group_must_be_added_first(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    error = producer.commit_offset(cluster.group(), topic, 7, version=3)
    expect("error code of TxnOffsetCommit", {ErrorCode.INVALID_TXN_STATE}, error)


@clause("TXN-20")
@defect(Reply(TxnOffsetCommitRequest, "topics.partitions.error_code", 0))
@pytest.mark.parametrize(
    ("changed", "error"),
    [
        pytest.param({"generation_id": 100}, ErrorCode.ILLEGAL_GENERATION, id="generation"),
        pytest.param({"generation_id": 1}, ErrorCode.ILLEGAL_GENERATION, id="older generation"),
        pytest.param({"member_id": "unknown", "group_instance_id": None}, ErrorCode.UNKNOWN_MEMBER_ID, id="member"),
        pytest.param({"member_id": "unknown"}, ErrorCode.FENCED_INSTANCE_ID, id="instance"),
    ],
)
def test_offsets_are_fenced_by_the_group(
    cluster: Cluster, topic: Topic, producer: Transactional, changed: dict[str, Any], error: int
) -> None:
    group = cluster.group()
    member = GroupDriver(cluster, group).stable_member(instance="one")
    member.rejoin()
    synced = member.sync({member.member_id: b""})
    expect("error code and generation of the next sync", (0, 2), (synced.error_code, member.generation))
    named = {"generation_id": member.generation, "member_id": member.member_id, "group_instance_id": "one"}
    expect("error code of AddOffsetsToTxn", 0, producer.add_offsets(group))
    expect("error code with the fields of the member", 0, producer.commit_offset(group, topic, 1, version=3, **named))
    expect("error code", error, producer.commit_offset(group, topic, 1, version=3, **(named | changed)))


# -- descriptions (KIP-664) ------------------------------------------------------------------------------


def open_transaction_start(leader: Broker, topic: Topic, producer: Transactional) -> int:
    requested = TopicRequest(name=topic.name, partition_indexes=(topic.partition,))
    part = only(only(leader.call(DescribeProducersRequest(topics=(requested,))).topics).partitions)
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
    expect("start of the open transaction", 1, open_transaction_start(leader, topic, producer))
    producer.end(commit=COMMIT)
    cluster.eventually("no open transaction", lambda: open_transaction_start(leader, topic, producer) == -1)


@clause("TXN-16", "offset 0")
@defect(Reply(DescribeProducersRequest, "topics.partitions.active_producers.current_txn_start_offset", -1))
def test_a_transaction_may_begin_at_offset_0(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    producer.begin(topic)
    producer.write(topic, 0)
    expect("start of the open transaction", 0, open_transaction_start(cluster.leader(topic), topic, producer))


@clause("TXN-17")
@defect(
    Reply(DescribeTransactionsRequest, "transaction_states.topics", ()),
    Reply(DescribeTransactionsRequest, "transaction_states.transaction_state", "Ongoing"),
)
def test_a_coordinator_describes_a_transaction(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    expect("state before the first transaction", (0, "Empty"), _state(describe_transaction(producer)))
    producer.begin(topic)
    found = describe_transaction(producer)
    expect("state of an open transaction", (0, "Ongoing"), _state(found))
    expect("producer and timeout", (producer.producer_id, producer.epoch, producer.timeout_ms), _identity(found))
    expect(
        "topic, partitions", (topic.name, (topic.partition,)), (only(found.topics).topic, only(found.topics).partitions)
    )
    producer.end(commit=COMMIT)
    cluster.eventually(
        "the commit to be complete", lambda: _state(describe_transaction(producer)) == (0, "CompleteCommit")
    )


def _state(found: Any) -> tuple[int, str]:
    return found.error_code, found.transaction_state


def _identity(found: Any) -> tuple[int, int, int]:
    return found.producer_id, found.producer_epoch, found.transaction_timeout_ms


@clause("TXN-17", "timeout")
@defect(Request(InitProducerIdRequest, "transaction_timeout_ms", 60_000))
def test_the_timeout_of_the_last_instance_applies(cluster: Cluster) -> None:
    first = Transactional.initialize(cluster, timeout_ms=20_000)
    again = Transactional.initialize(cluster, transactional_id=first.id, timeout_ms=10_000)
    expect("timeout", 10_000, describe_transaction(again).transaction_timeout_ms)


@clause("TXN-17", "unknown")
@defect(Reply(DescribeTransactionsRequest, "transaction_states.error_code", 0))
def test_a_transactional_id_that_is_not_there_is_an_error(cluster: Cluster) -> None:
    producer, not_loaded = Transactional(cluster), TRANSACTION_NOT_READY | COORDINATOR_UNAVAILABLE
    expect("error code", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, cluster.eventually(
        "a coordinator that has loaded its log",
        lambda: code if (code := describe_transaction(producer).error_code) not in not_loaded else None,
    ))  # fmt: skip


def listed(producer: Transactional, **filters: Any) -> bool:
    """Return whether the open transaction of the producer is listed with these filters."""
    version = producer.coordinator.version_of(ListTransactionsRequest, FILTER_SINCE.get(next(iter(filters), ""), 0))
    reply = producer.coordinator.call(ListTransactionsRequest(**filters), version)
    expect("error code of ListTransactions", 0, reply.error_code)
    found = [transaction for transaction in reply.transaction_states if transaction.transactional_id == producer.id]
    if found:
        expect("id and state", (producer.producer_id, "Ongoing"), (found[0].producer_id, found[0].transaction_state))
    return bool(found)


FILTER_SINCE = {"duration_filter": 1, "transactional_id_pattern": 2}
LONG_TRANSACTION_MS = 1_500


@clause("TXN-18")
@defect(Reply(ListTransactionsRequest, "transaction_states", ()))
@pytest.mark.parametrize(
    ("passing", "failing"),
    [
        pytest.param({}, {"producer_id_filters": (-5,)}, id="none"),
        pytest.param({"state_filters": ("Ongoing",)}, {"state_filters": ("Empty",)}, id="state"),
        pytest.param({"duration_filter": 0}, {"duration_filter": 3_600_000}, id="duration"),
        pytest.param({"transactional_id_pattern": "hw-.*"}, {"transactional_id_pattern": "no-.*"}, id="pattern"),
        pytest.param({"transactional_id_pattern": ".*x.*"}, {"transactional_id_pattern": "hw-"}, id="whole id"),
    ],
)
def test_a_filter_lets_some_pass(
    cluster: Cluster, topic: Topic, producer: Transactional, passing: dict[str, Any], failing: dict[str, Any]
) -> None:
    producer.begin(topic)
    cluster.eventually("the transaction in the list", lambda: listed(producer, **passing))
    expect("listed with another filter", False, listed(producer, **failing))


@clause("TXN-18", "long transaction")
@defect(Request(ListTransactionsRequest, "duration_filter", 3_600_000))
def test_a_transaction_is_as_old_as_its_begin(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    """Partitions, writes and groups that are added later do not make it younger."""
    producer.coordinator.version_of(ListTransactionsRequest, FILTER_SINCE["duration_filter"])
    other = cluster.create_topic()
    producer.begin(topic)
    began_ms = describe_transaction(producer).transaction_start_time_ms
    cluster.eventually("an old transaction", lambda: listed(producer, duration_filter=LONG_TRANSACTION_MS))
    producer.begin(other)
    expect("listed after a partition was added", True, listed(producer, duration_filter=LONG_TRANSACTION_MS))
    producer.write(other, 0)
    expect("error code of AddOffsetsToTxn", 0, producer.add_offsets(cluster.group()))
    expect("listed after a group was added", True, listed(producer, duration_filter=LONG_TRANSACTION_MS))
    expect("start of the transaction", began_ms, describe_transaction(producer).transaction_start_time_ms)


@clause("TXN-18", "producer id")
@defect(Request(ListTransactionsRequest, "producer_id_filters", ()))
def test_producer_ids_are_a_filter(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    producer.begin(topic)
    expect("listed with its producer id", True, listed(producer, producer_id_filters=(producer.producer_id,)))
    expect(
        "listed with another producer id", False, listed(producer, producer_id_filters=(producer.producer_id + 1000,))
    )


@clause("TXN-18", "two producer ids")
@defect(Request(ListTransactionsRequest, "producer_id_filters", lambda ids: ids[:1]))
def test_each_producer_id_of_a_filter_counts(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    producer.begin(topic)
    for ids in ((producer.producer_id + 1000, producer.producer_id), (producer.producer_id, -5)):
        expect(f"listed with the producer ids {ids}", True, listed(producer, producer_id_filters=ids))


@clause("TXN-18", "unknown state")
@defect(Reply(ListTransactionsRequest, "unknown_state_filters", ()))
def test_a_state_that_does_not_exist_is_named(topic: Topic, producer: Transactional) -> None:
    producer.begin(topic)
    request = ListTransactionsRequest(state_filters=("Ongoing", "Nonsense"))
    reply = producer.coordinator.call(request)
    expect("unknown states", True, reply.unknown_state_filters == ("Nonsense",))
    expect("listed", True, producer.id in {transaction.transactional_id for transaction in reply.transaction_states})
