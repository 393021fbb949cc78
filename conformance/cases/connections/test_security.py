"""Who is let in: SASL as a conversation, and what is answered before it has ended."""

import struct
from contextlib import suppress
from typing import Any

import pytest

from highwater.conformance.broker import Broker, expect, only
from highwater.conformance.cases.support.admin import controller
from highwater.conformance.cases.support.sasl import (
    HASHES,
    Challenge,
    Scram,
    authenticate,
    handshake,
    listener,
    plain,
    salted_password,
    started,
    stranger,
)
from highwater.conformance.clause import clause, sweep
from highwater.conformance.cluster import Cluster
from highwater.conformance.defects import Reply, StaysOpen, defect
from highwater.conformance.failures import Disconnected
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
HUGE = 2 << 20
CLIENT_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(200)
ASKED = MetadataRequest(topics=())

scram = pytest.mark.parametrize("mechanism", list(HASHES))


def assert_answers(broker: Broker) -> None:
    expect("there are brokers", True, bool(broker.call(ASKED, 8).brokers))


def assert_refused(broker: Broker, token: bytes) -> None:
    """The error is told with a message, and the connection ends."""
    reply = authenticate(broker, token)
    expect("error code of SaslAuthenticate", ErrorCode.SASL_AUTHENTICATION_FAILED, reply.error_code)
    expect("there is an error message", True, bool(reply.error_message))
    broker.expect_disconnect()


# -- the handshake (KIP-43, KIP-152) ---------------------------------------------------------------------


@clause("SEC-9")
@defect(Reply(SaslHandshakeRequest, "error_code", 0), Reply(SaslHandshakeRequest, "mechanisms", ()))
@sweep(SaslHandshakeRequest)
def test_a_mechanism_that_is_not_there_is_refused(cluster: Cluster, version: int) -> None:
    broker = stranger(cluster)
    reply = handshake(broker, "SMOKE-SIGNAL", version)
    expect("error code", ErrorCode.UNSUPPORTED_SASL_MECHANISM, reply.error_code)
    expect("mechanisms", True, set(reply.mechanisms) >= set(listener(cluster).mechanisms))
    broker.expect_disconnect()


@clause("SEC-9", "enabled")
@defect(Reply(SaslHandshakeRequest, "error_code", ErrorCode.UNSUPPORTED_SASL_MECHANISM))
def test_every_mechanism_is_there(cluster: Cluster) -> None:
    for mechanism in listener(cluster).mechanisms:
        reply = handshake(stranger(cluster), mechanism)
        expect(f"error code of {mechanism}", 0, reply.error_code)
        expect("it is in the list", True, mechanism in reply.mechanisms)


@clause("SEC-11", "nothing said")
@defect(StaysOpen())
@pytest.mark.parametrize("request_", [ASKED, FindCoordinatorRequest(key="g")], ids=["Metadata", "FindCoordinator"])
def test_strangers_are_not_answered(cluster: Cluster, request_: Any) -> None:
    broker = stranger(cluster)
    broker.send(request_, 1)
    broker.expect_disconnect()


@clause("SEC-11", "half way")
@defect(StaysOpen())
@pytest.mark.parametrize(
    ("request_", "field", "said"),
    [
        pytest.param(ASKED, "brokers", (), id="Metadata"),
        pytest.param(
            SaslHandshakeRequest(mechanism=PLAIN), "error_code", ErrorCode.ILLEGAL_SASL_STATE, id="SaslHandshake"
        ),
    ],
)
def test_who_has_not_finished_is_told_nothing(cluster: Cluster, request_: Any, field: str, said: object) -> None:
    broker = started(cluster, PLAIN)
    correlation_id = broker.send(request_, 1)
    with suppress(Disconnected):
        reply = broker.receive(api_of(type(request_)), 1, correlation_id)
        expect(f"{field} of the answer, where there is one", said, getattr(reply, field))
        broker.expect_disconnect()


@clause("SEC-12")
@defect(Reply(ApiVersionsRequest, "api_keys", ()))
@sweep(ApiVersionsRequest)
def test_strangers_may_ask_for_versions(cluster: Cluster, version: int) -> None:
    broker = cluster.connect(listener(cluster, PLAIN).address)
    request = ApiVersionsRequest(client_software_name="highwater", client_software_version="1.0")
    reply = broker.call(request, version)
    expect("error code", 0, reply.error_code)
    expect("SaslHandshake is among them", True, api_of(SaslHandshakeRequest).key in {k.api_key for k in reply.api_keys})
    expect("error code of the handshake that follows", 0, handshake(broker, PLAIN).error_code)


@clause("SEC-12", "unknown version")
@defect(Reply(ApiVersionsRequest, "error_code", 0))
def test_strangers_may_ask_for_versions_too_new(cluster: Cluster) -> None:
    broker = cluster.connect(listener(cluster).address)
    data = encode_request(ApiVersionsRequest(client_software_name="h", client_software_version="1"), 4, 7, "c")
    broker.send_bytes(data.replace(b"\0\x12\0\x04", b"\0\x12\x7f\xff", 1))
    reply = broker.receive(api_of(ApiVersionsRequest), 0, 7)
    expect("error code", ErrorCode.UNSUPPORTED_VERSION, reply.error_code)


@clause("SEC-13")
@defect(StaysOpen())
def test_a_token_needs_a_handshake(cluster: Cluster) -> None:
    sasl = listener(cluster, PLAIN)
    broker = stranger(cluster)
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
    broker = started(cluster, PLAIN)
    reply = authenticate(broker, plain(sasl.user, sasl.password), version)
    expect("error code of SaslAuthenticate", 0, reply.error_code)
    expect("lifetime where nobody has to log in again", 0, reply.session_lifetime_ms)
    assert_answers(broker)


@clause("SEC-15", "tokens alone")
@defect(Reply(SaslHandshakeRequest, "error_code", ErrorCode.UNSUPPORTED_SASL_MECHANISM))
def test_after_handshake_0_tokens_stand_alone(cluster: Cluster) -> None:
    sasl = listener(cluster, PLAIN)
    broker = stranger(cluster)
    expect("error code of SaslHandshake", 0, handshake(broker, PLAIN, 0).error_code)
    token = plain(sasl.user, sasl.password)
    broker.send_bytes(struct.pack(">i", len(token)) + token)
    expect("answer", b"", broker.receive_frame())
    assert_answers(broker)


@clause("SEC-16", "tokens alone")
@defect(StaysOpen())
def test_after_handshake_0_a_wrong_password_ends_the_connection(cluster: Cluster) -> None:
    broker = stranger(cluster, PLAIN)
    expect("error code of SaslHandshake", 0, handshake(broker, PLAIN, 0).error_code)
    token = plain(listener(cluster).user, "wrong")
    broker.send_bytes(struct.pack(">i", len(token)) + token)
    broker.expect_disconnect()


@clause("SEC-16")
@defect(Reply(SaslAuthenticateRequest, "error_code", 0), StaysOpen())
@pytest.mark.parametrize("who", ["password", "user", "nobody", "no password", "no separators", "another's name"])
def test_who_does_not_know_the_password_is_refused(cluster: Cluster, who: str) -> None:
    sasl = listener(cluster, PLAIN)
    tokens = {
        "password": plain(sasl.user, sasl.password + "x"),
        "user": plain("somebody", sasl.password),
        "nobody": plain("", sasl.password),
        "no password": plain(sasl.user, ""),
        "no separators": sasl.user.encode(),
        "another's name": plain(sasl.user, sasl.password, authorisation="somebody"),
    }
    assert_refused(started(cluster, PLAIN), tokens[who])


@clause("SEC-17")
@defect(Reply(SaslAuthenticateRequest, "error_message", None))
def test_it_is_not_told_what_was_wrong(cluster: Cluster) -> None:
    sasl = listener(cluster, PLAIN)
    tokens = (plain(sasl.user, "wrong"), plain("somebody", "wrong"))
    messages = [authenticate(started(cluster, PLAIN), token).error_message for token in tokens]
    expect("there is a message", True, bool(messages[0]))
    expect("message for a user that is not there", messages[0], messages[1])


# -- SCRAM (KIP-84) --------------------------------------------------------------------------------------


def challenged(cluster: Cluster, mechanism: str, **changed: str) -> tuple[Broker, Scram, bytes]:
    """A conversation up to the server's challenge."""
    sasl = listener(cluster, mechanism)
    client = Scram(mechanism, **{"user": sasl.user, "password": sasl.password, **changed})
    broker = started(cluster, mechanism)
    reply = authenticate(broker, client.first())
    expect("error code of the first message", 0, reply.error_code)
    return broker, client, reply.auth_bytes


@clause("SEC-18")
@defect(Reply(SaslAuthenticateRequest, "auth_bytes", b"v=AAAA"))
@scram
def test_client_and_server_prove_what_they_know(cluster: Cluster, mechanism: str) -> None:
    broker, client, challenge = challenged(cluster, mechanism)
    reply = authenticate(broker, client.final(challenge))
    expect("error code of the last message", 0, reply.error_code)
    expect("the server knows the password too", True, client.proves(reply.auth_bytes))
    assert_answers(broker)


@clause("SEC-18", "wrong")
@defect(Reply(SaslAuthenticateRequest, "error_code", 0), StaysOpen())
@scram
def test_a_wrong_proof_is_refused(cluster: Cluster, mechanism: str) -> None:
    broker, client, challenge = challenged(cluster, mechanism, password="wrong")
    assert_refused(broker, client.final(challenge))


@clause("SEC-18", "challenge")
@defect(Reply(SaslAuthenticateRequest, "auth_bytes", b"r=short,s=AAAA,i=1"))
@scram
def test_the_challenge_is_sound_and_fresh(cluster: Cluster, mechanism: str) -> None:
    nonces = []
    for _ in range(2):
        said = Challenge.read(challenged(cluster, mechanism, nonce="the-same-nonce")[2])
        expect("the nonce goes on from the client's", True, said.nonce.startswith("the-same-nonce"))
        expect("there are enough iterations", True, said.iterations >= LEAST_ITERATIONS)
        nonces.append(said.nonce)
    expect("number of different nonces", 2, len(set(nonces)))


@clause("SEC-10")
@defect(Reply(SaslAuthenticateRequest, "error_code", 0), StaysOpen())
@pytest.mark.parametrize("nonce", ["another", "the client's alone", "longer"])
@scram
def test_the_nonce_must_be_the_servers(cluster: Cluster, mechanism: str, nonce: str) -> None:
    broker, client, challenge = challenged(cluster, mechanism)
    whole = Challenge.read(challenge).nonce
    said = {"another": "another-nonce", "the client's alone": client.nonce, "longer": whole + "x"}[nonce]
    assert_refused(broker, client.final(challenge, nonce=said))


@clause("SEC-19")
@defect(Reply(SaslAuthenticateRequest, "error_code", 0), StaysOpen())
@pytest.mark.parametrize("message", [b"", b"n,,", b"n,,n=,r=", b"n,,r=x", b"\xff\xff", b"p=tls-unique,,n=a,r=b"])
def test_a_malformed_scram_message_is_refused(cluster: Cluster, message: bytes) -> None:
    assert_refused(started(cluster, "SCRAM-SHA-256"), message)


# -- bytes from who knows where --------------------------------------------------------------------------


@clause("SEC-20")
@defect(StaysOpen())
def test_strangers_cannot_announce_large_frames(cluster: Cluster) -> None:
    broker = stranger(cluster)
    with suppress(Disconnected):  # it may hang up while we still write
        broker.send_bytes(struct.pack(">i", HUGE) + bytes(HUGE))
    broker.expect_disconnect()


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
    broker = started(cluster, PLAIN)
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
    """The error code, the same for all of one user."""
    with controller(cluster) as broker:
        reply = broker.call(AlterUserScramCredentialsRequest(upsertions=upsertions, deletions=deletions))
    codes = {each.error_code for each in reply.results}
    return int(only(tuple(codes)))


def credentials(cluster: Cluster, user: str) -> tuple[int, set[tuple[int, int]]]:
    """Error code, and mechanism with iterations of each."""
    with cluster.connect() as broker:
        reply = broker.call(DescribeUserScramCredentialsRequest(users=(UserName(name=user),)))
    expect("error code of DescribeUserScramCredentials", 0, reply.error_code)
    result = only(reply.results)
    return result.error_code, {(each.mechanism, each.iterations) for each in result.credential_infos}


@clause("SEC-23")
@defect(Reply(DescribeUserScramCredentialsRequest, "results.credential_infos", ()))
def test_credentials_come_and_go(cluster: Cluster) -> None:
    user = cluster.name("u")
    for mechanism, iterations in ((SHA_256, 4096), (SHA_512, 8192)):
        error = alter(cluster, upsertion(user, "a", mechanism=mechanism, iterations=iterations))
        expect("error code", 0, error)
    both = {(SHA_256, 4096), (SHA_512, 8192)}
    cluster.eventually("both to be told", lambda: credentials(cluster, user) == (0, both))
    for mechanism in (SHA_256, SHA_512):
        gone = ScramCredentialDeletion(name=user, mechanism=mechanism)
        expect("error code of the deletion", 0, alter(cluster, deletions=(gone,)))
    cluster.eventually("none to be told", lambda: credentials(cluster, user) == (ErrorCode.RESOURCE_NOT_FOUND, set()))


@clause("SEC-24")
@defect(Reply(SaslAuthenticateRequest, "error_code", ErrorCode.SASL_AUTHENTICATION_FAILED))
def test_new_credentials_let_in(cluster: Cluster) -> None:
    listener(cluster, "SCRAM-SHA-256")
    user = cluster.name("u")
    expect("error code", 0, alter(cluster, upsertion(user, "new-secret")))
    cluster.eventually("the credentials", lambda: credentials(cluster, user)[0] == 0)
    try:
        broker, client, challenge = challenged(cluster, "SCRAM-SHA-256", user=user, password="new-secret")
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
    expect("error code of describing them", ErrorCode.RESOURCE_NOT_FOUND, credentials(cluster, user)[0])


@clause("SEC-25", "unclear")
@defect(Reply(AlterUserScramCredentialsRequest, "results.error_code", 0))
def test_credentials_that_are_named_twice_are_refused(cluster: Cluster) -> None:
    user = cluster.name("u")
    expect("error code", ErrorCode.DUPLICATE_RESOURCE, alter(cluster, upsertion(user, "a"), upsertion(user, "b")))
    gone = ScramCredentialDeletion(name=user, mechanism=SHA_256)
    expect("error code of deleting what is not there", ErrorCode.RESOURCE_NOT_FOUND, alter(cluster, deletions=(gone,)))
    expect("error code of nobody", ErrorCode.UNACCEPTABLE_CREDENTIAL, alter(cluster, upsertion("", "a")))
