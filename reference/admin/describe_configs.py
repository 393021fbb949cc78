"""Serve DescribeConfigs (key 32) for topics, for this broker, and for all brokers (KIP-133, KIP-226)."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Final

from highwater.reference.admin.broker_settings import BrokerSetting, broker_settings, default_broker_settings
from highwater.reference.configuration.brokers import BrokerConfigs, Layer
from highwater.reference.configuration.topic_values import SETTINGS
from highwater.reference.configuration.topics import TopicConfigs
from highwater.reference.effects import Request
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.topics import is_legal_name
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
AllConfigs = Callable[[int, str], tuple[DescribeConfigsResourceResult, ...]]
"""Returns all configs of a resource by its type and name."""


class DescribeConfigs:
    """Read-only view of topic and broker configs."""

    def __init__(self, brokers: BrokerConfigs, cache: MetadataCache, configs: TopicConfigs) -> None:
        self._brokers, self._cache, self._configs = brokers, cache, configs

    async def describe(self, request: Request) -> DescribeConfigsResponse:
        """Return the requested configs of each resource, or an error code."""
        body: DescribeConfigsRequest = request.body
        all_configs = cache(partial(self._all_configs, body))  # a request may name a resource thousands of times
        return DescribeConfigsResponse(
            results=tuple(self._describe(resource, all_configs) for resource in body.resources)
        )

    def _describe(self, resource: DescribeConfigsResource, all_configs: AllConfigs) -> DescribeConfigsResult:
        error, names = self._error(resource), resource.configuration_keys and set(resource.configuration_keys)
        configs = () if error else all_configs(resource.resource_type, resource.resource_name)
        return DescribeConfigsResult(
            error_code=error,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=tuple(config for config in configs if not names or config.name in names),
        )

    def _all_configs(
        self, body: DescribeConfigsRequest, resource_type: int, resource_name: str
    ) -> tuple[DescribeConfigsResourceResult, ...]:
        if resource_type == TOPIC_RESOURCE:
            overrides = self._configs.overrides(resource_name)
            return tuple(self._topic_config(name, overrides, body) for name in self._configs.defaults)
        found = broker_settings(self._brokers) if resource_name else default_broker_settings(self._brokers)
        return tuple(_broker_config(name, setting, body) for name, setting in found.items())

    def _error(self, resource: DescribeConfigsResource) -> ErrorCode:
        name = resource.resource_name
        if resource.resource_type == TOPIC_RESOURCE:
            absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
            return ErrorCode.NONE if name in self._cache.topics else absent
        own = str(self._brokers.static.broker_id)
        is_this_broker = resource.resource_type == BROKER_RESOURCE and name in {"", own}
        return ErrorCode.NONE if is_this_broker else ErrorCode.INVALID_REQUEST

    def _topic_config(
        self, name: str, overrides: dict[str, str], body: DescribeConfigsRequest
    ) -> DescribeConfigsResourceResult:
        values = self._configs.synonyms(name, overrides)
        _, (value, source) = values[0]
        return DescribeConfigsResourceResult(
            name=name,
            value=value,
            config_source=source,
            synonyms=_synonyms(values) if body.include_synonyms else (),
            config_type=SETTINGS[name].type,
            documentation=SETTINGS[name].description if body.include_documentation else None,
        )


def _broker_config(name: str, setting: BrokerSetting, body: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    value, source = setting.layers[0]
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=setting.read_only,
        config_source=source,
        synonyms=_synonyms([(name, layer) for layer in setting.layers]) if body.include_synonyms else (),
        config_type=setting.type,
        documentation=setting.documentation if body.include_documentation else None,
    )


def _synonyms(values: Sequence[tuple[str, Layer]]) -> tuple[DescribeConfigsSynonym, ...]:
    return tuple(DescribeConfigsSynonym(name=name, value=value, source=source) for name, (value, source) in values)
