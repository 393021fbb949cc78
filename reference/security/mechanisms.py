"""The server's side of each SASL mechanism: tokens in, tokens out, until it knows the user."""

import hmac
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from reference.security.scram import HASHES, AuthenticationError, ScramCredential, ScramServer, derive, text_of

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *HASHES)
REFUSED: Final = "wrong user or password"  # which of the two is nobody's business


class Credentials:
    """Users with their passwords, from the configuration; what SCRAM needs of them is derived once."""

    def __init__(self, users: Mapping[str, str], salt: bytes) -> None:
        self._users, self._salt = dict(users), salt
        self._derived: dict[tuple[str, str], ScramCredential] = {}

    def check_password(self, user: str, password: str) -> None:
        known = self._users.get(user)
        if known is None or not hmac.compare_digest(known.encode(), password.encode()):
            raise AuthenticationError(REFUSED)

    def scram(self, mechanism: str, user: str) -> ScramCredential:
        if user not in self._users:
            raise AuthenticationError(REFUSED)
        key = (mechanism, user)
        if key not in self._derived:
            self._derived[key] = derive(mechanism, self._users[user], self._salt)
        return self._derived[key]


class Mechanism(Protocol):
    """`user` is known once `done`; a token that is not sound raises AuthenticationError."""

    done: bool
    user: str

    def receive(self, token: bytes) -> bytes: ...


class Plain:
    """User and password in the clear (RFC 4616): for TLS, or a network that is trusted."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials, self.done, self.user = credentials, False, ""

    def receive(self, token: bytes) -> bytes:
        parts = text_of(token).split("\0")
        if len(parts) != 3 or parts[0] not in {"", parts[1]}:
            raise AuthenticationError("malformed PLAIN message")
        self._credentials.check_password(parts[1], parts[2])
        self.done, self.user = True, parts[1]
        return b""


class Scram:
    def __init__(self, mechanism: str, credentials: Credentials, nonce: str) -> None:
        self._mechanism, self._credentials, self.done, self.user = mechanism, credentials, False, ""
        self._server = ScramServer(mechanism, nonce)
        self._credential: ScramCredential | None = None

    def receive(self, token: bytes) -> bytes:
        if self._credential is None:
            self.user = self._server.begin(token)
            self._credential = self._credentials.scram(self._mechanism, self.user)
            return self._server.challenge(self._credential)
        final = self._server.finish(token, self._credential)
        self.done = True
        return final


def start(mechanism: str, credentials: Credentials, nonce: Callable[[], str]) -> Mechanism:
    return Plain(credentials) if mechanism == PLAIN else Scram(mechanism, credentials, nonce())
