"""A walk through the life of a consumer group (KIP-848): heartbeats, offsets and descriptions follow a model."""

from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from highwater.conformance import CLIENT_ID
from highwater.conformance.cases.support.committed_offsets import offsets_partition
from highwater.conformance.cases.support.consumer_members import (
    JOIN,
    LEAVE,
    LEAVE_TEMPORARILY,
    ConsumerGroup,
    ConsumerMember,
)
from highwater.conformance.cases.support.group_walks.members import await_coordinator, await_resignation
from highwater.conformance.cases.support.polling import eventually_passes, spread
from highwater.conformance.cases.support.reassignments import move_leader, replicas_of
from highwater.conformance.cases.support.replicas import await_isr
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.requests import message
from highwater.conformance.defects import Reply, defect, increment, without_error
from highwater.conformance.expectations import expect, only
from highwater.conformance.models.comparison import ANYTHING, TEXT, Where, compare
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import OffsetCommitRequest, OffsetFetchRequest
from highwater.reference.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedGroup,
    Member,
)
from highwater.reference.wire.messages.groups import DeleteGroupsRequest, ListGroupsRequest

EPOCHS_SINCE: Final = 9
CONSUMER: Final = 1
EMPTY, STABLE = "Empty", "Stable"


@dataclass(slots=True, eq=False)
class ConsumerModel:
    """A consumer group whose members are all reconciled: one epoch for group, assignment and members."""

    group: str
    topics: tuple[str, ...]
    epoch: int = 0
    members: dict[str, tuple[ConsumerMember, str | None]] = field(default_factory=dict)
    offset: int = -1

    def heartbeat_error(self, member_id: str, epoch: int) -> int:
        """Return the error of a heartbeat with an epoch above 0; the previous epoch is accepted once only."""
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return 0 if epoch == self.epoch else ErrorCode.FENCED_MEMBER_EPOCH

    def commit_error(self, member_id: str, epoch: int) -> int:
        if not self.members and epoch < 0:
            return 0
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return 0 if epoch == self.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def may_be_accepted(self, member_id: str, epoch: int) -> bool:
        """Return whether the broker may accept an older epoch, in which the partition was assigned (KIP-1251)."""
        return member_id in self.members and 0 < epoch < self.epoch

    def described(self) -> DescribedGroup:
        assignor: Any = TEXT
        # Without members nothing is assigned in the newest epoch.
        assigned: Any = self.epoch if self.members else Where("an epoch", lambda epoch: epoch <= self.epoch)
        return DescribedGroup(
            group_id=self.group, group_state=STABLE if self.members else EMPTY, group_epoch=self.epoch,
            assignment_epoch=assigned, assignor_name=assignor,
            members=tuple(self._member(each, instance) for each, instance in self.members.values()),
        )  # fmt: skip

    def _member(self, member: ConsumerMember, instance: str | None) -> Member:
        host: Any = TEXT
        parts = {(topic, number) for topic, number in member.assigned}

        def are_assigned(found: Any) -> bool:
            return {(each.topic_id, number) for each in found.topic_partitions for number in each.partitions} == parts

        assigned: Any = Where(f"the partitions {sorted(number for _, number in parts)}", are_assigned)
        regex: Any = Where("no pattern", lambda value: not value)
        return Member(
            member_id=member.member_id, instance_id=instance, member_epoch=self.epoch, client_id=CLIENT_ID,
            client_host=host, subscribed_topic_names=self.topics, subscribed_topic_regex=regex,
            assignment=assigned, target_assignment=assigned, member_type=CONSUMER,
        )  # fmt: skip


class ConsumerWalk:
    """Sends requests about one consumer group and compares the replies with the model."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.topic = cluster.create_topic(partitions=4)
        self.group = ConsumerGroup(cluster, self.topic)
        self.broker: Broker = self.group.connect()
        self.model = ConsumerModel(self.group.name, (self.topic.name,))

    def join(self, instance: str | None = None) -> ConsumerMember:
        """Let a member join, and all members reconcile until each partition has an owner."""
        member = self.group.member()
        expect("error code of the join", 0, member.join(instance_id=instance).error_code)
        self.model.members[member.member_id] = (member, instance)
        self.reconcile()
        return member

    def reconcile(self) -> None:
        """Report what is assigned until every member has the newest epoch, and take that epoch."""
        members = [member for member, _ in self.model.members.values()]

        def is_reconciled() -> bool:
            for member in members:
                member.reconcile()
            owned = [part for member in members for part in member.assigned]
            epochs = {member.epoch for member in members}
            return len(owned) == len(set(owned)) == 4 and len(epochs) == 1 and max(epochs) > self.model.epoch

        self.cluster.eventually("the assignment of all partitions", is_reconciled)
        self.model.epoch = members[0].epoch
        self.check()

    def move(self) -> None:
        """Let another broker coordinate the group, and connect the members to it."""
        partition = offsets_partition(self.cluster, self.model.group)
        await_isr(self.cluster, partition, len(replicas_of(self.cluster, partition)))
        node = next(each for each in replicas_of(self.cluster, partition) if each != partition.leader_id)
        former, self.broker = (
            self.broker,
            await_coordinator(self.cluster, self.model.group, move_leader(self.cluster, partition, node).leader),
        )
        await_resignation(self.cluster, former, self.model.group)
        request = ConsumerGroupDescribeRequest(group_ids=(self.model.group,))
        found = only(former.call(request).groups).error_code
        expect("error code of ConsumerGroupDescribe at the former coordinator", ErrorCode.NOT_COORDINATOR, found)
        for member, _ in self.model.members.values():
            member.broker = self.group.connect()

    def check(self) -> None:
        """Compare the description, beside an unknown group, the list of groups, and the committed offset."""
        unknown = self.cluster.name("g")
        missing = DescribedGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND, group_id=unknown)
        state: Any = ANYTHING
        for version in spread(self.broker, ConsumerGroupDescribeRequest):
            reply = self.broker.call(ConsumerGroupDescribeRequest(group_ids=(unknown, self.model.group)), version)
            kept = tuple(
                replace(group, error_code=ErrorCode.GROUP_ID_NOT_FOUND)
                if group.group_id == unknown and group.error_code == ErrorCode.NOT_COORDINATOR
                else group
                for group in reply.groups
            )
            expected = ConsumerGroupDescribeResponse(
                groups=(replace(missing, group_state=state), self.model.described())
            )
            compare(f"ConsumerGroupDescribe {version}", expected, replace(reply, groups=kept), version)
        listed = [group for group in self.broker.call(ListGroupsRequest()).groups if group.group_id == self.model.group]
        found = [(group.group_state, group.group_type, group.protocol_type) for group in listed]
        expect("ListGroups", [(STABLE if self.model.members else EMPTY, "consumer", "consumer")], found)
        self.fetch("", -1, 0)

    def check_loaded(self) -> None:
        """Compare all until it is as expected: a new coordinator may show an older state for a moment."""
        eventually_passes(self.cluster, "what the former coordinator knew", self.check)

    def check_deleted(self) -> None:
        described = only(self.broker.call(ConsumerGroupDescribeRequest(group_ids=(self.model.group,))).groups)
        expect("error code of the description", ErrorCode.GROUP_ID_NOT_FOUND, described.error_code)

    def heartbeat(self, member_id: str, epoch: int, version: int) -> None:
        request = ConsumerGroupHeartbeatRequest(group_id=self.model.group, member_id=member_id, member_epoch=epoch)
        error = self.model.heartbeat_error(member_id, epoch)
        interval: Any = ANYTHING if error else Where("an interval", lambda value: value > 0)
        chosen = {"member_id": None, "member_epoch": 0} if error else {"member_id": member_id, "member_epoch": epoch}
        expected = ConsumerGroupHeartbeatResponse(error_code=error, heartbeat_interval_ms=interval, **chosen)
        what = f"ConsumerGroupHeartbeat {version} of {member_id} with {epoch} at {self.model.epoch}"
        compare(what, expected, self.broker.call(request, version), version)

    def commit(self, member_id: str, epoch: int, offset: int, version: int) -> None:
        part = [0, offset]
        request = message(
            OffsetCommitRequest, group_id=self.model.group, member_id=member_id, generation_id_or_member_epoch=epoch,
            topics=[{"name": self.topic.name, "partitions": [part]}],
        )  # fmt: skip
        error = self.model.commit_error(member_id, epoch)
        found = only(only(self.broker.call(request, version).topics).partitions).error_code
        allowed = {0, error} if self.model.may_be_accepted(member_id, epoch) else {error}
        expect(f"OffsetCommit {version} of {member_id} with {epoch} at {self.model.epoch}", allowed, found)
        self.model.offset = self.model.offset if found else offset

    def fetch(self, member_id: str, epoch: int, error: int) -> None:
        """Fetch all offsets as a client without a member id, or as a member."""
        group = {"group_id": self.model.group, "member_id": member_id or None, "member_epoch": epoch, "topics": None}
        found = only(self.broker.call(message(OffsetFetchRequest, groups=[group]), EPOCHS_SINCE).groups)
        offsets = [part.committed_offset for topic in found.topics for part in topic.partitions]
        expected = [] if error or self.model.offset < 0 else [self.model.offset]
        expect(f"OffsetFetch of {member_id} with {epoch}", (error, expected), (found.error_code, offsets))

    def check_refusals(self, *gone: str) -> None:
        """Send heartbeats, commits and fetches with each epoch near the present one, as members and as others."""
        offset = self.model.offset
        for version in spread(self.broker, ConsumerGroupHeartbeatRequest):
            for member_id in (*self.model.members, "unknown", *gone):
                for epoch in (self.model.epoch + 1, self.model.epoch + 2, self.model.epoch):
                    self.heartbeat(member_id, epoch, version)
        for member_id in (*self.model.members, "unknown", *gone):
            for epoch in (self.model.epoch - 1, self.model.epoch, self.model.epoch + 1):
                self.commit(member_id, epoch, offset := offset + 1, EPOCHS_SINCE)
                error = self.model.commit_error(member_id, epoch)
                self.fetch(member_id, epoch, error if self.model.members else ErrorCode.UNKNOWN_MEMBER_ID)
        self.commit("", -1, offset + 1, EPOCHS_SINCE)
        self.check()


@clause("GRP-62", "walk")
@defect(
    Reply(ConsumerGroupDescribeRequest, "groups.members.member_epoch", increment),
    Reply(ConsumerGroupHeartbeatRequest, "error_code", without_error(ErrorCode.FENCED_MEMBER_EPOCH)),
    Reply(OffsetCommitRequest, "topics.partitions.error_code", without_error(ErrorCode.STALE_MEMBER_EPOCH)),
)
def test_a_consumer_group_follows_the_model(cluster: Cluster) -> None:
    """Members join, one with an instance id, leave for good or for a while, and the empty group is deleted."""
    walk = ConsumerWalk(cluster)
    walk.broker.need(OffsetCommitRequest, EPOCHS_SINCE)
    walk.broker.need(OffsetFetchRequest, EPOCHS_SINCE)
    first = walk.join()
    walk.check_refusals()
    static = walk.join("static")
    walk.check_refusals()
    third = walk.join()
    walk.check_refusals()
    expect("epoch of a member that has left", LEAVE, third.heartbeat(member_epoch=LEAVE).member_epoch)
    del walk.model.members[third.member_id]
    walk.reconcile()
    walk.check_refusals(third.member_id)
    taken = walk.group.member().join(instance_id="static")
    expect("error code of a join with the same instance id", ErrorCode.UNRELEASED_INSTANCE_ID, taken.error_code)
    left = static.heartbeat(member_epoch=LEAVE_TEMPORARILY, instance_id="static")
    expect("epoch of a member that leaves for a while", LEAVE_TEMPORARILY, left.member_epoch)
    again = walk.group.member()
    expect("error code of its return", 0, again.join(instance_id="static").error_code)
    expect("its partitions", sorted(static.assigned), sorted(again.assigned))
    expect("its epoch", walk.model.epoch, again.epoch)
    del walk.model.members[static.member_id]
    walk.model.members[again.member_id] = (again, "static")
    walk.check()
    walk.check_refusals(third.member_id)
    for member in (first, again):
        deleted = walk.broker.call(DeleteGroupsRequest(groups_names=(walk.model.group,)))
        expect("error code of DeleteGroups", ErrorCode.NON_EMPTY_GROUP, only(deleted.results).error_code)
        instance = walk.model.members[member.member_id][1]
        expect("epoch", LEAVE, member.heartbeat(member_epoch=LEAVE, instance_id=instance).member_epoch)
        del walk.model.members[member.member_id]
        if walk.model.members:
            walk.reconcile()
    walk.model.epoch += 1
    walk.check()
    deleted = walk.broker.call(DeleteGroupsRequest(groups_names=(walk.model.group,)))
    expect("error code of DeleteGroups", 0, only(deleted.results).error_code)
    walk.check_deleted()
    walk.model.offset = -1
    walk.fetch("", JOIN - 1, 0)


@clause("GRP-62", "moved coordinator")
@pytest.mark.cluster_fault
@pytest.mark.slow
@defect(
    Reply(ConsumerGroupDescribeRequest, "groups.members.instance_id", None),
    Reply(ConsumerGroupHeartbeatRequest, "member_epoch", increment),
    Reply(OffsetCommitRequest, "topics.partitions.error_code", without_error(ErrorCode.STALE_MEMBER_EPOCH)),
)
def test_a_consumer_group_follows_the_model_while_its_coordinator_moves(cluster: Cluster) -> None:
    """Each coordinator continues what the former one began: a return, a rebalance, members that have left."""
    cluster.need_brokers(2)
    walk = ConsumerWalk(cluster)
    walk.broker.need(OffsetCommitRequest, EPOCHS_SINCE)
    walk.broker.need(OffsetFetchRequest, EPOCHS_SINCE)
    first, static = walk.join(), walk.join("static")
    walk.check_refusals()
    left = static.heartbeat(member_epoch=LEAVE_TEMPORARILY, instance_id="static")
    expect("epoch of a member that leaves for a while", LEAVE_TEMPORARILY, left.member_epoch)
    walk.move()
    again = walk.group.member()
    expect("error code of its return", 0, again.join(instance_id="static").error_code)
    expect("partitions and epoch of its return", (static.assigned, walk.model.epoch), (again.assigned, again.epoch))
    del walk.model.members[static.member_id]
    walk.model.members[again.member_id] = (again, "static")
    walk.check_loaded()
    walk.check_refusals(static.member_id)
    third = walk.group.member()
    expect("error code of the join", 0, third.join().error_code)
    walk.model.members[third.member_id] = (third, None)
    walk.move()
    walk.reconcile()
    walk.check_refusals(static.member_id)
    expect("epoch of a member that has left", LEAVE, first.heartbeat(member_epoch=LEAVE).member_epoch)
    del walk.model.members[first.member_id]
    walk.move()
    walk.reconcile()
    walk.check_refusals(static.member_id, first.member_id)
    for member, instance in ((again, "static"), (third, None)):
        expect("epoch", LEAVE, member.heartbeat(member_epoch=LEAVE, instance_id=instance).member_epoch)
    walk.model.members, walk.model.epoch = {}, walk.model.epoch + 2
    walk.move()
    walk.check_loaded()
    deleted = walk.broker.call(DeleteGroupsRequest(groups_names=(walk.model.group,)))
    expect("error code of DeleteGroups", 0, only(deleted.results).error_code)
    walk.move()
    eventually_passes(cluster, "the deletion", walk.check_deleted)
    walk.model.offset = -1
    walk.fetch("", JOIN - 1, 0)
