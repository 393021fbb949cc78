"""AlterUserScramCredentials (key 51): let users log in by SCRAM, or no longer (KIP-554)."""

from reference.wire.schema import Bytes, Int8, Int16, Int32, String, message, struct


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
    """Whose credentials go, and whose come."""

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
