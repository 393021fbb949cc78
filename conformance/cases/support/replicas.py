"""Helpers for cases about replication: in-sync replicas, failover, and the records of each replica."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from highwater.conformance.cases.support.admin import change_configs, controller, create_error, new_topic
from highwater.conformance.client.broker import Broker, Topic, batch, records_of
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.expectations import expect
from highwater.conformance.failures import Unsupported
from highwater.conformance.models.settings import DELETE, SET
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.records import Record

FOLLOWERS_SERVE_SINCE = 11
FAILOVER_S = 30.0


def create_replicated_topic(cluster: Cluster, **configs: str) -> Topic:
    """Create a topic with three replicas and wait until all are in sync."""
    cluster.need_brokers(3)
    topic = cluster.create_topic(replicas=3, configs=configs or None)
    await_isr(cluster, topic, 3)
    return topic


def restart_leader(cluster: Cluster, topic: Topic, offset: int = 0) -> tuple[Topic, Broker]:
    """Restart the leader, and return the topic and a connection to it when it serves the partition at the offset."""
    cluster.stop(topic.leader_id)
    cluster.start(topic.leader_id)
    again = cluster.topic(topic.name, timeout_s=FAILOVER_S)
    leader = cluster.leader(again)
    cluster.eventually("a fetch without an error", lambda: leader.fetch(again, offset).error_code == 0, FAILOVER_S)
    return again, leader


def create_assigned_topic(cluster: Cluster, *assignment: Sequence[int]) -> Topic:
    """Create a topic with these replicas by partition, and return its last partition when it has all replicas."""
    name = cluster.topic_name()
    expect("error code of CreateTopics", 0, create_error(cluster, new_topic(name, -1, -1, assignment=assignment)))

    def is_in_sync() -> bool:
        found = cluster.describe(name)
        isr = {part.partition_index: set(part.isr_nodes) for part in found.partitions} if found else {}
        return isr == {number: set(replicas) for number, replicas in enumerate(assignment)}

    cluster.eventually(f"all replicas of {name} in sync", is_in_sync, FAILOVER_S)
    return cluster.topic(name, partition=len(assignment) - 1)


def await_isr(cluster: Cluster, topic: Topic, size: int) -> None:
    cluster.eventually(f"an ISR of {size}", lambda: len(cluster.isr_of(topic)) == size, FAILOVER_S)


@contextmanager
def needing_all_replicas(cluster: Cluster, topic: str) -> Iterator[None]:
    """Let an internal topic need three in-sync replicas within the block."""
    with controller(cluster) as broker:
        error = change_configs(broker, topic, ("min.insync.replicas", SET, "3"))
    if error:
        raise Unsupported(f"the target does not alter the settings of {topic}")
    try:
        yield
    finally:
        with controller(cluster) as broker:
            change_configs(broker, topic, ("min.insync.replicas", DELETE, None))


def followers(cluster: Cluster, topic: Topic) -> list[int]:
    return [node for node in cluster.target.addresses if node != topic.leader_id]


def controller_last(cluster: Cluster) -> list[int]:
    """Return the nodes with the controller last, since it must not be stopped."""
    with cluster.connect() as broker:
        controller = broker.metadata().controller_id
    return sorted(cluster.target.addresses, key=lambda node: (node == controller, node))


def produce_acknowledged(cluster: Cluster, topic: Topic, *values: bytes) -> None:
    """Produce each value in a separate batch with acks=all, again until it is acknowledged."""
    leader = cluster.leader(topic)
    for value in values:

        def taken(value: bytes = value) -> bool:
            return leader.produce(topic, batch(value)).error_code == 0

        cluster.eventually(f"{value!r} to be acknowledged", taken, FAILOVER_S)


def fail_over(cluster: Cluster, topic: Topic, *, kill: bool = False) -> Topic:
    """Stop or kill the leader, and return the topic with its next leader."""
    (cluster.kill if kill else cluster.stop)(topic.leader_id)
    return cluster.topic(topic.name, excluded_leader=topic.leader_id, timeout_s=FAILOVER_S)


def log_of(broker: Broker, topic: Topic) -> list[Record]:
    """Read all records up to the high watermark."""
    found, offset = list[Record](), 0
    while True:
        records = records_of(broker.fetch(topic, offset).records)
        if not records:
            return found
        found += [record for record in records if record.offset >= offset]
        offset = found[-1].offset + 1


def values_at(broker: Broker, topic: Topic) -> list[bytes | None]:
    return [record.value for record in log_of(broker, topic)]


def replica_shows(cluster: Cluster, topic: Topic, node: int, values: Sequence[bytes | None]) -> bool:
    """Return whether a consumer reads exactly these values from that replica, leader or follower."""
    with cluster.connect(cluster.target.addresses[node]) as broker:
        answer = broker.fetch(topic, 0, version=broker.version_of(FetchRequest, FOLLOWERS_SERVE_SINCE))
        return answer.error_code == 0 and values_at(broker, topic) == list(values)


def expect_values(what: str, expected: list[bytes], actual: list[bytes | None]) -> None:
    expect(f"{what}: {actual}", True, actual == expected)
