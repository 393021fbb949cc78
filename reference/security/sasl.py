"""SASL as a broker sees it: no request before authentication (KIP-43, KIP-152).

On a SASL listener a new connection may ask ApiVersions and SaslHandshake, and nothing else; then it sends tokens, in
SaslAuthenticate requests or, after version 0 of the handshake, bare; then everything is open to it. Whatever else it
sends closes the connection unanswered. A refused mechanism or password is told, and closes it too.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

from reference.events import Request
from reference.security.mechanisms import Credentials, Mechanism, start
from reference.security.scram import AuthenticationError
from reference.state_table import StateTable
from reference.wire.errors import ErrorCode
from reference.wire.messages.api_versions import ApiVersionsRequest
from reference.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from reference.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

MAX_TOKEN_FRAME: Final = 512 * 1024
"""What a stranger may send in one frame (Kafka's sasl.server.max.receive.size)."""


OPEN_TO_STRANGERS: Final = frozenset({17, 18, 36})
"""SaslHandshake, ApiVersions and SaslAuthenticate: nothing else is even decoded."""


class SaslState(StrEnum):
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
        (SaslState.HANDSHAKE, SaslState.BARE_TOKENS): "SaslHandshake v0 does",
        (SaslState.HANDSHAKE, SaslState.FAILED): "the mechanism is not enabled, or another request came",
        (SaslState.AUTHENTICATE, SaslState.AUTHENTICATE): "a challenge is sent",
        (SaslState.AUTHENTICATE, SaslState.COMPLETE): "the last token is good",
        (SaslState.AUTHENTICATE, SaslState.FAILED): "a token is not good, or another request came",
        (SaslState.BARE_TOKENS, SaslState.BARE_TOKENS): "a challenge is sent",
        (SaslState.BARE_TOKENS, SaslState.COMPLETE): "the last token is good",
        (SaslState.BARE_TOKENS, SaslState.FAILED): "a token is not good",
    },
)


class Authenticator:
    """Of one connection. `nonce` gives a fresh one each time."""

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
        """Whom the tokens proved; empty before."""
        return self._mechanism.user if self._mechanism is not None and self.complete else ""

    def _move(self, state: SaslState) -> None:
        SASL.check(self.state, state)
        self.state = state

    def may_ask_versions(self, request: Request) -> bool:
        """Also in a version that is not served (KIP-511)."""
        return self.state is SaslState.HANDSHAKE and isinstance(request.body, ApiVersionsRequest | None)

    def receive(self, request: Request) -> Any:
        """The response; None closes the connection without one."""
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
            return SaslAuthenticateResponse(error_message=None, auth_bytes=self.token(token))
        except AuthenticationError as error:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            return SaslAuthenticateResponse(error_code=code, error_message=str(error))

    def token(self, token: bytes) -> bytes:
        """The mechanism's answer to one token; AuthenticationError when it is not good."""
        assert self._mechanism is not None
        try:
            answer = self._mechanism.receive(token)
        except AuthenticationError:
            self._move(SaslState.FAILED)
            raise
        self._move(SaslState.COMPLETE if self._mechanism.done else self.state)
        return answer


async def refuse_handshake(request: Request) -> SaslHandshakeResponse:
    """Where there is nothing to authenticate, or no more."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


async def refuse_authenticate(request: Request) -> SaslAuthenticateResponse:
    message = "SaslAuthenticate comes after SaslHandshake, on a listener that asks for SASL"
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)
