"""Rebalances of classic groups with two and three members."""

from typing import Any

import pytest

from highwater.conformance.cases.support.members import GroupDriver, Member
from highwater.conformance.clause import clause, era, sweep
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import GuardOff, Reply, Request, Silence, decrement, defect, increment, without_error
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Unsupported
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.consumer_groups import (
    ConsumerProtocolSubscription,
    TopicPartition,
    encode_subscription,
)
from highwater.reference.wire.messages.groups import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)

SHORT_MS, LONG_MS = 1_000, 60_000
HEARTBEAT_ERROR = Reply(HeartbeatRequest, "error_code", without_error(ErrorCode.REBALANCE_IN_PROGRESS))
SYNC_ERROR = Reply(SyncGroupRequest, "error_code", without_error(ErrorCode.REBALANCE_IN_PROGRESS))


# -- members of a generation ---------------------------------------------------------------------------


@clause("GRP-13", "evicted")
@pytest.mark.slow
@defect(
    GuardOff("AwaitAllMembers"),
    Request(JoinGroupRequest, "rebalance_timeout_ms", LONG_MS),
    Reply(DescribeGroupsRequest, "groups.members", ()),
)
def test_who_does_not_join_in_time_is_left_behind(driver: GroupDriver) -> None:
    late = driver.stable_member(rebalance_timeout_ms=SHORT_MS)
    new = driver.send_join(rebalance_timeout_ms=SHORT_MS)
    late.await_rebalance()
    expect("error code of the join", 0, new.receive_join().error_code)
    expect("only member in the reply to the leader", new.member_id, only(new.reply.members).member_id)
    expect("error code of the late member", ErrorCode.UNKNOWN_MEMBER_ID, late.heartbeat_error())
    expect("member of the group", new.member_id, only(driver.describe().members).member_id)


@clause("GRP-13", "first members")
@pytest.mark.slow
@pytest.mark.settings(group_initial_rebalance_delay_ms=1_000)
@defect(Reply(JoinGroupRequest, "members", lambda members: members[:1]))
def test_a_first_generation_waits_for_members_at_most_as_long_as_a_rebalance(driver: GroupDriver) -> None:
    """Each new member extends the wait by group.initial.rebalance.delay.ms (KIP-134); the third one is the last."""
    clock, delay_s = driver.cluster.clock, driver.cluster.setting("group_initial_rebalance_delay_ms") / 1000
    if not 0.5 <= delay_s <= 5:
        raise Unsupported("the target's group.initial.rebalance.delay.ms is not between half a second and five")
    began_s, limit_s = clock.monotonic(), 2 * delay_s
    members = [driver.send_join(rebalance_timeout_ms=int(limit_s * 1000))]
    for _ in range(2):
        clock.sleep(0.9 * delay_s)
        members.append(driver.send_join(rebalance_timeout_ms=int(limit_s * 1000)))
    replies = [member.receive_join() for member in members]
    took_s = clock.monotonic() - began_s
    expect("members of the first generation", 3, max(len(reply.members) for reply in replies))
    expect(f"the generation is complete after {took_s:.1f} s", True, 1.8 * delay_s <= took_s <= limit_s + delay_s / 2)


@clause("GRP-13", "waits")
@defect(Reply(JoinGroupRequest, "members", lambda members: members[:1]))
def test_a_join_waits_for_those_who_were_there(driver: GroupDriver) -> None:
    leader, follower = driver.stable_pair()
    new = driver.send_join()
    leader.await_rebalance()
    leader.send_rejoin()
    new.broker.expect_silence(0.2)
    follower.rejoin()
    expect("error codes", (0, 0), (leader.receive_join().error_code, new.receive_join().error_code))
    generations = {leader.generation, follower.generation, new.generation}
    expect("number of generations among three members", 1, len(generations))
    observed = {listed_member.member_id for member in (leader, follower, new) for listed_member in member.reply.members}
    expect(
        "the reply to the leader lists all three members",
        True,
        observed == {leader.member_id, follower.member_id, new.member_id},
    )


@clause("GRP-26")
@pytest.mark.slow
@defect(
    GuardOff("ExpireUnsyncedMembers"),
    Request(JoinGroupRequest, "rebalance_timeout_ms", LONG_MS),
    Reply(DescribeGroupsRequest, "groups.members", ()),
)
def test_who_never_syncs_is_removed(driver: GroupDriver) -> None:
    first, second = driver.joined_pair(rebalance_timeout_ms=SHORT_MS, session_timeout_ms=driver.session_ms(30_000))
    leader, follower = (first, second) if first.is_leader else (second, first)
    follower.send_sync()
    expect("error code of the pending SyncGroup", ErrorCode.REBALANCE_IN_PROGRESS, follower.receive().error_code)
    expect("error code of the leader", ErrorCode.UNKNOWN_MEMBER_ID, leader.heartbeat_error())
    follower.rejoin()
    expect("member of the group", follower.member_id, only(driver.describe().members).member_id)


@clause("GRP-26", "after the leader")
@pytest.mark.slow
@defect(
    GuardOff("ExpireUnsyncedMembers"),
    Request(JoinGroupRequest, "rebalance_timeout_ms", LONG_MS),
    Reply(DescribeGroupsRequest, "groups.members", ()),
)
def test_who_never_syncs_is_removed_from_a_stable_group(driver: GroupDriver) -> None:
    """Heartbeats keep its session; it has an assignment, and does not know of it."""
    first, second = driver.joined_pair(rebalance_timeout_ms=SHORT_MS, session_timeout_ms=driver.session_ms(30_000))
    leader, follower = (first, second) if first.is_leader else (second, first)
    expect("error code of the leader's SyncGroup", 0, leader.sync().error_code)
    expect("error code of the other member", 0, follower.heartbeat_error())
    leader.await_rebalance()
    expect("error code of the other member", ErrorCode.UNKNOWN_MEMBER_ID, follower.heartbeat_error())
    leader.rejoin()
    expect("member of the group", leader.member_id, only(driver.describe().members).member_id)


@clause("GRP-26", "static")
@pytest.mark.slow
@pytest.mark.parametrize("late", ["leader", "follower"])
@defect(Request(JoinGroupRequest, "rebalance_timeout_ms", LONG_MS), Reply(DescribeGroupsRequest, "groups.members", ()))
def test_a_static_member_that_never_syncs_is_removed(driver: GroupDriver, late: str) -> None:
    """A static member that does not join in time stays in the group (GRP-13), one that does not sync does not."""
    times: dict[str, Any] = {"rebalance_timeout_ms": SHORT_MS, "session_timeout_ms": driver.session_ms(30_000)}
    first = driver.stable_member(instance="i", **times)
    second = driver.send_join(instance="j", **times)
    first.await_rebalance()
    first.rejoin()
    expect("error code of the second join", 0, second.receive_join().error_code)
    leader, follower = (first, second) if first.is_leader else (second, first)
    kept, silent = (follower, leader) if late == "leader" else (leader, follower)
    expected = ErrorCode.REBALANCE_IN_PROGRESS if late == "leader" else 0
    expect("error code of the SyncGroup of the other member", expected, kept.sync_error())
    kept.await_rebalance()
    expect("error code of the removed member", ErrorCode.UNKNOWN_MEMBER_ID, silent.heartbeat_error())
    kept.rejoin(rebalance_timeout_ms=LONG_MS)
    expect("only member in the reply to the leader", kept.member_id, only(kept.reply.members).member_id)
    expect("member of the group", kept.member_id, only(driver.describe().members).member_id)


@clause("GRP-33", "preparing")
@defect(
    Reply(LeaveGroupRequest, "members.error_code", ErrorCode.UNKNOWN_MEMBER_ID),
    Request(LeaveGroupRequest, "members", ()),
)
def test_a_rebalance_does_not_wait_for_one_who_leaves(driver: GroupDriver) -> None:
    leader, follower = driver.stable_pair()
    new = driver.send_join()
    leader.await_rebalance()
    leader.send_rejoin()
    expect("error code of leaving", 0, follower.leave_error())
    expect("error codes", (0, 0), (leader.receive_join().error_code, new.receive_join().error_code))
    observed = {listed_member.member_id for member in (leader, new) for listed_member in member.reply.members}
    expect(
        "the reply to the leader lists the two remaining members", True, observed == {leader.member_id, new.member_id}
    )


def removed(driver: GroupDriver, member: Member) -> int:
    """Remove a member through a connection of its own, as an administrator does; return the error code."""
    broker = driver.connect()
    request = LeaveGroupRequest(group_id=driver.group, members=(MemberIdentity(member_id=member.member_id),))
    return int(only(broker.call(request, broker.version_of(LeaveGroupRequest, 3)).members).error_code)


@clause("GRP-33", "waiting join")
@defect(Reply(JoinGroupRequest, "error_code", without_error(ErrorCode.UNKNOWN_MEMBER_ID)))
def test_the_join_of_one_who_is_removed_waits_no_longer(driver: GroupDriver) -> None:
    leader, follower = driver.stable_pair()
    new = driver.send_join()
    leader.await_rebalance()
    follower.send_rejoin()
    expect("error code of leaving", 0, removed(driver, follower))
    expect("error code of the pending JoinGroup", ErrorCode.UNKNOWN_MEMBER_ID, follower.receive_join().error_code)
    leader.send_rejoin()
    expect("error codes", (0, 0), (leader.receive_join().error_code, new.receive_join().error_code))


@clause("GRP-33", "completing")
@defect(SYNC_ERROR)
def test_one_who_leaves_before_the_assignment_begins_another_rebalance(driver: GroupDriver) -> None:
    first, second = driver.joined_pair()
    leader, follower = (first, second) if first.is_leader else (second, first)
    follower.send_sync()
    expect("error code of leaving", 0, leader.leave_error())
    expect("error code of the pending SyncGroup", ErrorCode.REBALANCE_IN_PROGRESS, follower.receive().error_code)
    before = follower.generation
    follower.rejoin()
    expect("generation and leader", (before + 1, True), (follower.generation, follower.is_leader))


@clause("GRP-33", "stable")
@defect(HEARTBEAT_ERROR)
def test_one_who_leaves_a_stable_group_begins_a_rebalance(driver: GroupDriver) -> None:
    leader, follower = driver.stable_pair()
    expect("error code of leaving", 0, leader.leave_error())
    follower.await_rebalance()
    follower.rejoin()
    expect("only member in the reply to the new leader", follower.member_id, only(follower.reply.members).member_id)


@clause("GRP-33", "beside an unknown")
@defect(HEARTBEAT_ERROR, Reply(LeaveGroupRequest, "members.error_code", 0))
def test_a_member_that_leaves_beside_an_unknown_one_begins_a_rebalance(driver: GroupDriver) -> None:
    leader, follower = driver.stable_pair()
    named = ("unknown", follower.member_id)
    requested = tuple(MemberIdentity(member_id=member_id) for member_id in named)
    version = leader.broker.version_of(LeaveGroupRequest, 3)
    reply = leader.broker.call(LeaveGroupRequest(group_id=driver.group, members=requested), version)
    found = {member.member_id: member.error_code for member in reply.members}
    expect("error codes", True, found == {"unknown": ErrorCode.UNKNOWN_MEMBER_ID, follower.member_id: 0})
    leader.await_rebalance()
    leader.rejoin()
    expect("only member in the reply to the leader", leader.member_id, only(leader.reply.members).member_id)


@clause("GRP-34")
@defect(SYNC_ERROR)
def test_one_who_joins_before_the_assignment_begins_another_rebalance(driver: GroupDriver) -> None:
    first, second = driver.joined_pair()
    leader, follower = (first, second) if first.is_leader else (second, first)
    follower.send_sync()
    new = driver.send_join()
    expect("error code of the pending SyncGroup", ErrorCode.REBALANCE_IN_PROGRESS, follower.receive().error_code)
    follower.send_rejoin()
    leader.rejoin()
    expect("error codes", (0, 0), (follower.receive_join().error_code, new.receive_join().error_code))
    expect("generations", True, leader.generation == follower.generation == new.generation)


# -- triggers of a rebalance ---------------------------------------------------------------------------


@clause("GRP-35", "follower")
@defect(Reply(JoinGroupRequest, "generation_id", decrement), Reply(JoinGroupRequest, "leader", "unknown"))
def test_a_follower_that_joins_again_unchanged_disturbs_nobody(driver: GroupDriver) -> None:
    leader, follower = driver.stable_pair()
    follower.rejoin()
    expect("generation and leader", (leader.generation, leader.member_id), (follower.generation, follower.reply.leader))
    expect("error code of the leader's heartbeat", 0, leader.heartbeat_error())
    expect("assignment", b"follower", follower.sync().assignment)


@clause("GRP-35", "metadata")
@defect(HEARTBEAT_ERROR)
def test_a_follower_that_joins_again_with_other_metadata_begins_a_rebalance(driver: GroupDriver) -> None:
    leader, follower = driver.stable_pair()
    follower.send_rejoin(metadata=b"other")
    leader.await_rebalance()
    leader.rejoin()
    expect("error code of the follower", 0, follower.receive_join().error_code)
    observed = {member.member_id: member.metadata for member in leader.reply.members}
    expect(
        "metadata in the reply to the leader", True, observed == {leader.member_id: b"m", follower.member_id: b"other"}
    )


@clause("GRP-35", "leader")
@defect(HEARTBEAT_ERROR)
def test_a_leader_that_joins_again_begins_a_rebalance(driver: GroupDriver) -> None:
    leader, follower = driver.stable_pair()
    leader.send_rejoin()
    follower.await_rebalance()
    follower.rejoin()
    expect("error code of the leader", 0, leader.receive_join().error_code)
    expect("generation of both", follower.generation, leader.generation)


# -- assignments ---------------------------------------------------------------------------------------


@clause("GRP-36")
@defect(Reply(SyncGroupRequest, "assignment", b""))
def test_a_stable_group_tells_the_assignment_again(driver: GroupDriver) -> None:
    leader, follower = driver.stable_pair()
    for _ in range(2):
        expect("assignment of the follower", b"follower", follower.sync().assignment)
        expect("assignment of the leader", b"leader", leader.sync().assignment)


@clause("GRP-37")
@defect(Reply(SyncGroupRequest, "assignment", b"x"))
def test_who_is_left_out_is_assigned_nothing(driver: GroupDriver) -> None:
    first, second = driver.joined_pair()
    leader, follower = (first, second) if first.is_leader else (second, first)
    expect("assignment of the leader", b"all", leader.sync({leader.member_id: b"all"}).assignment)
    answer = follower.sync()
    expect("error code and assignment of the other", (0, b""), (answer.error_code, answer.assignment))


@clause("GRP-38")
@defect(Reply(DescribeGroupsRequest, "groups.members.member_assignment", b"stolen"))
def test_a_followers_assignments_count_for_nothing(driver: GroupDriver) -> None:
    first, second = driver.joined_pair()
    leader, follower = (first, second) if first.is_leader else (second, first)
    follower.send_sync({leader.member_id: b"forged", follower.member_id: b"stolen"})
    follower.broker.expect_silence(0.2)  # and the request has arrived before that of the leader
    leader.sync({leader.member_id: b"leader", follower.member_id: b"follower"})
    expect("assignment of the follower", b"follower", follower.receive().assignment)
    assigned = {member.member_id: member.member_assignment for member in driver.describe().members}
    expect("described", True, assigned == {leader.member_id: b"leader", follower.member_id: b"follower"})


@clause("GRP-19", "claims")
@pytest.mark.parametrize("protocol", ["cooperative-sticky", "range"])
@defect(Reply(JoinGroupRequest, "members.metadata", b""))
def test_what_members_claim_reaches_the_leader_unchanged(driver: GroupDriver, protocol: str) -> None:
    """Both members claim the same partition in a generation that never existed; only the assignor evaluates that."""
    owned = (TopicPartition(topic="t", partitions=(0, 1)),)
    claim = encode_subscription(
        ConsumerProtocolSubscription(topics=("t",), owned_partitions=owned, generation_id=1_000)
    )
    first, second = driver.joined_pair((protocol,), (protocol,), metadata=claim)
    leader = first if first.is_leader else second
    observed = {member.member_id: member.metadata for member in leader.reply.members}
    expect("metadata in the reply to the leader", True, observed == {first.member_id: claim, second.member_id: claim})


@clause("GRP-19", "assignments")
@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff" * 1000, b"\x00\x03not a version that exists"])
@defect(Reply(SyncGroupRequest, "assignment", b"cut"))
def test_what_the_leader_assigns_is_not_looked_into(driver: GroupDriver, data: bytes) -> None:
    first, second = driver.joined_pair(("cooperative-sticky",), ("cooperative-sticky",))
    leader, follower = (first, second) if first.is_leader else (second, first)
    answer = leader.sync({leader.member_id: data, follower.member_id: data})
    expect("error code and assignment of the leader", (0, data), (answer.error_code, answer.assignment))
    expect("assignment of the follower", data, follower.sync().assignment)


OWNS_0, OWNS_NONE = b"0", b"-"
"""Metadata of one byte; GRP-53 covers longer metadata, which Apache Kafka 4 parses."""


@clause("GRP-19", "two steps")
@defect(Reply(JoinGroupRequest, "generation_id", increment))
def test_a_cooperative_move_takes_two_generations(driver: GroupDriver) -> None:
    """The owner revokes the partition in one generation; the other member is assigned it in the next."""
    owner = driver.stable_member(protocols=("cooperative-sticky",))
    new = driver.send_join(protocols=("cooperative-sticky",))
    owner.await_rebalance()
    owner.rejoin(metadata=OWNS_0)
    new.receive_join()
    before = owner.generation
    expect("assignment of the owner", b"", owner.sync({owner.member_id: b"", new.member_id: b""}).assignment)
    expect("assignment of the new member", b"", new.sync().assignment)
    owner.send_rejoin(metadata=OWNS_NONE)
    new.await_rebalance()
    new.rejoin()
    expect("error code and generation", (0, before + 1), (owner.receive_join().error_code, owner.generation))
    owner.sync({owner.member_id: b"", new.member_id: b"0"})
    expect("assignment of the new member in the next generation", b"0", new.sync().assignment)


@clause("GRP-53")
@pytest.mark.slow
@pytest.mark.parametrize("metadata", [b"", b"m", b"subscribed"], ids=["empty", "short", "garbage"])
@defect(Silence(JoinGroupRequest))
def test_a_join_is_answered_whatever_its_metadata(driver: GroupDriver, metadata: bytes) -> None:
    member, reply = driver.join(metadata=metadata)
    expect("error code", 0, reply.error_code)
    expect("metadata in the reply to the leader", metadata, only(member.reply.members).metadata)


# -- protocols -----------------------------------------------------------------------------------------


@clause("GRP-39")
@defect(Reply(JoinGroupRequest, "protocol_name", "a"))
def test_the_protocol_that_most_prefer_wins(cluster: Cluster, driver: GroupDriver) -> None:
    first = driver.stable_member(protocols=("a", "b"))
    others = [driver.send_join(protocols=("b", "a"))]
    first.await_rebalance()
    others.append(driver.send_join(protocols=("b", "a")))
    cluster.eventually("three members", lambda: len(driver.describe().members) == 3)
    first.rejoin()
    for member in others:
        member.receive_join()
    expect("protocols", True, [member.reply.protocol_name for member in (first, *others)] == ["b"] * 3)


@clause("GRP-39", "first one of all")
@defect(Reply(JoinGroupRequest, "protocol_name", "a"))
def test_a_member_votes_for_its_first_protocol_that_all_support(cluster: Cluster, driver: GroupDriver) -> None:
    """The protocols that the members prefer, x and y, are not supported by all."""
    first = driver.stable_member(protocols=("x", "a", "b"))
    others = [driver.send_join(protocols=("y", "b", "a"))]
    first.await_rebalance()
    others.append(driver.send_join(protocols=("y", "b", "a")))
    cluster.eventually("three members", lambda: len(driver.describe().members) == 3)
    first.rejoin()
    for member in others:
        member.receive_join()
    expect("protocols", True, [member.reply.protocol_name for member in (first, *others)] == ["b"] * 3)


@clause("GRP-40", "type")
@defect(Reply(JoinGroupRequest, "error_code", without_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)))
def test_a_member_of_another_protocol_type_is_refused(driver: GroupDriver) -> None:
    driver.stable_member()
    _, reply = driver.join(protocol_type="connect")
    expect("error code", ErrorCode.INCONSISTENT_GROUP_PROTOCOL, reply.error_code)


@clause("GRP-40", "emptied")
@defect(Reply(JoinGroupRequest, "error_code", ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
def test_an_empty_group_takes_another_protocol_type(driver: GroupDriver) -> None:
    """GroupMetadata.supportsProtocols: the type is that of the members, and the group has none."""
    expect("error code of leaving", 0, driver.stable_member().leave_error())
    _, reply = driver.join(protocol_type="connect")
    expect("error code", 0, reply.error_code)


@clause("GRP-40", "none")
@pytest.mark.parametrize("fields", [{"protocols": ()}, {"protocol_type": ""}], ids=["no protocol", "no type"])
@defect(Reply(JoinGroupRequest, "error_code", without_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)))
def test_a_first_member_needs_a_protocol(driver: GroupDriver, fields: dict[str, object]) -> None:
    broker = driver.connect()
    reply = broker.call(driver.join_request(**fields), 3)  # type: ignore[arg-type]
    expect("error code", ErrorCode.INCONSISTENT_GROUP_PROTOCOL, reply.error_code)


@clause("GRP-68")
@sweep(JoinGroupRequest, 7)
@defect(Reply(JoinGroupRequest, "protocol_name", ""))
def test_a_reply_with_an_error_names_no_protocol(driver: GroupDriver, version: int) -> None:
    reply = driver.connect().call(driver.join_request("unknown"), version)
    expect("error code and protocol", (ErrorCode.UNKNOWN_MEMBER_ID, None), (reply.error_code, reply.protocol_name))


@clause("GRP-41")
@sweep(JoinGroupRequest, 0, 3)
@defect(Reply(JoinGroupRequest, "error_code", 79))
def test_before_version_4_a_member_is_taken_at_once(driver: GroupDriver, version: int) -> None:
    reply = driver.connect().call(driver.join_request(), version)
    expect("error code and generation", (0, 1), (reply.error_code, reply.generation_id))
    expect("the member has an id and is the leader", True, bool(reply.member_id) and reply.leader == reply.member_id)


# -- leaving -------------------------------------------------------------------------------------------


@clause("GRP-15", "batch")
@sweep(LeaveGroupRequest, 3)
@defect(
    Reply(LeaveGroupRequest, "members.error_code", without_error(ErrorCode.UNKNOWN_MEMBER_ID)),
    Reply(LeaveGroupRequest, "members", ()),
)
def test_several_leave_at_once_and_each_is_answered(driver: GroupDriver, version: int) -> None:
    first, second = driver.stable_pair()
    requested = tuple(
        MemberIdentity(member_id=member_id) for member_id in (first.member_id, "unknown", second.member_id)
    )
    reply = first.broker.call(LeaveGroupRequest(group_id=driver.group, members=requested), version)
    expect("error code of the reply", 0, reply.error_code)
    found = {member.member_id: member.error_code for member in reply.members}
    expect(
        "error codes", True, found == {first.member_id: 0, "unknown": ErrorCode.UNKNOWN_MEMBER_ID, second.member_id: 0}
    )
    expect("remaining members", 0, len(driver.describe().members))


@clause("GRP-15", "one by one")
@sweep(LeaveGroupRequest, 0, 2)
@defect(Reply(LeaveGroupRequest, "error_code", 1), Request(LeaveGroupRequest, "member_id", "unknown"))
def test_before_version_3_one_leaves(driver: GroupDriver, version: int) -> None:
    member = driver.stable_member()
    request = LeaveGroupRequest(group_id=driver.group, member_id=member.member_id)
    expect("error code", 0, member.broker.call(request, version).error_code)
    expect("error code after leaving", ErrorCode.UNKNOWN_MEMBER_ID, member.heartbeat_error())


# -- sessions ------------------------------------------------------------------------------------------


@clause("GRP-14", "alive")
@pytest.mark.slow
@defect(Request(HeartbeatRequest, "member_id", "unknown"))
def test_heartbeats_keep_a_member(cluster: Cluster, driver: GroupDriver) -> None:
    session_ms = 2 * cluster.setting("group_min_session_timeout_ms")
    member, other = driver.stable_member(session_timeout_ms=session_ms), GroupDriver(cluster, cluster.group())
    other.stable_member(session_timeout_ms=session_ms)

    def other_is_out() -> bool:
        expect("error code of a heartbeat", 0, member.heartbeat_error())
        return other.state() in ("Empty", "Dead")

    cluster.eventually("the end of a session without heartbeats", other_is_out, 10 + session_ms / 1000)
    expect("error code afterwards", 0, member.heartbeat_error())


# -- states --------------------------------------------------------------------------------------------


@clause("GRP-42", "completing")
@era("1.1")  # older releases call the state AwaitingSync
@defect(Reply(DescribeGroupsRequest, "groups.group_state", "Stable"))
def test_a_group_without_its_assignment_is_completing(driver: GroupDriver) -> None:
    driver.join()
    expect("state", "CompletingRebalance", driver.state())


@clause("GRP-42", "stable")
@defect(Reply(DescribeGroupsRequest, "groups.group_state", "Empty"))
def test_a_group_with_its_assignment_is_stable(driver: GroupDriver) -> None:
    driver.stable_member()
    expect("state", "Stable", driver.state())


@clause("GRP-42", "preparing")
@defect(Reply(DescribeGroupsRequest, "groups.group_state", "Stable"))
def test_a_group_that_waits_for_members_is_preparing(cluster: Cluster, driver: GroupDriver) -> None:
    driver.stable_member()
    driver.send_join()
    cluster.eventually("PreparingRebalance", lambda: driver.state() == "PreparingRebalance")


@clause("GRP-42", "empty")
@defect(Reply(DescribeGroupsRequest, "groups.group_state", "Stable"))
def test_a_group_that_all_have_left_is_empty(cluster: Cluster, driver: GroupDriver) -> None:
    expect("error code of the leave", 0, driver.stable_member().leave_error())
    cluster.eventually("an empty group", lambda: driver.state() == "Empty")
    expect("members", 0, len(driver.describe().members))


@clause("GRP-71")
@defect(Reply(JoinGroupRequest, "generation_id", increment), Reply(SyncGroupRequest, "error_code", 27))
def test_a_repeated_join_gets_the_same_generation(driver: GroupDriver) -> None:
    """As if the first reply was lost. The reply to the leader names the members again, that to a follower none."""
    first, second = driver.joined_pair()
    leader, follower = (first, second) if first.is_leader else (second, first)
    generation, members = leader.generation, {each.member_id for each in leader.reply.members}
    for member, listed in ((leader, members), (follower, set[str]()), (leader, members)):
        member.rejoin()
        found = {each.member_id for each in member.reply.members}
        expect("generation and leader", (generation, leader.member_id), (member.generation, member.reply.leader))
        expect(f"members: {found}", True, found == listed)
    expect("state", "CompletingRebalance", driver.state())
    leader.sync({leader.member_id: b"leader", follower.member_id: b"follower"})
    expect("assignment of the follower", b"follower", follower.sync().assignment)
    follower.rejoin()
    expect("generation of a follower in a stable group", generation, follower.generation)
    expect("state", "Stable", driver.state())
    expect("error codes of heartbeats", (0, 0), (leader.heartbeat_error(), follower.heartbeat_error()))
