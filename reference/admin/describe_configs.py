"""Serve DescribeConfigs (key 32) for topics and for this broker (KIP-133, KIP-226)."""

from collections.abc import Iterator
from typing import Final

from highwater.reference.admin.broker_settings import BrokerSetting, broker_settings
from highwater.reference.configuration.broker import BrokerConfig
from highwater.reference.configuration.topic_values import SETTINGS
from highwater.reference.configuration.topics import TopicConfigs
from highwater.reference.effects import Request
from highwater.reference.metadata_cache import MetadataCache
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
TOPIC_SOURCE: Final = 1
STATIC_SOURCE: Final = 4
DEFAULT_SOURCE: Final = 5


class DescribeConfigs:
    """Read-only view of topic and broker configs."""

    def __init__(self, config: BrokerConfig, cache: MetadataCache, configs: TopicConfigs) -> None:
        self._broker_id, self._cache, self._configs = config.broker_id, cache, configs
        self._broker_settings = broker_settings(config)

    async def describe(self, request: Request) -> DescribeConfigsResponse:
        """Return the requested configs of each resource, or an error code."""
        body: DescribeConfigsRequest = request.body
        return DescribeConfigsResponse(results=tuple(self._describe(resource, body) for resource in body.resources))

    def _describe(self, resource: DescribeConfigsResource, body: DescribeConfigsRequest) -> DescribeConfigsResult:
        error, names = self._error(resource), resource.configuration_keys
        configs = () if error else self._resource_configs(resource, body)
        return DescribeConfigsResult(
            error_code=error,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=tuple(config for config in configs if names is None or config.name in names),
        )

    def _resource_configs(
        self, resource: DescribeConfigsResource, body: DescribeConfigsRequest
    ) -> Iterator[DescribeConfigsResourceResult]:
        if resource.resource_type == TOPIC_RESOURCE:
            overrides = self._configs.overrides(resource.resource_name)
            yield from (self._topic_config(name, overrides, body) for name in self._configs.defaults)
        elif resource.resource_name:  # an empty name means dynamic cluster-wide defaults: none exist
            yield from (_broker_config(name, setting, body) for name, setting in self._broker_settings.items())

    def _error(self, resource: DescribeConfigsResource) -> ErrorCode:
        name = resource.resource_name
        if resource.resource_type == TOPIC_RESOURCE:
            return ErrorCode.NONE if name in self._cache.topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_this_broker = resource.resource_type == BROKER_RESOURCE and name in {"", str(self._broker_id)}
        return ErrorCode.NONE if is_this_broker else ErrorCode.INVALID_REQUEST

    def _topic_config(
        self, name: str, overrides: dict[str, str], body: DescribeConfigsRequest
    ) -> DescribeConfigsResourceResult:
        values = [(overrides[name], TOPIC_SOURCE)] if name in overrides else []
        values.append((self._configs.defaults[name], DEFAULT_SOURCE))
        synonyms = tuple(DescribeConfigsSynonym(name=name, value=value, source=source) for value, source in values)
        value, source = values[0]
        return DescribeConfigsResourceResult(
            name=name,
            value=value,
            config_source=source,
            synonyms=synonyms if body.include_synonyms else (),
            config_type=SETTINGS[name].type,
            documentation=SETTINGS[name].description if body.include_documentation else None,
        )


def _broker_config(name: str, setting: BrokerSetting, body: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    source = STATIC_SOURCE if setting.configured else DEFAULT_SOURCE
    synonym = DescribeConfigsSynonym(name=name, value=setting.value, source=source)
    return DescribeConfigsResourceResult(
        name=name,
        value=setting.value,
        read_only=True,
        config_source=source,
        synonyms=(synonym,) if body.include_synonyms else (),
        config_type=setting.type,
        documentation=None,
    )
