"""Every default of topics and brokers beside that of two releases of Apache Kafka.

`apache_kafka/defaults.json` holds what DescribeConfigs of a broker of each release answers; the long test asks again.
"""

import json
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from highwater.conformance.client.broker import advertised_versions
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.requests import request
from highwater.conformance.targets.apache_kafka import ApacheKafka
from highwater.errors import UsageError
from highwater.reference.configuration.broker import BrokerConfig
from highwater.reference.configuration.brokers import BrokerConfigs
from highwater.reference.configuration.topics import TopicConfigs
from highwater.reference.tests.simulated import Simulated
from highwater.reference.tests.test_broker_settings import describe
from highwater.reference.wire.messages.configs import DescribeConfigsResourceResult

FILE: Final = Path(__file__).with_name("apache_kafka") / "defaults.json"
NEWEST, BEFORE = "4.3.1", "3.9.1"
DEFAULT: Final = 5
"""The source of a default in DescribeConfigs."""
Defaults = dict[str, str | None]
RELEASES: Final[dict[str, dict[str, Defaults]]] = json.loads(FILE.read_text())

QUICK = "a shorter wait: clusters of tests are small and start often"
SMALL = "a cluster of tests has few partitions"
BOUNDED = "a bound where Kafka has none: one process serves all connections"
NO_LISTENER = "each broker is given its address"
LOGIN = "the mechanisms that are implemented"
OLD = "of ZooKeeper's time, with a value that suits a test"
DIFFERENT: Final = {
    "broker.id": NO_LISTENER, "listeners": NO_LISTENER,
    "broker.rack": "empty instead of none",
    "group.initial.rebalance.delay.ms": QUICK, "replica.fetch.backoff.ms": QUICK, "replica.lag.time.max.ms": QUICK,
    "zookeeper.connect": OLD, "zookeeper.session.timeout.ms": OLD,
    "group.max.size": BOUNDED, "max.connections": BOUNDED, "max.connections.per.ip": BOUNDED,
    "queued.max.request.bytes": BOUNDED,
    "log.dirs": "a folder of the broker",
    "log.flush.interval.ms": "flushes every second, because it does not count on replication alone",
    "log.retention.ms": "the same week; Kafka states it in hours",
    "log.roll.ms": "the same week; Kafka states it in hours",
    "log.roll.jitter.ms": "no jitter; Kafka states it in hours",
    "offsets.topic.num.partitions": SMALL, "transaction.state.log.num.partitions": SMALL,
    "replica.selector.class": "the name of the leader's selector instead of none",
    "sasl.enabled.mechanisms": LOGIN, "sasl.mechanism.inter.broker.protocol": LOGIN,
}  # fmt: skip
"""Broker settings with another default than in 4.3 and 3.9, and why."""
OURS: Final = {
    "fetch.session.eviction.ms", "high.watermark.checkpoint.interval.ms", "producer.epoch.max",
    "replica.lag.max.messages", "security.protocol",
}  # fmt: skip
"""Settings that no broker of these releases describes: constants there, of older releases, or of a listener."""
OF_TOPICS: Final = {"flush.ms": DIFFERENT["log.flush.interval.ms"], "retention.ms": DIFFERENT["log.retention.ms"]}


def default_of(found: DescribeConfigsResourceResult) -> str | None:
    if found.config_source == DEFAULT:
        return found.value
    return next((each.value for each in found.synonyms if each.source == DEFAULT), None)


def ours() -> Defaults:
    world = Simulated()
    world.create("t")
    return {name: default_of(found) for name, found in describe(world, "1").items()}


def newest(kind: str, name: str) -> str | None:
    """Return the default of the newest release that has the setting."""
    return next(RELEASES[release][kind][name] for release in (NEWEST, BEFORE) if name in RELEASES[release][kind])


def test_defaults_of_topics_are_those_of_the_newest_release_that_has_them() -> None:
    defaults = TopicConfigs(BrokerConfigs(BrokerConfig(broker_id=1))).defaults
    names = {name for release in RELEASES.values() for name in release["topic"]}
    assert defaults.keys() == names
    assert {name for name in names if defaults[name] != newest("topic", name)} == OF_TOPICS.keys()


def test_defaults_of_brokers_are_those_of_the_newest_release_or_differ_for_a_reason() -> None:
    known = {name for release in RELEASES.values() for name in release["broker"]}
    described = ours()
    assert described.keys() - known == OURS
    assert {name for name in described.keys() & known if described[name] != newest("broker", name)} == DIFFERENT.keys()


@pytest.mark.long
@pytest.mark.parametrize("release", [BEFORE, NEWEST])
def test_the_file_has_what_the_release_answers(release: str) -> None:
    try:
        target = ApacheKafka(version=release, brokers=1)
    except UsageError as error:
        pytest.skip(str(error))
    with closing(target):
        cluster = Cluster(target, advertised_versions(target.bootstrap))
        topic = cluster.create_topic()
        resources = [{"resource_type": 4, "resource_name": "1"}, {"resource_type": 2, "resource_name": topic.name}]
        sent = request("DescribeConfigs", resources=resources, include_synonyms=True)
        answered = cluster.connect().call(sent, 4).results
        cluster.close()
    for kind, result in zip(("broker", "topic"), answered, strict=True):
        found = {each.name: default_of(each) for each in result.configs}
        expected = RELEASES[release][kind]
        assert {name: found.get(name) for name in expected} == expected
        assert kind == "broker" or found.keys() == expected.keys()
