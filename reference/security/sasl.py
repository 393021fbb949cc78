"""Authenticate client connections on a SASL listener of a broker (KIP-43, KIP-152).

A new connection may send only ApiVersions and SaslHandshake. Then it sends tokens: in SaslAuthenticate requests, or
without a request header after SaslHandshake v0. After authentication all requests are allowed. Any other request
closes the connection without a response; a rejected mechanism or password closes it after an error response.
The exception is a bare token: it has no error response.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

from highwater.reference.effects import Request
from highwater.reference.security.mechanisms import Credentials, Mechanism, start
from highwater.reference.security.scram import AuthenticationError
from highwater.reference.state_table import StateTable
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import ApiVersionsRequest
from highwater.reference.wire.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

MAX_TOKEN_FRAME: Final = 512 * 1024
"""The largest frame before authentication, in bytes (Apache Kafka: sasl.server.max.receive.size)."""


PRE_AUTHENTICATION_KEYS: Final = frozenset({17, 18, 36})
"""SaslHandshake, ApiVersions and SaslAuthenticate: other requests are not decoded before authentication."""


class SaslState(StrEnum):
    """The progress of one authentication (Apache Kafka: SaslServerAuthenticator.SaslState)."""

    HANDSHAKE = "Handshake"
    AUTHENTICATE = "Authenticate"
    BARE_TOKENS = "BareTokens"
    COMPLETE = "Complete"
    FAILED = "Failed"


SASL: Final = StateTable(
    "sasl",
    "KIP-43, KIP-152",
    SaslState.HANDSHAKE,
    {
        (SaslState.HANDSHAKE, SaslState.AUTHENTICATE): "SaslHandshake v1 names a mechanism that is enabled",
        (SaslState.HANDSHAKE, SaslState.BARE_TOKENS): "SaslHandshake v0 names a mechanism that is enabled",
        (SaslState.HANDSHAKE, SaslState.FAILED): "the mechanism is not enabled, or another request arrives",
        (SaslState.AUTHENTICATE, SaslState.AUTHENTICATE): "a challenge is sent",
        (SaslState.AUTHENTICATE, SaslState.COMPLETE): "the last token is valid",
        (SaslState.AUTHENTICATE, SaslState.FAILED): "a token is invalid, or another request arrives",
        (SaslState.BARE_TOKENS, SaslState.BARE_TOKENS): "a challenge is sent",
        (SaslState.BARE_TOKENS, SaslState.COMPLETE): "the last token is valid",
        (SaslState.BARE_TOKENS, SaslState.FAILED): "a token is invalid",
    },
)


class Authenticator:
    """The authentication of one connection; `nonce` returns a new nonce at each call."""

    def __init__(self, mechanisms: tuple[str, ...], credentials: Credentials, nonce: Callable[[], str]) -> None:
        self._mechanisms, self._credentials, self._nonce = mechanisms, credentials, nonce
        self._mechanism: Mechanism | None = None
        self.state = SaslState.HANDSHAKE

    @property
    def complete(self) -> bool:
        return self.state is SaslState.COMPLETE

    @property
    def failed(self) -> bool:
        return self.state is SaslState.FAILED

    @property
    def user(self) -> str:
        """Return the authenticated user, or an empty string before authentication completes."""
        return self._mechanism.user if self._mechanism is not None and self.complete else ""

    def _move(self, state: SaslState) -> None:
        SASL.check(self.state, state)
        self.state = state

    def accepts_api_versions(self, request: Request) -> bool:
        """Return whether this is an allowed ApiVersions request; an unserved version has no body (KIP-511)."""
        return self.state is SaslState.HANDSHAKE and isinstance(request.body, ApiVersionsRequest | None)

    def receive(self, request: Request) -> Any:
        """Return the response, or None to close the connection without one."""
        match self.state, request.body:
            case SaslState.HANDSHAKE, SaslHandshakeRequest(mechanism=mechanism):
                return self._handshake(mechanism, bare=request.api_version == 0)
            case SaslState.AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token):
                return self._authenticate(token)
        self._move(SaslState.FAILED)
        return None

    def _handshake(self, name: str, *, bare: bool) -> SaslHandshakeResponse:
        if name not in self._mechanisms:
            self._move(SaslState.FAILED)
            error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return SaslHandshakeResponse(error_code=error, mechanisms=self._mechanisms)
        self._mechanism = start(name, self._credentials, self._nonce)
        self._move(SaslState.BARE_TOKENS if bare else SaslState.AUTHENTICATE)
        return SaslHandshakeResponse(mechanisms=self._mechanisms)

    def _authenticate(self, token: bytes) -> SaslAuthenticateResponse:
        try:
            return SaslAuthenticateResponse(error_message=None, auth_bytes=self.process_token(token))
        except AuthenticationError as error:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            return SaslAuthenticateResponse(error_code=code, error_message=str(error))

    def process_token(self, token: bytes) -> bytes:
        """Return the server token for a client token; raise AuthenticationError if it is invalid."""
        assert self._mechanism is not None
        try:
            response = self._mechanism.receive(token)
        except AuthenticationError:
            self._move(SaslState.FAILED)
            raise
        self._move(SaslState.COMPLETE if self._mechanism.done else self.state)
        return response


async def refuse_handshake(request: Request) -> SaslHandshakeResponse:
    """Return ILLEGAL_SASL_STATE: the listener has no SASL, or the connection is already authenticated."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


async def refuse_authenticate(request: Request) -> SaslAuthenticateResponse:
    """Return ILLEGAL_SASL_STATE, like `refuse_handshake`."""
    message = "SaslAuthenticate is allowed only after SaslHandshake, on a listener with SASL."
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)
