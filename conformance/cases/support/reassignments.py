"""Helpers for the replicas of a partition: elections of its leader (KIP-460) and reassignments (KIP-455)."""

from collections.abc import Sequence
from typing import Any, Final

from highwater.conformance.cases.support.admin import TIMEOUT_MS, controller
from highwater.conformance.client.broker import Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.requests import message
from highwater.conformance.expectations import expect, only
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

PREFERRED, UNCLEAN = 0, 1
MOVE_S: Final = 20.0
WAIT_S: Final = TIMEOUT_MS / 1000 + 5


def elect(
    cluster: Cluster, topic: str, partition: int = 0, *, kind: int = PREFERRED, version: int | None = None
) -> int:
    """Elect a leader and return the error code of the partition."""
    request = message(
        ElectLeadersRequest, election_type=kind, timeout_ms=TIMEOUT_MS, topic_partitions=[[topic, [partition]]],
    )  # fmt: skip
    with controller(cluster) as broker:
        reply = broker.call(request, version, WAIT_S)
    expect("error code of ElectLeaders", 0, reply.error_code)
    return int(only(only(reply.replica_election_results).partition_result).error_code)


def reassign(cluster: Cluster, topic: str, replicas: tuple[int, ...] | None, partition: int = 0, **fields: Any) -> int:
    """Start a reassignment, or cancel it for None, and return the error code of the partition."""
    part = [partition, replicas]
    request = message(AlterPartitionReassignmentsRequest, topics=[[topic, [part]]], timeout_ms=TIMEOUT_MS, **fields)
    with controller(cluster) as broker:
        reply = broker.call(request, 1 if fields else None, WAIT_S)
    expect("error code of AlterPartitionReassignments", 0, reply.error_code)
    return int(only(only(reply.responses).partitions).error_code)


def ongoing_reassignments(cluster: Cluster, *topics: str, partition: int = 0) -> tuple[Any, ...]:
    """Return the reassignments of this partition of the topics, or without topics all."""
    requested = tuple(ListPartitionReassignmentsTopics(name=name, partition_indexes=(partition,)) for name in topics)
    with controller(cluster) as broker:
        reply = broker.call(ListPartitionReassignmentsRequest(topics=requested or None, timeout_ms=TIMEOUT_MS))
    expect("error code of ListPartitionReassignments", 0, reply.error_code)
    found: tuple[Any, ...] = reply.topics
    return found


def replicas_of(cluster: Cluster, topic: Topic) -> tuple[int, ...]:
    """Return the replicas of the partition, the preferred one first; empty if the broker does not answer."""
    found = cluster.describe(topic.name)
    parts = found.partitions if found else ()
    return next((part.replica_nodes for part in parts if part.partition_index == topic.partition), ())


def await_replicas(cluster: Cluster, topic: Topic, replicas: Sequence[int]) -> None:
    """Wait until exactly these are the replicas of the partition, in this order."""

    def poll() -> bool:
        is_placed = replicas_of(cluster, topic) == tuple(replicas)
        return is_placed and not ongoing_reassignments(cluster, topic.name, partition=topic.partition)

    cluster.eventually(f"the replicas to be {replicas}", poll, MOVE_S)


def move_leader(cluster: Cluster, topic: Topic, node: int) -> Topic:
    """Let another replica of the partition lead it, while all brokers are up, and return the topic with its leader."""
    move_leaders(cluster, [topic], node)
    return cluster.topic(topic.name, partition=topic.partition)


def elect_preferred(cluster: Cluster, topic: Topic) -> Topic:
    """Elect the preferred replica, and return the topic with another leader than before."""
    requested = message(ElectLeadersRequest, election_type=0, topic_partitions=[[topic.name, [0]]], timeout_ms=10_000)
    cluster.call_controller(requested)
    return cluster.topic(topic.name, excluded_leader=topic.leader_id, timeout_s=MOVE_S)


def move_leaders(cluster: Cluster, topics: Sequence[Topic], node: int) -> None:
    """Make this replica the preferred one of each partition, elect it, and wait until it leads them all."""
    order = {topic: (node, *(each for each in replicas_of(cluster, topic) if each != node)) for topic in topics}
    moving = [[topic.name, [[topic.partition, replicas]]] for topic, replicas in order.items()]
    elected = [[topic.name, [topic.partition]] for topic in topics]
    with controller(cluster) as broker:
        broker.call(message(AlterPartitionReassignmentsRequest, topics=moving, timeout_ms=TIMEOUT_MS), None, WAIT_S)
        for topic, replicas in order.items():
            await_replicas(cluster, topic, replicas)
        reply = broker.call(message(ElectLeadersRequest, topic_partitions=elected, timeout_ms=TIMEOUT_MS), None, WAIT_S)
    for result in reply.replica_election_results:
        for part in result.partition_result:
            expect("error code of ElectLeaders", {0, ErrorCode.ELECTION_NOT_NEEDED}, part.error_code)

    def are_led() -> bool:
        found = [cluster.topic(topic.name, partition=topic.partition) for topic in topics]
        return all(topic.leader_id == node for topic in found)

    cluster.eventually(f"broker {node} to lead", are_led, MOVE_S)
