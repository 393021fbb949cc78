"""For each API key a request that any broker can answer in every version and that changes nothing.

Requests between controller and brokers, requests that could harm a live cluster, and message sets are left out.
"""

from typing import Any, Final

from highwater.reference.wire.messages.configs import DescribeConfigsRequest
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from highwater.reference.wire.messages.metadata import ApiVersionsRequest, DescribeClusterRequest, MetadataRequest
from highwater.reference.wire.messages.offsets import (
    DeleteRecordsRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from highwater.reference.wire.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from highwater.reference.wire.messages.transactions import InitProducerIdRequest
from highwater.reference.wire.registry import api_of

CONSUMER: Final = -1
UNUSED_GROUP: Final = "hw-harmless"

REQUESTS: Final[tuple[Any, ...]] = (
    FetchRequest(replica_id=CONSUMER, max_wait_ms=0),
    ListOffsetsRequest(replica_id=CONSUMER),
    MetadataRequest(topics=()),
    JoinGroupRequest(
        group_id="",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range"),),
    ),
    HeartbeatRequest(group_id=UNUSED_GROUP, generation_id=1, member_id="m"),
    LeaveGroupRequest(group_id=UNUSED_GROUP),
    SyncGroupRequest(group_id=UNUSED_GROUP, generation_id=1, member_id="m"),
    DescribeGroupsRequest(groups=(UNUSED_GROUP,)),
    ListGroupsRequest(),
    ApiVersionsRequest(client_software_name="highwater", client_software_version="1.0"),
    CreateTopicsRequest(timeout_ms=1000),
    DeleteTopicsRequest(timeout_ms=1000),
    DeleteRecordsRequest(timeout_ms=1000),
    InitProducerIdRequest(transactional_id=None),
    OffsetForLeaderEpochRequest(replica_id=CONSUMER),
    DescribeConfigsRequest(),
    CreatePartitionsRequest(timeout_ms=1000),
    DeleteGroupsRequest(),
    DescribeClusterRequest(),
)

HARMLESS: Final[dict[int, Any]] = {api_of(type(request)).key: request for request in REQUESTS}
