"""TLS and SASL settings of a client, from a properties file of Apache Kafka's clients or from a broker's config."""

import re
import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from highwater.errors import UsageError
from highwater.reference.client.transport import TCP, Transport
from highwater.reference.configuration.broker import BrokerConfig
from highwater.reference.security.login import Account, Login
from highwater.reference.security.mechanisms import MECHANISMS

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
CLIENT_ID: Final = "highwater-tools"
NONCE_BYTES: Final = 18
JAAS: Final = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


def fresh_nonce() -> str:
    return secrets.token_urlsafe(NONCE_BYTES)


def client_context(cafile: str, certfile: str = "", keyfile: str = "") -> ssl.SSLContext:
    """Return a context that verifies the server's name; without `cafile` it trusts the system's authorities."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not cafile:
        context.load_default_certs()
    load_certificates(context, cafile, certfile, keyfile)
    return context


def load_certificates(context: ssl.SSLContext, cafile: str, certfile: str, keyfile: str) -> None:
    """Load PEM files into a context; UsageError names those that cannot be read."""
    try:
        if cafile:
            context.load_verify_locations(cafile)
        if certfile:
            context.load_cert_chain(certfile, keyfile or None)
    except (OSError, ssl.SSLError) as error:
        where = ", ".join(path for path in (cafile, certfile, keyfile) if path)
        raise UsageError(f"cannot read these certificates ({error})", where=where, hint="use PEM files") from error


@dataclass(frozen=True, slots=True)
class Access:
    """How a client connects: over `transport`, with TLS if `context` is set, with SASL if `account` is set."""

    context: ssl.SSLContext | None = None
    account: Account | None = None
    cafile: str = ""  # the authorities that `context` trusts; empty for the system's
    transport: Transport = TCP

    @classmethod
    def to_cluster_of(cls, config: BrokerConfig) -> Self:
        """Return the settings that a broker uses to connect to other brokers of its cluster."""
        protocol, user = config.security_protocol, config.sasl_inter_broker_user
        tls = client_context(config.ssl_cafile, config.ssl_certfile, config.ssl_keyfile) if _is_tls(protocol) else None
        if not protocol.startswith("SASL"):
            return cls(tls)
        return cls(tls, Account(config.sasl_mechanism_inter_broker_protocol, user, config.sasl_users[user]))

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read a properties file; raise UsageError for a missing or unknown value.

        Supported keys: `security.protocol`, `sasl.mechanism`, `sasl.jaas.config`, and the PEM files
        `ssl.truststore.location` and `ssl.keystore.location` (certificate and key in one file).
        """
        values = _properties(path)
        protocol = values.get("security.protocol", "PLAINTEXT")
        if protocol not in PROTOCOLS:
            raise UsageError(
                f"unknown security.protocol {protocol!r}", where=str(path), hint=f"use one of {', '.join(PROTOCOLS)}"
            )
        store, key = values.get("ssl.truststore.location", ""), values.get("ssl.keystore.location", "")
        tls = client_context(store, key) if _is_tls(protocol) else None
        if not protocol.startswith("SASL"):
            return cls(tls, cafile=store)
        mechanism, login = values.get("sasl.mechanism", ""), dict(JAAS.findall(values.get("sasl.jaas.config", "")))
        if mechanism not in MECHANISMS:
            raise UsageError(
                f"unknown sasl.mechanism {mechanism!r}", where=str(path), hint=f"use one of {', '.join(MECHANISMS)}"
            )
        if login.keys() != {"username", "password"}:
            hint = 'e.g. sasl.jaas.config=... required username="alice" password="secret";'
            raise UsageError("sasl.jaas.config has no username and password", where=str(path), hint=hint)
        return cls(tls, Account(mechanism, login["username"], login["password"]), store)

    def login(self) -> Login | None:
        return Login(self.account, fresh_nonce(), CLIENT_ID) if self.account is not None else None


def _is_tls(protocol: str) -> bool:
    return protocol.endswith("SSL")


def _properties(path: Path) -> dict[str, str]:
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except OSError as error:
        raise UsageError(f"cannot read this file ({error.strerror})", where=str(path)) from error
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {key.strip(): value.strip() for key, _, value in pairs}


PLAINTEXT: Final = Access()
"""Neither TLS nor SASL."""
