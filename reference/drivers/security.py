"""TLS contexts and SASL authenticators of a broker, created from its configuration."""

import secrets
import ssl
from typing import Final

from highwater.errors import UsageError
from highwater.reference.configuration.broker import BrokerConfig
from highwater.reference.security.login import Account, Login
from highwater.reference.security.mechanisms import Credentials
from highwater.reference.security.sasl import Authenticator

NONCE_BYTES: Final = 18
SALT_BYTES: Final = 16


def fresh_nonce() -> str:
    return secrets.token_urlsafe(NONCE_BYTES)


class Security:
    """The security of one broker, for its clients and for other brokers.

    Raises UsageError for certificates that cannot be read.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._requires_login = config.security_protocol.startswith("SASL")
        self._credentials = Credentials(config.sasl_users, secrets.token_bytes(SALT_BYTES))
        tls = config.security_protocol.endswith("SSL")
        self.server_context = _server_context(config) if tls else None
        self.client_context = (
            client_context(config.ssl_cafile, config.ssl_certfile, config.ssl_keyfile) if tls else None
        )

    def authenticator(self) -> Authenticator | None:
        """Return the authenticator of a new connection; None if no login is required."""
        if not self._requires_login:
            return None
        return Authenticator(self._config.sasl_enabled_mechanisms, self._credentials, fresh_nonce)

    def login(self) -> Login | None:
        """Return the SASL login of this broker at another one; None if no login is required."""
        if not self._requires_login:
            return None
        config, user = self._config, self._config.sasl_inter_broker_user
        account = Account(config.sasl_mechanism_inter_broker_protocol, user, config.sasl_users[user])
        return Login(account, fresh_nonce(), f"broker-{config.broker_id}")


def _server_context(config: BrokerConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, config.ssl_cafile, config.ssl_certfile, config.ssl_keyfile)
    context.verify_mode = ssl.CERT_REQUIRED if config.ssl_client_auth == "required" else ssl.CERT_NONE
    return context


def client_context(cafile: str, certfile: str = "", keyfile: str = "") -> ssl.SSLContext:
    """Return a context that verifies the server's name; without `cafile` it trusts the system's authorities."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not cafile:
        context.load_default_certs()
    _load(context, cafile, certfile, keyfile)
    return context


def _load(context: ssl.SSLContext, cafile: str, certfile: str, keyfile: str) -> None:
    try:
        if cafile:
            context.load_verify_locations(cafile)
        if certfile:
            context.load_cert_chain(certfile, keyfile or None)
    except (OSError, ssl.SSLError) as error:
        where = ", ".join(path for path in (cafile, certfile, keyfile) if path)
        raise UsageError(f"cannot read these certificates ({error})", where=where, hint="use PEM files") from error
