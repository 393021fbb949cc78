"""`highwater record`: a history of a user's own clients."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from reports.recorder.addresses import Address


def record_command(
    listen: Annotated[str, typer.Option(help="HOST:PORT that clients get as bootstrap server; port 0 is any.")],
    upstream: Annotated[str, typer.Option(help="HOST:PORT of a broker of the cluster.")],
    out: Annotated[Path, typer.Option(help="The history to write.")] = Path("history.ndjson"),
    group: Annotated[list[str] | None, typer.Option(help="Record only these groups; by default all.")] = None,
) -> None:
    """Record what clients and a cluster tell each other, as a history for `highwater audit`.

    A proxy on plain connections: give your clients --listen as bootstrap server; brokers get a port each, on the same
    host. Ctrl-C ends it and keeps the history. How records are told apart: docs/audit/formats.md.

    Example: highwater record --listen 127.0.0.1:19092 --upstream 127.0.0.1:9092 --out history.ndjson
    """
    import asyncio
    import contextlib

    from reports.recorder.run import record

    host, port = _address(listen, "--listen")
    sink = out.open("wb")
    try:
        recording = asyncio.run(record((host, port), _address(upstream, "--upstream"), sink, group or (), typer.echo))
    finally:
        with contextlib.suppress(OSError):  # what was not written has been told
            sink.close()
    typer.echo(f"{recording.operations:,} operations recorded in {out}; next: highwater audit {out}")


def _address(text: str, where: str) -> "Address":
    from spec.formats.verdict import UsageError

    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"expected HOST:PORT, not {text!r}", where=where, mend=f"{where} 127.0.0.1:9092")
    return host.strip("[]"), int(port)
