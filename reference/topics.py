"""Handlers of CreateTopics (19), DeleteTopics (20) and CreatePartitions (37), and automatic topic creation.

The handlers write to the metadata store; the controller reacts to the watch event.
"""

import re
from hashlib import sha256

from highwater.reference.admin.describe_configs import DEFAULT_SOURCE, TOPIC_SOURCE
from highwater.reference.configuration.topic_values import SETTINGS
from highwater.reference.configuration.topics import ROOT as CONFIGS
from highwater.reference.configuration.topics import TopicConfigs, config_path
from highwater.reference.context import Context, from_json, to_json
from highwater.reference.controller.cluster import DELETE_TOPICS, TOPICS, parse_topic
from highwater.reference.controller.controller import Controller
from highwater.reference.controller.topic_changes import Assignment, assign_replicas
from highwater.reference.effects import Request
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.procedures import Pending
from highwater.reference.replication.purgatory import Purgatory
from highwater.reference.store.client import StoreClient
from highwater.reference.store.messages import Create, SetData
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from highwater.reference.wire.schema import ZERO_UUID

LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
INTERNAL_TOPICS = {name: {"cleanup.policy": "compact"} for name in ("__consumer_offsets", "__transaction_state")}
MAX_PARTITIONS = 10_000


class RefusedTopicError(Exception):
    def __init__(self, error: ErrorCode, message: str = "") -> None:
        super().__init__(message)
        self.error, self.message = error, message or None


def is_legal_name(name: str) -> bool:
    return bool(LEGAL_NAME.fullmatch(name)) and name not in {".", ".."}


class Topics:
    def __init__(
        self,
        context: Context,
        store: StoreClient,
        cache: MetadataCache,
        configs: TopicConfigs,
        controller: Controller,
        purgatory: Purgatory,
    ) -> None:
        self._context, self._store, self._cache, self._configs = context, store, cache, configs
        self._controller, self._purgatory = controller, purgatory

    # -- create ----------------------------------------------------------------------------------

    async def create(self, request: Request) -> CreateTopicsResponse:
        body: CreateTopicsRequest = request.body
        names = [topic.name for topic in body.topics]
        results = []
        for topic in body.topics:
            try:
                if not self._controller.active:
                    raise RefusedTopicError(ErrorCode.NOT_CONTROLLER)
                if names.count(topic.name) > 1:
                    raise RefusedTopicError(ErrorCode.INVALID_REQUEST, "The request names this topic more than once.")
                results.append(await self._create_one(topic, validate_only=body.validate_only, wait_ms=body.timeout_ms))
            except RefusedTopicError as refused:
                results.append(
                    CreatableTopicResult(name=topic.name, error_code=refused.error, error_message=refused.message)
                )
        return CreateTopicsResponse(topics=tuple(results))

    async def _create_one(self, topic: CreatableTopic, *, validate_only: bool, wait_ms: int) -> CreatableTopicResult:
        settings = {config.name: config.value or "" for config in topic.configs}
        self.check_settings(settings)
        if not is_legal_name(topic.name):
            raise RefusedTopicError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                "The topic name is not legal: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', but not '.' or '..'.",
            )
        if topic.name in self._cache.topics:
            raise RefusedTopicError(ErrorCode.TOPIC_ALREADY_EXISTS, f"The topic {topic.name} already exists.")
        assignment = self._assignment(topic)
        topic_id = self._topic_id(topic.name)
        if not validate_only:
            online = self._controller.when_online(topic.name)
            error = await self.write(topic.name, assignment, settings, topic_id)
            if error is not ErrorCode.NONE:
                raise RefusedTopicError(error)
            await self._wait_at_most(online, wait_ms)
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic_id,
            error_message=None,
            num_partitions=len(assignment),
            replication_factor=len(assignment[0]),
            configs=tuple(
                CreatableTopicConfigs(
                    name=name,
                    value=settings.get(name, value),
                    config_source=TOPIC_SOURCE if name in settings else DEFAULT_SOURCE,
                )
                for name, value in self._configs.defaults.items()
            ),
        )

    async def _wait_at_most(self, pending: Pending[None], wait_ms: int) -> None:
        """Wait for `pending`, but at most `wait_ms`, the time-out of the request."""
        either: Pending[None] = Pending()
        ticket = self._purgatory.park(max(wait_ms, 0), lambda: either.resolve(None))
        pending.add_done_callback(lambda: either.resolve(None))
        await either
        self._purgatory.finish(ticket)

    def check_settings(self, settings: dict[str, str]) -> None:
        """Raise RefusedTopicError for an unknown setting or an invalid value."""
        for name, value in settings.items():
            if name not in self._configs.defaults:
                raise RefusedTopicError(ErrorCode.INVALID_CONFIG, f"The topic config {name} is unknown.")
            if not SETTINGS[name].is_valid(value):
                raise RefusedTopicError(
                    ErrorCode.INVALID_CONFIG, f"The topic config {name} cannot have the value {value!r}."
                )

    def _topic_id(self, name: str) -> bytes:
        """Return a unique id of 16 bytes without randomness: a hash of cluster, broker, broker epoch, name and time."""
        context = self._context
        seed = f"{context.config.cluster_id}:{context.broker_id}:{context.broker_epoch}:{name}:{context.now.wall_ms}"
        return sha256(seed.encode()).digest()[:16]

    def _assignment(self, topic: CreatableTopic) -> Assignment:
        brokers = sorted(self._cache.brokers)
        if topic.assignments:
            if topic.num_partitions != -1 or topic.replication_factor != -1:
                raise RefusedTopicError(
                    ErrorCode.INVALID_REQUEST, "The request must have either counts or an assignment, not both."
                )
            return self._manual({a.partition_index: tuple(a.broker_ids) for a in topic.assignments}, brokers)
        config = self._context.config
        partitions = config.num_partitions if topic.num_partitions == -1 else topic.num_partitions
        factor = config.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
        if not 0 < partitions <= MAX_PARTITIONS:
            raise RefusedTopicError(
                ErrorCode.INVALID_PARTITIONS, f"A topic has 1 to {MAX_PARTITIONS} partitions, not {partitions}."
            )
        if not 0 < factor <= len(brokers):
            raise RefusedTopicError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor must be 1 to {len(brokers)}, the number of live brokers, not {factor}.",
            )
        return assign_replicas(self._cache.racks, partitions, factor, start=_first_broker(topic.name, len(brokers)))

    def _manual(self, assignment: Assignment, brokers: list[int]) -> Assignment:
        if sorted(assignment) != list(range(len(assignment))):
            raise RefusedTopicError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partition numbers must start at 0, without gaps or repetitions."
            )
        _check_replicas(assignment, brokers, len(assignment[0]))
        return dict(sorted(assignment.items()))

    async def write(
        self, name: str, assignment: Assignment, settings: dict[str, str], topic_id: bytes | None = None
    ) -> ErrorCode:
        """Write a new topic to the store; return an error code.

        The settings are written first, so that a broker that sees the topic finds them. A topic under deletion still
        exists.
        """
        if not (await self._store.get(f"{DELETE_TOPICS}/{name}")).error:
            return ErrorCode.TOPIC_ALREADY_EXISTS
        self._store.call(Create(config_path(name)))
        self._store.call(SetData(config_path(name), to_json(settings)))
        topic = {"version": 3, "topic_id": (topic_id or self._topic_id(name)).hex(), "partitions": assignment}
        reply = await self._store.call(Create(f"{TOPICS}/{name}", to_json(topic)))
        if reply.error == "NodeExists":
            return ErrorCode.TOPIC_ALREADY_EXISTS
        return ErrorCode.UNKNOWN_SERVER_ERROR if reply.error else ErrorCode.NONE

    async def create_automatically(self, name: str) -> None:
        """Create a missing topic for Metadata or FindCoordinator, with the default number of partitions."""
        config, brokers = self._context.config, sorted(self._cache.brokers)
        counts = {
            "__consumer_offsets": (config.offsets_topic_num_partitions, config.offsets_topic_replication_factor),
            "__transaction_state": (
                config.transaction_state_log_num_partitions,
                config.transaction_state_log_replication_factor,
            ),
        }
        partitions, factor = counts.get(name, (config.num_partitions, config.default_replication_factor))
        factor = min(factor, len(brokers))
        if factor > 0:
            start = _first_broker(name, len(brokers))
            assignment = assign_replicas(self._cache.racks, partitions, factor, start)
            await self.write(name, assignment, INTERNAL_TOPICS.get(name, {}))

    # -- create partitions------------------------------------------------------------------------

    async def create_partitions(self, request: Request) -> CreatePartitionsResponse:
        body: CreatePartitionsRequest = request.body
        results = []
        for topic in body.topics:
            error, message = ErrorCode.NONE, None
            try:
                await self._add_partitions(topic, validate_only=body.validate_only, wait_ms=body.timeout_ms)
            except RefusedTopicError as refused:
                error, message = refused.error, refused.message
            results.append(CreatePartitionsTopicResult(name=topic.name, error_code=error, error_message=message))
        return CreatePartitionsResponse(results=tuple(results))

    async def _add_partitions(self, topic: CreatePartitionsTopic, *, validate_only: bool, wait_ms: int) -> None:
        if not self._controller.active:
            raise RefusedTopicError(ErrorCode.NOT_CONTROLLER)
        path = f"{TOPICS}/{topic.name}"
        found = await self._store.get(path)
        if found.error or found.stat is None:
            raise RefusedTopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        existing = parse_topic(found.data).assignment
        more = topic.count - len(existing)
        if topic.count > MAX_PARTITIONS:
            raise RefusedTopicError(ErrorCode.INVALID_PARTITIONS, f"A topic has at most {MAX_PARTITIONS} partitions.")
        if more <= 0:
            raise RefusedTopicError(ErrorCode.INVALID_PARTITIONS, f"The topic already has {len(existing)} partitions.")
        brokers = sorted(self._cache.brokers)
        if topic.assignments is not None:
            added = {len(existing) + slot: tuple(a.broker_ids) for slot, a in enumerate(topic.assignments)}
            if len(added) != more:
                message = f"The request adds {more} partitions, but has {len(added)} assignments."
                raise RefusedTopicError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
            _check_replicas(added, brokers, len(existing[0]))
        else:
            factor = min(len(existing[0]), len(brokers))
            start = _first_broker(topic.name, len(brokers))
            added = assign_replicas(self._cache.racks, more, factor, start, first_partition=len(existing))
        if validate_only:
            return
        online = self._controller.when_online(topic.name)
        changed = {**from_json(found.data), "partitions": {**existing, **added}}
        await self._store.call(SetData(path, to_json(changed), found.stat.version))
        await self._wait_at_most(online, wait_ms)

    # -- delete ----------------------------------------------------------------------------------

    async def delete(self, request: Request) -> DeleteTopicsResponse:
        body: DeleteTopicsRequest = request.body
        by_id = request.api_version >= TOPICS_BY_ID_SINCE
        states = body.topics if by_id else tuple(DeleteTopicState(name=name) for name in body.topic_names)
        results = []
        for state in states:
            name, topic_id, error, message = state.name, state.topic_id, ErrorCode.NONE, None
            try:
                name = self._topic_to_delete(state, states)
                topic_id = self._cache.topics[name].topic_id
                deleted = self._controller.when_deleted(name)
                await self._store.ensure(f"{DELETE_TOPICS}/{name}")
                await self._wait_at_most(deleted, body.timeout_ms)
            except RefusedTopicError as refused:
                error, message = refused.error, refused.message
            results.append(DeletableTopicResult(name=name, topic_id=topic_id, error_code=error, error_message=message))
        return DeleteTopicsResponse(responses=tuple(results))

    def _topic_to_delete(self, state: DeleteTopicState, states: tuple[DeleteTopicState, ...]) -> str:
        """Return the name of the topic to delete; raise RefusedTopicError if it is unknown or ambiguous."""
        if not self._controller.active:
            raise RefusedTopicError(ErrorCode.NOT_CONTROLLER)
        if bool(state.name) == (state.topic_id != ZERO_UUID):
            raise RefusedTopicError(
                ErrorCode.INVALID_REQUEST, "The request must have either a topic name or a topic id, not both."
            )
        if states.count(state) > 1:
            raise RefusedTopicError(ErrorCode.INVALID_REQUEST, "The request names this topic more than once.")
        name = state.name or self._cache.name_of(state.topic_id)
        if name is None:
            raise RefusedTopicError(ErrorCode.UNKNOWN_TOPIC_ID)
        if name not in self._cache.topics:
            raise RefusedTopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return name


TOPICS_BY_ID_SINCE = 6
ROOTS = ("/brokers/ids", TOPICS, CONFIGS, DELETE_TOPICS)


def _check_replicas(assignment: Assignment, brokers: list[int], factor: int) -> None:
    """Raise RefusedTopicError unless every partition has `factor` different live brokers."""
    for number, replicas in assignment.items():
        if not replicas or not set(replicas) <= set(brokers) or len(set(replicas)) != len(replicas):
            message = f"The replicas of partition {number} must be different live brokers, not {list(replicas)}."
            raise RefusedTopicError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        if len(replicas) != factor:
            message = (
                f"Partition {number} has {len(replicas)} replicas, but the topic's other partitions have {factor}."
            )
            raise RefusedTopicError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _first_broker(name: str, brokers: int) -> int:
    """Return the index of the first leader, derived from the topic name to spread topics over brokers."""
    return sha256(name.encode()).digest()[0] % max(brokers, 1)
