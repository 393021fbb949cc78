"""The end of a transaction while a broker is down or replicas are missing, and producers that expire."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from highwater.conformance.cases.support.admin import controller
from highwater.conformance.cases.support.producers import IdempotentProducer, sequenced
from highwater.conformance.cases.support.replicas import FAILOVER_S, await_isr, needing_all_replicas
from highwater.conformance.cases.support.transactions import (
    ABORT,
    CLASSIC_VERSIONS,
    COMMIT,
    NEW_END,
    NEW_PRODUCE,
    Transactional,
    code_id_epoch,
    committed_values,
    describe_transaction,
    eventually_stable,
    fetch_committed,
    need_transaction_version,
)
from highwater.conformance.cases.topics.test_broker_configs import ALL_BROKERS, altered
from highwater.conformance.clause import clause, era
from highwater.conformance.client.broker import Broker, Topic, produce_request
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import GuardOff, Reply, defect
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Disconnected, Unsupported
from highwater.conformance.targets.base import PAUSE_NODE, STOP_NODE
from highwater.reference.wire.errors import COORDINATOR_NOT_READY, ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

pytestmark = [pytest.mark.cluster_fault, pytest.mark.slow]

OUTCOMES = pytest.mark.parametrize("commit", [COMMIT, ABORT], ids=["commit", "abort"])
STABLE = "responses.partitions.last_stable_offset"
TRANSACTION_LOG = "__transaction_state"
MIN_ISR = "min.insync.replicas"
LONGEST_INTERVAL_MS = 5_000
MARKER_S = 10.0
"""Longer than a coordinator waits before it sends a marker again to a partition that has a leader."""
PAUSE_S = 0.1
NEVER = -1
SILENCE_S = 0.3
"""Shorter than replica.lag.time.max.ms, after which the paused follower is no longer in sync."""
RETRIED = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS}
"""Apache Kafka 4 returns the latter, which clients retry without a new transaction."""


@pytest.fixture
def producer(cluster: Cluster) -> Transactional:
    """Return a producer of a cluster of three brokers that can be stopped."""
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    return Transactional.initialize(cluster)


def other_brokers(cluster: Cluster, producer: Transactional) -> list[int]:
    """Return the brokers that do not coordinate the producer, the controller last: it is not stopped if possible."""
    with cluster.connect() as broker:
        active = broker.metadata().controller_id
    nodes = [node for node, address in cluster.target.addresses.items() if address != producer.coordinator.address]
    return sorted(nodes, key=lambda node: (node == active, node))


def expect_outcome(cluster: Cluster, topic: Topic, commit: bool, timeout_s: float = FAILOVER_S) -> None:
    """Wait for the marker behind the only record of the transaction, and check what read_committed returns."""
    again = cluster.topic(topic.name, timeout_s=FAILOVER_S)
    leader = cluster.leader(again)
    eventually_stable(cluster, leader, again, 2, timeout_s)
    found = committed_values(leader, again)
    expect(f"values for read_committed: {found}", True, found == ([b"v"] if commit else []))


def _is_in_sync(cluster: Cluster) -> bool:
    """Return whether the log of transactions has all replicas in sync, or is not shown."""
    found = cluster.describe(TRANSACTION_LOG)
    return found is None or all(len(part.isr_nodes) == len(part.replica_nodes) for part in found.partitions)


def begin_in_two_replicas(cluster: Cluster, producer: Transactional) -> tuple[int, Topic]:
    """Write to a partition that needs both replicas; return its follower, a broker that may be stopped, and the topic.

    The partition must have a leader: Apache Kafka 4.3 writes no marker to one that has none when the transaction ends.
    """
    away, leader_id = other_brokers(cluster, producer)
    # A broker that has just been restarted may not have the newest states yet, and would not be elected coordinator.
    cluster.eventually("all replicas of the transactions in sync", lambda: _is_in_sync(cluster), FAILOVER_S)
    topic = cluster.create_topic(assignment=[leader_id, away], configs={MIN_ISR: "2"})
    await_isr(cluster, topic, 2)
    producer.begin(topic)
    producer.write(topic, 0)
    return away, topic


@clause("TXN-22", "too few in sync")
@OUTCOMES
@defect(Reply(FetchRequest, STABLE, 0))
def test_a_partition_with_too_few_replicas_gets_its_marker_later(
    cluster: Cluster, producer: Transactional, commit: bool
) -> None:
    away, topic = begin_in_two_replicas(cluster, producer)
    cluster.stop(away)
    await_isr(cluster, topic, 1)
    producer.end(commit=commit)
    cluster.start(away)
    expect_outcome(cluster, topic, commit)


@clause("TXN-40")
@defect(Reply(FetchRequest, STABLE, 0))
def test_a_partition_without_a_leader_gets_its_marker_later(cluster: Cluster, producer: Transactional) -> None:
    away, lasting = other_brokers(cluster, producer)
    here, there = (cluster.create_topic(assignment=[node]) for node in (lasting, away))
    producer.begin(here, there)
    for topic in (here, there):
        producer.write(topic, 0)
    cluster.stop(away)
    cluster.eventually("a partition without a leader", lambda: _has_no_leader(cluster, there), FAILOVER_S)
    producer.end(commit=COMMIT)
    expect_outcome(cluster, here, COMMIT)
    cluster.start(away)
    expect_outcome(cluster, there, COMMIT, MARKER_S)


def _has_no_leader(cluster: Cluster, topic: Topic) -> bool:
    found = cluster.describe(topic.name)
    return found is not None and only(found.partitions).leader_id < 0


@clause("TXN-32")
@defect(Reply(ProduceRequest, "responses.partition_responses.error_code", 0), GuardOff("CompleteAwaitsMarkers"))
def test_no_batch_is_stored_behind_a_marker_while_others_are_missing(cluster: Cluster, producer: Transactional) -> None:
    """A batch there would belong to no transaction that can end."""
    away, waiting = begin_in_two_replicas(cluster, producer)
    topic = cluster.create_topic(assignment=[waiting.leader_id])
    producer.begin(topic)
    producer.write(topic, 0)
    cluster.stop(away)
    await_isr(cluster, waiting, 1)
    producer.end(commit=COMMIT)
    leader = cluster.leader(topic)
    eventually_stable(cluster, leader, topic, 2, FAILOVER_S)
    records = sequenced(cluster.clock, producer.producer_id, producer.epoch, 1, b"behind", transactional=True)
    request = replace(produce_request(topic, records), transactional_id=producer.id)
    reply = leader.call(request, CLASSIC_VERSIONS[ProduceRequest])
    expect("error code", RETRIED, only(only(reply.responses).partition_responses).error_code)
    cluster.start(away)
    expect_outcome(cluster, waiting, COMMIT)


@contextmanager
def missing_marker(cluster: Cluster, producer: Transactional) -> Iterator[Topic]:
    """Commit a transaction whose only marker cannot be written until the end of the block; yield its partition."""
    away, topic = begin_in_two_replicas(cluster, producer)
    cluster.stop(away)
    await_isr(cluster, topic, 1)
    producer.end(commit=COMMIT)
    yield topic
    cluster.start(away)
    expect_outcome(cluster, topic, COMMIT)


@clause("TXN-36", "InitProducerId")
@defect(Reply(InitProducerIdRequest, "error_code", 0), GuardOff("InitAwaitsMarkers"))
def test_the_next_instance_waits_for_the_markers(cluster: Cluster, producer: Transactional) -> None:
    with missing_marker(cluster, producer):
        request = InitProducerIdRequest(transactional_id=producer.id, transaction_timeout_ms=producer.timeout_ms)
        expect("error code", ErrorCode.CONCURRENT_TRANSACTIONS, producer.coordinator.call(request).error_code)


@clause("TXN-36", "AddPartitionsToTxn")
@defect(
    Reply(AddPartitionsToTxnRequest, "results_by_topic_v3_and_below.results_by_partition.partition_error_code", 0),
    GuardOff("AddAwaitsMarkers"),
)
def test_the_next_transaction_waits_for_the_markers(cluster: Cluster, producer: Transactional) -> None:
    with missing_marker(cluster, producer) as topic:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.id, v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=topic.name, partitions=(topic.partition,)),),
        )  # fmt: skip
        reply = producer.coordinator.call(request, CLASSIC_VERSIONS[AddPartitionsToTxnRequest])
        found = only(only(reply.results_by_topic_v3_and_below).results_by_partition).partition_error_code
        expect("error code", ErrorCode.CONCURRENT_TRANSACTIONS, found)


@clause("TXN-33")
@defect(Reply(FetchRequest, STABLE, 2))
def test_a_marker_counts_when_it_is_replicated(cluster: Cluster, producer: Transactional) -> None:
    """The case writes the marker itself: the coordinator would also wait for the follower, which is paused."""
    cluster.need(PAUSE_NODE)
    away, topic = begin_in_two_replicas(cluster, producer)
    leader = cluster.leader(topic)
    partition = WritableTxnMarkerTopic(name=topic.name, partition_indexes=(topic.partition,))
    marker = WritableTxnMarker(
        producer_id=producer.producer_id, producer_epoch=producer.epoch, transaction_result=COMMIT, topics=(partition,)
    )
    version = leader.version_of(WriteTxnMarkersRequest)
    cluster.pause(away)
    leader.send(WriteTxnMarkersRequest(markers=(marker,)), version)
    leader.expect_silence(SILENCE_S)
    with cluster.leader(topic) as reader:
        expect("last stable offset", 0, fetch_committed(reader, topic).last_stable_offset)
    cluster.resume(away)
    expect_outcome(cluster, topic, COMMIT)


@clause("TXN-17", "next coordinator")
@defect(Reply(DescribeTransactionsRequest, "transaction_states.transaction_start_time_ms", NEVER))
def test_the_next_coordinator_describes_the_same_transaction(cluster: Cluster, producer: Transactional) -> None:
    """The timeout counts from the first partition (TransactionMetadata, txnStartTimestamp)."""
    topics = [cluster.create_topic(replicas=3) for _ in range(2)]
    for topic in topics:
        producer.begin(topic)
        cluster.clock.sleep(PAUSE_S)  # so that the start differs from the last change
    before = describe_transaction(producer)
    cluster.kill(next(node for node, at in cluster.target.addresses.items() if at == producer.coordinator.address))

    def described() -> Any:
        with suppress(Disconnected):
            found = describe_transaction(producer.reconnect())
            return found if found.error_code == 0 else None
        return None

    after = cluster.eventually("a coordinator that describes the transaction", described, FAILOVER_S)
    for found in (before, after):
        expect("topics", sorted(topic.name for topic in topics), sorted(each.topic for each in found.topics))
    expect("whether the start is known", True, before.transaction_start_time_ms != NEVER)
    expect("start", before.transaction_start_time_ms, after.transaction_start_time_ms)


@clause("TXN-28", "prepared")
@OUTCOMES
@defect(Reply(FetchRequest, STABLE, 0), GuardOff("ResumePrepared"))
def test_the_next_coordinator_completes_what_has_ended(cluster: Cluster, producer: Transactional, commit: bool) -> None:
    """Too few replicas are in sync until the coordinator is killed, so that it cannot write the marker."""
    away, topic = begin_in_two_replicas(cluster, producer)
    cluster.stop(away)
    await_isr(cluster, topic, 1)
    producer.end(commit=commit)
    cluster.kill(next(node for node, at in cluster.target.addresses.items() if at == producer.coordinator.address))
    cluster.start(away)
    expect_outcome(cluster, topic, commit)


@clause("TXN-27", "next coordinator")
@OUTCOMES
@defect(Reply(EndTxnRequest, "error_code", ErrorCode.PRODUCER_FENCED), Reply(EndTxnRequest, "producer_epoch", 7))
def test_the_next_coordinator_answers_a_repeated_end_alike(
    cluster: Cluster, producer: Transactional, commit: bool
) -> None:
    """The client does not know whether its first request was carried out by a coordinator that has gone."""
    need_transaction_version(producer.coordinator, 2)
    topic = cluster.create_topic(replicas=3)
    producer.write(topic, 0, version=NEW_PRODUCE)
    first = producer.end_reply(commit=commit, version=NEW_END)
    expect("error and epoch of EndTxn", (0, producer.epoch + 1), (first.error_code, first.producer_epoch))
    expect_outcome(cluster, topic, commit)
    cluster.kill(next(node for node, at in cluster.target.addresses.items() if at == producer.coordinator.address))

    def repeated() -> Any:
        with suppress(Disconnected):
            reply = producer.reconnect().end_reply(commit=commit, version=NEW_END)
            return None if reply.error_code == ErrorCode.NOT_COORDINATOR else reply
        return None

    again = cluster.eventually("a coordinator that answers", repeated, FAILOVER_S)
    expect("error, id, epoch of the repeated request", code_id_epoch(first), code_id_epoch(again))


# -- the transaction log ------------------------------------------------------------------------------


@clause("TXN-31")
@OUTCOMES
@defect(Reply(EndTxnRequest, "error_code", 0), GuardOff("PersistDecision"))
def test_an_end_that_cannot_be_stored_can_be_repeated(cluster: Cluster, producer: Transactional, commit: bool) -> None:
    away = other_brokers(cluster, producer)[0]
    topic = cluster.create_topic(replicas=3)
    with needing_all_replicas(cluster, TRANSACTION_LOG):
        producer.begin(topic)
        producer.write(topic, 0)
        cluster.stop(away)
        await_isr(cluster, topic, 2)
        expect("error code of EndTxn", COORDINATOR_NOT_READY, end_once(producer, commit))
        cluster.start(away)
        cluster.eventually("a successful EndTxn", lambda: end_once(producer.reconnect(), commit) == 0, FAILOVER_S)
        expect_outcome(cluster, topic, commit)


def end_once(producer: Transactional, commit: bool) -> int:
    request = EndTxnRequest(
        transactional_id=producer.id, producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=commit
    )
    return int(producer.coordinator.call(request, 4, 15.0).error_code)


# -- producers that expire (KIP-854) --------------------------------------------------------------------


def producers_of(leader: Broker, topic: Topic) -> set[int]:
    requested = TopicRequest(name=topic.name, partition_indexes=(topic.partition,))
    part = only(only(leader.call(DescribeProducersRequest(topics=(requested,))).topics).partitions)
    return {found.producer_id for found in part.active_producers}


@clause("TXN-7", "expired producers")
@era("3.9")  # 2.8.2 does not change producer.id.expiration.ms while it runs
@defect(Reply(FetchRequest, STABLE, 2))
def test_a_producer_with_an_open_transaction_does_not_expire(cluster: Cluster) -> None:
    """All producers expire after a moment: the case runs alone. A second producer shows when they have."""
    interval_ms = cluster.setting("producer_id_expiration_check_interval_ms")
    if interval_ms > LONGEST_INTERVAL_MS:
        raise Unsupported(f"the target's producer.id.expiration.check.interval.ms is {interval_ms}, above 5 s")
    topic, producer = cluster.create_topic(), Transactional.initialize(cluster)
    idle = IdempotentProducer.create(cluster, topic)
    idle.send_accepted(0)
    producer.begin(topic)
    producer.write(topic, 0)
    leader = cluster.leader(topic)
    expect("producers", True, producers_of(leader, topic) == {idle.producer_id, producer.producer_id})
    with altered(controller(cluster), ALL_BROKERS, "producer.id.expiration.ms", "1"):
        cluster.eventually("the idle producer to expire", lambda: idle.producer_id not in producers_of(leader, topic))
        expect("producers", True, producers_of(leader, topic) == {producer.producer_id})
        part = fetch_committed(leader, topic)
        expect("last stable offset, high watermark", (1, 2), (part.last_stable_offset, part.high_watermark))
        producer.end(commit=COMMIT)
        eventually_stable(cluster, leader, topic, 3)
