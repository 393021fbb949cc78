"""A broker that somebody else runs: `HOST:PORT[,HOST:PORT...]`."""

import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from highwater.conformance.broker import advertised_by
from highwater.conformance.connection import Access, access_of
from highwater.conformance.failures import AccessRefused, Disconnected, TargetFailure, Unsupported
from highwater.conformance.targets.base import SaslListener
from highwater.conformance.targets.discovery import brokers_of
from highwater.errors import UsageError

ANSWER_TIMEOUT_S: Final = 2.0
PROBE_TIMEOUT_S: Final = 1.0
"""Together with the first answer less than five seconds, after which nobody waits for a diagnosis."""


class ExternalTarget:
    """It has no capabilities: nothing of it is ours to stop."""

    capabilities: frozenset[str] = frozenset()
    settings: Mapping[str, int] = {}
    sasl: SaslListener | None = None
    era = ""

    def __init__(self, name: str, command_config: Path | None = None) -> None:
        self.name, self.version, self.command_config = name, "unknown", command_config
        self.addresses: Mapping[int, str] = _find(name.split(",", maxsplit=1)[0], access_of(command_config))

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    def start_node(self, node: int | str) -> None:
        raise Unsupported(f"node {node} is not ours to start")

    stop_node = kill_node = pause_node = resume_node = start_node

    def revive(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing to end."""


def _find(address: str, access: Access) -> dict[int, str]:
    try:
        advertised_by(address, ANSWER_TIMEOUT_S, access)
    except AccessRefused as error:
        raise UsageError(str(error), where=address, hint="look at --command-config") from error
    except (TargetFailure, ValueError) as error:
        raise UsageError(f"does not answer as a broker ({error})", where=address, hint=_advice(address)) from error
    try:
        return brokers_of(address, access)
    except Disconnected as error:
        hint = "it may want a login: give --command-config with sasl.mechanism and sasl.jaas.config"
        raise UsageError(f"answers ApiVersions, but not Metadata ({error})", where=address, hint=hint) from error
    except TargetFailure as error:
        raise UsageError(f"answers ApiVersions, but not Metadata ({error})", where=address) from error


def _advice(address: str) -> str:
    """What stands behind the port, if it can be told."""
    host, _, port = address.rpartition(":")
    anyone = ssl.create_default_context()
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    try:
        plain = socket.create_connection((host, int(port)), timeout=PROBE_TIMEOUT_S)
    except (OSError, OverflowError):
        return "is it up, and is this its host and port?"
    try:
        with anyone.wrap_socket(plain, server_hostname=host):
            return "it speaks TLS: give --command-config with security.protocol=SSL"
    except OSError:
        return "is this a broker's port, or another server's?"
    finally:
        plain.close()
