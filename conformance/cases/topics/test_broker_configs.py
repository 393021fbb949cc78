"""Configs of brokers that are altered while they run (KIP-226).

The cases alter settings that change nothing for a short time: how long the files of deleted segments remain, and how
dense an index is. Afterwards each setting has the value that it had before, for the cluster may be in use.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from highwater.conformance.cases.support.admin import (
    BROKER,
    DEFAULT_SOURCE,
    change_configs,
    config,
    controller,
    describe_configs,
)
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import Broker, Topic, batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect
from highwater.conformance.expectations import expect
from highwater.conformance.models.settings import DELETE, SET, TOPIC_SOURCE
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest

ALL_BROKERS = ""
BROKER_SOURCE, ALL_BROKERS_SOURCE, FILE_SOURCE = 2, 3, 4
DELAY, TOPIC_DELAY = "log.segment.delete.delay.ms", "file.delete.delay.ms"
INTERVAL = "log.index.interval.bytes"


def node_of(cluster: Cluster, broker: Broker) -> str:
    return next(str(node) for node, address in cluster.target.addresses.items() if address == broker.address)


@contextmanager
def altered(broker: Broker, name: str, key: str, value: str) -> Iterator[None]:
    """Alter a setting of one broker or of all, and restore it at the end of the block."""
    sources = {BROKER_SOURCE if name else ALL_BROKERS_SOURCE}
    before = [
        each.value
        for each in describe_configs(broker, name, [key], kind=BROKER).configs
        if each.config_source in sources
    ]
    expect("error code of the change", 0, change_configs(broker, name, (key, SET, value), kind=BROKER))
    try:
        yield
    finally:
        change_configs(broker, name, (key, SET, before[0]) if before else (key, DELETE, None), kind=BROKER)


@clause("ADM-40")
@defect(
    Request(IncrementalAlterConfigsRequest, "validate_only", True),
    Reply(DescribeConfigsRequest, "results.configs.value", "61234"),
    Reply(DescribeConfigsRequest, "results.configs.config_source", DEFAULT_SOURCE),
)
def test_a_setting_of_all_brokers_applies_to_topics_without_an_override(
    cluster: Cluster, broker: Broker, topic: Topic
) -> None:
    own = cluster.create_topic(configs={TOPIC_DELAY: "54321"})
    before = config(broker, topic.name, TOPIC_DELAY).value

    def has_value(connection: Broker, value: str | None) -> bool:
        return config(connection, topic.name, TOPIC_DELAY).value == value

    def eventually(value: str | None) -> None:
        for address in cluster.target.addresses.values():
            connection = cluster.connect(address)
            cluster.eventually(f"{TOPIC_DELAY} to be {value}", partial(has_value, connection, value))

    with altered(controller(cluster), ALL_BROKERS, DELAY, "61234"):
        eventually("61234")
        expect("source", ALL_BROKERS_SOURCE, config(broker, topic.name, TOPIC_DELAY).config_source)
        found = config(broker, own.name, TOPIC_DELAY)
        expect("value and source of the override", ("54321", TOPIC_SOURCE), (found.value, found.config_source))
    eventually(before)


@clause("ADM-40", "largest batch")
@pytest.mark.cluster_fault
@defect(Request(IncrementalAlterConfigsRequest, "validate_only", True))
def test_a_larger_limit_of_all_brokers_applies_to_topics_without_an_override(cluster: Cluster, topic: Topic) -> None:
    """It runs alone, for other cases send batches that are too large."""
    limit = cluster.setting("message_max_bytes")
    own = cluster.create_topic(configs={"max.message.bytes": str(limit)})
    data = batch(b"v" * (limit + 100_000))

    def error(written_topic: Topic) -> int:
        with cluster.leader(written_topic) as leader:
            return leader.produce(written_topic, data).error_code

    expect("error code before the change", ErrorCode.MESSAGE_TOO_LARGE, error(topic))
    with altered(controller(cluster), ALL_BROKERS, "message.max.bytes", str(limit + 200_000)):
        cluster.eventually("a larger batch to be accepted", lambda: error(topic) == 0)
        expect("error code of a topic with its own limit", ErrorCode.MESSAGE_TOO_LARGE, error(own))


@clause("ADM-41")
@defect(
    Reply(DescribeConfigsRequest, "results.configs.config_source", ALL_BROKERS_SOURCE),
    Reply(DescribeConfigsRequest, "results.configs.synonyms", ()),
)
def test_a_setting_of_one_broker_precedes_that_of_all(cluster: Cluster, broker: Broker) -> None:
    node = node_of(cluster, broker)

    def synonyms() -> list[tuple[str | None, int]]:
        found = config(broker, node, INTERVAL, kind=BROKER, include_synonyms=True)
        effective = (found.value, found.config_source)
        reported = [(synonym.value, synonym.source) for synonym in found.synonyms]
        return reported if reported[:1] == [effective] else [effective]

    with altered(controller(cluster), ALL_BROKERS, INTERVAL, "4098"), altered(broker, node, INTERVAL, "4099"):
        expected = [("4099", BROKER_SOURCE), ("4098", ALL_BROKERS_SOURCE)]
        cluster.eventually("both settings in order", lambda: synonyms()[:2] == expected)
        expect("the rest is static", True, {source for _, source in synonyms()[2:]} <= {FILE_SOURCE, DEFAULT_SOURCE})


@clause("ADM-42")
@defect(Reply(IncrementalAlterConfigsRequest, "responses.error_code", 0))
@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("log.dirs", "/nowhere", id="read-only"),
        pytest.param("default.replication.factor", "2", id="not for running brokers"),
        pytest.param(DELAY, "soon", id="not a number"),
        pytest.param("log.segment.bytes", "1", id="too small"),
    ],
)
def test_an_invalid_change_of_a_broker_is_refused(cluster: Cluster, broker: Broker, key: str, value: str) -> None:
    error = change_configs(broker, node_of(cluster, broker), (key, SET, value), kind=BROKER)
    expect("error code", ErrorCode.INVALID_REQUEST, error)
