"""DescribeUserScramCredentials (key 50): who can log in by which SCRAM mechanism (KIP-554)."""

from reference.wire.schema import Int8, Int16, Int32, String, message, struct


@struct
class UserName:
    name: String = ""


@message(api_key=50, versions="0", flexible_from=0)
class DescribeUserScramCredentialsRequest:
    """Null or no user asks for all."""

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
    """Mechanisms and iterations of each user, never a key."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    results: tuple[DescribeUserScramCredentialsResult, ...] = ()
