"""Serve AlterConfigs (key 33), which replaces all configs of a topic, and IncrementalAlterConfigs (44, KIP-339).

Broker configs come from the config file and cannot be changed while the broker runs.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial

from highwater.reference.admin.describe_configs import TOPIC_RESOURCE
from highwater.reference.configuration.topic_values import SETTINGS, Type
from highwater.reference.configuration.topics import TopicConfigs, config_path
from highwater.reference.context import from_json, to_json
from highwater.reference.effects import Request
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.store.client import StoreClient
from highwater.reference.topics import RefusedTopicError, Topics
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

Settings = dict[str, str]
LISTS = {name for name, setting in SETTINGS.items() if setting.type is Type.LIST}


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs (Apache Kafka: AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class AlterConfigs:
    """Writes topic configs to the metadata store."""

    def __init__(self, store: StoreClient, cache: MetadataCache, configs: TopicConfigs, topics: Topics) -> None:
        self._store, self._cache, self._configs, self._topics = store, cache, configs, topics

    async def replace(self, request: Request) -> AlterConfigsResponse:
        """Replace all configs of each topic."""
        body: AlterConfigsRequest = request.body
        responses = []
        for resource in body.resources:
            change = partial(_replace_settings, resource.configs)
            error, message = await self._alter(resource, change, body)
            responses.append(
                AlterConfigsResourceResponse(
                    error_code=error,
                    error_message=message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        return AlterConfigsResponse(responses=tuple(responses))

    async def change(self, request: Request) -> IncrementalAlterConfigsResponse:
        """Apply the operations to the configs of each topic."""
        body: IncrementalAlterConfigsRequest = request.body
        responses = []
        for resource in body.resources:
            change = partial(self._change_settings, resource.configs)
            error, message = await self._alter(resource, change, body)
            responses.append(
                IncrementalAlterConfigsResourceResponse(
                    error_code=error,
                    error_message=message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        return IncrementalAlterConfigsResponse(responses=tuple(responses))

    async def _alter(
        self,
        resource: AlterConfigsResource | IncrementalAlterConfigsResource,
        change: Callable[[Settings], Settings],
        body: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    ) -> tuple[ErrorCode, str | None]:
        """Change one topic and return error code and message; retry if a concurrent change was written first."""
        topic = resource.resource_name
        try:
            if resource.resource_type != TOPIC_RESOURCE:
                raise RefusedTopicError(ErrorCode.INVALID_REQUEST, "Only topic configs can be altered.")
            requested = [(entry.resource_type, entry.resource_name) for entry in body.resources]
            if requested.count((TOPIC_RESOURCE, topic)) > 1:
                raise RefusedTopicError(ErrorCode.INVALID_REQUEST, "The request names this topic more than once.")
            if topic not in self._cache.topics:
                raise RefusedTopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            while True:
                stored = await self._store.get(config_path(topic))
                if stored.error or stored.stat is None:
                    raise RefusedTopicError(ErrorCode.UNKNOWN_SERVER_ERROR, "The metadata store is not available.")
                settings = change(from_json(stored.data) if stored.data else {})
                self._topics.check_settings(settings)
                if body.validate_only:
                    return ErrorCode.NONE, None
                reply = await self._store.set(config_path(topic), to_json(settings), stored.stat.version)
                if reply.error != "BadVersion":
                    break
            if reply.error:
                raise RefusedTopicError(ErrorCode.UNKNOWN_SERVER_ERROR, "The metadata store is not available.")
            await self._configs.refresh(self._store, topic)
        except RefusedTopicError as rejection:
            return rejection.error, rejection.message
        return ErrorCode.NONE, None

    def _change_settings(self, configs: Sequence[IncrementalAlterableConfig], before: Settings) -> Settings:
        after = dict(before)
        _check_unique([config.name for config in configs])
        for config in configs:
            if config.name not in self._configs.defaults:
                raise RefusedTopicError(ErrorCode.INVALID_CONFIG, f"The topic config {config.name} is unknown.")
            if config.config_operation == Operation.DELETE:
                after.pop(config.name, None)
            elif config.config_operation == Operation.SET:
                after[config.name] = _required_value(config)
            else:
                current = after.get(config.name, self._configs.defaults[config.name])
                after[config.name] = _edit_list(config, [value for value in current.split(",") if value])
        return after


def _replace_settings(configs: Sequence[AlterableConfig], before: Settings) -> Settings:
    _check_unique([config.name for config in configs])
    return {config.name: _required_value(config) for config in configs}


def _check_unique(names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise RefusedTopicError(ErrorCode.INVALID_REQUEST, "The request names a config more than once.")


def _required_value(config: AlterableConfig | IncrementalAlterableConfig) -> str:
    if config.value is None:
        raise RefusedTopicError(ErrorCode.INVALID_REQUEST, f"The config {config.name} has no value.")
    return config.value


def _edit_list(config: IncrementalAlterableConfig, current: list[str]) -> str:
    """Return the list value after APPEND or SUBTRACT."""
    if config.name not in LISTS or config.config_operation not in set(Operation):
        message = f"Operation {config.config_operation} is not supported for the config {config.name}."
        raise RefusedTopicError(ErrorCode.INVALID_CONFIG, message)
    values = _required_value(config).split(",")
    if config.config_operation == Operation.SUBTRACT:
        return ",".join(value for value in current if value not in values)
    return ",".join([*current, *(value for value in values if value not in current)])
