"""SASL logins, and requests before and after a login."""

import struct
from contextlib import suppress
from typing import Any

import pytest

from highwater.conformance.cases.support.admin import controller
from highwater.conformance.cases.support.sasl import (
    HASHES,
    Challenge,
    Scram,
    assert_answers,
    assert_refused,
    authenticate,
    connect_without_login,
    handshake,
    listener,
    log_in,
    plain,
    salted_password,
    start_handshake,
    unauthenticated_connection,
)
from highwater.conformance.clause import clause, sweep
from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, StaysOpen, defect
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Disconnected, Unsupported
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.framing import encode_request
from highwater.reference.wire.messages.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from highwater.reference.wire.messages.security import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from highwater.reference.wire.registry import api_of

PLAIN = "PLAIN"
LEAST_ITERATIONS = 4096
LIFETIME_SINCE = 1
HUGE = 2 << 20
LARGE, NAME_SIZE = 600_000, 240
CLIENT_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(200)
METADATA_REQUEST = MetadataRequest(topics=())

scram = pytest.mark.parametrize("mechanism", list(HASHES))


# -- the handshake (KIP-43, KIP-152) ---------------------------------------------------------------------


@clause("SEC-9")
@defect(Reply(SaslHandshakeRequest, "error_code", 0), Reply(SaslHandshakeRequest, "mechanisms", ()))
@sweep(SaslHandshakeRequest)
def test_a_mechanism_that_is_not_there_is_refused(cluster: Cluster, version: int) -> None:
    broker = unauthenticated_connection(cluster)
    reply = handshake(broker, "SMOKE-SIGNAL", version)
    expect("error code", ErrorCode.UNSUPPORTED_SASL_MECHANISM, reply.error_code)
    expect("mechanisms", True, set(reply.mechanisms) >= set(listener(cluster).mechanisms))
    broker.expect_disconnect()


@clause("SEC-9", "enabled")
@defect(Reply(SaslHandshakeRequest, "error_code", ErrorCode.UNSUPPORTED_SASL_MECHANISM))
def test_every_mechanism_is_there(cluster: Cluster) -> None:
    for mechanism in listener(cluster).mechanisms:
        reply = handshake(unauthenticated_connection(cluster), mechanism)
        expect(f"error code of {mechanism}", 0, reply.error_code)
        expect("the mechanism is in the list", True, mechanism in reply.mechanisms)


@clause("SEC-11", "nothing said")
@defect(StaysOpen())
@pytest.mark.parametrize(
    "request_", [METADATA_REQUEST, FindCoordinatorRequest(key="g")], ids=["Metadata", "FindCoordinator"]
)
def test_strangers_are_not_answered(cluster: Cluster, request_: Any) -> None:
    broker = unauthenticated_connection(cluster)
    broker.send(request_, 1)
    broker.expect_disconnect()


@clause("SEC-11", "half way")
@defect(StaysOpen())
@pytest.mark.parametrize(
    ("request_", "field", "expected"),
    [
        pytest.param(METADATA_REQUEST, "brokers", (), id="Metadata"),
        pytest.param(
            SaslHandshakeRequest(mechanism=PLAIN), "error_code", ErrorCode.ILLEGAL_SASL_STATE, id="SaslHandshake"
        ),
    ],
)
def test_who_has_not_finished_is_told_nothing(cluster: Cluster, request_: Any, field: str, expected: object) -> None:
    broker = start_handshake(cluster, PLAIN)
    correlation_id = broker.send(request_, 1)
    with suppress(Disconnected):
        reply = broker.receive(api_of(type(request_)), 1, correlation_id)
        expect(f"{field} of a reply", expected, getattr(reply, field))
        broker.expect_disconnect()


@clause("SEC-12")
@defect(Reply(ApiVersionsRequest, "api_keys", ()))
@sweep(ApiVersionsRequest)
def test_strangers_may_ask_for_versions(cluster: Cluster, version: int) -> None:
    broker = connect_without_login(cluster, PLAIN)
    request = ApiVersionsRequest(client_software_name="highwater", client_software_version="1.0")
    reply = broker.call(request, version)
    expect("error code", 0, reply.error_code)
    expect("SaslHandshake is advertised", True, api_of(SaslHandshakeRequest).key in {k.api_key for k in reply.api_keys})
    expect("error code of the handshake that follows", 0, handshake(broker, PLAIN).error_code)


@clause("SEC-12", "unknown version")
@defect(Reply(ApiVersionsRequest, "error_code", 0))
def test_strangers_may_ask_for_versions_too_new(cluster: Cluster) -> None:
    broker = connect_without_login(cluster)
    data = encode_request(ApiVersionsRequest(client_software_name="h", client_software_version="1"), 4, 7, "c")
    broker.send_bytes(data.replace(b"\0\x12\0\x04", b"\0\x12\x7f\xff", 1))
    reply = broker.receive(api_of(ApiVersionsRequest), 0, 7)
    expect("error code", ErrorCode.UNSUPPORTED_VERSION, reply.error_code)


@clause("SEC-13")
@defect(StaysOpen())
def test_a_token_needs_a_handshake(cluster: Cluster) -> None:
    sasl = listener(cluster, PLAIN)
    broker = unauthenticated_connection(cluster)
    broker.send(SaslAuthenticateRequest(auth_bytes=plain(sasl.user, sasl.password)), 1)
    broker.expect_disconnect()


@clause("SEC-14")
@defect(Reply(SaslHandshakeRequest, "error_code", 0), Reply(SaslAuthenticateRequest, "error_code", 0))
def test_where_nobody_logs_in_sasl_is_out_of_place(broker: Broker) -> None:
    expect("error code of SaslHandshake", ErrorCode.ILLEGAL_SASL_STATE, handshake(broker, PLAIN).error_code)
    expect(
        "error code of SaslAuthenticate", ErrorCode.ILLEGAL_SASL_STATE, authenticate(broker, plain("a", "b")).error_code
    )


# -- PLAIN -----------------------------------------------------------------------------------------------


@clause("SEC-15")
@defect(Reply(SaslAuthenticateRequest, "error_code", ErrorCode.SASL_AUTHENTICATION_FAILED))
@sweep(SaslAuthenticateRequest)
def test_who_knows_the_password_is_let_in(cluster: Cluster, version: int) -> None:
    sasl = listener(cluster, PLAIN)
    broker = start_handshake(cluster, PLAIN)
    reply = authenticate(broker, plain(sasl.user, sasl.password), version)
    expect("error code of SaslAuthenticate", 0, reply.error_code)
    if version >= LIFETIME_SINCE:
        expect("session lifetime", sasl.sessions_ms.get(PLAIN, 0), reply.session_lifetime_ms)
    assert_answers(broker)


@clause("SEC-15", "tokens alone")
@defect(Reply(SaslHandshakeRequest, "error_code", ErrorCode.UNSUPPORTED_SASL_MECHANISM))
def test_after_handshake_0_tokens_stand_alone(cluster: Cluster) -> None:
    sasl = listener(cluster, PLAIN)
    broker = unauthenticated_connection(cluster)
    expect("error code of SaslHandshake", 0, handshake(broker, PLAIN, 0).error_code)
    token = plain(sasl.user, sasl.password)
    broker.send_bytes(struct.pack(">i", len(token)) + token)
    expect("answer", b"", broker.receive_frame())
    assert_answers(broker)


@clause("SEC-16", "tokens alone")
@defect(StaysOpen())
def test_after_handshake_0_a_wrong_password_ends_the_connection(cluster: Cluster) -> None:
    broker = unauthenticated_connection(cluster, PLAIN)
    expect("error code of SaslHandshake", 0, handshake(broker, PLAIN, 0).error_code)
    token = plain(listener(cluster).user, "wrong")
    broker.send_bytes(struct.pack(">i", len(token)) + token)
    broker.expect_disconnect()


@clause("SEC-16")
@defect(Reply(SaslAuthenticateRequest, "error_code", 0), StaysOpen())
@pytest.mark.parametrize("mistake", ["password", "user", "nobody", "no password", "no separators", "another's name"])
def test_who_does_not_know_the_password_is_refused(cluster: Cluster, mistake: str) -> None:
    sasl = listener(cluster, PLAIN)
    tokens = {
        "password": plain(sasl.user, sasl.password + "x"),
        "user": plain("unknown", sasl.password),
        "nobody": plain("", sasl.password),
        "no password": plain(sasl.user, ""),
        "no separators": sasl.user.encode(),
        "another's name": plain(sasl.user, sasl.password, authorisation="unknown"),
    }
    assert_refused(start_handshake(cluster, PLAIN), tokens[mistake])


@clause("SEC-17")
@defect(Reply(SaslAuthenticateRequest, "error_message", None))
def test_it_is_not_told_what_was_wrong(cluster: Cluster) -> None:
    sasl = listener(cluster, PLAIN)
    tokens = (plain(sasl.user, "wrong"), plain("unknown", "wrong"))
    messages = [authenticate(start_handshake(cluster, PLAIN), token).error_message for token in tokens]
    expect("there is a message", True, bool(messages[0]))
    expect("message for an unknown user", messages[0], messages[1])


# -- SCRAM (KIP-84) --------------------------------------------------------------------------------------


def start_scram(cluster: Cluster, mechanism: str, **changed: str) -> tuple[Broker, Scram, bytes]:
    """Start a SCRAM exchange and return connection, client and the server's challenge."""
    sasl = listener(cluster, mechanism)
    client = Scram(mechanism, **{"user": sasl.user, "password": sasl.password, **changed})
    broker = start_handshake(cluster, mechanism)
    reply = authenticate(broker, client.first())
    expect("error code of the first message", 0, reply.error_code)
    return broker, client, reply.auth_bytes


@clause("SEC-18")
@defect(Reply(SaslAuthenticateRequest, "auth_bytes", b"v=AAAA"))
@scram
def test_client_and_server_prove_what_they_know(cluster: Cluster, mechanism: str) -> None:
    broker, client, challenge = start_scram(cluster, mechanism)
    reply = authenticate(broker, client.final(challenge))
    expect("error code of the last message", 0, reply.error_code)
    expect("the server signature is valid", True, client.verifies_server(reply.auth_bytes))
    assert_answers(broker)


@clause("SEC-18", "wrong")
@defect(Reply(SaslAuthenticateRequest, "error_code", 0), StaysOpen())
@scram
def test_a_wrong_proof_is_refused(cluster: Cluster, mechanism: str) -> None:
    broker, client, challenge = start_scram(cluster, mechanism, password="wrong")
    assert_refused(broker, client.final(challenge))


@clause("SEC-18", "challenge")
@defect(Reply(SaslAuthenticateRequest, "auth_bytes", b"r=short,s=AAAA,i=1"))
@scram
def test_the_challenge_is_sound_and_fresh(cluster: Cluster, mechanism: str) -> None:
    nonces = []
    for _ in range(2):
        fields = Challenge.read(start_scram(cluster, mechanism, nonce="the-same-nonce")[2])
        expect("the nonce begins with the client's", True, fields.nonce.startswith("the-same-nonce"))
        expect("there are enough iterations", True, fields.iterations >= LEAST_ITERATIONS)
        nonces.append(fields.nonce)
    expect("number of different nonces", 2, len(set(nonces)))


@clause("SEC-10")
@defect(Reply(SaslAuthenticateRequest, "error_code", 0), StaysOpen())
@pytest.mark.parametrize("nonce", ["another", "the client's alone", "longer"])
@scram
def test_the_nonce_must_be_the_servers(cluster: Cluster, mechanism: str, nonce: str) -> None:
    broker, client, challenge = start_scram(cluster, mechanism)
    server_nonce = Challenge.read(challenge).nonce
    sent_nonce = {"another": "another-nonce", "the client's alone": client.nonce, "longer": server_nonce + "x"}[nonce]
    assert_refused(broker, client.final(challenge, nonce=sent_nonce))


@clause("SEC-19")
@defect(Reply(SaslAuthenticateRequest, "error_code", 0), StaysOpen())
@pytest.mark.parametrize("message", [b"", b"n,,", b"n,,n=,r=", b"n,,r=x", b"\xff\xff", b"p=tls-unique,,n=a,r=b"])
def test_a_malformed_scram_message_is_refused(cluster: Cluster, message: bytes) -> None:
    assert_refused(start_handshake(cluster, "SCRAM-SHA-256"), message)


# -- invalid bytes ---------------------------------------------------------------------------------------


@clause("SEC-20")
@defect(StaysOpen())
def test_strangers_cannot_announce_large_frames(cluster: Cluster) -> None:
    broker = unauthenticated_connection(cluster)
    with suppress(Disconnected):  # the broker may close the connection during the write
        broker.send_bytes(struct.pack(">i", HUGE) + bytes(HUGE))
    broker.expect_disconnect()


@clause("SEC-20", "size alone")
@defect(StaysOpen())
def test_a_large_frame_is_refused_when_its_size_arrives(cluster: Cluster) -> None:
    broker = unauthenticated_connection(cluster)
    broker.send_bytes(struct.pack(">i", HUGE))
    broker.expect_disconnect()


@clause("SEC-20", "after the login")
@defect(Reply(MetadataRequest, "topics", lambda topics: topics[:1]))
def test_who_has_logged_in_may_send_large_frames(cluster: Cluster) -> None:
    """The request is larger than sasl.server.max.receive.size, 512 KiB, which limits only what precedes the login."""
    sasl = listener(cluster, PLAIN)
    broker = unauthenticated_connection(cluster, PLAIN)
    expect("error code of the login", 0, log_in(broker, PLAIN, sasl.user, sasl.password).error_code)
    names = [f"{cluster.name()}-".ljust(NAME_SIZE, "x") for _ in range(LARGE // NAME_SIZE)]
    expect("number of topics", len(names), len(broker.metadata(*names).topics))


@clause("SEC-21")
@defect(StaysOpen())
def test_tls_where_none_is_spoken_is_hung_up_on(cluster: Cluster, broker: Broker) -> None:
    broker.send_bytes(CLIENT_HELLO)
    broker.expect_disconnect()
    assert_answers(cluster.connect(broker.address))


# -- after the login -------------------------------------------------------------------------------------


@clause("SEC-22")
@defect(Reply(SaslHandshakeRequest, "error_code", 0))
def test_a_second_login_is_out_of_place_where_none_is_due(cluster: Cluster) -> None:
    sasl = listener(cluster, PLAIN)
    if PLAIN in sasl.sessions_ms:
        raise Unsupported("sessions of PLAIN expire, so a second login is allowed")
    broker = start_handshake(cluster, PLAIN)
    authenticate(broker, plain(sasl.user, sasl.password))
    expect("error code of SaslHandshake", ErrorCode.ILLEGAL_SASL_STATE, handshake(broker, PLAIN).error_code)
    assert_answers(broker)


# -- credentials (KIP-554) -------------------------------------------------------------------------------


SHA_256, SHA_512 = 1, 2


def upsertion(
    user: str, password: str, *, mechanism: int = SHA_256, iterations: int = 4096
) -> ScramCredentialUpsertion:
    salt = b"conformance-salt"
    salted = salted_password("sha256" if mechanism == SHA_256 else "sha512", password, salt, iterations)
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
    )


def alter(
    cluster: Cluster, *upsertions: ScramCredentialUpsertion, deletions: tuple[ScramCredentialDeletion, ...] = ()
) -> int:
    """Alter SCRAM credentials of one user and return the error code."""
    with controller(cluster) as broker:
        reply = broker.call(AlterUserScramCredentialsRequest(upsertions=upsertions, deletions=deletions))
    codes = {result.error_code for result in reply.results}
    return int(only(tuple(codes)))


def credentials(cluster: Cluster, user: str) -> tuple[int, set[tuple[int, int]]]:
    """Return the error code, and mechanism and iterations of each credential."""
    with cluster.connect() as broker:
        reply = broker.call(DescribeUserScramCredentialsRequest(users=(UserName(name=user),)))
    expect("error code of DescribeUserScramCredentials", 0, reply.error_code)
    result = only(reply.results)
    return result.error_code, {(credential.mechanism, credential.iterations) for credential in result.credential_infos}


@clause("SEC-23")
@defect(Reply(DescribeUserScramCredentialsRequest, "results.credential_infos", ()))
def test_credentials_come_and_go(cluster: Cluster) -> None:
    user = cluster.name("u")
    for mechanism, iterations in ((SHA_256, 4096), (SHA_512, 8192)):
        error = alter(cluster, upsertion(user, "a", mechanism=mechanism, iterations=iterations))
        expect("error code", 0, error)
    both = {(SHA_256, 4096), (SHA_512, 8192)}
    cluster.eventually("both credentials described", lambda: credentials(cluster, user) == (0, both))
    for mechanism in (SHA_256, SHA_512):
        deletion = ScramCredentialDeletion(name=user, mechanism=mechanism)
        expect("error code of the deletion", 0, alter(cluster, deletions=(deletion,)))
    cluster.eventually(
        "no credential described", lambda: credentials(cluster, user) == (ErrorCode.RESOURCE_NOT_FOUND, set())
    )


@clause("SEC-24")
@defect(Reply(SaslAuthenticateRequest, "error_code", ErrorCode.SASL_AUTHENTICATION_FAILED))
def test_new_credentials_let_in(cluster: Cluster) -> None:
    listener(cluster, "SCRAM-SHA-256")
    user = cluster.name("u")
    expect("error code", 0, alter(cluster, upsertion(user, "new-secret")))
    cluster.eventually("the credentials", lambda: credentials(cluster, user)[0] == 0)
    try:
        broker, client, challenge = start_scram(cluster, "SCRAM-SHA-256", user=user, password="new-secret")
        expect("error code", 0, authenticate(broker, client.final(challenge)).error_code)
    finally:
        alter(cluster, deletions=(ScramCredentialDeletion(name=user, mechanism=SHA_256),))


@clause("SEC-25")
@defect(Reply(AlterUserScramCredentialsRequest, "results.error_code", 0))
@pytest.mark.parametrize(
    ("change", "error"),
    [
        pytest.param({"iterations": 100}, ErrorCode.UNACCEPTABLE_CREDENTIAL, id="too few iterations"),
        pytest.param({"iterations": 100_000}, ErrorCode.UNACCEPTABLE_CREDENTIAL, id="too many iterations"),
        pytest.param({"mechanism": 9}, ErrorCode.UNSUPPORTED_SASL_MECHANISM, id="unknown mechanism"),
    ],
)
def test_credentials_that_cannot_be_are_refused(cluster: Cluster, change: dict[str, int], error: int) -> None:
    user = cluster.name("u")
    expect("error code", error, alter(cluster, upsertion(user, "a", **change)))
    expect("error code of DescribeUserScramCredentials", ErrorCode.RESOURCE_NOT_FOUND, credentials(cluster, user)[0])


@clause("SEC-25", "unclear")
@defect(Reply(AlterUserScramCredentialsRequest, "results.error_code", 0))
def test_credentials_that_are_named_twice_are_refused(cluster: Cluster) -> None:
    user = cluster.name("u")
    expect("error code", ErrorCode.DUPLICATE_RESOURCE, alter(cluster, upsertion(user, "a"), upsertion(user, "b")))
    deletion = ScramCredentialDeletion(name=user, mechanism=SHA_256)
    expect(
        "error code of deleting unknown credentials",
        ErrorCode.RESOURCE_NOT_FOUND,
        alter(cluster, deletions=(deletion,)),
    )
    expect("error code for an empty user name", ErrorCode.UNACCEPTABLE_CREDENTIAL, alter(cluster, upsertion("", "a")))
