"""Connect to brokers: try addresses in order, with or without TLS."""

import asyncio
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from highwater.errors import UsageError
from highwater.fuzz.proxy.addresses import Address
from highwater.reference.wire.framing import encode_request
from highwater.reference.wire.messages.metadata import ApiVersionsRequest

CONNECT_S: Final = 10.0
ANSWER_S: Final = 5.0
CORRELATION_ID: Final = 7
CLIENT_ID: Final = "highwater-proxy"
HEAD: Final = struct.Struct(">ii")  # size and correlation id


@dataclass(frozen=True, slots=True)
class Upstream:
    """One broker, or several brokers of a cluster that are equivalent."""

    addresses: tuple[Address, ...]
    tls: ssl.SSLContext | None = None

    async def connect(self) -> tuple[Address, asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the first address that answers. Raises OSError if none does."""
        failure: OSError = ConnectionError("no address")
        for address in self.addresses:
            try:
                async with asyncio.timeout(CONNECT_S):
                    return address, *await asyncio.open_connection(*address, ssl=self.tls)
            except OSError as error:  # TimeoutError is an OSError
                failure = error
        raise failure

    async def answers(self) -> bool:
        """Return whether a broker answers an ApiVersions request within `ANSWER_S`."""
        try:
            async with asyncio.timeout(ANSWER_S):
                _, reader, writer = await self.connect()
                try:
                    writer.write(encode_request(ApiVersionsRequest(), 0, CORRELATION_ID, CLIENT_ID))
                    size, correlation_id = HEAD.unpack(await reader.readexactly(HEAD.size))
                finally:
                    writer.close()
        except (OSError, EOFError):
            return False
        return bool(size > 0 and correlation_id == CORRELATION_ID)

    def at(self, address: Address) -> "Upstream":
        """Return the upstream of another broker, with the same TLS settings."""
        return Upstream((address,), self.tls)


@contextmanager
def _certificate_errors(file: Path, option: str) -> Iterator[None]:
    """Turn errors of reading a certificate file into UsageError."""
    try:
        yield
    except OSError as error:  # ssl.SSLError is an OSError
        hint = "give a PEM file; a client or server certificate needs its private key too"
        raise UsageError(f"cannot use {file} ({error.strerror or error})", where=option, hint=hint) from error


def tls_to_brokers(authority: Path | None, certificate: Path | None) -> ssl.SSLContext | None:
    """Return a TLS context for brokers, or None without a CA file; `certificate` is for mutual TLS."""
    if authority is None:
        return None
    context = ssl.create_default_context()
    with _certificate_errors(authority, "--tls-ca"):
        context.load_verify_locations(authority)
    if certificate is not None:
        with _certificate_errors(certificate, "--tls-cert"):
            context.load_cert_chain(certificate)
    return context


def tls_for_clients(certificate: Path | None) -> ssl.SSLContext | None:
    if certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with _certificate_errors(certificate, "--listen-cert"):
        context.load_cert_chain(certificate)
    return context
