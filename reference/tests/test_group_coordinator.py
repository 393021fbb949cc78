"""The group coordinator in the simulator: each guard on and off, persistence, and expiration."""

from typing import Any

import pytest

from highwater.reference.effects import STORE, broker_peer
from highwater.reference.groups.group import GroupState
from highwater.reference.tests.simulated import Simulated
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.framing import encode_response
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
)
from highwater.reference.wire.messages.consumer_groups import ConsumerProtocolSubscription, encode_subscription
from highwater.reference.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

GROUP, TOPIC = "g", "t"
MINUTE_MS = 60_000

on_and_off = pytest.mark.parametrize("off", [False, True], ids=["on", "off"])


class Coordinator(Simulated):
    """Brokers, and requests that the test sends as the members of a group."""

    def __init__(self, off: bool = False, guard: str = "", brokers: int = 1, **settings: Any) -> None:
        quick = {"group_min_session_timeout_ms": 500, "offsets_topic_num_partitions": 1}
        super().__init__(brokers, guards_off=(guard,) if off else (), **{**quick, **settings})
        self.create(TOPIC)
        self.at = self.coordinator(GROUP, 0)

    def begin_join(
        self, member_id: str = "", *, instance: str | None = None, protocol: str = "range", rebalance_ms: int = 5_000,
        session_ms: int = 10_000,
    ) -> int:  # fmt: skip
        metadata = encode_subscription(ConsumerProtocolSubscription(topics=(TOPIC,)))
        body = JoinGroupRequest(
            group_id=GROUP, session_timeout_ms=session_ms, rebalance_timeout_ms=rebalance_ms, member_id=member_id,
            group_instance_id=instance, protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name=protocol, metadata=metadata),),
        )  # fmt: skip
        return self.send(body, 9, self.at)

    def join(self, member_id: str = "", **how: Any) -> Any:
        return self.answer(self.begin_join(member_id, **how))

    def new_id(self) -> str:
        return str(self.join().member_id)

    def begin_sync(self, joined: Any, assignments: dict[str, bytes] | None = None) -> int:
        given = tuple(SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in (assignments or {}).items())
        body = SyncGroupRequest(
            group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id, assignments=given,
            protocol_type=joined.protocol_type, protocol_name=joined.protocol_name,
        )  # fmt: skip
        return self.send(body, 5, self.at)

    def sync(self, joined: Any, assignments: dict[str, bytes] | None = None) -> Any:
        return self.answer(self.begin_sync(joined, assignments))

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
        body = HeartbeatRequest(
            group_id=GROUP, generation_id=generation, member_id=member_id, group_instance_id=instance
        )  # fmt: skip
        return ErrorCode(self.ask(body, 4, self.at).error_code)

    def begin_commit(self, member_id: str, generation: int, offset: int = 5) -> int:
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        body = OffsetCommitRequest(
            group_id=GROUP, generation_id_or_member_epoch=generation, member_id=member_id,
            topics=(OffsetCommitRequestTopic(name=TOPIC, partitions=(part,)),),
        )  # fmt: skip
        return self.send(body, 8, self.at)

    def commit(self, member_id: str, generation: int, offset: int = 5) -> ErrorCode:
        answer = self.answer(self.begin_commit(member_id, generation, offset))
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def leave_group(self, *members: MemberIdentity) -> list[ErrorCode]:
        answer = self.ask(LeaveGroupRequest(group_id=GROUP, members=members), 5, self.at)
        return [ErrorCode(each.error_code) for each in answer.members]

    def committed(self) -> dict[str, list[int]]:
        answer = self.ask(OffsetFetchRequest(group_id=GROUP, topics=None), 7, self.at)
        return {topic.name: [each.committed_offset for each in topic.partitions] for topic in answer.topics}

    @property
    def state(self) -> str:
        return str(self.ask(DescribeGroupsRequest(groups=(GROUP,)), 5, self.at).groups[0].group_state)

    def restart(self) -> None:
        """Crash and restart the coordinator; unflushed data survives in its page cache."""
        self.world.crash(broker_peer(self.at), lose_unflushed=False)
        self.run(1_500)
        self.world.start(broker_peer(self.at))
        self.wait(lambda: self.leader("__consumer_offsets") > 0 and self.state != "")

    # -- groups in a known state -------------------------------------------------------------------

    def one(self, **how: Any) -> Any:
        """Make a stable group of one member and return its JoinGroup response."""
        joined = self.join("" if how.get("instance") else self.new_id(), **how)
        assert self.sync(joined, {joined.member_id: b"all"}).error_code == ErrorCode.NONE
        return joined

    def two(self, **how: Any) -> tuple[Any, Any]:
        """Make a stable group of two members and return their JoinGroup responses, the leader first."""
        first = self.one(**how)
        pending = self.begin_join(self.new_id(), **how)
        leader = self.join(first.member_id, **how)
        other = self.answer(pending)
        waiting = self.begin_sync(other)
        self.sync(leader, {leader.member_id: b"0", other.member_id: b"1"})
        assert self.answer(waiting).assignment == b"1"
        return leader, other


# -- guards ------------------------------------------------------------------------------------------


@on_and_off
def test_await_all_members(off: bool) -> None:
    """Off: the new member leads a generation with a member that has not joined it and still owns all partitions."""
    world = Coordinator(off, "AwaitAllMembers")
    first = world.one()
    requested = world.begin_join(world.new_id())
    world.run(500)
    assert (requested in world.hand.answers) == off
    if off:
        assert first.member_id in {each.member_id for each in world.hand.answers[requested].members}


@on_and_off
def test_expire_unsynced_members(off: bool) -> None:
    """KAFKA-12890: its heartbeats keep it in the group while all other members wait for its SyncGroup."""
    world = Coordinator(off, "ExpireUnsyncedMembers")
    leader, other = world.two(rebalance_ms=1_000)
    pending = world.begin_join(leader.member_id, rebalance_ms=1_000)
    waiting = world.begin_sync(world.join(other.member_id, rebalance_ms=1_000))
    again = world.answer(pending)
    for _ in range(4):
        world.run(400)
        last = world.heartbeat(leader.member_id, again.generation_id)
    assert last is (ErrorCode.NONE if off else ErrorCode.UNKNOWN_MEMBER_ID)
    assert (waiting in world.hand.answers) != off


@on_and_off
def test_require_member_id(off: bool) -> None:
    world = Coordinator(off, "RequireMemberId")
    world.begin_join(rebalance_ms=1_000)
    world.run(200)
    world.begin_join(rebalance_ms=1_000)  # sent again, since no reply arrived
    world.run(200)
    members = world.ask(DescribeGroupsRequest(groups=(GROUP,)), 5, world.at).groups[0].members
    assert len(members) == (2 if off else 0)


@on_and_off
def test_persist_before_sync_reply(off: bool) -> None:
    world = Coordinator(off, "PersistBeforeSyncReply", brokers=2)
    joined = world.join(world.new_id())
    follower = 3 - world.at
    world.world.hold(broker_peer(follower), broker_peer(world.at))
    requested = world.begin_sync(joined, {joined.member_id: b"all"})
    world.run(200)
    assert (requested in world.hand.answers) == off, "the assignment is replicated to no other broker"
    world.world.release(broker_peer(follower), broker_peer(world.at))
    assert world.answer(requested).error_code == ErrorCode.NONE


@on_and_off
def test_fence_stale_generation(off: bool) -> None:
    world = Coordinator(off, "FenceStaleGeneration")
    leader, _ = world.two()
    assert world.commit(leader.member_id, leader.generation_id) is ErrorCode.NONE
    stale = world.commit(leader.member_id, leader.generation_id - 1)
    assert stale is (ErrorCode.NONE if off else ErrorCode.ILLEGAL_GENERATION)


@on_and_off
def test_fence_stale_sync(off: bool) -> None:
    world = Coordinator(off, "FenceStaleSync")
    first = world.one()
    pending = world.begin_join(world.new_id())
    world.join(first.member_id)
    world.answer(pending)
    late = world.sync(first, {first.member_id: b"all"})
    assert late.error_code == (ErrorCode.NONE if off else ErrorCode.ILLEGAL_GENERATION)


@on_and_off
def test_fence_stale_heartbeat(off: bool) -> None:
    world = Coordinator(off, "FenceStaleHeartbeat")
    leader, _ = world.two()
    stale = world.heartbeat(leader.member_id, leader.generation_id - 1)
    assert stale is (ErrorCode.NONE if off else ErrorCode.ILLEGAL_GENERATION)


@on_and_off
def test_members_commit_only(off: bool) -> None:
    world = Coordinator(off, "MembersCommitOnly")
    joined = world.one()
    error = world.commit("stranger", joined.generation_id)
    assert error is (ErrorCode.NONE if off else ErrorCode.UNKNOWN_MEMBER_ID)


@on_and_off
def test_fence_instance(off: bool) -> None:
    world = Coordinator(off, "FenceInstance")
    old = world.one(instance="a")
    new = world.join(instance="a")
    assert new.member_id != old.member_id
    error = world.heartbeat(old.member_id, old.generation_id, "a")
    assert error is (ErrorCode.UNKNOWN_MEMBER_ID if off else ErrorCode.FENCED_INSTANCE_ID)


@on_and_off
def test_new_member_id_on_static_rejoin(off: bool) -> None:
    """KAFKA-8500: during a rebalance, another process with the same instance id joins."""
    world = Coordinator(off, "NewMemberIdOnStaticRejoin")
    first = world.one(instance="a")
    pending = world.begin_join(world.new_id())
    leader = world.join(first.member_id, instance="a")
    other = world.answer(pending)
    world.sync(leader, {other.member_id: b"all"})
    waiting = world.begin_join(first.member_id, instance="a")
    duplicate = world.begin_join(instance="a")
    replaced = world.answer(waiting)
    world.join(other.member_id)
    assert (world.answer(duplicate).member_id == first.member_id) == off
    assert replaced.error_code == (ErrorCode.REBALANCE_IN_PROGRESS if off else ErrorCode.FENCED_INSTANCE_ID)


@on_and_off
def test_persist_static_rejoin(off: bool) -> None:
    world = Coordinator(off, "PersistStaticRejoin")
    world.one(instance="a")
    new = world.join(instance="a")
    world.restart()
    error = world.heartbeat(new.member_id, new.generation_id, "a")
    assert error is (ErrorCode.FENCED_INSTANCE_ID if off else ErrorCode.NONE)


@on_and_off
def test_one_protocol_for_all(off: bool) -> None:
    world = Coordinator(off, "OneProtocolForAll")
    first = world.one(protocol="range")
    requested = world.begin_join(world.new_id(), protocol="cooperative-sticky")
    world.run(200)
    assert (requested in world.hand.answers) != off
    if off:
        assert world.heartbeat(first.member_id, first.generation_id) is ErrorCode.REBALANCE_IN_PROGRESS


# -- persistence and expiration ----------------------------------------------------------------------


def test_a_repeated_sync_group_gets_two_replies() -> None:
    """The coordinator cannot know which of the two requests the member still waits for, so it answers both."""
    world = Coordinator()
    first = world.one()
    pending = world.begin_join(world.new_id())
    leader = world.join(first.member_id)
    other = world.answer(pending)
    requested = [world.begin_sync(other), world.begin_sync(other)]
    world.sync(leader, {leader.member_id: b"0", other.member_id: b"1"})
    assert [world.answer(each).assignment for each in requested] == [b"1", b"1"]


def test_groups_and_offsets_survive_a_coordinator_restart() -> None:
    world = Coordinator()
    leader, other = world.two()
    world.commit(other.member_id, other.generation_id, 7)
    world.restart()
    assert world.state == GroupState.STABLE
    assert world.committed() == {TOPIC: [7]}
    assert world.sync(other).assignment == b"1"
    assert world.heartbeat(leader.member_id, leader.generation_id) is ErrorCode.NONE


def test_leave_group_removes_several_members_and_returns_an_error_code_for_each() -> None:
    world = Coordinator()
    leader, other = world.two()
    gone = [MemberIdentity(member_id=each) for each in (leader.member_id, "stranger", other.member_id)]
    assert world.leave_group(*gone) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert world.state == GroupState.EMPTY


def test_only_an_empty_group_is_deleted_and_stays_deleted() -> None:
    world = Coordinator()
    joined = world.one()
    world.commit(joined.member_id, joined.generation_id)

    def delete() -> ErrorCode:
        answer = world.ask(DeleteGroupsRequest(groups_names=(GROUP,)), 2, world.at)
        return ErrorCode(answer.results[0].error_code)

    assert delete() is ErrorCode.NON_EMPTY_GROUP
    world.leave_group(MemberIdentity(member_id=joined.member_id))
    assert delete() is ErrorCode.NONE
    world.restart()
    assert world.committed() == {}
    assert delete() is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_offset_that_is_committed_while_its_group_is_deleted_remains() -> None:
    """Its record comes before the tombstone of the group; the expiry task deletes groups without offsets, too."""
    world = Coordinator(brokers=3)
    joined = world.one()
    world.leave_group(MemberIdentity(member_id=joined.member_id))
    committing = world.begin_commit("", -1, 5)
    deleting = world.send(DeleteGroupsRequest(groups_names=(GROUP,)), 2, world.at)
    assert world.answer(committing).topics[0].partitions[0].error_code == ErrorCode.NONE
    assert world.answer(deleting).results[0].error_code == ErrorCode.NONE
    assert world.committed() == {TOPIC: [5]}
    world.run(1_000)
    world.world.crash(broker_peer(world.at), lose_unflushed=False)
    world.wait(lambda: world.coordinator(GROUP, 0) != world.at)
    world.at = world.coordinator(GROUP, 0)
    assert world.committed() == {TOPIC: [5]}, "the next coordinator knows it, too"


@pytest.mark.parametrize(
    ("states", "types", "listed"),
    [
        ((), (), True),
        (("stable",), (), True),
        (("Empty",), (), False),
        ((), ("classic",), True),
        ((), ("share",), False),
    ],
)
def test_groups_are_listed_by_state_and_type(states: tuple[str, ...], types: tuple[str, ...], listed: bool) -> None:
    world = Coordinator()
    world.one()
    answer = world.ask(ListGroupsRequest(states_filter=states, types_filter=types), 5, world.at)
    assert [each.group_id for each in answer.groups] == ([GROUP] if listed else [])


QUICK_EXPIRY: dict[str, Any] = {"offsets_retention_minutes": 1, "offsets_retention_check_interval_ms": 1_000}


def test_offsets_of_an_empty_group_expire_after_the_retention_time() -> None:
    world = Coordinator(**QUICK_EXPIRY)
    joined = world.one(session_ms=1_000_000)
    world.commit(joined.member_id, joined.generation_id)
    world.run(2 * MINUTE_MS)
    assert world.committed() == {TOPIC: [5]}, "offsets of a subscribed topic do not expire"
    world.leave_group(MemberIdentity(member_id=joined.member_id))
    world.run(MINUTE_MS - 5_000)
    assert world.committed() == {TOPIC: [5]}, "the retention time starts when the group becomes empty"
    world.run(10_000)
    assert world.committed() == {}
    assert world.state == GroupState.DEAD


def test_an_id_that_was_given_out_outlives_the_check_of_its_empty_group() -> None:
    world = Coordinator(**QUICK_EXPIRY)
    first = world.join()
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    world.run(3_000)
    assert world.join(first.member_id).error_code == ErrorCode.NONE


def test_offsets_without_a_group_expire_after_their_commit() -> None:
    world = Coordinator(**QUICK_EXPIRY)
    assert world.commit("", -1) is ErrorCode.NONE
    world.run(MINUTE_MS - 5_000)
    assert world.committed() == {TOPIC: [5]}
    world.run(10_000)
    assert world.committed() == {}
    world.restart()
    assert world.committed() == {}


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_an_offset_with_a_retention_of_its_own_expires_then(restarted: bool) -> None:
    world = Coordinator(**QUICK_EXPIRY | {"offsets_retention_minutes": 60})
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    requested = (OffsetCommitRequestTopic(name=TOPIC, partitions=(partition,)),)
    world.ask(OffsetCommitRequest(group_id=GROUP, retention_time_ms=MINUTE_MS, topics=requested), 4, world.at)
    if restarted:
        world.restart()
    world.run(MINUTE_MS - 10_000)
    assert world.committed() == {TOPIC: [5]}
    world.run(15_000)
    assert world.committed() == {}
    assert world.state == GroupState.DEAD


def test_groups_work_without_the_metadata_store() -> None:
    """Groups are stored only in the log: the coordinator answers while the metadata store is down."""
    world = Coordinator(metadata_store_session_timeout_ms=60_000)
    joined = world.one()
    world.world.crash(STORE, lose_unflushed=False)
    assert world.commit(joined.member_id, joined.generation_id) is ErrorCode.NONE


def test_the_member_id_of_a_long_client_id_fits_into_a_string() -> None:
    """Found by the wire fuzzer: the response could not be encoded."""
    coordinator = Coordinator()
    joined = coordinator.answer(coordinator.begin_join(instance="i" * 32_767))
    assert len(joined.member_id) < 300
    assert encode_response(joined, 5, 1)


# -- the initial delay (KIP-134) -----------------------------------------------------------------------

DELAY_MS = 1_000


@pytest.mark.parametrize("joins", [1, 2, 3])
def test_a_new_group_waits_once_more_while_members_join(joins: int) -> None:
    """InitialDelayedJoin: all are in the first generation, which begins after a delay without a newcomer."""
    world = Coordinator(group_initial_rebalance_delay_ms=DELAY_MS)
    pending = list[int]()
    for number in range(joins):
        pending.append(world.begin_join(world.new_id()))
        world.run(DELAY_MS // 2 if number == 0 else DELAY_MS)
        assert not any(each in world.hand.answers for each in pending), "the delay goes on"
    world.run(2 * DELAY_MS)
    joined = [world.answer(each) for each in pending]
    assert {each.generation_id for each in joined} == {1}
    assert max(len(each.members) for each in joined) == joins


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    world = Coordinator(group_initial_rebalance_delay_ms=DELAY_MS)
    first = world.begin_join(world.new_id(), rebalance_ms=2 * DELAY_MS)
    for _ in range(3):
        world.run(DELAY_MS * 3 // 5)
        world.begin_join(world.new_id(), rebalance_ms=2 * DELAY_MS)
    world.run(DELAY_MS // 2)
    assert first in world.hand.answers
