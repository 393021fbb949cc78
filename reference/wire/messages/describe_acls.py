"""DescribeAcls (key 29): which ACLs match a filter (KIP-140)."""

from typing import Annotated

from reference.wire.schema import Int8, Int16, Int32, String, message, since, struct


@message(api_key=29, versions="0-3", flexible_from=2)
class DescribeAclsRequest:
    """Null matches any name."""

    resource_type_filter: Int8 = 0
    resource_name_filter: String | None = ""
    pattern_type_filter: Annotated[Int8, since(1)] = 3
    principal_filter: String | None = ""
    host_filter: String | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@struct
class AclDescription:
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@struct
class DescribeAclsResource:
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Annotated[Int8, since(1)] = 3
    acls: tuple[AclDescription, ...] = ()


@message(api_key=29, versions="0-3", flexible_from=2)
class DescribeAclsResponse:
    """The ACLs by resource."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    resources: tuple[DescribeAclsResource, ...] = ()
