"""Builds the controller's requests to brokers: LeaderAndIsr, UpdateMetadata and StopReplica."""

from collections import deque
from collections.abc import Callable
from typing import Any

from highwater.reference.controller.cluster import Cluster, Key
from highwater.reference.metadata_cache import LEADER_DURING_DELETE
from highwater.reference.peers import Peers
from highwater.reference.procedures import Inbox, Pending, spawn
from highwater.reference.replication.purgatory import Purgatory
from highwater.reference.wire.messages.controller import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

LEADER_AND_ISR_VERSION = 4
UPDATE_METADATA_VERSION = 7
STOP_REPLICA_VERSION = 3
PLAINTEXT = 0
EPOCH_DURING_DELETE = -2  # accepted whatever the leader epoch (KIP-570)

VersionedRequest = tuple[Any, int]


def _by_topic(keys: list[Key]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in keys:
        topics.setdefault(topic, []).append(partition)
    return topics


def leader_and_isr(
    controller_id: int, controller_epoch: int, broker_id: int, cluster: Cluster, keys: list[Key]
) -> VersionedRequest:
    def state_of(key: Key) -> LeaderAndIsrPartitionState:
        state = cluster.states[key]
        return LeaderAndIsrPartitionState(
            partition_index=key[1],
            controller_epoch=controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=state.partition_epoch,
            replicas=cluster.replicas(key),
        )

    leaders = sorted({cluster.states[key].leader for key in keys} & set(cluster.brokers))
    return LeaderAndIsrRequest(
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        broker_epoch=cluster.brokers[broker_id].epoch,
        topic_states=tuple(
            LeaderAndIsrTopicState(
                topic_name=topic, partition_states=tuple(state_of((topic, partition)) for partition in partitions)
            )
            for topic, partitions in _by_topic(keys).items()
        ),
        live_leaders=tuple(
            LeaderAndIsrLiveLeader(
                broker_id=leader, host_name=cluster.brokers[leader].host, port=cluster.brokers[leader].port
            )
            for leader in leaders
        ),
    ), LEADER_AND_ISR_VERSION


def update_metadata(
    controller_id: int, controller_epoch: int, broker_id: int, cluster: Cluster, keys: list[Key], *, deleted: bool
) -> VersionedRequest:
    def state_of(key: Key) -> UpdateMetadataPartitionState:
        state = cluster.states[key]
        return UpdateMetadataPartitionState(
            partition_index=key[1],
            controller_epoch=controller_epoch,
            leader=LEADER_DURING_DELETE if deleted else state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            zk_version=state.partition_epoch,
            replicas=cluster.replicas(key),
            offline_replicas=tuple(r for r in cluster.replicas(key) if r not in cluster.live(key)),
        )

    def endpoints(host: str, port: int) -> tuple[UpdateMetadataEndpoint, ...]:
        return (UpdateMetadataEndpoint(port=port, host=host, listener="PLAINTEXT", security_protocol=PLAINTEXT),)

    return UpdateMetadataRequest(
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        broker_epoch=cluster.brokers[broker_id].epoch,
        topic_states=tuple(
            UpdateMetadataTopicState(
                topic_name=topic,
                topic_id=cluster.topics[topic].topic_id,
                partition_states=tuple(state_of((topic, partition)) for partition in partitions),
            )
            for topic, partitions in _by_topic(keys).items()
        ),
        live_brokers=tuple(
            UpdateMetadataBroker(id=known, endpoints=endpoints(info.host, info.port), rack=info.rack)
            for known, info in cluster.brokers.items()
            if known not in cluster.shutting_down
        ),
    ), UPDATE_METADATA_VERSION


def stop_replica(
    controller_id: int, controller_epoch: int, broker_id: int, cluster: Cluster, keys: list[Key], *, delete: bool
) -> VersionedRequest:
    def epoch_of(key: Key) -> int:
        return EPOCH_DURING_DELETE if key[0] in cluster.deleting else cluster.states[key].leader_epoch

    return StopReplicaRequest(
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        broker_epoch=cluster.brokers[broker_id].epoch,
        topic_states=tuple(
            StopReplicaTopicState(
                topic_name=topic,
                partition_states=tuple(
                    StopReplicaPartitionState(
                        partition_index=partition,
                        leader_epoch=epoch_of((topic, partition)),
                        delete_partition=delete,
                    )
                    for partition in partitions
                ),
            )
            for topic, partitions in _by_topic(keys).items()
        ),
    ), STOP_REPLICA_VERSION


# --------------------------------------------------------------------------------------------------
# The controller's request queue for each broker: in order, retried until the broker answers, fails or restarts.


RETRY_MS = 100


class Channel:
    """The request queue of one broker, one request in flight. Apache Kafka: RequestSendThread."""

    def __init__(self, peers: Peers, purgatory: Purgatory, broker_id: int, is_current: Callable[[], bool]) -> None:
        self._peers, self._purgatory, self._broker_id = peers, purgatory, broker_id
        self._is_current = is_current
        self._inbox: Inbox[tuple[Any, int, Pending[Any]]] = Inbox()
        self._unanswered: deque[Pending[Any]] = deque()
        spawn(self._run())

    def send(self, body: Any, version: int) -> Pending[Any]:
        """Queue a request; resolve with the response, or with None once the channel is closed or not current."""
        pending: Pending[Any] = Pending()
        self._unanswered.append(pending)
        self._inbox.put((body, version, pending))
        return pending

    async def _run(self) -> None:
        while True:
            body, version, pending = await self._inbox.take()
            reply = None
            while self._is_current() and reply is None:
                reply = await self._peers.call(self._broker_id, body, version)
                if reply is None:
                    await self._purgatory.sleep(RETRY_MS)
            pending.resolve(reply)
            if self._unanswered:
                self._unanswered.popleft()

    def close(self) -> None:
        """Await no reply any more: a broker that hangs would delay procedures until the request times out."""
        unanswered, self._unanswered = self._unanswered, deque()
        for pending in unanswered:
            pending.resolve(None)
