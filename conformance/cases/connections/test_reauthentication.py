"""Sessions that expire, and re-authentication on the same connection (KIP-368)."""

from contextlib import suppress
from typing import Any

import pytest

from highwater.conformance.cases.support.sasl import (
    HASHES,
    assert_answers,
    authenticate,
    handshake,
    listener,
    log_in,
    plain,
    unauthenticated_connection,
)
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import HangUp, Reply, StaysOpen, defect, increment
from highwater.conformance.expectations import expect
from highwater.conformance.failures import Disconnected, Unsupported
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import ApiVersionsRequest, MetadataRequest
from highwater.reference.wire.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest

METADATA_REQUEST = MetadataRequest(topics=())
LONGEST_WAIT_MS = 10_000
CLOCKS_MS = 20
"""Added to each wait for the end of a session: the clocks of broker and suite count whole milliseconds."""
REAUTHENTICATION_INTERVAL_S = 1.0
ATTEMPTS = 3


class ExpiringSession:
    """A logged-in connection whose session expires, with the account of the listener.

    Raises Unsupported if no mechanism of the listener has such sessions, or if they last longer than a case waits.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._sasl = sasl = listener(cluster)
        usable = [name for name in sasl.sessions_ms if name in sasl.mechanisms]
        if not usable:
            raise Unsupported("the sessions of the listener do not expire (connections.max.reauth.ms)")
        self.mechanism = min(usable, key=lambda name: sasl.sessions_ms[name])
        self.lifetime_ms = sasl.sessions_ms[self.mechanism]
        self.broker: Broker = unauthenticated_connection(cluster)
        self.log_in()

    def log_in(self) -> Any:
        """Authenticate, again if the connection is authenticated already, and check the reply."""
        reply = log_in(self.broker, self.mechanism, self._sasl.user, self._sasl.password)
        expect("error code of the last message", 0, reply.error_code)
        expect("session lifetime", self.lifetime_ms, reply.session_lifetime_ms)
        self._began = self.broker.clock.monotonic()
        return reply

    def wait_for_end(self) -> None:
        """Sleep until the session has ended: it began before the broker sent its last reply."""
        if self.lifetime_ms > LONGEST_WAIT_MS:
            raise Unsupported(f"sessions of {self.lifetime_ms} ms last longer than a case waits")
        end = self._began + (self.lifetime_ms + CLOCKS_MS) / 1000
        self.broker.clock.sleep(max(0.0, end - self.broker.clock.monotonic()))

    def assert_answers(self) -> None:
        assert_answers(self.broker)


@clause("SEC-26")
@defect(
    Reply(SaslAuthenticateRequest, "session_lifetime_ms", 0),
    Reply(SaslAuthenticateRequest, "session_lifetime_ms", increment),
)
def test_the_last_reply_has_the_lifetime_of_the_session(cluster: Cluster) -> None:
    session = ExpiringSession(cluster)
    expect("session lifetime at a second login", session.lifetime_ms, session.log_in().session_lifetime_ms)


@clause("SEC-27")
@defect(StaysOpen(), HangUp(MetadataRequest))
@pytest.mark.slow
@pytest.mark.parametrize("request_", [METADATA_REQUEST, ApiVersionsRequest()], ids=["Metadata", "ApiVersions"])
def test_after_the_end_of_a_session_requests_close_the_connection(cluster: Cluster, request_: Any) -> None:
    session = ExpiringSession(cluster)
    session.assert_answers()
    session.wait_for_end()
    with suppress(Disconnected):  # the broker may have closed it at the end of the session
        session.broker.send(request_, 0)
    session.broker.expect_disconnect()


@clause("SEC-28", "before the end")
@defect(
    Reply(SaslHandshakeRequest, "error_code", ErrorCode.ILLEGAL_SASL_STATE),
    Reply(SaslAuthenticateRequest, "error_code", ErrorCode.SASL_AUTHENTICATION_FAILED),
)
def test_a_session_can_be_renewed(cluster: Cluster) -> None:
    session = ExpiringSession(cluster)
    session.log_in()
    session.assert_answers()


@clause("SEC-28", "after the end")
@defect(HangUp(MetadataRequest), StaysOpen())
@pytest.mark.slow
def test_a_session_can_be_renewed_after_its_end_and_ends_again(cluster: Cluster) -> None:
    session = ExpiringSession(cluster)
    session.wait_for_end()
    session.log_in()
    session.assert_answers()
    session.wait_for_end()
    with suppress(Disconnected):
        session.broker.send(METADATA_REQUEST, 8)
    session.broker.expect_disconnect()


def assert_login_fails(broker: Broker, mechanism: str, user: str, password: str) -> None:
    """Log in; a broker may close the connection instead of the last reply, but not earlier."""
    with suppress(Disconnected):
        reply = log_in(broker, mechanism, user, password)
        expect("error code of the last message", ErrorCode.SASL_AUTHENTICATION_FAILED, reply.error_code)
        broker.expect_disconnect()


@clause("SEC-29")
@defect(Reply(SaslAuthenticateRequest, "error_code", 0), StaysOpen())
@pytest.mark.parametrize("changed", ["user", "password"])
def test_a_renewal_by_another_user_or_with_a_wrong_password_is_refused(cluster: Cluster, changed: str) -> None:
    sasl, session = listener(cluster), ExpiringSession(cluster)
    if changed == "user" and not sasl.other_user:
        raise Unsupported("only one user of the listener is known")
    user, password = {"user": (sasl.other_user, sasl.password), "password": (sasl.user, "wrong")}[changed]
    if changed == "user":  # a broker that knows no such user would refuse it for another reason
        reply = log_in(unauthenticated_connection(cluster), session.mechanism, user, password)
        expect("error code for the other user on a new connection", 0, reply.error_code)
    assert_login_fails(session.broker, session.mechanism, user, password)


@clause("SEC-29", "mechanism")
@defect(Reply(SaslHandshakeRequest, "error_code", ErrorCode.ILLEGAL_SASL_STATE), StaysOpen())
def test_a_renewal_with_another_mechanism_is_refused(cluster: Cluster) -> None:
    sasl, session = listener(cluster), ExpiringSession(cluster)
    others = [name for name in sasl.mechanisms if name != session.mechanism]
    if not others:
        raise Unsupported("the listener has one mechanism only")
    reply = handshake(session.broker, others[0])
    expect("error code of SaslHandshake", {ErrorCode.NONE, ErrorCode.UNSUPPORTED_SASL_MECHANISM}, reply.error_code)
    token = plain(sasl.user, sasl.password) if others[0] not in HASHES else b"n,,n=user,r=nonce"
    with suppress(Disconnected):
        refused = authenticate(session.broker, token)
        expect("error code of SaslAuthenticate", ErrorCode.SASL_AUTHENTICATION_FAILED, refused.error_code)
        session.broker.expect_disconnect()


@clause("SEC-30")
@defect(Reply(SaslHandshakeRequest, "error_code", 0), HangUp(MetadataRequest))
@pytest.mark.slow
def test_a_session_is_not_renewed_twice_within_a_second(cluster: Cluster) -> None:
    session = ExpiringSession(cluster)
    for _ in range(ATTEMPTS):  # the second handshake is certainly too soon if its reply comes within the second
        before = cluster.clock.monotonic()
        session.log_in()
        reply = handshake(session.broker, session.mechanism)
        if cluster.clock.monotonic() - before < REAUTHENTICATION_INTERVAL_S:
            break
        session = ExpiringSession(cluster)
    else:
        raise Unsupported("two logins took longer than a second")
    expect("error code of the second handshake", ErrorCode.ILLEGAL_SASL_STATE, reply.error_code)
    cluster.clock.sleep(REAUTHENTICATION_INTERVAL_S + CLOCKS_MS / 1000)
    session.log_in()
    session.assert_answers()
