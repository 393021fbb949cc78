"""A paused follower, which stays in the ISR: what waits for it, what it lacks, and what an election makes of both."""

from contextlib import suppress
from typing import NamedTuple

import pytest

from highwater.conformance.cases.fetches.test_fetch_limits import fetch_divergence
from highwater.conformance.cases.support.admin import controller, create, new_topic
from highwater.conformance.cases.support.offsets import epoch_end
from highwater.conformance.cases.support.producers import IdempotentProducer, sequenced
from highwater.conformance.cases.support.reassignments import await_replicas, elect_preferred, reassign
from highwater.conformance.cases.support.replicas import (
    FAILOVER_S,
    await_isr,
    controller_last,
    create_replicated_topic,
    followers,
    produce_acknowledged,
    replica_shows,
    values_at,
)
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import LATEST, Broker, Topic, batch, produce_request
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, decrement, defect
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Disconnected, NoReply, Unsupported
from highwater.conformance.targets.base import PAUSE_NODE, STOP_NODE
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.metadata import MetadataRequest
from highwater.reference.wire.messages.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.messages.replicas import ElectLeadersRequest, TopicPartitions
from highwater.reference.wire.messages.topics import CreateTopicsRequest, DeleteTopicsRequest, DeleteTopicState
from highwater.reference.wire.registry import api_of

pytestmark = [pytest.mark.cluster_fault, pytest.mark.slow]

WAIT_MS = 15_000
CREATED_S = 60.0
SILENCE_S = 0.3
STATES_SINCE = 6
NO_LEADER = -1
RECORDS = "responses.partitions.records"
VALUES = [b"%d" % number for number in range(20)]


@pytest.fixture
def topic(cluster: Cluster) -> Topic:
    """Return a topic with three replicas in sync on nodes that can be paused."""
    cluster.need(PAUSE_NODE)
    return create_replicated_topic(cluster)


class Moving(NamedTuple):
    """A partition whose leader another replica replaces when `elect` is called, and its third replica to be paused."""

    topic: Topic
    leader: Broker
    paused: int

    @classmethod
    def create(cls, cluster: Cluster) -> "Moving":
        cluster.need(PAUSE_NODE)
        cluster.need_brokers(3)
        paused, first, second = controller_last(cluster)
        topic = cluster.create_topic(assignment=[first, second, paused])
        await_isr(cluster, topic, 3)
        expect("error code of the reassignment", 0, reassign(cluster, topic.name, (second, first, paused)))
        await_replicas(cluster, topic, (second, first, paused))
        return cls(topic, cluster.leader(topic), paused)

    def elect(self, cluster: Cluster) -> None:
        """Request the election of the first replica, without its reply: it may wait for the paused broker."""
        wanted = (TopicPartitions(topic=self.topic.name, partitions=(0,)),)
        election = controller(cluster)
        version = election.version_of(ElectLeadersRequest)
        election.send(ElectLeadersRequest(timeout_ms=1_000, topic_partitions=wanted), version)

    def expect_end(self, cluster: Cluster, error: int, permitted: set[int]) -> None:
        """Compare the error of a request that waited for the paused replica, which must be in the ISR after it."""
        after = cluster.topic(self.topic.name, excluded_leader=self.topic.leader_id, timeout_s=FAILOVER_S)
        if not error and self.paused not in cluster.isr_of(after):
            raise Unsupported("the election took longer than replica.lag.time.max.ms, so nothing held the request back")
        expect("error code", permitted, error)


@clause("PRD-39")
@defect(Reply(ProduceRequest, "responses.partition_responses.error_code", 0))
def test_a_produce_that_waits_ends_with_the_leadership(cluster: Cluster) -> None:
    moving = Moving.create(cluster)
    api, version = api_of(ProduceRequest), moving.leader.version_of(ProduceRequest)
    cluster.pause(moving.paused)
    waiting = moving.leader.send(produce_request(moving.topic, batch(b"v"), timeout_ms=2 * WAIT_MS), version)
    moving.elect(cluster)
    reply = moving.leader.receive(api, version, waiting, FAILOVER_S)
    error = only(only(reply.responses).partition_responses).error_code
    moving.expect_end(cluster, error, {ErrorCode.NOT_LEADER_OR_FOLLOWER})


@clause("ADM-6", "former leader")
@defect(Reply(DeleteRecordsRequest, "topics.partitions.error_code", 0))
def test_a_deletion_that_waits_does_not_succeed_at_a_former_leader(cluster: Cluster) -> None:
    """It cannot know what the paused follower has deleted (DelayedDeleteRecords), and may wait for the timeout."""
    moving = Moving.create(cluster)
    produce_acknowledged(cluster, moving.topic, *VALUES)
    api, version = api_of(DeleteRecordsRequest), moving.leader.version_of(DeleteRecordsRequest)
    cluster.pause(moving.paused)
    part = DeleteRecordsPartition(partition_index=0, offset=len(VALUES) // 2)
    deletion = DeleteRecordsTopic(name=moving.topic.name, partitions=(part,))
    waiting = moving.leader.send(DeleteRecordsRequest(topics=(deletion,), timeout_ms=WAIT_MS), version)
    moving.elect(cluster)
    reply = moving.leader.receive(api, version, waiting, FAILOVER_S)
    error = only(only(reply.topics).partitions).error_code
    moving.expect_end(cluster, error, {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT})


@clause("REP-25", "grace")
@defect(Reply(MetadataRequest, "topics.partitions.isr_nodes", lambda nodes: nodes[:1]))
def test_a_new_leader_gives_its_followers_time(cluster: Cluster) -> None:
    """Who is in the ISR at the election counts as caught up then (Partition.makeLeader, Replica.resetReplicaState).

    The controller, which starts a new leader epoch, may remove it earlier, when its session has ended.
    """
    lag_s = cluster.setting("replica_lag_time_max_ms") / 1000
    moving = Moving.create(cluster)
    cluster.pause(moving.paused)
    started = cluster.clock.monotonic()
    moving.elect(cluster)
    after = cluster.topic(moving.topic.name, excluded_leader=moving.topic.leader_id, timeout_s=FAILOVER_S)

    def left() -> tuple[float, bool] | None:
        found = cluster.describe(after.name)
        part = only(found.partitions) if found else None
        if part is None or part.leader_id == NO_LEADER or moving.paused in part.isr_nodes:
            return None
        return cluster.clock.monotonic() - started, part.leader_epoch == after.leader_epoch

    waited_s, is_removed_by_leader = cluster.eventually("the silent follower to leave the ISR", left, FAILOVER_S)
    expect(
        f"removed by the new leader {waited_s:.1f} s after the election was requested, which is earlier than {lag_s} s",
        False,
        is_removed_by_leader and waited_s < lag_s,
    )


@clause("REP-25", "silent")
@defect(Reply(MetadataRequest, "topics.partitions.isr_nodes", (1, 2, 3)))
def test_who_is_silent_leaves_the_isr_and_comes_back(cluster: Cluster, topic: Topic) -> None:
    cluster.need(PAUSE_NODE)
    follower = followers(cluster, topic)[0]
    cluster.pause(follower)
    await_isr(cluster, topic, 2)
    produce_acknowledged(cluster, topic, *VALUES)
    cluster.resume(follower)
    await_isr(cluster, topic, 3)


@clause("REP-7")
@defect(Reply(FetchRequest, RECORDS, b""))
def test_a_former_leader_gives_up_what_no_other_replica_has(cluster: Cluster, topic: Topic) -> None:
    """The old leader appended records while its followers were paused, and was killed before they fetched them."""
    cluster.need(PAUSE_NODE)
    produce_acknowledged(cluster, topic, b"common")
    old = topic.leader_id
    _write_unreplicated_records(cluster, topic)
    after = cluster.topic(topic.name, excluded_leader=old, timeout_s=FAILOVER_S)
    produce_acknowledged(cluster, after, b"new")
    values = values_at(cluster.leader(after), after)
    # A fetch that waited when its follower was paused may have got the first record, on a busy machine both.
    fetched = (b"common", b"new"), (b"common", b"sent", b"new"), (b"common", b"sent", b"lost", b"new")
    expect("values at the new leader", set(fetched), tuple(values))
    cluster.start(old)
    await_isr(cluster, after, 3)
    produce_acknowledged(cluster, after, b"later")  # a follower may learn the high watermark only with the next record
    values.append(b"later")
    cluster.eventually(
        "the same records at the old leader", lambda: replica_shows(cluster, after, old, values), FAILOVER_S
    )


@clause("IDM-8", "truncated")
@defect(Reply(ProduceRequest, "responses.partition_responses.base_offset", decrement))
def test_a_truncated_batch_is_no_longer_in_the_producer_state(cluster: Cluster) -> None:
    """A leader is killed with a batch that no follower has, loses it, and leads again when the producer repeats it."""
    cluster.need(PAUSE_NODE)
    cluster.need_brokers(3)
    topic = cluster.create_topic(assignment=sorted(cluster.target.addresses, reverse=True))
    await_isr(cluster, topic, 3)
    producer = IdempotentProducer.create(cluster, topic)
    expect("offset of the first batch", 0, producer.send_accepted(0))
    _write_unreplicated_records(
        cluster,
        topic,
        *(sequenced(cluster.clock, producer.producer_id, producer.epoch, sequence, b"v") for sequence in (1, 2)),
    )
    after = cluster.topic(topic.name, excluded_leader=topic.leader_id, timeout_s=FAILOVER_S)
    produce_acknowledged(cluster, after, b"new")
    cluster.start(topic.leader_id)
    await_isr(cluster, after, 3)
    again = elect_preferred(cluster, after)
    expect("leader", topic.leader_id, again.leader_id)
    producer = IdempotentProducer(cluster.leader(again), again, producer.producer_id, producer.epoch)
    cluster.eventually("an end offset", lambda: not producer.broker.list_offset(again, LATEST).error_code, FAILOVER_S)
    kept = epoch_end(producer.broker, again, topic.leader_epoch).end_offset  # the followers may have fetched batches
    expect("end of the old epoch", {1, 2, 3}, kept)
    for sequence in (1, 2):
        end = producer.end_offset()
        offset = sequence if sequence < kept else end
        expect(f"offset of batch {sequence}, {kept} are left", offset, producer.send_accepted(sequence))
    expect("end offset, with the record of the other leader", 4, producer.end_offset())


@clause("FET-13", "failover")
@defect(Reply(FetchRequest, "responses.partitions.diverging_epoch.end_offset", -1))
def test_a_reader_of_what_was_lost_hears_where_histories_part(cluster: Cluster, topic: Topic) -> None:
    cluster.need(PAUSE_NODE)
    produce_acknowledged(cluster, topic, b"common")
    _write_unreplicated_records(cluster, topic)
    after = cluster.topic(topic.name, excluded_leader=topic.leader_id, timeout_s=FAILOVER_S)
    produce_acknowledged(cluster, after, b"new")
    end = epoch_end(cluster.leader(after), after, topic.leader_epoch).end_offset
    expect("end of the old epoch", {1, 2, 3}, end)
    answer = fetch_divergence(cluster.leader(after), after, 4, topic.leader_epoch)
    expect("error, epoch and its end", (0, topic.leader_epoch, end), answer)


def _write_unreplicated_records(cluster: Cluster, topic: Topic, *batches: bytes) -> None:
    """Append offsets 1 and 2 at the leader while its followers are paused but still in the ISR, then kill it.

    A fetch that was pending when a follower was paused may still return offset 1, on a busy machine both.
    """
    sleeping = followers(cluster, topic)
    leader = cluster.leader(topic)
    for node in sleeping:
        cluster.pause(node)
    for data in batches or (batch(b"sent"), batch(b"lost")):
        expect("error code with acks 1", 0, leader.produce(topic, data, acks=1).error_code)
    cluster.kill(topic.leader_id)
    for node in sleeping:
        cluster.resume(node)


@clause("PRD-25")
@defect(Reply(ProduceRequest, "responses.partition_responses.error_code", 0))
def test_too_few_in_sync_after_the_append_is_no_success(cluster: Cluster) -> None:
    """Two of three replicas are paused, and min.insync.replicas is 2."""
    cluster.need(PAUSE_NODE)
    cluster.need_brokers(3)
    topic = create_replicated_topic(cluster, **{"min.insync.replicas": "2"})
    produce_acknowledged(cluster, topic, b"common")
    leader = cluster.leader(topic)
    for node in followers(cluster, topic):
        cluster.pause(node)
    error = leader.produce(topic, batch(b"v"), timeout_ms=8_000).error_code
    expect("error code", {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}, error)


@clause("CTL-8", "next controller")
@defect(Reply(CreateTopicsRequest, "topics.error_code", ErrorCode.TOPIC_ALREADY_EXISTS))
def test_a_deletion_is_completed_by_the_next_controller(cluster: Cluster) -> None:
    """It waits for a paused replica while its controller stops; the name is free later, though no broker starts."""
    cluster.need(PAUSE_NODE)
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    leader, paused, active = controller_last(cluster)
    topic = cluster.create_topic(assignment=[leader, paused])
    await_isr(cluster, topic, 2)
    old_id = getattr(cluster.describe(topic.name), "topic_id", None)
    requester = controller(cluster)
    version = requester.version_of(DeleteTopicsRequest)
    cluster.pause(paused)
    by_state = version >= STATES_SINCE
    named = {"topics": (DeleteTopicState(name=topic.name),)} if by_state else {"topic_names": (topic.name,)}
    requester.send(DeleteTopicsRequest(timeout_ms=1_000, **named), version)
    with suppress(NoReply):
        requester.receive_frame(SILENCE_S)
    cluster.stop(active)
    cluster.resume(paused)
    again = new_topic(topic.name, -1, -1, assignment=[(leader, paused)])

    def is_created() -> bool:
        """An attempt without a reply may have created the topic."""
        with suppress(NoReply, Disconnected):
            error, found = create(cluster, again)[topic.name].error_code, cluster.describe(topic.name)
            return not error or (found is not None and not found.error_code and found.topic_id != old_id)
        return False

    cluster.eventually(f"the name {topic.name} to be free", is_created, CREATED_S)
