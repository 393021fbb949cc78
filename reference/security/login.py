"""SASL as a client does it, for brokers that connect to brokers and for the tools: frames in, frames out."""

from dataclasses import dataclass
from typing import Final

from reference.security.mechanisms import PLAIN
from reference.security.scram import AuthenticationError, ScramClient
from reference.wire.errors import ErrorCode
from reference.wire.framing import decode_response, encode_request
from reference.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from reference.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Account:
    mechanism: str
    user: str
    password: str


class Login:
    """`first` is the frame to begin with; `receive` gives the next one, or None when the broker knows us."""

    def __init__(self, account: Account, nonce: str, client_id: str) -> None:
        self._account, self._client_id, self._step = account, client_id, 0
        self._scram = (
            None
            if account.mechanism == PLAIN
            else ScramClient(account.mechanism, account.user, account.password, nonce)
        )

    def first(self) -> bytes:
        request = SaslHandshakeRequest(mechanism=self._account.mechanism)
        return encode_request(request, HANDSHAKE_VERSION, 0, self._client_id)

    def receive(self, frame: bytes) -> bytes | None:
        """AuthenticationError when the broker refuses, or cannot prove itself; DecodeError for a bad answer."""
        self._step += 1
        if self._step == 1:
            _, hands = decode_response(SaslHandshakeResponse, HANDSHAKE_VERSION, frame)
            if hands.error_code != ErrorCode.NONE:
                offered = ", ".join(hands.mechanisms) or "none"
                raise AuthenticationError(f"{self._account.mechanism} is not enabled; the broker has {offered}")
            return self._token(self._scram.first() if self._scram else self._plain())
        _, answer = decode_response(SaslAuthenticateResponse, AUTHENTICATE_VERSION, frame)
        if answer.error_code != ErrorCode.NONE:
            raise AuthenticationError(answer.error_message or f"error {answer.error_code}")
        if self._scram is None:
            return None
        if self._step == 2:
            return self._token(self._scram.respond(answer.auth_bytes))
        self._scram.verify(answer.auth_bytes)
        return None

    def _plain(self) -> bytes:
        return f"\0{self._account.user}\0{self._account.password}".encode()

    def _token(self, token: bytes) -> bytes:
        request = SaslAuthenticateRequest(auth_bytes=token)
        return encode_request(request, AUTHENTICATE_VERSION, self._step, self._client_id)
