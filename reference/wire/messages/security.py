"""CreateAcls (key 30): add ACLs (KIP-140)."""

from typing import Annotated

from highwater.reference.wire.schema import Bytes, Int8, Int16, Int32, Int64, String, ignorable, message, since, struct


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
    """One result per ACL, in order."""

    throttle_time_ms: Int32 = 0
    results: tuple[AclCreationResult, ...] = ()


# --------------------------------------------------------------------------------------------------
# AlterUserScramCredentials (key 51): set and delete SCRAM credentials of users (KIP-554).


@struct
class ScramCredentialDeletion:
    name: String = ""
    mechanism: Int8 = 0


@struct
class ScramCredentialUpsertion:
    """Mechanism 1 is SCRAM-SHA-256, 2 SCRAM-SHA-512; the password is salted by the client."""

    name: String = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: Bytes = b""
    salted_password: Bytes = b""


@message(api_key=51, versions="0", flexible_from=0)
class AlterUserScramCredentialsRequest:
    """The credentials to delete and to set."""

    deletions: tuple[ScramCredentialDeletion, ...] = ()
    upsertions: tuple[ScramCredentialUpsertion, ...] = ()


@struct
class AlterUserScramCredentialsResult:
    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""


@message(api_key=51, versions="0", flexible_from=0)
class AlterUserScramCredentialsResponse:
    """One error code for each user."""

    throttle_time_ms: Int32 = 0
    results: tuple[AlterUserScramCredentialsResult, ...] = ()


# --------------------------------------------------------------------------------------------------
# DeleteAcls (key 31): delete the ACLs that match filters (KIP-140).


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
    """The deleted ACLs per filter."""

    throttle_time_ms: Int32 = 0
    filter_results: tuple[DeleteAclsFilterResult, ...] = ()


# --------------------------------------------------------------------------------------------------
# DescribeAcls (key 29): list the ACLs that match a filter (KIP-140).


@message(api_key=29, versions="0-3", flexible_from=2)
class DescribeAclsRequest:
    """The filter; null matches any name."""

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


# --------------------------------------------------------------------------------------------------
# DescribeUserScramCredentials (key 50): list the SCRAM mechanisms of users (KIP-554).


@struct
class UserName:
    name: String = ""


@message(api_key=50, versions="0", flexible_from=0)
class DescribeUserScramCredentialsRequest:
    """The users; null or empty means all."""

    users: tuple[UserName, ...] | None = ()


@struct
class CredentialInfo:
    mechanism: Int8 = 0
    iterations: Int32 = 0


@struct
class DescribeUserScramCredentialsResult:
    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""
    credential_infos: tuple[CredentialInfo, ...] = ()


@message(api_key=50, versions="0", flexible_from=0)
class DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations of each user, without keys."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    results: tuple[DescribeUserScramCredentialsResult, ...] = ()


# --------------------------------------------------------------------------------------------------
# SaslAuthenticate (key 36): one SASL token each way (KIP-152); 1 returns the session's lifetime (KIP-368).


@message(api_key=36, versions="0-2", flexible_from=2)
class SaslAuthenticateRequest:
    """The client's token."""

    auth_bytes: Bytes = b""


@message(api_key=36, versions="0-2", flexible_from=2)
class SaslAuthenticateResponse:
    """The server's token."""

    error_code: Int16 = 0
    error_message: String | None = ""
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, since(1), ignorable] = 0


# --------------------------------------------------------------------------------------------------
# SaslHandshake (key 17): choose a SASL mechanism.
#
# After version 0, raw SASL tokens follow on the connection; after 1 they are in SaslAuthenticate (KIP-152). Never
# flexible.


@message(api_key=17, versions="0-1")
class SaslHandshakeRequest:
    """The requested mechanism."""

    mechanism: String = ""


@message(api_key=17, versions="0-1")
class SaslHandshakeResponse:
    """The mechanisms that the broker supports."""

    error_code: Int16 = 0
    mechanisms: tuple[String, ...] = ()
