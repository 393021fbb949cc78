"""Committed offsets: several topics, extreme values, and deletion of topics and groups."""

import pytest

from highwater.conformance.broker import Broker, Topic, expect, only
from highwater.conformance.cases.support.committed_offsets import (
    MANY_GROUPS,
    commit,
    committed_offset,
    committed_topics,
)
from highwater.conformance.cases.support.members import GroupDriver
from highwater.conformance.clause import clause, sweep
from highwater.conformance.cluster import Cluster
from highwater.conformance.defects import Reply, Request, decrement, defect, without_error
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
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
    parts = (OffsetCommitRequestPartition(partition_index=0, committed_offset=7),)
    request = OffsetCommitRequest(
        group_id=group, topics=tuple(OffsetCommitRequestTopic(name=name, partitions=parts) for name in names)
    )
    reply = coordinator.call(request, version)
    found = {listed_topic.name: only(listed_topic.partitions).error_code for listed_topic in reply.topics}
    expect("error codes", True, found == {names[0]: 0, names[1]: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    expect("offset of the existing topic", 7, committed_offset(coordinator, group, topic))


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
    found = only(only(committed_topics(coordinator, group, topic)).partitions)
    expect("metadata", "", found.metadata)


@clause("OFF-18")
@defect(Reply(OffsetFetchRequest, OFFSET, 5))
def test_offsets_go_with_their_topic(cluster: Cluster, coordinator: Broker, group: str, topic: Topic) -> None:
    commit(coordinator, group, topic, 5)
    cluster.delete_topics(topic.name)
    cluster.eventually("no offset", lambda: committed_offset(coordinator, group, topic) == NONE, 20.0)


@clause("OFF-9", "subscribed")
@defect(Reply(OffsetDeleteRequest, "topics.partitions.error_code", without_error(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)))
def test_the_offset_of_a_subscribed_topic_stays(cluster: Cluster, group: str, topic: Topic) -> None:
    driver = GroupDriver(cluster, group)
    member = driver.stable_member(metadata=encode_subscription(ConsumerProtocolSubscription(topics=(topic.name,))))
    commit(member.broker, group, topic, 5, generation=member.generation, member_id=member.member_id)
    parts = (OffsetDeleteRequestPartition(partition_index=0),)
    requested = OffsetDeleteRequest(
        group_id=group, topics=(OffsetDeleteRequestTopic(name=topic.name, partitions=parts),)
    )
    reply = member.broker.call(requested)
    expect(
        "error codes",
        (0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        (reply.error_code, only(only(reply.topics).partitions).error_code),
    )
    expect("offset", 5, committed_offset(member.broker, group, topic))


@clause("OFF-6", "unknown group")
@sweep(OffsetFetchRequest, MANY_GROUPS, 9)
@defect(Reply(OffsetFetchRequest, "groups", ()))
def test_a_group_that_never_was_has_no_offsets(coordinator: Broker, group: str, version: int) -> None:
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=None),))
    found = only(coordinator.call(request, version).groups)
    expect("error code and number of topics", (0, 0), (found.error_code, len(found.topics)))
