"""The server side of the SASL mechanisms: process client tokens until the user is authenticated."""

import hmac
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from highwater.reference.effects import Instant
from highwater.reference.security.oauth_bearer import OAUTHBEARER, OAuthBearer
from highwater.reference.security.scram import (
    HASHES,
    AuthenticationError,
    ScramCredential,
    ScramServer,
    decode_text,
    derive,
)

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *HASHES)
"""The mechanisms with user and password."""
SERVED: Final = (*MECHANISMS, OAUTHBEARER)
"""The mechanisms that a broker can enable."""
# One message for both: a client must not learn which user names exist.
WRONG_CREDENTIALS: Final = "wrong user or password"


class Credentials:
    """The configured users and passwords; SCRAM credentials are derived on first use and cached."""

    def __init__(self, users: Mapping[str, str], salt: bytes) -> None:
        self._users, self._salt = dict(users), salt
        self._derived: dict[tuple[str, str], ScramCredential] = {}

    def check_password(self, user: str, password: str) -> None:
        """Raise AuthenticationError unless the password is correct; compares in constant time."""
        expected = self._users.get(user)
        if expected is None or not hmac.compare_digest(expected.encode(), password.encode()):
            raise AuthenticationError(WRONG_CREDENTIALS)

    def scram(self, mechanism: str, user: str) -> ScramCredential:
        """Return the user's SCRAM credential; raise AuthenticationError for an unknown user."""
        if user not in self._users:
            raise AuthenticationError(WRONG_CREDENTIALS)
        key = (mechanism, user)
        if key not in self._derived:
            self._derived[key] = derive(mechanism, self._users[user], self._salt)
        return self._derived[key]


class Mechanism(Protocol):
    """A SASL mechanism on the server.

    `receive` returns the token to send and raises AuthenticationError for an invalid token; `user` is set once `done`.
    `lifetime_ms` is then how long the credential is valid, None for ever.
    """

    done: bool
    user: str
    lifetime_ms: int | None

    def receive(self, token: bytes) -> bytes: ...


class Plain:
    """User and password in clear text (RFC 4616): use it with TLS or in a trusted network only."""

    lifetime_ms: int | None = None

    def __init__(self, credentials: Credentials) -> None:
        self._credentials, self.done, self.user = credentials, False, ""

    def receive(self, token: bytes) -> bytes:
        parts = decode_text(token).split("\0")
        if len(parts) != 3 or parts[0] not in {"", parts[1]}:
            raise AuthenticationError("malformed PLAIN message")
        self._credentials.check_password(parts[1], parts[2])
        self.done, self.user = True, parts[1]
        return b""


class Scram:
    """SCRAM (RFC 5802, KIP-84)."""

    lifetime_ms: int | None = None

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


def start(
    mechanism: str, credentials: Credentials, nonce: Callable[[], str], clock: Callable[[], Instant]
) -> Mechanism:
    """Return a new exchange of the mechanism for one connection."""
    match mechanism:
        case "PLAIN":
            return Plain(credentials)
        case "OAUTHBEARER":
            return OAuthBearer(clock)
    return Scram(mechanism, credentials, nonce())
