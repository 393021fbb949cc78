"""Delegation tokens: created over a login, renewed, expired and used as credentials of SCRAM (KIP-48)."""

import base64
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from highwater.conformance.cases.support.sasl import (
    HASHES,
    Scram,
    assert_answers,
    assert_refused,
    authenticate,
    listener,
    log_in,
    start_handshake,
    unauthenticated_connection,
)
from highwater.conformance.clause import clause, sweep
from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import HangUp, Reply, Request, StaysOpen, defect, increment, without_error
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import TargetFailure, Unsupported
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.delegation_tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from highwater.reference.wire.messages.metadata import MetadataRequest
from highwater.reference.wire.messages.security import SaslAuthenticateRequest

USER_TYPE = "User"
LIFETIME_MS = 60_000
AT_ONCE = -1
UNKNOWN_HMAC = bytes(64)
TOKEN_REQUESTS = (
    CreateDelegationTokenRequest, DescribeDelegationTokenRequest, RenewDelegationTokenRequest,
    ExpireDelegationTokenRequest,
)  # fmt: skip
REQUESTER_SINCE = 3


class TokenOwner:
    """The user of the listener, logged in; `close` deletes the tokens that were created here."""

    def __init__(self, cluster: Cluster) -> None:
        """Raise Unsupported if the listener has no SCRAM, by which tokens log in, or the target has no tokens."""
        self._cluster, self._sasl = cluster, listener(cluster)
        self.mechanism = next((name for name in HASHES if name in self._sasl.mechanisms), "")
        if not self.mechanism:
            raise Unsupported("the target does not support SCRAM")
        self.user, self._hmacs = self._sasl.user, list[bytes]()
        self.broker = self.connect(self.user)

    def connect(self, user: str) -> Broker:
        """Log in a user on a new connection, with a mechanism whose sessions last, if there is one."""
        lasting = [
            name for name in self._sasl.mechanisms if name not in self._sasl.sessions_ms and name != "OAUTHBEARER"
        ]
        broker = unauthenticated_connection(self._cluster)
        reply = log_in(broker, (lasting or [self.mechanism])[0], user, self._sasl.password)
        expect("error code of the login", 0, reply.error_code)
        return broker

    def create(self, *, version: int | None = None, renewer: str = "", lifetime_ms: int = LIFETIME_MS) -> Any:
        """Create a token, and wait until it is described, so that brokers and controller know it."""
        request = create_request(renewer, lifetime_ms)
        token = self.broker.call(request, version)
        if token.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED:
            raise Unsupported("the target has no delegation tokens (delegation.token.secret.key)")
        expect("error code of CreateDelegationToken", 0, token.error_code)
        self._hmacs.append(token.hmac)
        self._cluster.eventually("the token", lambda: self.described(token))
        return token

    def described(self, token: CreateDelegationTokenResponse) -> DescribedDelegationToken | None:
        """Return the token as DescribeDelegationToken lists it; None if it does not."""
        reply = self.broker.call(DescribeDelegationTokenRequest(owners=owners(self.user)))
        expect("error code of DescribeDelegationToken", 0, reply.error_code)
        return next((found for found in reply.tokens if found.token_id == token.token_id), None)

    def renew(self, hmac: bytes, period_ms: int = LIFETIME_MS) -> Any:
        return self.ask(self.broker, RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms))

    def expire(self, hmac: bytes, period_ms: int = AT_ONCE) -> Any:
        reply = self.ask(self.broker, ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms))
        if hmac in self._hmacs and not reply.error_code and period_ms == AT_ONCE:
            self._hmacs.remove(hmac)
        return reply

    def ask(self, broker: Broker, request: RenewDelegationTokenRequest | ExpireDelegationTokenRequest) -> Any:
        """Return the reply; a token that was created is asked for again until the controller knows it.

        A broker sends these requests to the controller, which may learn of a token later than the brokers do.
        """
        reply: Any = None

        def is_known() -> bool:
            nonlocal reply
            reply = broker.call(request)
            return bool(reply.error_code != ErrorCode.DELEGATION_TOKEN_NOT_FOUND or request.hmac not in self._hmacs)

        with suppress(TargetFailure):
            self._cluster.eventually("the token at the controller", is_known)
        return reply

    def close(self) -> None:
        for hmac in list(self._hmacs):
            self.expire(hmac)


def create_request(renewer: str = "", lifetime_ms: int = LIFETIME_MS, kind: str = USER_TYPE) -> Any:
    renewers = (CreatableRenewers(principal_type=kind, principal_name=renewer),) if renewer else ()
    return CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=lifetime_ms)


def owners(user: str) -> tuple[DescribeDelegationTokenOwner, ...]:
    return (DescribeDelegationTokenOwner(principal_type=USER_TYPE, principal_name=user),)


@pytest.fixture
def owner(cluster: Cluster) -> Iterator[TokenOwner]:
    found = TokenOwner(cluster)
    yield found
    found.close()


def token_login(cluster: Cluster, owner: TokenOwner, user: str, hmac: bytes, extension: str = ",tokenauth=true") -> Any:
    """Log in with a token on a new connection; return the connection, and the token of the last client message."""
    broker = start_handshake(cluster, owner.mechanism)
    client = Scram(owner.mechanism, user, base64.b64encode(hmac).decode(), extensions=extension)
    return broker, client


def log_in_with_token(cluster: Cluster, owner: TokenOwner, user: str, hmac: bytes) -> tuple[Broker, Any]:
    broker, client = token_login(cluster, owner, user, hmac)
    challenge = authenticate(broker, client.first())
    expect("error code of the first message", 0, challenge.error_code)
    return broker, authenticate(broker, client.final(challenge.auth_bytes))


# -- create and describe ---------------------------------------------------------------------------------


@clause("SEC-35")
@defect(
    Reply(CreateDelegationTokenRequest, "principal_name", "another-user"),
    Reply(CreateDelegationTokenRequest, "max_timestamp_ms", increment),
    Reply(DescribeDelegationTokenRequest, "tokens.hmac", UNKNOWN_HMAC),
    Reply(DescribeDelegationTokenRequest, "tokens.renewers", ()),
    Request(CreateDelegationTokenRequest, "max_lifetime_ms", -1),
)
@sweep(CreateDelegationTokenRequest)
def test_a_token_belongs_to_the_user_that_created_it(owner: TokenOwner, version: int) -> None:
    token = owner.create(version=version, renewer="a-renewer")
    expect("owner", (USER_TYPE, owner.user), (token.principal_type, token.principal_name))
    if version >= REQUESTER_SINCE:
        requester = (token.token_requester_principal_type, token.token_requester_principal_name)
        expect("requester", (USER_TYPE, owner.user), requester)
    expect("lifetime in ms", LIFETIME_MS, token.max_timestamp_ms - token.issue_timestamp_ms)
    in_order = token.issue_timestamp_ms < token.expiry_timestamp_ms <= token.max_timestamp_ms
    expect("it expires after it was issued, and not after its lifetime", True, in_order)
    found = owner.described(token)
    assert found is not None
    expect("described HMAC", token.hmac, found.hmac)
    expect("described owner", owner.user, found.principal_name)
    expect("described renewer", "a-renewer", only(found.renewers).principal_name)
    times = (token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms)
    expect("described times", times, (found.issue_timestamp, found.expiry_timestamp, found.max_timestamp))


@clause("SEC-35", "renewer")
@defect(Reply(CreateDelegationTokenRequest, "error_code", 0), Request(CreateDelegationTokenRequest, "renewers", ()))
def test_a_renewer_is_a_user(owner: TokenOwner) -> None:
    owner.create()
    reply = owner.broker.call(create_request("someone", kind="Group"))
    expect("error code", ErrorCode.INVALID_PRINCIPAL_TYPE, reply.error_code)


@clause("SEC-36")
@defect(
    Request(DescribeDelegationTokenRequest, "owners", None),
    Reply(DescribeDelegationTokenRequest, "tokens", ()),
)
def test_only_the_tokens_of_the_owners_are_described(owner: TokenOwner) -> None:
    token = owner.create()
    for asked, expected in ((None, True), (owners(owner.user), True), (owners("another-user"), False)):
        reply = owner.broker.call(DescribeDelegationTokenRequest(owners=asked))
        expect("error code", 0, reply.error_code)
        found = token.token_id in {described.token_id for described in reply.tokens}
        expect(f"the token is described for {'all' if asked is None else only(asked).principal_name}", expected, found)


# -- renew and expire ------------------------------------------------------------------------------------


@clause("SEC-37")
@defect(
    Reply(RenewDelegationTokenRequest, "expiry_timestamp_ms", 0),
    Request(RenewDelegationTokenRequest, "renew_period_ms", LIFETIME_MS * 10),
    Reply(DescribeDelegationTokenRequest, "tokens.expiry_timestamp", 0),
)
def test_a_token_is_renewed_within_its_lifetime(cluster: Cluster, owner: TokenOwner) -> None:
    token = owner.create()
    shorter = owner.renew(token.hmac, LIFETIME_MS // 2)
    expect("error code", 0, shorter.error_code)
    expect("it expires earlier than it may", True, shorter.expiry_timestamp_ms < token.max_timestamp_ms)
    cluster.eventually(
        "the new time of expiry",
        lambda: (found := owner.described(token)) and found.expiry_timestamp == shorter.expiry_timestamp_ms,
    )
    longer = owner.renew(token.hmac, LIFETIME_MS * 10)
    expect("error code", 0, longer.error_code)
    expect("time of expiry after the lifetime", token.max_timestamp_ms, longer.expiry_timestamp_ms)


@clause("SEC-38")
@defect(
    Reply(ExpireDelegationTokenRequest, "error_code", ErrorCode.DELEGATION_TOKEN_NOT_FOUND),
    Request(ExpireDelegationTokenRequest, "expiry_time_period_ms", LIFETIME_MS),
)
def test_a_token_is_deleted_at_once(cluster: Cluster, owner: TokenOwner) -> None:
    token = owner.create()
    expect("error code", 0, owner.expire(token.hmac).error_code)
    cluster.eventually("the token is gone", lambda: owner.described(token) is None)
    for reply in (owner.renew(token.hmac), owner.expire(token.hmac)):
        expect("error code after the deletion", ErrorCode.DELEGATION_TOKEN_NOT_FOUND, reply.error_code)


@clause("SEC-38", "unknown")
@defect(
    Reply(RenewDelegationTokenRequest, "error_code", 0),
    Reply(ExpireDelegationTokenRequest, "error_code", 0),
)
def test_an_unknown_token_is_not_found(owner: TokenOwner) -> None:
    owner.create()
    for reply in (owner.renew(UNKNOWN_HMAC), owner.expire(UNKNOWN_HMAC)):
        expect("error code", ErrorCode.DELEGATION_TOKEN_NOT_FOUND, reply.error_code)


@clause("SEC-39")
@defect(
    Reply(RenewDelegationTokenRequest, "error_code", 0),
    Reply(RenewDelegationTokenRequest, "error_code", ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
)
def test_owner_and_renewers_only_may_renew(cluster: Cluster, owner: TokenOwner) -> None:
    other = listener(cluster).other_user
    if not other:
        raise Unsupported("only one user of the listener is known")
    renewable, own = owner.create(renewer=other), owner.create()
    broker = owner.connect(other)
    for token, error in ((renewable, ErrorCode.NONE), (own, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)):
        request = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=LIFETIME_MS)
        expect("error code", error, owner.ask(broker, request).error_code)


# -- log in with a token ---------------------------------------------------------------------------------


@clause("SEC-40")
@defect(
    Reply(SaslAuthenticateRequest, "session_lifetime_ms", 0),
    Reply(SaslAuthenticateRequest, "error_code", ErrorCode.SASL_AUTHENTICATION_FAILED),
    HangUp(MetadataRequest),
)
def test_a_token_logs_in_until_it_expires(cluster: Cluster, owner: TokenOwner) -> None:
    token = owner.create()
    broker, reply = log_in_with_token(cluster, owner, token.token_id, token.hmac)
    expect("error code of the last message", 0, reply.error_code)
    expect("the session is no longer than the token", True, 0 < reply.session_lifetime_ms <= LIFETIME_MS)
    assert_answers(broker)


@clause("SEC-40", "refused")
@defect(Reply(SaslAuthenticateRequest, "error_code", 0), StaysOpen())
@pytest.mark.parametrize("mistake", ["HMAC", "id", "no extension", "deleted"])
def test_a_wrong_token_does_not_log_in(cluster: Cluster, owner: TokenOwner, mistake: str) -> None:
    token = owner.create()
    if mistake == "deleted":
        expect("error code", 0, owner.expire(token.hmac).error_code)
        cluster.eventually("the token is gone", lambda: owner.described(token) is None)
    user = "no-such-token" if mistake == "id" else token.token_id
    hmac = UNKNOWN_HMAC if mistake == "HMAC" else token.hmac
    extension = "" if mistake == "no extension" else ",tokenauth=true"
    broker, client = token_login(cluster, owner, user, hmac, extension)
    if mistake != "HMAC":
        assert_refused(broker, client.first())
        return
    challenge = authenticate(broker, client.first())
    expect("error code of the first message", 0, challenge.error_code)
    assert_refused(broker, client.final(challenge.auth_bytes))


@clause("SEC-41")
@defect(
    *(
        Reply(request, "error_code", without_error(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED))
        for request in TOKEN_REQUESTS
    )
)
@pytest.mark.parametrize("connection", ["no login", "token"])
def test_tokens_are_requested_over_a_login_only(cluster: Cluster, owner: TokenOwner, connection: str) -> None:
    token = owner.create()
    if connection == "token":
        broker, reply = log_in_with_token(cluster, owner, token.token_id, token.hmac)
        expect("error code of the last message", 0, reply.error_code)
    else:
        broker = cluster.connect()
        if cluster.target.command_config is not None:
            raise Unsupported("the target has no listener without a login")
    requests = (
        create_request(), DescribeDelegationTokenRequest(owners=None),
        RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=LIFETIME_MS),
        ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=AT_ONCE),
    )  # fmt: skip
    for request in requests:
        error = broker.call(request).error_code
        expect(f"error code of {type(request).__name__}", ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, error)
