"""SASL without I/O: mechanisms follow the RFCs, and no request is served before authentication."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from highwater.reference.effects import Instant, Request
from highwater.reference.security.login import Account, Login
from highwater.reference.security.mechanisms import MECHANISMS, Credentials
from highwater.reference.security.oauth_bearer import OAUTHBEARER
from highwater.reference.security.sasl import SASL, Authenticator, SaslState
from highwater.reference.security.scram import AuthenticationError, ScramClient, ScramServer, derive
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.framing import decode_request, encode_response
from highwater.reference.wire.messages.metadata import ApiVersionsRequest, MetadataRequest
from highwater.reference.wire.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest

WALL_MS = 1_700_000_000_000
USERS = {"alice": "secret", "bob,=": "pass=word"}


def authenticator(
    *mechanisms: str,
    lifetimes_ms: Mapping[str, int] | None = None,
    clock: Callable[[], Instant] = lambda: Instant(0, 0),
) -> Authenticator:
    credentials = Credentials(USERS, b"salt")
    return Authenticator(mechanisms or MECHANISMS, credentials, lambda: "servernonce", lifetimes_ms or {}, clock)


def ask(server: Authenticator, body: Any, version: int = 1) -> Any:
    return server.receive(Request(1, version, body))


def log_in(server: Authenticator, account: Account) -> None:
    """Run client and server over encoded frames; raises AuthenticationError of the client."""
    login = Login(account, "clientnonce", "test")
    frame: bytes | None = login.first()
    while frame is not None:
        header, body = decode_request(frame[4:])
        answer = ask(server, body, header.api_version)
        assert answer is not None
        frame = login.receive(encode_response(answer, header.api_version, header.correlation_id)[4:])


def test_the_example_of_rfc_7677() -> None:
    """User `user`, password `pencil`: the messages are byte-identical to those in the RFC."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    server = ScramServer("SCRAM-SHA-256", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    credential = derive("SCRAM-SHA-256", "pencil", salt)
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert server.begin(client.first()) == "user"
    challenge = server.challenge(credential)
    assert challenge == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    proof = client.respond(challenge)
    assert proof.endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    final = server.finish(proof, credential)
    assert final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    client.verify(final)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", USERS)
def test_the_right_password_authenticates(mechanism: str, user: str) -> None:
    server = authenticator()
    log_in(server, Account(mechanism, user, USERS[user]))
    assert server.complete
    assert server.user == user


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("alice", ""), ("unknown", "secret"), ("", "")])
def test_a_wrong_password_or_user_gets_the_same_error(mechanism: str, user: str, password: str) -> None:
    server = authenticator()
    with pytest.raises(AuthenticationError, match=r"^wrong user or password$"):
        log_in(server, Account(mechanism, user, password))
    assert server.failed
    assert not server.user


def test_a_server_that_does_not_know_the_password_is_not_trusted() -> None:
    client = ScramClient("SCRAM-SHA-512", "alice", "secret", "c")
    client.respond(b"r=cs,s=c2FsdA==,i=4096")
    with pytest.raises(AuthenticationError, match="could not prove"):
        client.verify(b"v=" + base64.b64encode(hmac.digest(b"guess", b"", hashlib.sha512)))
    with pytest.raises(AuthenticationError, match="is invalid"):
        ScramClient("SCRAM-SHA-512", "alice", "secret", "c").respond(b"r=other,s=c2FsdA==,i=4096")
    with pytest.raises(AuthenticationError, match="is invalid"):  # too few iterations make the password cheap to guess
        ScramClient("SCRAM-SHA-512", "alice", "secret", "c").respond(b"r=cs,s=c2FsdA==,i=1")


def test_a_replayed_proof_is_refused() -> None:
    """The nonce belongs to another exchange."""
    client, first = ScramClient("SCRAM-SHA-256", "alice", "secret", "c"), ScramServer("SCRAM-SHA-256", "one")
    credential = derive("SCRAM-SHA-256", "secret", b"salt")
    first.begin(client.first())
    proof = client.respond(first.challenge(credential))
    second = ScramServer("SCRAM-SHA-256", "two")
    second.begin(client.first())
    second.challenge(credential)
    with pytest.raises(AuthenticationError):
        second.finish(proof, credential)


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are() -> None:
    server = authenticator("PLAIN")
    answer = ask(server, SaslHandshakeRequest(mechanism="GSSAPI"))
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ("PLAIN",))
    assert server.failed


@pytest.mark.parametrize("body", [MetadataRequest(), SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")])
def test_requests_before_the_handshake_are_refused(body: Any) -> None:
    server = authenticator()
    assert ask(server, body) is None
    assert server.failed


@pytest.mark.parametrize("body", [MetadataRequest(), SaslHandshakeRequest(mechanism="PLAIN"), ApiVersionsRequest()])
def test_requests_between_handshake_and_authentication_are_refused(body: Any) -> None:
    server = authenticator()
    ask(server, SaslHandshakeRequest(mechanism="PLAIN"))
    assert not server.accepts_api_versions(Request(1, 0, body))
    assert ask(server, body) is None
    assert server.failed


def test_api_versions_is_answered_before_authentication_in_any_version() -> None:
    assert authenticator().accepts_api_versions(Request(1, 3, ApiVersionsRequest()))
    assert authenticator().accepts_api_versions(Request(1, 99, None))


def test_unframed_tokens_follow_version_0_of_the_handshake() -> None:
    server = authenticator()
    ask(server, SaslHandshakeRequest(mechanism="PLAIN"), version=0)
    assert server.state is SaslState.BARE_TOKENS
    assert server.process_token(b"\0alice\0secret") == b""
    assert server.complete


@given(tokens=st.lists(st.binary(max_size=60) | st.text("nrcp=,vsiAB0", max_size=40).map(str.encode), max_size=3),
       mechanism=st.sampled_from(MECHANISMS))  # fmt: skip
def test_invalid_tokens_never_authenticate(tokens: list[bytes], mechanism: str) -> None:
    server = authenticator()
    ask(server, SaslHandshakeRequest(mechanism=mechanism))
    for token in tokens:
        if not server.failed:
            ask(server, SaslAuthenticateRequest(auth_bytes=token))
    assert not server.complete


def test_complete_follows_only_token_states() -> None:
    into = {before for before, after in SASL.steps if after is SaslState.COMPLETE}
    assert into == {SaslState.AUTHENTICATE, SaslState.BARE_TOKENS}
    assert not [before for before, _ in SASL.steps if before is SaslState.FAILED]


# -- re-authentication (KIP-368) ---------------------------------------------------------------------


class Expiring:
    """A connection of alice whose SCRAM-SHA-512 sessions last 5 seconds, on a clock that the test sets."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.server = authenticator(
            lifetimes_ms={"SCRAM-SHA-512": 5_000}, clock=lambda: Instant(self.now_ms, WALL_MS + self.now_ms)
        )

    def log_in(self, user: str = "alice", mechanism: str = "SCRAM-SHA-512") -> None:
        log_in(self.server, Account(mechanism, user, USERS[user]))


@pytest.mark.parametrize(("mechanism", "lifetime_ms"), [("PLAIN", 0), ("SCRAM-SHA-512", 5_000)])
def test_the_last_reply_has_the_lifetime_of_the_session(mechanism: str, lifetime_ms: int) -> None:
    server, client = Expiring().server, ScramClient("SCRAM-SHA-512", "alice", "secret", "c")
    ask(server, SaslHandshakeRequest(mechanism=mechanism))
    token = b"\0alice\0secret"
    if mechanism != "PLAIN":
        challenge = ask(server, SaslAuthenticateRequest(auth_bytes=client.first()))
        assert challenge.session_lifetime_ms == 0
        token = client.respond(challenge.auth_bytes)
    assert ask(server, SaslAuthenticateRequest(auth_bytes=token)).session_lifetime_ms == lifetime_ms


def test_a_session_ends_after_its_lifetime_and_a_reauthentication_starts_the_next() -> None:
    connection = Expiring()

    def expired_at(now_ms: int) -> bool:
        connection.now_ms = now_ms
        return connection.server.expired

    connection.log_in()
    assert [expired_at(now_ms) for now_ms in (5_000, 5_001)] == [False, True]
    assert connection.server.begins_reauthentication(17)
    connection.log_in()
    assert connection.server.complete
    assert [expired_at(now_ms) for now_ms in (10_001, 10_002)] == [False, True]


def test_only_a_handshake_of_a_session_that_may_expire_starts_a_reauthentication() -> None:
    connection, other = Expiring(), Expiring()
    connection.log_in()
    assert not connection.server.begins_reauthentication(3)
    other.log_in(mechanism="PLAIN")
    other.now_ms = 1 << 40
    assert not other.server.begins_reauthentication(17)
    assert not other.server.expired


def test_reauthentications_begin_at_least_a_second_after_each_other() -> None:
    connection = Expiring()
    connection.log_in()
    assert connection.server.begins_reauthentication(17)
    connection.log_in()
    connection.now_ms = 999
    assert not connection.server.begins_reauthentication(17)
    connection.now_ms = 1_000
    assert connection.server.begins_reauthentication(17)


def test_a_reauthentication_keeps_user_and_mechanism() -> None:
    user, mechanism = Expiring(), Expiring()
    user.log_in()
    with pytest.raises(AuthenticationError, match="user of a connection cannot change"):
        user.log_in("bob,=")
    assert user.server.failed
    mechanism.log_in()
    assert ask(mechanism.server, SaslHandshakeRequest(mechanism="PLAIN")).error_code == ErrorCode.NONE
    assert ask(mechanism.server, SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")) is None
    assert mechanism.server.failed


# -- OAUTHBEARER (RFC 7628, KIP-255) -----------------------------------------------------------------


def encoded(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def bearer(signature: str = "", algorithm: str = "none", **claims: Any) -> str:
    usual = {"sub": "alice", "exp": WALL_MS / 1000 + 60}
    return f"{encoded({'alg': algorithm})}.{encoded(usual | claims)}.{signature}"


def client_first(token: str, authzid: str = "", extensions: str = "") -> bytes:
    return f"n,{authzid},\x01auth=Bearer {token}\x01{extensions}\x01".encode()


def oauth_server() -> Authenticator:
    server = authenticator(OAUTHBEARER, clock=lambda: Instant(0, WALL_MS))
    ask(server, SaslHandshakeRequest(mechanism=OAUTHBEARER))
    return server


@pytest.mark.parametrize(
    "message",
    [
        client_first(bearer()),
        client_first(bearer(), authzid="a=alice"),
        client_first(bearer(), extensions="traceId=1\x01"),
        client_first(bearer(exp=WALL_MS / 1000 + 0.001)),
        client_first(bearer(iat=WALL_MS / 1000)),
        client_first(bearer(sub="a,b=?>~"), authzid="a=a=2Cb=3D?>~"),
    ],
)
def test_a_valid_token_authenticates_its_principal_for_its_lifetime(message: bytes) -> None:
    server = oauth_server()
    reply = ask(server, SaslAuthenticateRequest(auth_bytes=message))
    assert (reply.error_code, reply.auth_bytes) == (ErrorCode.NONE, b"")
    assert server.user in {"alice", "a,b=?>~"}
    assert reply.session_lifetime_ms in {1, 60_000}


@pytest.mark.parametrize(
    "token",
    [
        bearer(exp=WALL_MS / 1000),
        bearer(exp="soon"),
        bearer(exp=None),
        bearer(exp=True),
        bearer(sub=None),
        bearer(sub=" "),
        bearer(sub=1),
        bearer(iat=WALL_MS / 1000 + 1),
        bearer(iat=WALL_MS / 1000 - 1, exp=WALL_MS / 1000 - 2),
        bearer(signature="AAAA"),
        bearer(algorithm="HS256"),
        bearer()[:-1],
        f"{encoded([1])}.{encoded({})}.",
        "abc",
        "AAAA.AAAA.",
    ],
)
def test_an_invalid_token_gets_a_challenge_and_then_an_error(token: str) -> None:
    server = oauth_server()
    challenge = ask(server, SaslAuthenticateRequest(auth_bytes=client_first(token)))
    assert (challenge.error_code, json.loads(challenge.auth_bytes)) == (ErrorCode.NONE, {"status": "invalid_token"})
    assert not server.complete
    reply = ask(server, SaslAuthenticateRequest(auth_bytes=b"\x01"))
    assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert json.loads(reply.error_message) == {"status": "invalid_token"}
    assert server.failed


def test_a_token_must_be_valid_when_it_arrives_not_at_the_handshake() -> None:
    now_ms = WALL_MS
    server = authenticator(OAUTHBEARER, clock=lambda: Instant(0, now_ms))
    ask(server, SaslHandshakeRequest(mechanism=OAUTHBEARER))
    now_ms += 60_000
    ask(server, SaslAuthenticateRequest(auth_bytes=client_first(bearer())))
    assert not server.complete


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\x01", b"\xff", b"n,,", b"n,,\x01\x01", b"n,,\x01auth=Bearer\x01\x01", b"n,,\x01auth=Basic a.b.\x01\x01",
        b"y,,\x01auth=Bearer a.b.\x01\x01", b"n,,\x01auth=Bearer a.b.\x01", b"n,,\x01auth=Bearer a b\x01\x01",
        client_first(bearer(), extensions="1=2\x01"), client_first(bearer(), authzid="a=bob"),
        client_first(bearer(), authzid="a="),
    ],
)  # fmt: skip
def test_a_malformed_message_or_another_authorization_id_is_refused(message: bytes) -> None:
    server = oauth_server()
    reply = ask(server, SaslAuthenticateRequest(auth_bytes=message))
    assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert server.failed
