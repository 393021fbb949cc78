"""A group member without I/O; the test acts as its coordinator. Each guard is tested on and off."""

from typing import Any

import pytest

from highwater.reference.clients.member import GroupMember, MemberConfig, MemberState
from highwater.reference.clients.subscriptions import Partition, Subscription, pack_assignment, unpack_assignment
from highwater.reference.effects import Instant, Request, Response, Send, broker_peer
from highwater.reference.guards import Guards
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from highwater.reference.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from highwater.reference.wire.messages.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC = "t"
EAGER, COOPERATIVE, BOTH = ("range",), ("cooperative-sticky",), ("cooperative-sticky", "range")


class ByHand:
    """A member whose coordinator is the test: `open` has its unanswered requests."""

    def __init__(self, assignors: tuple[str, ...] = COOPERATIVE, *guards_off: str, **config: Any) -> None:
        settings = MemberConfig(
            "g", frozenset({TOPIC}), assignors, guards=Guards().without(*guards_off), **config
        )  # fmt: skip
        self.callbacks: list[tuple[str, set[int]]] = []
        self.committed: list[ErrorCode] = []
        self.member = GroupMember([1, 2], settings, self, self.committed.append)
        self.now_ms = 0
        self.open: list[Request] = []
        self.take(self.member.start(self.now))

    def assigned(self, partitions: frozenset[Partition]) -> None:
        self.callbacks.append(("assigned", numbers(partitions)))

    def revoked(self, partitions: frozenset[Partition]) -> None:
        self.callbacks.append(("revoked", numbers(partitions)))

    def lost(self, partitions: frozenset[Partition]) -> None:
        self.callbacks.append(("lost", numbers(partitions)))

    @property
    def now(self) -> Instant:
        return Instant(self.now_ms, self.now_ms)

    @property
    def owned(self) -> set[int]:
        return numbers(self.member.owned)

    def take(self, effects: list[Any]) -> None:
        """Answer FindCoordinator at once and keep all other requests in `open`."""
        for request in [effect.message for effect in effects if isinstance(effect, Send)]:
            if isinstance(request.body, FindCoordinatorRequest):
                self.answer(request, FindCoordinatorResponse(node_id=1))
            else:
                self.open.append(request)

    def answer(self, request: Request, body: Any) -> None:
        self.open = [each for each in self.open if each is not request]
        self.take(self.member.receive(self.now, broker_peer(1), Response(request.correlation_id, 0, body)))

    def request_of(self, kind: type) -> Request:
        (found,) = [each for each in self.open if isinstance(each.body, kind)]
        return found

    def has_request(self, kind: type) -> bool:
        return any(isinstance(each.body, kind) for each in self.open)

    def poll(self) -> None:
        self.take(self.member.poll(self.now))

    def wait(self, wait_ms: int) -> None:
        self.now_ms += wait_ms
        self.take(self.member.fire(self.now, "member-tick"))

    # -- replies of the coordinator ----------------------------------------------------------------

    def joins(
        self, generation: int = 1, *, leader: str = "boss", members: dict[str, Subscription] | None = None,
        protocol: str = "",
    ) -> Request:  # fmt: skip
        """Poll, answer the JoinGroup of the member and return it."""
        self.poll()
        request = self.request_of(JoinGroupRequest)
        found = tuple(
            JoinGroupResponseMember(member_id=member_id, metadata=each.encode())
            for member_id, each in (members or {}).items()
        )
        name = protocol or request.body.protocols[0].name
        self.answer(
            request,
            JoinGroupResponse(
                generation_id=generation, protocol_name=name, leader=leader, member_id="me", members=found
            ),
        )
        return request

    def syncs(self, *partitions: int) -> Request:
        request = self.request_of(SyncGroupRequest)
        data = pack_assignment((TOPIC, each) for each in partitions)
        self.answer(request, SyncGroupResponse(assignment=data))
        return request

    def beats(self, error: ErrorCode) -> None:
        self.wait(2_000)
        self.answer(self.request_of(HeartbeatRequest), HeartbeatResponse(error_code=error))

    def claim(self) -> tuple[set[int], int]:
        """Return the partitions and the generation that the open JoinGroup claims."""
        found = Subscription.decode(self.request_of(JoinGroupRequest).body.protocols[0].metadata)
        return numbers(found.owned), found.generation


def numbers(partitions: frozenset[Partition]) -> set[int]:
    return {number for _, number in partitions}


def stable(assignors: tuple[str, ...], *guards_off: str, **config: Any) -> ByHand:
    """Return a member of generation 1 that owns the partitions 0 and 1."""
    hand = ByHand(assignors, *guards_off, **config)
    hand.joins()
    hand.syncs(0, 1)
    assert hand.owned == {0, 1}
    return hand


# -- joining -----------------------------------------------------------------------------------------


def test_a_dynamic_member_joins_again_with_the_assigned_member_id() -> None:
    hand = ByHand()
    hand.poll()
    refused = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me")
    hand.answer(hand.request_of(JoinGroupRequest), refused)
    assert hand.request_of(JoinGroupRequest).body.member_id == "me"


def test_no_join_is_sent_without_poll() -> None:
    hand = ByHand()
    hand.wait(1_000)
    assert not hand.has_request(JoinGroupRequest)


def test_the_leader_assigns_the_partitions_in_the_metadata() -> None:
    hand = ByHand(EAGER)
    wants = Subscription(frozenset({TOPIC}))
    hand.joins(leader="me", members={"me": wants, "other": wants})
    assert not hand.has_request(SyncGroupRequest)
    answer_metadata(hand, 3)
    assert assignment_of_leader(hand) == {"me": {0, 1}, "other": {2}}


def answer_metadata(hand: ByHand, count: int) -> None:
    partitions = tuple(MetadataResponsePartition(partition_index=number) for number in range(count))
    topic = MetadataResponseTopic(name=TOPIC, partitions=partitions)
    hand.answer(hand.request_of(MetadataRequest), MetadataResponse(topics=(topic,)))


def assignment_of_leader(hand: ByHand) -> dict[str, set[int]]:
    sync = hand.request_of(SyncGroupRequest).body
    return {each.member_id: numbers(unpack_assignment(each.assignment)) for each in sync.assignments}


def test_an_eager_member_owns_nothing_while_the_group_rebalances() -> None:
    hand = stable(EAGER)
    hand.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    assert hand.owned == {0, 1}, "it keeps its partitions until its application polls"
    hand.poll()
    assert hand.member.fetchable == frozenset()
    hand.joins(2)
    hand.syncs(1)
    assert hand.callbacks == [("assigned", {0, 1}), ("revoked", {0, 1}), ("assigned", {1})]


def test_a_cooperative_member_keeps_fetching_and_revokes_only_moved_partitions() -> None:
    hand = stable(COOPERATIVE)
    hand.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    hand.poll()
    assert numbers(hand.member.fetchable) == {0, 1}
    assert hand.claim() == ({0, 1}, 1)
    hand.joins(2)
    hand.syncs(1, 2)
    assert hand.owned == {0, 1, 2}
    assert numbers(hand.member.fetchable) == {1, 2}
    hand.poll()
    assert hand.claim() == ({1, 2}, 2)
    assert hand.callbacks == [("assigned", {0, 1}), ("assigned", {2}), ("revoked", {0})]


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_lost_partitions_are_reported_lost_and_not_revoked(error: ErrorCode) -> None:
    hand = stable(COOPERATIVE)
    hand.beats(error)
    assert hand.callbacks[-1] == ("lost", {0, 1})
    hand.poll()
    assert hand.claim() == (set(), -1)
    assert hand.request_of(JoinGroupRequest).body.member_id == ("me" if error is ErrorCode.ILLEGAL_GENERATION else "")


def test_a_fenced_member_closes() -> None:
    hand = stable(COOPERATIVE, group_instance_id="static")
    hand.beats(ErrorCode.FENCED_INSTANCE_ID)
    assert hand.member.state is MemberState.CLOSED
    assert hand.callbacks[-1] == ("lost", {0, 1})
    hand.poll()
    assert hand.open == []


@pytest.mark.parametrize(("instance", "leaves"), [(None, True), ("static", False)])
def test_leave_revokes_first_and_a_static_member_sends_no_leave_group(instance: str | None, leaves: bool) -> None:
    hand = stable(COOPERATIVE, group_instance_id=instance)
    hand.take(hand.member.leave(hand.now))
    assert hand.callbacks[-1] == ("revoked", {0, 1})
    assert hand.has_request(LeaveGroupRequest) == leaves
    assert hand.member.state is MemberState.CLOSED


def test_a_member_without_poll_leaves_and_loses_its_partitions() -> None:
    hand = stable(COOPERATIVE)
    hand.wait(10_000)
    assert hand.has_request(LeaveGroupRequest)
    assert hand.callbacks[-1] == ("lost", {0, 1})


def test_a_commit_carries_the_generation_and_fails_while_joining() -> None:
    hand = stable(COOPERATIVE)
    hand.take(hand.member.commit(hand.now, {(TOPIC, 0): 5}))
    request = hand.request_of(OffsetCommitRequest)
    assert request.body.generation_id_or_member_epoch == 1
    part = OffsetCommitResponsePartition(partition_index=0)
    hand.answer(request, OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name=TOPIC, partitions=(part,)),)))
    hand.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    hand.poll()
    hand.take(hand.member.commit(hand.now, {(TOPIC, 0): 6}))
    assert hand.committed == [ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS]


def test_a_member_keeps_its_partitions_when_the_coordinator_moves() -> None:
    hand = stable(COOPERATIVE)
    hand.beats(ErrorCode.NOT_COORDINATOR)
    assert hand.member.state is MemberState.STABLE
    hand.wait(2_000)
    assert hand.request_of(HeartbeatRequest).body.generation_id == 1
    assert hand.owned == {0, 1}


def test_replies_for_an_earlier_generation_are_ignored() -> None:
    hand = stable(EAGER)
    hand.wait(2_000)
    late = hand.request_of(HeartbeatRequest)
    hand.take(hand.member.commit(hand.now, {(TOPIC, 0): 5}))
    part = OffsetCommitResponsePartition(partition_index=0, error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    topic = OffsetCommitResponseTopic(name=TOPIC, partitions=(part,))
    hand.answer(hand.request_of(OffsetCommitRequest), OffsetCommitResponse(topics=(topic,)))
    hand.joins(2)
    hand.syncs(1)
    hand.answer(late, HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION))
    assert hand.owned == {1}
    assert hand.member.state is MemberState.STABLE


def test_a_join_without_a_reply_is_sent_again() -> None:
    hand = ByHand()
    hand.poll()
    for _ in range(17):
        hand.wait(1_000)
        hand.poll()
    assert len([each for each in hand.open if isinstance(each.body, JoinGroupRequest)]) == 2


# -- guards ------------------------------------------------------------------------------------------

on_and_off = pytest.mark.parametrize("off", [False, True], ids=["on", "off"])


def off_if(off: bool, guard: str) -> tuple[str, ...]:
    return (guard,) if off else ()


@on_and_off
def test_revoke_before_join(off: bool) -> None:
    hand = stable(EAGER, *off_if(off, "RevokeBeforeJoin"))
    hand.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    hand.poll()
    assert hand.owned == ({0, 1} if off else set())


@on_and_off
def test_drop_on_lost(off: bool) -> None:
    hand = stable(EAGER, *off_if(off, "DropOnLost"))
    hand.beats(ErrorCode.UNKNOWN_MEMBER_ID)
    hand.joins(2)
    assert hand.owned == ({0, 1} if off else set()), "it owns its partitions again although others have them by now"


@on_and_off
def test_rejoin_on_rebalance(off: bool) -> None:
    hand = stable(EAGER, *off_if(off, "RejoinOnRebalance"))
    hand.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    hand.poll()
    assert hand.has_request(JoinGroupRequest) == (not off)


@on_and_off
def test_match_replies(off: bool) -> None:
    """The reply to a SyncGroup of generation 1 arrives after the member has sent SyncGroup in generation 2."""
    hand = ByHand(EAGER, *off_if(off, "MatchReplies"))
    hand.joins(1)
    late = hand.request_of(SyncGroupRequest)
    for _ in range(16):
        hand.poll()
        hand.wait(1_000)
    hand.open.remove(late)
    hand.joins(2)
    hand.answer(late, SyncGroupResponse(assignment=pack_assignment([(TOPIC, 0)])))
    assert hand.owned == ({0} if off else set())


@on_and_off
def test_leader_assigns_members_only(off: bool) -> None:
    hand = ByHand(EAGER, *off_if(off, "LeaderAssignsMembersOnly"))
    wants = Subscription(frozenset({TOPIC}))
    hand.joins(1, leader="me", members={"me": wants, "gone": wants})
    answer_metadata(hand, 2)
    hand.syncs(1)
    hand.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    hand.joins(2, leader="me", members={"me": wants})
    answer_metadata(hand, 2)
    assert assignment_of_leader(hand) == ({"me": {1}, "gone": {0}} if off else {"me": {0, 1}})


@on_and_off
def test_revoke_before_rejoin(off: bool) -> None:
    hand = stable(COOPERATIVE, *off_if(off, "RevokeBeforeRejoin"))
    hand.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    hand.joins(2)
    hand.syncs(1)
    assert hand.has_request(JoinGroupRequest) == off
    if off:
        assert hand.claim() == ({1}, 2)
    assert hand.owned == {0, 1}, "the partition to revoke is fetched until the next poll"


@on_and_off
def test_rejoin_after_revoke(off: bool) -> None:
    hand = stable(COOPERATIVE, *off_if(off, "RejoinAfterRevoke"))
    hand.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    hand.joins(2)
    hand.syncs(1)
    hand.poll()
    assert hand.callbacks[-1] == ("revoked", {0})
    assert hand.has_request(JoinGroupRequest) == (not off)


@on_and_off
def test_unaffected_keep(off: bool) -> None:
    hand = stable(COOPERATIVE, *off_if(off, "UnaffectedKeep"))
    hand.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    hand.poll()
    assert hand.owned == (set() if off else {0, 1})


@on_and_off
def test_reset_claim_on_lost(off: bool) -> None:
    hand = stable(COOPERATIVE, *off_if(off, "ResetClaimOnLost"))
    hand.beats(ErrorCode.ILLEGAL_GENERATION)
    hand.poll()
    assert hand.owned == set()
    assert hand.claim() == (({0, 1}, 1) if off else (set(), -1))


@on_and_off
def test_claims_bear_generation(off: bool) -> None:
    hand = stable(COOPERATIVE, *off_if(off, "ClaimsBearGeneration"))
    hand.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    hand.poll()
    assert hand.claim() == ({0, 1}, -1 if off else 1)


@on_and_off
def test_eager_members_revoke_all(off: bool) -> None:
    """The group may choose the range assignor, which does not withhold owned partitions."""
    hand = ByHand(BOTH, *off_if(off, "EagerMembersRevokeAll"))
    hand.joins(1, protocol="range")
    hand.syncs(0, 1)
    hand.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    hand.poll()
    assert hand.owned == ({0, 1} if off else set())


def test_a_sticky_member_that_revoked_all_still_claims_its_partitions() -> None:
    hand = stable(("sticky",))
    hand.beats(ErrorCode.REBALANCE_IN_PROGRESS)
    hand.poll()
    assert hand.owned == set()
    assert hand.claim() == ({0, 1}, 1)
