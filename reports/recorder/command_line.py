"""`highwater record`: record the traffic of a user's own clients as a history."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from highwater.fuzz.proxy.addresses import Address


def record_command(
    listen: Annotated[
        str, typer.Option(help="HOST:PORT for clients to use as bootstrap server; port 0 picks a free one.")
    ],
    upstream: Annotated[str, typer.Option(help="HOST:PORT[,HOST:PORT…] of brokers in the cluster.")],
    out: Annotated[Path, typer.Option(help="Write the history to this file.")] = Path("history.ndjson"),
    group: Annotated[list[str] | None, typer.Option(help="Record only these groups; by default all.")] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(help="Inject a fault, such as 'EndTxn: delay 800 ms once' (see highwater proxy --list)."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of faults with a percentage.")] = 0,
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
    Ctrl-C ends the recording and keeps the history. How records are identified: docs/audit/formats.md. With --fault it
    also injects faults into single messages, which the history then contains (docs/proxy.md).

    Example: highwater record --listen 127.0.0.1:19092 --upstream 127.0.0.1:9092 --out history.ndjson
    """
    import asyncio
    import contextlib

    from highwater.fuzz.proxy.run import armed_faults, parse_address
    from highwater.fuzz.proxy.summary import strike_line, table
    from highwater.fuzz.proxy.upstream import Upstream, tls_for_clients, tls_to_brokers
    from highwater.reports.recorder.run import Endpoints, record_until_interrupted, start_recording

    brokers = tuple(parse_address(address) for address in upstream.split(","))
    cluster = Upstream(brokers, tls_to_brokers(tls_ca, tls_cert))
    armed = armed_faults(fault or (), seed, lambda struck, subject: typer.echo(strike_line(struck, subject)))
    endpoints = Endpoints(parse_address(listen, "--listen"), cluster, tls_for_clients(listen_cert), group or (), armed)
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
    for line in table(armed):
        typer.echo(line)
    typer.echo(f"{recording.operations:,} operations recorded in {out}. Next: highwater audit {out}")
