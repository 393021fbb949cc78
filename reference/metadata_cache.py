"""A broker's view of the cluster, from UpdateMetadata requests; it may be stale."""

from dataclasses import dataclass, field
from typing import Any

from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.controller import UpdateMetadataPartitionState, UpdateMetadataRequest

LEADER_DURING_DELETE = -2


@dataclass(frozen=True, slots=True)
class Endpoint:
    host: str
    port: int


@dataclass(slots=True)
class CachedTopic:
    topic_id: bytes
    partitions: dict[int, UpdateMetadataPartitionState] = field(default_factory=dict)


class MetadataCache:
    def __init__(self) -> None:
        self.controller_id = -1
        self.brokers: dict[int, Endpoint] = {}
        self.racks: dict[int, str | None] = {}
        self.topics: dict[str, CachedTopic] = {}
        self.version = 0
        """Counts the changes of topics and partitions."""
        self._names: dict[bytes, str] = {}  # by topic id

    def update(self, request: UpdateMetadataRequest) -> list[str]:
        """Apply an UpdateMetadata request; return the names of the deleted topics."""
        self.controller_id = request.controller_id
        self.brokers = {
            broker.id: Endpoint(broker.endpoints[0].host, broker.endpoints[0].port) for broker in request.live_brokers
        }
        self.racks = {broker.id: broker.rack for broker in request.live_brokers}
        self.version += bool(request.topic_states)
        for topic in request.topic_states:
            for state in topic.partition_states:
                self._update_partition(topic.topic_name, topic.topic_id, state)
        return [
            topic.topic_name
            for topic in request.topic_states
            if any(state.leader == LEADER_DURING_DELETE for state in topic.partition_states)
        ]

    def _update_partition(self, name: str, topic_id: bytes, state: UpdateMetadataPartitionState) -> None:
        if state.leader == LEADER_DURING_DELETE:
            gone = self.topics.pop(name, None)
            self._names.pop(gone.topic_id if gone else topic_id, None)
            return
        topic = self.topics.get(name)
        if topic is None or topic.topic_id != topic_id:
            self._names.pop(topic.topic_id if topic else topic_id, None)
            topic = self.topics[name] = CachedTopic(topic_id)
            self._names[topic_id] = name
        known = topic.partitions.get(state.partition_index)
        if known is None or state.leader_epoch >= known.leader_epoch:
            topic.partitions[state.partition_index] = state

    def partition_fields(self, topic: str, partition: int) -> dict[str, Any]:
        """Return the fields of a partition that Metadata and DescribeTopicPartitions have in common."""
        state, leader = self.topics[topic].partitions[partition], self.leader_of(topic, partition)
        return {
            "error_code": ErrorCode.NONE if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
            "partition_index": partition,
            "leader_id": leader,
            "leader_epoch": state.leader_epoch,
            "replica_nodes": state.replicas,
            "isr_nodes": state.isr,
            "offline_replicas": tuple(
                replica for replica in state.replicas if replica in state.offline_replicas or not self.is_alive(replica)
            ),
        }

    def rack_of(self, broker_id: int) -> str | None:
        return self.racks.get(broker_id)

    def name_of(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self.brokers

    def knows(self, topic: str, partition: int) -> bool:
        return topic in self.topics and partition in self.topics[topic].partitions

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the leader's broker id, or -1 if the partition is unknown or has no live leader."""
        if not self.knows(topic, partition):
            return -1
        leader = self.topics[topic].partitions[partition].leader
        return leader if leader in self.brokers else -1
