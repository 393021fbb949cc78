"""How a client gets in: TLS and SASL, as the properties of Apache Kafka's own clients say."""

import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from reference.config import BrokerConfig
from reference.drivers.security import client_context, fresh_nonce
from reference.security.login import Account, Login
from reference.security.mechanisms import MECHANISMS
from spec.formats.verdict import UsageError

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
CLIENT_ID: Final = "highwater-tools"
JAAS: Final = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Access:
    context: ssl.SSLContext | None = None
    account: Account | None = None

    @classmethod
    def to_cluster_of(cls, config: BrokerConfig) -> Self:
        """As one of its brokers."""
        protocol, user = config.security_protocol, config.sasl_inter_broker_user
        tls = client_context(config.ssl_cafile, config.ssl_certfile, config.ssl_keyfile) if _is_tls(protocol) else None
        if not protocol.startswith("SASL"):
            return cls(tls)
        return cls(tls, Account(config.sasl_mechanism_inter_broker_protocol, user, config.sasl_users[user]))

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """`security.protocol`, `sasl.mechanism`, `sasl.jaas.config`, and PEM files `ssl.truststore.location`,
        `ssl.keystore.location` (certificate and key in one). UsageError for what is missing or unknown."""
        values = _properties(path)
        protocol = values.get("security.protocol", "PLAINTEXT")
        if protocol not in PROTOCOLS:
            raise UsageError(f"security.protocol={protocol}", where=str(path), mend=f"one of {', '.join(PROTOCOLS)}")
        store, key = values.get("ssl.truststore.location", ""), values.get("ssl.keystore.location", "")
        tls = client_context(store, key) if _is_tls(protocol) else None
        if not protocol.startswith("SASL"):
            return cls(tls)
        mechanism, named = values.get("sasl.mechanism", ""), dict(JAAS.findall(values.get("sasl.jaas.config", "")))
        if mechanism not in MECHANISMS:
            raise UsageError(f"sasl.mechanism={mechanism}", where=str(path), mend=f"one of {', '.join(MECHANISMS)}")
        if named.keys() != {"username", "password"}:
            mend = 'e.g. sasl.jaas.config=... required username="alice" password="secret";'
            raise UsageError("no username and password", where=str(path), mend=mend)
        return cls(tls, Account(mechanism, named["username"], named["password"]))

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
