"""A replicated partition while brokers come and go: what was acknowledged, what each replica shows, who is in sync."""

from collections.abc import Sequence

from highwater.conformance.broker import Broker, Topic, batch, expect, records_of
from highwater.conformance.cluster import Cluster
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.records import Record

FOLLOWERS_SERVE_SINCE = 11
FAILOVER_S = 30.0


def replicated(cluster: Cluster, **configs: str) -> Topic:
    """Three replicas, all in sync."""
    cluster.need_brokers(3)
    topic = cluster.create_topic(replicas=3, configs=configs or None)
    await_isr(cluster, topic, 3)
    return topic


def await_isr(cluster: Cluster, topic: Topic, size: int) -> None:
    cluster.eventually(f"an ISR of {size}", lambda: len(cluster.isr_of(topic)) == size, FAILOVER_S)


def followers(cluster: Cluster, topic: Topic) -> list[int]:
    return [node for node in cluster.target.addresses if node != topic.leader_id]


def acknowledged(cluster: Cluster, topic: Topic, *values: bytes) -> None:
    """Each value a batch of its own, until all replicas in sync have it."""
    leader = cluster.leader(topic)
    for value in values:

        def taken(value: bytes = value) -> bool:
            return leader.produce(topic, batch(value)).error_code == 0

        cluster.eventually(f"{value!r} to be acknowledged", taken, FAILOVER_S)


def fail_over(cluster: Cluster, topic: Topic, *, kill: bool = False) -> Topic:
    """The topic under its next leader."""
    (cluster.kill if kill else cluster.stop)(topic.leader_id)
    return cluster.topic(topic.name, than_leader=topic.leader_id, timeout_s=FAILOVER_S)


def log_of(broker: Broker, topic: Topic) -> list[Record]:
    """Every record up to the high watermark."""
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
    """That broker, leader or follower, shows exactly these."""
    with cluster.connect(cluster.target.addresses[node]) as broker:
        answer = broker.fetch(topic, 0, version=broker.version_of(FetchRequest, FOLLOWERS_SERVE_SINCE))
        return answer.error_code == 0 and values_at(broker, topic) == list(values)


def expect_values(what: str, expected: list[bytes], actual: list[bytes | None]) -> None:
    expect(f"{what}: {actual}", True, actual == expected)
