"""Committed offsets: several topics, extreme values, and deletion of topics and groups."""

import pytest

from highwater.conformance.cases.support.committed_offsets import (
    MANY_GROUPS,
    by_topic,
    commit,
    committed_offset,
    committed_part,
    error_codes,
    expected_errors,
    expected_parts,
    mixed_commits,
    stored_parts,
)
from highwater.conformance.cases.support.members import GroupDriver
from highwater.conformance.clause import clause, sweep
from highwater.conformance.client.broker import Broker, Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.requests import message
from highwater.conformance.defects import Reply, Request, decrement, defect, without_error
from highwater.conformance.expectations import expect, only
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from highwater.reference.wire.messages.consumer_groups import ConsumerProtocolSubscription, encode_subscription

NONE = -1
LARGEST = (1 << 63) - 1
ERROR = "topics.partitions.error_code"
OFFSET = "groups.topics.partitions.committed_offset"


@clause("OFF-13")
@pytest.mark.parametrize("offset", [0, 1, LARGEST])
@defect(Request(OffsetCommitRequest, "topics.partitions.committed_offset", decrement))
def test_any_offset_may_be_committed(coordinator: Broker, group: str, topic: Topic, offset: int) -> None:
    """The coordinator does not compare the offset with the log."""
    expect("error code", 0, commit(coordinator, group, topic, offset))
    expect("offset", offset, committed_offset(coordinator, group, topic))


@clause("OFF-14")
@defect(Request(OffsetCommitRequest, "topics.partitions.committed_offset", 5))
def test_the_last_commit_counts(coordinator: Broker, group: str, topic: Topic) -> None:
    for offset in (10, 20, 3):
        expect("error code", 0, commit(coordinator, group, topic, offset))
        expect("offset", offset, committed_offset(coordinator, group, topic))


@clause("OFF-15")
@sweep(OffsetCommitRequest, 2, 9)
@defect(Reply(OffsetCommitRequest, ERROR, without_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
def test_a_commit_for_no_topic_fails_alone(
    cluster: Cluster, coordinator: Broker, group: str, topic: Topic, version: int
) -> None:
    names = (topic.name, cluster.name())
    parts = [[topic.partition, 7]]
    topics = [{"name": name, "partitions": parts} for name in names]
    request = message(OffsetCommitRequest, group_id=group, topics=topics)
    reply = coordinator.call(request, version)
    found = {listed_topic.name: only(listed_topic.partitions).error_code for listed_topic in reply.topics}
    expect("error codes", True, found == {names[0]: 0, names[1]: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    expect("offset of the existing topic", 7, committed_offset(coordinator, group, topic))


@clause("OFF-15", "partition")
@defect(Reply(OffsetCommitRequest, ERROR, 0), Reply(OffsetFetchRequest, OFFSET, NONE))
def test_a_commit_for_no_partition_fails_alone(coordinator: Broker, group: str, topic: Topic) -> None:
    indexes = (topic.partition, 1000)
    parts = [[index, 7] for index in indexes]
    requested = [{"name": topic.name, "partitions": parts}]
    reply = coordinator.call(message(OffsetCommitRequest, group_id=group, topics=requested))
    found = {part.partition_index: part.error_code for part in only(reply.topics).partitions}
    expect("error codes", True, found == {topic.partition: 0, 1000: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    expect("offset of the existing partition", 7, committed_offset(coordinator, group, topic))


@clause("OFF-16")
@defect(Reply(OffsetFetchRequest, OFFSET, 5))
def test_groups_have_offsets_of_their_own(cluster: Cluster, coordinator: Broker, group: str, topic: Topic) -> None:
    other = cluster.group()
    commit(coordinator, group, topic, 1)
    commit(cluster.coordinator(other), other, topic, 2)
    expect("offset of the first group", 1, committed_offset(coordinator, group, topic))
    expect("offset of the second group", 2, committed_offset(cluster.coordinator(other), other, topic))


@clause("OFF-17")
@defect(Reply(OffsetFetchRequest, "groups.topics.partitions.metadata", None))
def test_null_metadata_is_read_as_none(coordinator: Broker, group: str, topic: Topic) -> None:
    expect("error code", 0, commit(coordinator, group, topic, 1, metadata=None))
    found = committed_part(coordinator, group, topic)
    expect("metadata", "", found.metadata)


@clause("OFF-18")
@defect(Reply(OffsetFetchRequest, OFFSET, 5))
def test_offsets_go_with_their_topic(cluster: Cluster, coordinator: Broker, group: str, topic: Topic) -> None:
    expect("error code of the commit", 0, commit(coordinator, group, topic, 5))
    expect("offset before the deletion", 5, committed_offset(coordinator, group, topic))
    cluster.delete_topics(topic.name)
    cluster.eventually("no offset", lambda: committed_offset(coordinator, group, topic) == NONE, 20.0)


@clause("OFF-18", "members")
@defect(Reply(OffsetFetchRequest, OFFSET, 5))
def test_offsets_go_with_their_topic_while_the_group_has_members(cluster: Cluster, group: str, topic: Topic) -> None:
    driver = GroupDriver(cluster, group)
    member = driver.stable_member(metadata=encode_subscription(ConsumerProtocolSubscription(topics=(topic.name,))))
    error = commit(member.broker, group, topic, 5, generation=member.generation, member_id=member.member_id)
    expect("error code of the commit", 0, error)
    cluster.delete_topics(topic.name)

    def is_removed() -> bool:
        expect("error code of a heartbeat", 0, member.heartbeat_error())
        return committed_offset(member.broker, group, topic) == NONE

    cluster.eventually("no offset", is_removed, 20.0)


@clause("OFF-9", "second member")
@defect(Reply(OffsetDeleteRequest, "topics.partitions.error_code", without_error(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)))
def test_the_subscription_of_every_member_counts(cluster: Cluster, group: str, topic: Topic) -> None:
    driver, other = GroupDriver(cluster, group), cluster.create_topic()
    first, second = (_subscription(name) for name in (topic.name, other.name))
    leader = driver.stable_member(metadata=first)
    follower = driver.send_join(metadata=second)
    leader.await_rebalance()
    leader.rejoin()
    expect("error code of the second join", 0, follower.receive_join().error_code)
    leader.sync({leader.member_id: b"a", follower.member_id: b"b"})
    expect("error code of the sync", 0, follower.sync_error())
    for subscribed in (topic, other):
        parts = [subscribed.partition]
        requested = [[subscribed.name, parts]]
        reply = leader.broker.call(message(OffsetDeleteRequest, group_id=group, topics=requested))
        found = only(only(reply.topics).partitions).error_code
        expect("error code", ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, found)


def _subscription(name: str) -> bytes:
    return encode_subscription(ConsumerProtocolSubscription(topics=(name,)))


@clause("OFF-9", "subscribed")
@defect(Reply(OffsetDeleteRequest, "topics.partitions.error_code", without_error(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)))
def test_the_offset_of_a_subscribed_topic_stays(cluster: Cluster, group: str, topic: Topic) -> None:
    driver = GroupDriver(cluster, group)
    member = driver.stable_member(metadata=encode_subscription(ConsumerProtocolSubscription(topics=(topic.name,))))
    commit(member.broker, group, topic, 5, generation=member.generation, member_id=member.member_id)
    parts = [topic.partition]
    requested = message(OffsetDeleteRequest, group_id=group, topics=[[topic.name, parts]])
    reply = member.broker.call(requested)
    expect(
        "error codes",
        (0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        (reply.error_code, only(only(reply.topics).partitions).error_code),
    )
    expect("offset", 5, committed_offset(member.broker, group, topic))


@clause("OFF-9", "among others")
@defect(
    Reply(OffsetDeleteRequest, "topics.partitions.error_code", 0),
    Request(OffsetDeleteRequest, "topics", lambda topics: topics[:1]),
)
def test_each_offset_is_deleted_or_refused_by_itself(cluster: Cluster, group: str) -> None:
    driver, (first, subscribed, last) = GroupDriver(cluster, group), (cluster.create_topic() for _ in range(3))
    member = driver.stable_member(metadata=_subscription(subscribed.name))
    member.broker.version_of(OffsetDeleteRequest)
    for committed in (first, subscribed, last):
        error = commit(member.broker, group, committed, 5, generation=member.generation, member_id=member.member_id)
        expect("error code of the commit", 0, error)
    errors = {
        first.name: 0, subscribed.name: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        cluster.name(): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, last.name: 0,
    }  # fmt: skip
    parts = [0]
    requested = [[name, parts] for name in errors]
    reply = member.broker.call(message(OffsetDeleteRequest, group_id=group, topics=requested))
    found = {listed_topic.name: only(listed_topic.partitions).error_code for listed_topic in reply.topics}
    expect("error codes", (0, errors), (reply.error_code, found))
    offsets = [committed_offset(member.broker, group, committed) for committed in (first, subscribed, last)]
    expect("offsets", [NONE, 5, NONE], offsets)


@clause("OFF-15", "mixed")
@defect(Reply(OffsetCommitRequest, ERROR, 0), Reply(OffsetFetchRequest, OFFSET, NONE))
def test_each_offset_is_committed_or_refused_by_itself(cluster: Cluster, coordinator: Broker, group: str) -> None:
    commits = mixed_commits(cluster)
    topics = [
        {"name": name, "partitions": [each.fields for each in wanted]} for name, wanted in by_topic(commits).items()
    ]
    reply = coordinator.call(message(OffsetCommitRequest, group_id=group, topics=topics))
    expect("error codes", expected_errors(commits), error_codes(reply))
    expect("offsets, leader epochs and metadata", True, stored_parts(coordinator, group) == expected_parts(commits))


@clause("OFF-6", "unknown group")
@sweep(OffsetFetchRequest, MANY_GROUPS, 9)
@defect(Reply(OffsetFetchRequest, "groups", ()))
def test_a_group_that_never_was_has_no_offsets(coordinator: Broker, group: str, version: int) -> None:
    request = message(OffsetFetchRequest, groups=[{"group_id": group, "topics": None}])
    found = only(coordinator.call(request, version).groups)
    expect("error code and number of topics", (0, 0), (found.error_code, len(found.topics)))
