"""Authenticate client connections on a SASL listener of a broker (KIP-43, KIP-152).

A new connection may send only ApiVersions and SaslHandshake. Then it sends tokens: in SaslAuthenticate requests, or
without a request header after SaslHandshake v0. After authentication all requests are allowed. Any other request
closes the connection without a response; a rejected mechanism or password closes it after an error response.
The exception is a bare token: it has no error response.

Sessions of a mechanism may expire (KIP-368). SaslHandshake then starts a re-authentication on the same connection, with
the same mechanism and user, also after the end of the session; any other request after the end closes the connection.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from highwater.reference.effects import Instant, Request
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


SASL_HANDSHAKE: Final = 17
MIN_REAUTHENTICATION_INTERVAL_MS: Final = 1_000
"""Two re-authentications of a connection begin at least this long after each other (Apache Kafka: KafkaChannel)."""
PRE_AUTHENTICATION_KEYS: Final = frozenset({SASL_HANDSHAKE, 18, 36})
"""SaslHandshake, ApiVersions and SaslAuthenticate: other requests are not decoded before authentication."""


class SaslState(StrEnum):
    """The progress of one authentication (Apache Kafka: SaslServerAuthenticator.SaslState)."""

    HANDSHAKE = "Handshake"
    AUTHENTICATE = "Authenticate"
    BARE_TOKENS = "BareTokens"
    OTHER_MECHANISM = "OtherMechanism"
    COMPLETE = "Complete"
    FAILED = "Failed"


SASL: Final = StateTable(
    "sasl",
    "KIP-43, KIP-152, KIP-368",
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
        (
            SaslState.COMPLETE,
            SaslState.AUTHENTICATE,
        ): "SaslHandshake v1 names the mechanism of a session that may expire",
        (
            SaslState.COMPLETE,
            SaslState.BARE_TOKENS,
        ): "SaslHandshake v0 names the mechanism of a session that may expire",
        (SaslState.COMPLETE, SaslState.OTHER_MECHANISM): "SaslHandshake names another mechanism that is enabled",
        (SaslState.COMPLETE, SaslState.FAILED): "SaslHandshake names a mechanism that is not enabled",
        (SaslState.OTHER_MECHANISM, SaslState.FAILED): "any request arrives",
    },
)


@dataclass(frozen=True, slots=True)
class Session:
    """A completed authentication; a session without a lifetime does not expire."""

    mechanism: str
    user: str
    began_ms: int
    lifetime_ms: int | None


class Authenticator:
    """The authentication of one connection.

    `nonce` returns a new nonce at each call, `clock` the time. `lifetimes_ms` has the mechanisms whose sessions expire
    even if the credential does not.
    """

    def __init__(
        self, mechanisms: tuple[str, ...], credentials: Credentials, nonce: Callable[[], str],
        lifetimes_ms: Mapping[str, int], clock: Callable[[], Instant],
    ) -> None:  # fmt: skip
        self._mechanisms, self._credentials, self._nonce = mechanisms, credentials, nonce
        self._lifetimes_ms, self._clock = lifetimes_ms, clock
        self._name = ""
        self._mechanism: Mechanism | None = None
        self._session: Session | None = None
        self._reauthentication_ms: int | None = None
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
        return self._session.user if self._session is not None and self.complete else ""

    @property
    def expired(self) -> bool:
        """Return whether the session has ended; only a re-authentication may follow."""
        session = self._session
        if session is None or session.lifetime_ms is None:
            return False
        return self._clock().monotonic_ms - session.began_ms > session.lifetime_ms

    def begins_reauthentication(self, api_key: int) -> bool:
        """Return whether a request after authentication starts another one (KIP-368).

        If not, SaslHandshake is answered with ILLEGAL_SASL_STATE like on a listener without SASL.
        """
        if api_key != SASL_HANDSHAKE or self._session is None or self._session.lifetime_ms is None:
            return False
        now, last = self._clock().monotonic_ms, self._reauthentication_ms
        if last is not None and now - last < MIN_REAUTHENTICATION_INTERVAL_MS:
            return False
        self._reauthentication_ms = now
        return True

    def _move(self, state: SaslState) -> None:
        SASL.check(self.state, state)
        self.state = state

    def accepts_api_versions(self, request: Request) -> bool:
        """Return whether this is an allowed ApiVersions request; an unserved version has no body (KIP-511)."""
        return self.state is SaslState.HANDSHAKE and isinstance(request.body, ApiVersionsRequest | None)

    def receive(self, request: Request) -> Any:
        """Return the response, or None to close the connection without one."""
        match self.state, request.body:
            case SaslState.HANDSHAKE | SaslState.COMPLETE, SaslHandshakeRequest(mechanism=mechanism):
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
        if self._session is not None and self._session.mechanism != name:
            # As in Apache Kafka (REAUTH_BAD_MECHANISM), the handshake succeeds and the next request fails.
            self._move(SaslState.OTHER_MECHANISM)
        else:
            self._name, self._mechanism = name, start(name, self._credentials, self._nonce, self._clock)
            self._move(SaslState.BARE_TOKENS if bare else SaslState.AUTHENTICATE)
        return SaslHandshakeResponse(mechanisms=self._mechanisms)

    def _authenticate(self, token: bytes) -> SaslAuthenticateResponse:
        try:
            answer = self.process_token(token)
            session = self._session if self.complete else None
            lifetime_ms = (session.lifetime_ms or 0) if session is not None else 0
            return SaslAuthenticateResponse(error_message=None, auth_bytes=answer, session_lifetime_ms=lifetime_ms)
        except AuthenticationError as error:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            return SaslAuthenticateResponse(error_code=code, error_message=str(error))

    def process_token(self, token: bytes) -> bytes:
        """Return the server token for a client token; raise AuthenticationError if it is invalid."""
        assert self._mechanism is not None
        try:
            response = self._mechanism.receive(token)
            if self._mechanism.done:
                self._begin_session(self._mechanism)
        except AuthenticationError:
            self._move(SaslState.FAILED)
            raise
        self._move(SaslState.COMPLETE if self._mechanism.done else self.state)
        return response

    def _begin_session(self, mechanism: Mechanism) -> None:
        """Start the session, or the next one of the same user; raise AuthenticationError for another user."""
        if self._session is not None and self._session.user != mechanism.user:
            raise AuthenticationError("the user of a connection cannot change in a re-authentication")
        limits = (mechanism.lifetime_ms, self._lifetimes_ms.get(self._name))
        lifetime_ms = min((limit for limit in limits if limit is not None), default=None)
        self._session = Session(self._name, mechanism.user, self._clock().monotonic_ms, lifetime_ms)


async def refuse_handshake(request: Request) -> SaslHandshakeResponse:
    """Return ILLEGAL_SASL_STATE: the listener has no SASL, or the connection is already authenticated."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


async def refuse_authenticate(request: Request) -> SaslAuthenticateResponse:
    """Return ILLEGAL_SASL_STATE, like `refuse_handshake`."""
    message = "SaslAuthenticate is allowed only after SaslHandshake, on a listener with SASL."
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)
