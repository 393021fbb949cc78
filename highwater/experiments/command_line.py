"""`highwater bench`: repeat the documents' measurements and judge their claims."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from highwater.errors import ExitCode


def bench_command(
    targets: Annotated[
        list[str] | None, typer.Argument(help="reference[:N], apache-kafka[:VERSION][:N] or HOST:PORT; side by side.")
    ] = None,
    experiment: Annotated[
        list[str] | None, typer.Option("--experiment", "-e", help="Only this experiment; may be repeated.")
    ] = None,
    scale: Annotated[str, typer.Option(help="How much is measured: tiny, default or full.")] = "default",
    repetitions: Annotated[
        int | None, typer.Option(min=1, help="Rounds of the quick experiments; an interval needs three.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the order of the conditions.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Write results to this folder instead of results/.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with an interrupted bench, in its folder.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the experiments and the tables they repeat.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Repeat the measurements that Kafka's documents publish, and say which of their claims hold here.

    Throughput by acks, replicas, partitions, record size and clients; latency; brokers killed under load, with every
    acknowledged record accounted for; the pause of a group by rebalance protocol; availability under each fault.
    All targets run side by side and are measured in turn. Ends with a page, a CSV and a Parquet file.

    Use three brokers or more; the reliability document has four. Exit code 0: measured, whatever the verdicts; 3: no
    claim could be decided.

    Examples: highwater bench reference:3 apache-kafka:3 --scale tiny
    · highwater bench apache-kafka:0.10.2.2:4 apache-kafka:4 -e throughput -e failures
    · highwater bench localhost:9092 -e latency
    · highwater bench --resume results/20261125T040000Z-bench
    """
    if list_:
        _list(json=json_)
        return
    if resume is None:
        _check(targets or [], experiment or [], scale)
    from highwater.experiments.plans import SCALES, experiments_of
    from highwater.experiments.run import Plan, read_plan, run
    from highwater.results import new_folder

    if resume is not None:
        folder, plan = resume, read_plan(resume)
    else:
        plan = Plan(
            targets=list(dict.fromkeys(targets or [])), experiments=experiments_of(scale, experiment or []),
            scale=scale, seed=seed,
            repetitions=repetitions or SCALES[scale].repetitions,
        )  # fmt: skip
        folder = new_folder("bench", target=" ".join(plan.targets), seed=seed, **({"root": out} if out else {}))
    try:
        with _progress(plan, quiet=json_) as (say, advance):
            run(plan, folder, say, advance)
    except KeyboardInterrupt as interrupt:
        _finish(plan, folder, json=False)
        typer.echo(f"Interrupted. Go on with: highwater bench --resume {folder}", err=True)
        raise typer.Abort from interrupt
    raise typer.Exit(_finish(plan, folder, json=json_))


def _check(targets: list[str], experiments: list[str], scale: str) -> None:
    """Raise UsageError for what is unknown, before anything is started, or imported that takes long."""
    from highwater.conformance.targets import check_reachable, check_target
    from highwater.errors import UsageError
    from highwater.experiments.plans import EXPERIMENTS, SCALES
    from highwater.names import unknown_name

    if not targets:
        raise UsageError(
            "no target", where="highwater bench", hint="for example: highwater bench reference:3 apache-kafka:3"
        )
    for target in targets:
        check_target(target)
        check_reachable(target)
        if target.endswith(".toml"):
            raise UsageError(
                "a cluster file cannot be measured", where=target, hint="give the addresses: HOST:PORT,..."
            )
    for name in experiments:
        if name not in EXPERIMENTS:
            raise unknown_name("experiment", name, EXPERIMENTS, "highwater bench --list")
    if scale not in SCALES:
        raise unknown_name("scale", scale, SCALES, "highwater bench --help")


def _progress(plan: Any, *, quiet: bool) -> Any:
    """Return a context that yields two functions: one shows what is measured, the other counts measurements."""
    from highwater.experiments.run import tasks

    if quiet:
        return nullcontext((lambda line: None, lambda line: None))
    return _Bar(sum(1 for _ in tasks(plan)))


class _Bar:
    """A bar with the time that is left on a terminal; elsewhere a line for each experiment and target."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        self._is_terminal, self._last = console.is_terminal, ""
        self._bar = Progress(
            MofNCompleteColumn(), BarColumn(20), TimeRemainingColumn(), TextColumn("{task.description}"),
            console=console, transient=True, disable=not self._is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> tuple[Any, Any]:
        self._bar.start()
        return self._say, self._advance

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def _say(self, line: str) -> None:
        self._bar.update(self._task, description=line[:100])
        if not self._is_terminal and line.startswith(("starting", "warming")):
            typer.echo(line, err=True)

    def _advance(self, line: str) -> None:
        self._bar.advance(self._task)
        if not self._is_terminal and line != self._last and line.rpartition(" ")[2] != self._last.rpartition(" ")[2]:
            typer.echo(f"measuring {line.rpartition(' ')[2]}", err=True)
        self._last = line


def _finish(plan: Any, folder: Path, *, json: bool) -> ExitCode:
    """Write the files and the page of what is measured, and print the verdicts."""
    import msgspec

    from highwater.experiments.conditions import Store
    from highwater.experiments.export import export
    from highwater.experiments.page import count_verdicts, judgements, write_page

    measurements = Store(folder).measurements
    export(measurements, folder)
    page = write_page(folder, plan.targets, measurements, {"scale": plan.scale, "repetitions": str(plan.repetitions)})
    names = list(dict.fromkeys([*plan.targets, *(one.target for one in measurements)]))
    judged = judgements(names, measurements)
    counts = count_verdicts(judged)
    if json:
        verdicts = [
            {"claim": one.claim.says, "target": one.target, "verdict": one.verdict, "measured": one.measured,
             "document": one.document} for one in judged
        ]  # fmt: skip
        typer.echo(msgspec.json.encode({"folder": str(folder), "verdicts": verdicts, **counts}).decode())
    else:
        _print(judged)
        failed = sum(1 for one in measurements if one.failed)
        typer.echo(
            f"\n{len(measurements)} measurements ({failed} failed); claims: "
            + ", ".join(f"{count} {name}" for name, count in counts.items())
            + _left_out(plan)
            + f"\npage: {page}\ndata: {folder / 'measurements.csv'}, {folder / 'measurements.parquet'}"
        )
    return ExitCode.HELD if counts["agrees"] + counts["disagrees"] else ExitCode.UNDECIDED


def _left_out(plan: Any) -> str:
    """Return a line that names the experiments that were not measured, if there are any."""
    from highwater.experiments.plans import EXPERIMENTS

    names = [name for name in EXPERIMENTS if name not in plan.experiments]
    return f"\nnot measured: {', '.join(names)} (`-e NAME` measures one)" if names else ""


def _print(judged: list[Any]) -> None:
    """Print the verdicts, the claims of one table together."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("claim", "target", "verdict", "measured"):
        table.add_column(column, overflow="fold")
    last = ""
    for one in judged:
        table.add_row(one.claim.says if one.claim.says != last else "", one.target, one.verdict.value, one.measured)
        last = one.claim.says
    Console(highlight=False).print(table)


def _list(*, json: bool) -> None:
    """Print each experiment, and the tables that it repeats with their claims; as JSON an array of objects."""
    import msgspec

    from highwater.experiments.documents import claims, tables
    from highwater.experiments.plans import EXPERIMENTS

    listed: list[dict[str, Any]] = [
        {
            "experiment": name,
            "tables": [
                {"name": table.name, "says": table.says, "claims": [c.says for c in claims() if c.table == table.id]}
                for table in tables()
                if table.experiment == name
            ],
        }
        for name in EXPERIMENTS
    ]
    if json:
        typer.echo(msgspec.json.encode(listed).decode())
        return
    for entry in listed:
        typer.echo(entry["experiment"])
        for table in entry["tables"]:
            typer.echo(f"  {table['name']}: {table['says']}")
            for claim in table["claims"]:
                typer.echo(f"    - {claim}")
