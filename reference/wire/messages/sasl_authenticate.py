"""SaslAuthenticate (key 36): one SASL token each way (KIP-152); 1 returns the session's lifetime (KIP-368)."""

from typing import Annotated

from reference.wire.schema import Bytes, Int16, Int64, String, ignorable, message, since


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
