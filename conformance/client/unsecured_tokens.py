"""Unsecured tokens of OAUTHBEARER (RFC 7515 with the algorithm `none`), and the message with one (RFC 7628)."""

import base64
import json
from typing import Any

LIFETIME_S = 3600
"""Lifetime of a token unless a case needs another one: long enough for clocks that differ by some minutes."""


def unsecured_token(
    now: float, user: str, *, header: dict[str, Any] | None = None, signature: str = "", **claims: Any
) -> str:
    """Return a token for this user that is valid for an hour from `now`, in seconds since 1970.

    `claims` replace its own, None removes one.
    """
    own = {"sub": user, "exp": now + LIFETIME_S} | claims
    body = {name: value for name, value in own.items() if value is not None}
    return f"{_encoded(header or {'alg': 'none'})}.{_encoded(body)}.{signature}"


def client_first(token: str, *, authorisation: str = "", extensions: str = "", scheme: str = "Bearer") -> bytes:
    """Return the first message of a client; `extensions` is a sequence of `name=value` with a byte 1 after each."""
    authzid = f"a={authorisation}" if authorisation else ""
    return f"n,{authzid},\x01auth={scheme} {token}\x01{extensions}\x01".encode()


def _encoded(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
