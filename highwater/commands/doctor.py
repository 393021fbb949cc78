"""`highwater doctor`: what this machine can do, or what a cluster lacks."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from highwater.errors import ExitCode
from highwater.names import hanging
from highwater.reference.tools.output import CommandConfigOption, JsonOption, print_json, print_table

if TYPE_CHECKING:
    from highwater.doctor import Capability


def doctor_command(
    bootstrap: Annotated[
        str, typer.Option("--bootstrap-server", help="Look at this cluster instead: HOST:PORT[,HOST:PORT].")
    ] = "",
    command_config: CommandConfigOption = None,
    json_: JsonOption = False,
) -> None:
    """Print each capability of this machine: whether it is present, its purpose, and how to get it.

    With --bootstrap-server, print each partition of a cluster that has no leader, a replica that is offline (its broker
    is down, or its stored data is damaged), or one outside the ISR; internal topics first.

    Exit code 2 if a capability that every command needs is missing, 1 if a partition of the cluster lacks something.

    Examples: highwater doctor · highwater doctor --json · highwater doctor --bootstrap-server localhost:9092
    """
    raise typer.Exit(_cluster(bootstrap, command_config, json_=json_) if bootstrap else _machine(json_=json_))


def _machine(*, json_: bool) -> ExitCode:
    from highwater.doctor import capabilities

    found = capabilities()
    if json_:
        print_json({"capabilities": [dataclasses.asdict(capability) for capability in found]})
    else:
        print("\n".join(_lines(found)))
    return ExitCode.HELD if all(row.present for row in found if row.needed) else ExitCode.USAGE


def _lines(found: "Sequence[Capability]") -> Iterator[str]:
    """Yield the capabilities that every command needs, then the others, then what is missing of the former."""
    width = max(len(row.name) for row in found)
    for needed, title in ((True, "Needed by every command:"), (False, "Needed by some commands:")):
        yield title
        for row in (row for row in found if row.needed == needed):
            label = f"  {'yes' if row.present else 'NO ' if needed else 'no '}  {row.name:<{width}}  "
            yield hanging(label, row.detail)
            if not row.present:
                yield hanging(" " * len(label), f"{row.why}; {row.how}")
    missing = [row.name for row in found if row.needed and not row.present]
    yield f"No command works without: {', '.join(missing)}." if missing else "Every command finds what it always needs."


def _cluster(bootstrap: str, command_config: Path | None, *, json_: bool) -> ExitCode:
    from highwater.reference.tools.health import health
    from highwater.reference.tools.output import connect

    with connect(bootstrap, command_config) as cluster:
        found = health(cluster)
    if json_:
        result: dict[str, Any] = dataclasses.asdict(found)
        print_json(result)
    elif found.problems:
        print_table(["partition", "lacks", "what to do"], [list(dataclasses.astuple(each)) for each in found.problems])
    else:
        counts = f"topics: {found.topics:,}; partitions: {found.partitions:,}"
        print(f"{counts}; each has a leader, and all replicas in the ISR")
    return ExitCode.VIOLATED if found.problems else ExitCode.HELD
