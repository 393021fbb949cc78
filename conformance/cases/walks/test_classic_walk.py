"""Walks through the life of a classic group: each reply and each description are compared with a model."""

from typing import Final

import pytest

from highwater.conformance.cases.support.committed_offsets import commit
from highwater.conformance.cases.support.group_walks.drawn import DrawnGroup
from highwater.conformance.cases.support.group_walks.members import (
    AGES,
    INSTANCES_SINCE,
    ClassicWalk,
    WalkMember,
    assign,
    joined,
    rebalance,
    restart,
    same_coordinator,
)
from highwater.conformance.cases.support.group_walks.refusals import FIRST, FOURTH, SECOND, THIRD, check_refusals
from highwater.conformance.clause import clause, era
from highwater.conformance.client.broker import Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, defect, without_error
from highwater.conformance.expectations import expect
from highwater.conformance.models.comparison import compare
from highwater.conformance.models.groups import DEAD, EMPTY, ClassicModel, GroupClient
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

EACH_AGE: Final = (*AGES[:-1], pytest.param(AGES[-1], marks=era("3.9")))
"""2.8.2 ignores an unknown instance id in Heartbeat, and that of a member without one."""


@clause("GRP-69")
@pytest.mark.parametrize("age", EACH_AGE)
@defect(
    Reply(HeartbeatRequest, "error_code", without_error(ErrorCode.ILLEGAL_GENERATION)),
    Reply(DescribeGroupsRequest, "groups.members", lambda members: members[:1]),
    Reply(SyncGroupRequest, "assignment", b""),
)
def test_a_group_of_dynamic_members_follows_the_model(cluster: Cluster, topic: Topic, age: str) -> None:
    walk, stranger = _walk(cluster, topic, age)
    check_refusals(walk, stranger=stranger)
    first, second, third = WalkMember(walk, FIRST), WalkMember(walk, SECOND), WalkMember(walk, THIRD)
    rebalance(walk, [first], "range", new=[first])
    check_refusals(walk, first, stranger=stranger)
    assign(walk, [first], unknown=b"to no member")
    check_refusals(walk, first, stranger=stranger)
    rebalance(walk, [first, second], "sticky", new=[second])
    check_refusals(walk, first, second, stranger=stranger)
    assign(walk, [first, second])
    check_refusals(walk, first, second, stranger=stranger)
    second.send_join()
    reply = second.receive_join()
    compare("JoinGroup of a follower that has not changed", joined(walk.model, second), reply, second.version)
    rebalance(walk, [first, second, third], "sticky", new=[third])
    assign(walk, [first, second, third])
    walk.leave(("unknown", None), (first.member_id, None), (first.member_id, None), ("", None))
    walk.check()
    check_refusals(walk, second, third, stranger=stranger)
    rebalance(walk, [second, third], "sticky")
    assign(walk, [third, second])
    check_refusals(walk, second, third, stranger=stranger)
    walk.leave((second.member_id, None), (first.member_id, None), (third.member_id, None))
    _end(walk, stranger)


@clause("GRP-69", "static members")
@pytest.mark.parametrize("age", EACH_AGE)
@defect(
    Reply(JoinGroupRequest, "leader", "another"),
    Reply(LeaveGroupRequest, "members.error_code", 0),
    Reply(SyncGroupRequest, "assignment", b""),
)
def test_a_group_of_static_members_follows_the_model(cluster: Cluster, topic: Topic, age: str) -> None:
    cluster.connect().version_of(JoinGroupRequest, INSTANCES_SINCE)
    walk, stranger = _walk(cluster, topic, age)
    leader, follower = WalkMember(walk, FIRST, "static"), WalkMember(walk, FOURTH, "other")
    dynamic = WalkMember(walk, FOURTH)
    rebalance(walk, [leader], "range", new=[leader])
    assign(walk, [leader])
    check_refusals(walk, leader, stranger=stranger)
    rebalance(walk, [leader, follower, dynamic], "sticky", new=[follower, dynamic])
    check_refusals(walk, leader, follower, dynamic, stranger=stranger)
    assign(walk, [leader, dynamic, follower])
    for before in (leader, follower):
        again = restart(walk, before)
        clients = [
            GroupClient(before.member_id, walk.model.generation, name) for name in (None, before.instance, "none")
        ]
        walk.check_heartbeats(*clients, again.client)
        walk.check_syncs(clients[0], GroupClient(again.member_id, walk.model.generation))
        walk.leave((before.member_id, before.instance), (before.member_id, None), (again.member_id, "none"))
        leader, follower = (again, follower) if before is leader else (leader, again)
    check_refusals(walk, leader, follower, dynamic, stranger=stranger)
    changed = WalkMember(walk, FIRST, "other")  # which makes the other protocol the preferred one
    rebalance(walk, [leader, dynamic, changed], "range", new=[changed])
    walk.check_heartbeats(follower.client, changed.client, GroupClient(follower.member_id, walk.model.generation))
    assign(walk, [dynamic, leader, changed])
    walk.leave(("", "none"), ("", "other"), (leader.member_id, "other"), ("", "other"), (dynamic.member_id, "static"))
    walk.leave((changed.member_id, None))
    check_refusals(walk, leader, dynamic, stranger=stranger)
    dynamic.offers = FIRST
    rebalance(walk, [leader, dynamic], "range")
    assign(walk, [leader, dynamic])
    walk.leave((leader.member_id, "static"), (dynamic.member_id, None))
    walk.leave((leader.member_id, None))
    _end(walk, stranger)


@clause("GRP-69", "drawn")
@pytest.mark.parametrize("age", EACH_AGE)
@defect(
    Reply(HeartbeatRequest, "error_code", without_error(ErrorCode.ILLEGAL_GENERATION)),
    Reply(JoinGroupRequest, "leader", "another"),
    Reply(SyncGroupRequest, "assignment", b""),
)
def test_members_that_do_anything_in_any_order_follow_the_model(cluster: Cluster, topic: Topic, age: str) -> None:
    walk, stranger = _walk(cluster, topic, age)
    group = DrawnGroup(walk, stranger, 24)
    for _ in walk.cluster.draws.steps(40, group.chance):
        group.step()
    group.end()
    _end(walk, stranger)


def _walk(cluster: Cluster, topic: Topic, age: str) -> tuple[ClassicWalk, GroupClient]:
    """Return the walk of a group that has an offset, and a member of another group of the same coordinator.

    Apache Kafka deletes an empty group without offsets at its next check (offsets.retention.check.interval.ms).
    """
    names = same_coordinator(cluster, 2)
    broker = cluster.coordinator(names[0])
    model, other = ClassicModel(names[0], EMPTY), ClassicModel(names[1], EMPTY)
    for name in names:
        expect("error code of OffsetCommit", 0, commit(broker, name, topic, 1))
    walk, beside = ClassicWalk(cluster, broker, model, age), ClassicWalk(cluster, broker, other, age)
    walk.check()
    stranger = WalkMember(beside, FIRST)
    rebalance(beside, [stranger], "range", new=[stranger])
    assign(beside, [stranger])
    return walk, stranger.client


def _end(walk: ClassicWalk, stranger: GroupClient) -> None:
    """Check the group without members, delete it, and check that it is unknown."""
    walk.check()
    check_refusals(walk, stranger=stranger)
    version = walk.version(DeleteGroupsRequest)
    for error in (0, ErrorCode.GROUP_ID_NOT_FOUND):
        reply = walk.broker.call(DeleteGroupsRequest(groups_names=(walk.model.group,)), version)
        result = DeletableGroupResult(group_id=walk.model.group, error_code=error)
        compare(f"DeleteGroups {version}", DeleteGroupsResponse(results=(result,)), reply, version)
        walk.model.state, walk.model.protocol_type = DEAD, ""
        walk.check()
    walk.check_heartbeats(GroupClient("unknown", 1), GroupClient("", -1))
    walk.check_syncs(GroupClient("unknown", 1))
    walk.leave(("unknown", None), ("", None))
