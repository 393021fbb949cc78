"""Committed offsets: OffsetCommit and OffsetFetch for one group."""

from highwater.conformance.cases.support.committed_offsets import MANY_GROUPS, commit, committed_part, committed_topics
from highwater.conformance.cases.support.members import GroupDriver
from highwater.conformance.clause import clause, era, sweep
from highwater.conformance.client.broker import Broker, Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import GuardOff, Reply, Request, Setting, defect, increment, without_error
from highwater.conformance.expectations import expect, only
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)

NONE = -1
ERROR = "topics.partitions.error_code"
PLACES = ("topics.partitions", "groups.topics.partitions")
"""Paths of a partition in OffsetFetch replies before and since version 8."""


@clause("OFF-1", "commit")
@defect(
    Request(OffsetCommitRequest, "topics.partitions.committed_metadata", ""),
    Request(OffsetCommitRequest, "topics.partitions.committed_offset", increment),
)
@sweep(OffsetCommitRequest, 1, 9)
def test_a_commit_is_read_back(coordinator: Broker, group: str, topic: Topic, version: int) -> None:
    error = commit(coordinator, group, topic, 42, metadata="note", version=version)
    expect("error code of the commit", 0, error)
    found = committed_part(coordinator, group, topic)
    expect("offset and metadata", (42, "note"), (found.committed_offset, found.metadata))


@clause("OFF-1", "fetch")
@defect(*(Reply(OffsetFetchRequest, f"{place}.committed_offset", increment) for place in PLACES))
@sweep(OffsetFetchRequest, 1, 9)
def test_each_version_reads_the_commit(coordinator: Broker, group: str, topic: Topic, version: int) -> None:
    expect("error code of the commit", 0, commit(coordinator, group, topic, 7, metadata="x"))
    found = committed_part(coordinator, group, topic, version)
    expect("error, offset, metadata", (0, 7, "x"), (found.error_code, found.committed_offset, found.metadata))


@clause("OFF-1", "epoch")
@defect(Request(OffsetCommitRequest, "topics.partitions.committed_leader_epoch", -1))
def test_the_leader_epoch_is_kept(coordinator: Broker, group: str, topic: Topic) -> None:
    coordinator.version_of(OffsetFetchRequest, 5)
    coordinator.version_of(OffsetCommitRequest, 6)
    commit(coordinator, group, topic, 7, epoch=0)
    found = committed_part(coordinator, group, topic)
    expect("leader epoch", 0, found.committed_leader_epoch)


@clause("OFF-2")
@defect(*(Reply(OffsetFetchRequest, f"{place}.committed_offset", 0) for place in PLACES))
@sweep(OffsetFetchRequest, 1, 9)
def test_no_commit_is_no_error(coordinator: Broker, group: str, topic: Topic, version: int) -> None:
    found = committed_part(coordinator, group, topic, version)
    expect("error code and offset", (0, NONE), (found.error_code, found.committed_offset))


@clause("OFF-3", "generation")
@defect(GuardOff("FenceStaleGeneration"))
def test_a_commit_of_another_generation_is_refused(cluster: Cluster, group: str, topic: Topic) -> None:
    member = GroupDriver(cluster, group).stable_member()
    member.rejoin()
    expect("error code of the sync", 0, member.sync({member.member_id: b"a"}).error_code)
    for step in (-1, 1):
        error = commit(member.broker, group, topic, 1, generation=member.generation + step, member_id=member.member_id)
        expect(f"error code of generation {step:+d}", ErrorCode.ILLEGAL_GENERATION, error)
    found = committed_part(member.broker, group, topic)
    expect("offset", NONE, found.committed_offset)


@clause("OFF-3", "no group")
@sweep(OffsetCommitRequest, 1, 8)
@defect(Reply(OffsetCommitRequest, "topics.partitions.error_code", 0))
def test_a_group_that_does_not_exist_has_no_generation(
    coordinator: Broker, group: str, topic: Topic, version: int
) -> None:
    error = commit(coordinator, group, topic, 1, generation=1, member_id="unknown", version=version)
    expect("error code", ErrorCode.ILLEGAL_GENERATION, error)


@clause("OFF-3", "no group v9")
@era("4.0")  # the coordinator of older releases knows no other error
@defect(Reply(OffsetCommitRequest, "topics.partitions.error_code", ErrorCode.ILLEGAL_GENERATION))
def test_a_group_that_does_not_exist_is_not_found(coordinator: Broker, group: str, topic: Topic) -> None:
    coordinator.version_of(OffsetCommitRequest, 9)
    error = commit(coordinator, group, topic, 1, generation=1, member_id="unknown", version=9)
    expect("error code", ErrorCode.GROUP_ID_NOT_FOUND, error)


@clause("OFF-3", "member")
@defect(GuardOff("MembersCommitOnly"))
def test_a_commit_of_a_stranger_is_refused(cluster: Cluster, group: str, topic: Topic) -> None:
    member = GroupDriver(cluster, group).stable_member()
    error = commit(member.broker, group, topic, 1, generation=member.generation, member_id="unknown")
    expect("error code", ErrorCode.UNKNOWN_MEMBER_ID, error)


@clause("OFF-3", "completing")
@defect(Reply(OffsetCommitRequest, ERROR, without_error(ErrorCode.REBALANCE_IN_PROGRESS)))
def test_a_commit_before_the_assignment_is_told_to_wait(cluster: Cluster, group: str, topic: Topic) -> None:
    member, _ = GroupDriver(cluster, group).join()
    error = commit(member.broker, group, topic, 1, generation=member.generation, member_id=member.member_id)
    expect("error code", ErrorCode.REBALANCE_IN_PROGRESS, error)


@clause("OFF-21")
@defect(Reply(OffsetCommitRequest, ERROR, ErrorCode.REBALANCE_IN_PROGRESS))
def test_a_member_may_commit_until_it_joins_again(cluster: Cluster, group: str, topic: Topic) -> None:
    driver = GroupDriver(cluster, group)
    member = driver.stable_member()
    driver.send_join()
    member.await_rebalance()
    error = commit(member.broker, group, topic, 5, generation=member.generation, member_id=member.member_id)
    expect("error code", 0, error)
    found = committed_part(member.broker, group, topic)
    expect("offset", 5, found.committed_offset)


@clause("OFF-3", "member commits")
@defect(Request(OffsetCommitRequest, "topics.partitions.committed_offset", increment))
def test_a_member_commits(cluster: Cluster, group: str, topic: Topic) -> None:
    member = GroupDriver(cluster, group).stable_member()
    error = commit(member.broker, group, topic, 5, generation=member.generation, member_id=member.member_id)
    expect("error code", 0, error)
    found = committed_part(member.broker, group, topic)
    expect("offset", 5, found.committed_offset)


@clause("OFF-4")
@defect(Reply(OffsetCommitRequest, ERROR, without_error(ErrorCode.UNKNOWN_MEMBER_ID)))
def test_a_commit_from_outside_of_a_live_group_is_refused(cluster: Cluster, group: str, topic: Topic) -> None:
    member = GroupDriver(cluster, group).stable_member()
    expect("error code", ErrorCode.UNKNOWN_MEMBER_ID, commit(member.broker, group, topic, 1))


@clause("OFF-5")
@defect(
    Setting("offset_metadata_max_bytes", 1 << 20),
    Reply(OffsetCommitRequest, ERROR, ErrorCode.OFFSET_METADATA_TOO_LARGE),
)
def test_too_much_metadata_is_refused(cluster: Cluster, coordinator: Broker, group: str, topic: Topic) -> None:
    limit = cluster.setting("offset_metadata_max_bytes")
    expect(
        "error code above the limit",
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        commit(coordinator, group, topic, 1, metadata="x" * (limit + 1)),
    )
    expect("error code at the limit", 0, commit(coordinator, group, topic, 1, metadata="x" * limit))


@clause("OFF-6", "all topics")
@defect(Reply(OffsetFetchRequest, "topics", ()), Reply(OffsetFetchRequest, "groups.topics", ()))
@sweep(OffsetFetchRequest, 2, 9)
def test_null_topics_are_all(coordinator: Broker, group: str, topic: Topic, version: int) -> None:
    commit(coordinator, group, topic, 3)
    found = only(tuple(committed_topics(coordinator, group, None, version)))
    expect("name and offset", (topic.name, 3), (found.name, only(found.partitions).committed_offset))


@clause("OFF-6", "no topics")
@defect(Request(OffsetFetchRequest, "topics", None))
@sweep(OffsetFetchRequest, 2, 7)
def test_an_empty_list_of_topics_is_none(coordinator: Broker, group: str, topic: Topic, version: int) -> None:
    expect("error code of the commit", 0, commit(coordinator, group, topic, 3))
    found = coordinator.call(OffsetFetchRequest(group_id=group, topics=()), version)
    expect("error code and number of topics", (0, 0), (found.error_code, len(found.topics)))


@clause("OFF-6", "no topics of a group")
@defect(Request(OffsetFetchRequest, "groups.topics", None))
@sweep(OffsetFetchRequest, MANY_GROUPS, 9)
def test_an_empty_list_of_topics_is_none_for_each_group(
    coordinator: Broker, group: str, topic: Topic, version: int
) -> None:
    expect("error code of the commit", 0, commit(coordinator, group, topic, 3))
    requested = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=()),))
    found = only(coordinator.call(requested, version).groups)
    expect("error code and number of topics", (0, 0), (found.error_code, len(found.topics)))


@clause("OFF-6", "two groups")
@defect(Reply(OffsetFetchRequest, "groups", lambda groups: groups[:1]))
def test_two_groups_are_answered_at_once(cluster: Cluster, coordinator: Broker, group: str, topic: Topic) -> None:
    version = coordinator.version_of(OffsetFetchRequest, MANY_GROUPS)
    commit(coordinator, group, topic, 3)
    requested = tuple(
        OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in (group, cluster.name("g"))
    )
    reply = coordinator.call(OffsetFetchRequest(groups=requested), version)
    expect(
        "groups of the reply",
        True,
        [listed_group.group_id for listed_group in reply.groups] == [g.group_id for g in requested],
    )
