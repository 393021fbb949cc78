"""`highwater record`: a history of a user's own clients."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from highwater.reports.recorder.addresses import Address


def record_command(
    listen: Annotated[str, typer.Option(help="HOST:PORT that clients get as bootstrap server; port 0 is any.")],
    upstream: Annotated[str, typer.Option(help="HOST:PORT[,HOST:PORT…] of brokers of the cluster.")],
    out: Annotated[Path, typer.Option(help="The history to write.")] = Path("history.ndjson"),
    group: Annotated[list[str] | None, typer.Option(help="Record only these groups; by default all.")] = None,
    tls_ca: Annotated[
        Path | None, typer.Option(help="Brokers speak TLS, with certificates that this file (PEM) vouches for.")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate and key (PEM) for brokers that ask for one.")
    ] = None,
    listen_cert: Annotated[
        Path | None, typer.Option(help="Clients speak TLS too, and are shown this certificate (PEM, with its key).")
    ] = None,
) -> None:
    """Record what clients and a cluster tell each other, as a history for `highwater audit`.

    A proxy: give your clients --listen as bootstrap server; brokers get a port each, on the same host.
    Ctrl-C ends it and keeps the history. How records are told apart: docs/audit/formats.md.

    Example: highwater record --listen 127.0.0.1:19092 --upstream 127.0.0.1:9092 --out history.ndjson
    """
    import asyncio
    import contextlib

    from highwater.reports.recorder.run import Ends, begun, record_until_interrupted
    from highwater.reports.recorder.upstream import Upstream, tls_for_clients, tls_to_brokers

    brokers = tuple(_address(each, "--upstream") for each in upstream.split(","))
    there = Upstream(brokers, tls_to_brokers(tls_ca, tls_cert))
    ends = Ends(_address(listen, "--listen"), there, tls_for_clients(listen_cert), group or ())
    sink = out.open("wb")

    def listening(address: "Address") -> None:
        typer.echo(f"recording: clients connect to {address[0]}:{address[1]}; Ctrl-C ends it")

    try:
        recording = begun(sink)
        asyncio.run(record_until_interrupted(ends, recording, listening))
    finally:
        with contextlib.suppress(OSError):  # what was not written has been told
            sink.close()
    typer.echo(f"{recording.operations:,} operations recorded in {out}; next: highwater audit {out}")


def _address(text: str, where: str) -> "Address":
    from highwater.errors import UsageError

    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"expected HOST:PORT, not {text!r}", where=where, hint=f"{where} 127.0.0.1:9092")
    return host.strip("[]"), int(port)
