"""Find the brokers of a cluster through the protocol, and wait until all of them are up."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from highwater.conformance.client.connection import OPEN, Access, Connection
from highwater.conformance.client.unsecured_tokens import client_first, unsecured_token
from highwater.conformance.failures import TargetFailure
from highwater.conformance.targets.base import SaslListener
from highwater.errors import UsageError
from highwater.reference.security.login import Account
from highwater.reference.security.mechanisms import MECHANISMS
from highwater.reference.security.oauth_bearer import OAUTHBEARER
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest, MetadataRequest, MetadataRequestTopic
from highwater.reference.wire.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest

METADATA_VERSION = 1
"""Version 0, the only one before Kafka 0.10, is used only for brokers of that age."""
HANDSHAKE_VERSION = 1
COORDINATOR_VERSION = 0
OFFSETS = "__consumer_offsets"
TIMEOUT_S = 3.0
READY_TIMEOUT_S = 60.0
POLL_S = 0.05


def brokers_of(address: str, access: Access = OPEN, version: int = METADATA_VERSION) -> dict[int, str]:
    """Return addresses by broker id from the Metadata of `address`; raises TargetFailure."""
    with Connection(address, timeout_s=TIMEOUT_S, access=access) as connection:
        reply = connection.exchange(MetadataRequest(topics=()), version)
    return {broker.node_id: f"{broker.host}:{broker.port}" for broker in reply.brokers}


def sasl_listener(address: str, access: Access, tls: str | None) -> SaslListener | None:
    """Return the listener with the mechanisms with which this account can log in; None without an account, or if none.

    Which sessions expire is what the broker says at these logins: it does not describe the settings of a listener.
    Raises TargetFailure if the broker does not answer SaslHandshake.
    """
    if access.account is None:
        return None
    with Connection(address, timeout_s=TIMEOUT_S, access=Access(access.context)) as connection:
        offered = connection.exchange(SaslHandshakeRequest(mechanism="?"), HANDSHAKE_VERSION).mechanisms
    user, password = access.account.user, access.account.password
    lifetimes_ms = {}
    for mechanism in sorted({*offered} & {*MECHANISMS}):
        with suppress(TargetFailure):
            tried = Access(access.context, Account(mechanism, user, password))
            with Connection(address, timeout_s=TIMEOUT_S, access=tried) as connection:
                lifetimes_ms[mechanism] = connection.session_lifetime_ms
    if OAUTHBEARER in offered and _accepts_unsecured_token(address, access, user):
        lifetimes_ms[OAUTHBEARER] = 0
    if not lifetimes_ms:
        return None
    sessions_ms = {mechanism: lifetime_ms for mechanism, lifetime_ms in lifetimes_ms.items() if lifetime_ms}
    return SaslListener(address, user, password, tuple(lifetimes_ms), tls, sessions_ms)


def _accepts_unsecured_token(address: str, access: Access, user: str) -> bool:
    """Return whether OAUTHBEARER has the validator for tests; raises TargetFailure if the broker does not answer."""
    with Connection(address, timeout_s=TIMEOUT_S, access=Access(access.context)) as connection:
        token = client_first(unsecured_token(connection.clock.time(), user))
        connection.exchange(SaslHandshakeRequest(mechanism=OAUTHBEARER), HANDSHAKE_VERSION)
        reply = connection.exchange(SaslAuthenticateRequest(auth_bytes=token), HANDSHAKE_VERSION)
    return not reply.error_code and not reply.auth_bytes


def is_complete(address: str, brokers: int, access: Access = OPEN, version: int = METADATA_VERSION) -> bool:
    """Return whether the Metadata of this broker lists so many brokers."""
    try:
        return len(brokers_of(address, access, version)) == brokers
    except TargetFailure:
        return False


def wait_until_complete(
    addresses: Mapping[int, str], check: Callable[[], None] = lambda: None, access: Access = OPEN,
    version: int = METADATA_VERSION,
) -> None:  # fmt: skip
    """Wait until every broker lists every broker; an earlier topic would not be placed on all of them.

    `check` may raise to end the wait. Raises UsageError after a minute.
    """
    deadline = time.monotonic() + READY_TIMEOUT_S
    for address in addresses.values():
        while not is_complete(address, len(addresses), access, version):
            check()
            if time.monotonic() > deadline:
                raise UsageError(f"no cluster of {len(addresses)} after {READY_TIMEOUT_S:g} s", where=address)
            time.sleep(POLL_S)


def wait_for_group_coordinator(addresses: Mapping[int, str], version: int = METADATA_VERSION) -> None:
    """Wait until __consumer_offsets is in sync on all replicas; the first FindCoordinator creates the topic.

    Raises UsageError after a minute.
    """
    deadline, first = time.monotonic() + READY_TIMEOUT_S, next(iter(addresses.values()))
    while not all(_has_offsets(address, version) for address in addresses.values()):
        with suppress(TargetFailure), Connection(first, timeout_s=TIMEOUT_S) as connection:
            connection.exchange(FindCoordinatorRequest(key="highwater"), COORDINATOR_VERSION)
        if time.monotonic() > deadline:
            raise UsageError(f"no group coordinator after {READY_TIMEOUT_S:g} s", where=first)
        time.sleep(POLL_S)


def _has_offsets(address: str, version: int) -> bool:
    request = MetadataRequest(topics=(MetadataRequestTopic(name=OFFSETS),))
    with suppress(TargetFailure), Connection(address, timeout_s=TIMEOUT_S) as connection:
        (topic,) = connection.exchange(request, version).topics
        parts = topic.partitions
        return bool(parts) and all(
            part.leader_id >= 0 and set(part.isr_nodes) == set(part.replica_nodes) for part in parts
        )
    return False


def restart_dead(
    addresses: Mapping[int, str], kill: Callable[[int], None], start: Callable[[int], None], access: Access = OPEN,
    check: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Restart brokers that do not answer Metadata, and wait until all brokers list each other.

    `check` may raise to end the wait, for example because a broker ends while it starts.
    """
    for node, address in addresses.items():
        try:
            brokers_of(address, access)
        except TargetFailure:
            kill(node)
            start(node)
    wait_until_complete(addresses, check, access)
