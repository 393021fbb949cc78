"""Topics are created, extended and deleted by administrative requests."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from highwater.reference.configuration.topic_values import SETTINGS
from highwater.reference.configuration.topics import TopicConfigs
from highwater.reference.effects import STORE, broker_peer
from highwater.reference.replication.partition import Role
from highwater.reference.store.metadata_store import MetadataStore
from highwater.reference.tests.simulated import Simulated
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.controller import LeaderAndIsrRequest
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
APACHE_KAFKA = Path(__file__).with_name("apache_kafka")
UNKNOWN_ID = b"\x11" * 16


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
def test_invalid_replica_assignments_of_new_partitions_are_refused(world: Simulated, replicas: tuple[int, ...]) -> None:
    added = CreatePartitionsTopic(name=TOPIC, count=2, assignments=(CreatePartitionsAssignment(broker_ids=replicas),))
    reply = world.ask(CreatePartitionsRequest(topics=(added,), timeout_ms=2_000), 1)
    assert reply.results[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert len(world.broker().cache.topics[TOPIC].partitions) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup_policy", "burn"),
        ("compression_type", "rar"),
        ("min_insync_replicas", "0"),
        ("retention_ms", "soon"),
        ("retention_ms", "-2"),
        ("retention_ms", "9" * 5000),
        ("min_cleanable_dirty_ratio", "2"),
        ("min_cleanable_dirty_ratio", "nan"),
        ("remote_storage_enable", "true"),
        ("preallocate", "maybe"),
        ("compression_gzip_level", "77"),
        ("compression_gzip_level", "0"),
        ("leader_replication_throttled_replicas", "x"),
        ("max_compaction_lag_ms", "0"),
        ("flush_messages", "0"),
        ("segment_bytes", "13"),
        ("segment_bytes", str(1 << 31)),
        ("message_format_version", "new"),
    ],
)
def test_invalid_topic_settings_are_refused(world: Simulated, name: str, value: str) -> None:
    assert create(world, **{name: value}) is ErrorCode.INVALID_CONFIG
    assert "new" not in world.broker().cache.topics


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("leader_replication_throttled_replicas", "*"),
        ("follower_replication_throttled_replicas", "0:1,1:2"),
        ("leader_replication_throttled_replicas", ""),
        ("cleanup_policy", ""),
        ("local_retention_ms", "999999999999"),
        ("message_format_version", "1.1"),
        ("message_format_version", "0.10.0-IV1"),
        ("remote_storage_enable", "False"),
        ("unclean_leader_election_enable", "TRUE"),
        ("retention_ms", " 5 "),
    ],
)
def test_values_that_apache_kafka_accepts_are_accepted(world: Simulated, name: str, value: str) -> None:
    assert create(world, **{name: value}) is ErrorCode.NONE
    key = name.replace("_", ".")
    in_effect = world.broker().configs.value("new", key)
    assert in_effect == SETTINGS[key].parse(value)
    assert in_effect.lower() == value.strip().lower()
    assert in_effect not in {"TRUE", "False"}


def test_the_minimum_compaction_lag_is_not_larger_than_the_maximum(world: Simulated) -> None:
    assert create(world, min_compaction_lag_ms="9", max_compaction_lag_ms="8") is ErrorCode.INVALID_CONFIG
    assert create(world, min_compaction_lag_ms="8", max_compaction_lag_ms="8") is ErrorCode.NONE


@pytest.mark.parametrize(
    ("values", "error"), [((None,), ErrorCode.INVALID_CONFIG), (("5", None), ErrorCode.INVALID_CONFIG), (("5", "6"), 0)]
)
def test_a_setting_needs_a_value_and_the_last_one_counts(
    world: Simulated, values: Sequence[str | None], error: int
) -> None:
    configs = tuple(CreatableTopicConfig(name="retention.ms", value=value) for value in values)
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1, configs=configs)
    reply = world.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=2_000), 5)
    assert reply.topics[0].error_code == error
    if not error:
        assert world.broker().configs.value("new", "retention.ms") == values[-1]


def test_names_and_types_are_those_of_apache_kafka() -> None:
    expected: dict[str, dict[str, Any]] = json.loads((APACHE_KAFKA / "settings.json").read_text())["topic"]
    ours = {name: {"type": setting.type, "broker": setting.broker or None} for name, setting in SETTINGS.items()}
    assert ours == expected
    assert list(SETTINGS) == sorted(SETTINGS)


def test_a_setting_without_effect_says_so_in_its_documentation() -> None:
    described = {name: setting.description for name, setting in SETTINGS.items() if setting.unused}
    assert "preallocate" in described
    assert "retention.ms" not in described
    assert all("Without effect here" in text for text in described.values())


def test_every_topic_setting_has_a_validator_that_accepts_its_default(world: Simulated) -> None:
    configs: TopicConfigs = world.broker().configs
    assert SETTINGS.keys() == configs.defaults.keys()
    assert [name for name, value in configs.defaults.items() if not SETTINGS[name].is_valid(value)] == []


def test_an_invalid_deletion_deletes_nothing(world: Simulated) -> None:
    known = world.broker().cache.topics[TOPIC].topic_id
    by_name = DeleteTopicState(name=TOPIC)
    assert delete(world, DeleteTopicState(name=TOPIC, topic_id=known)) == [ErrorCode.INVALID_REQUEST]
    assert delete(world, DeleteTopicState()) == [ErrorCode.INVALID_REQUEST]
    assert delete(world, by_name, by_name) == [ErrorCode.INVALID_REQUEST]
    assert delete(world, by_name, DeleteTopicState(topic_id=known)) == [ErrorCode.INVALID_REQUEST]
    assert delete(world, DeleteTopicState(topic_id=UNKNOWN_ID)) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert delete(world, DeleteTopicState(name="nowhere")) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert TOPIC in world.broker().cache.topics


def test_a_deleted_topic_name_can_be_reused_at_once(world: Simulated) -> None:
    """The leader epochs of the new topic start at 0 again."""
    before = world.broker().cache.topics[TOPIC].topic_id
    assert delete(world, DeleteTopicState(topic_id=before)) == [ErrorCode.NONE]
    world.create(TOPIC)
    assert world.broker().replicas.partitions[TOPIC, 0].role is Role.LEADER
    assert world.broker().cache.topics[TOPIC].topic_id != before


@pytest.mark.parametrize("offset", [2, -1])
def test_delete_records_completes_when_every_follower_has_deleted(offset: int) -> None:
    world = Simulated(3)
    world.create(TOPIC)
    leader = world.leader(TOPIC)
    assert world.produce(TOPIC, [b"a", b"b"]).error_code == ErrorCode.NONE
    requested = DeleteRecordsTopic(name=TOPIC, partitions=(DeleteRecordsPartition(partition_index=0, offset=offset),))
    reply = world.ask(DeleteRecordsRequest(topics=(requested,), timeout_ms=10_000), 2, leader)
    result = reply.topics[0].partitions[0]
    assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 2)
    assert {world.broker(each).replicas.partitions[TOPIC, 0].log.log_start_offset for each in world.broker_ids} == {2}


@pytest.mark.parametrize(("version", "error"), [(11, ErrorCode.INVALID_REQUEST), (12, ErrorCode.UNKNOWN_TOPIC_ID)])
def test_metadata_for_an_unknown_topic_id_is_answered_with_an_error(
    world: Simulated, version: int, error: ErrorCode
) -> None:
    requested = MetadataRequestTopic(topic_id=UNKNOWN_ID, name=None)
    (described,) = world.ask(MetadataRequest(topics=(requested,)), version).topics
    assert (described.error_code, described.name) == (error, "" if version == 11 else None)


def creatable(name: str, partitions: int = 1) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)


def test_an_increase_that_lost_the_race_is_decided_again(world: Simulated) -> None:
    """Twelve requests at once: each reads the topic before another has written it. The last count wins."""
    sent = {
        count: world.send(
            CreatePartitionsRequest(
                topics=(CreatePartitionsTopic(name=TOPIC, count=count, assignments=None),), timeout_ms=9_000
            ),
            1,
        )
        for count in range(2, 14)
    }
    errors = {count: ErrorCode(world.answer(number).results[0].error_code) for count, number in sent.items()}
    partitions = len(world.broker().cache.topics[TOPIC].partitions)
    applied = [count for count, error in errors.items() if error is ErrorCode.NONE]
    assert partitions == max(applied) == 13
    assert set(errors.values()) <= {ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS}


def test_a_topic_that_is_not_there_in_time_is_timed_out_and_created_nevertheless(world: Simulated) -> None:
    wanted = CreateTopicsRequest(topics=(creatable("slow"), creatable("slower")), timeout_ms=0)
    found = world.ask(wanted, 5).topics
    assert [each.error_code for each in found] == [ErrorCode.REQUEST_TIMED_OUT] * 2
    assert found[0].error_message == "The topic is still being created."
    world.wait(lambda: world.leader("slow") > 0 and world.leader("slower") > 0)
    more = CreatePartitionsTopic(name="slow", count=2, assignments=None)
    late = world.ask(CreatePartitionsRequest(topics=(more,), timeout_ms=0), 1).results[0]
    assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
    world.wait(lambda: world.leader("slow", 1) > 0)
    gone = world.ask(DeleteTopicsRequest(topics=(DeleteTopicState(name="slow"),), timeout_ms=0), 6).responses[0]
    assert (gone.name, gone.error_code) == ("slow", ErrorCode.REQUEST_TIMED_OUT)
    world.wait(lambda: "slow" not in world.broker().cache.topics)


def test_the_topics_of_one_request_are_created_and_announced_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred topics cost each broker about as many requests of the controller as one topic does."""
    world = Simulated(brokers=2)
    controller = world.broker().cache.controller_id
    received: list[tuple[int, int]] = []
    for broker_id in world.broker_ids:
        apply = world.broker(broker_id).replicas.leader_and_isr

        def counted(request: LeaderAndIsrRequest, broker_id: int = broker_id, apply: Any = apply) -> Any:
            received.append((broker_id, sum(len(topic.partition_states) for topic in request.topic_states)))
            return apply(request)

        monkeypatch.setattr(world.broker(broker_id).replicas, "leader_and_isr", counted)
    wanted = tuple(creatable(f"t{number}", 3) for number in range(100))
    found = world.ask(CreateTopicsRequest(topics=wanted, timeout_ms=20_000), 5, controller).topics
    assert {each.error_code for each in found} == {ErrorCode.NONE}
    assert all(world.leader(f"t{number}", 2) > 0 for number in range(100))
    assert sum(count for _, count in received) == 300
    assert len(received) <= 2 * len(world.broker_ids)


@pytest.mark.parametrize("wait_ms", range(0, 60, 4))
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fault", ["session", "session and connection"])
def test_a_deletion_ends_although_a_broker_leaves_and_comes_back(fault: str, seed: int, wait_ms: int) -> None:
    """It may refuse StopReplica, as the controller knows an old epoch of it, or start after its replica is deleted."""
    world = Simulated(3, seed)
    world.create(TOPIC, 2)
    controller = world.ask(MetadataRequest(topics=()), 9).controller_id
    other = next(each for each in world.broker_ids if each != controller)
    body = DeleteTopicsRequest(topics=(DeleteTopicState(name=TOPIC),), timeout_ms=20_000)
    deleting = world.send(body, 6, controller)
    world.run(wait_ms)
    store = world.world.hosts[STORE].node
    assert isinstance(store, MetadataStore)
    world.world.enter(STORE, lambda now: store.expire(now, broker_peer(other)))
    if fault == "session and connection":
        world.world.network.disconnect(broker_peer(controller), broker_peer(other))
    assert world.answer(deleting).responses[0].error_code == ErrorCode.NONE
    world.run(5_000)
    assert world.leader(TOPIC) == -1
    assert [each for each in world.broker_ids if (TOPIC, 0) in world.broker(each).replicas.partitions] == []
