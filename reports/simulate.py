"""`highwater simulate`: seeds in virtual time, on this machine or as a Spark job."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fuzz.schedule import Schedule
    from fuzz.simulated_cluster import Settings


def simulate_command(
    seeds: Annotated[str, typer.Option(help="Which seeds, FROM:TO (TO is not run).")] = "0:100",
    truncation: Annotated[
        str, typer.Option(help="How logs come to agree: kip320, kip279, kip101 or high_watermark.")
    ] = "kip320",
    guard: Annotated[
        list[str] | None, typer.Option("--guard", "--guard-off", help="NAME=off switches a guard off; repeatable.")
    ] = None,
    min_insync_replicas: Annotated[int, typer.Option(min=1, help="min.insync.replicas of the topic.")] = 2,
    schedule: Annotated[
        Path | None, typer.Option(help="Play these faults (JSON), under the seed that it names.")
    ] = None,
    wire: Annotated[bool, typer.Option("--wire", help="Encode and decode every message.")] = False,
    keep: Annotated[
        Path | None, typer.Option(help="Keep the seed that shows the guard's absence in this folder.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0 is one for each core.")] = 0,
    master: Annotated[str, typer.Option(help="Run as a Spark job: local[2], spark://HOST:PORT ...; needs --out.")] = "",
    out: Annotated[
        Path | None, typer.Option(help="One Parquet row a seed in this folder; only missing seeds are run.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write the trace of the first seed here (NDJSON), for `spec trace`.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Run the reference broker and its clients in virtual time, with faults of every kind drawn from each seed.

    What must hold is looked at after every event, and progress is demanded at the end. Exit code 1 if a seed breaks
    an invariant; with a guard off the first such seed ends the run.

    Examples: highwater simulate --seeds 0:200 · highwater simulate --guard AckAfterCommit=off ·
    highwater simulate --seeds 0:1000000 --master local[2] --out sweep
    """
    from fuzz.chaos.settings import of_simulator
    from fuzz.command_line import print_summary, simulate
    from fuzz.guard_focus import directed
    from fuzz.schedule import read_schedule
    from fuzz.simulated_cluster import Settings
    from spec.formats.verdict import ExitCode

    given = read_schedule(schedule) if schedule is not None else None
    settings = Settings(
        swarm=True, truncation=_truncation(truncation), guards_off=_guards_off(guard or []),
        min_insync_replicas=min_insync_replicas, wire=wire,
        node_settings=of_simulator(given) if given is not None else {},
    )  # fmt: skip
    if len(settings.guards_off) == 1:
        settings = directed(settings.guards_off[0], settings)
    chosen = range(given.seed, given.seed + 1) if given is not None else _range(seeds)
    _check_together(
        (keep is not None and not settings.guards_off, "--keep without --guard", "say which guard is off"),
        (master and out is None, "--master without --out", "name the folder that the rows go to"),
        (out is not None and trace is not None, "--out with --trace", "a sweep keeps a row a seed, and no trace"),
        (out is not None and given is not None, "--out with --schedule", "a sweep draws its schedules"),
    )
    if trace is not None:
        raise typer.Exit(_write_trace(trace, chosen[0], settings, given))
    if out is not None:
        from reports.seed_sweep import sweep

        summary = sweep(chosen, settings, out, master=master, jobs=jobs, quiet=json_)
    else:
        summary = simulate(chosen, settings, schedule=given, jobs=jobs, quiet=json_, keep=keep)
    print_summary(summary, as_json=json_)
    raise typer.Exit(ExitCode.VIOLATED if summary["findings"] else ExitCode.HELD)


def _check_together(*rows: tuple[object, str, str]) -> None:
    """UsageError for the first row that is true: what does not go together, and what to do."""
    from spec.formats.verdict import UsageError

    for wrong, what, mend in rows:
        if wrong:
            raise UsageError(what, where="simulate", mend=mend)


def _write_trace(path: Path, seed: int, settings: "Settings", schedule: "Schedule | None") -> int:
    """Play one seed for its trace; the exit code."""
    from fuzz.search import run_seed
    from spec.formats.trace import write_trace
    from spec.formats.verdict import ExitCode

    result = run_seed(seed, settings, schedule=schedule, tracing=True)
    write_trace(path, result.steps)
    typer.echo(f"trace of seed {seed} in {path}" + (f": {result.violation}" if result.violation else ""))
    return ExitCode.VIOLATED if result.violation else ExitCode.HELD


def _truncation(text: str) -> str:
    from reference.config import GUARDS_OFF_BY_TRUNCATION
    from spec.formats.verdict import UsageError

    if text not in GUARDS_OFF_BY_TRUNCATION:
        raise UsageError(
            f"unknown rule {text!r}", where="--truncation", mend=f"one of: {', '.join(GUARDS_OFF_BY_TRUNCATION)}"
        )
    return text


def _guards_off(given: list[str]) -> tuple[str, ...]:
    from spec.formats.verdict import UsageError
    from spec.guards import find_guard

    for text in given:
        if text.partition("=")[2] not in {"", "off"}:
            raise UsageError(f"{text!r}", where="--guard", mend="a guard is on unless you say NAME=off")
    return tuple(find_guard(text.partition("=")[0]).id for text in given)


def _range(text: str) -> range:
    from spec.formats.verdict import UsageError

    first, colon, last = text.partition(":")
    if not (first.isdigit() and (last.isdigit() or not colon)):
        raise UsageError(f"expected FROM:TO, not {text!r}", where="--seeds", mend="try --seeds 0:200")
    chosen = range(int(first), int(last) if colon else int(first) + 1)
    if not chosen:
        raise UsageError(f"{text!r} is an empty range", where="--seeds", mend="try --seeds 0:200")
    return chosen
