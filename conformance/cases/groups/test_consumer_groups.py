"""Consumer groups (KIP-848): member epochs, assignments by the broker, and exclusive ownership of partitions."""

from dataclasses import replace

import pytest

from highwater.conformance.cases.support.admin import need_feature
from highwater.conformance.cases.support.committed_offsets import commit, committed_part
from highwater.conformance.cases.support.consumer_members import (
    JOIN,
    LEAVE,
    LEAVE_TEMPORARILY,
    ConsumerGroup,
    ConsumerMember,
    owned_topics,
    topic_id,
)
from highwater.conformance.cases.support.members import GroupDriver
from highwater.conformance.clause import clause, era, sweep
from highwater.conformance.client.broker import Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, decrement, defect, increment, without_error
from highwater.conformance.expectations import expect, only
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from highwater.reference.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DescribedGroup,
)
from highwater.reference.wire.messages.groups import DescribeGroupsRequest, JoinGroupRequest, ListGroupsRequest

PARTITIONS = 4
PATTERNS_RESOLVED_S = 30.0
"""Apache Kafka searches for matching topics every ten seconds."""
ERROR = "error_code"


@pytest.fixture
def group(cluster: Cluster) -> ConsumerGroup:
    broker = cluster.connect()
    broker.version_of(ConsumerGroupHeartbeatRequest)
    need_feature(broker, "group.version", 1)
    return ConsumerGroup(cluster, cluster.create_topic(partitions=PARTITIONS))


def reconcile_all(cluster: Cluster, *members: ConsumerMember) -> None:
    """Send heartbeats until each partition has one owner and all members have the same epoch."""

    def once() -> bool:
        for member in members:
            member.reconcile()
        owned = [part for member in members for part in member.owned]
        whole = len(owned) == PARTITIONS == len(set(owned)) and all(member.owned for member in members)
        return whole and len({member.epoch for member in members}) == 1

    cluster.eventually(f"{PARTITIONS} partitions to be owned by {len(members)} members", once)


def moved_partition(cluster: Cluster, group: ConsumerGroup) -> tuple[ConsumerMember, int, ConsumerMember]:
    """Return a member that owned all, its epoch at that time, and the member that got half of it since."""
    first, second = group.joined_member(), group.member()
    reconcile_all(cluster, first)
    before = first.epoch
    second.join()
    reconcile_all(cluster, first, second)
    return first, before, second


def commit_as(member: ConsumerMember, group: ConsumerGroup, number: int, epoch: int) -> int:
    """Commit offset 1 of a partition of the group's topic; return the error code."""
    topic = replace(group.topics[0], partition=number)
    return commit(member.broker, group.name, topic, 1, generation=epoch, member_id=member.member_id, version=9)


@clause("GRP-21", "join")
@sweep(ConsumerGroupHeartbeatRequest)
@defect(
    Reply(ConsumerGroupHeartbeatRequest, "member_epoch", 0),
    Reply(ConsumerGroupHeartbeatRequest, "assignment", None),
    Reply(ConsumerGroupHeartbeatRequest, "member_id", "another"),
)
def test_epoch_0_joins_and_is_assigned_all(cluster: Cluster, group: ConsumerGroup, version: int) -> None:
    member = group.member()
    reply = member.join(version)
    expect("error code and member id", (0, member.member_id), (reply.error_code, reply.member_id))
    expect("there is an epoch and an interval", True, reply.member_epoch > 0 and reply.heartbeat_interval_ms > 0)
    reconcile_all(cluster, member)
    wanted = topic_id(member.broker, group.topics[0])
    expect("assignment", True, member.owned == {(wanted, number) for number in range(PARTITIONS)})


@clause("GRP-21", "quiet")
@defect(Reply(ConsumerGroupHeartbeatRequest, "member_epoch", increment))
def test_a_heartbeat_without_change_keeps_the_epoch(cluster: Cluster, group: ConsumerGroup) -> None:
    member = group.joined_member()
    reconcile_all(cluster, member)
    before = member.epoch
    for _ in range(3):
        reply = member.heartbeat()
        expect("error code and epoch", (0, before), (reply.error_code, reply.member_epoch))
        expect("assignment when nothing has changed", None, reply.assignment)


@clause("GRP-54", "newer")
@defect(Reply(ConsumerGroupHeartbeatRequest, ERROR, without_error(ErrorCode.FENCED_MEMBER_EPOCH)))
def test_an_epoch_that_is_not_yet_is_fenced(group: ConsumerGroup) -> None:
    member = group.joined_member()
    expect("error code", ErrorCode.FENCED_MEMBER_EPOCH, member.heartbeat(member_epoch=member.epoch + 10).error_code)


@clause("GRP-54", "older")
@pytest.mark.slow
@defect(Reply(ConsumerGroupHeartbeatRequest, ERROR, without_error(ErrorCode.FENCED_MEMBER_EPOCH)))
def test_an_epoch_long_ago_is_fenced(cluster: Cluster, group: ConsumerGroup) -> None:
    first = group.joined_member()
    old = first.epoch
    reconcile_all(cluster, first)
    for _ in range(2):
        other = group.joined_member()
        reconcile_all(cluster, first, other)
        other.heartbeat(member_epoch=LEAVE)
        reconcile_all(cluster, first)
    expect(
        "error code", ErrorCode.FENCED_MEMBER_EPOCH, first.heartbeat(member_epoch=old, topic_partitions=()).error_code
    )


@clause("GRP-54", "again")
@era("4.3")  # older coordinators fence epoch 0, too, once the member has another previous epoch (KAFKA-19233)
@pytest.mark.slow
@defect(
    Reply(ConsumerGroupHeartbeatRequest, ERROR, ErrorCode.FENCED_MEMBER_EPOCH),
    Reply(ConsumerGroupHeartbeatRequest, "assignment", None),
)
def test_a_member_that_was_fenced_joins_again(cluster: Cluster, group: ConsumerGroup) -> None:
    member, other = group.joined_member(), group.member()
    reconcile_all(cluster, member)
    other.join()
    reconcile_all(cluster, member, other)
    before, owned = member.epoch, member.owned
    fenced = member.heartbeat(member_epoch=before + 10)
    expect("error code with an epoch ahead", ErrorCode.FENCED_MEMBER_EPOCH, fenced.error_code)
    reply = member.join()
    expect("error code and epoch with epoch 0", (0, before), (reply.error_code, reply.member_epoch))
    expect("assignment with epoch 0", sorted(owned), sorted(member.assigned if reply.assignment else ()))
    expect("error code of the other member, whose epoch stays", 0, other.heartbeat(member_epoch=before).error_code)


@clause("GRP-54", "previous")
@pytest.mark.slow
@defect(Reply(ConsumerGroupHeartbeatRequest, ERROR, ErrorCode.FENCED_MEMBER_EPOCH))
def test_the_previous_epoch_is_accepted_with_partitions_of_the_member(cluster: Cluster, group: ConsumerGroup) -> None:
    """The reply with the newer epoch may be lost; the list of partitions shows that the member has none too many."""
    member, other = group.joined_member(), group.member()
    reconcile_all(cluster, member)
    before, had = member.epoch, member.owned
    other.join()
    reconcile_all(cluster, member, other)
    expect("the epoch has changed", True, member.epoch > before)
    newest, fenced = member.epoch, ErrorCode.FENCED_MEMBER_EPOCH
    for what, parts, expected in (
        ("partitions that it lacks", had - member.owned, (fenced, 0)),
        ("its partitions", member.owned, (0, newest)),
        ("no partitions", set(), (0, newest)),
    ):
        reply = member.heartbeat(member_epoch=before, topic_partitions=owned_topics(parts))
        expect(f"error code and epoch with {what}", expected, (reply.error_code, reply.member_epoch))
    expect("error code without a list", fenced, member.heartbeat(member_epoch=before).error_code)


@clause("GRP-55")
@defect(Reply(ConsumerGroupHeartbeatRequest, ERROR, without_error(ErrorCode.UNKNOWN_MEMBER_ID)))
def test_a_stranger_with_an_epoch_is_unknown(group: ConsumerGroup) -> None:
    group.joined_member()
    expect("error code", ErrorCode.UNKNOWN_MEMBER_ID, group.member().heartbeat(member_epoch=1).error_code)


@clause("GRP-56", "leave")
@defect(Reply(ConsumerGroupHeartbeatRequest, "member_epoch", 1))
def test_epoch_minus_1_leaves(group: ConsumerGroup) -> None:
    member = group.joined_member()
    before = member.epoch
    reply = member.heartbeat(member_epoch=LEAVE)
    expect("error code and epoch", (0, LEAVE), (reply.error_code, reply.member_epoch))
    expect("error code after leaving", ErrorCode.UNKNOWN_MEMBER_ID, member.heartbeat(member_epoch=before).error_code)
    described = group.describe()
    # A broker may delete an empty group without offsets at once; Apache Kafka does at its next check.
    allowed = {(0, "Empty"), (int(ErrorCode.GROUP_ID_NOT_FOUND), "")}
    expect("error code and state", allowed, (int(described.error_code), described.group_state))


@clause("GRP-57", "one owner")
@pytest.mark.slow
@defect(Request(ConsumerGroupHeartbeatRequest, "topic_partitions", ()))
def test_a_partition_is_given_only_when_its_owner_has_let_go(cluster: Cluster, group: ConsumerGroup) -> None:
    first = group.joined_member()
    reconcile_all(cluster, first)
    second = group.joined_member()

    def owner_must_revoke() -> bool:
        expect("error code of the new member", 0, second.report_owned(second.assigned).error_code)
        expect("error code of the owner, which has not revoked yet", 0, first.report_owned(first.owned).error_code)
        expect("partitions of the new member", 0, len(second.assigned))
        return len(first.assigned) < PARTITIONS

    cluster.eventually("an assignment of fewer partitions", owner_must_revoke)
    expect("error code of the new member", 0, second.report_owned(set()).error_code)
    expect("partitions of the new member", 0, len(second.assigned))
    reconcile_all(cluster, first, second)


@clause("GRP-57", "all owned")
@pytest.mark.slow
@defect(Reply(ConsumerGroupHeartbeatRequest, "assignment", None))
def test_two_members_come_to_share_all(cluster: Cluster, group: ConsumerGroup) -> None:
    first = group.joined_member()
    reconcile_all(cluster, first)
    second = group.joined_member()
    reconcile_all(cluster, first, second)
    expect("both members own partitions", True, bool(first.owned) and bool(second.owned))


@clause("GRP-57", "left")
@pytest.mark.slow
@defect(Request(ConsumerGroupHeartbeatRequest, "member_epoch", lambda epoch: max(epoch, JOIN)))
def test_what_one_leaves_the_other_gets(cluster: Cluster, group: ConsumerGroup) -> None:
    first = group.joined_member()
    reconcile_all(cluster, first)
    second = group.joined_member()
    reconcile_all(cluster, first, second)
    second.heartbeat(member_epoch=LEAVE)
    reconcile_all(cluster, first)


@clause("GRP-58")
@pytest.mark.parametrize(
    "fields",
    [
        {"rebalance_timeout_ms": -1},
        {"subscribed_topic_names": None},
        {"topic_partitions": None},
        {"group_id": ""},
        {"member_id": ""},
        {"member_epoch": -3},
        {"instance_id": ""},
        {"rack_id": ""},
    ],
    ids=lambda fields: "".join(fields).replace("_", " "),
)
@defect(Reply(ConsumerGroupHeartbeatRequest, ERROR, without_error(ErrorCode.INVALID_REQUEST)))
def test_a_join_that_lacks_something_is_refused(group: ConsumerGroup, fields: dict[str, object]) -> None:
    member = group.member()
    version = member.broker.version_of(ConsumerGroupHeartbeatRequest, 1)
    expect("error code", ErrorCode.INVALID_REQUEST, member.join(version, **fields).error_code)


@clause("GRP-59")
@pytest.mark.parametrize("name", ["uniform", "range"])
@defect(Reply(ConsumerGroupHeartbeatRequest, ERROR, ErrorCode.UNSUPPORTED_ASSIGNOR))
def test_the_assignor_may_be_chosen(group: ConsumerGroup, name: str) -> None:
    group.joined_member(server_assignor=name)
    expect("assignor", name, group.describe().assignor_name)


@clause("GRP-59", "unknown")
@defect(Reply(ConsumerGroupHeartbeatRequest, ERROR, without_error(ErrorCode.UNSUPPORTED_ASSIGNOR)))
def test_an_unknown_assignor_is_refused(group: ConsumerGroup) -> None:
    expect("error code", ErrorCode.UNSUPPORTED_ASSIGNOR, group.member().join(server_assignor="unknown").error_code)


# -- static members ------------------------------------------------------------------------------------


@clause("GRP-60", "taken")
@defect(Reply(ConsumerGroupHeartbeatRequest, ERROR, without_error(ErrorCode.UNRELEASED_INSTANCE_ID)))
def test_an_instance_in_use_is_not_given_away(group: ConsumerGroup) -> None:
    group.joined_member(instance_id="i")
    expect("error code", ErrorCode.UNRELEASED_INSTANCE_ID, group.member().join(instance_id="i").error_code)


@clause("GRP-60", "back")
@pytest.mark.slow
@defect(Reply(ConsumerGroupHeartbeatRequest, "assignment", None))
def test_an_instance_that_left_for_a_while_gets_back_what_it_had(cluster: Cluster, group: ConsumerGroup) -> None:
    first, other = group.joined_member(instance_id="i"), group.member()
    reconcile_all(cluster, first)
    other.join()
    reconcile_all(cluster, first, other)
    left = first.heartbeat(member_epoch=LEAVE_TEMPORARILY, instance_id="i")
    expect("error code and epoch of leaving", (0, LEAVE_TEMPORARILY), (left.error_code, left.member_epoch))
    back = group.joined_member(instance_id="i")
    expect("assignment", True, back.assigned == first.owned)


# -- subscriptions -------------------------------------------------------------------------------------


@clause("GRP-61", "names")
@defect(Request(ConsumerGroupHeartbeatRequest, "subscribed_topic_names", ("nowhere",)))
def test_a_subscription_may_change(cluster: Cluster, group: ConsumerGroup) -> None:
    member, other = group.joined_member(), cluster.create_topic()
    reconcile_all(cluster, member)
    member.heartbeat(subscribed_topic_names=(other.name,))
    wanted = {(topic_id(member.broker, other), 0)}

    def changed() -> bool:
        member.reconcile()
        return member.owned == wanted

    cluster.eventually("an assignment of only the other topic's partition", changed)


@clause("GRP-61", "pattern")
@pytest.mark.slow
@defect(Request(ConsumerGroupHeartbeatRequest, "subscribed_topic_regex", "nowhere"))
def test_a_pattern_subscribes_to_what_it_matches(cluster: Cluster, group: ConsumerGroup) -> None:
    member = group.member()
    version = member.broker.version_of(ConsumerGroupHeartbeatRequest, 1)
    pattern = group.topics[0].name[:-1] + "[0-9]"
    reply = member.join(version, subscribed_topic_names=(), subscribed_topic_regex=pattern)
    expect("error code", 0, reply.error_code)

    def assigned() -> bool:
        member.reconcile()
        return len(member.owned) == PARTITIONS

    cluster.eventually("an assignment of the partitions of the matching topic", assigned, PATTERNS_RESOLVED_S)


@clause("GRP-61", "bad pattern")
@defect(Reply(ConsumerGroupHeartbeatRequest, ERROR, without_error(ErrorCode.INVALID_REGULAR_EXPRESSION)))
def test_a_pattern_that_is_none_is_refused(group: ConsumerGroup) -> None:
    member = group.member()
    version = member.broker.version_of(ConsumerGroupHeartbeatRequest, 1)
    expect(
        "error code", ErrorCode.INVALID_REGULAR_EXPRESSION, member.join(version, subscribed_topic_regex="[").error_code
    )


# -- offsets -------------------------------------------------------------------------------------------


@clause("OFF-10", "commit")
@defect(Reply(OffsetCommitRequest, "topics.partitions.error_code", without_error(ErrorCode.STALE_MEMBER_EPOCH)))
def test_a_commit_of_another_epoch_is_stale(group: ConsumerGroup) -> None:
    member, topic = group.joined_member(), group.topics[0]
    fields = {"member_id": member.member_id, "version": 9}
    stale = commit(member.broker, group.name, topic, 1, generation=member.epoch + 1, **fields)  # type: ignore[arg-type]
    expect("error code in another epoch", ErrorCode.STALE_MEMBER_EPOCH, stale)
    good = commit(member.broker, group.name, topic, 1, generation=member.epoch, **fields)  # type: ignore[arg-type]
    expect("error code in the current epoch", 0, good)


@clause("OFF-10", "behind")
@era("4.3")  # KIP-1251
@pytest.mark.slow
@defect(Reply(OffsetCommitRequest, "topics.partitions.error_code", ErrorCode.STALE_MEMBER_EPOCH))
def test_a_member_that_is_behind_commits_what_it_has_kept(cluster: Cluster, group: ConsumerGroup) -> None:
    """It learns of an epoch only from its next heartbeat, and may commit before that."""
    first, before, _ = moved_partition(cluster, group)
    for number in sorted(number for _, number in first.owned):
        for epoch in (before, first.epoch):
            error = commit_as(first, group, number, epoch)
            expect(f"error code of partition {number} in epoch {epoch} of {first.epoch}", 0, error)


@clause("OFF-10", "former owner")
@pytest.mark.slow
@defect(Reply(OffsetCommitRequest, "topics.partitions.error_code", without_error(ErrorCode.STALE_MEMBER_EPOCH)))
def test_a_former_owner_cannot_commit_what_has_moved(cluster: Cluster, group: ConsumerGroup) -> None:
    """Otherwise it would set back the offset of the new owner; nor may it when it has the partition again."""
    first, before, second = moved_partition(cluster, group)
    moved = min(number for _, number in second.owned)
    error = commit_as(first, group, moved, before)
    expect("error code of the former owner", ErrorCode.STALE_MEMBER_EPOCH, error)
    between = first.epoch
    second.heartbeat(member_epoch=LEAVE)
    reconcile_all(cluster, first)
    for epoch in (before, between):
        error = commit_as(first, group, moved, epoch)
        expect(f"error code of its owner again, in epoch {epoch}", ErrorCode.STALE_MEMBER_EPOCH, error)
    expect("error code in its epoch", 0, commit_as(first, group, moved, first.epoch))


@clause("OFF-10", "fetch")
@defect(Reply(OffsetFetchRequest, "groups.error_code", 0))
def test_a_fetch_of_another_epoch_is_stale(group: ConsumerGroup) -> None:
    member = group.joined_member()
    version = member.broker.version_of(OffsetFetchRequest, 9)
    topics = (OffsetFetchRequestTopics(name=group.topics[0].name, partition_indexes=(0,)),)
    for step, error in ((0, 0), (1, ErrorCode.STALE_MEMBER_EPOCH)):
        requested = OffsetFetchRequestGroup(
            group_id=group.name, member_id=member.member_id, member_epoch=member.epoch + step, topics=topics
        )
        reply = only(member.broker.call(OffsetFetchRequest(groups=(requested,)), version).groups)
        expect(f"error code with the epoch plus {step}", error, reply.error_code)


@clause("OFF-10", "stranger")
@defect(Reply(OffsetCommitRequest, "topics.partitions.error_code", without_error(ErrorCode.UNKNOWN_MEMBER_ID)))
def test_a_commit_of_a_stranger_to_a_consumer_group_is_refused(group: ConsumerGroup) -> None:
    member, topic = group.joined_member(), group.topics[0]
    error = commit(member.broker, group.name, topic, 1, generation=member.epoch, member_id="unknown", version=9)
    expect("error code", ErrorCode.UNKNOWN_MEMBER_ID, error)


# -- descriptions ----------------------------------------------------------------------------------------


@clause("GRP-62", "describe")
@sweep(ConsumerGroupDescribeRequest)
@defect(
    Reply(ConsumerGroupDescribeRequest, "groups.members.assignment.topic_partitions", ()),
    Reply(ConsumerGroupDescribeRequest, "groups.group_epoch", decrement),
    Reply(ConsumerGroupDescribeRequest, "groups.members.subscribed_topic_names", ()),
)
def test_a_consumer_group_is_described(cluster: Cluster, group: ConsumerGroup, version: int) -> None:
    member = group.joined_member()
    reconcile_all(cluster, member)

    def poll() -> DescribedGroup | None:
        """The broker learns that the member owns its assignment from the next heartbeat."""
        found = only(member.broker.call(ConsumerGroupDescribeRequest(group_ids=(group.name,)), version).groups)
        return None if member.heartbeat().error_code == 0 and found.group_state == "Reconciling" else found

    found = cluster.eventually("a group that is not reconciling", poll)
    expect("error code and state", (0, "Stable"), (found.error_code, found.group_state))
    expect("epochs", (member.epoch, member.epoch), (found.group_epoch, found.assignment_epoch))
    reported = only(found.members)
    expect("id and epoch of the member", (member.member_id, member.epoch), (reported.member_id, reported.member_epoch))
    expect("subscription", (group.topics[0].name,), reported.subscribed_topic_names)
    expect("partitions", tuple(range(PARTITIONS)), tuple(sorted(only(reported.assignment.topic_partitions).partitions)))


@clause("GRP-62", "unknown")
@defect(Reply(ConsumerGroupDescribeRequest, "groups.error_code", 0))
def test_a_consumer_group_that_is_none_is_not_found(cluster: Cluster, group: ConsumerGroup) -> None:
    expect("error code", ErrorCode.GROUP_ID_NOT_FOUND, group.describe().error_code)
    classic = GroupDriver(cluster, group.name)
    classic.stable_member()
    expect("error code for a classic group", ErrorCode.GROUP_ID_NOT_FOUND, group.describe().error_code)


@clause("GRP-62", "list")
@defect(Reply(ListGroupsRequest, "groups.group_type", "classic"))
def test_a_consumer_group_is_listed_with_its_type(group: ConsumerGroup) -> None:
    broker = group.joined_member().broker
    version = broker.version_of(ListGroupsRequest, 5)
    found = {
        listed_group.group_id: listed_group
        for listed_group in broker.call(ListGroupsRequest(types_filter=("consumer",)), version).groups
    }
    expect("listed", True, group.name in found)
    reported = found[group.name]
    expect("types", ("consumer", "consumer"), (reported.group_type.lower(), reported.protocol_type))


@clause("GRP-62", "classic describe")
@defect(Reply(DescribeGroupsRequest, "groups.group_state", "Stable"))
def test_a_consumer_group_is_no_classic_group(group: ConsumerGroup) -> None:
    broker = group.joined_member().broker
    version = broker.version_of(DescribeGroupsRequest, 6)
    found = only(broker.call(DescribeGroupsRequest(groups=(group.name,)), version).groups)
    expect("error code and state", (ErrorCode.GROUP_ID_NOT_FOUND, "Dead"), (found.error_code, found.group_state))


# -- both protocols in one group -------------------------------------------------------------------------


@clause("GRP-63")
@defect(Reply(JoinGroupRequest, ERROR, without_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)))
def test_a_classic_member_that_is_no_consumer_stays_out(cluster: Cluster, group: ConsumerGroup) -> None:
    group.joined_member()
    driver = GroupDriver(cluster, group.name)
    version = driver.connect().version_of(JoinGroupRequest)
    reply = driver.connect().call(driver.join_request(protocol_type="connect"), version)
    expect("error code", ErrorCode.INCONSISTENT_GROUP_PROTOCOL, reply.error_code)


@clause("GRP-64")
@defect(Reply(OffsetFetchRequest, "groups.topics.partitions.committed_offset", increment))
def test_offsets_outlive_the_change_of_protocol(cluster: Cluster, group: ConsumerGroup, topic: Topic) -> None:
    broker = group.connect()
    expect("error code of the commit", 0, commit(broker, group.name, topic, 42))
    group.joined_member()
    found = committed_part(broker, group.name, topic)
    expect("offset", 42, found.committed_offset)
