"""For each key a request that any broker can answer and that changes nothing, in every version.

Left out: what a controller tells brokers, what would harm a live cluster, and Produce and Fetch before record batches.
"""

from typing import Any, Final

from reference.wire.messages.api_versions import ApiVersionsRequest
from reference.wire.messages.create_partitions import CreatePartitionsRequest
from reference.wire.messages.create_topics import CreateTopicsRequest
from reference.wire.messages.delete_groups import DeleteGroupsRequest
from reference.wire.messages.delete_records import DeleteRecordsRequest
from reference.wire.messages.delete_topics import DeleteTopicsRequest
from reference.wire.messages.describe_cluster import DescribeClusterRequest
from reference.wire.messages.describe_configs import DescribeConfigsRequest
from reference.wire.messages.describe_groups import DescribeGroupsRequest
from reference.wire.messages.fetch import FetchRequest
from reference.wire.messages.heartbeat import HeartbeatRequest
from reference.wire.messages.init_producer_id import InitProducerIdRequest
from reference.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from reference.wire.messages.leave_group import LeaveGroupRequest
from reference.wire.messages.list_groups import ListGroupsRequest
from reference.wire.messages.list_offsets import ListOffsetsRequest
from reference.wire.messages.metadata import MetadataRequest
from reference.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from reference.wire.messages.sync_group import SyncGroupRequest
from reference.wire.registry import api_of

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
