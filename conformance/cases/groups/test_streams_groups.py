"""Streams groups: the broker divides the tasks of an application of Kafka Streams among its members (KIP-1071)."""

from typing import Any

import pytest

from highwater.conformance.clause import clause
from highwater.conformance.client.broker import Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect
from highwater.conformance.expectations import expect, only
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    Topology,
)

JOIN, LEAVE = 0, -1
SUBTOPOLOGY = "only"
MISSING_SOURCE_TOPICS = 1
PARTITIONS = 3


class StreamsMember:
    """One member, which reports exactly the active tasks that it was assigned."""

    def __init__(self, cluster: Cluster, group: str, topic: str, name: str) -> None:
        self.group, self.topic, self.name = group, topic, name
        self.coordinator = cluster.coordinator(group)
        self.epoch, self.tasks = JOIN, frozenset[int]()

    def heartbeat(self, **fields: Any) -> Any:
        named = {"group_id": self.group, "member_id": self.name, "member_epoch": self.epoch, **fields}
        reply = self.coordinator.call(StreamsGroupHeartbeatRequest(**named))
        if not reply.error_code:
            self.epoch = reply.member_epoch
            if reply.active_tasks is not None:
                self.tasks = frozenset(part for task in reply.active_tasks for part in task.partitions)
        return reply

    def join(self, **fields: Any) -> Any:
        topology = Topology(subtopologies=(Subtopology(subtopology_id=SUBTOPOLOGY, source_topics=(self.topic,)),))
        whole = {
            "member_epoch": JOIN, "topology": topology, "rebalance_timeout_ms": 30_000, "process_id": self.name,
            "active_tasks": (), "standby_tasks": (), "warmup_tasks": (),
        }  # fmt: skip
        return self.heartbeat(**(whole | fields))

    def report(self) -> Any:
        """Send a heartbeat that reports the assigned tasks as owned."""
        owned = (TaskIds(subtopology_id=SUBTOPOLOGY, partitions=tuple(sorted(self.tasks))),) if self.tasks else ()
        return self.heartbeat(active_tasks=owned, standby_tasks=(), warmup_tasks=())


@pytest.fixture
def source(cluster: Cluster) -> Topic:
    return cluster.create_topic(partitions=PARTITIONS)


@pytest.fixture
def group(cluster: Cluster) -> str:
    cluster.connect().version_of(StreamsGroupHeartbeatRequest)
    return cluster.group()


@pytest.fixture
def member(cluster: Cluster, group: str, source: Topic) -> StreamsMember:
    return StreamsMember(cluster, group, source.name, "first")


def describe(cluster: Cluster, group: str) -> Any:
    with cluster.coordinator(group) as broker:
        return only(broker.call(StreamsGroupDescribeRequest(group_ids=(group,))).groups)


def joined(member: StreamsMember) -> StreamsMember:
    expect("error code of the join", 0, member.join().error_code)
    return member


@clause("STR-1")
@defect(Reply(StreamsGroupHeartbeatRequest, "active_tasks", None))
def test_the_only_member_gets_all_tasks(cluster: Cluster, member: StreamsMember) -> None:
    reply = joined(member).heartbeat()
    expect("epoch and interval are positive", True, min(member.epoch, reply.heartbeat_interval_ms) > 0)
    cluster.eventually("all tasks", lambda: member.report() and member.tasks == frozenset(range(PARTITIONS)))


@clause("STR-1", "two members")
@defect(Request(StreamsGroupHeartbeatRequest, "member_id", "first"))
def test_each_task_has_one_member(cluster: Cluster, group: str, source: Topic, member: StreamsMember) -> None:
    joined(member)
    cluster.eventually("all tasks", lambda: member.report() and len(member.tasks) == PARTITIONS)
    second = joined(StreamsMember(cluster, group, source.name, "second"))

    def divided() -> bool:
        """A task is given to the second member only after the first one no longer reports it."""
        for each in (member, second):
            each.report()
            expect("number of tasks of both members", 0, len(member.tasks & second.tasks))
        return bool(second.tasks) and member.tasks | second.tasks == frozenset(range(PARTITIONS))

    cluster.eventually("divided tasks", divided)


@clause("STR-2")
@defect(Reply(StreamsGroupHeartbeatRequest, "error_code", 0))
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"topology": None}, id="no topology"),
        pytest.param({"rebalance_timeout_ms": -1}, id="no timeout"),
        pytest.param({"member_id": ""}, id="no member id"),
        pytest.param({"active_tasks": None}, id="no tasks"),
    ],
)
def test_a_join_without_what_it_needs_is_refused(member: StreamsMember, fields: dict[str, Any]) -> None:
    expect("error code", ErrorCode.INVALID_REQUEST, member.join(**fields).error_code)


@clause("STR-3")
@defect(Reply(StreamsGroupHeartbeatRequest, "error_code", 0))
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"member_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID, id="unknown member"),
        pytest.param({"member_epoch": 1 << 20}, ErrorCode.FENCED_MEMBER_EPOCH, id="newer epoch"),
    ],
)
def test_a_heartbeat_of_an_unknown_member_or_epoch_is_refused(
    member: StreamsMember, fields: dict[str, Any], expected: int
) -> None:
    expect("error code", expected, joined(member).heartbeat(**fields).error_code)


@clause("STR-4")
@defect(Reply(StreamsGroupHeartbeatRequest, "status", None))
def test_missing_sources_are_named(cluster: Cluster, group: str) -> None:
    member = StreamsMember(cluster, group, cluster.name(), "first")
    status = {each.status_code: each.status_detail for each in member.join().status or ()}
    expect("the missing topic is named", True, member.topic in status.get(MISSING_SOURCE_TOPICS, ""))
    expect("state", "NotReady", describe(cluster, group).group_state)


@clause("STR-5")
@defect(
    Reply(StreamsGroupDescribeRequest, "groups.members.member_epoch", -1),
    Reply(StreamsGroupDescribeRequest, "groups.members.assignment.active_tasks", ()),
)
def test_a_group_is_described(cluster: Cluster, group: str, source: Topic, member: StreamsMember) -> None:
    joined(member)

    def described() -> Any:
        member.report()
        found = describe(cluster, group)
        seen = only(found.members)
        tasks = frozenset(part for task in seen.assignment.active_tasks for part in task.partitions)
        is_stable = found.group_state == "Stable" and seen.member_epoch == member.epoch and len(tasks) == PARTITIONS
        return found if is_stable and tasks == member.tasks else None

    found = cluster.eventually("a stable group", described)
    expect("sources", {(source.name,)}, only(found.topology.subtopologies).source_topics)
    expect("process", member.name, only(found.members).process_id)


@clause("STR-5", "unknown group")
@defect(Reply(StreamsGroupDescribeRequest, "groups.error_code", 0))
def test_an_unknown_group_is_not_described(cluster: Cluster, group: str) -> None:
    expect("error code", ErrorCode.GROUP_ID_NOT_FOUND, describe(cluster, group).error_code)


@clause("STR-6")
@defect(Reply(StreamsGroupHeartbeatRequest, "member_epoch", 0))
def test_a_member_leaves_and_the_other_gets_its_tasks(
    cluster: Cluster, group: str, source: Topic, member: StreamsMember
) -> None:
    joined(member)
    second = joined(StreamsMember(cluster, group, source.name, "second"))
    cluster.eventually("tasks of the second", lambda: member.report() and second.report() and bool(second.tasks))
    reply = second.heartbeat(member_epoch=LEAVE)
    expect("error code and epoch", {(0, LEAVE)}, (reply.error_code, reply.member_epoch))
    cluster.eventually("all tasks", lambda: member.report() and len(member.tasks) == PARTITIONS)
    second.epoch = 1
    expect("error code of its next heartbeat", ErrorCode.UNKNOWN_MEMBER_ID, second.heartbeat().error_code)
