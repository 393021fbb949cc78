"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677; KIP-84): messages and proofs of both sides. No channel binding.

Nonces and salts come from outside, for chance is the driver's. Passwords are never sent: each side proves that it
knows what the other has.
"""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS: Final = 4096  # the least that the RFC allows, and Kafka's default
MAX_ITERATIONS: Final = 1_000_000
NO_BINDING: Final = ("n,,", "y,,")


class AuthenticationError(Exception):
    """The peer is not who it says, or does not keep to the mechanism. Says no more than the peer may know."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server keeps instead of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def derive(mechanism: str, password: str, salt: bytes, iterations: int = ITERATIONS) -> ScramCredential:
    name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    return ScramCredential(salt, iterations, stored_key, hmac.digest(salted, b"Server Key", name))


def attributes(message: str) -> dict[str, str]:
    """`a=1,b=2`; AuthenticationError for anything else."""
    found = {}
    for part in message.split(","):
        key, equals, value = part.partition("=")
        if not equals or len(key) != 1 or key in found:
            raise AuthenticationError("malformed SCRAM message")
        found[key] = value
    return found


def unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise AuthenticationError("malformed SCRAM message") from error


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def text_of(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError as error:
        raise AuthenticationError("malformed SCRAM message") from error


def xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


class ScramServer:
    """`begin` reads the user from the first message, `challenge` answers it, `finish` checks the proof."""

    def __init__(self, mechanism: str, nonce: str) -> None:
        self._hash, self._nonce = HASHES[mechanism], nonce
        self._client_first = self._server_first = self._header = ""

    def begin(self, token: bytes) -> str:
        """The name of the user."""
        message = text_of(token)
        self._header = message[:3]
        if self._header not in NO_BINDING:
            raise AuthenticationError("only SCRAM without channel binding and authorisation id is supported")
        self._client_first = message[3:]
        found = attributes(self._client_first)
        if "n" not in found or not found.get("r"):
            raise AuthenticationError("malformed SCRAM message")
        self._nonce = found["r"] + self._nonce
        return found["n"].replace("=2C", ",").replace("=3D", "=")

    def challenge(self, credential: ScramCredential) -> bytes:
        self._server_first = f"r={self._nonce},s={base64_of(credential.salt)},i={credential.iterations}"
        return self._server_first.encode()

    def finish(self, token: bytes, credential: ScramCredential) -> bytes:
        message = text_of(token)
        found = attributes(message)
        without_proof, _, _ = message.rpartition(",p=")
        if found.get("c") != base64_of(self._header.encode()) or found.get("r") != self._nonce:
            raise AuthenticationError("malformed SCRAM message")
        proof = unbase64(found.get("p", ""))
        transcript = f"{self._client_first},{self._server_first},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, transcript, self._hash)
        if len(proof) != len(signature):
            raise AuthenticationError("malformed SCRAM message")
        client_key = xor(proof, signature)
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key):
            raise AuthenticationError("wrong user or password")
        return f"v={base64_of(hmac.digest(credential.server_key, transcript, self._hash))}".encode()


class ScramClient:
    """The other side: `first`, then `respond` to the challenge, then `verify` the server."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        self._mechanism, self._hash, self._password, self._nonce = mechanism, HASHES[mechanism], password, nonce
        self._first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        return f"n,,{self._first}".encode()

    def respond(self, challenge: bytes) -> bytes:
        message = text_of(challenge)
        found = attributes(message)
        nonce, rounds = found.get("r", ""), found.get("i", "")
        if not nonce.startswith(self._nonce) or not rounds.isdigit() or not ITERATIONS <= int(rounds) <= MAX_ITERATIONS:
            raise AuthenticationError("the server's SCRAM challenge is not sound")
        salt, iterations = unbase64(found.get("s", "")), int(rounds)
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        credential = derive(self._mechanism, self._password, salt, iterations)
        without_proof = f"c={base64_of(b'n,,')},r={nonce}"
        transcript = f"{self._first},{message},{without_proof}".encode()
        self._signature = hmac.digest(credential.server_key, transcript, self._hash)
        proof = xor(client_key, hmac.digest(credential.stored_key, transcript, self._hash))
        return f"{without_proof},p={base64_of(proof)}".encode()

    def verify(self, final: bytes) -> None:
        """AuthenticationError when the server does not know our password either."""
        if not hmac.compare_digest(unbase64(attributes(text_of(final)).get("v", "")), self._signature):
            raise AuthenticationError("the server could not prove that it knows this user")
