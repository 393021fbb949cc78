"""The classic group protocol with one and two members, and with invalid requests."""

from dataclasses import replace
from typing import Any

import pytest

from highwater.conformance.cases.support.members import JOIN_TIMEOUT_S, GroupDriver, Member
from highwater.conformance.clause import clause, era, sweep
from highwater.conformance.client.cluster import Cluster, find_coordinator
from highwater.conformance.defects import GuardOff, Reply, Request, Setting, defect, increment, without_error
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Unsupported
from highwater.reference.wire.errors import COORDINATOR_NOT_READY, ErrorCode
from highwater.reference.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest

IDS_REQUIRED_SINCE = 4
MANY_KEYS_SINCE = 4


def name_others_if_several(coordinators: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(replace(each, node_id=each.node_id + len(coordinators) - 1) for each in coordinators)


@clause("GRP-1", "lookup")
@defect(Reply(FindCoordinatorRequest, "port", increment), Reply(FindCoordinatorRequest, "coordinators.port", increment))
@sweep(FindCoordinatorRequest)
def test_every_version_names_the_same_coordinator(cluster: Cluster, driver: GroupDriver, version: int) -> None:
    known = driver.connect().address
    found = find_coordinator(cluster.connect(), driver.group, version)
    expect("error code", 0, found.error_code)
    expect("address", known, f"{found.host}:{found.port}")
    expect("address of that broker", cluster.target.addresses[found.node_id], known)


@clause("GRP-1", "several keys")
@defect(Reply(FindCoordinatorRequest, "coordinators", name_others_if_several))
@sweep(FindCoordinatorRequest, MANY_KEYS_SINCE)
@pytest.mark.parametrize("key_type", [0, 1], ids=["groups", "transactions"])
def test_each_of_several_keys_gets_its_own_coordinator(cluster: Cluster, version: int, key_type: int) -> None:
    broker, keys = cluster.connect(), tuple(cluster.name("key") for _ in range(6))
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)

    def found_together() -> dict[str, int] | None:
        found = {each.key: each for each in broker.call(request, version).coordinators}
        if any(each.error_code in COORDINATOR_NOT_READY for each in found.values()):
            return None
        return {key: each.node_id for key, each in found.items()}

    together = cluster.eventually("coordinators of all keys", found_together, JOIN_TIMEOUT_S)
    one_key = (replace(request, coordinator_keys=(key,)) for key in keys)
    alone = {
        key: only(broker.call(each, version).coordinators).node_id for key, each in zip(keys, one_key, strict=True)
    }
    expect("coordinators, asked together and one by one", str(alone), str(together))


@clause("GRP-2")
@defect(GuardOff("RequireMemberId"), Reply(JoinGroupRequest, "member_id", ""))
@sweep(JoinGroupRequest, 4)
def test_a_new_member_must_come_back_with_its_id(driver: GroupDriver, version: int) -> None:
    for _ in range(2):  # an empty group may be deleted between both requests, and its ids with it
        first = driver.connect().call(driver.join_request(), version)
        expect("error code", ErrorCode.MEMBER_ID_REQUIRED, first.error_code)
        expect("there is a member id", True, bool(first.member_id))
        again = driver.connect().call(driver.join_request(first.member_id), version)
        if again.error_code != ErrorCode.UNKNOWN_MEMBER_ID:
            break
    expect("error code and member id", (0, first.member_id), (again.error_code, again.member_id))


@clause("GRP-3")
@defect(Reply(JoinGroupRequest, "error_code", 0))
@pytest.mark.parametrize("edge", ["below", "above"])
def test_a_session_timeout_out_of_bounds_is_refused(cluster: Cluster, driver: GroupDriver, edge: str) -> None:
    low = cluster.setting("group_min_session_timeout_ms") - 1
    high = cluster.setting("group_max_session_timeout_ms") + 1
    request = driver.join_request(session_timeout_ms=low if edge == "below" else high)
    expect("error code", ErrorCode.INVALID_SESSION_TIMEOUT, driver.connect().call(request).error_code)


@clause("GRP-3")
@pytest.mark.parametrize(
    "limit",
    [
        pytest.param("group_min_session_timeout_ms", id="shortest"),
        pytest.param("group_max_session_timeout_ms", id="longest"),
    ],
)
@defect(Reply(JoinGroupRequest, "error_code", ErrorCode.INVALID_SESSION_TIMEOUT))
def test_a_session_timeout_at_a_limit_is_accepted(cluster: Cluster, driver: GroupDriver, limit: str) -> None:
    request = driver.join_request(session_timeout_ms=cluster.setting(limit))
    error = driver.connect().call(request).error_code
    expect("error code of the first JoinGroup", {0, ErrorCode.MEMBER_ID_REQUIRED}, error)


@clause("GRP-4")
@defect(Reply(JoinGroupRequest, "error_code", 0))
def test_an_empty_group_id_is_refused(cluster: Cluster, driver: GroupDriver) -> None:
    request = GroupDriver(cluster, "").join_request()
    expect("error code", ErrorCode.INVALID_GROUP_ID, driver.connect().call(request).error_code)


@clause("GRP-5")
@defect(
    *(
        Reply(request, "error_code", without_error(ErrorCode.UNKNOWN_MEMBER_ID))
        for request in (HeartbeatRequest, SyncGroupRequest, JoinGroupRequest)
    ),
    Reply(LeaveGroupRequest, "members.error_code", 0),
)
@pytest.mark.parametrize("kind", ["heartbeat", "sync", "join", "leave"])
def test_an_unknown_member_is_told_so(driver: GroupDriver, kind: str) -> None:
    driver.stable_member()
    stranger = Member(driver, driver.connect(), "unknown", generation=1)
    expect("error code", ErrorCode.UNKNOWN_MEMBER_ID, getattr(stranger, f"{kind}_error")())


@clause("GRP-6")
@defect(GuardOff("OneProtocolForAll"))
def test_a_member_without_a_common_protocol_is_refused(driver: GroupDriver) -> None:
    driver.stable_member()
    _, reply = driver.join(protocols=("other",))
    expect("error code", ErrorCode.INCONSISTENT_GROUP_PROTOCOL, reply.error_code)


@clause("GRP-7")
@defect(
    Reply(JoinGroupRequest, "members", ()),
    Reply(JoinGroupRequest, "members", (JoinGroupResponseMember(member_id="m"),)),
    Reply(JoinGroupRequest, "leader", lambda leader: leader + "x"),
)
def test_only_the_leader_sees_the_members(driver: GroupDriver) -> None:
    first, second = driver.joined_pair()
    leader, follower = (first, second) if first.is_leader else (second, first)
    observed = {member.member_id for member in leader.reply.members}
    expect("the reply to the leader lists both members", True, observed == {first.member_id, second.member_id})
    expect("members in the reply to the follower", 0, len(follower.reply.members))
    expect("leader in both replies", first.reply.leader, second.reply.leader)


@clause("GRP-8")
@defect(Reply(JoinGroupRequest, "protocol_name", "a"))
def test_the_protocol_is_one_that_all_support(driver: GroupDriver) -> None:
    first, second = driver.joined_pair(("a", "common"), ("common", "b"))
    expect("protocols", ("common", "common"), (first.reply.protocol_name, second.reply.protocol_name))


@clause("GRP-9")
@defect(
    Reply(SyncGroupRequest, "assignment", lambda data: data[::-1]),
    Request(SyncGroupRequest, "assignments.assignment", b""),
)
def test_a_followers_sync_waits_and_brings_the_leaders_bytes(driver: GroupDriver) -> None:
    first, second = driver.joined_pair()
    leader, follower = (first, second) if first.is_leader else (second, first)
    follower.send_sync()
    follower.broker.expect_silence(0.2)
    assignments = {leader.member_id: b"\x00for the leader", follower.member_id: b"\xfffor the follower"}
    expect("assignment of the leader", assignments[leader.member_id], leader.sync(assignments).assignment)
    expect("assignment of the follower", assignments[follower.member_id], follower.receive().assignment)


@clause("GRP-10")
@defect(Reply(JoinGroupRequest, "generation_id", 1))
def test_each_rebalance_counts_one_up(driver: GroupDriver) -> None:
    member = driver.stable_member()
    for _ in range(2):
        before = member.generation
        member.rejoin()
        expect("generation", before + 1, member.generation)
        member.sync({member.member_id: b""})


@clause("GRP-11")
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("heartbeat", marks=pytest.mark.defect(GuardOff("FenceStaleHeartbeat"))),
        pytest.param("sync", marks=pytest.mark.defect(GuardOff("FenceStaleSync"))),
    ],
)
def test_another_generation_is_refused(driver: GroupDriver, kind: str) -> None:
    member = driver.stable_member()
    for generation in (member.generation - 1, member.generation + 1):
        stale = Member(driver, member.broker, member.member_id, generation)
        expect("error code", ErrorCode.ILLEGAL_GENERATION, getattr(stale, f"{kind}_error")())
    expect("error code in the current generation", 0, member.heartbeat_error())


@clause("GRP-12", "preparing")
@defect(Reply(HeartbeatRequest, "error_code", 0))
def test_a_heartbeat_tells_of_a_rebalance(cluster: Cluster, driver: GroupDriver) -> None:
    member = driver.stable_member()
    driver.send_join()
    cluster.eventually("REBALANCE_IN_PROGRESS", lambda: member.heartbeat_error() == ErrorCode.REBALANCE_IN_PROGRESS)


@clause("GRP-12", "completing")
@era("2.8")
@defect(Reply(HeartbeatRequest, "error_code", ErrorCode.REBALANCE_IN_PROGRESS))
def test_a_heartbeat_before_the_assignment_is_fine(driver: GroupDriver) -> None:
    member, reply = driver.join()
    expect("error code of the join", 0, reply.error_code)
    expect("error code", 0, member.heartbeat_error())


@clause("GRP-14")
@defect(Request(JoinGroupRequest, "session_timeout_ms", 60_000))
def test_a_silent_member_is_out_after_its_session(cluster: Cluster, driver: GroupDriver) -> None:
    session_ms = max(500, cluster.setting("group_min_session_timeout_ms"))
    member = driver.stable_member(session_timeout_ms=session_ms)
    cluster.eventually("an empty group", lambda: driver.state() in ("Empty", "Dead"), 10 + session_ms / 1000)
    expect("error code", ErrorCode.UNKNOWN_MEMBER_ID, member.heartbeat_error())


@clause("GRP-15", "one")
@defect(Reply(HeartbeatRequest, "error_code", 0))
def test_a_member_that_left_is_unknown(driver: GroupDriver) -> None:
    member = driver.stable_member()
    expect("error code of leaving", 0, member.leave_error())
    expect("error code", ErrorCode.UNKNOWN_MEMBER_ID, member.heartbeat_error())


@clause("GRP-15", "before the join")
@defect(Reply(LeaveGroupRequest, "members.error_code", ErrorCode.UNKNOWN_MEMBER_ID))
def test_a_member_that_has_only_an_id_may_leave(driver: GroupDriver) -> None:
    driver.stable_member()
    broker = driver.connect()
    broker.version_of(JoinGroupRequest, IDS_REQUIRED_SINCE)
    pending = Member(driver, broker, driver.new_id(broker))
    expect("error code of leaving", 0, pending.leave_error())
    expect("error code of a join with its id", ErrorCode.UNKNOWN_MEMBER_ID, pending.join_error())


@clause("GRP-16", "rejoin")
@defect(Reply(JoinGroupRequest, "member_id", "m"), Reply(JoinGroupRequest, "generation_id", increment))
def test_a_static_member_comes_back_without_a_rebalance(driver: GroupDriver) -> None:
    member = driver.stable_member(instance="i")
    back, reply = driver.join(instance="i")
    expect("error code and generation", (0, member.generation), (reply.error_code, reply.generation_id))
    expect("the member id is a new one", True, back.member_id != member.member_id)


@clause("GRP-16", "fenced")
@defect(GuardOff("FenceInstance"), Reply(HeartbeatRequest, "error_code", ErrorCode.UNKNOWN_MEMBER_ID))
def test_the_old_id_of_a_static_member_is_fenced(driver: GroupDriver) -> None:
    member = driver.stable_member(instance="i")
    driver.join(instance="i")
    expect("error code", ErrorCode.FENCED_INSTANCE_ID, member.heartbeat_error())


LARGEST_GROUP = 50  # that a case fills


@clause("GRP-17")
@defect(Setting("group_max_size", 1000))
def test_a_full_group_takes_nobody(cluster: Cluster, driver: GroupDriver) -> None:
    size = cluster.setting("group_max_size")
    if size > LARGEST_GROUP:
        raise Unsupported(f"a group of {size} members takes too long to fill")
    first = driver.stable_member(instance=cluster.name("i"))
    others = [driver.send_join(instance=cluster.name("i")) for _ in range(size - 1)]
    cluster.eventually(f"{size} members", lambda: len(driver.describe().members) == size)
    first.rejoin()
    for member in others:
        expect("error code of the join", 0, member.receive_join().error_code)
    late = driver.connect().call(driver.join_request(instance="late"))
    expect("error code", ErrorCode.GROUP_MAX_SIZE_REACHED, late.error_code)


@clause("GRP-18")
@defect(Reply(SyncGroupRequest, "error_code", 0))
@pytest.mark.parametrize("field", ["protocol_type", "protocol_name"])
def test_a_sync_for_another_protocol_is_refused(driver: GroupDriver, field: str) -> None:
    member, _ = driver.join()
    reply = member.sync({member.member_id: b""}, **{field: "another"})
    expect("error code", ErrorCode.INCONSISTENT_GROUP_PROTOCOL, reply.error_code)


@clause("GRP-20", "describe")
@defect(Reply(DescribeGroupsRequest, "groups.group_state", "Empty"), Reply(DescribeGroupsRequest, "groups.members", ()))
@sweep(DescribeGroupsRequest)
def test_a_group_is_described(driver: GroupDriver, version: int) -> None:
    member = driver.stable_member()
    found = only(member.broker.call(DescribeGroupsRequest(groups=(driver.group,)), version).groups)
    expect("state and protocol", ("Stable", "range"), (found.group_state, found.protocol_data))
    expect("member", member.member_id, only(found.members).member_id)


@clause("GRP-20", "unknown")
@defect(
    Reply(DescribeGroupsRequest, "groups.group_state", "Empty"),
    Reply(DescribeGroupsRequest, "groups.error_code", increment),
)
@sweep(DescribeGroupsRequest)
def test_an_unknown_group_is_dead(driver: GroupDriver, version: int) -> None:
    found = only(driver.connect().call(DescribeGroupsRequest(groups=(driver.group,)), version).groups)
    expect(
        "state and error",
        ("Dead", ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0),
        (found.group_state, found.error_code),
    )


@clause("GRP-20", "list")
@defect(Reply(ListGroupsRequest, "groups", ()), Reply(ListGroupsRequest, "groups.protocol_type", ""))
@sweep(ListGroupsRequest)
def test_a_group_is_listed(driver: GroupDriver, version: int) -> None:
    member = driver.stable_member()
    found = {group.group_id: group for group in member.broker.call(ListGroupsRequest(), version).groups}
    expect("the group is listed", True, driver.group in found)
    expect("protocol type", "consumer", found[driver.group].protocol_type)


@clause("GRP-20", "delete")
@defect(
    Reply(DeleteGroupsRequest, "results.error_code", without_error(ErrorCode.NON_EMPTY_GROUP)),
    Reply(DeleteGroupsRequest, "results.error_code", without_error(ErrorCode.GROUP_ID_NOT_FOUND)),
)
def test_only_an_empty_group_is_deleted(driver: GroupDriver) -> None:
    member = driver.stable_member()
    delete = DeleteGroupsRequest(groups_names=(driver.group,))
    expect(
        "error code while it has a member",
        ErrorCode.NON_EMPTY_GROUP,
        only(member.broker.call(delete).results).error_code,
    )
    member.leave_error()
    expect("error code when empty", 0, only(member.broker.call(delete).results).error_code)
    expect(
        "error code after the deletion",
        ErrorCode.GROUP_ID_NOT_FOUND,
        only(member.broker.call(delete).results).error_code,
    )
