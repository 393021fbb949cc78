"""`highwater record`: record the traffic of a user's own clients as a history."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from highwater.reports.recorder.addresses import Address


def record_command(
    listen: Annotated[
        str, typer.Option(help="HOST:PORT for clients to use as bootstrap server; port 0 picks a free one.")
    ],
    upstream: Annotated[str, typer.Option(help="HOST:PORT[,HOST:PORT…] of brokers in the cluster.")],
    out: Annotated[Path, typer.Option(help="Write the history to this file.")] = Path("history.ndjson"),
    group: Annotated[list[str] | None, typer.Option(help="Record only these groups; by default all.")] = None,
    tls_ca: Annotated[
        Path | None, typer.Option(help="Connect to brokers by TLS; trust the CA certificates in this file (PEM).")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Client certificate and key (PEM) for brokers that require one.")
    ] = None,
    listen_cert: Annotated[
        Path | None, typer.Option(help="Accept clients by TLS with this certificate and key (PEM).")
    ] = None,
) -> None:
    """Record the traffic between clients and a cluster as a history for `highwater audit`.

    Runs a proxy: give your clients --listen as bootstrap server. Each broker gets a port on the same host.
    Ctrl-C ends the recording and keeps the history. How records are identified: docs/audit/formats.md.

    Example: highwater record --listen 127.0.0.1:19092 --upstream 127.0.0.1:9092 --out history.ndjson
    """
    import asyncio
    import contextlib

    from highwater.reports.recorder.run import Endpoints, record_until_interrupted, start_recording
    from highwater.reports.recorder.upstream import Upstream, tls_for_clients, tls_to_brokers

    brokers = tuple(_address(address, "--upstream") for address in upstream.split(","))
    cluster = Upstream(brokers, tls_to_brokers(tls_ca, tls_cert))
    endpoints = Endpoints(_address(listen, "--listen"), cluster, tls_for_clients(listen_cert), group or ())
    sink = out.open("wb")

    def listening(address: "Address") -> None:
        typer.echo(f"Recording. Connect clients to {address[0]}:{address[1]}; press Ctrl-C to end.")

    try:
        recording = start_recording(sink)
        asyncio.run(record_until_interrupted(endpoints, recording, listening))
        recording.finish()
    finally:
        with contextlib.suppress(OSError):  # a write error was already reported
            sink.close()
    typer.echo(f"{recording.operations:,} operations recorded in {out}. Next: highwater audit {out}")


def _address(text: str, where: str) -> "Address":
    from highwater.errors import UsageError

    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"expected HOST:PORT, not {text!r}", where=where, hint=f"{where} 127.0.0.1:9092")
    return host.strip("[]"), int(port)
