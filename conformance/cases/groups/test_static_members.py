"""Static members (KIP-345): an instance id stays while member ids are replaced."""

from typing import Any

import pytest

from highwater.conformance.cases.support.committed_offsets import commit
from highwater.conformance.cases.support.members import GroupDriver, Member
from highwater.conformance.clause import clause, era, sweep
from highwater.conformance.client.broker import Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import GuardOff, Reply, Request, defect, increment, without_error
from highwater.conformance.expectations import expect, only
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import OffsetCommitRequest
from highwater.reference.wire.messages.groups import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)

STATIC_SINCE = 5
SHORT_MS = 1_000
SKIPS_ASSIGNMENT_SINCE = 9


@pytest.fixture
def driver(cluster: Cluster) -> GroupDriver:
    driver = GroupDriver(cluster, cluster.group())
    driver.connect().version_of(JoinGroupRequest, STATIC_SINCE)
    return driver


def static_pair(driver: GroupDriver, **fields: Any) -> tuple[Member, Member]:
    """Create leader `i1` and follower `i2` of a stable group."""
    leader = driver.stable_member(instance="i1", **fields)
    follower = driver.send_join(instance="i2", **fields)
    leader.await_rebalance()
    leader.rejoin()
    expect("error code of the second join", 0, follower.receive_join().error_code)
    leader.sync({leader.member_id: b"leader", follower.member_id: b"follower"})
    expect("assignment of the follower", b"follower", follower.sync().assignment)
    return leader, follower


@clause("GRP-43", "first join")
@sweep(JoinGroupRequest, STATIC_SINCE)
@defect(Reply(JoinGroupRequest, "error_code", 79))
def test_a_static_member_is_taken_at_once(driver: GroupDriver, version: int) -> None:
    reply = driver.connect().call(driver.join_request(instance="i"), version)
    expect("error code", 0, reply.error_code)
    expect("instance id in the reply to the leader", "i", only(reply.members).group_instance_id)


@clause("GRP-43", "described")
@sweep(DescribeGroupsRequest, 4)
@defect(Reply(DescribeGroupsRequest, "groups.members.group_instance_id", None))
def test_the_instance_id_is_described(driver: GroupDriver, version: int) -> None:
    member = driver.stable_member(instance="i")
    found = only(member.broker.call(DescribeGroupsRequest(groups=(driver.group,)), version).groups)
    expect("instance id", "i", only(found.members).group_instance_id)


@clause("GRP-16", "another protocol")
@defect(Reply(JoinGroupRequest, "protocol_name", "first"))
def test_a_static_member_that_prefers_another_protocol_starts_a_rebalance(driver: GroupDriver) -> None:
    member = driver.stable_member(instance="i", protocols=("first", "second"))
    _, reply = driver.join(instance="i", protocols=("second", "first"))
    found = (reply.error_code, reply.generation_id, reply.protocol_name)
    expect("error code, generation and protocol", (0, member.generation + 1, "second"), found)


@clause("GRP-16", "assignment")
@defect(Reply(SyncGroupRequest, "assignment", b""))
def test_a_static_follower_that_comes_back_has_its_assignment(driver: GroupDriver) -> None:
    leader, follower = static_pair(driver)
    back, reply = driver.join(instance="i2")
    expect("error code and generation", (0, leader.generation), (reply.error_code, reply.generation_id))
    expect("the member id is a new one", True, back.member_id != follower.member_id)
    expect("assignment", b"follower", back.sync().assignment)
    expect("error code of the leader's heartbeat", 0, leader.heartbeat_error())


@clause("GRP-16", "leader")
@defect(Reply(JoinGroupRequest, "skip_assignment", False), Reply(JoinGroupRequest, "members", ()))
def test_a_static_leader_that_comes_back_is_spared_the_assignment(driver: GroupDriver) -> None:
    leader, follower = static_pair(driver)
    leader.broker.version_of(JoinGroupRequest, SKIPS_ASSIGNMENT_SINCE)
    back, reply = driver.join(instance="i1")
    expect("error code and generation", (0, leader.generation), (reply.error_code, reply.generation_id))
    expect("skip_assignment is set", True, reply.skip_assignment)
    expect("members in the reply", 2, len(reply.members))
    expect("previous assignment", b"leader", back.sync().assignment)
    expect("error code of the follower's heartbeat", 0, follower.heartbeat_error())


@clause("GRP-67")
@pytest.mark.slow
@defect(Reply(JoinGroupRequest, "leader", "unknown"), Reply(JoinGroupRequest, "members", ()))
def test_a_static_leader_that_does_not_join_leads_no_longer(driver: GroupDriver) -> None:
    leader, follower = static_pair(driver, rebalance_timeout_ms=SHORT_MS)
    follower.rejoin(metadata=b"other")
    expect("leader", follower.member_id, follower.reply.leader)
    members = {member.member_id for member in follower.reply.members}
    expect("both are members", True, members == {leader.member_id, follower.member_id})


@clause("GRP-16", "rebalance")
@defect(GuardOff("NewMemberIdOnStaticRejoin"), Reply(HeartbeatRequest, "error_code", ErrorCode.UNKNOWN_MEMBER_ID))
def test_a_static_member_that_comes_back_in_a_rebalance_has_a_new_id(driver: GroupDriver) -> None:
    """Another process may still use the old member id, so it must be fenced."""
    member = driver.stable_member(instance="i1")
    other = driver.send_join(instance="i2")
    member.await_rebalance()
    back = driver.send_join(instance="i1")
    expect("error codes of the joins", (0, 0), (back.receive_join().error_code, other.receive_join().error_code))
    expect("the member id is a new one", True, back.member_id != member.member_id)
    expect("error code of a heartbeat with the old member id", ErrorCode.FENCED_INSTANCE_ID, member.heartbeat_error())


@clause("GRP-44", "sync")
@defect(Reply(SyncGroupRequest, "error_code", without_error(ErrorCode.FENCED_INSTANCE_ID)))
def test_the_replaced_member_may_not_sync(driver: GroupDriver) -> None:
    member = driver.stable_member(instance="i")
    driver.join(instance="i")
    expect("error code", ErrorCode.FENCED_INSTANCE_ID, member.sync_error())


@clause("GRP-44", "join")
@defect(Reply(JoinGroupRequest, "error_code", without_error(ErrorCode.FENCED_INSTANCE_ID)))
def test_the_replaced_member_may_not_join(driver: GroupDriver) -> None:
    member = driver.stable_member(instance="i")
    driver.join(instance="i")
    request = driver.join_request(member.member_id, instance="i")
    expect("error code", ErrorCode.FENCED_INSTANCE_ID, member.broker.call(request).error_code)


@clause("GRP-44", "commit")
@defect(Reply(OffsetCommitRequest, "topics.partitions.error_code", without_error(ErrorCode.FENCED_INSTANCE_ID)))
def test_the_replaced_member_may_not_commit(driver: GroupDriver, topic: Topic) -> None:
    member = driver.stable_member(instance="i")
    back, _ = driver.join(instance="i")
    fields = {"generation": member.generation, "instance": "i"}
    stale = commit(member.broker, driver.group, topic, 1, member_id=member.member_id, **fields)  # type: ignore[arg-type]
    expect("error code", ErrorCode.FENCED_INSTANCE_ID, stale)
    new = commit(back.broker, driver.group, topic, 1, member_id=back.member_id, **fields)  # type: ignore[arg-type]
    expect("error code with the new member id", 0, new)


@clause("GRP-44", "leave")
@defect(Reply(LeaveGroupRequest, "members.error_code", without_error(ErrorCode.FENCED_INSTANCE_ID)))
def test_the_replaced_member_may_not_leave_for_the_other(driver: GroupDriver) -> None:
    member = driver.stable_member(instance="i")
    back, _ = driver.join(instance="i")
    expect("error code of leaving", ErrorCode.FENCED_INSTANCE_ID, member.leave_error())
    expect("error code of a heartbeat with the new member id", 0, back.heartbeat_error())


@clause("GRP-44", "waiting join")
@defect(Reply(JoinGroupRequest, "error_code", without_error(ErrorCode.FENCED_INSTANCE_ID)))
def test_a_join_that_waits_is_fenced_by_the_next(driver: GroupDriver) -> None:
    other = driver.stable_member(instance="i1")
    waiting = driver.send_join(instance="i2")
    other.await_rebalance()
    again = driver.send_join(instance="i2")
    expect("error code of the pending JoinGroup", ErrorCode.FENCED_INSTANCE_ID, waiting.receive_join().error_code)
    other.rejoin()
    expect("error code of the second JoinGroup", 0, again.receive_join().error_code)


@clause("GRP-44", "waiting sync")
@defect(Reply(SyncGroupRequest, "error_code", without_error(ErrorCode.FENCED_INSTANCE_ID)))
def test_a_sync_that_waits_is_fenced_by_the_next_join(driver: GroupDriver) -> None:
    other = driver.stable_member(instance="i1")
    waiting = driver.send_join(instance="i2")
    other.await_rebalance()
    other.rejoin()
    expect("error code of the join", 0, waiting.receive_join().error_code)
    waiting.send_sync()
    again = driver.send_join(instance="i2")
    expect("error code of the pending SyncGroup", ErrorCode.FENCED_INSTANCE_ID, waiting.receive().error_code)
    other.await_rebalance()
    other.rejoin()
    expect("error code of the second JoinGroup", 0, again.receive_join().error_code)


@clause("GRP-45", "heartbeat")
@era("3.9")
@defect(Request(HeartbeatRequest, "group_instance_id", None))
def test_an_instance_that_never_joined_is_unknown(driver: GroupDriver) -> None:
    expect("error code", ErrorCode.UNKNOWN_MEMBER_ID, _member_with_wrong_instance(driver).heartbeat_error())


@clause("GRP-45", "sync")
@era("3.9")
@defect(Request(SyncGroupRequest, "group_instance_id", None))
def test_an_instance_that_never_joined_gets_no_assignment(driver: GroupDriver) -> None:
    expect("error code", ErrorCode.UNKNOWN_MEMBER_ID, _member_with_wrong_instance(driver).sync_error())


def _member_with_wrong_instance(driver: GroupDriver) -> Member:
    """Return a member with a wrong instance id and otherwise valid fields."""
    member = driver.stable_member(instance="i")
    return Member(driver, member.broker, member.member_id, member.generation, instance="unknown")


@clause("GRP-46")
@sweep(LeaveGroupRequest, 3)
@defect(Reply(LeaveGroupRequest, "members.error_code", increment))
def test_an_instance_is_removed_without_its_member_id(driver: GroupDriver, version: int) -> None:
    member = driver.stable_member(instance="i")
    requested = (MemberIdentity(member_id="", group_instance_id="i"), MemberIdentity(group_instance_id="unknown"))
    reply = member.broker.call(LeaveGroupRequest(group_id=driver.group, members=requested), version)
    found = {listed_member.group_instance_id: listed_member.error_code for listed_member in reply.members}
    expect("error codes", True, found == {"i": 0, "unknown": ErrorCode.UNKNOWN_MEMBER_ID})
    expect("remaining members", 0, len(driver.describe().members))
