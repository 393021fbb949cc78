"""Run seeds for `highwater simulate` on this machine, shrink the violations, and print a summary."""

from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import Any, Final

import msgspec
import typer

from highwater_kafka import install_hint

SHRUNK: Final = 3
NAMED: Final = 8
"""Seeds that are named in the line about a kind of violation."""
WIDTH: Final = 120
NOT_AGAIN: Final = "  The same seed ran again without it: what was run is not deterministic, so nothing was shortened."


def simulate(
    seeds: range, settings: Any, *, schedule: Any = None, jobs: int = 0, quiet: bool = False, keep: Path | None = None,
    audit: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """Run the seeds and shrink the first violations; return the object that `--json` prints.

    `audit` (`search.Audit`) judges each run by what its clients saw.

    Saves schedule and trace of the first violation of each of `SHRUNK` kinds in a new folder each. With `keep` and a
    guard off it also saves them there as kept seeds. After an interruption nothing is shrunk.
    """
    from highwater.fuzz.simulator.findings import options
    from highwater.fuzz.simulator.meetings import pair_lines
    from highwater.fuzz.simulator.search import sweep_parallel
    from highwater.fuzz.simulator.swarm import ALL_KINDS
    from highwater.results import progress

    with progress("simulating", len(seeds), quiet=quiet) as step:
        found = sweep_parallel(
            seeds, settings, schedule=schedule, jobs=jobs, on_result=lambda result: step(),
            until_found=bool(settings.guards_off), audit=audit,
        )  # fmt: skip
    findings: list[dict[str, Any]] = []
    kinds: set[str] = set()
    for result in found.findings:
        assert result.violation is not None
        finding: dict[str, Any] = {
            "seed": result.seed,
            "invariant": result.violation.invariant,
            "kind": result.violation.invariant,
            "operator": result.violation.operator,
            "message": str(result.violation),
            "faults": result.faults,
            "replay": f"highwater simulate --seeds {result.seed}:{result.seed + 1}{options(settings)}",
        }
        if result.violation.invariant not in kinds and len(kinds) < SHRUNK and not found.interrupted:
            kinds.add(result.violation.invariant)
            finding |= _shrunk(result, settings, audit, keep)
        findings.append(finding)
    return {
        "seeds": len(found.results),
        "interrupted": found.interrupted,
        "events": found.events,
        "events_per_second": round(found.events_per_second),
        "simulated_seconds": round(sum(result.simulated_ms for result in found.results) / 1000, 1),
        "acknowledged": sum(result.acked for result in found.results),
        "audited": sum(result.audited for result in found.results) if audit is not None else None,
        "seen": found.coverage(),
        "programs": found.programs() if settings.programs else None,
        "pairs": list(pair_lines(found.pairs(), ALL_KINDS)),
        "findings": findings,
    }


def _shrunk(result: Any, settings: Any, audit: Any, keep: Path | None) -> dict[str, Any]:
    """Shrink the violation of a run and save it in a new folder; return what the finding has of it."""
    from highwater.fuzz.simulator.findings import find_smallest
    from highwater.fuzz.simulator.kept_seeds import KeptSeed, write_kept_seed
    from highwater.results import new_folder

    smallest = find_smallest(result.seed, settings, result.schedule, result.violation.invariant, audit)
    if smallest.result.violation is None:
        return {"lines": [str(result.violation), NOT_AGAIN]}
    folder = new_folder("simulate", seed=result.seed)
    smallest.save(folder)
    if keep is not None and settings.guards_off:
        guard, invariant = settings.guards_off[0], smallest.violation.invariant
        write_kept_seed(KeptSeed.from_run(guard, settings, invariant, smallest.schedule), keep)
    faults = [str(fault) for fault in smallest.schedule.faults]
    return {"schedule": faults, "folder": str(folder), "lines": smallest.lines(folder)}


def finding_lines(findings: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the reports of the violations that were shrunk, then a line for the other seeds of each kind."""
    others: dict[str, list[dict[str, Any]]] = {}
    for finding in findings:
        if "lines" in finding:
            yield from finding["lines"]
        else:
            others.setdefault(finding["kind"], []).append(finding)
    for kind, found in others.items():
        seeds = ", ".join(str(finding["seed"]) for finding in found[:NAMED]) + (", ..." if len(found) > NAMED else "")
        yield f"{len(found)} more of {kind}, seed{'s' if len(found) > 1 else ''} {seeds}: {found[0]['replay']}"


def print_summary(summary: dict[str, Any], *, as_json: bool) -> None:
    """Print the object of `simulate` as JSON, or as findings, a table of situations and a last line with totals."""
    if as_json:
        typer.echo(msgspec.json.encode(summary).decode())
        return
    from highwater.fuzz.simulator.findings import ENOUGH_SEEDS, coverage_lines

    for line in finding_lines(summary["findings"]):
        typer.echo(line)
    verdict = f"{len(summary['findings'])} violated an invariant" if summary["findings"] else "clean"
    if summary.get("interrupted"):
        verdict += " until it was interrupted"
    for line in coverage_lines(summary["seen"], summary["seeds"]):
        typer.echo(fill(line, WIDTH, subsequent_indent=" " * 6) if len(line) > WIDTH else line)
    if summary["seeds"] >= ENOUGH_SEEDS and "pairs" in summary:
        typer.echo("pairs of a fault, a kind of client and a request that met in a run:")
        for line in summary["pairs"]:
            typer.echo(fill(line, WIDTH, subsequent_indent=" " * 6))
    if (programs := summary.get("programs")) is not None:
        ended = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(programs.items()))
        typer.echo(f"programs: {ended or 'none ended'}")
    count = summary["audited"]
    audited = f"not audited ({install_hint('audit')})" if count is None else f"{count:,} operations audited"
    speed = f"{summary['events_per_second']:,} events/s, " if "events_per_second" in summary else ""
    typer.echo(
        f"{summary['seeds']} seeds, {summary['events']:,} events, {summary['simulated_seconds']:,} simulated seconds, "
        f"{speed}{summary['acknowledged']:,} records acknowledged, {audited}: {verdict}"
    )
