"""`highwater simulate`: run seeds in virtual time, on this machine or as a Spark job."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from highwater.fuzz.schedule import Schedule
    from highwater.fuzz.simulator.cluster import Settings
    from highwater.fuzz.simulator.search import Audit


def simulate_command(
    seeds: Annotated[str, typer.Option(help="Range of seeds, FROM:TO (without TO).")] = "0:100",
    truncation: Annotated[
        str, typer.Option(help="Log truncation rule: kip320, kip279, kip101 or high_watermark.")
    ] = "kip320",
    guard_off: Annotated[
        list[str] | None, typer.Option(help="Switch this guard off, e.g. AckAfterCommit; repeatable.")
    ] = None,
    min_insync_replicas: Annotated[int, typer.Option(min=1, help="min.insync.replicas of the topic.")] = 2,
    schedule: Annotated[Path | None, typer.Option(help="Run this fault schedule (JSON) with the seed in it.")] = None,
    pace: Annotated[
        int, typer.Option(min=1, help="Multiply time-outs, pauses and faults; 30 is about Kafka's defaults.")
    ] = 1,
    wire: Annotated[bool, typer.Option("--wire", help="Encode and decode every message.")] = False,
    programs: Annotated[
        int, typer.Option(min=0, help="So many clients run programs of the conformance suite with drawn choices.")
    ] = 0,
    keep: Annotated[
        Path | None, typer.Option(help="Save the seed that detects the missing guard in this folder.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Number of processes; 0 means one for each core.")] = 0,
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

    Invariants are checked after every event; at the end liveness is checked, and what the clients saw is audited.
    Exit code 1 if a seed breaks an invariant; with a guard off the first such seed ends the run.

    Examples: highwater simulate --seeds 0:200 --programs 2 · highwater simulate --guard-off AckAfterCommit ·
    highwater simulate --seeds 0:1000000 --master local[2] --out sweep
    """
    from highwater.fuzz.schedule import read_schedule
    from highwater.fuzz.simulator.sweep import print_summary, simulate

    given_schedule = read_schedule(schedule) if schedule is not None else None
    settings = _settings(
        given_schedule, truncation, guard_off or [], min_insync_replicas=min_insync_replicas, wire=wire, pace=pace,
        programs=programs,
    )  # fmt: skip
    chosen = range(given_schedule.seed, given_schedule.seed + 1) if given_schedule is not None else _range(seeds)
    _check_together(
        (keep is not None and not settings.guards_off, "--keep without --guard-off", "name a guard with --guard-off"),
        (
            bool(guard_off) and pace != 1,
            "--guard-off with --pace",
            "the faults that show the absence of a guard have the pace 1",
        ),
        (master and out is None, "--master without --out", "name a folder for the rows with --out"),
        (out is not None and trace is not None, "--out with --trace", "a sweep stores one row a seed, but no trace"),
        (out is not None and programs, "--out with --programs", "a sweep stores no counts of programs"),
        (out is not None and given_schedule is not None, "--out with --schedule", "a sweep draws its own schedules"),
    )
    if trace is not None:
        raise typer.Exit(_write_trace(trace, chosen[0], settings, given_schedule))
    if out is not None:
        from highwater.commands.seed_sweep import sweep

        summary = sweep(chosen, settings, out, master=master, jobs=jobs, quiet=json_)
    else:
        summary = simulate(
            chosen, settings, schedule=given_schedule, jobs=jobs, quiet=json_, keep=keep, audit=_auditor()
        )
    print_summary(summary, as_json=json_)
    raise typer.Exit(_exit_code(summary, given_schedule))


def _settings(schedule: "Schedule | None", truncation: str, guards_off: list[str], **given: Any) -> "Settings":
    """Return the settings of the runs; without one guard those that show its absence."""
    from highwater.fuzz.chaos.settings import simulator_settings
    from highwater.fuzz.simulator.cluster import Settings
    from highwater.fuzz.simulator.guard_focus import settings_without_guard

    of_nodes = simulator_settings(schedule) if schedule is not None else {}
    off = _guards_off(guards_off)
    settings = Settings(swarm=True, truncation=_truncation(truncation), guards_off=off, node_settings=of_nodes, **given)
    return settings_without_guard(off[0], settings) if len(off) == 1 else settings


def _exit_code(summary: "dict[str, Any]", schedule: "Schedule | None") -> int:
    """Return UNDECIDED for a clean run that shows nothing about the message faults or programs that it should have."""
    from highwater.errors import ExitCode
    from highwater.fuzz.schedule import MESSAGE
    from highwater.fuzz.simulator.clients.programs import CALM, FAULTY
    from highwater.fuzz.simulator.faults import STRUCK

    if summary["findings"]:
        return ExitCode.VIOLATED
    if summary.get("interrupted"):
        typer.echo("Interrupted: not all seeds were run.", err=True)
        return ExitCode.UNDECIDED
    if schedule is not None and STRUCK not in summary["seen"] and any(f.kind == MESSAGE for f in schedule.faults):
        typer.echo("Undecided: no request met the faults of messages.", err=True)
        return ExitCode.UNDECIDED
    programs = summary.get("programs")
    if programs is not None and not programs.keys() & {CALM, FAULTY}:
        typer.echo("Undecided: no program was carried out to its end.", err=True)
        return ExitCode.UNDECIDED
    return ExitCode.HELD


def _auditor() -> "Audit | None":
    """Return the audit of a run, None if the packages that it needs are not installed."""
    try:
        from highwater.commands.run_audit import audit_run
    except ModuleNotFoundError as error:
        if (error.name or "highwater").startswith("highwater"):
            raise  # a mistake of ours, which must not look like a missing extra
        return None
    return audit_run


def _check_together(*rows: tuple[object, str, str]) -> None:
    """Raise UsageError for the first row whose condition is true: what conflicts, and what to do."""
    from highwater.errors import UsageError

    for wrong, what, hint in rows:
        if wrong:
            raise UsageError(what, where="simulate", hint=hint)


def _write_trace(path: Path, seed: int, settings: "Settings", schedule: "Schedule | None") -> int:
    """Run one seed and write its trace; return the exit code."""
    from highwater.errors import ExitCode
    from highwater.fuzz.simulator.search import run_seed
    from highwater.spec.formats.trace import write_trace

    result = run_seed(seed, settings, schedule=schedule, tracing=True)
    write_trace(path, result.steps)
    typer.echo(f"trace of seed {seed} in {path}" + (f": {result.violation}" if result.violation else ""))
    return ExitCode.VIOLATED if result.violation else ExitCode.HELD


def _truncation(text: str) -> str:
    from highwater.errors import UsageError
    from highwater.reference.configuration.broker import GUARDS_OFF_BY_TRUNCATION

    if text not in GUARDS_OFF_BY_TRUNCATION:
        raise UsageError(
            f"unknown rule {text!r}", where="--truncation", hint=f"one of: {', '.join(GUARDS_OFF_BY_TRUNCATION)}"
        )
    return text


def _guards_off(names: list[str]) -> tuple[str, ...]:
    from highwater.spec.guards import find_guard

    return tuple(find_guard(name).id for name in names)


def _range(text: str) -> range:
    from highwater.errors import UsageError

    first, colon, last = text.partition(":")
    if not (first.isdigit() and (last.isdigit() or not colon)):
        raise UsageError(f"expected FROM:TO, not {text!r}", where="--seeds", hint="try --seeds 0:200")
    chosen = range(int(first), int(last) if colon else int(first) + 1)
    if not chosen:
        raise UsageError(f"{text!r} is an empty range", where="--seeds", hint="try --seeds 0:200")
    return chosen
