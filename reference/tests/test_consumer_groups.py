"""Consumer groups of KIP-848 on brokers in the simulator: timeouts, lost replies, writes that fail, and failover."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from highwater.reference.effects import broker_peer
from highwater.reference.tests.simulated import Simulated
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from highwater.reference.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from highwater.reference.wire.messages.groups import DeleteGroupsRequest, JoinGroupRequest, ListGroupsRequest
from highwater.reference.wire.messages.metadata import ApiVersionsRequest
from highwater.reference.wire.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
)

E = ErrorCode
GROUP, TOPIC = "g", "t"
PARTITIONS = 4
SESSION_MS, REBALANCE_MS = 45_000, 20_000
Owned = frozenset[tuple[bytes, int]]


class Member:
    """A member that the test drives; `owned` is what it reports, `assigned` its last assignment.

    It takes what it gets at once, and gives up later. One that takes late could own what is not its own: if it reports
    less than it was assigned, the coordinator may give the rest to another member (CurrentAssignmentBuilder), and if
    that reply is lost, the member takes the rest after that.
    """

    def __init__(self, world: "Groups", member_id: str, instance_id: str | None = None) -> None:
        self.world, self.member_id, self.instance_id = world, member_id, instance_id
        self.epoch = 0
        self.owned: Owned = frozenset()
        self.assigned: Owned = frozenset()

    def beat(self, **fields: Any) -> Any:
        """Send a heartbeat, and take over what the reply says if it has no error."""
        reply = self.world.beat(self.member_id, fields.pop("epoch", self.epoch), **fields)
        if reply.error_code == E.NONE:
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                topics = reply.assignment.topic_partitions
                self.assigned = frozenset((each.topic_id, number) for each in topics for number in each.partitions)
                self.owned |= self.assigned
        return reply

    def join(self, **fields: Any) -> Any:
        self.owned, self.assigned = frozenset(), frozenset()
        names = {} if "subscribed_topic_regex" in fields else {"subscribed_topic_names": (TOPIC,)}
        whole = {"rebalance_timeout_ms": REBALANCE_MS, "topic_partitions": (), "instance_id": self.instance_id}
        return self.beat(epoch=0, **{**whole, **names, **fields})

    def reconcile(self) -> Any:
        """Take what is assigned and report it."""
        self.owned = self.assigned
        return self.beat(topic_partitions=reported(self.owned))

    def leave(self, epoch: int = -1) -> Any:
        return self.world.beat(self.member_id, epoch, instance_id=self.instance_id)


def reported(owned: Owned) -> tuple[HeartbeatTopicPartitions, ...]:
    topics = sorted({topic for topic, _ in owned})
    return tuple(
        HeartbeatTopicPartitions(topic_id=topic, partitions=tuple(sorted(n for t, n in owned if t == topic)))
        for topic in topics
    )


class Groups(Simulated):
    """Brokers, and requests about one consumer group."""

    def __init__(self, brokers: int = 1, **settings: Any) -> None:
        super().__init__(brokers, **{"offsets_topic_num_partitions": 1, **settings})
        self.create(TOPIC, PARTITIONS)
        self.at = self.coordinator(GROUP, 0)

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        body = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields)
        return self.ask(body, 1, self.at)

    def describe(self) -> Any:
        return self.ask(ConsumerGroupDescribeRequest(group_ids=(GROUP,)), 1, self.at).groups[0]

    def commit(self, member: Member, epoch: int, number: int = 0) -> ErrorCode:
        part = OffsetCommitRequestPartition(partition_index=number, committed_offset=1)
        body = OffsetCommitRequest(
            group_id=GROUP, generation_id_or_member_epoch=epoch, member_id=member.member_id,
            topics=(OffsetCommitRequestTopic(name=TOPIC, partitions=(part,)),),
        )  # fmt: skip
        return ErrorCode(self.ask(body, 9, self.at).topics[0].partitions[0].error_code)

    def member(self, name: str = "m1", **fields: Any) -> Member:
        """Return a member that has joined alone and owns all."""
        member = Member(self, name)
        assert member.join(**fields).error_code == E.NONE
        member.reconcile()
        return member

    def two(self) -> tuple[Member, Member]:
        """Return two members that share the partitions."""
        first, second = self.member(), Member(self, "m2")
        second.join()
        self.reconcile(first, second)
        assert len(first.owned) == len(second.owned) == PARTITIONS // 2
        return first, second

    def reconcile(self, *members: Member) -> None:
        for _ in range(3):
            for member in members:
                assert member.reconcile().error_code == E.NONE
        assert len({member.epoch for member in members}) == 1

    def restart(self) -> None:
        self.world.crash(broker_peer(self.at), lose_unflushed=False)
        self.run(1_500)
        self.world.start(broker_peer(self.at))
        self.wait(lambda: self.coordinator(GROUP, 0) > 0)
        self.at = self.coordinator(GROUP, 0)
        self.wait(lambda: self.describe().error_code not in {E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS})


# -- members --------------------------------------------------------------------------------------------


def test_a_partition_moves_only_after_its_owner_reports_that_it_is_gone() -> None:
    world = Groups()
    first, second = world.member(), Member(world, "m2")
    assert second.join().member_epoch == 2
    assert second.assigned == frozenset()
    assert first.beat().assignment is not None, "the smaller assignment"
    assert (len(first.assigned), first.epoch, world.describe().group_state) == (2, 1, "Reconciling")
    assert first.beat(topic_partitions=reported(first.owned)).member_epoch == 1, "it still owns all"
    second.beat()
    assert second.assigned == frozenset()
    assert first.reconcile().member_epoch == 2
    second.beat()
    assert second.assigned == first_half(world) - first.owned
    assert world.describe().group_state == "Stable"


def first_half(world: Groups) -> Owned:
    """Return all partitions of the topic, with its id."""
    topic_id = world.broker(world.at).cache.topics[TOPIC].topic_id
    return frozenset((topic_id, number) for number in range(PARTITIONS))


def test_a_lost_reply_is_given_again_to_the_previous_epoch() -> None:
    world = Groups()
    _, loser = world.two()
    Member(world, "m3").join()
    before, owned = loser.epoch, loser.owned
    loser.beat()
    loser.reconcile()
    assert loser.epoch > before
    assert loser.beat(epoch=before, topic_partitions=reported(loser.owned)).member_epoch == loser.epoch
    assert loser.beat(epoch=before).error_code == E.FENCED_MEMBER_EPOCH, "it says nothing of what it owns"
    gone = owned - loser.owned
    assert len(gone) == 1
    assert loser.beat(epoch=before, topic_partitions=reported(gone)).error_code == E.FENCED_MEMBER_EPOCH


def test_a_fenced_member_joins_again_with_epoch_0() -> None:
    world = Groups()
    first, second = world.two()
    assert first.beat(epoch=first.epoch + 1).error_code == E.FENCED_MEMBER_EPOCH
    epoch = second.epoch
    assert first.join().member_epoch == epoch
    assert first.assigned | second.assigned == first_half(world)
    assert world.describe().group_epoch == epoch


def test_a_session_that_expires_removes_the_member() -> None:
    world = Groups()
    first, second = world.two()
    world.run(SESSION_MS - 1_000)
    first.beat()
    world.run(2_000)
    assert second.beat().error_code == E.UNKNOWN_MEMBER_ID
    assert world.describe().group_state == "Assigning"
    first.reconcile()
    first.reconcile()
    assert first.owned == first_half(world)


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    world = Groups()
    first, second = world.member(), Member(world, "m2")
    second.join()
    first.beat()
    for _ in range(3):
        world.run(REBALANCE_MS // 4)
        assert first.beat(topic_partitions=reported(first.owned)).error_code == E.NONE
        second.beat()
    world.run(REBALANCE_MS // 2)
    assert first.beat(topic_partitions=reported(first.owned)).error_code == E.UNKNOWN_MEMBER_ID
    second.beat()
    assert second.assigned == first_half(world)


def test_a_static_member_keeps_its_assignment_for_its_next_life() -> None:
    world = Groups()
    static = Member(world, "m1", "i")
    static.join()
    static.reconcile()
    assert Member(world, "m2", "i").join().error_code == E.UNRELEASED_INSTANCE_ID
    assert static.leave(-2).member_epoch == -2
    again = Member(world, "m3", "i")
    assert again.join().error_code == E.NONE
    assert (again.epoch, again.assigned) == (static.epoch, first_half(world))
    assert static.beat(instance_id="i").error_code == E.FENCED_INSTANCE_ID
    assert static.beat().error_code == E.UNKNOWN_MEMBER_ID


def test_a_return_that_is_refused_leaves_the_static_member_as_it_was() -> None:
    world = Groups()
    static, again = Member(world, "m1", "i"), Member(world, "m2", "i")
    static.join()
    static.leave(-2)
    assert again.join(subscribed_topic_regex="[").error_code == E.INVALID_REGULAR_EXPRESSION
    group = world.broker(world.at).groups.groups[GROUP].consumer
    assert group is not None
    assert {(each.member_id, each.epoch) for each in group.members.values()} == {("m1", -2)}
    world.run(SESSION_MS + 1_000)
    assert world.describe().group_state == "Empty"


def test_a_group_that_is_full_admits_no_other_member() -> None:
    world = Groups(group_consumer_max_size=1)
    member = world.member()
    assert Member(world, "m2").join().error_code == E.GROUP_MAX_SIZE_REACHED
    assert member.beat().error_code == E.NONE


def test_a_client_of_version_0_gets_a_member_id() -> None:
    world = Groups()
    body = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_names=(TOPIC,), topic_partitions=()
    )
    replies = [world.ask(body, 0, world.at) for _ in range(2)]
    assert [each.error_code for each in replies] == [0, 0]
    assert len({each.member_id for each in replies} - {""}) == 2
    assert len(world.ask(ConsumerGroupDescribeRequest(group_ids=(GROUP,)), 0, world.at).groups[0].members) == 2


# -- topics ---------------------------------------------------------------------------------------------


def test_new_partitions_and_deleted_topics_change_the_assignment() -> None:
    world = Groups()
    member = world.member()
    wanted = (CreatePartitionsTopic(name=TOPIC, count=PARTITIONS + 1, assignments=None),)
    world.ask(CreatePartitionsRequest(topics=wanted, timeout_ms=2_000), 3, world.at)
    world.wait(lambda: member.reconcile() and len(member.owned) == PARTITIONS + 1)
    epoch = member.epoch
    world.create("unrelated")
    member.reconcile()
    assert member.epoch == epoch
    world.ask(DeleteTopicsRequest(topic_names=(TOPIC,), timeout_ms=2_000), 5, world.at)
    world.wait(lambda: member.reconcile() and not member.owned)


def test_a_pattern_matches_topics_that_are_created_later() -> None:
    world = Groups()
    member = Member(world, "m1")
    assert member.join(subscribed_topic_regex="[").error_code == E.INVALID_REGULAR_EXPRESSION
    assert world.describe().error_code == E.GROUP_ID_NOT_FOUND
    assert member.join(subscribed_topic_regex="u.*").error_code == E.NONE
    assert member.assigned == frozenset()
    world.create("u1", 2)
    world.wait(lambda: member.reconcile() and len(member.owned) == 2)
    world.restart()
    assert member.reconcile().member_epoch == member.epoch
    member.beat(subscribed_topic_regex="", subscribed_topic_names=(TOPIC,))
    member.reconcile()
    assert member.reconcile().error_code == E.NONE
    assert member.owned == first_half(world)
    assert world.broker(world.at).groups.groups[GROUP].consumer.patterns == {}  # type: ignore[union-attr]


# -- offsets --------------------------------------------------------------------------------------------


def test_a_member_that_is_behind_commits_what_it_still_owns() -> None:
    """KIP-1251: not what another member may have got since, nor what it got itself only later."""
    world = Groups()
    first, second = world.two()
    kept = next(number for _, number in first.owned)
    gone = next(number for _, number in second.owned)
    assert [world.commit(first, epoch, kept) for epoch in (0, 1, 2, 3)] == [
        E.STALE_MEMBER_EPOCH, E.NONE, E.NONE, E.STALE_MEMBER_EPOCH,
    ]  # fmt: skip
    assert world.commit(first, 1, gone) is E.STALE_MEMBER_EPOCH
    second.leave()
    world.reconcile(first)
    assert [world.commit(first, epoch, gone) for epoch in (1, 2, 3)] == [
        E.STALE_MEMBER_EPOCH, E.STALE_MEMBER_EPOCH, E.NONE,
    ]  # fmt: skip


# -- what is written ------------------------------------------------------------------------------------


def test_a_step_that_cannot_be_written_changes_nothing() -> None:
    world = Groups(brokers=2)
    first = world.member()
    before = world.describe()
    follower = next(each for each in world.broker_ids if each != world.at)
    world.world.crash(broker_peer(follower), lose_unflushed=False)
    world.run(3_000)
    assert Member(world, "m2").join().error_code == E.COORDINATOR_NOT_AVAILABLE
    assert first.beat().error_code == E.NONE, "a heartbeat without changes needs no record"
    assert world.describe() == before
    world.run(SESSION_MS + 5_000)
    assert world.describe() == before, "nor can the session expire"
    world.world.start(broker_peer(follower))
    world.run(SESSION_MS)  # the sessions begin again with the new leader epoch of the partition
    world.wait(lambda: world.describe().group_state == "Empty")
    assert first.beat().error_code == E.UNKNOWN_MEMBER_ID


def test_no_response_shows_what_is_not_committed() -> None:
    world = Groups(brokers=2, replica_lag_time_max_ms=60_000)
    first = world.member()
    before = world.describe()
    follower = next(each for each in world.broker_ids if each != world.at)
    world.world.crash(broker_peer(follower), lose_unflushed=False)
    second = Member(world, "m2")
    assert second.join().error_code == E.COORDINATOR_NOT_AVAILABLE
    assert first.beat().error_code == E.COORDINATOR_NOT_AVAILABLE, "it would show the new assignment"
    assert world.describe() == before
    world.world.start(broker_peer(follower))
    world.wait(lambda: world.describe().group_epoch == 2)
    assert {each.member_id for each in world.describe().members} == {"m1", "m2"}


def test_a_restart_restores_the_group() -> None:
    world = Groups()
    first, second = world.two()
    third = Member(world, "m3")
    third.join()
    first.beat()
    before = world.describe()
    world.restart()
    world.wait(lambda: world.describe().error_code == E.NONE)
    assert world.describe() == before
    world.reconcile(first, second, third)
    assert first.owned | second.owned | third.owned == first_half(world)


def test_a_deleted_group_does_not_return() -> None:
    world = Groups()
    member = world.member()
    delete = DeleteGroupsRequest(groups_names=(GROUP,))
    assert world.ask(delete, 2, world.at).results[0].error_code == E.NON_EMPTY_GROUP
    member.leave()
    assert world.ask(delete, 2, world.at).results[0].error_code == E.NONE
    for _ in range(2):
        assert world.describe().error_code == E.GROUP_ID_NOT_FOUND
        assert world.ask(ListGroupsRequest(), 5, world.at).groups == ()
        world.restart()
    assert world.member().epoch == 1


def test_an_empty_group_changes_its_protocol() -> None:
    world = Groups(group_min_session_timeout_ms=500)
    member = world.member()
    world.commit(member, member.epoch)
    member.leave()
    body = JoinGroupRequest(group_id=GROUP, session_timeout_ms=1_000, protocol_type="consumer", protocols=())
    assert world.ask(body, 9, world.at).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    world.restart()
    assert [each.group_type for each in world.ask(ListGroupsRequest(), 5, world.at).groups] == ["classic"]
    assert world.member().epoch == 1
    world.restart()
    assert [each.group_type for each in world.ask(ListGroupsRequest(), 5, world.at).groups] == ["consumer"]


def test_level_0_of_group_version_serves_no_consumer_groups() -> None:
    world = Simulated(group_version=0)
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = world.ask(request, 4)
    served = {each.api_key: each.max_version for each in answer.api_keys}
    assert {68, 69}.isdisjoint(served)
    assert served[9] == 8
    assert "group.version" not in {each.name for each in answer.finalized_features}


# -- drawn runs -----------------------------------------------------------------------------------------


class Life:
    """Members that join, lose replies, leave and return; after each step no partition may have two owners."""

    def __init__(self, world: Groups, random: Random) -> None:
        self.world, self.random = world, random
        self.members: list[Member] = []
        self._count = 0
        self.steps: list[Callable[[], None]] = [self.join, self.leave, self.lose, self.beat, self.beat, self.beat]

    def join(self) -> None:
        if len(self.members) < 4:
            self._count += 1
            member = Member(self.world, f"m{self._count}", self.random.choice([None, f"i{self._count}"]))
            assert member.join(server_assignor=self.random.choice(["uniform", "range", None])).error_code == E.NONE
            self.members.append(member)

    def leave(self) -> None:
        if self.members:
            member = self.members.pop(self.random.randrange(len(self.members)))
            is_static = member.instance_id is not None
            member.leave(-2 if is_static and self.random.random() < 0.7 else -1)
            if is_static and self.random.random() < 0.7:
                self._count += 1
                self.members.append(Member(self.world, f"m{self._count}", member.instance_id))
                self.members[-1].join()

    def lose(self) -> None:
        """Send a heartbeat whose reply is lost: the member goes on as before."""
        if self.members:
            member = self.random.choice(self.members)
            self.world.beat(member.member_id, member.epoch, topic_partitions=reported(member.owned))

    def beat(self) -> None:
        if self.members:
            member = self.random.choice(self.members)
            if self.random.random() < 0.7:
                member.owned &= member.assigned
            if member.beat(topic_partitions=reported(member.owned)).error_code != E.NONE:
                assert member.join().error_code == E.NONE

    def check(self) -> None:
        owned = [part for member in self.members for part in member.owned]
        assert len(owned) == len(set(owned)), "a partition has two owners"


@pytest.mark.parametrize("seed", range(8))
def test_no_partition_has_two_owners_and_all_are_owned_in_the_end(seed: int) -> None:
    life = Life(Groups(), Random(seed))
    for number in range(60):
        life.random.choice(life.steps)()
        life.check()
        if number % 20 == 19:
            life.world.restart()
    life.join()
    for _ in range(6):
        for member in life.members:
            life.check()
            if member.reconcile().error_code != E.NONE:
                member.join()
        life.world.run(SESSION_MS // 3)
    assert {part for member in life.members for part in member.owned} == first_half(life.world)
    assert life.world.describe().group_state == "Stable"
