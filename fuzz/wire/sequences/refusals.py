"""A request that is refused leaves nothing of the group, transactional id or topic that it names.

The state oracle compares what the cases of the stream name, and those things exist already. Here each name is new: it
must be unknown to every request that describes or lists such things after the refusal. Left out are refusals that do
leave something in Apache Kafka: a JoinGroup without member id creates the group before its protocols are checked
(classicGroupJoinToClassicGroup).
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from highwater.fuzz.wire.sequences.context import SequenceAbandoned, SequenceContext
from highwater.fuzz.wire.sequences.groups import (
    NO_COORDINATOR,
    NO_SUCH_MEMBER,
    POLL_S,
    POLLS_MAX,
    SESSION_MS,
    Group,
    check_committed,
)
from highwater.fuzz.wire.sequences.transactions import TRANSACTION
from highwater.reference.client.connection import Connection
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
)
from highwater.reference.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    ListGroupsRequest,
    SyncGroupRequest,
)
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest, MetadataRequest, MetadataRequestTopic
from highwater.reference.wire.messages.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from highwater.reference.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from highwater.reference.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)
from highwater.reference.wire.registry import api_of

STEPS: Final = (3, 6)
EXPLICIT_SINCE: Final = 4  # version of Metadata
TYPED_SINCE: Final = 1  # version of FindCoordinator
NO_MEMBER, SOME_ID = "", 7
PATIENT_MS: Final = 10_000
TOO_LONG_MS: Final = 2**31 - 1
"""More than group.max.session.timeout.ms and transaction.max.timeout.ms by default."""


@dataclass(frozen=True)
class Kind:
    """What a name may belong to: the requests that must be refused, and how to see whether it exists."""

    requests: Callable[[str], tuple[Any, ...]]
    must_not_exist: Callable[[SequenceContext, Connection, str], None]
    coordinator: int | None = None


def run(context: SequenceContext) -> None:
    """Send refused requests, each with a new name, which must not exist after that."""
    connection = context.connect()
    for _ in context.steps(*STEPS):
        kind = context.rng.choice(KINDS)
        name = f"fuzz-refused-{context.rng.getrandbits(48):x}"
        possible = [message for message in kind.requests(name) if context.supports(api_of(type(message)).key)]
        if not possible:
            continue
        if kind.coordinator is not None:
            request = FindCoordinatorRequest(key=name, key_type=kind.coordinator)
            context.call(connection, request, context.version(FindCoordinatorRequest, at_least=TYPED_SINCE))
        _refuse(context, connection, context.rng.choice(possible))
        kind.must_not_exist(context, connection, name)


def _refuse(context: SequenceContext, connection: Connection, message: Any) -> None:
    """Send the request, again while the coordinator is not ready; it must have an error code."""
    version = context.version(type(message))
    for _ in range(POLLS_MAX):
        codes = set(_codes(msgspec.to_builtins(context.call(connection, message, version)))) - {0}
        if not codes & NO_COORDINATOR:
            break
        time.sleep(POLL_S)
    else:
        raise SequenceAbandoned("there is no coordinator")
    context.require(bool(codes), "accepted, and refers to what does not exist or is out of range")


def _codes(value: Any) -> Iterator[int]:
    """Yield the error codes in a response, at any depth."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        if name.endswith("error_code"):
            yield inner
        for element in inner if isinstance(inner, list | tuple) else (inner,):
            yield from _codes(element)


# -- groups ------------------------------------------------------------------------------------------


def _group_requests(name: str) -> tuple[Any, ...]:
    protocols = (JoinGroupRequestProtocol(name="range", metadata=b"fuzz"),)
    part = OffsetCommitRequestPartition(committed_offset=1, committed_metadata="")
    topics = (OffsetCommitRequestTopic(name="fuzz-a", partitions=(part,)),)
    return (
        *(
            JoinGroupRequest(
                group_id=name, session_timeout_ms=session_ms, rebalance_timeout_ms=PATIENT_MS, member_id=member,
                protocol_type="consumer", protocols=protocols,
            )
            for session_ms, member in ((1, NO_MEMBER), (TOO_LONG_MS, NO_MEMBER), (SESSION_MS, NO_SUCH_MEMBER))
        ),
        HeartbeatRequest(group_id=name, generation_id=1, member_id=NO_SUCH_MEMBER),
        SyncGroupRequest(
            group_id=name, generation_id=1, member_id=NO_SUCH_MEMBER, protocol_type="consumer", protocol_name="range"
        ),
        OffsetCommitRequest(group_id=name, generation_id_or_member_epoch=1, member_id=NO_SUCH_MEMBER, topics=topics),
        DeleteGroupsRequest(groups_names=(name,)),
        OffsetDeleteRequest(group_id=name),
    )  # fmt: skip


def _no_group(context: SequenceContext, connection: Connection, name: str) -> None:
    listed = context.call(connection, ListGroupsRequest())
    context.accepted(listed.error_code)
    context.require(all(found.group_id != name for found in listed.groups), f"the group {name} is listed")
    (found,) = context.call(connection, DescribeGroupsRequest(groups=(name,))).groups
    context.accepted(found.error_code, ErrorCode.GROUP_ID_NOT_FOUND)
    context.require(found.group_state in {"Dead", ""}, f"the group {name} is described as {found.group_state}")
    check_committed(context, Group(name), connection)


# -- transactional ids -------------------------------------------------------------------------------


def _transaction_requests(name: str) -> tuple[Any, ...]:
    return (
        *(
            InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
            for timeout_ms in (0, -1, TOO_LONG_MS)
        ),
        EndTxnRequest(transactional_id=name, producer_id=SOME_ID, producer_epoch=0, committed=True),
        AddOffsetsToTxnRequest(transactional_id=name, producer_id=SOME_ID, producer_epoch=0, group_id=name),
    )


def _no_transaction(context: SequenceContext, connection: Connection, name: str) -> None:
    described = context.call(connection, DescribeTransactionsRequest(transactional_ids=(name,))).transaction_states[0]
    exists = context.accepted(described.error_code, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    context.require(not exists, f"the transactional id {name} is described as {described.transaction_state}")
    listed = context.call(connection, ListTransactionsRequest())
    context.accepted(listed.error_code)
    names = {found.transactional_id for found in listed.transaction_states}
    context.require(name not in names, f"the transactional id {name} is listed")


# -- topics ------------------------------------------------------------------------------------------


def _topic_requests(name: str) -> tuple[Any, ...]:
    wrong = CreatableTopicConfig(name="cleanup.policy", value="burn")
    part = DeleteRecordsPartition(partition_index=0, offset=0)
    return (
        *(
            CreateTopicsRequest(topics=(topic,), timeout_ms=PATIENT_MS)
            for topic in (
                CreatableTopic(name=name, num_partitions=0, replication_factor=1),
                CreatableTopic(name=name, num_partitions=1, replication_factor=1_000),
                CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=(wrong,)),
            )
        ),
        CreatePartitionsRequest(
            topics=(CreatePartitionsTopic(name=name, count=2, assignments=None),), timeout_ms=PATIENT_MS
        ),
        DeleteTopicsRequest(topic_names=(name,), timeout_ms=PATIENT_MS),
        DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=name, partitions=(part,)),), timeout_ms=1_000),
    )


def _no_topic(context: SequenceContext, connection: Connection, name: str) -> None:
    request = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=False)
    version = context.version(MetadataRequest, at_least=EXPLICIT_SINCE)
    (found,) = context.call(connection, request, version).topics
    context.require(found.error_code != 0, f"the topic {name} has {len(found.partitions)} partitions")


GROUP: Final = 0
KINDS: Final = (
    Kind(_group_requests, _no_group, GROUP),
    Kind(_transaction_requests, _no_transaction, TRANSACTION),
    Kind(_topic_requests, _no_topic),
)
