"""A broker that the suite did not launch: `HOST:PORT[,HOST:PORT...]`."""

import socket
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from highwater.conformance.client.broker import advertised_versions
from highwater.conformance.client.connection import Access, access_of
from highwater.conformance.failures import AccessRefused, Disconnected, TargetFailure, Unsupported
from highwater.conformance.targets.base import SaslListener
from highwater.conformance.targets.discovery import brokers_of, sasl_listener
from highwater.conformance.targets.releases import release_of
from highwater.errors import UsageError
from highwater.reference.client.transport import TCP, Transport

ANSWER_TIMEOUT_S: Final = 2.0
PROBE_TIMEOUT_S: Final = 1.0
"""Together with `ANSWER_TIMEOUT_S` below five seconds, so that the diagnosis comes quickly."""


class BrokerDied(UsageError):
    """The broker died while the suite asked it for its brokers, so that no case can be run."""


class ExternalTarget:
    """An external cluster: the suite cannot stop its nodes. It is held to the rules of the release that it shows.

    Its listener for cases about logins is the one of `login_config`, by default its own, if that requires a login.
    """

    capabilities: frozenset[str] = frozenset()
    settings: Mapping[str, int] = {}
    sasl: SaslListener | None = None
    transport: Transport = TCP

    def __init__(self, name: str, command_config: Path | None = None, login: tuple[str, Path] | None = None) -> None:
        first, access = name.split(",", maxsplit=1)[0], access_of(command_config)
        self.addresses: Mapping[int, str] = _discover_brokers(name.split(","), access)
        release = release_of(first, access)
        self.name, self.command_config = name, command_config
        self.era, self.version = release.era, release.text()
        self.sasl = _login_listener(*login) if login else _login_listener(first, command_config)

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    def start_node(self, node: int | str) -> None:
        raise Unsupported(f"the suite did not launch node {node} and cannot start or stop it")

    stop_node = kill_node = pause_node = resume_node = start_node

    def revive(self) -> bool:
        return False

    def close(self) -> None:
        """Do nothing: no process was launched."""


def _discover_brokers(given: Sequence[str], access: Access) -> dict[int, str]:
    """Return addresses by broker id; the given ones by their position if the reply to Metadata is wrong or has none.

    Cases that need no Metadata can be run on these.
    """
    address = given[0]
    try:
        advertised_versions(address, ANSWER_TIMEOUT_S, access)
    except AccessRefused as error:
        raise UsageError(str(error), where=address, hint="check the file of --command-config") from error
    except (TargetFailure, ValueError) as error:
        raise UsageError(
            f"the server does not answer like a Kafka broker ({error})", where=address, hint=_diagnose_port(address)
        ) from error
    try:
        return brokers_of(address, access) or dict(enumerate(given))
    except Disconnected as error:
        if not _is_alive(address, access):
            raise BrokerDied("the broker died when it was asked for Metadata", where=address) from error
        hint = "it may require a login: give --command-config with sasl.mechanism and sasl.jaas.config"
        raise UsageError(
            f"the broker answers ApiVersions, but not Metadata ({error})", where=address, hint=hint
        ) from error
    except TargetFailure:
        return dict(enumerate(given))


def _is_alive(address: str, access: Access) -> bool:
    try:
        advertised_versions(address, ANSWER_TIMEOUT_S, access)
    except TargetFailure:
        return False
    return True


def _login_listener(address: str, config: Path | None) -> SaslListener | None:
    access = access_of(config)
    try:
        return sasl_listener(address, access, access.cafile if access.context is not None else None)
    except TargetFailure as error:
        raise UsageError(f"the listener does not answer SaslHandshake ({error})", where=address) from error


def _diagnose_port(address: str) -> str:
    """Return advice about the server behind the port: not reachable, TLS, or another protocol."""
    host, _, port = address.rpartition(":")
    tls_context = ssl.create_default_context()
    tls_context.check_hostname, tls_context.verify_mode = False, ssl.CERT_NONE
    try:
        plain = socket.create_connection((host, int(port)), timeout=PROBE_TIMEOUT_S)
    except (OSError, OverflowError):
        return "check that the broker is up, and its host and port"
    try:
        with tls_context.wrap_socket(plain, server_hostname=host):
            return "the port uses TLS: give --command-config with security.protocol=SSL"
    except OSError:
        return "check the port: another server's may be there"
    finally:
        plain.close()
