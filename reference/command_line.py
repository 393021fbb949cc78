"""`highwater broker`: the reference broker as one process, or as a cluster of processes."""

from pathlib import Path
from typing import Annotated

import typer


def _say(line: str) -> None:
    print(line, flush=True)


def broker_command(
    config: Annotated[Path | None, typer.Option(help="Run the one node that this TOML file describes.")] = None,
    cluster: Annotated[int, typer.Option(min=0, max=9, help="Run a metadata store and this many brokers.")] = 0,
    port: Annotated[int, typer.Option(help="First of the cluster's ports; 0 takes free ones.")] = 0,
    first_id: Annotated[int, typer.Option(min=0, help="The cluster's broker ids count from here.")] = 1,
    folder: Annotated[
        Path | None, typer.Option(help="Keep the cluster's data here (default: a temporary folder).")
    ] = None,
    truncation: Annotated[str, typer.Option(help="kip320 or high_watermark.")] = "kip320",
    guard_off: Annotated[
        list[str] | None, typer.Option(help="Switch a guard off, e.g. AckAfterCommit; repeatable.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A broker setting, KEY=VALUE, or ID.KEY=VALUE; repeatable.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write every node's steps into this folder, for `highwater spec trace`.")
    ] = None,
    control: Annotated[bool, typer.Option(help="Take start/kill/pause/resume commands on standard input.")] = False,
) -> None:
    """Run the reference broker: one node, or a cluster of processes.

    Prints `ready HOST:PORT[,HOST:PORT...]` once every broker answers, and stops cleanly on Ctrl-C.

    Examples: highwater broker --cluster 3 --port 9092 · highwater broker --cluster 1 --guard-off AckAfterCommit
    · highwater broker --config broker.toml
    """
    from spec.formats.verdict import UsageError

    if (config is None) == (cluster == 0):
        raise UsageError("give either --config FILE or --cluster N", mend="try: highwater broker --cluster 3")
    if config is not None:
        from reference.config_file import read_config
        from reference.drivers.process import run_node

        run_node(read_config(config), lambda address: _say(f"ready {address}"), trace=trace)
        return
    from reference.drivers.cluster import Cluster, supervise

    settings: dict[str, object] = {
        "truncation": truncation,
        "guards_off": list(guard_off or []),
        "replica_fetch_wait_max_ms": 100,
        "default_replication_factor": min(cluster, 3),
        "offsets_topic_replication_factor": min(cluster, 3),
        **dict(_setting(each) for each in set_ or []),
    }
    nodes = Cluster(cluster, folder=folder, port=port, settings=settings, first_id=first_id, trace=trace)
    supervise(nodes, _say, control=control)


def _setting(text: str) -> tuple[str, object]:
    """KEY=VALUE, where a value reads as JSON if it can: a number, a truth value, a table of users."""
    import json

    from spec.formats.verdict import UsageError

    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"expected KEY=VALUE, not {text!r}", where="--set")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
