"""AlterConfigs (key 33) replaces all settings of a topic, IncrementalAlterConfigs (44) changes some (KIP-339).

Settings of brokers stand in their config files and are not changed while they run.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial

from reference.admin.describe_configs import TOPIC_RESOURCE
from reference.context import from_json, to_json
from reference.events import Request
from reference.metadata_cache import MetadataCache
from reference.store_client import StoreClient
from reference.topic_configs import TopicConfigs, config_path
from reference.topics import RefusedTopicError, Topics
from reference.wire.errors import ErrorCode
from reference.wire.messages import alter_configs as whole
from reference.wire.messages import incremental_alter_configs as incremental

Settings = dict[str, str]
LISTS = {"cleanup.policy"}


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class AlterConfigs:
    def __init__(self, store: StoreClient, cache: MetadataCache, configs: TopicConfigs, topics: Topics) -> None:
        self._store, self._cache, self._configs, self._topics = store, cache, configs, topics

    async def replace(self, request: Request) -> whole.AlterConfigsResponse:
        body: whole.AlterConfigsRequest = request.body
        responses = []
        for resource in body.resources:
            change = partial(_replaced, resource.configs)
            error, message = await self._alter(resource, change, body)
            responses.append(
                whole.AlterConfigsResourceResponse(
                    error_code=error,
                    error_message=message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        return whole.AlterConfigsResponse(responses=tuple(responses))

    async def change(self, request: Request) -> incremental.IncrementalAlterConfigsResponse:
        body: incremental.IncrementalAlterConfigsRequest = request.body
        responses = []
        for resource in body.resources:
            change = partial(self._changed, resource.configs)
            error, message = await self._alter(resource, change, body)
            responses.append(
                incremental.AlterConfigsResourceResponse(
                    error_code=error,
                    error_message=message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        return incremental.IncrementalAlterConfigsResponse(responses=tuple(responses))

    async def _alter(
        self,
        resource: whole.AlterConfigsResource | incremental.AlterConfigsResource,
        change: Callable[[Settings], Settings],
        body: whole.AlterConfigsRequest | incremental.IncrementalAlterConfigsRequest,
    ) -> tuple[ErrorCode, str | None]:
        """Error code and message; another change that came between is not lost."""
        topic = resource.resource_name
        try:
            if resource.resource_type != TOPIC_RESOURCE:
                raise RefusedTopicError(ErrorCode.INVALID_REQUEST, "only settings of topics can be changed")
            named = [(each.resource_type, each.resource_name) for each in body.resources]
            if named.count((TOPIC_RESOURCE, topic)) > 1:
                raise RefusedTopicError(ErrorCode.INVALID_REQUEST, "the topic is named more than once")
            if topic not in self._cache.topics:
                raise RefusedTopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            while True:
                found = await self._store.get(config_path(topic))
                if found.error or found.stat is None:
                    raise RefusedTopicError(ErrorCode.UNKNOWN_SERVER_ERROR, "the metadata store does not answer")
                settings = change(from_json(found.data) if found.data else {})
                self._topics.check_settings(settings)
                if body.validate_only:
                    return ErrorCode.NONE, None
                reply = await self._store.set(config_path(topic), to_json(settings), found.stat.version)
                if reply.error != "BadVersion":
                    break
            if reply.error:
                raise RefusedTopicError(ErrorCode.UNKNOWN_SERVER_ERROR, "the metadata store does not answer")
            await self._configs.refresh(self._store, topic)
        except RefusedTopicError as refused:
            return refused.error, refused.message
        return ErrorCode.NONE, None

    def _changed(self, configs: Sequence[incremental.AlterableConfig], before: Settings) -> Settings:
        after = dict(before)
        _check_clear([config.name for config in configs])
        for config in configs:
            if config.name not in self._configs.defaults:
                raise RefusedTopicError(ErrorCode.INVALID_CONFIG, f"unknown topic config {config.name}")
            if config.config_operation == Operation.DELETE:
                after.pop(config.name, None)
            elif config.config_operation == Operation.SET:
                after[config.name] = _given(config)
            else:
                current = after.get(config.name, self._configs.defaults[config.name])
                after[config.name] = _edited(config, [each for each in current.split(",") if each])
        return after


def _replaced(configs: Sequence[whole.AlterableConfig], before: Settings) -> Settings:
    _check_clear([config.name for config in configs])
    return {config.name: _given(config) for config in configs}


def _check_clear(names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise RefusedTopicError(ErrorCode.INVALID_REQUEST, "a setting is named more than once")


def _given(config: whole.AlterableConfig | incremental.AlterableConfig) -> str:
    if config.value is None:
        raise RefusedTopicError(ErrorCode.INVALID_REQUEST, f"{config.name} is given no value")
    return config.value


def _edited(config: incremental.AlterableConfig, current: list[str]) -> str:
    """A list with elements appended or taken out."""
    if config.name not in LISTS or config.config_operation not in set(Operation):
        raise RefusedTopicError(ErrorCode.INVALID_CONFIG, f"operation {config.config_operation} on {config.name}")
    given = _given(config).split(",")
    if config.config_operation == Operation.SUBTRACT:
        return ",".join(each for each in current if each not in given)
    return ",".join([*current, *(each for each in given if each not in current)])
