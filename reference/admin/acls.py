"""DescribeAcls, CreateAcls and DeleteAcls (keys 29 to 31): this broker has no authorizer, and says so."""

from typing import Final

from reference.api_versions import Served
from reference.events import Request
from reference.wire.errors import ErrorCode
from reference.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from reference.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from reference.wire.messages.describe_acls import DescribeAclsResponse

MESSAGE: Final = "no authorizer is configured on this broker"


async def describe(request: Request) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=MESSAGE)


async def create(request: Request) -> CreateAclsResponse:
    body: CreateAclsRequest = request.body
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=MESSAGE)
    return CreateAclsResponse(results=(refused,) * len(body.creations))


async def delete(request: Request) -> DeleteAclsResponse:
    body: DeleteAclsRequest = request.body
    refused = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=MESSAGE)
    return DeleteAclsResponse(filter_results=(refused,) * len(body.filters))


SERVED: Final = {29: Served(describe, 0, 3), 30: Served(create, 0, 3), 31: Served(delete, 0, 3)}
