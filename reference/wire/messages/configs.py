"""DescribeConfigs (key 32): settings of topics and brokers; 1 shows synonyms (KIP-226), 3 types and documentation
(KIP-569).
"""

from typing import Annotated

from highwater.reference.wire.schema import (
    Bool,
    Float64,
    Int8,
    Int16,
    Int32,
    String,
    ignorable,
    message,
    since,
    struct,
    until,
)


@struct
class DescribeConfigsResource:
    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: tuple[String, ...] | None = ()


@message(api_key=32, versions="0-4", flexible_from=4)
class DescribeConfigsRequest:
    """The resources and the names of their settings; null means all."""

    resources: tuple[DescribeConfigsResource, ...] = ()
    include_synonyms: Annotated[Bool, since(1)] = False
    include_documentation: Annotated[Bool, since(3)] = False


@struct
class DescribeConfigsSynonym:
    name: String = ""
    value: String | None = ""
    source: Int8 = 0


@struct
class DescribeConfigsResourceResult:
    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    is_default: Annotated[Bool, until(0)] = False
    config_source: Annotated[Int8, since(1), ignorable] = -1
    is_sensitive: Bool = False
    synonyms: Annotated[tuple[DescribeConfigsSynonym, ...], since(1), ignorable] = ()
    config_type: Annotated[Int8, since(3), ignorable] = 0
    documentation: Annotated[String | None, since(3), ignorable] = ""


@struct
class DescribeConfigsResult:
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[DescribeConfigsResourceResult, ...] = ()


@message(api_key=32, versions="0-4", flexible_from=4)
class DescribeConfigsResponse:
    """Settings with their sources."""

    throttle_time_ms: Int32 = 0
    results: tuple[DescribeConfigsResult, ...] = ()


# --------------------------------------------------------------------------------------------------
# AlterClientQuotas (key 49): set and remove quotas of users, client ids and addresses (KIP-546).


@struct
class AlterEntityData:
    """A null name is the default entity of its type."""

    entity_type: String = ""
    entity_name: String | None = ""


@struct
class OpData:
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


@struct
class AlterClientQuotasRequestEntryData:
    entity: tuple[AlterEntityData, ...] = ()
    ops: tuple[OpData, ...] = ()


@message(api_key=49, versions="0-1", flexible_from=1)
class AlterClientQuotasRequest:
    """The changed quotas of each entity."""

    entries: tuple[AlterClientQuotasRequestEntryData, ...] = ()
    validate_only: Bool = False


@struct
class AlterClientQuotasResponseEntryData:
    error_code: Int16 = 0
    error_message: String | None = ""
    entity: tuple[AlterEntityData, ...] = ()


@message(api_key=49, versions="0-1", flexible_from=1)
class AlterClientQuotasResponse:
    """One error code for each entity."""

    throttle_time_ms: Int32 = 0
    entries: tuple[AlterClientQuotasResponseEntryData, ...] = ()


# --------------------------------------------------------------------------------------------------
# AlterConfigs (key 33): replace all settings of topics and brokers (KIP-133).
#
# Settings that are not listed are reset to their defaults; IncrementalAlterConfigs replaces this API.


@struct
class AlterableConfig:
    name: String = ""
    value: String | None = ""


@struct
class AlterConfigsResource:
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[AlterableConfig, ...] = ()


@message(api_key=33, versions="0-2", flexible_from=2)
class AlterConfigsRequest:
    """The complete new settings of each resource."""

    resources: tuple[AlterConfigsResource, ...] = ()
    validate_only: Bool = False


@struct
class AlterConfigsResourceResponse:
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


@message(api_key=33, versions="0-2", flexible_from=2)
class AlterConfigsResponse:
    """One error code for each resource."""

    throttle_time_ms: Int32 = 0
    responses: tuple[AlterConfigsResourceResponse, ...] = ()


# --------------------------------------------------------------------------------------------------
# DescribeClientQuotas (key 48): the quotas of users, client ids and addresses (KIP-546).


@struct
class ComponentData:
    """`match_type` 0 is the exact name, 1 the default entity, 2 any name."""

    entity_type: String = ""
    match_type: Int8 = 0
    match: String | None = ""


@message(api_key=48, versions="0-1", flexible_from=1)
class DescribeClientQuotasRequest:
    """The filter of entities; strict excludes entities with additional components."""

    components: tuple[ComponentData, ...] = ()
    strict: Bool = False


@struct
class EntityData:
    entity_type: String = ""
    entity_name: String | None = ""


@struct
class ValueData:
    key: String = ""
    value: Float64 = 0.0


@struct
class EntryData:
    entity: tuple[EntityData, ...] = ()
    values: tuple[ValueData, ...] = ()


@message(api_key=48, versions="0-1", flexible_from=1)
class DescribeClientQuotasResponse:
    """The quotas of each entity."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    entries: tuple[EntryData, ...] | None = ()


# --------------------------------------------------------------------------------------------------
# IncrementalAlterConfigs (key 44): change single settings of topics and brokers (KIP-339).


@struct
class IncrementalAlterableConfig:
    name: String = ""
    config_operation: Int8 = 0
    value: String | None = ""


@struct
class IncrementalAlterConfigsResource:
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[IncrementalAlterableConfig, ...] = ()


@message(api_key=44, versions="0-1", flexible_from=1)
class IncrementalAlterConfigsRequest:
    """Each change sets, deletes, appends or subtracts."""

    resources: tuple[IncrementalAlterConfigsResource, ...] = ()
    validate_only: Bool = False


@struct
class IncrementalAlterConfigsResourceResponse:
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


@message(api_key=44, versions="0-1", flexible_from=1)
class IncrementalAlterConfigsResponse:
    """One error code for each resource."""

    throttle_time_ms: Int32 = 0
    responses: tuple[IncrementalAlterConfigsResourceResponse, ...] = ()


# --------------------------------------------------------------------------------------------------
# ListConfigResources (key 74): names of resources that have a configuration (KIP-1142).
#
# 0 lists the subscriptions to metrics of clients (KIP-714).


@message(api_key=74, versions="0-1", flexible_from=0)
class ListConfigResourcesRequest:
    """No type means all types."""

    resource_types: Annotated[tuple[Int8, ...], since(1)] = ()


@struct
class ConfigResource:
    resource_name: String = ""
    resource_type: Annotated[Int8, since(1), ignorable] = 16


@message(api_key=74, versions="0-1", flexible_from=0)
class ListConfigResourcesResponse:
    """One entry for each resource."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: tuple[ConfigResource, ...] = ()
