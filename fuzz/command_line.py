"""`highwater simulate`: seeds in virtual time."""

from pathlib import Path
from typing import Annotated, Any

import typer


def simulate_command(
    seeds: Annotated[str, typer.Option(help="Which seeds, FROM:TO (TO is not run).")] = "0:100",
    truncation: Annotated[str, typer.Option(help="kip320 or high_watermark.")] = "kip320",
    guard: Annotated[
        list[str] | None, typer.Option("--guard", "--guard-off", help="NAME=off switches a guard off; repeatable.")
    ] = None,
    min_insync_replicas: Annotated[int, typer.Option(help="min.insync.replicas of the topic.")] = 2,
    schedule: Annotated[
        Path | None, typer.Option(help="Play these faults (JSON), under the seed that it names.")
    ] = None,
    wire: Annotated[bool, typer.Option("--wire", help="Encode and decode every message.")] = False,
    keep: Annotated[
        Path | None, typer.Option(help="Keep the seed that shows the guard's absence in this folder.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes; 0 is one for each core.")] = 0,
    master: Annotated[str, typer.Option(help="Run as a Spark job: local[2], spark://HOST:PORT ...; needs --out.")] = "",
    out: Annotated[
        Path | None, typer.Option(help="One Parquet row a seed in this folder; only missing seeds are run.")
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="Write the trace of one seed here (NDJSON).")] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Run the reference broker and its clients in virtual time, with faults of every kind drawn from each seed.

    What must hold is looked at after every event, and progress is demanded at the end. Exit code 1 if a seed breaks
    an invariant; with a guard off the first such seed ends the run.

    Examples: highwater simulate --seeds 0:200 · highwater simulate --guard AckAfterCommit=off ·
    highwater simulate --seeds 0:1000000 --master local[2] --out sweep
    """
    from fuzz.chaos.settings import of_simulator
    from fuzz.guard_focus import directed
    from fuzz.schedule import read_schedule
    from fuzz.simulated_cluster import Settings
    from spec.formats.verdict import ExitCode, UsageError

    given = read_schedule(schedule) if schedule is not None else None
    settings = Settings(
        swarm=True, truncation=truncation, guards_off=_guards_off(guard or []),
        min_insync_replicas=min_insync_replicas, wire=wire,
        node_settings=of_simulator(given) if given is not None else {},
    )  # fmt: skip
    if len(settings.guards_off) == 1:
        settings = directed(settings.guards_off[0], settings)
    chosen = range(given.seed, given.seed + 1) if given is not None else _range(seeds)
    if trace is not None:
        from fuzz.search import run_seed
        from spec.formats.trace import write_trace

        write_trace(trace, run_seed(chosen[0], settings, schedule=given, tracing=True).steps)
        typer.echo(f"trace of seed {chosen[0]} in {trace}")
        raise typer.Exit(ExitCode.HELD)
    if master and out is None:
        raise UsageError("--master without --out", where="simulate", mend="name the folder that the rows go to")
    if out is not None:
        from reports.seed_sweep import sweep

        if given is not None:
            raise UsageError("--out with --schedule", where="simulate", mend="a sweep draws its schedules")
        summary = sweep(chosen, settings, out, master=master, jobs=jobs, quiet=json_)
    else:
        summary = simulate(chosen, settings, schedule=given, jobs=jobs, quiet=json_, keep=keep)
    if json_:
        import msgspec

        typer.echo(msgspec.json.encode(summary).decode())
    else:
        _print(summary)
    raise typer.Exit(ExitCode.VIOLATED if summary["findings"] else ExitCode.HELD)


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


SHRUNK = 3


def simulate(
    seeds: range, settings: Any, *, schedule: Any = None, jobs: int = 0, quiet: bool = False, keep: Path | None = None
) -> dict[str, Any]:
    """Run the seeds and shrink what was found; the object that `--json` prints (design.md, section 4)."""
    from fuzz.findings import find_smallest, options
    from fuzz.kept import Kept, write_kept
    from fuzz.search import sweep_parallel
    from spec.formats.progress import progress
    from spec.formats.run import new_folder

    with progress("simulating", len(seeds), quiet=quiet) as step:
        found = sweep_parallel(
            seeds, settings, schedule=schedule, jobs=jobs, on_result=lambda result: step(),
            until_found=bool(settings.guards_off),
        )  # fmt: skip
    findings: list[dict[str, Any]] = []
    for result in found.findings:
        assert result.violation is not None
        finding: dict[str, Any] = {
            "seed": result.seed,
            "invariant": result.violation.invariant,
            "operator": result.violation.operator,
            "message": str(result.violation),
            "faults": result.faults,
            "replay": f"highwater simulate --seeds {result.seed}:{result.seed + 1}{options(settings)}",
        }
        if len(findings) < SHRUNK:
            folder = new_folder("simulate", seed=result.seed)
            smallest = find_smallest(result.seed, settings, result.schedule, result.violation.invariant)
            smallest.keep(folder)
            finding |= {"schedule": [str(fault) for fault in smallest.schedule.faults], "folder": str(folder)}
            finding["lines"] = smallest.lines(folder)
            if keep is not None and settings.guards_off:
                guard, invariant = settings.guards_off[0], smallest.violation.invariant
                write_kept(Kept.of(guard, settings, invariant, smallest.schedule), keep)
        findings.append(finding)
    return {
        "seeds": len(found.results),
        "events": found.events,
        "events_per_second": round(found.events_per_second),
        "simulated_seconds": round(sum(result.simulated_ms for result in found.results) / 1000, 1),
        "acknowledged": sum(result.acked for result in found.results),
        "seen": found.coverage(),
        "findings": findings,
    }


def _print(summary: dict[str, Any]) -> None:
    from fuzz.coverage import coverage_lines

    for finding in summary["findings"]:
        for line in finding.get("lines", [f"seed {finding['seed']}: {finding['message']}: {finding['replay']}"]):
            typer.echo(line)
    verdict = f"{len(summary['findings'])} violated an invariant" if summary["findings"] else "clean"
    for line in coverage_lines(summary["seen"], summary["seeds"]):
        typer.echo(line)
    speed = f"{summary['events_per_second']:,} events/s, " if "events_per_second" in summary else ""
    typer.echo(
        f"{summary['seeds']} seeds, {summary['events']:,} events, {summary['simulated_seconds']:,} simulated seconds, "
        f"{speed}{summary['acknowledged']:,} records acknowledged: {verdict}"
    )
