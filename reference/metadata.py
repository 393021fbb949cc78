"""Handlers of Metadata (3), DescribeCluster (60) and FindCoordinator (10)."""

from dataclasses import replace

from highwater.reference.context import Context
from highwater.reference.effects import Request
from highwater.reference.groups.store import OFFSETS_TOPIC, GroupStore
from highwater.reference.metadata_cache import CachedTopic, MetadataCache
from highwater.reference.procedures import spawn
from highwater.reference.replication.purgatory import Purgatory
from highwater.reference.topics import INTERNAL_TOPICS, Topics, is_legal_name
from highwater.reference.transactions.store import TRANSACTION_TOPIC, TransactionStore
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import (
    Coordinator,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from highwater.reference.wire.schema import ZERO_UUID

GROUP_KEY, TRANSACTION_KEY = 0, 1
# Read, write, create, delete, alter, describe, describe and alter configs: there is no authorizer, so all (KIP-430).
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
# Create, alter, describe, cluster action, describe and alter configs, idempotent write.
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
NOT_REQUESTED = -(1 << 31)
BROKERS, CONTROLLERS = 1, 2
"""Types of endpoints (KIP-919)."""
COORDINATORS_SINCE = 4
# Versions 10 and 11 have a topic id field that cannot be used: their responses require a topic name.
TOPIC_IDS_SINCE = 12
FIRST_UPDATE_MS, FIRST_UPDATE_POLL_MS = 10_000, 50


class MetadataHandler:
    def __init__(
        self,
        context: Context,
        cache: MetadataCache,
        topics: Topics,
        groups: GroupStore,
        transactions: TransactionStore,
        purgatory: Purgatory,
    ) -> None:
        self._context, self._cache, self._topics, self._purgatory = context, cache, topics, purgatory
        # Key type -> the internal topic, and the function from a key to its partition.
        self._coordinator_topics = {
            GROUP_KEY: (OFFSETS_TOPIC, groups.partition_for),
            TRANSACTION_KEY: (TRANSACTION_TOPIC, transactions.partition_for),
        }
        self._creating: set[str] = set()

    # -- metadata --------------------------------------------------------------------------------

    async def metadata(self, request: Request) -> MetadataResponse:
        await self._await_first_update()
        body: MetadataRequest = request.body
        if body.topics is None or (request.api_version == 0 and not body.topics):
            topics = [self._describe(name, topic) for name, topic in sorted(self._cache.topics.items())]
        elif request.api_version < TOPIC_IDS_SINCE and any(map(_has_id, body.topics)):
            topics = [
                MetadataResponseTopic(
                    error_code=ErrorCode.INVALID_REQUEST, name=requested.name or "", topic_id=requested.topic_id
                )
                for requested in body.topics
            ]
        else:
            create = body.allow_auto_topic_creation and self._context.config.auto_create_topics_enable
            by_id = any(requested.topic_id != ZERO_UUID for requested in body.topics)  # then names do not count
            topics = [
                self._by_id(requested.topic_id)
                if requested.name is None or by_id
                else self._by_name(requested.name, create=create)
                for requested in dict.fromkeys(body.topics)
                if requested.topic_id != ZERO_UUID or not by_id
            ]
        if body.include_topic_authorized_operations:
            topics = [replace(topic, topic_authorized_operations=TOPIC_OPERATIONS) for topic in topics]
        return MetadataResponse(
            brokers=tuple(
                MetadataResponseBroker(
                    node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=self._cache.racks[broker_id]
                )
                for broker_id, endpoint in self._cache.brokers.items()
            ),
            cluster_id=self._context.config.cluster_id,
            controller_id=self._cache.controller_id if self._cache.is_alive(self._cache.controller_id) else -1,
            topics=tuple(topics),
            cluster_authorized_operations=_cluster_operations(requested=body.include_cluster_authorized_operations),
        )

    async def _await_first_update(self) -> None:
        """Wait until this broker knows the others from the controller, for ten seconds at most.

        A broker of KRaft cannot be reached before. librdkafka 2.16 keeps to an answer without brokers and controller:
        an admin call ends after a minute with "waiting for controller".
        """
        for _ in range(FIRST_UPDATE_MS // FIRST_UPDATE_POLL_MS):
            if self._cache.brokers:
                return
            await self._purgatory.sleep(FIRST_UPDATE_POLL_MS)

    def _by_id(self, topic_id: bytes) -> MetadataResponseTopic:
        if (name := self._cache.name_of(topic_id)) is not None:
            return self._describe(name, self._cache.topics[name])
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)

    def _by_name(self, name: str, *, create: bool) -> MetadataResponseTopic:
        topic = self._cache.topics.get(name)
        if topic is not None:
            return self._describe(name, topic)
        is_legal = is_legal_name(name)
        if is_legal and create:
            self.create_in_background(name)
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION,
            name=name,
            topic_id=ZERO_UUID,
            is_internal=name in INTERNAL_TOPICS,
        )

    def create_in_background(self, name: str) -> None:
        if name not in self._creating:
            self._creating.add(name)
            spawn(self._create(name))

    async def _create(self, name: str) -> None:
        await self._topics.create_automatically(name)
        self._creating.discard(name)

    def _describe(self, name: str, topic: CachedTopic) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=name,
            topic_id=topic.topic_id,
            is_internal=name in INTERNAL_TOPICS,
            partitions=tuple(
                MetadataResponsePartition(**self._cache.partition_fields(name, number))
                for number in sorted(topic.partitions)
            ),
        )

    async def describe_cluster(self, request: Request) -> DescribeClusterResponse:
        await self._await_first_update()
        body: DescribeClusterRequest = request.body
        if body.endpoint_type != BROKERS:
            is_known = body.endpoint_type == CONTROLLERS
            return DescribeClusterResponse(
                error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                error_message=f"This is an endpoint of brokers (1), not of type {body.endpoint_type}.",
            )
        return DescribeClusterResponse(
            cluster_authorized_operations=_cluster_operations(requested=body.include_cluster_authorized_operations),
            cluster_id=self._context.config.cluster_id,
            controller_id=self._cache.controller_id,
            brokers=tuple(
                DescribeClusterBroker(
                    broker_id=broker_id, host=endpoint.host, port=endpoint.port, rack=self._cache.racks[broker_id]
                )
                for broker_id, endpoint in self._cache.brokers.items()
            ),
        )

    # -- coordinators ----------------------------------------------------------------------------

    async def find_coordinator(self, request: Request) -> FindCoordinatorResponse:
        body: FindCoordinatorRequest = request.body
        if request.api_version >= COORDINATORS_SINCE:
            return FindCoordinatorResponse(
                coordinators=tuple(self._coordinator(key, body.key_type) for key in body.coordinator_keys)
            )
        found = self._coordinator(body.key, body.key_type)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )

    def _coordinator(self, key: str, key_type: int) -> Coordinator:
        def unavailable(error: ErrorCode, message: str | None = None) -> Coordinator:
            return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message)

        if key_type not in self._coordinator_topics:
            return unavailable(ErrorCode.INVALID_REQUEST, "The key type must be 0 (group) or 1 (transactional id).")
        topic, partition_for = self._coordinator_topics[key_type]
        if topic not in self._cache.topics:
            self.create_in_background(topic)
            return unavailable(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        leader = self._cache.leader_of(topic, partition_for(key))
        if leader < 0:
            return unavailable(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        endpoint = self._cache.brokers[leader]
        return Coordinator(
            key=key,
            node_id=leader,
            host=endpoint.host,
            port=endpoint.port,
            error_code=ErrorCode.NONE,
            error_message=None,
        )


def _has_id(requested: MetadataRequestTopic) -> bool:
    return requested.name is None or requested.topic_id != ZERO_UUID


def _cluster_operations(*, requested: bool) -> int:
    return CLUSTER_OPERATIONS if requested else NOT_REQUESTED
