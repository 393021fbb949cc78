"""Share groups: membership, and records that several members acquire, acknowledge and release (KIP-932)."""

from dataclasses import replace
from typing import Any

import pytest

from highwater.conformance.cases.support.share_members import (
    ACCEPT,
    LEAVE,
    REJECT,
    RELEASE,
    RENEW,
    ShareGroup,
    ShareMember,
)
from highwater.conformance.cases.support.transactions import ABORT, COMMIT, Transactional
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import Topic, batch, records_of
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.requests import message
from highwater.conformance.defects import Reply, Request, defect
from highwater.conformance.expectations import expect, only
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)

LOCK_MS = 1500
DELIVERIES = 5
RECORD_LIMIT = 1
ACQUIRED = "responses.partitions.acquired_records"


@pytest.fixture
def group(cluster: Cluster, topic: Topic) -> ShareGroup:
    return ShareGroup(cluster, topic)


@pytest.fixture
def shared(cluster: Cluster) -> ShareGroup:
    """Return a group with one partition: every member gets it."""
    return ShareGroup(cluster, cluster.create_topic())


def write(group: ShareGroup, *values: bytes) -> None:
    with group.cluster.leader(group.topic) as leader:
        expect("error code of Produce", 0, leader.produce(group.topic, batch(*values)).error_code)


def error(code: int) -> Any:
    return Reply(ShareGroupHeartbeatRequest, "error_code", code)


# -- membership ------------------------------------------------------------------------------------------


@clause("SHR-1")
@defect(Reply(ShareGroupHeartbeatRequest, "assignment", None))
def test_each_member_gets_the_only_partition(cluster: Cluster, shared: ShareGroup) -> None:
    members = [shared.member(), shared.member()]
    for member in members:
        reply = member.join()
        expect("error code", 0, reply.error_code)
        expect("member id", member.member_id, reply.member_id)
        expect("epoch and interval are positive", True, min(reply.member_epoch, reply.heartbeat_interval_ms) > 0)
    for member in members:
        cluster.eventually("the partition", member.gets_assigned)


@clause("SHR-2")
@defect(error(0))
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"subscribed_topic_names": None}, id="no topics"),
        pytest.param({"member_id": ""}, id="no member id"),
        pytest.param({"group_id": ""}, id="no group id"),
    ],
)
def test_a_join_without_what_it_needs_is_refused(group: ShareGroup, fields: dict[str, Any]) -> None:
    expect("error code", ErrorCode.INVALID_REQUEST, group.member().join(**fields).error_code)


@clause("SHR-3")
@defect(error(0))
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID, id="unknown member"),
        pytest.param({"member_epoch": 1 << 20}, ErrorCode.FENCED_MEMBER_EPOCH, id="newer epoch"),
    ],
)
def test_a_heartbeat_of_an_unknown_member_or_epoch_is_refused(
    group: ShareGroup, fields: dict[str, Any], expected: int
) -> None:
    member = group.reader()
    expect("error code", expected, member.heartbeat(**fields).error_code)


@clause("SHR-4")
@defect(Reply(ShareGroupHeartbeatRequest, "member_epoch", 0))
def test_a_member_leaves(cluster: Cluster, shared: ShareGroup) -> None:
    first, second = shared.reader(), shared.reader()
    reply = second.heartbeat(member_epoch=LEAVE)
    expect("error code and epoch", {(0, LEAVE)}, (reply.error_code, reply.member_epoch))
    cluster.eventually(
        "the other member alone", lambda: [each.member_id for each in shared.describe().members] == [first.member_id]
    )
    second.epoch = 1
    expect("error code of its next heartbeat", ErrorCode.UNKNOWN_MEMBER_ID, second.heartbeat().error_code)


@clause("SHR-5")
@defect(Reply(ShareGroupDescribeRequest, "groups.members.member_epoch", -1))
def test_a_group_is_described(cluster: Cluster, topic: Topic, group: ShareGroup) -> None:
    member = group.reader()

    def described() -> Any:
        """Return the member as soon as the group knows the epoch and the assignment that the member has."""
        member.heartbeat()
        found = group.describe()
        seen = only(found.members)
        is_stable = found.group_state == "Stable" and seen.member_epoch == member.epoch
        return seen if is_stable and seen.assignment.topic_partitions else None

    seen = cluster.eventually("a stable group", described)
    expect("member id", member.member_id, seen.member_id)
    expect("topics", {(topic.name,)}, tuple(seen.subscribed_topic_names))
    assigned = {(each.topic_id, part) for each in seen.assignment.topic_partitions for part in each.partitions}
    expect("the assignment is the member's", True, assigned == member.assigned)


@clause("SHR-5", "unknown group")
@defect(Reply(ShareGroupDescribeRequest, "groups.error_code", 0))
def test_an_unknown_group_is_not_described(group: ShareGroup) -> None:
    expect("error code", ErrorCode.GROUP_ID_NOT_FOUND, group.describe().error_code)


# -- sessions --------------------------------------------------------------------------------------------


@clause("SHR-6")
@defect(Reply(ShareFetchRequest, "error_code", 0))
def test_a_session_that_was_not_opened_is_not_found(group: ShareGroup) -> None:
    member = group.member()
    expect("error code of the join", 0, member.join().error_code)
    expect("error code", ErrorCode.SHARE_SESSION_NOT_FOUND, member.fetch(share_session_epoch=3).error_code)


@clause("SHR-6", "order")
@defect(Reply(ShareFetchRequest, "error_code", 0))
@pytest.mark.parametrize("step", [-1, 1], ids=["repeated", "skipped"])
def test_the_epochs_of_a_session_have_no_gap(group: ShareGroup, step: int) -> None:
    member = group.reader()
    member.fetch()
    wrong = member.fetch(share_session_epoch=member.session_epoch + step)
    expect("error code", ErrorCode.INVALID_SHARE_SESSION_EPOCH, wrong.error_code)


@clause("SHR-6", "acknowledgements")
@defect(Reply(ShareAcknowledgeRequest, "error_code", 0))
def test_acknowledgements_count_in_the_session(group: ShareGroup) -> None:
    member = group.reader()
    write(group, b"a")
    member.acquire(0)
    error = member.acknowledge([(0, 0, ACCEPT)], share_session_epoch=member.session_epoch + 1)
    expect("error code", ErrorCode.INVALID_SHARE_SESSION_EPOCH, error)


# -- records ---------------------------------------------------------------------------------------------


@clause("SHR-7")
@defect(Reply(ShareFetchRequest, ACQUIRED, ()), Reply(ShareFetchRequest, f"{ACQUIRED}.delivery_count", 2))
def test_records_are_acquired_with_their_content(group: ShareGroup) -> None:
    member = group.reader()
    write(group, b"a", b"b")
    found = member.acquire(0)
    expect("delivery counts", True, found.counts == {0: 1, 1: 1})
    expect("values", True, [record.value for record in records_of(found.records)] == [b"a", b"b"])
    expect("the lock ends", True, found.lock_ms > 0)


@clause("SHR-7", "other member")
@defect(Reply(ShareFetchRequest, ACQUIRED, ()))
def test_an_acquired_record_is_not_given_to_another_member(shared: ShareGroup) -> None:
    first, second = shared.reader(), shared.reader()
    write(shared, b"a")
    first.acquire(0)
    write(shared, b"b")
    expect("delivery counts of the other member", True, second.acquire(1).counts == {1: 1})


@clause("SHR-8", "accepted")
@defect(Request(ShareAcknowledgeRequest, "topics.partitions.acknowledgement_batches.acknowledge_types", (RELEASE,)))
@pytest.mark.parametrize("kind", [ACCEPT, REJECT], ids=["accept", "reject"])
def test_what_is_accepted_or_rejected_is_not_delivered_again(shared: ShareGroup, kind: int) -> None:
    first, second = shared.reader(), shared.reader()
    write(shared, b"a", b"b")
    first.acquire(0)
    expect("error code", 0, first.acknowledge([(0, 0, kind), (1, 1, RELEASE)]))
    expect("delivery counts", True, second.acquire(1).counts == {1: 2})


@clause("SHR-8", "released")
@defect(Request(ShareAcknowledgeRequest, "topics.partitions.acknowledgement_batches.acknowledge_types", (ACCEPT,)))
def test_what_is_released_is_delivered_again_and_counted(shared: ShareGroup) -> None:
    first, second = shared.reader(), shared.reader()
    write(shared, b"a", b"b", b"c")
    first.acquire(0)
    expect("error code", 0, first.acknowledge([(0, 0, ACCEPT), (1, 2, RELEASE)]))
    found = second.acquire(1)
    expect("delivery counts", True, found.counts == {1: 2, 2: 2})


@clause("SHR-8", "with the next fetch")
@defect(Request(ShareFetchRequest, "topics.partitions.acknowledgement_batches.acknowledge_types", (ACCEPT,)))
def test_a_fetch_can_acknowledge(shared: ShareGroup) -> None:
    first, second = shared.reader(), shared.reader()
    write(shared, b"a")
    first.acquire(0)
    answer = first.fetch([(0, 0, RELEASE)], max_records=0, max_bytes=0)
    expect("error codes", {(0, 0)}, (answer.error_code, answer.acknowledge_error))
    first.close_session()
    expect("the record is delivered again", True, second.acquire(0).counts[0] >= 2)


INVALID = [
    pytest.param((0, 0, ACCEPT), ErrorCode.INVALID_RECORD_STATE, id="of another member"),
    pytest.param((7, 9, ACCEPT), {ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST}, id="not written"),
    pytest.param((1, 0, ACCEPT), ErrorCode.INVALID_REQUEST, id="reversed"),
    pytest.param((1, 1, 9), ErrorCode.INVALID_REQUEST, id="unknown type"),
]


@clause("SHR-9")
@defect(Reply(ShareAcknowledgeRequest, "responses.partitions.error_code", 0))
@pytest.mark.parametrize(("ack", "expected"), INVALID)
def test_an_acknowledgement_of_what_is_not_held_is_refused(
    shared: ShareGroup, ack: tuple[int, int, int], expected: object
) -> None:
    first, second = shared.reader(), shared.reader()
    write(shared, b"a")
    first.acquire(0)
    write(shared, b"b")
    second.acquire(1)
    expect("error code", expected, second.acknowledge([ack]))
    expect("error code of the holder's own", 0, first.acknowledge([(0, 0, ACCEPT)]))


@clause("SHR-10")
@defect(Reply(ShareFetchRequest, f"{ACQUIRED}.delivery_count", 1))
@pytest.mark.slow
def test_a_lock_ends_and_the_record_is_delivered_again(cluster: Cluster) -> None:
    shared = ShareGroup(cluster, cluster.create_topic(), share_record_lock_duration_ms=str(LOCK_MS))
    first, second = shared.reader(), shared.reader()
    write(shared, b"a")
    expect("lock in ms", LOCK_MS, first.acquire(0).lock_ms)
    expect("delivery counts", True, second.acquire(0).counts == {0: 2})
    expect("error code of a late acknowledgement", ErrorCode.INVALID_RECORD_STATE, first.acknowledge([(0, 0, ACCEPT)]))


@clause("SHR-11")
@defect(Request(ShareAcknowledgeRequest, "topics.partitions.acknowledgement_batches.acknowledge_types", (ACCEPT,)))
def test_a_record_is_delivered_a_limited_number_of_times(group: ShareGroup) -> None:
    member = group.reader()
    write(group, b"a")
    for delivery in range(1, DELIVERIES + 1):
        expect("delivery count", delivery, member.acquire(0).counts[0])
        expect("error code of the release", 0, member.acknowledge([(0, 0, RELEASE)]))
    write(group, b"b")
    expect("delivery counts", True, member.acquire(1).counts == {1: 1})


@clause("SHR-12")
@defect(Request(ShareFetchRequest, "share_session_epoch", lambda epoch: max(epoch, 0)))
def test_the_end_of_a_session_releases_its_records(shared: ShareGroup) -> None:
    first, second = shared.reader(), shared.reader()
    write(shared, b"a")
    first.acquire(0)
    first.close_session()
    expect("the record is delivered again", True, 0 in second.acquire(0).counts)


@clause("SHR-13")
@defect(Request(ShareFetchRequest, "group_id", lambda group: f"{group}x"))
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_new_group_begins_where_it_is_configured(cluster: Cluster, topic: Topic, reset: str) -> None:
    group = ShareGroup(cluster, topic, reset=reset)
    write(group, b"before")
    member = group.member()
    expect("error code of the join", 0, member.join().error_code)
    cluster.eventually("an assignment", member.gets_assigned)
    member.fetch()
    write(group, b"after")
    member.acquire(1)
    expect("offsets delivered", True, member.delivered == ({0, 1} if reset == "earliest" else {1}))


@clause("SHR-14")
@defect(Reply(ShareFetchRequest, ACQUIRED, lambda found: tuple(replace(each, last_offset=3) for each in found)))
def test_a_strict_limit_of_records_is_kept(cluster: Cluster, group: ShareGroup) -> None:
    member = group.reader()
    member.leader.need(ShareFetchRequest, 2)
    write(group, b"a", b"b", b"c", b"d")

    def poll() -> Any:
        found = member.fetch(max_records=2, batch_size=2, share_acquire_mode=RECORD_LIMIT)
        return found if found.counts else None

    found = cluster.eventually("records", poll)
    expect("offsets acquired", {(0, 1)}, tuple(sorted(found.counts)))


@clause("SHR-15")
@defect(Request(ShareAcknowledgeRequest, "is_renew_ack", False))
@pytest.mark.slow
def test_a_lock_is_renewed(cluster: Cluster) -> None:
    shared = ShareGroup(cluster, cluster.create_topic(), share_record_lock_duration_ms=str(2 * LOCK_MS))
    first, second = shared.reader(), shared.reader()
    first.leader.need(ShareAcknowledgeRequest, 2)
    write(shared, b"a")
    first.acquire(0)
    expect("error code of the renewal", 0, first.acknowledge([(0, 0, RENEW)], is_renew_ack=True))
    expect("error code of the acknowledgement", 0, first.acknowledge([(0, 0, ACCEPT)]))
    write(shared, b"b")
    expect("delivery counts of the other member", True, second.acquire(1).counts == {1: 1})


@clause("SHR-16")
@defect(Request(ShareFetchRequest, "group_id", lambda group: f"{group}x"))
def test_a_committed_reader_skips_aborted_records(cluster: Cluster, topic: Topic, producer: Transactional) -> None:
    group = ShareGroup(cluster, topic, share_isolation_level="read_committed")
    member = group.reader()
    for value, outcome in ((b"x", ABORT), (b"y", COMMIT)):
        producer.begin(topic)
        producer.write(topic, 0 if outcome == ABORT else 1, value)
        producer.end(commit=outcome)
    member.acquire(2)
    expect("offsets of records acquired", True, member.delivered & {0, 2} == {2})


# -- offsets of the group --------------------------------------------------------------------------------


def start_offset(group: ShareGroup) -> tuple[int, int]:
    """Return error code and start offset of the group's partition."""
    topic = [group.topic.name, [group.topic.partition]]
    request = message(DescribeShareGroupOffsetsRequest, groups=[[group.name, [topic]]])
    with group.cluster.coordinator(group.name) as broker:
        found = only(only(only(broker.call(request).groups).topics).partitions)
    return found.error_code, found.start_offset


def alter_offset(group: ShareGroup, offset: int) -> int:
    part = [group.topic.partition, offset]
    topic = [group.topic.name, [part]]
    with group.cluster.coordinator(group.name) as broker:
        reply = broker.call(message(AlterShareGroupOffsetsRequest, group_id=group.name, topics=[topic]))
    return int(reply.error_code or only(only(reply.responses).partitions).error_code)


def delete_offset(group: ShareGroup) -> int:
    topic = group.topic.name
    with group.cluster.coordinator(group.name) as broker:
        reply = broker.call(message(DeleteShareGroupOffsetsRequest, group_id=group.name, topics=[topic]))
    return int(reply.error_code or only(reply.responses).error_code)


def leave(member: ShareMember) -> None:
    """Leave and disconnect: until then Apache Kafka's leaders keep what they know of the group."""
    member.close_session()
    expect("error code of leaving", 0, member.heartbeat(member_epoch=LEAVE).error_code)
    member.leader.close()
    member.coordinator.close()


@clause("SHR-17")
@defect(Reply(DescribeShareGroupOffsetsRequest, "groups.topics.partitions.start_offset", 4))
def test_the_start_of_a_group_stays_before_what_is_not_done(cluster: Cluster, group: ShareGroup) -> None:
    """It may lag behind what is done: Apache Kafka stores it with the next change."""
    member = group.reader()
    write(group, b"a", b"b", b"c", b"d")
    member.acquire(0)
    expect("error code", 0, member.acknowledge([(0, 1, ACCEPT), (2, 3, RELEASE)]))
    expect("error code and start offset", {(0, 0), (0, 1), (0, 2)}, start_offset(group))
    member.acquire(2)
    expect("error code", 0, member.acknowledge([(2, 2, ACCEPT)]))
    cluster.eventually("a start offset of 1 to 3", lambda: start_offset(group) in {(0, 1), (0, 2), (0, 3)})


@clause("SHR-18")
@defect(Request(AlterShareGroupOffsetsRequest, "topics.partitions.start_offset", 0))
def test_the_start_of_an_empty_group_is_moved(group: ShareGroup) -> None:
    write(group, b"a", b"b", b"c")
    leave(group.reader())
    expect("error code", 0, alter_offset(group, 2))
    expect("error code and start offset", {(0, 2)}, start_offset(group))
    expect("offsets delivered", True, set(reopened(group).counts) == {2})


def reopened(group: ShareGroup) -> Any:
    """Return what a new member acquires first."""
    member = group.member()
    expect("error code of the join", 0, member.join().error_code)
    group.cluster.eventually("an assignment", member.gets_assigned)

    def poll() -> Any:
        found = member.fetch()
        return found if found.counts else None

    return group.cluster.eventually("records", poll)


@clause("SHR-18", "members")
@defect(Reply(AlterShareGroupOffsetsRequest, "error_code", 0), Reply(DeleteShareGroupOffsetsRequest, "error_code", 0))
def test_the_offsets_of_a_group_with_members_stay(group: ShareGroup) -> None:
    group.reader()
    expect("error code of the change", ErrorCode.NON_EMPTY_GROUP, alter_offset(group, 1))
    expect("error code of the deletion", ErrorCode.NON_EMPTY_GROUP, delete_offset(group))


@clause("SHR-19")
@defect(Reply(DeleteShareGroupOffsetsRequest, "responses.error_code", ErrorCode.UNKNOWN_SERVER_ERROR))
def test_the_offsets_of_an_empty_group_are_deleted(group: ShareGroup) -> None:
    member = group.reader()
    write(group, b"a", b"b")
    member.acquire(0)
    expect("error code", 0, member.acknowledge([(0, 1, ACCEPT)]))
    leave(member)
    expect("error code of the deletion", 0, delete_offset(group))
    expect("offsets delivered again", True, set(reopened(group).counts) == {0, 1})
