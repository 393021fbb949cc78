"""DescribeConfigs (key 32): settings of topics and brokers; 1 shows synonyms (KIP-226), 3 types and documentation
(KIP-569).
"""

from typing import Annotated

from reference.wire.schema import Bool, Int8, Int16, Int32, String, ignorable, message, since, struct, until


@struct
class DescribeConfigsResource:
    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: tuple[String, ...] | None = ()


@message(api_key=32, versions="0-4", flexible_from=4)
class DescribeConfigsRequest:
    """Resources, and which of their settings; null is all."""

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
