"""Groups with members of both protocols: classic members of the simulator, and one of KIP-848 that the test drives."""

from typing import Any

import pytest

from highwater.reference.effects import broker_peer
from highwater.reference.groups.group import GroupState
from highwater.reference.tests.grouped import GROUP, TOPIC, Grouped
from highwater.reference.tests.test_consumer_groups import Member
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import OffsetCommitRequest
from highwater.reference.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerProtocolSubscription,
    encode_subscription,
)
from highwater.reference.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
)

E = ErrorCode
PARTITIONS = 6
assignors = pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"], ids=["eager", "cooperative"])


class Mixed(Grouped):
    """Classic members that run by themselves, and requests of the test."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(partitions=PARTITIONS, **settings)
        self.at = self.coordinator(GROUP, 0)

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        body = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields)
        return self.ask(body, 1, self.at)

    def describe(self) -> Any:
        return self.ask(ConsumerGroupDescribeRequest(group_ids=(GROUP,)), 1, self.at).groups[0]

    def kind(self) -> str:
        return str(self.ask(ListGroupsRequest(), 5, self.at).groups[0].group_type)

    def reconcile(self, *consumers: Member) -> None:
        """Run until all members own something, and together all; no partition may have two owners meanwhile."""
        for _ in range(200):
            owned = [number for share in self.shares().values() for number in share]
            owned += [number for member in consumers for _, number in member.owned]
            assert len(owned) == len(set(owned)), "a partition has two owners"
            everyone = all(self.shares().values()) and all(member.owned for member in consumers)
            if len(owned) == PARTITIONS and everyone and self.describe().group_state == "Stable":
                return
            self.run(50)
            for member in consumers:
                member.owned &= member.assigned
                assert member.reconcile().error_code == E.NONE
        raise AssertionError(f"not reconciled: {self.shares()} {[member.owned for member in consumers]}")


@assignors
def test_a_group_changes_its_protocol_with_its_members_and_back(assignor: str) -> None:
    world = Mixed()
    world.join("a", assignor)
    world.join("b", assignor)
    world.settle()
    assert world.kind() == "classic"
    member = Member(world, "m")  # type: ignore[arg-type]
    assert member.join().error_code == E.NONE
    assert world.kind() == "consumer"
    world.reconcile(member)
    assert sorted(each.member_type for each in world.describe().members) == [0, 0, 1]
    world.join("c", assignor)
    world.reconcile(member)
    assert len(world.describe().members) == 4
    world.kill("c")
    world.run(3_000)
    world.reconcile(member)
    assert len(world.describe().members) == 3
    member.leave()
    assert world.kind() == "classic"
    world.settle()
    assert world.group is not None
    assert world.group.state is GroupState.STABLE
    assert world.describe().error_code == E.GROUP_ID_NOT_FOUND


@assignors
def test_a_mixed_group_survives_a_restart(assignor: str) -> None:
    world = Mixed()
    world.join("a", assignor)
    world.settle()
    member = Member(world, "m")  # type: ignore[arg-type]
    member.join()
    world.reconcile(member)
    before = world.describe()
    world.world.crash(broker_peer(world.at), lose_unflushed=False)
    world.run(200)
    world.world.start(broker_peer(world.at))
    world.wait(lambda: world.describe().error_code == E.NONE)
    assert {each.member_id for each in world.describe().members} == {each.member_id for each in before.members}
    world.reconcile(member)


@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade", "bidirectional"])
def test_the_policy_says_which_conversions_happen(policy: str) -> None:
    world = Mixed(group_consumer_migration_policy=policy)
    world.join("a", "range")
    world.settle()
    member = Member(world, "m")  # type: ignore[arg-type]
    upgrades = policy in {"upgrade", "bidirectional"}
    assert member.join().error_code == (E.NONE if upgrades else E.GROUP_ID_NOT_FOUND)
    if upgrades:
        world.reconcile(member)
        member.leave()
        assert world.kind() == ("classic" if policy == "bidirectional" else "consumer")
    else:
        world.settle()


def test_an_administrator_removes_a_member_of_the_consumer_protocol() -> None:
    world = Mixed()
    member = Member(world, "m")  # type: ignore[arg-type]
    member.join()
    leaving = (MemberIdentity(member_id="m"), MemberIdentity(member_id="stranger"))
    answer = world.ask(LeaveGroupRequest(group_id=GROUP, members=leaving), 5, world.at)
    assert [each.error_code for each in answer.members] == [E.NONE, E.UNKNOWN_MEMBER_ID]
    assert member.beat().error_code == E.UNKNOWN_MEMBER_ID
    assert world.describe().group_state == "Empty"


def join_request(
    member_id: str = "", protocol_type: str = "consumer", metadata: bytes | None = None, instance_id: str | None = None
) -> JoinGroupRequest:
    known = encode_subscription(ConsumerProtocolSubscription(topics=(TOPIC,))) if metadata is None else metadata
    return JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=10_000, rebalance_timeout_ms=5_000, member_id=member_id,
        group_instance_id=instance_id, protocol_type=protocol_type,
        protocols=(JoinGroupRequestProtocol(name="range", metadata=known),),
    )  # fmt: skip


def test_requests_of_a_classic_member_are_checked() -> None:
    world = Mixed()
    Member(world, "m").join()  # type: ignore[arg-type]

    def ask(body: Any, version: int) -> Any:
        return world.ask(body, version, world.at)

    assert ask(join_request(protocol_type="connect"), 9).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert ask(join_request("x", metadata=b"?"), 9).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert ask(join_request("x", instance_id="i"), 9).error_code == E.UNKNOWN_MEMBER_ID
    required = ask(join_request(), 9)
    assert required.error_code == E.MEMBER_ID_REQUIRED
    joined = ask(join_request(required.member_id), 9)
    assert (joined.error_code, joined.leader, joined.protocol_name) == (0, "", "range")
    name, generation = joined.member_id, joined.generation_id

    def sync(**fields: Any) -> ErrorCode:
        known = {"group_id": GROUP, "member_id": name, "generation_id": generation}
        kinds = {"protocol_type": "consumer", "protocol_name": "range"}
        return ErrorCode(ask(SyncGroupRequest(**{**known, **kinds, **fields}), 5).error_code)

    def beat(**fields: Any) -> ErrorCode:
        known = {"group_id": GROUP, "member_id": name, "generation_id": generation}
        return ErrorCode(ask(HeartbeatRequest(**{**known, **fields}), 4).error_code)

    assert sync(protocol_name="other") is E.INCONSISTENT_GROUP_PROTOCOL
    for check in (sync, beat):
        assert check(generation_id=generation + 1) is E.ILLEGAL_GENERATION
        assert check(member_id="stranger") is E.UNKNOWN_MEMBER_ID
        assert check(member_id="m") is E.UNKNOWN_MEMBER_ID, "it uses the other protocol"
        assert check() is E.NONE
    commit = OffsetCommitRequest(
        group_id=GROUP, member_id=name, generation_id_or_member_epoch=generation + 1, topics=()
    )
    assert ask(commit, 8).topics == ()
    Member(world, "n").join()  # type: ignore[arg-type]
    assert beat() is E.REBALANCE_IN_PROGRESS
    assert sync() is E.REBALANCE_IN_PROGRESS
    world.run(5_500)
    assert beat() is E.UNKNOWN_MEMBER_ID, "it did not join within its rebalance timeout"
