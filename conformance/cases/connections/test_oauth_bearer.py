"""OAUTHBEARER with unsecured tokens, which brokers accept in tests only (KIP-255, RFC 7628)."""

import json
from contextlib import suppress

import pytest

from highwater.conformance.cases.support.sasl import (
    assert_answers,
    assert_refused,
    authenticate,
    handshake,
    listener,
    start_handshake,
)
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.unsecured_tokens import LIFETIME_S, client_first, unsecured_token
from highwater.conformance.defects import HangUp, Reply, StaysOpen, defect
from highwater.conformance.expectations import expect
from highwater.conformance.failures import Disconnected, TargetFailure, Unsupported
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import MetadataRequest
from highwater.reference.wire.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest

OAUTHBEARER = "OAUTHBEARER"
DUMMY = b"\x01"
"""The answer of a client to the challenge with an error (RFC 7628, section 3.2.3)."""
LARGEST_CLOCK_DIFFERENCE_S = 60.0
SHORT_S = 1.2
CLOCKS_MS = 20


@pytest.fixture
def connection(cluster: Cluster) -> Broker:
    """Return a connection after SaslHandshake, for the first message of a client."""
    return start_handshake(cluster, OAUTHBEARER)


# -- valid tokens ----------------------------------------------------------------------------------------


@clause("SEC-31")
@defect(
    Reply(SaslAuthenticateRequest, "error_code", ErrorCode.SASL_AUTHENTICATION_FAILED),
    Reply(SaslAuthenticateRequest, "auth_bytes", b'{"status":"invalid_token"}'),
    HangUp(MetadataRequest),
)
@pytest.mark.parametrize("form", ["token", "authorization id", "extension", "scheme in capitals", "issued before"])
def test_a_valid_token_authenticates(cluster: Cluster, connection: Broker, form: str) -> None:
    user, now = listener(cluster).user, cluster.clock.time()
    token = unsecured_token(now, user, iat=now - LIFETIME_S if form == "issued before" else None)
    messages = {
        "authorization id": client_first(token, authorisation=user),
        "extension": client_first(token, extensions="traceId=1\x01"),
        "scheme in capitals": client_first(token, scheme="BEARER"),
    }
    reply = authenticate(connection, messages.get(form, client_first(token)))
    expect("error code", 0, reply.error_code)
    expect("answer", b"", reply.auth_bytes)
    assert_answers(connection)


# -- invalid tokens --------------------------------------------------------------------------------------


def invalid_token(now: float, user: str, mistake: str) -> str:
    match mistake:
        case "expired":
            return unsecured_token(now, user, exp=now - LIFETIME_S)
        case "issued later":
            return unsecured_token(now, user, iat=now + LIFETIME_S, exp=now + 2 * LIFETIME_S)
        case "expired before it was issued":
            return unsecured_token(now, user, iat=now - LIFETIME_S, exp=now - 2 * LIFETIME_S)
        case "no expiration":
            return unsecured_token(now, user, exp=None)
        case "expiration is text":
            return unsecured_token(now, user, exp="tomorrow")
        case "no principal":
            return unsecured_token(now, user, sub=None)
        case "empty principal":
            return unsecured_token(now, "")
        case "algorithm":
            return unsecured_token(now, user, header={"alg": "HS256"})
        case "signature":
            return unsecured_token(now, user, signature="AAAA")
    return "AAAA"


MISTAKES = (
    "expired", "issued later", "expired before it was issued", "no expiration", "expiration is text", "no principal",
    "empty principal", "algorithm", "signature", "no token",
)  # fmt: skip


@clause("SEC-32")
@defect(Reply(SaslAuthenticateRequest, "auth_bytes", b""), Reply(SaslAuthenticateRequest, "error_code", 0), StaysOpen())
@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_invalid_token_gets_a_challenge_with_the_error(cluster: Cluster, connection: Broker, mistake: str) -> None:
    challenge = authenticate(
        connection, client_first(invalid_token(cluster.clock.time(), listener(cluster).user, mistake))
    )
    expect("error code of the challenge", 0, challenge.error_code)
    expect("session lifetime of the challenge", 0, challenge.session_lifetime_ms)
    expect("status of the challenge", "invalid_token", _status(challenge.auth_bytes))
    assert_refused(connection, DUMMY)


def _status(challenge: bytes) -> object:
    """Return the status of an error (RFC 7628, section 3.2.2); raise TargetFailure for anything else."""
    try:
        return json.loads(challenge)["status"]
    except (ValueError, KeyError, TypeError) as error:
        raise TargetFailure("the challenge", expected="JSON with a status", actual=repr(challenge)) from error


# -- malformed messages ----------------------------------------------------------------------------------


def malformed_message(now: float, user: str, mistake: str) -> bytes:
    token = unsecured_token(now, user)
    messages = {
        "empty": b"",
        "byte 1": DUMMY,  # the answer to a challenge that the broker did not send
        "no text": b"\xff\xff",
        "no pairs": b"n,,\x01\x01",
        "no end": client_first(token)[:-1],
        "no token": client_first(""),
        "two tokens": client_first(f"{token} {token}"),
        "name of an extension": client_first(token, extensions="1=1\x01"),
        "authorization id": client_first(token, authorisation="another-user"),
    }
    return messages[mistake]


@clause("SEC-33")
@defect(Reply(SaslAuthenticateRequest, "error_code", 0), StaysOpen())
@pytest.mark.parametrize(
    "mistake",
    [
        "empty", "byte 1", "no text", "no pairs", "no end", "no token", "two tokens", "name of an extension",
        "authorization id",
    ],
)  # fmt: skip
def test_a_malformed_message_is_refused(cluster: Cluster, connection: Broker, mistake: str) -> None:
    assert_refused(connection, malformed_message(cluster.clock.time(), listener(cluster).user, mistake))


@clause("SEC-33", "scheme")
@defect(Reply(SaslAuthenticateRequest, "error_code", 0), StaysOpen())
def test_another_scheme_is_refused(cluster: Cluster, connection: Broker) -> None:
    """Apache Kafka closes the connection without a reply: its error message names a group that its pattern lacks."""
    with suppress(Disconnected):
        assert_refused(
            connection, client_first(unsecured_token(cluster.clock.time(), listener(cluster).user), scheme="Basic")
        )


# -- the lifetime of a token -----------------------------------------------------------------------------


def clock_difference_s(connection: Broker, user: str) -> float:
    """Log in with a token of an hour, and return by how much the broker's clock is ahead of this one, in seconds.

    Raises Unsupported if sessions are shorter than tokens (connections.max.reauth.ms), or if the clocks differ by more
    than a minute.
    """
    expires = connection.clock.time() + LIFETIME_S
    reply = authenticate(connection, client_first(unsecured_token(connection.clock.time(), user, exp=expires)))
    expect("error code", 0, reply.error_code)
    lifetime_ms: int = reply.session_lifetime_ms
    expect("there is a session lifetime", True, lifetime_ms > 0)
    difference = expires - connection.clock.time() - lifetime_ms / 1000
    if abs(difference) > LARGEST_CLOCK_DIFFERENCE_S:
        raise Unsupported("the lifetime of the session is not that of the token, or the clocks differ by a minute")
    return difference


@clause("SEC-34")
@defect(
    Reply(SaslAuthenticateRequest, "session_lifetime_ms", 0),
    Reply(SaslHandshakeRequest, "error_code", ErrorCode.ILLEGAL_SASL_STATE),
    StaysOpen(),
)
@pytest.mark.slow
@pytest.mark.parametrize("renewal", ["none", "same user", "other user"])
def test_a_session_ends_with_its_token(cluster: Cluster, connection: Broker, renewal: str) -> None:
    user = listener(cluster).user
    difference = clock_difference_s(start_handshake(cluster, OAUTHBEARER), user)
    token = unsecured_token(connection.clock.time(), user, exp=cluster.clock.time() + difference + SHORT_S)
    reply = authenticate(connection, client_first(token))
    expect("error code", 0, reply.error_code)
    expect("the session is no longer than the token", True, 0 < reply.session_lifetime_ms <= SHORT_S * 1000 + CLOCKS_MS)
    assert_answers(connection)
    cluster.clock.sleep((reply.session_lifetime_ms + CLOCKS_MS) / 1000)
    if renewal == "none":
        with suppress(Disconnected):
            connection.send(MetadataRequest(topics=()), 8)
        connection.expect_disconnect()
        return
    expect("error code of SaslHandshake", 0, handshake(connection, OAUTHBEARER).error_code)
    if renewal == "other user":
        assert_refused(connection, client_first(unsecured_token(connection.clock.time(), "another-user")))
    else:
        expect(
            "error code",
            0,
            authenticate(connection, client_first(unsecured_token(connection.clock.time(), user))).error_code,
        )
        assert_answers(connection)


@clause("SEC-34", "limit of the broker")
@defect(Reply(SaslAuthenticateRequest, "session_lifetime_ms", 1_000))
@pytest.mark.parametrize("factor", [0.5, 2.0], ids=["earlier token", "later token"])
def test_a_session_ends_with_the_earlier_of_both_limits(cluster: Cluster, connection: Broker, factor: float) -> None:
    sasl = listener(cluster)
    limit_ms = sasl.sessions_ms.get(OAUTHBEARER)
    if limit_ms is None:
        raise Unsupported("sessions of OAUTHBEARER have no limit besides their token (connections.max.reauth.ms)")
    token = unsecured_token(cluster.clock.time(), sasl.user, exp=cluster.clock.time() + factor * limit_ms / 1000)
    reply = authenticate(connection, client_first(token))
    expect("error code", 0, reply.error_code)
    difference_ms = reply.session_lifetime_ms - min(1.0, factor) * limit_ms
    expect(
        f"the session lifetime is {reply.session_lifetime_ms} ms of at most {limit_ms} ms", True,
        abs(difference_ms) <= LARGEST_CLOCK_DIFFERENCE_S * 1000,
    )  # fmt: skip
