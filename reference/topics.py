"""Handlers of CreateTopics (19), DeleteTopics (20) and CreatePartitions (37), and automatic topic creation.

The handlers write to the metadata store; the controller reacts to the watch event.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import TypeVar

from highwater.reference.configuration.brokers import ROOT as BROKER_CONFIGS
from highwater.reference.configuration.topic_values import SETTINGS
from highwater.reference.configuration.topics import ROOT as CONFIGS
from highwater.reference.configuration.topics import TopicConfigs, config_path, parsed
from highwater.reference.context import Context, from_json, to_json
from highwater.reference.controller.cluster import DELETE_TOPICS, TOPICS, parse_topic
from highwater.reference.controller.controller import Controller
from highwater.reference.controller.topic_changes import Assignment, assign_replicas
from highwater.reference.effects import Request
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.procedures import Countdown, Pending, start_procedure
from highwater.reference.refusals import RefusedRequestError
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
METADATA_TOPIC = "__cluster_metadata"
MAX_PARTITIONS = 10_000


Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that can be created; `settings` are those that differ from the broker's."""

    name: str
    topic_id: bytes
    assignment: Assignment
    settings: dict[str, str]


def timed_out(what: str) -> RefusedRequestError:
    return RefusedRequestError(ErrorCode.REQUEST_TIMED_OUT, f"The topic is still being {what}.")


def store_lost() -> RefusedRequestError:
    message = "The metadata store did not confirm the write, which may still take effect."
    return RefusedRequestError(ErrorCode.UNKNOWN_SERVER_ERROR, message)


def is_legal_name(name: str) -> bool:
    return bool(LEGAL_NAME.fullmatch(name)) and name not in {".", ".."}


def _check_name(name: str, existing: Mapping[str, str]) -> None:
    """Raise RefusedRequestError if no topic may have the name, or if its metrics would be those of another topic."""
    if not is_legal_name(name):
        raise RefusedRequestError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "The topic name is not legal: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', but not '.' or '..'.",
        )
    other = existing.get(name.replace(".", "_"), name)
    if other != name:
        message = f"The topic {name} would have the same metrics as {other}: '.' and '_' are one there."
        raise RefusedRequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)


def repeated(keys: Iterable[Key]) -> set[Key]:
    """Return the keys that occur more than once; a request may have so many that each may be looked at only once."""
    return {key for key, times in Counter(keys).items() if times > 1}


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
        """Create all topics of the request at once, and wait until every live broker knows their leaders.

        A topic that is not there when the request's time is over gets REQUEST_TIMED_OUT; its creation goes on.
        """
        body: CreateTopicsRequest = request.body
        names = [topic.name for topic in body.topics]
        twice = repeated(names)
        existing = self._metric_names()
        is_too_large = sum(map(self._count_partitions, body.topics)) > MAX_PARTITIONS
        planned: dict[str, NewTopic] = {}
        refused: dict[str, RefusedRequestError] = {}
        for topic in body.topics:
            try:
                if not self._controller.active:
                    raise RefusedRequestError(ErrorCode.NOT_CONTROLLER)
                if topic.name in twice:
                    raise RefusedRequestError(ErrorCode.INVALID_REQUEST, "The request names this topic more than once.")
                if topic.name == METADATA_TOPIC:
                    raise RefusedRequestError(ErrorCode.INVALID_REQUEST, "This topic is the controllers' own.")
                if is_too_large:
                    message = f"A request creates at most {MAX_PARTITIONS} partitions."
                    raise RefusedRequestError(ErrorCode.POLICY_VIOLATION, message)
                planned[topic.name] = self._plan(topic, existing)
            except RefusedRequestError as error:
                refused[topic.name] = error
        if not body.validate_only:
            refused |= await self._create_all(planned, body.timeout_ms)
        configs = cache(self._created_configs)  # most topics of a request have the same settings
        return CreateTopicsResponse(
            topics=tuple(
                CreatableTopicResult(name=name, error_code=refused[name].error, error_message=refused[name].message)
                if name in refused
                else self._result(planned[name], configs(tuple(sorted(planned[name].settings.items()))))
                for name in dict.fromkeys(names)
            )
        )

    def _metric_names(self) -> dict[str, str]:
        """Return the topics that exist, by their name in metrics, where '.' and '_' are one (Topic.hasCollision)."""
        return {name.replace(".", "_"): name for name in self._cache.topics}

    def _count_partitions(self, topic: CreatableTopic) -> int:
        counted = self._context.config.num_partitions if topic.num_partitions == -1 else topic.num_partitions
        return len(topic.assignments) or max(counted, 0)

    def _plan(self, topic: CreatableTopic, existing: Mapping[str, str]) -> NewTopic:
        """Return the topic to create; raise RefusedRequestError if it cannot be. `existing`: see `_metric_names`.

        The checks have the order of Apache Kafka (ReplicationControlManager.createTopics).
        """
        _check_name(topic.name, existing)
        if topic.name in self._cache.topics:
            raise RefusedRequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"The topic {topic.name} already exists.")
        settings = {config.name: config.value for config in topic.configs if config.value is not None}
        if any(config.value is None for config in topic.configs):
            message = "The request names a config without a value."
            raise RefusedRequestError(ErrorCode.INVALID_CONFIG, message)
        self.check_settings(settings)
        return NewTopic(topic.name, self._topic_id(topic.name), self._assignment(topic), settings)

    async def _create_all(self, planned: Mapping[str, NewTopic], wait_ms: int) -> dict[str, RefusedRequestError]:
        """Write the topics to the store, all at once, and wait; return those that are not there, with the reason."""
        online = {name: self._controller.when_online(name, len(topic.assignment)) for name, topic in planned.items()}
        writes = {name: start_procedure(self._write, topic) for name, topic in planned.items()}
        errors = {name: await write for name, write in writes.items()}
        refused = {name: RefusedRequestError(error) for name, error in errors.items() if error is not ErrorCode.NONE}
        late = await self._still_open({name: online[name] for name in planned if name not in refused}, wait_ms)
        return refused | {name: timed_out("created") for name in late}

    def _result(self, topic: NewTopic, configs: tuple[CreatableTopicConfigs, ...]) -> CreatableTopicResult:
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic.topic_id,
            error_message=None,
            num_partitions=len(topic.assignment),
            replication_factor=len(topic.assignment[0]),
            configs=configs,
        )

    def _created_configs(self, settings: Sequence[tuple[str, str]]) -> tuple[CreatableTopicConfigs, ...]:
        """Return all configs of a topic with these settings of its own."""
        own = parsed(dict(settings))
        return tuple(
            CreatableTopicConfigs(name=name, value=found.value, config_source=found.source)
            for name in SETTINGS
            for _, found in self._configs.synonyms(name, own)[:1]
        )

    async def _still_open(self, pending: Mapping[str, Pending[None]], wait_ms: int) -> list[str]:
        """Wait for all of `pending`, but at most `wait_ms`, the time of the request; return which are not resolved."""
        over: Pending[None] = Pending()
        ticket = self._purgatory.park(max(wait_ms, 0), lambda: over.resolve(None))
        remaining = Countdown(len(pending))
        for each in pending.values():
            each.add_done_callback(remaining.count_down)
        remaining.pending.add_done_callback(lambda: over.resolve(None))
        await over
        self._purgatory.finish(ticket)
        return [name for name, each in pending.items() if not each.done]

    def check_settings(self, settings: Mapping[str, str]) -> None:
        """Raise RefusedRequestError for an unknown setting, an invalid value, or values that exclude each other."""
        for name, value in settings.items():
            if name not in SETTINGS:
                raise RefusedRequestError(ErrorCode.INVALID_CONFIG, f"The topic config {name} is unknown.")
            if not SETTINGS[name].is_valid(value):
                allowed = SETTINGS[name].allowed.text
                message = f"The topic config {name} cannot have the value {value!r}. The value must be {allowed}."
                raise RefusedRequestError(ErrorCode.INVALID_CONFIG, message)
        effective = self._configs.defaults | parsed(dict(settings))
        if int(effective["min.compaction.lag.ms"]) > int(effective["max.compaction.lag.ms"]):
            message = "min.compaction.lag.ms must not be larger than max.compaction.lag.ms."
            raise RefusedRequestError(ErrorCode.INVALID_CONFIG, message)

    def _topic_id(self, name: str) -> bytes:
        """Return a unique id of 16 bytes without randomness: a hash of cluster, broker, broker epoch, name and time."""
        context = self._context
        seed = f"{context.config.cluster_id}:{context.broker_id}:{context.broker_epoch}:{name}:{context.now.wall_ms}"
        return sha256(seed.encode()).digest()[:16]

    def _assignment(self, topic: CreatableTopic) -> Assignment:
        brokers = sorted(self._cache.brokers)
        if topic.assignments:
            if topic.num_partitions != -1 or topic.replication_factor != -1:
                raise RefusedRequestError(
                    ErrorCode.INVALID_REQUEST, "The request must have either counts or an assignment, not both."
                )
            return self._manual([(a.partition_index, tuple(a.broker_ids)) for a in topic.assignments], brokers)
        config = self._context.config
        partitions = config.num_partitions if topic.num_partitions == -1 else topic.num_partitions
        factor = config.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
        if partitions <= 0 < factor:  # a factor of 0 or less is reported first
            raise RefusedRequestError(
                ErrorCode.INVALID_PARTITIONS, f"A topic has 1 to {MAX_PARTITIONS} partitions, not {partitions}."
            )
        if not 0 < factor <= len(brokers):
            raise RefusedRequestError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor must be 1 to {len(brokers)}, the number of live brokers, not {factor}.",
            )
        return assign_replicas(self._cache.racks, partitions, factor, start=_first_broker(topic.name, len(brokers)))

    def _manual(self, requested: Sequence[tuple[int, tuple[int, ...]]], brokers: list[int]) -> Assignment:
        assignment = dict(requested)
        if sorted(number for number, _ in requested) != list(range(len(requested))):
            raise RefusedRequestError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partition numbers must start at 0, without gaps or repetitions."
            )
        _check_replicas(assignment, brokers, len(assignment[0]))
        return dict(sorted(assignment.items()))

    async def _write(self, topic: NewTopic) -> ErrorCode:
        """Write a new topic to the store; return an error code.

        The settings are written with it and before it, so that a broker that sees the topic finds them, and that those
        of a topic that another request has created stay. A topic under deletion still exists.
        """
        if not (await self._store.get(f"{DELETE_TOPICS}/{topic.name}")).error:
            return ErrorCode.TOPIC_ALREADY_EXISTS
        config = config_path(topic.name)
        content = {"version": 3, "topic_id": topic.topic_id.hex(), "partitions": topic.assignment}
        self._store.call(Create(config))  # it may exist
        reply = await self._store.multi(
            SetData(config, to_json(topic.settings)), Create(f"{TOPICS}/{topic.name}", to_json(content))
        )
        if reply.error == "NodeExists":
            return ErrorCode.TOPIC_ALREADY_EXISTS
        return ErrorCode.UNKNOWN_SERVER_ERROR if reply.error else ErrorCode.NONE

    async def create_automatically(self, name: str) -> None:
        """Create a missing topic for Metadata or FindCoordinator, with the default number of partitions."""
        try:
            _check_name(name, self._metric_names())
        except RefusedRequestError:
            return
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
            await self._write(NewTopic(name, self._topic_id(name), assignment, INTERNAL_TOPICS.get(name, {})))

    # -- create partitions -----------------------------------------------------------------------

    async def create_partitions(self, request: Request) -> CreatePartitionsResponse:
        """Add partitions to topics, one topic after the other, and wait until every live broker knows their leaders."""
        body: CreatePartitionsRequest = request.body
        twice = repeated(topic.name for topic in body.topics)
        results = []
        for topic in {topic.name: topic for topic in body.topics}.values():
            error, message = ErrorCode.NONE, None
            try:
                if topic.name in twice:
                    raise RefusedRequestError(ErrorCode.INVALID_REQUEST, "The request names this topic more than once.")
                await self._add_partitions(topic, validate_only=body.validate_only, wait_ms=body.timeout_ms)
            except RefusedRequestError as refused:
                error, message = refused.error, refused.message
            results.append(CreatePartitionsTopicResult(name=topic.name, error_code=error, error_message=message))
        return CreatePartitionsResponse(results=tuple(results))

    async def _add_partitions(self, topic: CreatePartitionsTopic, *, validate_only: bool, wait_ms: int) -> None:
        """Write the larger assignment, on condition that the topic is as it was read; else read it again."""
        path = f"{TOPICS}/{topic.name}"
        online: Pending[None] | None = None
        while True:
            if not self._controller.active:
                raise RefusedRequestError(ErrorCode.NOT_CONTROLLER)
            found = await self._store.get(path)
            if found.error or found.stat is None:
                raise RefusedRequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            info = parse_topic(found.data)
            if info.adding or info.removing:  # the number of replicas is not that of the topic meanwhile
                raise RefusedRequestError(
                    ErrorCode.REASSIGNMENT_IN_PROGRESS, "A partition of the topic is being reassigned."
                )
            existing = info.assignment
            changed = {**from_json(found.data), "partitions": {**existing, **self._more_partitions(topic, existing)}}
            if validate_only:
                return
            online = online or self._controller.when_online(topic.name, topic.count)
            written = await self._store.call(SetData(path, to_json(changed), found.stat.version))
            if written.error != "BadVersion":
                break
        if written.error:
            raise store_lost()
        if await self._still_open({topic.name: online}, wait_ms):
            raise timed_out("extended")

    def _more_partitions(self, topic: CreatePartitionsTopic, existing: Assignment) -> Assignment:
        """Return the replicas of the new partitions; raise RefusedRequestError if there is none, or one is invalid."""
        more = topic.count - len(existing)
        if topic.count > MAX_PARTITIONS:
            raise RefusedRequestError(ErrorCode.INVALID_PARTITIONS, f"A topic has at most {MAX_PARTITIONS} partitions.")
        if more <= 0:
            raise RefusedRequestError(
                ErrorCode.INVALID_PARTITIONS, f"The topic already has {len(existing)} partitions."
            )
        brokers = sorted(self._cache.brokers)
        if topic.assignments is None:
            factor = len(existing[0])
            if factor > len(brokers):
                message = f"{factor} replicas need as many live brokers; there are {len(brokers)}."
                raise RefusedRequestError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
            start = _first_broker(topic.name, len(brokers))
            return assign_replicas(self._cache.racks, more, factor, start, first_partition=len(existing))
        added = {len(existing) + slot: tuple(a.broker_ids) for slot, a in enumerate(topic.assignments)}
        if len(added) != more:
            message = f"The request adds {more} partitions, but has {len(added)} assignments."
            raise RefusedRequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        _check_replicas(added, brokers, len(existing[0]))
        return added

    # -- delete ----------------------------------------------------------------------------------

    async def delete(self, request: Request) -> DeleteTopicsResponse:
        """Ask for the deletion of all topics of the request at once, and wait until their replicas are gone.

        A topic that is still there when the request's time is over gets REQUEST_TIMED_OUT; its deletion goes on.
        """
        body: DeleteTopicsRequest = request.body
        by_id = request.api_version >= TOPICS_BY_ID_SINCE
        states = body.topics if by_id else tuple(DeleteTopicState(name=name) for name in body.topic_names)
        names: dict[DeleteTopicState, str] = {}
        refused: dict[DeleteTopicState, RefusedRequestError] = {}
        answered, times = self._answered(states), Counter(states)
        for state in answered:
            try:
                names[state] = self._topic_to_delete(state, times)
            except RefusedRequestError as error:
                refused[state] = error
        topic_ids = {name: self._cache.topics[name].topic_id for name in names.values()}
        late = await self._delete_all(topic_ids, body.timeout_ms)
        refused |= {state: late[name] for state, name in names.items() if name in late}
        return DeleteTopicsResponse(
            responses=tuple(
                DeletableTopicResult(
                    name=names.get(state, state.name),
                    topic_id=topic_ids.get(names.get(state, ""), state.topic_id),
                    error_code=refused[state].error if state in refused else ErrorCode.NONE,
                    error_message=refused[state].message if state in refused else None,
                )
                for state in answered
            )
        )

    def _answered(self, states: tuple[DeleteTopicState, ...]) -> list[DeleteTopicState]:
        """Return the states with a response: each topic once, even if it is named twice, and all ambiguous states."""
        names = {state.name for state in states if state.name is not None}
        first = {state: number for number, state in reversed(list(enumerate(states)))}
        return [
            state
            for number, state in enumerate(states)
            if _is_ambiguous(state)
            or (first[state] == number and not (state.name is None and self._named(state) in names))
        ]

    def _named(self, state: DeleteTopicState) -> str | None:
        return self._cache.name_of(state.topic_id) if state.name is None else state.name

    async def _delete_all(self, names: Iterable[str], wait_ms: int) -> dict[str, RefusedRequestError]:
        """Ask the controller to delete the topics, and wait; return those that are still there, with the reason."""
        deleted = {name: self._controller.when_deleted(name) for name in names}
        writes = {name: start_procedure(self._store.ensure, f"{DELETE_TOPICS}/{name}") for name in deleted}
        lost = {name: store_lost() for name, write in writes.items() if not await write}
        late = await self._still_open({name: deleted[name] for name in deleted if name not in lost}, wait_ms)
        return lost | {name: timed_out("deleted") for name in late}

    def _topic_to_delete(self, state: DeleteTopicState, times: Mapping[DeleteTopicState, int]) -> str:
        """Return the name of the topic to delete; raise RefusedRequestError if it is unknown or ambiguous."""
        if not self._controller.active:
            raise RefusedRequestError(ErrorCode.NOT_CONTROLLER)
        if _is_ambiguous(state):
            raise RefusedRequestError(
                ErrorCode.INVALID_REQUEST, "The request must have either a topic name or a topic id, not both."
            )
        name = self._named(state)
        known = self._cache.topics.get(name or "")
        if times[state] > 1 or (known and state.name and DeleteTopicState(topic_id=known.topic_id) in times):
            raise RefusedRequestError(ErrorCode.INVALID_REQUEST, "The request names this topic more than once.")
        if name is None:
            raise RefusedRequestError(ErrorCode.UNKNOWN_TOPIC_ID)
        if known is None:
            raise RefusedRequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return name


def _is_ambiguous(state: DeleteTopicState) -> bool:
    """Return whether a state has both a name and an id, or neither; an empty name is a name."""
    return (state.name is not None) == (state.topic_id != ZERO_UUID)


TOPICS_BY_ID_SINCE = 6
ROOTS = ("/brokers/ids", TOPICS, CONFIGS, BROKER_CONFIGS, DELETE_TOPICS)


def _check_replicas(assignment: Assignment, brokers: list[int], factor: int) -> None:
    """Raise RefusedRequestError unless every partition has `factor` different live brokers."""
    for number, replicas in assignment.items():
        if not replicas or not set(replicas) <= set(brokers) or len(set(replicas)) != len(replicas):
            message = f"The replicas of partition {number} must be different live brokers, not {list(replicas)}."
            raise RefusedRequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        if len(replicas) != factor:
            message = (
                f"Partition {number} has {len(replicas)} replicas, but the topic's other partitions have {factor}."
            )
            raise RefusedRequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _first_broker(name: str, brokers: int) -> int:
    """Return the index of the first leader, derived from the topic name to spread topics over brokers."""
    return sha256(name.encode()).digest()[0] % max(brokers, 1)
