"""Count refused requests as situations, from the error codes in the responses: no node state shows them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from highwater.fuzz.simulator.invariants.violations import SituationCounts
from highwater.reference.effects import Request, Response
from highwater.reference.store.messages import StoreReply
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import OffsetCommitResponse
from highwater.reference.wire.messages.controller import (
    AlterPartitionResponse,
    LeaderAndIsrResponse,
    StopReplicaResponse,
)
from highwater.reference.wire.messages.fetch import FetchResponse
from highwater.reference.wire.messages.groups import HeartbeatResponse, JoinGroupResponse, SyncGroupResponse
from highwater.reference.wire.messages.produce import ProduceResponse
from highwater.reference.wire.messages.transactions import (
    EndTxnResponse,
    InitProducerIdResponse,
    WriteTxnMarkersRequest,
)

Errors = Callable[[Any], Iterable[int]]
Situations = Mapping[int, str]

FENCED_PRODUCER: Final[Situations] = {
    ErrorCode.INVALID_PRODUCER_EPOCH: "fenced producer",
    ErrorCode.PRODUCER_FENCED: "fenced producer",
}
FENCED_MEMBER: Final[Situations] = {
    ErrorCode.ILLEGAL_GENERATION: "fenced generation",
    ErrorCode.UNKNOWN_MEMBER_ID: "forgotten member",
    ErrorCode.FENCED_INSTANCE_ID: "fenced instance",
}
FENCED_CONTROLLER: Final[Situations] = {
    ErrorCode.STALE_CONTROLLER_EPOCH: "fenced controller",
    ErrorCode.STALE_BROKER_EPOCH: "request to a former life",
}


def _whole(body: Any) -> Iterable[int]:
    return (body.error_code,)


REFUSALS: Final[dict[type, tuple[Errors, Situations]]] = {
    ProduceResponse: (
        lambda body: [part.error_code for topic in body.responses for part in topic.partition_responses],
        {
            ErrorCode.NOT_LEADER_OR_FOLLOWER: "fenced write",
            ErrorCode.NOT_ENOUGH_REPLICAS: "write below min ISR",
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "write below min ISR",
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "sequence gap",
            **FENCED_PRODUCER,
        },
    ),
    FetchResponse: (
        lambda body: [part.error_code for topic in body.responses for part in topic.partitions],
        {ErrorCode.FENCED_LEADER_EPOCH: "fenced fetch", ErrorCode.UNKNOWN_LEADER_EPOCH: "fetch ahead of a leader"},
    ),
    AlterPartitionResponse: (
        lambda body: [body.error_code, *(part.error_code for topic in body.topics for part in topic.partitions)],
        {
            ErrorCode.FENCED_LEADER_EPOCH: "fenced ISR change",
            ErrorCode.INVALID_UPDATE_VERSION: "fenced ISR change",
            ErrorCode.STALE_BROKER_EPOCH: "fenced ISR change",
            ErrorCode.INELIGIBLE_REPLICA: "ineligible replica",
        },
    ),
    LeaderAndIsrResponse: (_whole, FENCED_CONTROLLER),
    StopReplicaResponse: (_whole, FENCED_CONTROLLER),
    InitProducerIdResponse: (_whole, FENCED_PRODUCER),
    EndTxnResponse: (_whole, FENCED_PRODUCER),
    JoinGroupResponse: (_whole, FENCED_MEMBER),
    SyncGroupResponse: (_whole, FENCED_MEMBER),
    HeartbeatResponse: (_whole, FENCED_MEMBER),
    OffsetCommitResponse: (
        lambda body: [part.error_code for topic in body.topics for part in topic.partitions],
        FENCED_MEMBER,
    ),
}
"""For each response type: how to read its error codes, and the situation of each code."""


def record_refusals(situations: SituationCounts, message: Any) -> None:
    """Count the situations that a message shows when it is sent."""
    if isinstance(message, Response):
        refusal = REFUSALS.get(type(message.body))
        if refusal is not None:
            errors, names = refusal
            for error in errors(message.body):
                if error in names:
                    situations.add(names[error])
    elif isinstance(message, Request):
        if isinstance(message.body, WriteTxnMarkersRequest):
            for marker in message.body.markers:
                situations.add("commit marker" if marker.transaction_result else "abort marker")
    elif isinstance(message, StoreReply) and message.error == "BadVersion":
        situations.add("fenced store write")
