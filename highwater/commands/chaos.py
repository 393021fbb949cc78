"""`highwater chaos`: inject faults into real processes and audit the history."""

import shlex
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from highwater.errors import ExitCode

SEARCHED = 20
TRACES = "traces"
FOLDERS = "kafka"
LOGS = "logs.json"
ALL_WORKLOADS = "send,poll,subscribe,wander,transact,observe"


def chaos_command(
    target: Annotated[
        str, typer.Argument(help="reference[:N], apache-kafka[:VERSION][:N], FILE.toml, HOST:PORT, simulator[:N].")
    ],
    schedule: Annotated[Path | None, typer.Option(help="Run this schedule; without it, one is drawn.")] = None,
    seconds: Annotated[float, typer.Option(min=10, help="Length of a drawn schedule in seconds.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Seed of the schedule and of its random choices.")] = 1,
    search: Annotated[
        bool, typer.Option(help="Draw one schedule of racing kills after another until records are lost.")
    ] = False,
    runs: Annotated[int, typer.Option(min=1, help="Limit on the schedules that --search tries.")] = SEARCHED,
    workload: Annotated[str, typer.Option(help="Clients to run, separated by commas.")] = ALL_WORKLOADS,
    clients: Annotated[
        str | None,
        typer.Option(help="Command that runs your own clients; they connect to $BOOTSTRAP and are recorded."),
    ] = None,
    rate: Annotated[int, typer.Option(min=0, help="Limit on records a second of each producer; 0 means no limit.")] = 0,
    packets: Annotated[
        bool, typer.Option("--packets", help="Cut and drop packets (nftables) instead of streams (proxy).")
    ] = False,
    trace: Annotated[
        bool, typer.Option("--trace", help="Write the steps of reference nodes, for `highwater spec trace`.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep Apache Kafka's data folders and check them against the specs.")
    ] = False,
    faults: Annotated[
        bool, typer.Option("--faults", help="Start the target and list which faults it supports, and why not others.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Break a cluster of real processes while clients write and read, then audit the history.

    Processes are killed, paused and restarted, links cut and delayed, sessions expired, clients stalled. At the end
    all faults are undone, and every partition is read from its start. Exit code 1 if a promise was broken.

    --clients runs your command beside the built-in clients, or instead of them with --workload none. SIGTERM signals
    that all faults are over: the command may read the topics again, and must end.

    Examples: highwater chaos reference:3 --seconds 60 --seed 7
    · highwater chaos apache-kafka:0.10.2.2:2 --schedule fuzz/schedules/kip101.json --workload send
    · highwater chaos simulator:2 --schedule fuzz/schedules/kip101.json
    · highwater chaos apache-kafka:4.3.1:3 --seconds 60 --keep
    · highwater chaos apache-kafka:3 --workload none --clients 'python examples/clients/two_libraries.py'
    """
    import msgspec

    from highwater.errors import EXIT_OF_VERDICT, UsageError, Verdict
    from highwater.fuzz.schedule import read_schedule

    if schedule is not None and search:
        raise UsageError(
            "--search draws its own schedules", where="--schedule", hint="use either --search or --schedule"
        )
    given_schedule = read_schedule(schedule) if schedule else None
    if target.partition(":")[0] == "simulator":
        raise typer.Exit(_side_by_side(target, given_schedule, json=json_))
    if faults:
        _list_faults(target, json=json_)
        return
    results: list[dict[str, Any]] = []
    for run_seed in range(seed, seed + (runs if search else 1)):
        results.append(
            _one(
                target, given_schedule, seconds, run_seed, workload, rate, clients, packets=packets, races=search,
                trace=trace, keep=keep, quiet=json_,
            )
        )  # fmt: skip
        if results[-1]["verdict"] is Verdict.INVALID:
            break
    if json_:
        found: Any = results[-1] if not search else {"verdict": results[-1]["verdict"], "runs": results}
        typer.echo(msgspec.json.encode(found).decode())
    raise typer.Exit(EXIT_OF_VERDICT[results[-1]["verdict"]])


def _one(
    target: str, schedule: Any, seconds: float, seed: int, workload: str, rate: int, clients: str | None, *,
    packets: bool, races: bool, trace: bool, keep: bool, quiet: bool,
) -> dict[str, Any]:  # fmt: skip
    """Run a schedule, audit it and print the result; return the object for `--json`."""
    from rich.console import Console

    from highwater.errors import Verdict, worst
    from highwater.fuzz.chaos.run import MESSAGES, SCHEDULE, chaos
    from highwater.fuzz.schedule import read_schedule
    from highwater.reports.audit import audit
    from highwater.reports.command_line import show
    from highwater.reports.recorder.clients import FOLDER
    from highwater.reports.report import AGAIN, history_folders, report
    from highwater.reports.verdicts import write_verdict
    from highwater.results import new_folder

    if workload != "none":
        import_module("confluent_kafka")  # so that a missing extra is named before a cluster is started
    folder = new_folder("chaos", target=target, seed=seed)
    traces = folder / TRACES
    console = Console(highlight=False, quiet=quiet)
    with console.status(f"starting {target}") as status:
        path = chaos(
            target, schedule, folder, seconds=seconds, seed=seed, workloads=workload, rate=rate, packets=packets,
            races=races, trace=traces if trace else None, keep=folder / FOLDERS if keep else None,
            say=lambda line: status.update(f"seed {seed}: {line}"),
            user_clients=partial(_recorded_clients, clients, folder),
        )  # fmt: skip
    options = [
        *("--workload", workload), *(("--clients", clients) if clients else ()),
        *(("--rate", str(rate)) if rate else ()), *("--packets" for _ in range(packets)),
    ]  # fmt: skip
    again = shlex.join(["highwater", "chaos", target, "--schedule", str(folder / SCHEDULE), *options])
    (folder / AGAIN).write_text(again)
    results = []
    for history in (each / path.name for each in history_folders(folder)):
        results.append(audit(history))
        write_verdict(history.parent, results[-1])
        if not quiet:
            show(results[-1])
    verdict = worst([result.verdict for result in results])
    loaded = [path] * ("send" in workload.split(",")) + [folder / FOLDER / path.name] * (clients is not None)
    if verdict is Verdict.VALID and not all(_has(history, "send", "ok") for history in loaded):
        verdict = Verdict.UNKNOWN
        typer.echo("Undecided: no send was acknowledged, so no acknowledged record could be lost.", err=True)
    if verdict is Verdict.VALID and (folder / MESSAGES).exists() and not _has(path, "struck"):
        verdict = Verdict.UNKNOWN
        typer.echo("Undecided: no message of a client met the faults of messages.", err=True)
    judgement = _check_logs(folder, quiet=quiet) if keep else None
    verdict = worst([verdict, judgement]) if judgement is not None else verdict
    page = report(folder)
    if not quiet and (folder / MESSAGES).exists():
        typer.echo(f"faults of messages:\n{(folder / MESSAGES).read_text()}", nl=False)
    if not quiet:
        kinds = Counter(fault.kind for fault in read_schedule(folder / SCHEDULE).faults)
        typer.echo(f"faults: {', '.join(f'{kind} {number}' for kind, number in kinds.most_common()) or 'none'}")
        typer.echo(f"again: {again}\npage:  {page}" + (f"\ntrace: highwater spec trace {traces}" if trace else ""))
    return {
        "verdict": verdict,
        "operations": sum(result.operations for result in results),
        "findings": [finding for result in results for finding in result.findings],
        "seed": seed,
        "target": target,
        "folder": str(folder),
        "again": again,
    }


def _check_logs(folder: Path, *, quiet: bool) -> Any:
    """Hold the folders that were kept to the specifications; print and write the result, and return the verdict."""
    from highwater.commands.trace import foreign_summary, foreign_text
    from highwater.fuzz.kafka_logs.check import check, extract, write_traces
    from highwater.results import write_json

    traces = folder / TRACES
    traces.mkdir(exist_ok=True)
    extraction = extract(sorted(path for path in (folder / FOLDERS).iterdir() if path.is_dir()))
    write_traces(extraction, traces)
    found = check(extraction, traces)
    write_json(folder / LOGS, foreign_summary(found, traces))
    if not quiet:
        typer.echo(foreign_text(found, traces))
    return found.verdict


@contextmanager
def _recorded_clients(command: str | None, folder: Path, bootstrap: str) -> Iterator[Any]:
    """Run the clients of the user, if any; print a message if they fail."""
    if command is None:
        yield None
        return
    from highwater.reports.recorder.clients import UserClients

    with UserClients(command, bootstrap, folder) as user_clients:
        yield user_clients
    if user_clients.failure:
        typer.echo(user_clients.failure, err=True)


def _has(history: Path, f: str, kind: str = "info") -> bool:
    """Return whether a history has an event of this kind."""
    from highwater.spec.formats.history import read_history

    _, events = read_history(history)
    return any(event.f == f and event.type == kind for event in events)


def _side_by_side(target: str, schedule: Any, *, json: bool) -> ExitCode:
    """Simulate the schedule under each truncation rule; the verdict is that of the newest rule."""
    import msgspec

    from highwater.errors import UsageError
    from highwater.fuzz.chaos.settings import simulate_schedule
    from highwater.reference.configuration.broker import GUARDS_OFF_BY_TRUNCATION

    brokers = target.partition(":")[2] or "3"
    if schedule is None or not (brokers.isdigit() and 1 <= int(brokers) <= 9):
        hint = "try: highwater chaos simulator:2 --schedule FILE; `highwater simulate` draws schedules"
        raise UsageError("the simulator takes a number of brokers and a schedule", where=target, hint=hint)
    found = {
        rule: simulate_schedule(schedule, int(brokers), rule).violation for rule in reversed(GUARDS_OFF_BY_TRUNCATION)
    }
    if json:
        violations = {rule: str(violation) if violation else None for rule, violation in found.items()}
        typer.echo(msgspec.json.encode({"target": target, "rules": violations}).decode())
    else:
        for rule, violation in found.items():
            typer.echo(f"{rule:<15} {violation or 'nothing found'}")
    return ExitCode.VIOLATED if found["kip320"] else ExitCode.HELD


def _list_faults(target: str, *, json: bool) -> None:
    import msgspec
    from rich.console import Console
    from rich.table import Table

    from highwater.fuzz.chaos.capabilities import missing
    from highwater.fuzz.chaos.launch import open_cluster
    from highwater.fuzz.schedule import KINDS, Schedule

    with open_cluster(target, Schedule(duration_ms=1), disks=True, clocks=True) as cluster:
        lacking = {kind: missing(cluster, kind) for kind in KINDS}
    if json:
        typer.echo(msgspec.json.encode({"target": target, "faults": lacking}).decode())
        return
    table = Table(box=None)
    for column in ("fault", "does", ""):
        table.add_column(column)
    for kind, lacks in lacking.items():
        table.add_row(kind, KINDS[kind].does, f"unsupported: needs {lacks}" if lacks else "")
    Console(highlight=False).print(table)
