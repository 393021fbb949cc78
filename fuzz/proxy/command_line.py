"""`highwater proxy`: inject faults into single messages between an application and its brokers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from highwater.fuzz.proxy.addresses import Address


def proxy_command(
    upstream: Annotated[str, typer.Option(help="HOST:PORT[,HOST:PORT…] of brokers in the cluster.")] = "",
    listen: Annotated[
        str, typer.Option(help="HOST:PORT for clients to use as bootstrap server; port 0 picks a free one.")
    ] = "127.0.0.1:19092",
    advertise: Annotated[
        str, typer.Option(help="Host name that clients get in responses, for clients on other machines.")
    ] = "",
    fault: Annotated[
        list[str] | None, typer.Option(help="A line such as 'EndTxn: delay 800 ms once'; may be repeated.")
    ] = None,
    faults: Annotated[Path | None, typer.Option(help="A file with a line for each fault; # begins a comment.")] = None,
    seed: Annotated[int, typer.Option(help="Random seed of lines with a percentage.")] = 0,
    list_: Annotated[bool, typer.Option("--list", help="List filters, actions, APIs and errors; run nothing.")] = False,
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
    """Inject faults into single messages between clients and a cluster: errors, delays, losses, copies.

    Give your clients --listen as bootstrap server; each broker gets a port on the same host. Each message that is
    struck is printed. Ctrl-C ends the proxy and prints what each line did; the exit code is 3 if one of them struck
    nothing. With a history for `highwater audit`: highwater record --fault. How-to: docs/proxy.md.

    Examples: highwater proxy --upstream 127.0.0.1:9092 --fault 'Produce: answer NOT_LEADER_OR_FOLLOWER 3 times' ·
    highwater proxy --upstream 127.0.0.1:9092 --fault 'Fetch response client=app-*: delay 2000 ms every 10' ·
    highwater proxy --list
    """
    import asyncio

    from highwater.errors import UsageError
    from highwater.fuzz.proxy.proxy import Proxy
    from highwater.fuzz.proxy.run import armed_faults, parse_address, read_lines, run_until_interrupted
    from highwater.fuzz.proxy.summary import exit_code, listing, strike_line, table
    from highwater.fuzz.proxy.upstream import Upstream, tls_for_clients, tls_to_brokers

    if list_:
        for line in listing():
            typer.echo(line)
        return
    if not upstream:
        raise UsageError("no cluster", where="--upstream", hint="--upstream 127.0.0.1:9092")
    lines = [*(fault or ()), *(read_lines(faults) if faults is not None else ())]
    armed = armed_faults(lines, seed, lambda struck, subject: typer.echo(strike_line(struck, subject)))
    cluster = Upstream(tuple(parse_address(each) for each in upstream.split(",")), tls_to_brokers(tls_ca, tls_cert))
    here = parse_address(listen, "--listen")
    proxy = Proxy(here[0], tls_for_clients(listen_cert), faults=armed, note=typer.echo, advertised=advertise)

    def listening(address: "Address") -> None:
        typer.echo(f"Connect clients to {address[0]}:{address[1]}; press Ctrl-C to end. Seed {seed}.")

    asyncio.run(run_until_interrupted(proxy, cluster, here, listening))
    for line in table(armed):
        typer.echo(line)
    raise typer.Exit(exit_code(armed))
