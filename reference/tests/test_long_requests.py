"""Requests with many or long items: equal items have equal results, and a message is no longer than a string can be."""

from unittest.mock import Mock

import pytest

from highwater.reference.admin import describe_configs
from highwater.reference.admin.broker_settings import broker_settings
from highwater.reference.refusals import MESSAGE_MAX, shortened
from highwater.reference.tests.simulated import Simulated
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from highwater.reference.wire.messages.metadata import MetadataRequest
from highwater.reference.wire.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from highwater.reference.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from highwater.reference.wire.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

TOPIC, BROKER = 2, 4
LONG = "x" * 32_000
INTEGERS = tuple(range(100, 30_100))


@pytest.fixture
def world() -> Simulated:
    made = Simulated(3)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    made.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=2_000), 4, controller_of(made))
    return made


def controller_of(world: Simulated) -> int:
    return int(world.ask(MetadataRequest(topics=()), 9).controller_id)


def described(world: Simulated, *resources: tuple[int, str, tuple[str, ...] | None]) -> list[tuple[str, ...]]:
    """Return the names of the configs of each resource."""
    named = tuple(
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name, keys in resources
    )
    results = world.ask(DescribeConfigsRequest(resources=named), 4, 1).results
    assert [(each.resource_type, each.resource_name) for each in results] == [
        (kind, name) for kind, name, _ in resources
    ]
    return [tuple(config.name for config in each.configs) for each in results]


def test_a_resource_that_is_named_often_has_the_configs_that_each_asks_for(world: Simulated) -> None:
    every = described(world, (TOPIC, "t", None))[0]
    assert len(every) > 20
    asked = [(TOPIC, "t", None), (TOPIC, "t", ("retention.ms",)), (TOPIC, "t", ()), (TOPIC, "t", ("no.such",))]
    assert described(world, *asked) == [every, ("retention.ms",), every, ()]
    brokers = described(world, (BROKER, "1", None), (BROKER, "", None), (BROKER, "1", None))
    assert brokers[0] == brokers[2] != brokers[1]


def test_topics_of_one_request_have_the_configs_that_each_sets(world: Simulated) -> None:
    values = {"a": "1000", "b": None, "c": "2000", "d": "1000"}
    topics = tuple(
        CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            configs=(CreatableTopicConfig(name="retention.ms", value=value),) if value else (),
        )
        for name, value in values.items()
    )
    body = CreateTopicsRequest(topics=topics, timeout_ms=2_000, validate_only=True)
    found = {
        topic.name: next(config.value for config in topic.configs if config.name == "retention.ms")
        for topic in world.ask(body, 5, controller_of(world)).topics
    }
    assert found == values | {"b": "604800000"}


def test_a_message_that_quotes_a_long_name_is_cut(world: Simulated) -> None:
    config = IncrementalAlterableConfig(name=LONG, config_operation=0, value="1")
    resource = IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=(config,))
    answer = world.ask(IncrementalAlterConfigsRequest(resources=(resource,)), 1, 1).responses[0]
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert len(answer.error_message) == MESSAGE_MAX
    assert answer.error_message.startswith("The topic config xxx")
    assert answer.error_message.endswith("x...")


@pytest.mark.parametrize("replicas", [INTEGERS, (1,) * 30_000], ids=["unknown", "repeated"])
def test_a_message_that_lists_many_brokers_is_cut(world: Simulated, replicas: tuple[int, ...]) -> None:
    part = ReassignablePartition(partition_index=0, replicas=replicas)
    body = AlterPartitionReassignmentsRequest(topics=(ReassignableTopic(name="t", partitions=(part,)),), timeout_ms=500)
    answer = world.ask(body, 0, controller_of(world)).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert len(answer.error_message) == MESSAGE_MAX


def test_a_short_message_is_left_as_it_is() -> None:
    assert shortened("x" * MESSAGE_MAX) == "x" * MESSAGE_MAX
    assert len(shortened("x" * (MESSAGE_MAX + 1))) == MESSAGE_MAX


def test_a_resource_that_is_named_often_is_described_once(world: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its configs take a broker milliseconds, and a request may name it thousands of times."""
    build = Mock(side_effect=broker_settings)
    monkeypatch.setattr(describe_configs, "broker_settings", build)
    described(world, *[(BROKER, "1", ("log.dirs",))] * 50)
    assert build.call_count == 1


def test_a_partition_that_a_marker_names_twice_gets_one_marker(world: Simulated) -> None:
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=(0, 0, 0))
    marker = WritableTxnMarker(
        producer_id=7, producer_epoch=0, transaction_result=False, topics=(topic,), coordinator_epoch=0
    )
    leader = world.leader("t")
    result = world.ask(WriteTxnMarkersRequest(markers=(marker,)), 1, leader).markers[0].topics[0]
    assert [(part.partition_index, part.error_code) for part in result.partitions] == [(0, ErrorCode.NONE)]
    assert world.broker(leader).replicas.partitions["t", 0].log.log_end_offset == 1
