"""CreateAcls (key 30): add ACLs (KIP-140)."""

from typing import Annotated

from reference.wire.schema import Int8, Int16, Int32, String, message, since, struct


@struct
class AclCreation:
    resource_type: Int8 = 0
    resource_name: String = ""
    resource_pattern_type: Annotated[Int8, since(1)] = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@message(api_key=30, versions="0-3", flexible_from=2)
class CreateAclsRequest:
    """The ACLs to add."""

    creations: tuple[AclCreation, ...] = ()


@struct
class AclCreationResult:
    error_code: Int16 = 0
    error_message: String | None = ""


@message(api_key=30, versions="0-3", flexible_from=2)
class CreateAclsResponse:
    """One result for each, in order."""

    throttle_time_ms: Int32 = 0
    results: tuple[AclCreationResult, ...] = ()
