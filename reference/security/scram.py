"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677; KIP-84): client and server messages, no channel binding.

The caller supplies nonces and salts, because this module uses no random numbers. Passwords are never sent: each side
proves that it knows the credential.
"""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS: Final = 4096  # the minimum of RFC 7677, and the default of Apache Kafka
MAX_ITERATIONS: Final = 1_000_000
NO_BINDING: Final = ("n,,", "y,,")


class AuthenticationError(Exception):
    """The peer failed authentication or violated the mechanism; the message may be sent to the peer."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The salted keys that a server stores instead of a password (RFC 5802, section 3)."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def derive(mechanism: str, password: str, salt: bytes, iterations: int = ITERATIONS) -> ScramCredential:
    """Return the credential for a password."""
    name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    return ScramCredential(salt, iterations, stored_key, hmac.digest(salted, b"Server Key", name))


def attributes(message: str) -> dict[str, str]:
    """Parse `a=1,b=2` into a dictionary; raise AuthenticationError for any other format."""
    fields = {}
    for part in message.split(","):
        key, equals, value = part.partition("=")
        if not equals or len(key) != 1 or key in fields:
            raise AuthenticationError("malformed SCRAM message")
        fields[key] = value
    return fields


def decode_base64(text: str) -> bytes:
    """Decode Base64; raise AuthenticationError for invalid input."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise AuthenticationError("malformed SCRAM message") from error


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decode_text(token: bytes) -> str:
    """Decode UTF-8; raise AuthenticationError for invalid input."""
    try:
        return token.decode()
    except UnicodeDecodeError as error:
        raise AuthenticationError("malformed SCRAM message") from error


def xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


class ScramServer:
    """The server side of one exchange: call `begin`, `challenge` and `finish` in this order."""

    def __init__(self, mechanism: str, nonce: str) -> None:
        self._hash, self._nonce = HASHES[mechanism], nonce
        self._client_first = self._server_first = self._header = ""

    def begin(self, token: bytes) -> str:
        """Parse the client's first message and return the user name."""
        message = decode_text(token)
        self._header = message[:3]
        if self._header not in NO_BINDING:
            raise AuthenticationError("only SCRAM without channel binding and authorisation id is supported")
        self._client_first = message[3:]
        fields = attributes(self._client_first)
        if "n" not in fields or not fields.get("r"):
            raise AuthenticationError("malformed SCRAM message")
        self._nonce = fields["r"] + self._nonce
        return fields["n"].replace("=2C", ",").replace("=3D", "=")

    def challenge(self, credential: ScramCredential) -> bytes:
        """Return the server's first message: nonce, salt and iterations."""
        self._server_first = f"r={self._nonce},s={encode_base64(credential.salt)},i={credential.iterations}"
        return self._server_first.encode()

    def finish(self, token: bytes, credential: ScramCredential) -> bytes:
        """Verify the client's proof and return the server's final message, or raise AuthenticationError."""
        message = decode_text(token)
        fields = attributes(message)
        without_proof, _, _ = message.rpartition(",p=")
        if fields.get("c") != encode_base64(self._header.encode()) or fields.get("r") != self._nonce:
            raise AuthenticationError("malformed SCRAM message")
        proof = decode_base64(fields.get("p", ""))
        transcript = f"{self._client_first},{self._server_first},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, transcript, self._hash)
        if len(proof) != len(signature):
            raise AuthenticationError("malformed SCRAM message")
        client_key = xor(proof, signature)
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key):
            raise AuthenticationError("wrong user or password")
        return f"v={encode_base64(hmac.digest(credential.server_key, transcript, self._hash))}".encode()


class ScramClient:
    """The client side of one exchange: call `first`, `respond` and `verify` in this order."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        self._mechanism, self._hash, self._password, self._nonce = mechanism, HASHES[mechanism], password, nonce
        self._first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        """Return the client's first message."""
        return f"n,,{self._first}".encode()

    def respond(self, challenge: bytes) -> bytes:
        """Return the client's final message with the proof; raise AuthenticationError for an invalid challenge."""
        message = decode_text(challenge)
        fields = attributes(message)
        nonce, rounds = fields.get("r", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or not rounds.isdigit() or not ITERATIONS <= int(rounds) <= MAX_ITERATIONS:
            raise AuthenticationError("the server's SCRAM challenge is invalid")
        salt, iterations = decode_base64(fields.get("s", "")), int(rounds)
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        credential = derive(self._mechanism, self._password, salt, iterations)
        without_proof = f"c={encode_base64(b'n,,')},r={nonce}"
        transcript = f"{self._first},{message},{without_proof}".encode()
        self._signature = hmac.digest(credential.server_key, transcript, self._hash)
        proof = xor(client_key, hmac.digest(credential.stored_key, transcript, self._hash))
        return f"{without_proof},p={encode_base64(proof)}".encode()

    def verify(self, final: bytes) -> None:
        """Raise AuthenticationError unless the server proves that it has the credential of this user."""
        if not hmac.compare_digest(decode_base64(attributes(decode_text(final)).get("v", "")), self._signature):
            raise AuthenticationError("the server could not prove that it knows this user")
