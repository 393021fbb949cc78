"""Every API, by key and by class."""

from dataclasses import dataclass
from typing import Any, Final

from reference.wire.errors import UnknownApiKeyError
from reference.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    controlled_shutdown,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_metadata,
    write_txn_markers,
)
from reference.wire.schema import NEVER, schema_of


@dataclass(frozen=True, slots=True)
class Api:
    """A request, its response, and the versions that were ever published; `flexible_from` is None for never."""

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
        raise TypeError(f"{request.__name__} and {response.__name__} disagree about key or versions")
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
    (list_offsets.ListOffsetsRequest, list_offsets.ListOffsetsResponse),
    (metadata.MetadataRequest, metadata.MetadataResponse),
    (leader_and_isr.LeaderAndIsrRequest, leader_and_isr.LeaderAndIsrResponse),
    (stop_replica.StopReplicaRequest, stop_replica.StopReplicaResponse),
    (update_metadata.UpdateMetadataRequest, update_metadata.UpdateMetadataResponse),
    (controlled_shutdown.ControlledShutdownRequest, controlled_shutdown.ControlledShutdownResponse),
    (offset_commit.OffsetCommitRequest, offset_commit.OffsetCommitResponse),
    (offset_fetch.OffsetFetchRequest, offset_fetch.OffsetFetchResponse),
    (find_coordinator.FindCoordinatorRequest, find_coordinator.FindCoordinatorResponse),
    (join_group.JoinGroupRequest, join_group.JoinGroupResponse),
    (heartbeat.HeartbeatRequest, heartbeat.HeartbeatResponse),
    (leave_group.LeaveGroupRequest, leave_group.LeaveGroupResponse),
    (sync_group.SyncGroupRequest, sync_group.SyncGroupResponse),
    (describe_groups.DescribeGroupsRequest, describe_groups.DescribeGroupsResponse),
    (list_groups.ListGroupsRequest, list_groups.ListGroupsResponse),
    (sasl_handshake.SaslHandshakeRequest, sasl_handshake.SaslHandshakeResponse),
    (api_versions.ApiVersionsRequest, api_versions.ApiVersionsResponse),
    (create_topics.CreateTopicsRequest, create_topics.CreateTopicsResponse),
    (delete_topics.DeleteTopicsRequest, delete_topics.DeleteTopicsResponse),
    (delete_records.DeleteRecordsRequest, delete_records.DeleteRecordsResponse),
    (init_producer_id.InitProducerIdRequest, init_producer_id.InitProducerIdResponse),
    (offset_for_leader_epoch.OffsetForLeaderEpochRequest, offset_for_leader_epoch.OffsetForLeaderEpochResponse),
    (describe_configs.DescribeConfigsRequest, describe_configs.DescribeConfigsResponse),
    (sasl_authenticate.SaslAuthenticateRequest, sasl_authenticate.SaslAuthenticateResponse),
    (create_partitions.CreatePartitionsRequest, create_partitions.CreatePartitionsResponse),
    (elect_leaders.ElectLeadersRequest, elect_leaders.ElectLeadersResponse),
    (
        alter_partition_reassignments.AlterPartitionReassignmentsRequest,
        alter_partition_reassignments.AlterPartitionReassignmentsResponse,
    ),
    (
        list_partition_reassignments.ListPartitionReassignmentsRequest,
        list_partition_reassignments.ListPartitionReassignmentsResponse,
    ),
    (delete_groups.DeleteGroupsRequest, delete_groups.DeleteGroupsResponse),
    (offset_delete.OffsetDeleteRequest, offset_delete.OffsetDeleteResponse),
    (alter_partition.AlterPartitionRequest, alter_partition.AlterPartitionResponse),
    (describe_cluster.DescribeClusterRequest, describe_cluster.DescribeClusterResponse),
    (
        describe_topic_partitions.DescribeTopicPartitionsRequest,
        describe_topic_partitions.DescribeTopicPartitionsResponse,
    ),
    (
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest,
        consumer_group_heartbeat.ConsumerGroupHeartbeatResponse,
    ),
    (consumer_group_describe.ConsumerGroupDescribeRequest, consumer_group_describe.ConsumerGroupDescribeResponse),
    (add_partitions_to_txn.AddPartitionsToTxnRequest, add_partitions_to_txn.AddPartitionsToTxnResponse),
    (add_offsets_to_txn.AddOffsetsToTxnRequest, add_offsets_to_txn.AddOffsetsToTxnResponse),
    (end_txn.EndTxnRequest, end_txn.EndTxnResponse),
    (write_txn_markers.WriteTxnMarkersRequest, write_txn_markers.WriteTxnMarkersResponse),
    (txn_offset_commit.TxnOffsetCommitRequest, txn_offset_commit.TxnOffsetCommitResponse),
    (describe_acls.DescribeAclsRequest, describe_acls.DescribeAclsResponse),
    (create_acls.CreateAclsRequest, create_acls.CreateAclsResponse),
    (delete_acls.DeleteAclsRequest, delete_acls.DeleteAclsResponse),
    (alter_configs.AlterConfigsRequest, alter_configs.AlterConfigsResponse),
    (alter_replica_log_dirs.AlterReplicaLogDirsRequest, alter_replica_log_dirs.AlterReplicaLogDirsResponse),
    (describe_log_dirs.DescribeLogDirsRequest, describe_log_dirs.DescribeLogDirsResponse),
    (
        incremental_alter_configs.IncrementalAlterConfigsRequest,
        incremental_alter_configs.IncrementalAlterConfigsResponse,
    ),
    (describe_producers.DescribeProducersRequest, describe_producers.DescribeProducersResponse),
    (describe_transactions.DescribeTransactionsRequest, describe_transactions.DescribeTransactionsResponse),
    (list_transactions.ListTransactionsRequest, list_transactions.ListTransactionsResponse),
    (describe_client_quotas.DescribeClientQuotasRequest, describe_client_quotas.DescribeClientQuotasResponse),
    (alter_client_quotas.AlterClientQuotasRequest, alter_client_quotas.AlterClientQuotasResponse),
    (
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest,
        describe_user_scram_credentials.DescribeUserScramCredentialsResponse,
    ),
    (
        alter_user_scram_credentials.AlterUserScramCredentialsRequest,
        alter_user_scram_credentials.AlterUserScramCredentialsResponse,
    ),
]

APIS: Final[dict[int, Api]] = {
    api.key: api for api in sorted((_api(*pair) for pair in _PAIRS), key=lambda api: api.key)
}

_BY_CLASS: Final = {cls: api for api in APIS.values() for cls in (api.request, api.response)}


def api_of_key(key: int) -> Api:
    """Raises `UnknownApiKeyError`."""
    try:
        return APIS[key]
    except KeyError:
        raise UnknownApiKeyError(f"no API of key {key}") from None


def api_of(message: type[Any]) -> Api:
    """The API that a request or response class belongs to."""
    return _BY_CLASS[message]
