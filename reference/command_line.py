"""The command `highwater broker`: run the reference broker as one process, or as a cluster of processes."""

from pathlib import Path
from typing import Annotated

import typer


def _print_line(line: str) -> None:
    print(line, flush=True)


def broker_command(
    config: Annotated[Path | None, typer.Option(help="TOML file of the one node to run.")] = None,
    cluster: Annotated[int, typer.Option(min=0, max=9, help="Number of brokers to run, with a metadata store.")] = 0,
    port: Annotated[int, typer.Option(help="First port of the cluster; 0 chooses free ports.")] = 0,
    first_id: Annotated[int, typer.Option(min=0, help="First broker id of the cluster.")] = 1,
    folder: Annotated[
        Path | None, typer.Option(help="Folder for the cluster's data (default: a temporary folder).")
    ] = None,
    truncation: Annotated[
        str, typer.Option(help="Rule by which followers truncate: kip320, kip279, kip101 or high_watermark.")
    ] = "kip320",
    guard_off: Annotated[
        list[str] | None, typer.Option(help="Guard to switch off, e.g. AckAfterCommit; repeatable.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Broker setting, as KEY=VALUE or ID.KEY=VALUE; repeatable.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Folder for the traces of all nodes, for `highwater spec trace`.")
    ] = None,
    control: Annotated[bool, typer.Option(help="Read start/kill/pause/resume commands from standard input.")] = False,
    list_: Annotated[
        bool, typer.Option("--list", help="List the settings with their defaults; start nothing.")
    ] = False,
) -> None:
    """Run the reference broker: one node, or a cluster of processes.

    Prints `ready HOST:PORT[,HOST:PORT...]` once every broker answers, and stops cleanly on Ctrl-C.

    Examples: highwater broker --cluster 3 --port 9092 · highwater broker --cluster 1 --guard-off AckAfterCommit
    · highwater broker --config broker.toml
    """
    from highwater.errors import UsageError

    if list_:
        _list_settings()
        return
    if (config is None) == (cluster == 0):
        raise UsageError("give either --config FILE or --cluster N", hint="try: highwater broker --cluster 3")
    if config is not None:
        from highwater.reference.configuration.properties import read_config
        from highwater.reference.drivers.process import run_node

        run_node(read_config(config), lambda address: _print_line(f"ready {address}"), trace=trace)
        return
    from highwater.reference.drivers.cluster import Cluster, cluster_settings, supervise

    settings = cluster_settings(
        cluster, truncation=truncation, guards_off=guard_off or [], **dict(_setting(text) for text in set_ or [])
    )
    nodes = Cluster(cluster, folder=folder, port=port, settings=settings, first_id=first_id, trace=trace, forks=True)
    supervise(nodes, _print_line, control=control)


def _setting(text: str) -> tuple[str, object]:
    """Parse KEY=VALUE; the value is parsed as JSON if possible, else it is a string. UsageError without `=`."""
    import json

    from highwater.errors import UsageError

    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"expected KEY=VALUE, not {text!r}", where="--set")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _list_settings() -> None:
    import msgspec

    from highwater.names import print_names
    from highwater.reference.configuration.broker import BrokerConfig

    fields = msgspec.structs.fields(BrokerConfig)
    rows = ((field.name, "required" if field.required else str(field.default)) for field in fields)
    print_names(rows, ("setting", "default"))
