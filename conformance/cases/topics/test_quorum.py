"""The metadata quorum, the features of the cluster, and the list of resources that have a configuration."""

from typing import Any

import pytest

from highwater.conformance.cases.support.admin import controller
from highwater.conformance.clause import clause, sweep
from highwater.conformance.client.broker import FEATURES_SINCE, Broker, Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Unsupported
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.configs import ListConfigResourcesRequest
from highwater.reference.wire.messages.metadata import ApiVersionsRequest
from highwater.reference.wire.messages.quorum import (
    DescribeQuorumRequest,
    FeatureUpdateKey,
    QuorumPartition,
    QuorumTopic,
    UpdateFeaturesRequest,
)

METADATA_TOPIC = "__cluster_metadata"
ADDRESSES_SINCE = 2
TIMES_SINCE = 1
TYPES_SINCE = 1
TOPIC_CONFIG, BROKER_CONFIG = 2, 4
UPGRADE, SAFE_DOWNGRADE = 1, 2
FEATURE = "transaction.version"
RESULTS_UNTIL = 1


def describe_quorum(cluster: Cluster, topic: str, version: int | None = None) -> Any:
    request = DescribeQuorumRequest(topics=(QuorumTopic(topic_name=topic, partitions=(QuorumPartition(),)),))
    with controller(cluster) as broker:
        return broker.call(request, version)


@clause("CTL-10")
@defect(
    Reply(DescribeQuorumRequest, "topics.partitions.leader_id", -1),
    Reply(DescribeQuorumRequest, "topics.partitions.current_voters", ()),
)
@sweep(DescribeQuorumRequest)
def test_the_quorum_has_a_leader_that_votes(cluster: Cluster, version: int) -> None:
    reply = describe_quorum(cluster, METADATA_TOPIC, version)
    found = only(only(reply.topics).partitions)
    expect("error codes", {(0, 0)}, (reply.error_code, found.error_code))
    voters = {voter.replica_id: voter for voter in found.current_voters}
    expect("the leader is a voter", True, found.leader_id in voters)
    expect("the leader has an epoch", True, found.leader_epoch > 0)
    ends = [replica.log_end_offset for replica in (*found.current_voters, *found.observers)]
    expect("no replica is ahead of the leader", voters[found.leader_id].log_end_offset, max(ends))
    expect("the high watermark is in the log", True, 0 < found.high_watermark <= max(ends))
    if version >= TIMES_SINCE:
        expect("the leader has a time", True, voters[found.leader_id].last_caught_up_timestamp > 0)
    if version >= ADDRESSES_SINCE:
        expect("each voter has an address", True, set(voters) <= {node.node_id for node in reply.nodes})


@clause("CTL-10", "majority")
@defect(Reply(DescribeQuorumRequest, "topics.partitions.high_watermark", 1))
def test_the_high_watermark_grows_with_the_changes(cluster: Cluster) -> None:
    before = only(only(describe_quorum(cluster, METADATA_TOPIC).topics).partitions).high_watermark
    cluster.create_topic()
    after = only(only(describe_quorum(cluster, METADATA_TOPIC).topics).partitions).high_watermark
    expect("the high watermark grows", True, after > before)


@clause("CTL-11")
@defect(Reply(DescribeQuorumRequest, "topics.partitions.error_code", 0))
@sweep(DescribeQuorumRequest)
def test_other_topics_have_no_quorum(cluster: Cluster, topic: Topic, version: int) -> None:
    found = only(only(describe_quorum(cluster, topic.name, version).topics).partitions)
    expect("error code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, found.error_code)


# -- features (KIP-584) ----------------------------------------------------------------------------------


def features(broker: Broker) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
    """Return the supported levels of each feature, and the finalised one."""
    reply = broker.call(
        ApiVersionsRequest(client_software_name="highwater", client_software_version="1"),
        broker.version_of(ApiVersionsRequest, FEATURES_SINCE),
    )
    return (
        {each.name: (each.min_version, each.max_version) for each in reply.supported_features},
        {each.name: each.max_version_level for each in reply.finalized_features},
    )


def update(cluster: Cluster, level: int, name: str = FEATURE, version: int | None = None, **fields: Any) -> int:
    """Send UpdateFeatures for one feature; return the error code of the request or, in old versions, of the feature."""
    kind = {"upgrade_type": fields.pop("upgrade_type", UPGRADE)} if version is None or version else {}
    change = FeatureUpdateKey(feature=name, max_version_level=level, **kind)
    with controller(cluster) as broker:
        reply = broker.call(UpdateFeaturesRequest(feature_updates=(change,), **fields), version)
    return int(reply.error_code or next((each.error_code for each in reply.results if each.error_code), 0))


@clause("CTL-12")
@defect(Reply(UpdateFeaturesRequest, "error_code", 0))
@sweep(UpdateFeaturesRequest)
def test_a_level_that_is_not_supported_is_refused(cluster: Cluster, broker: Broker, version: int) -> None:
    before = features(broker)[1]
    highest = max((level for _, level in features(broker)[0].values()), default=0)
    for name in (FEATURE, "hw.unknown.feature"):
        error = update(cluster, highest + 1, name, version)
        expect(f"error code of {name}", {ErrorCode.FEATURE_UPDATE_FAILED, ErrorCode.INVALID_UPDATE_VERSION}, error)
    expect("finalised levels", True, features(broker)[1] == before)


@clause("CTL-13")
@defect(Reply(UpdateFeaturesRequest, "error_code", 0))
def test_a_lower_level_must_be_permitted(cluster: Cluster, broker: Broker) -> None:
    broker.version_of(UpdateFeaturesRequest, 1)
    level = features(broker)[1].get(FEATURE, 0)
    if level < 1:
        raise Unsupported(f"{FEATURE} is not finalised")
    error = update(cluster, level - 1, validate_only=True)
    expect("error code", {ErrorCode.FEATURE_UPDATE_FAILED, ErrorCode.INVALID_UPDATE_VERSION}, error)


@clause("CTL-13", "only validated")
@defect(Reply(UpdateFeaturesRequest, "error_code", ErrorCode.FEATURE_UPDATE_FAILED))
def test_a_validated_level_is_not_set(cluster: Cluster, broker: Broker) -> None:
    broker.version_of(UpdateFeaturesRequest, 1)
    before = features(broker)[1]
    if before.get(FEATURE, 0) < 1:
        raise Unsupported(f"{FEATURE} is not finalised")
    error = update(cluster, before[FEATURE] - 1, upgrade_type=SAFE_DOWNGRADE, validate_only=True)
    expect("error code", 0, error)
    expect("finalised levels", True, features(broker)[1] == before)


# -- resources (KIP-1142) --------------------------------------------------------------------------------


@clause("ADM-46")
@defect(
    Reply(ListConfigResourcesRequest, "config_resources", ()),
    Request(ListConfigResourcesRequest, "resource_types", (BROKER_CONFIG,)),
)
def test_topics_and_brokers_have_configurations(broker: Broker, cluster: Cluster, topic: Topic) -> None:
    version = broker.version_of(ListConfigResourcesRequest, TYPES_SINCE)

    def listed(*types: int) -> set[tuple[int, str]]:
        reply = broker.call(ListConfigResourcesRequest(resource_types=types), version)
        expect("error code", 0, reply.error_code)
        return {(each.resource_type, each.resource_name) for each in reply.config_resources}

    topics = listed(TOPIC_CONFIG)
    expect("the topic is listed", True, (TOPIC_CONFIG, topic.name) in topics)
    expect("types", True, {kind for kind, _ in topics} == {TOPIC_CONFIG})
    brokers = {(BROKER_CONFIG, str(node)) for node in cluster.target.addresses}
    expect("the brokers are listed", True, brokers <= listed(BROKER_CONFIG))
    expect("all types contain both", True, brokers | {(TOPIC_CONFIG, topic.name)} <= listed())


@clause("ADM-46", "unknown type")
@defect(Reply(ListConfigResourcesRequest, "error_code", 0))
@pytest.mark.parametrize("kind", [1, 99])
def test_an_unknown_type_is_refused(broker: Broker, kind: int) -> None:
    version = broker.version_of(ListConfigResourcesRequest, TYPES_SINCE)
    reply = broker.call(ListConfigResourcesRequest(resource_types=(kind,)), version)
    expect("error code", ErrorCode.UNSUPPORTED_VERSION, reply.error_code)
