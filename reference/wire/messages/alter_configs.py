"""AlterConfigs (key 33): replace all settings of topics and brokers (KIP-133).

What is not named falls back to its default; IncrementalAlterConfigs came in its place.
"""

from reference.wire.schema import Bool, Int8, Int16, Int32, String, message, struct


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
    """The settings that shall hold from now on."""

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
