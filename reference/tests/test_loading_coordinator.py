"""What a coordinator answers before it has loaded its partitions: one table of requests for groups and transactions."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from highwater.reference.groups.store import OFFSETS_TOPIC
from highwater.reference.tests.simulated import Simulated
from highwater.reference.transactions.store import TRANSACTION_TOPIC
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from highwater.reference.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from highwater.reference.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

GROUP, ID, TOPIC = "g", "x", "t"
LOADING: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
COMMIT: Final = OffsetCommitRequest(
    group_id=GROUP,
    topics=(OffsetCommitRequestTopic(name=TOPIC, partitions=(OffsetCommitRequestPartition(committed_offset=1),)),),
)
TXN_COMMIT: Final = TxnOffsetCommitRequest(
    group_id=GROUP, transactional_id=ID,
    topics=(TxnOffsetCommitRequestTopic(name=TOPIC, partitions=(TxnOffsetCommitRequestPartition(),)),),
)  # fmt: skip
ADDED: Final = (AddPartitionsToTxnTopic(name=TOPIC, partitions=(0,)),)
ADD: Final = AddPartitionsToTxnRequest(v3_and_below_transactional_id=ID, v3_and_below_topics=ADDED)
INIT: Final = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=10_000)
Read = Callable[[Any], int]


def own(reply: Any) -> int:
    return int(reply.error_code)


def of_added(reply: Any) -> int:
    return int(reply.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


REQUESTS: Final[dict[str, tuple[Any, int, Read]]] = {
    "JoinGroup": (JoinGroupRequest(group_id=GROUP, session_timeout_ms=10_000), 5, own),
    "SyncGroup": (SyncGroupRequest(group_id=GROUP, member_id="m"), 4, own),
    "LeaveGroup": (LeaveGroupRequest(group_id=GROUP, member_id="m"), 2, own),
    "OffsetCommit": (COMMIT, 8, lambda reply: reply.topics[0].partitions[0].error_code),
    "OffsetFetch": (OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=GROUP),)), 8,
                    lambda reply: reply.groups[0].error_code),
    "OffsetDelete": (OffsetDeleteRequest(group_id=GROUP), 0, own),
    "DescribeGroups": (DescribeGroupsRequest(groups=(GROUP,)), 5, lambda reply: reply.groups[0].error_code),
    "DeleteGroups": (DeleteGroupsRequest(groups_names=(GROUP,)), 2, lambda reply: reply.results[0].error_code),
    "ListGroups": (ListGroupsRequest(), 4, own),
    "TxnOffsetCommit": (TXN_COMMIT, 3, lambda reply: reply.topics[0].partitions[0].error_code),
    "InitProducerId": (INIT, 4, own),
    "AddPartitionsToTxn": (ADD, 3, of_added),
    "AddOffsetsToTxn": (AddOffsetsToTxnRequest(transactional_id=ID, group_id=GROUP), 3, own),
    "EndTxn": (EndTxnRequest(transactional_id=ID, committed=True), 3, own),
    "DescribeTransactions": (DescribeTransactionsRequest(transactional_ids=(ID,)), 0,
                             lambda reply: reply.transaction_states[0].error_code),
    "ListTransactions": (ListTransactionsRequest(), 1, own),
}  # fmt: skip


@pytest.fixture
def cluster() -> Simulated:
    """Return a broker with a group and a transactional id."""
    found = Simulated()
    found.create(TOPIC)
    found.coordinator(GROUP, 0)
    found.coordinator(ID, 1)
    found.wait(lambda: error_of(found, "OffsetCommit") == 0)
    found.wait(lambda: error_of(found, "InitProducerId") == 0)
    return found


def error_of(cluster: Simulated, name: str) -> int:
    request, version, read = REQUESTS[name]
    return read(cluster.ask(request, version))


@pytest.mark.parametrize("name", REQUESTS)
def test_each_request_is_to_be_repeated_while_its_coordinator_loads(cluster: Simulated, name: str) -> None:
    forget(cluster)
    assert error_of(cluster, name) == LOADING


@pytest.mark.parametrize("name", REQUESTS)
def test_a_broker_that_does_not_know_what_it_leads_is_no_coordinator(cluster: Simulated, name: str) -> None:
    """Its lists are empty, without an error."""
    forget(cluster)
    for topic in (OFFSETS_TOPIC, TRANSACTION_TOPIC):
        del cluster.broker().cache.topics[topic]
    assert error_of(cluster, name) == (ErrorCode.NONE if name.startswith("List") else ErrorCode.NOT_COORDINATOR)


def test_a_heartbeat_is_accepted_while_the_coordinator_loads(cluster: Simulated) -> None:
    request = HeartbeatRequest(group_id=GROUP, member_id="m", generation_id=1)
    assert cluster.ask(request, 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    forget(cluster)
    assert cluster.ask(request, 3).error_code == ErrorCode.NONE


def forget(cluster: Simulated) -> None:
    """Make both coordinators of the broker as they are before they have loaded a partition."""
    broker = cluster.broker()
    for store in (broker.groups, broker.transactions.store):
        store._owned.clear()
