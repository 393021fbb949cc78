"""`highwater record`: record the traffic of a user's own clients as a history."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from highwater.errors import UsageError
from highwater.fuzz.proxy.command_line import (
    UPSTREAM_HELP,
    FaultLines,
    Listen,
    ListenCertificate,
    Seed,
    TlsAuthority,
    TlsCertificate,
    cluster_at,
)

if TYPE_CHECKING:
    from highwater.fuzz.proxy.addresses import Address


def record_command(
    listen: Listen,
    upstream: Annotated[str, typer.Option(help=UPSTREAM_HELP)],
    out: Annotated[Path, typer.Option(help="Write the history to this file.")] = Path("history.ndjson"),
    group: Annotated[list[str] | None, typer.Option(help="Record only these groups; by default all.")] = None,
    fault: FaultLines = None,
    seed: Seed = 0,
    tls_ca: TlsAuthority = None,
    tls_cert: TlsCertificate = None,
    listen_cert: ListenCertificate = None,
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
    from highwater.fuzz.proxy.summary import exit_code, strike_line, table
    from highwater.fuzz.proxy.upstream import tls_for_clients
    from highwater.reports.recorder.run import Endpoints, record_until_interrupted, start_recording

    cluster = cluster_at(upstream, tls_ca, tls_cert)
    armed = armed_faults(fault or (), seed, lambda struck, subject: typer.echo(strike_line(struck, subject)))
    endpoints = Endpoints(parse_address(listen, "--listen"), cluster, tls_for_clients(listen_cert), group or (), armed)
    if out.exists() and out.stat().st_size > 0:
        raise UsageError("the file exists", where=f"--out {out}", hint="name another one, or delete it")
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
    if armed.lines:
        raise typer.Exit(exit_code(armed))
