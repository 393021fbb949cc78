"""OAUTHBEARER with unsecured tokens (RFC 7628, KIP-255): for tests only, because any client can write such a token.

A token is a JWS of RFC 7515 with the algorithm `none`: header, claims and an empty signature. Like Apache Kafka's
OAuthBearerUnsecuredValidatorCallbackHandler, the server requires the claims `sub` and `exp` and checks `iat`.
An invalid token gets a challenge with the error as JSON; the client answers it with one byte, and is then rejected.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable
from typing import Any, Final

from highwater.reference.effects import Instant
from highwater.reference.security.scram import AuthenticationError, decode_text

OAUTHBEARER: Final = "OAUTHBEARER"
DUMMY: Final = b"\x01"
"""The answer of a client to an error challenge (RFC 7628, section 3.2.3)."""
INVALID_TOKEN: Final = '{"status":"invalid_token"}'
CLIENT_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^\0=,]|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
AUTHORIZATION: Final = re.compile(r"(?i:bearer) +(?P<token>[-_.a-zA-Z0-9]+)")


class InvalidTokenError(Exception):
    """The token is malformed, lacks a claim or is not valid at this time."""


def _part(text: str) -> dict[str, Any]:
    """Decode one part of a token; raise InvalidTokenError unless it is a JSON object in Base64."""
    try:
        found = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError) as error:
        raise InvalidTokenError("a part of the token is no JSON in Base64") from error
    if not isinstance(found, dict):
        raise InvalidTokenError("a part of the token is no JSON object")
    return found


def _seconds(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InvalidTokenError(f"the claim {name} is no number")
    return value


def validate(token: str, wall_ms: int) -> tuple[str, float]:
    """Return principal and expiration time in ms since the epoch; raise InvalidTokenError."""
    parts = token.split(".")
    if len(parts) != 3 or parts[2]:
        raise InvalidTokenError("the token does not consist of header, claims and an empty signature")
    header, claims = _part(parts[0]), _part(parts[1])
    if header.get("alg") != "none":
        raise InvalidTokenError("the token has a signature algorithm")
    principal, expires, issued = claims.get("sub"), _seconds(claims, "exp"), _seconds(claims, "iat")
    if not isinstance(principal, str) or not principal.strip():
        raise InvalidTokenError("the token names no principal")
    if expires is None or wall_ms >= 1000 * expires:
        raise InvalidTokenError("the token has expired")
    if issued is not None and (1000 * issued > wall_ms or expires <= issued):
        raise InvalidTokenError("the token was issued in the future")
    return principal, 1000 * expires


class OAuthBearer:
    """The server side of one exchange; has the interface of `Mechanism`."""

    def __init__(self, clock: Callable[[], Instant]) -> None:
        self._clock, self._has_failed = clock, False
        self.done, self.user = False, ""
        self.lifetime_ms: int | None = None

    def receive(self, token: bytes) -> bytes:
        if self._has_failed and token == DUMMY:
            raise AuthenticationError(INVALID_TOKEN)
        authzid, bearer = parse_client_first(token)
        wall_ms = self._clock().wall_ms
        try:
            self.user, expires_ms = validate(bearer, wall_ms)
        except InvalidTokenError:
            self._has_failed = True
            return INVALID_TOKEN.encode()
        if authzid not in {"", self.user}:
            raise AuthenticationError("the authorization id is not the principal of the token")
        self.lifetime_ms = max(0, int(expires_ms - wall_ms))
        self.done = True
        return b""


def parse_client_first(message: bytes) -> tuple[str, str]:
    """Return authorization id, empty if there is none, and token; raise AuthenticationError for a malformed message."""
    first = CLIENT_FIRST.fullmatch(decode_text(message))
    pairs = dict(pair.split("=", 1) for pair in first["pairs"].split("\x01")[:-1]) if first else {}
    authorization = AUTHORIZATION.fullmatch(pairs.get("auth", ""))
    if first is None or authorization is None:
        raise AuthenticationError("malformed OAUTHBEARER message")
    return (first["authzid"] or "").replace("=2C", ",").replace("=3D", "="), authorization["token"]
