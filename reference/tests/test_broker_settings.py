"""Settings of brokers are altered while they run (KIP-226, KIP-339); codes as of Apache Kafka 3.9.1 with ZooKeeper."""

import json
from pathlib import Path
from typing import Any

import pytest

from highwater.reference.admin.broker_settings import broker_settings
from highwater.reference.configuration.broker import BrokerConfig
from highwater.reference.configuration.broker_values import DYNAMIC, THROTTLES
from highwater.reference.configuration.brokers import BrokerConfigs, ConfigSource
from highwater.reference.effects import broker_peer
from highwater.reference.store.messages import Create
from highwater.reference.tests.simulated import Simulated
from highwater.reference.tests.test_store_layout import peek, put
from highwater.reference.wire.errors import ErrorCode
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
from highwater.reference.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

ALL, TOPIC_RESOURCE, BROKER_RESOURCE = "", 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
APACHE_KAFKA = json.loads((Path(__file__).with_name("apache_kafka") / "settings.json").read_text())


@pytest.fixture
def world() -> Simulated:
    world = Simulated()
    world.create("t")
    return world


def alter(
    world: Simulated, name: str, key: str, value: str | None, operation: int = SET, *, validate_only: bool = False
) -> tuple[ErrorCode, str]:
    config = IncrementalAlterableConfig(name=key, config_operation=operation, value=value)
    resource = IncrementalAlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name=name, configs=(config,))
    body = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
    response = world.ask(body, 1).responses[0]
    return ErrorCode(response.error_code), response.error_message or ""


def replace(world: Simulated, name: str, **settings: str | None) -> ErrorCode:
    configs = tuple(AlterableConfig(name=key.replace("_", "."), value=value) for key, value in settings.items())
    resource = AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name=name, configs=configs)
    return ErrorCode(world.ask(AlterConfigsRequest(resources=(resource,)), 2).responses[0].error_code)


def describe(
    world: Simulated, name: str, kind: int = BROKER_RESOURCE, broker_id: int = 1
) -> dict[str, DescribeConfigsResourceResult]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    body = DescribeConfigsRequest(resources=(resource,), include_synonyms=True, include_documentation=True)
    return {found.name: found for found in world.ask(body, 4, broker_id).results[0].configs}


def synonyms(found: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in found.synonyms]


def test_a_broker_precedes_all_brokers_and_a_topic_precedes_both(world: Simulated) -> None:
    assert alter(world, ALL, "log.retention.ms", "700") == (ErrorCode.NONE, "")
    assert describe(world, "t", TOPIC_RESOURCE)["retention.ms"].value == "700"
    assert alter(world, "1", "log.retention.ms", "600") == (ErrorCode.NONE, "")
    found = describe(world, "t", TOPIC_RESOURCE)["retention.ms"]
    assert (found.value, found.config_source) == ("600", ConfigSource.DYNAMIC_BROKER)
    below = [("log.retention.ms", "600", 2), ("log.retention.ms", "700", 3), ("log.retention.ms", "604800000", 5)]
    assert synonyms(found) == below
    assert synonyms(describe(world, "1")["log.retention.ms"]) == below
    assert alter(world, "1", "log.retention.ms", None, DELETE) == (ErrorCode.NONE, "")
    assert describe(world, "t", TOPIC_RESOURCE)["retention.ms"].value == "700"


def test_the_config_file_is_between_altered_settings_and_defaults() -> None:
    world = Simulated(log_segment_bytes=5_000_000)
    found = describe(world, "1")["log.segment.bytes"]
    assert synonyms(found) == [("log.segment.bytes", "5000000", 4), ("log.segment.bytes", str(1 << 30), 5)]
    assert alter(world, ALL, "log.segment.bytes", "6000000") == (ErrorCode.NONE, "")
    assert [source for *_, source in synonyms(describe(world, "1")["log.segment.bytes"])] == [3, 4, 5]


def test_settings_are_stored_as_by_apache_kafka_with_zookeeper(world: Simulated) -> None:
    alter(world, "1", "log.retention.ms", "600")
    alter(world, ALL, "log.retention.ms", "700")
    assert peek(world, "/config/brokers/1") == {"log.retention.ms": "600"}
    assert peek(world, "/config/brokers/<default>") == {"log.retention.ms": "700"}


def test_only_what_is_stored_for_all_brokers_is_described_for_them(world: Simulated) -> None:
    assert describe(world, ALL) == {}
    alter(world, ALL, "message.max.bytes", "5000")
    alter(world, "1", "message.max.bytes", "6000")
    (found,) = describe(world, ALL).values()
    assert (found.name, found.value, found.config_source, found.read_only) == ("message.max.bytes", "5000", 3, False)
    assert synonyms(found) == [("message.max.bytes", "5000", 3)]


def test_every_broker_learns_of_a_change() -> None:
    world = Simulated(3)
    world.create("t")
    assert alter(world, ALL, "message.max.bytes", "300") == (ErrorCode.NONE, "")
    world.wait(lambda: all(world.broker(each).configs.max_message_bytes("t") == 300 for each in (1, 2, 3)))
    assert world.produce("t", [bytes(400)]).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert alter(world, ALL, "message.max.bytes", None, DELETE) == (ErrorCode.NONE, "")
    world.wait(lambda: all(world.broker(each).configs.max_message_bytes("t") == 1_048_588 for each in (1, 2, 3)))
    assert world.produce("t", [bytes(400)]).error_code == ErrorCode.NONE


def test_a_change_of_one_broker_does_not_reach_the_others() -> None:
    world = Simulated(2)
    assert alter(world, "1", "log.cleaner.backoff.ms", "300") == (ErrorCode.NONE, "")
    world.run(500)
    assert [world.broker(each).config_in_effect.log_cleaner_backoff_ms for each in (1, 2)] == [300, 15_000]


def test_a_change_is_in_effect_at_once_but_not_for_topics_with_an_override(world: Simulated) -> None:
    configs = (CreatableTopicConfig(name="segment.bytes", value="7777"),)
    topic = CreatableTopic(name="own", num_partitions=1, replication_factor=1, configs=configs)
    assert world.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=2_000), 5).topics[0].error_code == ErrorCode.NONE
    alter(world, ALL, "log.segment.bytes", "9999")
    partitions = world.broker().replicas.partitions
    assert [partitions[name, 0].log.config.segment_bytes for name in ("t", "own")] == [9999, 7777]


def test_a_restarted_broker_reads_its_settings_again(world: Simulated) -> None:
    alter(world, "1", "min.insync.replicas", "2")
    alter(world, ALL, "compression.type", "gzip")
    world.world.crash(broker_peer(1), lose_unflushed=False)
    world.world.start(broker_peer(1))
    world.wait(lambda: world.leader("t") > 0)
    configs = world.broker().configs
    assert (configs.min_insync_replicas("t"), configs.value("t", "compression.type")) == (2, "gzip")


def test_unclean_election_enabled_for_all_brokers_elects_a_leader_at_once() -> None:
    """KafkaController.enableDefaultUncleanLeaderElection in Apache Kafka."""
    world = Simulated(2, min_insync_replicas=1)
    world.create("t")
    leader = world.leader("t")
    (other,) = {1, 2} - {leader}
    world.world.crash(broker_peer(other), lose_unflushed=False)
    world.wait(lambda: peek(world, "/brokers/topics/t/partitions/0/state")["isr"] == [leader])
    world.world.crash(broker_peer(leader), lose_unflushed=False)
    world.world.start(broker_peer(other))
    world.wait(lambda: world.broker(other).controller.active)
    world.run(3_000)
    assert world.leader("t", broker_id=other) == -1
    put(world, Create("/config/brokers/<default>", b'{"unclean.leader.election.enable":"true"}'), other)
    world.wait(lambda: world.leader("t", broker_id=other) == other)


@pytest.mark.parametrize(
    ("name", "key", "value", "operation", "error", "text"),
    [
        ("1", "broker.id", "3", SET, ErrorCode.INVALID_REQUEST, "broker.id is read-only"),
        (ALL, "zookeeper.connect", "x", SET, ErrorCode.INVALID_REQUEST, "zookeeper.connect is read-only"),
        (ALL, "default.replication.factor", "2", SET, ErrorCode.INVALID_REQUEST, "read-only"),
        ("1", "no.such", "3", SET, ErrorCode.INVALID_CONFIG, "no.such is unknown"),
        ("1", "retention.ms", "3", SET, ErrorCode.INVALID_CONFIG, "unknown"),
        ("1", "log.retention.ms", "soon", SET, ErrorCode.INVALID_REQUEST, "must be a number"),
        (ALL, "min.insync.replicas", "0", SET, ErrorCode.INVALID_REQUEST, "from 1"),
        ("1", "log.retention.ms", None, SET, ErrorCode.INVALID_REQUEST, "no value"),
        ("1", "log.retention.ms", "1", APPEND, ErrorCode.INVALID_CONFIG, "not supported"),
        ("2", "log.retention.ms", "1", SET, ErrorCode.INVALID_REQUEST, "this is broker 1"),
        ("x", "log.retention.ms", "1", SET, ErrorCode.INVALID_REQUEST, "number"),
    ],
)
def test_invalid_changes_are_refused(
    world: Simulated, name: str, key: str, value: str | None, operation: int, error: ErrorCode, text: str
) -> None:
    found, message = alter(world, name, key, value, operation)
    assert found is error
    assert text in message
    assert peek(world, "/config/brokers/1") is None


def test_validation_changes_nothing(world: Simulated) -> None:
    assert alter(world, "1", "log.retention.ms", "600", validate_only=True) == (ErrorCode.NONE, "")
    assert alter(world, "1", "log.retention.ms", "x", validate_only=True)[0] is ErrorCode.INVALID_REQUEST
    assert peek(world, "/config/brokers/1") is None


def test_lists_grow_from_the_default_and_shrink(world: Simulated) -> None:
    alter(world, ALL, "log.cleanup.policy", "compact", APPEND)
    assert world.broker().configs.value("t", "cleanup.policy") == "delete,compact"
    alter(world, ALL, "log.cleanup.policy", "delete", SUBTRACT)
    assert world.broker().configs.value("t", "cleanup.policy") == "compact"


def test_alter_configs_replaces_the_settings_of_a_broker(world: Simulated) -> None:
    alter(world, "1", "log.retention.ms", "600")
    assert replace(world, "1", message_max_bytes="5000") is ErrorCode.NONE
    assert peek(world, "/config/brokers/1") == {"message.max.bytes": "5000"}
    assert replace(world, "1", broker_id="1") is ErrorCode.INVALID_REQUEST
    assert replace(world, "1", log_retention_ms=None) is ErrorCode.INVALID_REQUEST
    assert replace(world, ALL) is ErrorCode.NONE


@pytest.mark.parametrize("key", sorted(THROTTLES))
def test_throttles_are_accepted_described_and_removed(world: Simulated, key: str) -> None:
    """Reassignment tools set and remove them."""
    assert key not in describe(world, "1")
    assert alter(world, "1", key, "100") == (ErrorCode.NONE, "")
    found = describe(world, "1")[key]
    assert (found.value, found.config_source) == ("100", ConfigSource.DYNAMIC_BROKER)
    assert "Without effect here" in str(found.documentation)
    assert alter(world, "1", key, None, DELETE) == (ErrorCode.NONE, "")
    assert key not in describe(world, "1")
    assert alter(world, "1", key, None, DELETE) == (ErrorCode.NONE, "")


def test_invalid_values_written_by_other_tools_have_no_effect(world: Simulated) -> None:
    stored = {"log.retention.ms": "soon", "no.such": "1", "message.max.bytes": " 5000 "}
    put(world, Create("/config/brokers/<default>", json.dumps(stored).encode()))
    world.wait(lambda: world.broker().configs.max_message_bytes("t") == 5000)
    assert describe(world, ALL).keys() == {"message.max.bytes"}


def test_settings_that_can_be_altered_are_those_of_apache_kafka() -> None:
    found = broker_settings(BrokerConfigs(BrokerConfig(broker_id=1)))
    dynamic = set(APACHE_KAFKA["dynamic"])
    ours = {name for name, setting in found.items() if setting.read_only}
    assert DYNAMIC.keys() - THROTTLES.keys() <= dynamic
    assert found.keys() - ours <= dynamic
    assert ours & dynamic == LISTENERS


# Apache Kafka can add listeners to a running broker, and change the security of one.
LISTENERS = {
    "advertised.listeners", "listeners", "sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol",
    "ssl.client.auth",
}  # fmt: skip


def test_the_values_of_the_config_file_are_those_of_every_type() -> None:
    config: Any = BrokerConfig(broker_id=1)
    configs = BrokerConfigs(config)
    assert configs.in_effect == config
    assert {configs.value(name) for name in ("auto.create.topics.enable", "min.insync.replicas")} == {"true", "1"}
    assert configs.value("no.such") == ""
