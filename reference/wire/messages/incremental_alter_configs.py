"""IncrementalAlterConfigs (key 44): change single settings of topics and brokers (KIP-339)."""

from reference.wire.schema import Bool, Int8, Int16, Int32, String, message, struct


@struct
class AlterableConfig:
    name: String = ""
    config_operation: Int8 = 0
    value: String | None = ""


@struct
class AlterConfigsResource:
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[AlterableConfig, ...] = ()


@message(api_key=44, versions="0-1", flexible_from=1)
class IncrementalAlterConfigsRequest:
    """Each change sets, deletes, appends or subtracts."""

    resources: tuple[AlterConfigsResource, ...] = ()
    validate_only: Bool = False


@struct
class AlterConfigsResourceResponse:
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


@message(api_key=44, versions="0-1", flexible_from=1)
class IncrementalAlterConfigsResponse:
    """One error code for each resource."""

    throttle_time_ms: Int32 = 0
    responses: tuple[AlterConfigsResourceResponse, ...] = ()
