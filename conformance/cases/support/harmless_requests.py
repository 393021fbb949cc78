"""For each API key a request that any broker can answer in every version and that changes nothing.

Requests between controller and brokers, requests that could harm a live cluster, and message sets are left out. So are
AddPartitionsToTxn, which Apache Kafka 4.3.1 never answers if it has no transaction, and OffsetFetch, which 3.9.1 never
answers if it has no group.
"""

from typing import Any, Final

from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
)
from highwater.reference.wire.messages.configs import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from highwater.reference.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
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
from highwater.reference.wire.messages.metadata import (
    ApiVersionsRequest,
    DescribeClusterRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from highwater.reference.wire.messages.offsets import (
    DeleteRecordsRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from highwater.reference.wire.messages.quorum import DescribeQuorumRequest
from highwater.reference.wire.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from highwater.reference.wire.messages.security import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeUserScramCredentialsRequest,
)
from highwater.reference.wire.messages.share_groups import (
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from highwater.reference.wire.messages.streams_groups import StreamsGroupDescribeRequest
from highwater.reference.wire.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from highwater.reference.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from highwater.reference.wire.registry import api_of

CONSUMER: Final = -1
UNUSED_GROUP: Final = "hw-harmless"
UNUSED_ID: Final = "hw-harmless"
NO_TOPICS: Final = ()
LEAVE: Final = -1

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
    OffsetCommitRequest(group_id=UNUSED_GROUP),
    FindCoordinatorRequest(),
    AddOffsetsToTxnRequest(transactional_id=UNUSED_ID, group_id=UNUSED_GROUP),
    EndTxnRequest(transactional_id=UNUSED_ID),
    WriteTxnMarkersRequest(),
    TxnOffsetCommitRequest(transactional_id=UNUSED_ID, group_id=UNUSED_GROUP),
    DescribeAclsRequest(resource_type_filter=2, operation=1, permission_type=1, resource_name_filter=UNUSED_ID),
    CreateAclsRequest(),
    DeleteAclsRequest(),
    AlterConfigsRequest(),
    AlterReplicaLogDirsRequest(),
    DescribeLogDirsRequest(topics=NO_TOPICS),
    ElectLeadersRequest(topic_partitions=NO_TOPICS, timeout_ms=1000),
    IncrementalAlterConfigsRequest(),
    AlterPartitionReassignmentsRequest(timeout_ms=1000),
    ListPartitionReassignmentsRequest(topics=NO_TOPICS, timeout_ms=1000),
    OffsetDeleteRequest(group_id=UNUSED_GROUP),
    DescribeClientQuotasRequest(),
    AlterClientQuotasRequest(),
    DescribeUserScramCredentialsRequest(),
    AlterUserScramCredentialsRequest(),
    DescribeQuorumRequest(),
    DescribeProducersRequest(),
    DescribeTransactionsRequest(),
    ListTransactionsRequest(),
    ConsumerGroupHeartbeatRequest(group_id=UNUSED_GROUP, member_id="m", member_epoch=LEAVE),
    ConsumerGroupDescribeRequest(group_ids=(UNUSED_GROUP,)),
    ListConfigResourcesRequest(),
    ShareGroupHeartbeatRequest(group_id=UNUSED_GROUP, member_id="m", member_epoch=LEAVE),
    ShareGroupDescribeRequest(group_ids=(UNUSED_GROUP,)),
    StreamsGroupDescribeRequest(group_ids=(UNUSED_GROUP,)),
    DescribeShareGroupOffsetsRequest(),
)

HARMLESS: Final[dict[int, Any]] = {api_of(type(request)).key: request for request in REQUESTS}
