"""`highwater proxy`: inject faults into single messages between an application and its brokers.

The options of addresses and TLS are those of `highwater record`, too.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from highwater.fuzz.proxy.addresses import Address
    from highwater.fuzz.proxy.upstream import Upstream

UPSTREAM_HELP: Final = "HOST:PORT[,HOST:PORT…] of brokers in the cluster."
Listen = Annotated[str, typer.Option(help="HOST:PORT for clients to use as bootstrap server; port 0 picks a free one.")]
FaultLines = Annotated[
    list[str] | None,
    typer.Option(help="A line such as 'EndTxn: delay 800 ms once' (see highwater proxy --list); may be repeated."),
]
Seed = Annotated[int, typer.Option(help="Random seed of lines with a percentage.")]
TlsAuthority = Annotated[
    Path | None, typer.Option(help="Connect to brokers by TLS; trust the CA certificates in this file (PEM).")
]
TlsCertificate = Annotated[
    Path | None, typer.Option(help="Client certificate and key (PEM) for brokers that require one.")
]
ListenCertificate = Annotated[
    Path | None, typer.Option(help="Accept clients by TLS with this certificate and key (PEM).")
]


def proxy_command(
    upstream: Annotated[str, typer.Option(help=UPSTREAM_HELP)] = "",
    listen: Listen = "127.0.0.1:19092",
    advertise: Annotated[
        str, typer.Option(help="Host name that clients get in responses, for clients on other machines.")
    ] = "",
    fault: FaultLines = None,
    faults: Annotated[Path | None, typer.Option(help="A file with a line for each fault; # begins a comment.")] = None,
    seed: Seed = 0,
    list_: Annotated[bool, typer.Option("--list", help="List filters, actions, APIs and errors; run nothing.")] = False,
    tls_ca: TlsAuthority = None,
    tls_cert: TlsCertificate = None,
    listen_cert: ListenCertificate = None,
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
    from highwater.fuzz.proxy.upstream import tls_for_clients

    if list_:
        for line in listing():
            typer.echo(line)
        return
    if not upstream:
        raise UsageError("no cluster", where="--upstream", hint="--upstream 127.0.0.1:9092")
    lines = [*(fault or ()), *(read_lines(faults) if faults is not None else ())]
    armed = armed_faults(lines, seed, lambda struck, subject: typer.echo(strike_line(struck, subject)))
    cluster = cluster_at(upstream, tls_ca, tls_cert)
    here = parse_address(listen, "--listen")
    proxy = Proxy(here[0], tls_for_clients(listen_cert), faults=armed, note=typer.echo, advertised=advertise)

    def listening(address: "Address") -> None:
        typer.echo(f"Connect clients to {address[0]}:{address[1]}; press Ctrl-C to end. Seed {seed}.")

    asyncio.run(run_until_interrupted(proxy, cluster, here, listening))
    for line in table(armed):
        typer.echo(line)
    raise typer.Exit(exit_code(armed))


def cluster_at(addresses: str, tls_ca: Path | None, tls_cert: Path | None) -> "Upstream":
    """Return the brokers that --upstream names, and warn if none answers, since one may start later.

    Raises UsageError for an address or a certificate with a mistake.
    """
    import asyncio

    from highwater.fuzz.proxy.run import parse_address
    from highwater.fuzz.proxy.upstream import Upstream, tls_to_brokers

    upstream = Upstream(tuple(parse_address(each) for each in addresses.split(",")), tls_to_brokers(tls_ca, tls_cert))
    if not asyncio.run(upstream.answers()):
        typer.echo(f"Warning: no broker answers at {addresses}; clients get no reply until one does.", err=True)
    return upstream
