"""SaslHandshake (key 17): choose a SASL mechanism.

After 0 raw SASL tokens follow on the connection; after 1 they travel in SaslAuthenticate (KIP-152). Never flexible.
"""

from reference.wire.schema import Int16, String, message


@message(api_key=17, versions="0-1")
class SaslHandshakeRequest:
    """The wanted mechanism."""

    mechanism: String = ""


@message(api_key=17, versions="0-1")
class SaslHandshakeResponse:
    """The mechanisms that the broker has."""

    error_code: Int16 = 0
    mechanisms: tuple[String, ...] = ()
