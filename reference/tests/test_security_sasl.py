"""SASL without I/O: mechanisms follow the RFCs, and no request is served before authentication."""

import base64
import hashlib
import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from highwater.reference.effects import Request
from highwater.reference.security.login import Account, Login
from highwater.reference.security.mechanisms import MECHANISMS, Credentials
from highwater.reference.security.sasl import SASL, Authenticator, SaslState
from highwater.reference.security.scram import AuthenticationError, ScramClient, ScramServer, derive
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.framing import decode_request, encode_response
from highwater.reference.wire.messages.metadata import ApiVersionsRequest, MetadataRequest
from highwater.reference.wire.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest

USERS = {"alice": "secret", "bob,=": "pass=word"}


def authenticator(*mechanisms: str) -> Authenticator:
    return Authenticator(mechanisms or MECHANISMS, Credentials(USERS, b"salt"), lambda: "servernonce")


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
    assert not [before for before, _ in SASL.steps if before in {SaslState.COMPLETE, SaslState.FAILED}]
