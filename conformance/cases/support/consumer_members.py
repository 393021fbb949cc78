"""Members of a consumer group (KIP-848), which report their partitions and get assignments by heartbeat."""

from typing import Any

from highwater.conformance.client.broker import Broker, Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.expectations import expect, only
from highwater.reference.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from highwater.reference.wire.messages.metadata import MetadataRequest

JOIN, LEAVE, LEAVE_TEMPORARILY = 0, -1, -2
REBALANCE_TIMEOUT_MS = 60_000
Parts = set[tuple[bytes, int]]


def topic_id(broker: Broker, topic: Topic) -> bytes:
    """Return the topic id; raises Unsupported if topics have no ids."""
    found = only(broker.metadata(topic.name, version=broker.version_of(MetadataRequest, 10)).topics)
    return bytes(found.topic_id)


def owned_topics(parts: Parts) -> tuple[HeartbeatTopicPartitions, ...]:
    """Return partitions as a heartbeat reports them."""
    return tuple(
        HeartbeatTopicPartitions(topic_id=topic, partitions=tuple(sorted(n for t, n in parts if t == topic)))
        for topic in sorted({topic for topic, _ in parts})
    )


class ConsumerGroup:
    """Creates members of one group."""

    def __init__(self, cluster: Cluster, *topics: Topic) -> None:
        self.cluster, self.topics, self.name = cluster, topics, cluster.group()
        self._count = 0

    def connect(self) -> Broker:
        broker = self.cluster.coordinator(self.name)
        broker.version_of(ConsumerGroupHeartbeatRequest)
        return broker

    def member(self) -> "ConsumerMember":
        self._count += 1
        return ConsumerMember(self, self.connect(), f"{self.name}-member-{self._count}")

    def joined_member(self, **fields: Any) -> "ConsumerMember":
        member = self.member()
        expect("error code of the join", 0, member.join(**fields).error_code)
        return member

    def describe(self) -> Any:
        with self.connect() as broker:
            return only(broker.call(ConsumerGroupDescribeRequest(group_ids=(self.name,))).groups)


class ConsumerMember:
    """A member; `owned` are the partitions that it last reported, `assigned` its last assignment."""

    def __init__(self, group: ConsumerGroup, broker: Broker, member_id: str) -> None:
        self.group, self.broker, self.member_id = group, broker, member_id
        self.epoch = JOIN
        self.assigned: Parts = set()
        self.owned: Parts = set()

    def heartbeat(self, version: int | None = None, **fields: Any) -> Any:
        """Send a heartbeat; a reply without error updates epoch and assignment."""
        fields = {"group_id": self.group.name, "member_id": self.member_id, "member_epoch": self.epoch, **fields}
        reply = self.broker.call(ConsumerGroupHeartbeatRequest(**fields), version)
        if not reply.error_code:
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                self.assigned = {
                    (bytes(topic.topic_id), number)
                    for topic in reply.assignment.topic_partitions
                    for number in topic.partitions
                }
        return reply

    def join(self, version: int | None = None, **fields: Any) -> Any:
        whole = {
            "member_epoch": JOIN,
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
            "subscribed_topic_names": tuple(topic.name for topic in self.group.topics),
            "topic_partitions": (),
        }
        return self.heartbeat(version, **{**whole, **fields})

    def report_owned(self, parts: Parts) -> Any:
        """Send a heartbeat that reports exactly these partitions as owned."""
        self.owned = set(parts)
        return self.heartbeat(topic_partitions=owned_topics(parts))

    def reconcile(self) -> None:
        """Report exactly the assigned partitions as owned."""
        expect("error code of a heartbeat", 0, self.report_owned(self.assigned).error_code)
