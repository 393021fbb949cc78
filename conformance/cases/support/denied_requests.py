"""For each operation on a resource (KIP-140) a request that needs it, and where its reply has the error code."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from highwater.conformance.client.broker import (
    CONSUMER,
    LATEST,
    Topic,
    batch,
    produce_request,
)
from highwater.conformance.models import acls
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from highwater.reference.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from highwater.reference.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from highwater.reference.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from highwater.reference.wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from highwater.reference.wire.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from highwater.reference.wire.messages.quorum import DescribeQuorumRequest, QuorumPartition, QuorumTopic
from highwater.reference.wire.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
)
from highwater.reference.wire.messages.security import DescribeAclsRequest
from highwater.reference.wire.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from highwater.reference.wire.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from highwater.reference.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from highwater.reference.wire.messages.transactions import (
    TopicRequest as ProducersTopic,
)

TRANSACTION_KEY: Final = 1
TOPIC_CONFIG: Final = 2
TOPIC_REFUSED, GROUP_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
TRANSACTION_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
CLUSTER_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@dataclass(frozen=True, slots=True)
class Names:
    """What a request refers to."""

    topic: Topic
    group: str
    transactional_id: str


@dataclass(frozen=True, slots=True)
class Needed:
    """A request that needs an operation; `path` leads to the error code, `newest` limits the version.

    The broker forwards some requests to the controller, which learns of new lists at another time.
    """

    resource: int
    operation: int
    request: Callable[[Names], Any]
    path: str
    newest: int | None = None
    forwarded: bool = False


def _commit(names: Names) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(partition_index=names.topic.partition, committed_offset=0)
    topic = OffsetCommitRequestTopic(name=names.topic.name, partitions=(part,))
    return OffsetCommitRequest(group_id=names.group, topics=(topic,))


def _transactional_commit(names: Names) -> TxnOffsetCommitRequest:
    part = TxnOffsetCommitRequestPartition(partition_index=names.topic.partition, committed_offset=0)
    topic = TxnOffsetCommitRequestTopic(name=names.topic.name, partitions=(part,))
    return TxnOffsetCommitRequest(
        transactional_id=names.transactional_id, group_id=names.group, producer_id=1, topics=(topic,)
    )


def _delete_offset(names: Names) -> OffsetDeleteRequest:
    part = OffsetDeleteRequestPartition(partition_index=names.topic.partition)
    topic = OffsetDeleteRequestTopic(name=names.topic.name, partitions=(part,))
    return OffsetDeleteRequest(group_id=names.group, topics=(topic,))


def _add_partitions(names: Names) -> AddPartitionsToTxnRequest:
    topic = AddPartitionsToTxnTopic(name=names.topic.name, partitions=(names.topic.partition,))
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=names.transactional_id, v3_and_below_producer_id=1, v3_and_below_topics=(topic,)
    )


def _fetch(names: Names) -> FetchRequest:
    part = FetchPartition(partition=names.topic.partition, partition_max_bytes=1 << 20)
    return FetchRequest(max_bytes=1 << 20, topics=(FetchTopic(topic=names.topic.name, partitions=(part,)),))


def _list_offsets(names: Names) -> ListOffsetsRequest:
    part = ListOffsetsPartition(partition_index=names.topic.partition, timestamp=LATEST)
    return ListOffsetsRequest(
        replica_id=CONSUMER, topics=(ListOffsetsTopic(name=names.topic.name, partitions=(part,)),)
    )


def _delete_records(names: Names) -> DeleteRecordsRequest:
    part = DeleteRecordsPartition(partition_index=names.topic.partition, offset=1)
    topic = DeleteRecordsTopic(name=names.topic.name, partitions=(part,))
    return DeleteRecordsRequest(topics=(topic,), timeout_ms=4000)


def _describe_config(names: Names) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=TOPIC_CONFIG, resource_name=names.topic.name, configuration_keys=("retention.ms",)
    )
    return DescribeConfigsRequest(resources=(resource,))


def _alter_config(names: Names) -> AlterConfigsRequest:
    config = AlterableConfig(name="retention.ms", value="86400001")
    resource = AlterConfigsResource(resource_type=TOPIC_CONFIG, resource_name=names.topic.name, configs=(config,))
    return AlterConfigsRequest(resources=(resource,))


def _alter_one_config(names: Names) -> IncrementalAlterConfigsRequest:
    config = IncrementalAlterableConfig(name="retention.ms", config_operation=0, value="86400001")
    resource = IncrementalAlterConfigsResource(
        resource_type=TOPIC_CONFIG, resource_name=names.topic.name, configs=(config,)
    )
    return IncrementalAlterConfigsRequest(resources=(resource,))


def _add_partition(names: Names) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=(CreatePartitionsTopic(name=names.topic.name, count=9),), timeout_ms=4000)


def _would_add_partition(names: Names) -> CreatePartitionsRequest:
    return replace(_add_partition(names), validate_only=True)


def _describe_producers(names: Names) -> DescribeProducersRequest:
    topic = ProducersTopic(name=names.topic.name, partition_indexes=(names.topic.partition,))
    return DescribeProducersRequest(topics=(topic,))


def _join(names: Names) -> JoinGroupRequest:
    protocol = JoinGroupRequestProtocol(name="range")
    return JoinGroupRequest(
        group_id=names.group, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer",
        protocols=(protocol,),
    )  # fmt: skip


def _read_offset(names: Names) -> OffsetFetchRequest:
    topic = OffsetFetchRequestTopic(name=names.topic.name, partition_indexes=(names.topic.partition,))
    return OffsetFetchRequest(group_id=names.group, topics=(topic,))


def _topics(names: Names) -> tuple[str, ...]:
    return (names.topic.name,)


HARMLESS: Final = Needed(acls.TOPIC, acls.ALTER, _would_add_partition, "results.error_code", forwarded=True)

OF_TOPICS: Final = {
    "Produce": Needed(
        acls.TOPIC, acls.WRITE, lambda names: produce_request(names.topic, batch(b"refused")),
        "responses.partition_responses.error_code", 12,
    ),
    "Fetch": Needed(acls.TOPIC, acls.READ, _fetch, "responses.partitions.error_code", 12),
    "ListOffsets": Needed(acls.TOPIC, acls.DESCRIBE, _list_offsets, "topics.partitions.error_code"),
    "Metadata": Needed(
        acls.TOPIC, acls.DESCRIBE, lambda names: MetadataRequest(
            topics=(MetadataRequestTopic(name=names.topic.name),), allow_auto_topic_creation=False
        ), "topics.error_code", 9,
    ),
    "DescribeTopicPartitions": Needed(
        acls.TOPIC, acls.DESCRIBE,
        lambda names: DescribeTopicPartitionsRequest(topics=(TopicRequest(name=names.topic.name),)),
        "topics.error_code",
    ),
    "DescribeProducers": Needed(acls.TOPIC, acls.READ, _describe_producers, "topics.partitions.error_code"),
    "DeleteRecords": Needed(acls.TOPIC, acls.DELETE, _delete_records, "topics.partitions.error_code"),
    "DescribeConfigs": Needed(acls.TOPIC, acls.DESCRIBE_CONFIGS, _describe_config, "results.error_code"),
    "AlterConfigs": Needed(acls.TOPIC, acls.ALTER_CONFIGS, _alter_config, "responses.error_code", forwarded=True),
    "IncrementalAlterConfigs": Needed(
        acls.TOPIC, acls.ALTER_CONFIGS, _alter_one_config, "responses.error_code", forwarded=True
    ),
    "CreatePartitions": Needed(acls.TOPIC, acls.ALTER, _add_partition, "results.error_code", forwarded=True),
    "OffsetCommit": Needed(acls.TOPIC, acls.READ, _commit, "topics.partitions.error_code", 9),
    "TxnOffsetCommit": Needed(acls.TOPIC, acls.READ, _transactional_commit, "topics.partitions.error_code", 4),
    "OffsetFetch": Needed(acls.TOPIC, acls.DESCRIBE, _read_offset, "topics.partitions.error_code", 7),
    "AddPartitionsToTxn": Needed(
        acls.TOPIC, acls.WRITE, _add_partitions,
        "results_by_topic_v3_and_below.results_by_partition.partition_error_code", 3,
    ),
}  # fmt: skip
"""DeleteTopics and OffsetForLeaderEpoch are left out: a permission on the cluster is enough for them."""

OF_GROUPS: Final = {
    "FindCoordinator": Needed(
        acls.GROUP, acls.DESCRIBE, lambda names: FindCoordinatorRequest(key=names.group), "error_code", 3
    ),
    "JoinGroup": Needed(acls.GROUP, acls.READ, _join, "error_code"),
    "SyncGroup": Needed(
        acls.GROUP, acls.READ, lambda names: SyncGroupRequest(
            group_id=names.group, member_id="m", protocol_type="consumer", protocol_name="range"
        ), "error_code"
    ),
    "Heartbeat": Needed(
        acls.GROUP, acls.READ, lambda names: HeartbeatRequest(group_id=names.group, member_id="m"), "error_code"
    ),
    "LeaveGroup": Needed(
        acls.GROUP, acls.READ, lambda names: LeaveGroupRequest(group_id=names.group, member_id="m"), "error_code", 2
    ),
    "OffsetCommit": Needed(acls.GROUP, acls.READ, _commit, "topics.partitions.error_code", 9),
    "OffsetFetch": Needed(acls.GROUP, acls.DESCRIBE, _read_offset, "error_code", 7),
    "OffsetDelete": Needed(acls.GROUP, acls.DELETE, _delete_offset, "error_code"),
    "TxnOffsetCommit": Needed(acls.GROUP, acls.READ, _transactional_commit, "topics.partitions.error_code", 4),
    "AddOffsetsToTxn": Needed(
        acls.GROUP, acls.READ, lambda names: AddOffsetsToTxnRequest(
            transactional_id=names.transactional_id, producer_id=1, group_id=names.group
        ), "error_code", 3,
    ),
    "DescribeGroups": Needed(
        acls.GROUP, acls.DESCRIBE, lambda names: DescribeGroupsRequest(groups=(names.group,)), "groups.error_code"
    ),
    "ConsumerGroupHeartbeat": Needed(
        acls.GROUP, acls.READ, lambda names: ConsumerGroupHeartbeatRequest(
            group_id=names.group, member_id="m", rebalance_timeout_ms=10_000, topic_partitions=(),
            subscribed_topic_names=_topics(names),
        ), "error_code",
    ),
    "ConsumerGroupDescribe": Needed(
        acls.GROUP, acls.DESCRIBE, lambda names: ConsumerGroupDescribeRequest(group_ids=(names.group,)),
        "groups.error_code",
    ),
    "ShareGroupHeartbeat": Needed(
        acls.GROUP, acls.READ, lambda names: ShareGroupHeartbeatRequest(
            group_id=names.group, member_id="m", subscribed_topic_names=_topics(names)
        ), "error_code",
    ),
    "ShareGroupDescribe": Needed(
        acls.GROUP, acls.DESCRIBE, lambda names: ShareGroupDescribeRequest(group_ids=(names.group,)),
        "groups.error_code",
    ),
    "DeleteGroups": Needed(
        acls.GROUP, acls.DELETE, lambda names: DeleteGroupsRequest(groups_names=(names.group,)), "results.error_code"
    ),
}  # fmt: skip

OF_TRANSACTIONS: Final = {
    "FindCoordinator": Needed(
        acls.TRANSACTIONAL_ID, acls.DESCRIBE,
        lambda names: FindCoordinatorRequest(key=names.transactional_id, key_type=TRANSACTION_KEY), "error_code", 3,
    ),
    "InitProducerId": Needed(
        acls.TRANSACTIONAL_ID, acls.WRITE, lambda names: InitProducerIdRequest(
            transactional_id=names.transactional_id, transaction_timeout_ms=10_000
        ), "error_code",
    ),
    "AddPartitionsToTxn": Needed(
        acls.TRANSACTIONAL_ID, acls.WRITE, _add_partitions,
        "results_by_topic_v3_and_below.results_by_partition.partition_error_code", 3,
    ),
    "AddOffsetsToTxn": Needed(
        acls.TRANSACTIONAL_ID, acls.WRITE, lambda names: AddOffsetsToTxnRequest(
            transactional_id=names.transactional_id, producer_id=1, group_id=names.group
        ), "error_code", 3,
    ),
    "TxnOffsetCommit": Needed(
        acls.TRANSACTIONAL_ID, acls.WRITE, _transactional_commit, "topics.partitions.error_code", 4
    ),
    "EndTxn": Needed(
        acls.TRANSACTIONAL_ID, acls.WRITE,
        lambda names: EndTxnRequest(transactional_id=names.transactional_id, producer_id=1), "error_code", 4,
    ),
    "DescribeTransactions": Needed(
        acls.TRANSACTIONAL_ID, acls.DESCRIBE,
        lambda names: DescribeTransactionsRequest(transactional_ids=(names.transactional_id,)),
        "transaction_states.error_code",
    ),
}  # fmt: skip

OF_CLUSTER: Final = {
    "DescribeAcls": Needed(
        acls.CLUSTER, acls.DESCRIBE, lambda names: DescribeAclsRequest(**acls.ANYTHING), "error_code"
    ),
    "DescribeClientQuotas": Needed(
        acls.CLUSTER, acls.DESCRIBE_CONFIGS, lambda names: DescribeClientQuotasRequest(), "error_code"
    ),
    "DescribeLogDirs": Needed(
        acls.CLUSTER, acls.DESCRIBE, lambda names: DescribeLogDirsRequest(topics=()), "error_code"
    ),
    "DescribeQuorum": Needed(
        acls.CLUSTER, acls.DESCRIBE, lambda names: DescribeQuorumRequest(
            topics=(QuorumTopic(topic_name="__cluster_metadata", partitions=(QuorumPartition(),)),)
        ), "error_code",
    ),
    "ElectLeaders": Needed(acls.CLUSTER, acls.ALTER, lambda names: ElectLeadersRequest(
        topic_partitions=(), timeout_ms=4000
    ), "error_code"),
    "AlterPartitionReassignments": Needed(
        acls.CLUSTER, acls.ALTER, lambda names: AlterPartitionReassignmentsRequest(timeout_ms=4000), "error_code"
    ),
}  # fmt: skip
REFUSALS: Final = {
    acls.TOPIC: TOPIC_REFUSED,
    acls.GROUP: GROUP_REFUSED,
    acls.TRANSACTIONAL_ID: TRANSACTION_REFUSED,
    acls.CLUSTER: CLUSTER_REFUSED,
}
CONTROLS: Final = {
    acls.TOPIC: (OF_TOPICS["Metadata"], OF_TOPICS["DescribeConfigs"]),
    acls.GROUP: (OF_GROUPS["FindCoordinator"], OF_GROUPS["DeleteGroups"]),
    acls.TRANSACTIONAL_ID: (OF_TRANSACTIONS["FindCoordinator"], OF_TRANSACTIONS["InitProducerId"]),
}
"""Two requests for each kind of resource that need different operations: one of them stays allowed."""
