"""The client side of SASL PLAIN (RFC 4616) and SCRAM (RFC 5802), which can also send wrong messages."""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Any, Final

from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.expectations import expect
from highwater.conformance.failures import TargetFailure, Unsupported
from highwater.conformance.targets.base import SaslListener
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import ApiVersionsRequest, MetadataRequest
from highwater.reference.wire.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
HANDSHAKE_WITH_FRAMES: Final = 1


def listener(cluster: Cluster, mechanism: str = "") -> SaslListener:
    """Return the SASL listener; raises Unsupported if there is none or it lacks the mechanism."""
    found = cluster.target.sasl
    if found is None:
        raise Unsupported("the target has no listener that requires a login")
    if mechanism and mechanism not in found.mechanisms:
        raise Unsupported(f"the target does not support {mechanism}")
    return found


def log_in(broker: Broker, mechanism: str, user: str, password: str) -> Any:
    """Authenticate on a connection, again if it is authenticated already, and return the last reply.

    The last reply may be an error; all earlier ones must not be.
    """
    expect("error code of SaslHandshake", 0, handshake(broker, mechanism).error_code)
    if mechanism not in HASHES:
        return authenticate(broker, plain(user, password))
    client = Scram(mechanism, user, password)
    challenge = authenticate(broker, client.first())
    expect("error code of the first message", 0, challenge.error_code)
    expect("session lifetime before the last message", 0, challenge.session_lifetime_ms)
    return authenticate(broker, client.final(challenge.auth_bytes))


def connect_without_login(cluster: Cluster, mechanism: str = "") -> Broker:
    """Connect to the SASL listener, and send nothing; raises Unsupported as `listener` does."""
    found = listener(cluster, mechanism)
    return cluster.connect(found.address, access=found.access)


def unauthenticated_connection(cluster: Cluster, mechanism: str = "") -> Broker:
    """Connect to the SASL listener without login, and check that ApiVersions is answered."""
    broker = connect_without_login(cluster, mechanism)
    expect("error code of ApiVersions", 0, broker.exchange(ApiVersionsRequest(), 0).error_code)
    return broker


def handshake(broker: Broker, mechanism: str, version: int = HANDSHAKE_WITH_FRAMES) -> Any:
    return broker.call(SaslHandshakeRequest(mechanism=mechanism), version)


def start_handshake(cluster: Cluster, mechanism: str) -> Broker:
    """Return a connection after a successful SaslHandshake."""
    broker = unauthenticated_connection(cluster, mechanism)
    expect("error code of SaslHandshake", 0, handshake(broker, mechanism).error_code)
    return broker


def authenticate(broker: Broker, token: bytes, version: int | None = None) -> Any:
    return broker.call(SaslAuthenticateRequest(auth_bytes=token), version)


def assert_answers(broker: Broker) -> None:
    expect("there are brokers", True, bool(broker.call(MetadataRequest(topics=()), 8).brokers))


def assert_refused(broker: Broker, token: bytes) -> None:
    """The broker returns an error with a message and closes the connection."""
    reply = authenticate(broker, token)
    expect("error code of SaslAuthenticate", ErrorCode.SASL_AUTHENTICATION_FAILED, reply.error_code)
    expect("there is an error message", True, bool(reply.error_message))
    broker.expect_disconnect()


def plain(user: str, password: str, authorisation: str = "") -> bytes:
    return f"{authorisation}\0{user}\0{password}".encode()


@dataclass(frozen=True, slots=True)
class Challenge:
    """Fields of the first server message of SCRAM."""

    nonce: str
    salt: bytes
    iterations: int

    @classmethod
    def read(cls, message: bytes) -> "Challenge":
        """Parse `r=...,s=...,i=...`; raises TargetFailure for anything else."""
        try:
            found = attributes(message)
            return cls(found["r"], base64.b64decode(found["s"], validate=True), int(found["i"]))
        except (KeyError, ValueError) as error:
            raise TargetFailure(f"expected a SCRAM challenge, got {message!r}") from error


def attributes(message: bytes) -> dict[str, str]:
    """Parse comma-separated `name=value` pairs; raises ValueError."""
    return dict(part.split("=", 1) for part in message.decode().split(","))


class Scram:
    """One SCRAM exchange: send `first`, send `final` for the challenge, check the last reply with `verifies_server`."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str = "", extensions: str = "") -> None:
        """Start an exchange; `extensions` are appended to the first message, each with a comma before it."""
        self._hash, self._password = HASHES[mechanism], password
        self.nonce = nonce or secrets.token_hex(12)
        self._first = f"n={user},r={self.nonce}{extensions}"
        self._transcript = self._salted = b""

    def first(self) -> bytes:
        return f"n,,{self._first}".encode()

    def final(self, challenge: bytes, *, nonce: str | None = None) -> bytes:
        """Return the final client message, with the nonce of the challenge or another one and a valid proof."""
        server_first = Challenge.read(challenge)
        self._salted = salted_password(self._hash, self._password, server_first.salt, server_first.iterations)
        client_key = hmac.digest(self._salted, b"Client Key", self._hash)
        without_proof = f"c=biws,r={server_first.nonce if nonce is None else nonce}"
        self._transcript = f"{self._first},{challenge.decode()},{without_proof}".encode()
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = hmac.digest(stored_key, self._transcript, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verifies_server(self, last: bytes) -> bool:
        """Return whether the server signature is valid."""
        server_key = hmac.digest(self._salted, b"Server Key", self._hash)
        expected = base64.b64encode(hmac.digest(server_key, self._transcript, self._hash)).decode()
        return last == f"v={expected}".encode()


def salted_password(hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
