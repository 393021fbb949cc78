"""DeleteAcls (key 31): delete the ACLs that match filters (KIP-140)."""

from typing import Annotated

from reference.wire.schema import Int8, Int16, Int32, String, message, since, struct


@struct
class DeleteAclsFilter:
    resource_type_filter: Int8 = 0
    resource_name_filter: String | None = ""
    pattern_type_filter: Annotated[Int8, since(1)] = 3
    principal_filter: String | None = ""
    host_filter: String | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@message(api_key=31, versions="0-3", flexible_from=2)
class DeleteAclsRequest:
    """The filters."""

    filters: tuple[DeleteAclsFilter, ...] = ()


@struct
class DeleteAclsMatchingAcl:
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Annotated[Int8, since(1)] = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@struct
class DeleteAclsFilterResult:
    error_code: Int16 = 0
    error_message: String | None = ""
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = ()


@message(api_key=31, versions="0-3", flexible_from=2)
class DeleteAclsResponse:
    """What each filter matched."""

    throttle_time_ms: Int32 = 0
    filter_results: tuple[DeleteAclsFilterResult, ...] = ()
