"""Administrative requests: settings, log folders, ACLs, pages of partitions, offsets of a group."""

import pytest

from highwater.reference.configuration.broker_values import DYNAMIC
from highwater.reference.tests.simulated import Simulated
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
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from highwater.reference.wire.messages.metadata import (
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    MetadataRequest,
    TopicRequest,
)
from highwater.reference.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from highwater.reference.wire.messages.replicas import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    TopicPartitions,
)
from highwater.reference.wire.messages.security import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)

TOPIC = "t"
TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture
def world() -> Simulated:
    world = Simulated()
    world.create(TOPIC, 3)
    return world


def setting(world: Simulated, name: str) -> str:
    resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configuration_keys=(name,))
    (found,) = world.ask(DescribeConfigsRequest(resources=(resource,)), 4).results[0].configs
    return str(found.value)


def change(
    world: Simulated, operation: int, name: str, value: str | None = None, *, kind: int = TOPIC_RESOURCE,
    topic: str = TOPIC, validate_only: bool = False,
) -> ErrorCode:  # fmt: skip
    config = IncrementalAlterableConfig(name=name, config_operation=operation, value=value)
    resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=topic, configs=(config,))
    body = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
    return ErrorCode(world.ask(body, 1).responses[0].error_code)


def test_incremental_alter_configs_sets_and_deletes_one_setting(world: Simulated) -> None:
    default = setting(world, "retention.ms")
    assert change(world, SET, "retention.ms", "1000") is ErrorCode.NONE
    assert change(world, SET, "retention.bytes", "5") is ErrorCode.NONE
    assert (setting(world, "retention.ms"), setting(world, "retention.bytes")) == ("1000", "5")
    assert change(world, DELETE, "retention.ms") is ErrorCode.NONE
    assert (setting(world, "retention.ms"), setting(world, "retention.bytes")) == (default, "5")


def test_append_and_subtract_change_a_list_setting(world: Simulated) -> None:
    assert change(world, APPEND, "cleanup.policy", "compact,compact") is ErrorCode.NONE
    assert setting(world, "cleanup.policy") == "delete,compact"
    assert change(world, SUBTRACT, "cleanup.policy", "delete") is ErrorCode.NONE
    assert setting(world, "cleanup.policy") == "compact"


def test_validate_only_changes_nothing(world: Simulated) -> None:
    before = setting(world, "retention.ms")
    assert change(world, SET, "retention.ms", "1000", validate_only=True) is ErrorCode.NONE
    assert setting(world, "retention.ms") == before


def test_faulty_changes_are_refused(world: Simulated) -> None:
    assert change(world, SET, "no.such.thing", "1") is ErrorCode.INVALID_CONFIG
    assert change(world, SET, "retention.ms", "long") is ErrorCode.INVALID_CONFIG
    assert change(world, APPEND, "retention.ms", "1") is ErrorCode.INVALID_CONFIG
    assert change(world, 9, "cleanup.policy", "compact") is ErrorCode.INVALID_REQUEST
    assert change(world, SET, "retention.ms", "1", topic="other") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert change(world, SET, "retention.ms", "1", kind=BROKER_LOGGER_RESOURCE) is ErrorCode.INVALID_REQUEST
    assert change(world, SET, "retention.ms", "1", kind=0) is ErrorCode.INVALID_REQUEST


def test_alter_configs_replaces_all_settings(world: Simulated) -> None:
    default = setting(world, "retention.ms")
    change(world, SET, "retention.ms", "1000")
    config = AlterableConfig(name="retention.bytes", value="7")
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=(config,))
    answer = world.ask(AlterConfigsRequest(resources=(resource,)), 2)
    assert answer.responses[0].error_code == ErrorCode.NONE
    assert (setting(world, "retention.ms"), setting(world, "retention.bytes")) == (default, "7")


def test_describe_log_dirs_returns_replica_sizes(world: Simulated) -> None:
    world.produce(TOPIC, [b"v" * 100], 1)
    requested = DescribableLogDirTopic(topic=TOPIC, partitions=(0, 1, 9))
    (some,) = world.ask(DescribeLogDirsRequest(topics=(requested,)), 4).results
    sizes = {p.partition_index: p.partition_size for p in some.topics[0].partitions}
    assert set(sizes) == {0, 1}
    assert sizes[0] == 0
    assert sizes[1] > 100
    (everything,) = world.ask(DescribeLogDirsRequest(topics=None), 4).results
    assert sum(len(topic.partitions) for topic in everything.topics) == 3


def test_alter_replica_log_dirs_accepts_only_the_existing_folder(world: Simulated) -> None:
    (folder,) = world.ask(DescribeLogDirsRequest(topics=None), 4).results

    def move(path: str) -> list[int]:
        topic = AlterReplicaLogDirTopic(name=TOPIC, partitions=(0, 9))
        body = AlterReplicaLogDirsRequest(dirs=(AlterReplicaLogDir(path=path, topics=(topic,)),))
        (result,) = world.ask(body, 2).results
        return [part.error_code for part in result.partitions]

    assert move(folder.log_dir) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert move("/elsewhere") == [ErrorCode.LOG_DIR_NOT_FOUND] * 2


def test_a_broker_describes_its_own_settings_without_secrets(world: Simulated) -> None:
    def described(name: str, *keys: str) -> dict[str, DescribeConfigsResourceResult]:
        resource = DescribeConfigsResource(
            resource_type=BROKER_RESOURCE, resource_name=name, configuration_keys=keys or None
        )
        return {
            each.name: each for each in world.ask(DescribeConfigsRequest(resources=(resource,)), 4).results[0].configs
        }

    settings = described("1")
    assert settings["broker.id"].value == "1"
    assert settings["auto.create.topics.enable"].value == "true"
    assert settings["advertised.listeners"].value == "PLAINTEXT://127.0.0.1:9092"
    assert {name for name, each in settings.items() if not each.read_only} <= DYNAMIC.keys()
    assert settings["auto.create.topics.enable"].read_only
    assert [name for name in settings if "password" in name or "user" in name or "key" in name] == []
    assert set(described("1", "broker.id", "no.such")) == {"broker.id"}
    assert described("") == {}, "nothing is stored for all brokers"


def test_acls_need_an_authorizer(world: Simulated) -> None:
    assert world.ask(DescribeAclsRequest(), 3).error_code == ErrorCode.SECURITY_DISABLED
    created = world.ask(CreateAclsRequest(creations=(AclCreation(), AclCreation())), 3).results
    assert [each.error_code for each in created] == [ErrorCode.SECURITY_DISABLED] * 2
    deleted = world.ask(DeleteAclsRequest(filters=(DeleteAclsFilter(),)), 3).filter_results
    assert [each.error_code for each in deleted] == [ErrorCode.SECURITY_DISABLED]


def test_describe_topic_partitions_returns_pages(world: Simulated) -> None:
    world.create("u", 2)
    seen: list[tuple[str | None, int]] = []
    replicas: set[tuple[object, object]] = set()
    cursor = None
    for _ in range(3):
        body = DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor)
        page = world.ask(body, 0)
        seen += [(topic.name, p.partition_index) for topic in page.topics for p in topic.partitions]
        replicas |= {(p.eligible_leader_replicas, p.last_known_elr) for topic in page.topics for p in topic.partitions}
        if page.next_cursor is None:
            break
        cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=page.next_cursor.topic_name, partition_index=page.next_cursor.partition_index
        )
    assert seen == [(TOPIC, 0), (TOPIC, 1), (TOPIC, 2), ("u", 0), ("u", 1)]
    assert replicas == {((), ())}, "Java's AdminClient ends at null"
    unknown = world.ask(DescribeTopicPartitionsRequest(topics=(TopicRequest(name="no"),)), 0)
    assert unknown.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.topics[0].topic_authorized_operations > 0, "Apache Kafka does not wait to be asked"


CLUSTER_OPERATIONS = 0b1_1111_1010_0000
"""Create, alter, describe, cluster action, describe and alter configs, idempotent write (KIP-430)."""


@pytest.mark.parametrize(
    ("request_type", "version"), [(MetadataRequest, 8), (MetadataRequest, 10), (DescribeClusterRequest, 0)]
)
def test_operations_on_the_cluster_are_returned_on_request(world: Simulated, request_type: type, version: int) -> None:
    for requested, expected in ((True, CLUSTER_OPERATIONS), (False, -(2**31))):
        found = world.ask(request_type(include_cluster_authorized_operations=requested), version)
        assert found.cluster_authorized_operations == expected


def test_racks_of_brokers_are_described() -> None:
    world = Simulated(broker_rack="a")
    found = world.ask(DescribeClusterRequest(), 0)
    assert [(broker.broker_id, broker.rack) for broker in found.brokers] == [(1, "a")]


def test_offsets_of_a_group_are_deleted(world: Simulated) -> None:
    coordinator = world.coordinator("g", 0)
    partitions = tuple(OffsetCommitRequestPartition(partition_index=number, committed_offset=5) for number in range(2))
    topics = (OffsetCommitRequestTopic(name=TOPIC, partitions=partitions),)
    world.wait(
        lambda: world.ask(OffsetCommitRequest(group_id="g", topics=topics), 7, coordinator)
        .topics[0].partitions[0].error_code == ErrorCode.NONE
    )  # fmt: skip
    requested = (OffsetDeleteRequestPartition(partition_index=0), OffsetDeleteRequestPartition(partition_index=9))
    body = OffsetDeleteRequest(group_id="g", topics=(OffsetDeleteRequestTopic(name=TOPIC, partitions=requested),))
    answer = world.ask(body, 0, coordinator)
    assert answer.error_code == ErrorCode.NONE
    assert [p.error_code for p in answer.topics[0].partitions] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    wanted = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=(0, 1))
    found = world.ask(OffsetFetchRequest(group_id="g", topics=(wanted,)), 7, coordinator).topics[0].partitions
    assert [p.committed_offset for p in found] == [-1, 5]
    missing = OffsetDeleteRequest(group_id="unknown", topics=())
    assert world.ask(missing, 0, world.coordinator("unknown", 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_types_synonyms_and_documentation_are_returned_on_request(world: Simulated) -> None:
    assert change(world, SET, "retention.ms", "1000") is ErrorCode.NONE
    resource = DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configuration_keys=("retention.ms",)
    )
    request = DescribeConfigsRequest(resources=(resource,), include_synonyms=True, include_documentation=True)
    (found,) = world.ask(request, 4).results[0].configs
    assert (found.value, found.config_source, found.config_type) == ("1000", 1, 5)
    assert [(each.value, each.source) for each in found.synonyms] == [("1000", 1), ("604800000", 5)]
    assert found.documentation
    (bare,) = world.ask(DescribeConfigsRequest(resources=(resource,)), 4).results[0].configs
    assert (bare.synonyms, bare.documentation) == ((), None)


def test_a_broker_describes_only_its_own_settings(world: Simulated) -> None:
    def error(name: str) -> int:
        resource = DescribeConfigsResource(resource_type=BROKER_RESOURCE, resource_name=name, configuration_keys=None)
        return int(world.ask(DescribeConfigsRequest(resources=(resource,)), 4).results[0].error_code)

    assert [error(name) for name in ("1", "", "2", "x")] == [0, 0, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]


def test_an_ambiguous_change_is_refused(world: Simulated) -> None:
    assert change(world, SET, "retention.ms", None) is ErrorCode.INVALID_REQUEST
    assert change(world, APPEND, "cleanup.policy", None) is ErrorCode.INVALID_REQUEST
    config = IncrementalAlterableConfig(name="retention.ms", config_operation=SET, value="1000")
    twice = IncrementalAlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=(config, config))
    once = IncrementalAlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=(config,))
    for resources in ((twice,), (once, once)):
        reply = world.ask(IncrementalAlterConfigsRequest(resources=resources), 1)
        assert {each.error_code for each in reply.responses} == {ErrorCode.INVALID_REQUEST}
    null = AlterConfigsResource(
        resource_type=TOPIC_RESOURCE,
        resource_name=TOPIC,
        configs=(AlterableConfig(name="retention.ms", value=None),),
    )
    reply = world.ask(AlterConfigsRequest(resources=(null,)), 1)
    assert reply.responses[0].error_code == ErrorCode.INVALID_REQUEST
    assert setting(world, "retention.ms") == "604800000"


@pytest.mark.parametrize(
    ("endpoint_type", "expected"),
    [(1, ErrorCode.NONE), (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_a_broker_describes_only_endpoints_of_brokers(
    world: Simulated, endpoint_type: int, expected: ErrorCode
) -> None:
    """KIP-919; a value that is no endpoint type was handled like that of the brokers."""
    assert world.ask(DescribeClusterRequest(endpoint_type=endpoint_type), 1).error_code == expected


@pytest.mark.parametrize("topics", [None, (TopicPartitions(topic=TOPIC, partitions=(0, 1)),)])
def test_an_unknown_type_of_election_is_refused(world: Simulated, topics: tuple[TopicPartitions, ...] | None) -> None:
    """It was handled like an unclean election. Apache Kafka 4.3.1 returns INVALID_REQUEST."""
    answer = world.ask(ElectLeadersRequest(election_type=2, topic_partitions=topics), 2)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    codes = {part.error_code for topic in answer.replica_election_results for part in topic.partition_result}
    assert codes == ({ErrorCode.INVALID_REQUEST} if topics else set())


def test_an_unknown_isolation_level_is_refused(world: Simulated) -> None:
    """It was handled like read_uncommitted. Apache Kafka 4.3.1 returns UNKNOWN_SERVER_ERROR for each partition."""
    assert world.fetch(TOPIC, isolation_level=2).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    requested = (ListOffsetsTopic(name=TOPIC, partitions=(ListOffsetsPartition(timestamp=-1),)),)
    for isolation_level in (-1, 2):
        body = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=requested)
        assert world.ask(body, 4).topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
