"""Offsets that expire, and groups that are removed with their last offset.

OffsetCommit 2 to 4 states how long its offsets are retained, so that they expire within seconds on any broker that
looks for expired offsets often enough.
"""

from dataclasses import replace
from typing import Any

import pytest

from highwater.conformance.cases.support.committed_offsets import committed_offset
from highwater.conformance.cases.support.members import GroupDriver
from highwater.conformance.cases.support.transactions import ABORT, COMMIT, Transactional
from highwater.conformance.clause import clause, sweep
from highwater.conformance.client.broker import Broker, Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Unsupported
from highwater.conformance.targets.base import STOP_NODE
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
)
from highwater.reference.wire.messages.consumer_groups import ConsumerProtocolSubscription, encode_subscription
from highwater.reference.wire.messages.groups import DeleteGroupsRequest, ListGroupsRequest

pytestmark = pytest.mark.slow

NONE = -1
OWN_RETENTION_SINCE, OWN_RETENTION_UNTIL = 2, 4
BRIEF_MS, LONG_MS = 1, 3_600_000
FAILOVER_MS = 10_000
"""Longer than another broker needs to become the coordinator, so that it loads the offset before it expires."""
BEFORE_PENDING_MS = 2_000
"""Long enough to commit another offset in a transaction before the first one expires."""
LONGEST_INTERVAL_MS = 5_000
OFFSET = "groups.topics.partitions.committed_offset"


@pytest.fixture
def topic(cluster: Cluster) -> Topic:
    """Return a new topic of three partitions; raises Unsupported if the target seldom looks for expired offsets."""
    interval_ms = cluster.setting("offsets_retention_check_interval_ms")
    if interval_ms > LONGEST_INTERVAL_MS:
        raise Unsupported(f"the target's offsets.retention.check.interval.ms is {interval_ms}, above 5 s")
    return cluster.create_topic(partitions=3)


def commit_for(
    broker: Broker, group: str, topic: Topic, retention_ms: int, *partitions: int,
    version: int = OWN_RETENTION_UNTIL, **member: Any,
) -> None:  # fmt: skip
    """Commit offset 5 of some partitions, to be retained for some time."""
    parts = tuple(OffsetCommitRequestPartition(partition_index=index, committed_offset=5) for index in partitions)
    requested = (OffsetCommitRequestTopic(name=topic.name, partitions=parts),)
    request = OffsetCommitRequest(group_id=group, retention_time_ms=retention_ms, topics=requested, **member)
    errors = {part.error_code for part in only(broker.call(request, version).topics).partitions}
    expect("error codes of the commit", True, errors == {0})


def offset_of(broker: Broker, group: str, topic: Topic, partition: int) -> int:
    return committed_offset(broker, group, Topic(topic.name, topic.leader, topic.leader_id, partition=partition))


def await_expiry(cluster: Cluster, broker: Broker, group: str, topic: Topic, partition: int) -> None:
    cluster.eventually(
        f"no offset of partition {partition}", lambda: offset_of(broker, group, topic, partition) == NONE, 20.0
    )


def await_checks(cluster: Cluster, topic: Topic) -> None:
    """Wait for two checks for expired offsets, at least one of which begins after now."""
    group = cluster.group()
    for _ in range(2):
        commit_for(cluster.coordinator(group), group, topic, BRIEF_MS, 2)
        await_expiry(cluster, cluster.coordinator(group), group, topic, 2)


def groups_at(broker: Broker) -> set[str]:
    return {group.group_id for group in broker.call(ListGroupsRequest()).groups}


@clause("OFF-19")
@sweep(OffsetCommitRequest, OWN_RETENTION_SINCE, OWN_RETENTION_UNTIL)
@defect(Request(OffsetCommitRequest, "retention_time_ms", NONE), Reply(OffsetFetchRequest, OFFSET, NONE))
def test_an_offset_expires_after_its_own_retention_time(
    cluster: Cluster, coordinator: Broker, group: str, topic: Topic, version: int
) -> None:
    commit_for(coordinator, group, topic, LONG_MS, 0, version=version)
    commit_for(coordinator, group, topic, NONE, 1, version=version)
    commit_for(coordinator, group, topic, BRIEF_MS, 2, version=version)
    await_expiry(cluster, coordinator, group, topic, 2)
    kept = {index: offset_of(coordinator, group, topic, index) for index in (0, 1)}
    expect(f"offsets with a longer retention: {kept}", True, kept == {0: 5, 1: 5})


@clause("OFF-19", "committed again")
@defect(Request(OffsetCommitRequest, "retention_time_ms", BRIEF_MS))
def test_the_retention_time_of_the_last_commit_applies(
    cluster: Cluster, coordinator: Broker, group: str, topic: Topic
) -> None:
    commit_for(coordinator, group, topic, LONG_MS, 0, 1, 2)
    commit_for(coordinator, group, topic, BRIEF_MS, 1)
    commit_for(coordinator, group, topic, LONG_MS, 1)
    await_checks(cluster, topic)
    kept = {index: offset_of(coordinator, group, topic, index) for index in range(3)}
    expect(f"offsets: {kept}", True, kept == {0: 5, 1: 5, 2: 5})


@clause("OFF-19", "failover")
@pytest.mark.cluster_fault
@defect(Reply(OffsetFetchRequest, OFFSET, 5))
def test_an_expired_offset_does_not_return(
    cluster: Cluster, driver: GroupDriver, coordinator: Broker, group: str, topic: Topic
) -> None:
    """A member that is no consumer keeps the next coordinator from letting offsets expire (KIP-211)."""
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    commit_for(coordinator, group, topic, LONG_MS, 0)
    commit_for(coordinator, group, topic, BRIEF_MS, 1, 2)
    for index in (1, 2):
        await_expiry(cluster, coordinator, group, topic, index)
    member, joined = driver.join(protocol_type="other", session_timeout_ms=driver.session_ms(30_000))
    expect("error code of the join", 0, joined.error_code)
    expect("error code of the sync", 0, member.sync({member.member_id: b"a"}, protocol_type="other").error_code)
    cluster.stop(next(node for node, known in cluster.target.addresses.items() if known == coordinator.address))
    with cluster.coordinator(group) as broker:
        found = [offset_of(broker, group, topic, index) for index in range(3)]
    expect(f"offsets at the next coordinator: {found}", True, found == [5, NONE, NONE])


@clause("OFF-19", "next coordinator")
@pytest.mark.cluster_fault
@defect(Request(OffsetCommitRequest, "retention_time_ms", LONG_MS))
def test_a_retention_time_outlives_the_coordinator(
    cluster: Cluster, coordinator: Broker, group: str, topic: Topic
) -> None:
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    commit_for(coordinator, group, topic, LONG_MS, 0)
    commit_for(coordinator, group, topic, FAILOVER_MS, 2)
    cluster.stop(next(node for node, known in cluster.target.addresses.items() if known == coordinator.address))
    with cluster.coordinator(group) as broker:
        await_expiry(cluster, broker, group, topic, 2)
        expect("offset with a longer retention", 5, offset_of(broker, group, topic, 0))


@clause("TXN-10", "expiry")
@defect(Reply(OffsetFetchRequest, OFFSET, NONE))
def test_a_group_whose_only_offset_is_pending_does_not_expire(
    cluster: Cluster, coordinator: Broker, group: str, topic: Topic
) -> None:
    producer = Transactional.initialize(cluster)
    expect("error code of AddOffsetsToTxn", 0, producer.add_offsets(group))
    expect("error code of TxnOffsetCommit", 0, producer.commit_offset(group, topic, 42))
    await_checks(cluster, topic)
    producer.end(commit=COMMIT)
    cluster.eventually("the committed offset", lambda: committed_offset(coordinator, group, topic) == 42)


@clause("TXN-10", "expired")
@defect(Reply(OffsetFetchRequest, OFFSET, NONE))
def test_an_offset_with_a_pending_one_does_not_expire(
    cluster: Cluster, coordinator: Broker, group: str, topic: Topic
) -> None:
    """The transaction that commits replaces the expired offset; the one that aborts lets it expire."""
    commit_for(coordinator, group, topic, BEFORE_PENDING_MS, 0, 1)
    commit_for(coordinator, group, topic, LONG_MS, 2)  # keeps the group
    committing, aborting = (Transactional.initialize(cluster) for _ in range(2))
    for number, producer in enumerate((committing, aborting)):
        expect("error code of AddOffsetsToTxn", 0, producer.add_offsets(group))
        pending = replace(topic, partition=number)
        expect("error code of TxnOffsetCommit", 0, producer.commit_offset(group, pending, 42))
    other = cluster.group()
    commit_for(cluster.coordinator(other), other, topic, BEFORE_PENDING_MS, 2)
    await_expiry(cluster, cluster.coordinator(other), other, topic, 2)
    await_checks(cluster, topic)
    committing.end(commit=COMMIT)
    cluster.eventually("the committed offset", lambda: offset_of(coordinator, group, topic, 0) == 42)
    aborting.end(commit=ABORT)
    await_expiry(cluster, coordinator, group, topic, 1)
    expect("offset of the commit", 42, offset_of(coordinator, group, topic, 0))


@clause("OFF-20")
@defect(Reply(OffsetFetchRequest, OFFSET, NONE), Reply(OffsetFetchRequest, OFFSET, 5))
def test_the_offset_of_a_subscribed_topic_does_not_expire(
    cluster: Cluster, driver: GroupDriver, coordinator: Broker, group: str, topic: Topic
) -> None:
    subscription = encode_subscription(ConsumerProtocolSubscription(topics=(topic.name,)))
    member = driver.stable_member(metadata=subscription, session_timeout_ms=driver.session_ms(30_000))
    identity: dict[str, Any] = {"generation_id_or_member_epoch": member.generation, "member_id": member.member_id}
    commit_for(coordinator, group, topic, BRIEF_MS, 2, **identity)
    await_checks(cluster, topic)
    expect("offset of the subscribed topic", 5, offset_of(coordinator, group, topic, 2))
    expect("error code of leaving", 0, member.leave_error())
    await_expiry(cluster, coordinator, group, topic, 2)


@clause("OFF-20", "other protocol type")
@defect(Reply(OffsetFetchRequest, OFFSET, NONE), Reply(OffsetFetchRequest, OFFSET, 5))
def test_offsets_do_not_expire_in_a_group_whose_subscription_cannot_be_read(
    cluster: Cluster, driver: GroupDriver, coordinator: Broker, group: str, topic: Topic
) -> None:
    """A member of a connector, for example, says nothing of topics (GroupMetadata.removeExpiredOffsets)."""
    member, joined = driver.join(protocol_type="other", session_timeout_ms=driver.session_ms(30_000))
    expect("error code of the join", 0, joined.error_code)
    expect("error code of the sync", 0, member.sync({member.member_id: b"a"}, protocol_type="other").error_code)
    identity: dict[str, Any] = {"generation_id_or_member_epoch": member.generation, "member_id": member.member_id}
    commit_for(coordinator, group, topic, BRIEF_MS, 2, **identity)
    await_checks(cluster, topic)
    expect("offset of the group with a member", 5, offset_of(coordinator, group, topic, 2))
    expect("error code of leaving", 0, member.leave_error())
    await_expiry(cluster, coordinator, group, topic, 2)


@clause("OFF-20", "other topic")
@defect(Request(OffsetCommitRequest, "retention_time_ms", LONG_MS))
def test_an_offset_without_a_subscription_expires_in_a_group_with_members(
    cluster: Cluster, driver: GroupDriver, coordinator: Broker, group: str, topic: Topic
) -> None:
    subscribed = cluster.create_topic(partitions=3)
    subscription = encode_subscription(ConsumerProtocolSubscription(topics=(subscribed.name,)))
    member = driver.stable_member(metadata=subscription, session_timeout_ms=driver.session_ms(30_000))
    identity: dict[str, Any] = {"generation_id_or_member_epoch": member.generation, "member_id": member.member_id}
    for committed in (subscribed, topic):
        commit_for(coordinator, group, committed, BRIEF_MS, 2, **identity)
    await_expiry(cluster, coordinator, group, topic, 2)
    expect("offset of the subscribed topic", 5, offset_of(coordinator, group, subscribed, 2))
    expect("error code of a heartbeat", 0, member.heartbeat_error())


@clause("GRP-65", "expired")
@defect(Request(OffsetCommitRequest, "retention_time_ms", LONG_MS), Reply(ListGroupsRequest, "groups", ()))
def test_a_group_is_removed_when_its_last_offset_expires(
    cluster: Cluster, coordinator: Broker, group: str, topic: Topic
) -> None:
    commit_for(coordinator, group, topic, LONG_MS, 0)
    expect("the group is listed", True, group in groups_at(coordinator))
    commit_for(coordinator, group, topic, BRIEF_MS, 2)
    await_expiry(cluster, coordinator, group, topic, 2)
    expect("the group with another offset is listed", True, group in groups_at(coordinator))
    commit_for(coordinator, group, topic, BRIEF_MS, 0)
    cluster.eventually("the group is no longer listed", lambda: group not in groups_at(coordinator), 20.0)
    deleted = only(coordinator.call(DeleteGroupsRequest(groups_names=(group,))).results)
    expect("error code of DeleteGroups", ErrorCode.GROUP_ID_NOT_FOUND, deleted.error_code)


@clause("GRP-65", "deleted")
@defect(Request(OffsetDeleteRequest, "topics.partitions.partition_index", 0), Reply(ListGroupsRequest, "groups", ()))
def test_a_group_is_removed_when_its_last_offset_is_deleted(
    cluster: Cluster, coordinator: Broker, group: str, topic: Topic
) -> None:
    commit_for(coordinator, group, topic, NONE, 1, 2)

    def delete(*indexes: int) -> None:
        parts = tuple(OffsetDeleteRequestPartition(partition_index=index) for index in indexes)
        requested = (OffsetDeleteRequestTopic(name=topic.name, partitions=parts),)
        reply = coordinator.call(OffsetDeleteRequest(group_id=group, topics=requested))
        errors = {part.error_code for part in only(reply.topics).partitions}
        expect("error codes of OffsetDelete", True, (reply.error_code, errors) == (0, {0}))

    delete(2)
    kept = {index: offset_of(coordinator, group, topic, index) for index in (1, 2)}
    expect(f"offsets: {kept}", True, kept == {1: 5, 2: NONE})
    expect("the group with another offset is listed", True, group in groups_at(coordinator))
    delete(1)
    cluster.eventually("the group is no longer listed", lambda: group not in groups_at(coordinator), 20.0)
