"""Topics as administrators make, grow and delete them."""

import pytest

from highwater.reference.configuration.topic_values import SETTINGS
from highwater.reference.configuration.topics import TopicConfigs
from highwater.reference.replication.partition import Role
from highwater.reference.tests.simulated import Simulated
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from highwater.reference.wire.messages.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from highwater.reference.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

TOPIC = "t"
NOBODY = b"\x11" * 16


@pytest.fixture
def world() -> Simulated:
    world = Simulated()
    world.create(TOPIC)
    return world


def create(world: Simulated, **settings: str) -> ErrorCode:
    configs = tuple(CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in settings.items())
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1, configs=configs)
    return ErrorCode(world.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=2_000), 5).topics[0].error_code)


def delete(world: Simulated, *states: DeleteTopicState) -> list[ErrorCode]:
    reply = world.ask(DeleteTopicsRequest(topics=states, timeout_ms=2_000), 6)
    return [ErrorCode(each.error_code) for each in reply.responses]


@pytest.mark.parametrize("replicas", [(1, 1), (), (1, 2), (9,)])
def test_new_partitions_need_replicas_that_can_be(world: Simulated, replicas: tuple[int, ...]) -> None:
    added = CreatePartitionsTopic(name=TOPIC, count=2, assignments=(CreatePartitionsAssignment(broker_ids=replicas),))
    reply = world.ask(CreatePartitionsRequest(topics=(added,), timeout_ms=2_000), 1)
    assert reply.results[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert len(world.broker().cache.topics[TOPIC].partitions) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup_policy", "burn"),
        ("cleanup_policy", ""),
        ("compression_type", "rar"),
        ("min_insync_replicas", "0"),
        ("retention_ms", "soon"),
        ("retention_ms", "-2"),
        ("retention_ms", "9" * 5000),
        ("min_cleanable_dirty_ratio", "2"),
        ("min_cleanable_dirty_ratio", "nan"),
    ],
)
def test_a_setting_has_one_of_its_values(world: Simulated, name: str, value: str) -> None:
    assert create(world, **{name: value}) is ErrorCode.INVALID_CONFIG
    assert "new" not in world.broker().cache.topics


def test_every_setting_has_its_values_and_every_default_is_one(world: Simulated) -> None:
    configs: TopicConfigs = world.broker().configs
    assert SETTINGS.keys() == configs.defaults.keys()
    assert [name for name, value in configs.defaults.items() if not SETTINGS[name].is_valid(value)] == []


def test_a_deletion_that_is_not_clear_deletes_nothing(world: Simulated) -> None:
    known = world.broker().cache.topics[TOPIC].topic_id
    by_name = DeleteTopicState(name=TOPIC)
    assert delete(world, DeleteTopicState(name=TOPIC, topic_id=known)) == [ErrorCode.INVALID_REQUEST]
    assert delete(world, DeleteTopicState()) == [ErrorCode.INVALID_REQUEST]
    assert delete(world, by_name, by_name) == [ErrorCode.INVALID_REQUEST] * 2
    assert delete(world, DeleteTopicState(topic_id=NOBODY)) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert delete(world, DeleteTopicState(name="nowhere")) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert TOPIC in world.broker().cache.topics


def test_a_name_may_be_used_again_at_once(world: Simulated) -> None:
    """The leader epochs of a topic begin at 0, also those of the second of its name."""
    before = world.broker().cache.topics[TOPIC].topic_id
    assert delete(world, DeleteTopicState(topic_id=before)) == [ErrorCode.NONE]
    world.create(TOPIC)
    assert world.broker().replicas.partitions[TOPIC, 0].role is Role.LEADER
    assert world.broker().cache.topics[TOPIC].topic_id != before


@pytest.mark.parametrize("offset", [2, -1])
def test_records_are_deleted_once_every_follower_has_heard(offset: int) -> None:
    world = Simulated(3)
    world.create(TOPIC)
    leader = world.leader(TOPIC)
    assert world.produce(TOPIC, [b"a", b"b"]).error_code == ErrorCode.NONE
    asked = DeleteRecordsTopic(name=TOPIC, partitions=(DeleteRecordsPartition(partition_index=0, offset=offset),))
    reply = world.ask(DeleteRecordsRequest(topics=(asked,), timeout_ms=10_000), 2, leader)
    result = reply.topics[0].partitions[0]
    assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 2)
    assert {world.broker(each).replicas.partitions[TOPIC, 0].log.log_start_offset for each in world.broker_ids} == {2}


@pytest.mark.parametrize(("version", "error"), [(11, ErrorCode.INVALID_REQUEST), (12, ErrorCode.UNKNOWN_TOPIC_ID)])
def test_metadata_by_topic_id_is_answered_before_there_are_topic_ids(
    world: Simulated, version: int, error: ErrorCode
) -> None:
    asked = MetadataRequestTopic(topic_id=NOBODY, name=None)
    (told,) = world.ask(MetadataRequest(topics=(asked,)), version).topics
    assert (told.error_code, told.name) == (error, "" if version == 11 else None)
