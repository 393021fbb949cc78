"""Every request for a coordinator, in every version, to a broker that is not the coordinator."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from highwater.conformance.cases.support.denied_requests import OF_GROUPS, OF_TRANSACTIONS, Names
from highwater.conformance.cases.support.members import GroupDriver
from highwater.conformance.cases.support.transactions import coordinator_of
from highwater.conformance.clause import clause, era
from highwater.conformance.client.broker import Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply
from highwater.conformance.expectations import expect
from highwater.conformance.failures import Unsupported
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from highwater.reference.wire.messages.groups import LeaveGroupRequest, MemberIdentity
from highwater.reference.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from highwater.reference.wire.registry import api_of
from highwater.reference.wire.schema import ZERO_UUID

MEMBERS_SINCE: Final = 3  # of LeaveGroup
MANY_GROUPS: Final = 8  # of OffsetFetch
TOPIC_IDS_SINCE: Final = 10  # of OffsetCommit and OffsetFetch
MANY_TRANSACTIONS: Final = 4  # of AddPartitionsToTxn
PARTITIONS: Final = (0, 1)


@dataclass(frozen=True, slots=True)
class Sent:
    """What a request names, and the version in which it is sent."""

    names: Names
    topic_id: bytes
    version: int


def leave(sent: Sent) -> LeaveGroupRequest:
    if sent.version < MEMBERS_SINCE:
        return LeaveGroupRequest(group_id=sent.names.group, member_id="m")
    members = (MemberIdentity(member_id="m"), MemberIdentity(member_id="n"))
    return LeaveGroupRequest(group_id=sent.names.group, members=members)


def commit(sent: Sent) -> OffsetCommitRequest:
    parts = tuple(OffsetCommitRequestPartition(partition_index=number, committed_offset=1) for number in PARTITIONS)
    topic = OffsetCommitRequestTopic(name=sent.names.topic.name, topic_id=sent.topic_id, partitions=parts)
    return OffsetCommitRequest(group_id=sent.names.group, topics=(topic,))


def commit_in_transaction(sent: Sent) -> TxnOffsetCommitRequest:
    parts = tuple(TxnOffsetCommitRequestPartition(partition_index=number, committed_offset=1) for number in PARTITIONS)
    return TxnOffsetCommitRequest(
        transactional_id=sent.names.transactional_id, group_id=sent.names.group, producer_id=1,
        topics=(TxnOffsetCommitRequestTopic(name=sent.names.topic.name, partitions=parts),),
    )  # fmt: skip


def read_offsets(sent: Sent) -> OffsetFetchRequest:
    names = sent.names
    if sent.version < MANY_GROUPS:
        topic = OffsetFetchRequestTopic(name=names.topic.name, partition_indexes=PARTITIONS)
        return OffsetFetchRequest(group_id=names.group, topics=(topic,))
    topics = (
        OffsetFetchRequestTopics(name=names.topic.name, topic_id=sent.topic_id, partition_indexes=PARTITIONS),
    )  # fmt: skip
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=names.group, topics=topics),))


def add_partitions(sent: Sent) -> AddPartitionsToTxnRequest:
    name, topics = (
        sent.names.transactional_id,
        (AddPartitionsToTxnTopic(name=sent.names.topic.name, partitions=PARTITIONS),),
    )
    if sent.version < MANY_TRANSACTIONS:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name, v3_and_below_producer_id=1, v3_and_below_topics=topics
        )
    one = AddPartitionsToTxnTransaction(transactional_id=name, producer_id=1, topics=topics)
    return AddPartitionsToTxnRequest(transactions=(one,))


@dataclass(frozen=True, slots=True)
class Refused:
    """A request for a coordinator: how it is built, and by oldest version where its reply has the error codes."""

    request: Callable[[Sent], Any]
    paths: dict[int, str]
    newest: int | None = None
    since: str = ""

    @property
    def oldest(self) -> int:
        return min(self.paths)

    def path(self, version: int) -> str:
        return self.paths[max(since for since in self.paths if since <= version)]


def simple(name: str, table: dict[str, Any] = OF_GROUPS, since: str = "") -> Refused:
    """Return a request that has the same fields in all versions."""
    return Refused(lambda sent: table[name].request(sent.names), {0: table[name].path}, since=since)


GROUP_REQUESTS: Final = {
    **{
        name: simple(name)
        for name in ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetDelete", "DescribeGroups", "DeleteGroups")
    },
    **{
        name: simple(name, since="4.0")
        for name in (
            "ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "ShareGroupHeartbeat", "ShareGroupDescribe",
        )
    },
    "LeaveGroup": Refused(leave, {0: "error_code"}),
    "OffsetCommit": Refused(commit, {1: "topics.partitions.error_code"}),
    "OffsetFetch 1": Refused(read_offsets, {1: "topics.partitions.error_code"}, 1, "4.0"),
    "OffsetFetch": Refused(read_offsets, {2: "error_code", MANY_GROUPS: "groups.error_code"}),
    "TxnOffsetCommit": Refused(commit_in_transaction, {0: "topics.partitions.error_code"}),
}  # fmt: skip
"""Version 0 of OffsetCommit and OffsetFetch is about offsets in ZooKeeper, which have no coordinator. Apache Kafka
3.9.1 leaves out the partitions of an OffsetFetch 1, and has no coordinator of other groups unless it is configured."""
TRANSACTION_REQUESTS: Final = {
    **{
        name: simple(name, OF_TRANSACTIONS)
        for name in ("InitProducerId", "AddOffsetsToTxn", "EndTxn", "DescribeTransactions")
    },
    "AddPartitionsToTxn": Refused(add_partitions, {
        0: "results_by_topic_v3_and_below.results_by_partition.partition_error_code",
        MANY_TRANSACTIONS: "results_by_transaction.topic_results.results_by_partition.partition_error_code",
    }),
}  # fmt: skip


def rows(table: dict[str, Refused]) -> list[Any]:
    sent = Sent(Names(Topic("t", "", 0), "g", "x"), ZERO_UUID, 0)
    defects = {
        name: [Reply(type(row.request(sent)), path, 0) for path in row.paths.values()] for name, row in table.items()
    }
    return [
        pytest.param(row, id=name, marks=[pytest.mark.defect(*defects[name]), *([era(row.since)] if row.since else [])])
        for name, row in table.items()
    ]


def errors_in(reply: Any, path: str) -> list[int]:
    """Return all values that the path leads to, one for each element of its lists."""
    found = [reply]
    for step in path.split("."):
        values = [getattr(each, step) for each in found]
        found = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
    return sorted(set(found))


def assert_refused(cluster: Cluster, row: Refused, names: Names, right: str) -> None:
    """Send the request in each advertised version to a broker that is not the coordinator."""
    wrong = cluster.connect(next(address for address in cluster.target.addresses.values() if address != right))
    api = api_of(type(row.request(Sent(names, ZERO_UUID, row.oldest))))
    lowest, highest = wrong.advertised.get(api.key, (0, -1))
    versions = range(
        max(lowest, row.oldest, api.min_version),
        min(highest, api.max_version if row.newest is None else row.newest) + 1,
    )
    if not versions:
        raise Unsupported(f"{api.name} v{row.oldest} or newer is not advertised")
    with_ids = row.request in (commit, read_offsets) and versions[-1] >= TOPIC_IDS_SINCE
    topic_id = wrong.topic_id(names.topic) if with_ids else ZERO_UUID
    for version in versions:
        reply = wrong.call(row.request(Sent(names, topic_id, version)), version)
        expect(
            f"error codes in {api.name} v{version}", [ErrorCode.NOT_COORDINATOR], errors_in(reply, row.path(version))
        )


@clause("GRP-1", "wrong broker")
@pytest.mark.parametrize("row", rows(GROUP_REQUESTS))
def test_another_broker_refuses_what_is_for_the_coordinator(
    cluster: Cluster, driver: GroupDriver, topic: Topic, row: Refused
) -> None:
    cluster.need_brokers(2)
    assert_refused(cluster, row, Names(topic, driver.group, cluster.name("x")), driver.connect().address)


@clause("TXN-21", "wrong broker")
@pytest.mark.parametrize("row", rows(TRANSACTION_REQUESTS))
def test_another_broker_refuses_what_is_for_the_coordinator_of_transactions(
    cluster: Cluster, topic: Topic, row: Refused
) -> None:
    cluster.need_brokers(2)
    name = cluster.name("x")
    assert_refused(cluster, row, Names(topic, cluster.name("g"), name), coordinator_of(cluster, name))
