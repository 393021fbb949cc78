"""Metadata: topics, brokers, leaders and topic ids."""

from typing import Any
from uuid import uuid4

import pytest

from highwater.conformance.clause import clause, era, sweep
from highwater.conformance.client.broker import Broker, Topic, batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import GuardOff, Reply, Request, defect, increment
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import TargetFailure, Unsupported
from highwater.conformance.targets.base import STOP_NODE
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

NOT_REQUESTED = -(2**31)
ZERO_ID = bytes(16)


def random_topic_id(topic_id: bytes) -> bytes:
    return uuid4().bytes


def duplicate(nodes: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*nodes, *nodes)


@clause("MD-1", "all")
@defect(Reply(MetadataRequest, "topics", ()))
@sweep(MetadataRequest)
def test_all_topics_are_listed(broker: Broker, topic: Topic, version: int) -> None:
    reply = broker.call(MetadataRequest(topics=None if version else ()), version)
    expect(
        f"{topic.name} is among all topics", True, topic.name in {listed_topic.name for listed_topic in reply.topics}
    )


@clause("MD-1", "none")
@defect(Request(MetadataRequest, "topics", None), Reply(MetadataRequest, "brokers", ()))
@sweep(MetadataRequest, 1)
def test_an_empty_list_asks_for_no_topic(broker: Broker, topic: Topic, version: int) -> None:
    reply = broker.call(MetadataRequest(topics=()), version)
    expect(f"number of topics, although {topic.name} exists", 0, len(reply.topics))
    expect("there are brokers", True, len(reply.brokers) > 0)


@clause("MD-2")
@defect(Reply(MetadataRequest, "topics.error_code", 0), Reply(MetadataRequest, "topics", ()))
@sweep(MetadataRequest, 4)
def test_an_unknown_topic_is_named_with_its_error(cluster: Cluster, broker: Broker, version: int) -> None:
    name = cluster.name()
    found = only(broker.metadata(name, version=version).topics)
    expect("error code and name", (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name), (found.error_code, found.name))


@clause("MD-3")
@defect(
    Request(MetadataRequest, "allow_auto_topic_creation", True),
    Request(MetadataRequest, "allow_auto_topic_creation", False),
)
def test_a_topic_is_made_on_demand_only_if_the_request_allows(cluster: Cluster, broker: Broker) -> None:
    name = cluster.name()
    if cluster.reported("auto_create_topics_enable") == "false":
        raise Unsupported("the broker creates no topics on demand (auto.create.topics.enable)")
    for _ in range(2):
        expect(
            "error code without auto-creation",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            only(broker.metadata(name).topics).error_code,
        )
        cluster.create_topic()  # asked for later, and there: a topic that the first request made would be there too
    wanted = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=True)
    first = only(broker.call(wanted, broker.version_of(MetadataRequest, 4)).topics).error_code
    expect(
        "error code of the request that creates",
        {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE},
        first,
    )
    cluster.topic(name)


@clause("MD-3", "deleted")
@defect(Request(MetadataRequest, "allow_auto_topic_creation", False))
def test_a_topic_that_was_deleted_is_made_on_demand_again(cluster: Cluster, broker: Broker) -> None:
    if cluster.reported("auto_create_topics_enable") == "false":
        raise Unsupported("the broker creates no topics on demand (auto.create.topics.enable)")
    name, version = cluster.topic_name(), broker.version_of(MetadataRequest, 4)
    wanted = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=True)

    def error() -> int:
        return int(only(broker.metadata(name).topics).error_code)

    def is_created() -> bool:
        return bool(only(broker.call(wanted, version).topics).error_code == 0)

    cluster.eventually("the topic", is_created)
    cluster.delete_topics(name)
    cluster.eventually("the deletion", lambda: error() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    cluster.eventually("the topic again", is_created)


@clause("MD-4")
@era("2.8")  # older releases return UNKNOWN_TOPIC_OR_PARTITION
@defect(Reply(MetadataRequest, "topics.error_code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
@pytest.mark.parametrize("name", [".", "..", "a b", "a/b", "x" * 250, "ä"])
def test_an_illegal_name_is_refused(broker: Broker, name: str) -> None:
    expect("error code", ErrorCode.INVALID_TOPIC_EXCEPTION, only(broker.metadata(name).topics).error_code)


@clause("MD-5")
@defect(Reply(MetadataRequest, "cluster_id", None), Reply(MetadataRequest, "controller_id", -1))
def test_cluster_id_and_controller_are_told(cluster: Cluster, broker: Broker) -> None:
    reply = broker.call(MetadataRequest(topics=()), broker.version_of(MetadataRequest, 2))
    expect("there is a cluster id", True, bool(reply.cluster_id))
    expect("controller", {node.node_id for node in reply.brokers}, reply.controller_id)


@clause("MD-6", "told")
@defect(Reply(MetadataRequest, "topics.topic_id", ZERO_ID), Reply(MetadataRequest, "topics.topic_id", random_topic_id))
def test_a_topic_has_an_id_that_stays(broker: Broker, topic: Topic) -> None:
    version = broker.version_of(MetadataRequest, 10)
    first, second = (only(broker.metadata(topic.name, version=version).topics).topic_id for _ in range(2))
    expect("the id is not zero", True, first != ZERO_ID)
    expect("id the second time", first, second)


@clause("MD-6", "lookup")
@defect(Reply(MetadataRequest, "topics.name", "another"))
def test_a_topic_is_found_by_its_id(broker: Broker, topic: Topic) -> None:
    version = broker.version_of(MetadataRequest, 12)
    topic_id = only(broker.metadata(topic.name, version=version).topics).topic_id
    requested = MetadataRequest(topics=(MetadataRequestTopic(topic_id=topic_id, name=None),))
    expect("name", topic.name, only(broker.call(requested, version).topics).name)


@clause("MD-6", "unknown")
@defect(Reply(MetadataRequest, "topics.error_code", 0))
def test_an_unknown_id_is_an_error(broker: Broker, topic: Topic) -> None:
    version = broker.version_of(MetadataRequest, 12)
    requested = MetadataRequest(topics=(MetadataRequestTopic(topic_id=b"\xab" * 16, name=None),))
    expect("error code", ErrorCode.UNKNOWN_TOPIC_ID, only(broker.call(requested, version).topics).error_code)


@clause("MD-7", "present")
@defect(Reply(MetadataRequest, "topics.partitions.leader_epoch", -1))
@sweep(MetadataRequest, 7)
def test_a_partition_has_a_leader_epoch(broker: Broker, topic: Topic, version: int) -> None:
    for part in only(broker.metadata(topic.name, version=version).topics).partitions:
        expect("leader epoch is not negative", True, part.leader_epoch >= 0)


@clause("MD-7", "failover")
@defect(GuardOff("BumpLeaderEpoch"), Reply(MetadataRequest, "topics.partitions.leader_epoch", 0))
@pytest.mark.cluster_fault
def test_a_new_leader_has_a_newer_epoch(cluster: Cluster) -> None:
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    before = cluster.create_topic(replicas=3)
    cluster.leader(before).produce(before, batch(b"v"))
    cluster.stop(before.leader_id)
    after = cluster.topic(before.name, excluded_leader=before.leader_id)
    if after.leader_epoch <= before.leader_epoch:
        raise TargetFailure(f"expected a leader epoch above {before.leader_epoch}, actual {after.leader_epoch}")
    cluster.start(before.leader_id)


@clause("MD-8")
@defect(
    Reply(MetadataRequest, "topics.partitions.replica_nodes", (9,)),
    Reply(MetadataRequest, "topics.partitions.isr_nodes", (9,)),
    Reply(MetadataRequest, "topics.partitions.replica_nodes", duplicate),
)
@sweep(MetadataRequest)
def test_leader_and_isr_are_replicas(broker: Broker, topic: Topic, version: int) -> None:
    reply = broker.call(MetadataRequest(topics=(MetadataRequestTopic(name=topic.name),)), version)
    for part in only(reply.topics).partitions:
        replicas = set(part.replica_nodes)
        expect("the leader is a replica", True, part.leader_id in replicas)
        expect("the ISR consists of replicas", True, bool(part.isr_nodes) and set(part.isr_nodes) <= replicas)
        expect("number of replicas", len(replicas), len(part.replica_nodes))
        expect("replicas are brokers", True, replicas <= {node.node_id for node in reply.brokers})


@clause("MD-9")
@defect(Reply(MetadataRequest, "topics.topic_authorized_operations", 0))
@sweep(MetadataRequest, 8)
def test_operations_are_told_only_when_asked_for(broker: Broker, topic: Topic, version: int) -> None:
    found = only(broker.metadata(topic.name, version=version).topics)
    expect("authorised operations", NOT_REQUESTED, found.topic_authorized_operations)


@clause("MD-11")
@defect(Reply(MetadataRequest, "topics.partitions.leader_id", increment))
def test_every_broker_tells_the_same_leader(cluster: Cluster, topic: Topic) -> None:
    addresses = list(cluster.target.addresses.values())
    if len(addresses) < 2:
        raise Unsupported("the case needs 2 brokers")
    for address in addresses:

        def leader_there(address: str = address) -> bool:
            found = only(cluster.connect(address).metadata(topic.name).topics)
            return any(
                part.leader_id == topic.leader_id
                for part in found.partitions
                if part.partition_index == topic.partition
            )

        cluster.eventually(f"leader {topic.leader_id} at {address}", leader_there, 5.0)
