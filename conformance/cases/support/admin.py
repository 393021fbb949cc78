"""Helpers for administrative requests, most of which are sent to the controller."""

from collections.abc import Sequence
from typing import Any, Final

from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.requests import message
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Unsupported
from highwater.conformance.models.settings import TOPIC, Change
from highwater.reference.wire.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from highwater.reference.wire.messages.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest
from highwater.reference.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)

BROKER = 4
DEFAULT_SOURCE = 5
TIMEOUT_MS: Final = 10_000
DEFAULT_COUNTS_SINCE: Final = 4
"""First version of CreateTopics in which -1 means the broker's default number (KIP-464)."""
CONTROLLER_APIS: Final = frozenset({19, 20, 33, 37, 43, 44, 45, 49, 51})
"""API keys of changes: topics, partitions, configs, elections, reassignments, quotas, SCRAM users."""


def controller(cluster: Cluster) -> Broker:
    """Return a connection to the controller of Metadata; with KRaft any broker, which forwards (KIP-590)."""
    if not CONTROLLER_APIS & cluster.advertised.keys():
        raise Unsupported("no API of the controller is advertised")

    def poll() -> int | None:
        with cluster.connect() as broker:
            found: int = broker.call(MetadataRequest(topics=()), 1).controller_id
        return found if found in cluster.target.addresses and cluster.is_up(found) else None

    return cluster.connect(cluster.target.addresses[cluster.eventually("a controller", poll)])


def new_topic(
    name: str, partitions: int = 1, factor: int = 1, *, assignment: Sequence[Sequence[int]] = (),
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:  # fmt: skip
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=factor,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=index, broker_ids=tuple(replicas))
            for index, replicas in enumerate(assignment)
        ),
        configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()),
    )  # fmt: skip


def create(
    cluster: Cluster, *topics: CreatableTopic, validate_only: bool = False, version: int | None = None
) -> dict[str, CreatableTopicResult]:
    """Create topics and return the results by name."""
    with controller(cluster) as broker:
        request = CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=validate_only)
        reply = broker.call(request, version, TIMEOUT_MS / 1000 + 5)
    return {result.name: result for result in reply.topics}


def create_error(cluster: Cluster, topic: CreatableTopic) -> int:
    """Create a topic and return the error code; an error must have a message."""
    result = create(cluster, topic)[topic.name]
    if result.error_code:
        expect("there is an error message", True, bool(result.error_message))
    return result.error_code


def describe_configs(
    broker: Broker, name: str, keys: Sequence[str] | None = None, *, kind: int = TOPIC, version: int | None = None,
    **fields: Any,
) -> DescribeConfigsResult:  # fmt: skip
    resource = [kind, name, None if keys is None else tuple(keys)]
    result: DescribeConfigsResult = only(
        broker.call(message(DescribeConfigsRequest, resources=[resource], **fields), version).results
    )
    return result


def config(broker: Broker, name: str, key: str, **fields: Any) -> DescribeConfigsResourceResult:
    """Describe one config of a topic."""
    result = describe_configs(broker, name, [key], **fields)
    expect("error code of DescribeConfigs", 0, result.error_code)
    return only(result.configs)


def replace_configs(
    broker: Broker, name: str, settings: dict[str, str | None], *, kind: int = TOPIC, validate_only: bool = False,
    version: int | None = None,
) -> int:  # fmt: skip
    """Replace all configs with AlterConfigs and return the error code."""
    configs = [[key, value] for key, value in settings.items()]
    resource = [kind, name, configs]
    request = message(AlterConfigsRequest, resources=[resource], validate_only=validate_only)
    return int(only(broker.call(request, version).responses).error_code)


"""Config name, operation, value."""


def config_changes(name: str, *changes: Change, kind: int = TOPIC) -> IncrementalAlterConfigsResource:
    configs = tuple(
        IncrementalAlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    )
    return IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def change_configs(
    broker: Broker, name: str, *changes: Change, kind: int = TOPIC, validate_only: bool = False,
    version: int | None = None,
) -> int:  # fmt: skip
    """Change configs with IncrementalAlterConfigs and return the error code."""
    request = IncrementalAlterConfigsRequest(
        resources=(config_changes(name, *changes, kind=kind),), validate_only=validate_only
    )
    return int(only(broker.call(request, version).responses).error_code)


# -- finalised feature levels (KIP-584) ----------------------------------------------------------------


FEATURES_SINCE: Final = 3
NAMED: Final = ApiVersionsRequest(client_software_name="highwater", client_software_version="1.0")


def features(broker: Broker, version: int | None = None) -> ApiVersionsResponse:
    """Return a reply of ApiVersions with features; raises Unsupported if the version has none."""
    reply: ApiVersionsResponse = broker.call(
        NAMED, broker.version_of(ApiVersionsRequest, FEATURES_SINCE) if version is None else version
    )
    return reply


def need_feature(broker: Broker, name: str, level: int) -> None:
    """Raise Unsupported unless the finalised level of the feature is at least `level`."""
    found = {feature.name: feature.max_version_level for feature in features(broker).finalized_features}.get(name, 0)
    if found < level:
        raise Unsupported(f"the case needs {name} {level}, the finalised level is {found}")
