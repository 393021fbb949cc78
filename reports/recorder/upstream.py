"""The way to brokers: addresses that are tried one after the other, with or without TLS."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from highwater.errors import UsageError
from highwater.reports.recorder.addresses import Address

CONNECT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Upstream:
    """A broker, or several of a cluster of which any will do."""

    addresses: tuple[Address, ...]
    tls: ssl.SSLContext | None = None

    async def connect(self) -> tuple[Address, asyncio.StreamReader, asyncio.StreamWriter]:
        """The first that answers. OSError when none does."""
        failure: OSError = ConnectionError("no address")
        for address in self.addresses:
            try:
                async with asyncio.timeout(CONNECT_S):
                    return address, *await asyncio.open_connection(*address, ssl=self.tls)
            except OSError as error:  # a timeout is one
                failure = error
        raise failure

    def at(self, address: Address) -> "Upstream":
        """Another broker of the cluster, reached in the same way."""
        return Upstream((address,), self.tls)


@contextmanager
def _telling(file: Path, option: str) -> Iterator[None]:
    """UsageError for what is no certificate."""
    try:
        yield
    except OSError as error:  # that of TLS is one
        hint = "a PEM file; of a certificate to show with its key"
        raise UsageError(f"cannot use {file} ({error.strerror or error})", where=option, hint=hint) from error


def tls_to_brokers(authority: Path | None, shown: Path | None) -> ssl.SSLContext | None:
    """None without an authority. `shown` holds a certificate and its key, for brokers that ask for one."""
    if authority is None:
        return None
    context = ssl.create_default_context()
    with _telling(authority, "--tls-ca"):
        context.load_verify_locations(authority)
    if shown is not None:
        with _telling(shown, "--tls-cert"):
            context.load_cert_chain(shown)
    return context


def tls_for_clients(shown: Path | None) -> ssl.SSLContext | None:
    if shown is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with _telling(shown, "--listen-cert"):
        context.load_cert_chain(shown)
    return context
