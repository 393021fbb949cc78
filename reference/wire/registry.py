"""The registry of all APIs, by key and by message class."""

from dataclasses import dataclass
from typing import Any, Final

from highwater.reference.wire.errors import UnknownApiKeyError
from highwater.reference.wire.messages import (
    committed_offsets,
    configs,
    consumer_groups,
    controller,
    delegation_tokens,
    fetch,
    groups,
    metadata,
    offsets,
    produce,
    quorum,
    replicas,
    security,
    share_groups,
    streams_groups,
    telemetry,
    topics,
    transactions,
)
from highwater.reference.wire.schema import NEVER, schema_of


@dataclass(frozen=True, slots=True)
class Api:
    """One API: request, response, and all published versions; `flexible_from` is None if no version is flexible."""

    key: int
    name: str
    request: type[Any]
    response: type[Any]
    min_version: int
    max_version: int
    flexible_from: int | None

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from


def _api(request: type[Any], response: type[Any]) -> Api:
    schema = schema_of(request)
    if schema != schema_of(response):
        raise TypeError(f"{request.__name__} and {response.__name__} have different keys or versions")
    return Api(
        key=schema.api_key,
        name=request.__name__.removesuffix("Request"),
        request=request,
        response=response,
        min_version=schema.versions.first,
        max_version=schema.versions.last,
        flexible_from=None if schema.flexible == NEVER else schema.flexible.first,
    )


_PAIRS: Final[list[tuple[type[Any], type[Any]]]] = [
    (produce.ProduceRequest, produce.ProduceResponse),
    (fetch.FetchRequest, fetch.FetchResponse),
    (offsets.ListOffsetsRequest, offsets.ListOffsetsResponse),
    (metadata.MetadataRequest, metadata.MetadataResponse),
    (controller.LeaderAndIsrRequest, controller.LeaderAndIsrResponse),
    (controller.StopReplicaRequest, controller.StopReplicaResponse),
    (controller.UpdateMetadataRequest, controller.UpdateMetadataResponse),
    (controller.ControlledShutdownRequest, controller.ControlledShutdownResponse),
    (committed_offsets.OffsetCommitRequest, committed_offsets.OffsetCommitResponse),
    (committed_offsets.OffsetFetchRequest, committed_offsets.OffsetFetchResponse),
    (metadata.FindCoordinatorRequest, metadata.FindCoordinatorResponse),
    (groups.JoinGroupRequest, groups.JoinGroupResponse),
    (groups.HeartbeatRequest, groups.HeartbeatResponse),
    (groups.LeaveGroupRequest, groups.LeaveGroupResponse),
    (groups.SyncGroupRequest, groups.SyncGroupResponse),
    (groups.DescribeGroupsRequest, groups.DescribeGroupsResponse),
    (groups.ListGroupsRequest, groups.ListGroupsResponse),
    (security.SaslHandshakeRequest, security.SaslHandshakeResponse),
    (metadata.ApiVersionsRequest, metadata.ApiVersionsResponse),
    (topics.CreateTopicsRequest, topics.CreateTopicsResponse),
    (topics.DeleteTopicsRequest, topics.DeleteTopicsResponse),
    (offsets.DeleteRecordsRequest, offsets.DeleteRecordsResponse),
    (transactions.InitProducerIdRequest, transactions.InitProducerIdResponse),
    (offsets.OffsetForLeaderEpochRequest, offsets.OffsetForLeaderEpochResponse),
    (configs.DescribeConfigsRequest, configs.DescribeConfigsResponse),
    (security.SaslAuthenticateRequest, security.SaslAuthenticateResponse),
    (topics.CreatePartitionsRequest, topics.CreatePartitionsResponse),
    (replicas.ElectLeadersRequest, replicas.ElectLeadersResponse),
    (
        replicas.AlterPartitionReassignmentsRequest,
        replicas.AlterPartitionReassignmentsResponse,
    ),
    (
        replicas.ListPartitionReassignmentsRequest,
        replicas.ListPartitionReassignmentsResponse,
    ),
    (delegation_tokens.CreateDelegationTokenRequest, delegation_tokens.CreateDelegationTokenResponse),
    (delegation_tokens.RenewDelegationTokenRequest, delegation_tokens.RenewDelegationTokenResponse),
    (delegation_tokens.ExpireDelegationTokenRequest, delegation_tokens.ExpireDelegationTokenResponse),
    (delegation_tokens.DescribeDelegationTokenRequest, delegation_tokens.DescribeDelegationTokenResponse),
    (groups.DeleteGroupsRequest, groups.DeleteGroupsResponse),
    (committed_offsets.OffsetDeleteRequest, committed_offsets.OffsetDeleteResponse),
    (controller.AlterPartitionRequest, controller.AlterPartitionResponse),
    (metadata.DescribeClusterRequest, metadata.DescribeClusterResponse),
    (
        metadata.DescribeTopicPartitionsRequest,
        metadata.DescribeTopicPartitionsResponse,
    ),
    (
        consumer_groups.ConsumerGroupHeartbeatRequest,
        consumer_groups.ConsumerGroupHeartbeatResponse,
    ),
    (consumer_groups.ConsumerGroupDescribeRequest, consumer_groups.ConsumerGroupDescribeResponse),
    (transactions.AddPartitionsToTxnRequest, transactions.AddPartitionsToTxnResponse),
    (transactions.AddOffsetsToTxnRequest, transactions.AddOffsetsToTxnResponse),
    (transactions.EndTxnRequest, transactions.EndTxnResponse),
    (transactions.WriteTxnMarkersRequest, transactions.WriteTxnMarkersResponse),
    (transactions.TxnOffsetCommitRequest, transactions.TxnOffsetCommitResponse),
    (security.DescribeAclsRequest, security.DescribeAclsResponse),
    (security.CreateAclsRequest, security.CreateAclsResponse),
    (security.DeleteAclsRequest, security.DeleteAclsResponse),
    (configs.AlterConfigsRequest, configs.AlterConfigsResponse),
    (replicas.AlterReplicaLogDirsRequest, replicas.AlterReplicaLogDirsResponse),
    (replicas.DescribeLogDirsRequest, replicas.DescribeLogDirsResponse),
    (
        configs.IncrementalAlterConfigsRequest,
        configs.IncrementalAlterConfigsResponse,
    ),
    (transactions.DescribeProducersRequest, transactions.DescribeProducersResponse),
    (transactions.DescribeTransactionsRequest, transactions.DescribeTransactionsResponse),
    (transactions.ListTransactionsRequest, transactions.ListTransactionsResponse),
    (configs.DescribeClientQuotasRequest, configs.DescribeClientQuotasResponse),
    (configs.AlterClientQuotasRequest, configs.AlterClientQuotasResponse),
    (
        security.DescribeUserScramCredentialsRequest,
        security.DescribeUserScramCredentialsResponse,
    ),
    (
        security.AlterUserScramCredentialsRequest,
        security.AlterUserScramCredentialsResponse,
    ),
    (quorum.DescribeQuorumRequest, quorum.DescribeQuorumResponse),
    (quorum.UpdateFeaturesRequest, quorum.UpdateFeaturesResponse),
    (telemetry.GetTelemetrySubscriptionsRequest, telemetry.GetTelemetrySubscriptionsResponse),
    (telemetry.PushTelemetryRequest, telemetry.PushTelemetryResponse),
    (configs.ListConfigResourcesRequest, configs.ListConfigResourcesResponse),
    (share_groups.ShareGroupHeartbeatRequest, share_groups.ShareGroupHeartbeatResponse),
    (share_groups.ShareGroupDescribeRequest, share_groups.ShareGroupDescribeResponse),
    (share_groups.ShareFetchRequest, share_groups.ShareFetchResponse),
    (share_groups.ShareAcknowledgeRequest, share_groups.ShareAcknowledgeResponse),
    (share_groups.DescribeShareGroupOffsetsRequest, share_groups.DescribeShareGroupOffsetsResponse),
    (share_groups.AlterShareGroupOffsetsRequest, share_groups.AlterShareGroupOffsetsResponse),
    (share_groups.DeleteShareGroupOffsetsRequest, share_groups.DeleteShareGroupOffsetsResponse),
    (streams_groups.StreamsGroupHeartbeatRequest, streams_groups.StreamsGroupHeartbeatResponse),
    (streams_groups.StreamsGroupDescribeRequest, streams_groups.StreamsGroupDescribeResponse),
]

APIS: Final[dict[int, Api]] = {
    api.key: api for api in sorted((_api(*pair) for pair in _PAIRS), key=lambda api: api.key)
}

_BY_CLASS: Final = {cls: api for api in APIS.values() for cls in (api.request, api.response)}


def api_of_key(key: int) -> Api:
    """Return the API with this key. Raises `UnknownApiKeyError`."""
    try:
        return APIS[key]
    except KeyError:
        raise UnknownApiKeyError(f"no API of key {key}") from None


def api_of(message: type[Any]) -> Api:
    """Return the API of a request or response class."""
    return _BY_CLASS[message]
