"""Serve DescribeAcls, CreateAcls and DeleteAcls (keys 29 to 31) with SECURITY_DISABLED: there is no authorizer."""

from typing import Final

from highwater.reference.api_versions import ServedApi
from highwater.reference.effects import Request
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.security import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsResponse,
)

MESSAGE: Final = "No authorizer is configured on this broker."


async def describe(request: Request) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=MESSAGE)


async def create(request: Request) -> CreateAclsResponse:
    body: CreateAclsRequest = request.body
    result = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=MESSAGE)
    return CreateAclsResponse(results=(result,) * len(body.creations))


async def delete(request: Request) -> DeleteAclsResponse:
    body: DeleteAclsRequest = request.body
    result = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=MESSAGE)
    return DeleteAclsResponse(filter_results=(result,) * len(body.filters))


SERVED: Final = {
    "DescribeAcls": ServedApi(describe, 0, 3),
    "CreateAcls": ServedApi(create, 0, 3),
    "DeleteAcls": ServedApi(delete, 0, 3),
}
