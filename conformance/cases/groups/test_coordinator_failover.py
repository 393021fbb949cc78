"""The state of a group after its coordinator has changed: offsets, generations, members and pending transactions."""

from typing import Any

import pytest

from highwater.conformance.cases.groups.test_static_members import static_pair
from highwater.conformance.cases.support.committed_offsets import (
    commit,
    committed_offset,
    committed_part,
    offsets_partition,
    settled,
)
from highwater.conformance.cases.support.members import GroupDriver, Member
from highwater.conformance.cases.support.replicas import FAILOVER_S, await_isr, needing_all_replicas
from highwater.conformance.cases.support.transactions import ABORT, COMMIT, Transactional
from highwater.conformance.clause import clause, era
from highwater.conformance.client.broker import Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import GuardOff, Reply, Request, decrement, defect, increment, without_error
from highwater.conformance.expectations import expect, only
from highwater.conformance.targets.base import PAUSE_NODE, STOP_NODE
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
)
from highwater.reference.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)

pytestmark = [pytest.mark.cluster_fault, pytest.mark.slow]

NONE = -1
ANSWERS = 50
"""Replies without an error that are compared right after a failover: an older offset is shown for milliseconds."""
EPOCH_SINCE = 6
LONG_MS = 300_000
"""A rebalance timeout that is never over in a case: only the session timeout may remove a member."""
OFFSET = "groups.topics.partitions.committed_offset"


@pytest.fixture
def topic(cluster: Cluster) -> Topic:
    """Return a topic with three partitions on nodes that can be stopped."""
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    return cluster.create_topic(partitions=3, replicas=3)


@pytest.fixture
def driver(cluster: Cluster, group: str, topic: Topic) -> GroupDriver:
    return GroupDriver(cluster, group)


def change_coordinator(cluster: Cluster, group: str) -> None:
    """Stop the coordinator of a group, so that another broker loads it."""
    address = cluster.coordinator(group).address
    cluster.stop(next(node for node, known in cluster.target.addresses.items() if known == address))


@clause("OFF-11")
@defect(Reply(OffsetFetchRequest, OFFSET, decrement))
def test_a_committed_offset_outlives_the_coordinator(cluster: Cluster, group: str, topic: Topic) -> None:
    expect("error code of the commit", 0, commit(cluster.coordinator(group), group, topic, 42))
    change_coordinator(cluster, group)
    coordinator = cluster.coordinator(group)
    offset = settled(cluster, lambda: committed_offset(coordinator, group, topic), 42)
    expect("offset at the next coordinator", 42, offset)


@clause("GRP-27")
@defect(Reply(SyncGroupRequest, "assignment", b""), Reply(HeartbeatRequest, "error_code", 25))
def test_an_assignment_outlives_the_coordinator(cluster: Cluster, driver: GroupDriver) -> None:
    member = driver.stable_member(session_timeout_ms=30_000)
    change_coordinator(cluster, driver.group)
    again = Member(driver, driver.connect(), member.member_id, member.generation)
    expect("error code of a heartbeat", 0, again.heartbeat_error())
    answer = again.sync()
    expect("error code and assignment", (0, b"a"), (answer.error_code, answer.assignment))


@clause("GRP-28")
@defect(
    GuardOff("PersistStaticRejoin"), Reply(HeartbeatRequest, "error_code", without_error(ErrorCode.FENCED_INSTANCE_ID))
)
def test_the_new_id_of_a_static_member_outlives_the_coordinator(cluster: Cluster, driver: GroupDriver) -> None:
    fields = {"instance": "i", "session_timeout_ms": 30_000}
    old = driver.stable_member(**fields)
    new, _ = driver.join(**fields)
    change_coordinator(cluster, driver.group)
    for member, error in ((new, 0), (old, ErrorCode.FENCED_INSTANCE_ID)):
        again = Member(driver, driver.connect(), member.member_id, member.generation, instance="i")
        expect("error code of a heartbeat", error, again.heartbeat_error())


@clause("GRP-16", "not stored")
@defect(Reply(HeartbeatRequest, "error_code", ErrorCode.FENCED_INSTANCE_ID))
def test_a_static_member_stays_if_its_next_id_cannot_be_stored(cluster: Cluster, driver: GroupDriver) -> None:
    """Its log needs more in-sync replicas than are there (GroupCoordinator.updateStaticMemberAndRebalance)."""
    fields = {"instance": "i", "session_timeout_ms": 30_000}
    member = driver.stable_member(**fields)
    stored = offsets_partition(cluster, driver.group)
    await_isr(cluster, stored, 3)
    away = next(node for node, address in cluster.target.addresses.items() if address != member.broker.address)
    with needing_all_replicas(cluster, stored.name):
        cluster.stop(away)
        await_isr(cluster, stored, 2)
        _, joined = driver.join(**fields)
        expect("whether the join failed", True, joined.error_code != 0)
        expect("error code of a heartbeat", {0, ErrorCode.COORDINATOR_NOT_AVAILABLE}, member.heartbeat_error())
        cluster.start(away)
        await_isr(cluster, stored, 3)
    expect("error code of a heartbeat later", 0, member.heartbeat_error())


@clause("GRP-16", "failover")
@defect(Reply(HeartbeatRequest, "error_code", without_error(ErrorCode.FENCED_INSTANCE_ID)))
def test_a_static_member_that_was_replaced_in_a_rebalance_is_fenced(cluster: Cluster, driver: GroupDriver) -> None:
    """Its new id is stored only with the next generation: until a process joins, the next coordinator may know the old.

    `MCEagerRebalance_static_failover` reaches this, and Apache Kafka does it; a note of the case says what was seen.
    """
    fields: dict[str, Any] = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": LONG_MS}
    old, _ = static_pair(driver, **fields)
    driver.send_join(instance="i3", **fields)
    old.await_rebalance()
    driver.send_join(instance="i1", **fields)  # the follower has not joined yet, so no generation begins
    expect_fenced(cluster, old)
    change_coordinator(cluster, driver.group)
    again = Member(driver, driver.connect(), old.member_id, old.generation, instance="i1")
    beat = ErrorCode(again.heartbeat_error())
    cluster.notes.append(f"a heartbeat of the replaced member gets {beat.name} from the next coordinator")
    driver.send_join(instance="i1", **fields)
    expect_fenced(cluster, again)


def expect_fenced(cluster: Cluster, member: Member) -> None:
    fenced = ErrorCode.FENCED_INSTANCE_ID
    cluster.eventually(f"{fenced.name} to a heartbeat", lambda: member.heartbeat_error() == fenced)


@clause("GRP-28", "after leaving")
@defect(Reply(JoinGroupRequest, "error_code", ErrorCode.FENCED_INSTANCE_ID))
def test_a_static_member_that_left_joins_the_next_coordinator(cluster: Cluster, driver: GroupDriver) -> None:
    fields = {"instance": "i", "session_timeout_ms": 30_000}
    left = driver.stable_member(**fields)
    expect("error code of leaving", 0, left.leave_error())
    change_coordinator(cluster, driver.group)
    member = driver.stable_member(**fields)
    expect("a new member id", True, member.member_id != left.member_id)
    expect("members", [member.member_id], [each.member_id for each in driver.describe().members])


@clause("GRP-50", "failover")
@era("4.0")  # older coordinators answer before the deletion is replicated (GroupMetadataManager.cleanupGroupMetadata)
@defect(Reply(OffsetFetchRequest, OFFSET, 5))
def test_offsets_of_a_deleted_group_do_not_return(cluster: Cluster, group: str, topic: Topic) -> None:
    parts = [cluster.topic(topic.name, partition=index) for index in range(3)]
    coordinator = cluster.coordinator(group)
    for part in parts:
        expect("error code of the commit", 0, commit(coordinator, group, part, 5))
    deleted = coordinator.call(DeleteGroupsRequest(groups_names=(group,)))
    expect("error code of DeleteGroups", 0, only(deleted.results).error_code)
    change_coordinator(cluster, group)
    with cluster.coordinator(group) as next_coordinator:
        found = settled(
            cluster, lambda: [committed_offset(next_coordinator, group, part) for part in parts], [NONE] * 3
        )
    expect(f"offsets at the next coordinator: {found}", True, found == [NONE] * 3)


@clause("OFF-11", "not replicated")
@defect(Reply(OffsetFetchRequest, OFFSET, 6))
def test_an_offset_is_not_returned_before_it_is_replicated(cluster: Cluster, group: str, topic: Topic) -> None:
    """While all other replicas are paused, the coordinator cannot know that the offset would survive its failure."""
    cluster.need(PAUSE_NODE)
    coordinator = cluster.coordinator(group)
    expect("error code of the first commit", 0, commit(coordinator, group, topic, 5))
    version = coordinator.version_of(OffsetCommitRequest)
    for node, address in cluster.target.addresses.items():
        if address != coordinator.address:
            cluster.pause(node)
    part = OffsetCommitRequestPartition(partition_index=topic.partition, committed_offset=6)
    requested = (OffsetCommitRequestTopic(name=topic.name, partitions=(part,)),)
    coordinator.send(OffsetCommitRequest(group_id=group, topics=requested), version)
    with cluster.connect(coordinator.address) as other:
        expect("offset while the commit is not answered", 5, committed_offset(other, group, topic))


@clause("OFF-11", "epoch and metadata")
@defect(
    Reply(OffsetFetchRequest, "groups.topics.partitions.committed_leader_epoch", NONE),
    Reply(OffsetFetchRequest, "groups.topics.partitions.metadata", ""),
)
def test_all_of_a_committed_offset_is_loaded(cluster: Cluster, group: str, topic: Topic) -> None:
    with cluster.coordinator(group) as coordinator:
        coordinator.version_of(OffsetFetchRequest, EPOCH_SINCE)
        expect("error code of the commit", 0, commit(coordinator, group, topic, 5, metadata="m", epoch=3))
    change_coordinator(cluster, group)
    with cluster.coordinator(group) as next_coordinator:

        def loaded() -> tuple[int, int, str | None]:
            found = committed_part(next_coordinator, group, topic)
            return found.committed_offset, found.committed_leader_epoch, found.metadata

        expected: tuple[int, int, str | None] = (5, 3, "m")
        expect("offset, epoch and metadata", expected, settled(cluster, loaded, expected))


@clause("OFF-22")
@defect(Reply(OffsetFetchRequest, OFFSET, NONE))
def test_the_next_coordinator_returns_no_older_offset(cluster: Cluster, group: str, topic: Topic) -> None:
    """A leader that is alone in the ISR knows at once what is committed, so the ISR must be complete before."""
    stored = offsets_partition(cluster, group)
    await_isr(cluster, stored, 3)
    with cluster.coordinator(group) as coordinator:
        expect("error code of the commit", 0, commit(coordinator, group, topic, 5))
    cluster.stop(stored.leader_id)
    with cluster.coordinator(group) as next_coordinator:

        def known() -> int | None:
            found = committed_part(next_coordinator, group, topic)
            return None if found.error_code else found.committed_offset

        for number in range(1, ANSWERS + 1):
            offset = cluster.eventually("an answer without an error", known, FAILOVER_S)
            expect(f"offset in answer {number} of the next coordinator", 5, offset)


@clause("GRP-10", "failover")
@defect(Reply(JoinGroupRequest, "generation_id", increment))
def test_the_generations_of_an_empty_group_continue(cluster: Cluster, driver: GroupDriver) -> None:
    topic = cluster.create_topic()
    member = driver.stable_member()
    member.rejoin()
    expect("error code of the sync", 0, member.sync({member.member_id: b"a"}).error_code)
    error = commit(
        member.broker, driver.group, topic, 1, generation=member.generation, member_id=member.member_id
    )  # Apache Kafka stores an empty group only with its offsets, and deletes it at the next check without them
    expect("error code of the commit", 0, error)
    expect("error code of leaving", 0, member.leave_error())
    cluster.eventually("an empty group", lambda: driver.state() == "Empty")
    emptied = member.generation + 1
    change_coordinator(cluster, driver.group)
    again = driver.stable_member()
    expect("generation is not one of those before", {emptied, emptied + 1}, again.generation)


@clause("GRP-14", "failover")
@defect(Reply(DescribeGroupsRequest, "groups.group_state", "Stable"))
def test_a_static_member_expires_at_the_next_coordinator(cluster: Cluster, driver: GroupDriver) -> None:
    session_ms = driver.session_ms(2_000)
    driver.stable_member(instance="i", session_timeout_ms=session_ms, rebalance_timeout_ms=LONG_MS)
    change_coordinator(cluster, driver.group)
    cluster.eventually("an empty group", lambda: driver.state() in ("Empty", "Dead"), 20 + session_ms / 1000)


@clause("GRP-27", "second generation")
@defect(Reply(SyncGroupRequest, "assignment", b"first"))
def test_the_newest_assignment_outlives_the_coordinator(cluster: Cluster, driver: GroupDriver) -> None:
    member = driver.stable_member(session_timeout_ms=30_000)
    for assignment in (b"first", b"second"):
        member.rejoin()
        expect("error code of the sync", 0, member.sync({member.member_id: assignment}).error_code)
    change_coordinator(cluster, driver.group)
    again = Member(driver, driver.connect(), member.member_id, member.generation)
    answer = again.sync()
    expect("error code and assignment", (0, b"second"), (answer.error_code, answer.assignment))


@clause("OFF-7", "failover")
@pytest.mark.parametrize("commits", [COMMIT, ABORT], ids=["commit", "abort"])
@defect(
    Request(OffsetFetchRequest, "require_stable", False),
    Reply(OffsetFetchRequest, "groups.topics.partitions.error_code", without_error(ErrorCode.UNSTABLE_OFFSET_COMMIT)),
)
def test_an_open_transaction_stays_pending_at_the_next_coordinator(
    cluster: Cluster, group: str, topic: Topic, commits: bool
) -> None:
    with cluster.coordinator(group) as coordinator:
        version = coordinator.version_of(OffsetFetchRequest, 7)
        expect("error code of the plain commit", 0, commit(coordinator, group, topic, 5))
    producer = Transactional.initialize(cluster)
    producer.add_offsets(group)
    expect("error code of the commit", 0, producer.commit_offset(group, topic, 42))
    change_coordinator(cluster, group)

    def stable_offset() -> tuple[int, int]:
        with cluster.coordinator(group) as broker:
            part = committed_part(broker, group, topic, version, require_stable=True)
        return part.error_code, part.committed_offset

    expect("error code while the transaction is open", ErrorCode.UNSTABLE_OFFSET_COMMIT, stable_offset()[0])
    with cluster.coordinator(group) as broker:
        loose = committed_part(broker, group, topic, version)
    expect("offset without require_stable", 5, loose.committed_offset)
    producer.reconnect().end(commit=commits)
    expected = (0, 42 if commits else 5)
    cluster.eventually(f"error code and offset {expected}", lambda: stable_offset() == expected, 20.0)


@clause("OFF-14", "failover")
@pytest.mark.parametrize("last", [5, 9], ids=["transaction last", "plain last"])
@defect(Reply(OffsetFetchRequest, OFFSET, 42))
def test_the_later_of_two_commits_counts_at_the_next_coordinator(
    cluster: Cluster, group: str, topic: Topic, last: int
) -> None:
    """Offset 5 is committed in a transaction that ends only after the failover, and 9 without one."""
    producer = Transactional.initialize(cluster)
    producer.add_offsets(group)
    with cluster.coordinator(group) as coordinator:
        if last == 5:
            expect("error code of the plain commit", 0, commit(coordinator, group, topic, 9))
        expect("error code of the commit", 0, producer.commit_offset(group, topic, 5))
        if last == 9:
            expect("error code of the plain commit", 0, commit(coordinator, group, topic, 9))
    change_coordinator(cluster, group)
    producer = producer.reconnect()
    producer.end(commit=COMMIT)
    producer.begin(topic)  # succeeds once the commit is complete
    producer.end(commit=ABORT)
    with cluster.coordinator(group) as next_coordinator:
        offset = settled(cluster, lambda: committed_offset(next_coordinator, group, topic), last)
        expect("offset at the next coordinator", last, offset)


@clause("OFF-11", "aborted")
@defect(Reply(OffsetFetchRequest, OFFSET, 42))
def test_an_aborted_offset_is_not_loaded(cluster: Cluster, group: str, topic: Topic) -> None:
    with cluster.coordinator(group) as coordinator:
        expect("error code of the plain commit", 0, commit(coordinator, group, topic, 5))
    producer = Transactional.initialize(cluster)
    producer.add_offsets(group)
    expect("error code of the commit", 0, producer.commit_offset(group, topic, 42))
    producer.end(commit=ABORT)
    producer.begin(topic)  # succeeds once the abort is complete
    producer.end(commit=ABORT)
    change_coordinator(cluster, group)
    with cluster.coordinator(group) as next_coordinator:
        offset = settled(cluster, lambda: committed_offset(next_coordinator, group, topic), 5)
        expect("offset at the next coordinator", 5, offset)
