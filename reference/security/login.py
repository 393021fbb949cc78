"""Authenticate as a SASL client: used by tools and by brokers that connect to brokers; performs no I/O."""

from dataclasses import dataclass
from typing import Final

from highwater.reference.security.mechanisms import PLAIN
from highwater.reference.security.scram import AuthenticationError, ScramClient
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.framing import decode_response, encode_request
from highwater.reference.wire.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Account:
    """The SASL mechanism and credentials of a client."""

    mechanism: str
    user: str
    password: str


class Login:
    """The client side of one authentication.

    Send the frame of `first`, then pass each response to `receive` and send the frame that it returns, until it
    returns None. `session_lifetime_ms` is then what the broker said; 0 if the session does not expire (KIP-368).
    """

    def __init__(self, account: Account, nonce: str, client_id: str) -> None:
        self._account, self._client_id, self._step, self.session_lifetime_ms = account, client_id, 0, 0
        self._scram = (
            None
            if account.mechanism == PLAIN
            else ScramClient(account.mechanism, account.user, account.password, nonce)
        )

    def first(self) -> bytes:
        """Return the SaslHandshake frame."""
        request = SaslHandshakeRequest(mechanism=self._account.mechanism)
        return encode_request(request, HANDSHAKE_VERSION, 0, self._client_id)

    def receive(self, frame: bytes) -> bytes | None:
        """Return the next frame, or None after successful authentication.

        Raise AuthenticationError if the broker rejects the client or fails to prove its identity, and DecodeError
        for a malformed response.
        """
        self._step += 1
        if self._step == 1:
            _, handshake = decode_response(SaslHandshakeResponse, HANDSHAKE_VERSION, frame)
            if handshake.error_code != ErrorCode.NONE:
                enabled = ", ".join(handshake.mechanisms) or "none"
                raise AuthenticationError(f"{self._account.mechanism} is not enabled on the broker; enabled: {enabled}")
            return self._token(self._scram.first() if self._scram else self._plain())
        _, response = decode_response(SaslAuthenticateResponse, AUTHENTICATE_VERSION, frame)
        if response.error_code != ErrorCode.NONE:
            raise AuthenticationError(response.error_message or f"error {response.error_code}")
        self.session_lifetime_ms = response.session_lifetime_ms
        if self._scram is None:
            return None
        if self._step == 2:
            return self._token(self._scram.respond(response.auth_bytes))
        self._scram.verify(response.auth_bytes)
        return None

    def _plain(self) -> bytes:
        return f"\0{self._account.user}\0{self._account.password}".encode()

    def _token(self, token: bytes) -> bytes:
        request = SaslAuthenticateRequest(auth_bytes=token)
        return encode_request(request, AUTHENTICATE_VERSION, self._step, self._client_id)
