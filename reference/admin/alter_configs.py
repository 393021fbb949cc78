"""Serve AlterConfigs (key 33), which replaces all configs of a resource, and IncrementalAlterConfigs (44, KIP-339).

A resource is a topic, this broker, or all brokers (an empty name, KIP-226). As in Apache Kafka with ZooKeeper, any
broker alters topics and the settings of all brokers, but only the broker itself its own. One difference: a broker
setting that is unknown is refused, where Apache Kafka stores it for plug-ins, of which this broker has none.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from highwater.reference.admin.broker_settings import broker_settings
from highwater.reference.admin.describe_configs import BROKER_RESOURCE, TOPIC_RESOURCE
from highwater.reference.configuration.broker_values import DYNAMIC
from highwater.reference.configuration.brokers import BrokerConfigs, broker_config_path
from highwater.reference.configuration.topic_values import SETTINGS, Setting, Type, is_integer
from highwater.reference.configuration.topics import TopicConfigs, config_path
from highwater.reference.context import from_json, to_json
from highwater.reference.effects import Request
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.refusals import RefusedRequestError
from highwater.reference.store.client import StoreClient
from highwater.reference.store.messages import Create, SetData, StoreReply
from highwater.reference.topics import Topics, is_legal_name, repeated
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


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs (Apache Kafka: AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource that can be altered: its node in the store, and its rules.

    `setting` returns the definition of a setting, and `check` accepts the stored settings after the change; both raise
    RefusedRequestError. `defaults` has the value that APPEND extends if none is stored. `refresh` reads the node again.
    """

    path: str
    setting: Callable[[str], Setting]
    check: Callable[[Settings], None]
    defaults: Mapping[str, str]
    refresh: Callable[[], Awaitable[object]]


class AlterConfigs:
    """Writes the configs of topics and brokers to the metadata store."""

    def __init__(
        self,
        store: StoreClient,
        cache: MetadataCache,
        configs: TopicConfigs,
        brokers: BrokerConfigs,
        topics: Topics,
        apply: Callable[[], None],
    ) -> None:
        self._store, self._cache, self._configs, self._brokers, self._topics = store, cache, configs, brokers, topics
        self._apply = apply  # called after a change, so that it is in effect when the response arrives
        self._read_only = broker_settings(brokers).keys() - DYNAMIC.keys()
        self._resources = {TOPIC_RESOURCE: self._topic, BROKER_RESOURCE: self._broker}

    async def replace(self, request: Request) -> AlterConfigsResponse:
        """Replace all configs of each resource."""
        body: AlterConfigsRequest = request.body
        responses, twice = [], _named_twice(body.resources)
        for resource in body.resources:
            change = partial(_replace_settings, resource.configs)
            error, message = await self._alter(resource, change, twice, validate_only=body.validate_only)
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
        """Apply the operations to the configs of each resource."""
        body: IncrementalAlterConfigsRequest = request.body
        responses, twice = [], _named_twice(body.resources)
        for resource in body.resources:
            change = partial(_change_settings, resource.configs)
            error, message = await self._alter(resource, change, twice, validate_only=body.validate_only)
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
        requested: AlterConfigsResource | IncrementalAlterConfigsResource,
        change: Callable[[Resource, Settings], Settings],
        twice: set[tuple[int, str]],
        *,
        validate_only: bool,
    ) -> tuple[ErrorCode, str | None]:
        """Change one resource and return error code and message."""
        kind, name = requested.resource_type, requested.resource_name
        try:
            if kind not in self._resources:
                message = f"The configs of a resource of type {kind} cannot be altered."
                raise RefusedRequestError(ErrorCode.INVALID_REQUEST, message)
            if (kind, name) in twice:
                raise RefusedRequestError(ErrorCode.INVALID_REQUEST, "The request names this resource more than once.")
            resource = self._resources[kind](name)
            await self._write(resource, change, validate_only=validate_only)
        except RefusedRequestError as rejection:
            return rejection.error, rejection.message
        return ErrorCode.NONE, None

    async def _write(
        self, resource: Resource, change: Callable[[Resource, Settings], Settings], *, validate_only: bool
    ) -> None:
        """Write the changed settings; retry if a concurrent change was written first."""
        error = "BadVersion"
        while error in {"BadVersion", "NodeExists"}:
            stored = await self._store.get(resource.path)
            if stored.error not in {"", "NoNode"}:
                raise _store_lost()
            settings = change(resource, from_json(stored.data) if stored.data else {})
            resource.check(settings)
            if validate_only:
                return
            error = (await self._store.call(_node(resource.path, settings, stored))).error
        if error:
            raise _store_lost()
        await resource.refresh()
        self._apply()

    # -- resources ---------------------------------------------------------------------------------

    def _topic(self, topic: str) -> Resource:
        if not topic:
            raise RefusedRequestError(ErrorCode.INVALID_REQUEST, "There are no configs for all topics.")
        if not is_legal_name(topic):
            raise RefusedRequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"The topic name {topic!r} is not legal.")
        if topic not in self._cache.topics:
            raise RefusedRequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return Resource(
            config_path(topic),
            _topic_setting,
            self._topics.check_settings,
            self._configs.defaults,
            partial(self._configs.refresh, self._store, topic),
        )

    def _broker(self, name: str) -> Resource:
        own = str(self._brokers.static.broker_id)
        if name and not is_integer(name):
            message = f"The name of a broker is its id, a number, not {name!r}; an empty name means all brokers."
            raise RefusedRequestError(ErrorCode.INVALID_REQUEST, message)
        if name not in {"", own}:
            message = f"Only broker {name} can alter its settings; this is broker {own}."
            raise RefusedRequestError(ErrorCode.INVALID_REQUEST, message)
        return Resource(
            broker_config_path(name),
            self._broker_setting,
            self._check_broker,
            {setting_name: setting.default for setting_name, setting in DYNAMIC.items()},
            partial(self._brokers.load, self._store),
        )

    def _broker_setting(self, name: str) -> Setting:
        if name in self._read_only:
            message = f"The broker config {name} is read-only: change it in the config file and restart the broker."
            raise RefusedRequestError(ErrorCode.INVALID_REQUEST, message)
        if name not in DYNAMIC:
            raise RefusedRequestError(ErrorCode.INVALID_CONFIG, f"The broker config {name} is unknown.")
        return DYNAMIC[name]

    def _check_broker(self, settings: Settings) -> None:
        """Raise RefusedRequestError; an invalid value is INVALID_REQUEST, but not of a topic (ConfigAdminManager)."""
        for name, value in settings.items():
            allowed = self._broker_setting(name).allowed
            if not self._broker_setting(name).is_valid(value):
                message = f"The broker config {name} cannot have the value {value!r}. The value must be {allowed.text}."
                raise RefusedRequestError(ErrorCode.INVALID_REQUEST, message)


def _named_twice(resources: Sequence[AlterConfigsResource | IncrementalAlterConfigsResource]) -> set[tuple[int, str]]:
    return repeated((resource.resource_type, resource.resource_name) for resource in resources)


def _topic_setting(name: str) -> Setting:
    if name not in SETTINGS:
        raise RefusedRequestError(ErrorCode.INVALID_CONFIG, f"The topic config {name} is unknown.")
    return SETTINGS[name]


def _node(path: str, settings: Settings, stored: StoreReply) -> Create | SetData:
    """Return the operation that writes the settings if the node is still as it was read."""
    data = to_json(settings)
    return Create(path, data) if stored.stat is None else SetData(path, data, stored.stat.version)


def _store_lost() -> RefusedRequestError:
    return RefusedRequestError(ErrorCode.UNKNOWN_SERVER_ERROR, "The metadata store is not available.")


def _change_settings(configs: Sequence[IncrementalAlterableConfig], resource: Resource, before: Settings) -> Settings:
    after = dict(before)
    _check_unique([config.name for config in configs])
    if unknown := {config.config_operation for config in configs} - set(Operation):
        raise RefusedRequestError(ErrorCode.INVALID_REQUEST, f"There are no operations {sorted(unknown)}.")
    for config in configs:
        if config.config_operation == Operation.DELETE:  # of any name, so that an invalid stored one can be removed
            after.pop(config.name, None)
        elif config.config_operation == Operation.SET:
            after[config.name] = _required_value(config)
        else:
            current = after.get(config.name, resource.defaults.get(config.name, ""))
            after[config.name] = _edit_list(config, resource, [value for value in current.split(",") if value])
    return after


def _replace_settings(configs: Sequence[AlterableConfig], resource: Resource, before: Settings) -> Settings:
    _check_unique([config.name for config in configs])
    return {config.name: _required_value(config) for config in configs}


def _check_unique(names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise RefusedRequestError(ErrorCode.INVALID_REQUEST, "The request names a config more than once.")


def _required_value(config: AlterableConfig | IncrementalAlterableConfig) -> str:
    if config.value is None:
        raise RefusedRequestError(ErrorCode.INVALID_REQUEST, f"The config {config.name} has no value.")
    return config.value


def _edit_list(config: IncrementalAlterableConfig, resource: Resource, current: list[str]) -> str:
    """Return the list value after APPEND or SUBTRACT."""
    if resource.setting(config.name).type is not Type.LIST:
        message = f"Operation {config.config_operation} is not supported for the config {config.name}."
        raise RefusedRequestError(ErrorCode.INVALID_CONFIG, message)
    values = _required_value(config).split(",")
    if config.config_operation == Operation.SUBTRACT:
        return ",".join(value for value in current if value not in values)
    return ",".join([*current, *(value for value in dict.fromkeys(values) if value not in current)])
