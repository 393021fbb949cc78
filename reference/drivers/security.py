"""TLS contexts and SASL authenticators of a broker, created from its configuration."""

import secrets
import ssl
import time
from collections.abc import Callable
from typing import Final

from highwater.reference.client.access import client_context, fresh_nonce, load_certificates
from highwater.reference.configuration.broker import BrokerConfig
from highwater.reference.effects import Instant
from highwater.reference.security.login import Account, Login
from highwater.reference.security.mechanisms import Credentials
from highwater.reference.security.sasl import Authenticator

SALT_BYTES: Final = 16


class Security:
    """The security of one broker, for its clients and for other brokers.

    `clock` and `nonce` serve the logins, `salt` the stored passwords of SCRAM; a simulation passes its own. Raises
    UsageError for certificates that cannot be read.
    """

    def __init__(
        self, config: BrokerConfig, *, clock: Callable[[], Instant] | None = None,
        nonce: Callable[[], str] = fresh_nonce, salt: bytes = b"",
    ) -> None:  # fmt: skip
        self._config, self._clock, self._nonce = config, clock or now, nonce
        self._requires_login = config.security_protocol.startswith("SASL")
        self._credentials = Credentials(config.sasl_users, salt or secrets.token_bytes(SALT_BYTES))
        tls = config.security_protocol.endswith("SSL")
        self.server_context = _server_context(config) if tls else None
        self.client_context = (
            client_context(config.ssl_cafile, config.ssl_certfile, config.ssl_keyfile) if tls else None
        )

    def authenticator(self) -> Authenticator | None:
        """Return the authenticator of a new connection; None if no login is required."""
        if not self._requires_login:
            return None
        config = self._config
        return Authenticator(
            config.sasl_enabled_mechanisms,
            self._credentials,
            self._nonce,
            config.connections_max_reauth_ms,
            self._clock,
        )

    def login(self) -> Login | None:
        """Return the SASL login of this broker at another one; None if no login is required."""
        if not self._requires_login:
            return None
        config, user = self._config, self._config.sasl_inter_broker_user
        account = Account(config.sasl_mechanism_inter_broker_protocol, user, config.sasl_users[user])
        return Login(account, self._nonce(), f"broker-{config.broker_id}")


def now() -> Instant:
    return Instant(time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000)


def _server_context(config: BrokerConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificates(context, config.ssl_cafile, config.ssl_certfile, config.ssl_keyfile)
    context.verify_mode = ssl.CERT_REQUIRED if config.ssl_client_auth == "required" else ssl.CERT_NONE
    return context
