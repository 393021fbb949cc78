"""Record in `calibration.toml` on which releases of Apache Kafka each clause held or was broken.

    highwater conform apache-kafka:4.3.1:3 --json > run.json
    python -m highwater.conformance.calibrate run.json...
    python -m highwater.conformance.calibrate --add run.json     # a run with --clause: keep the other clauses

A clause may be a MUST only if it held on a release of Apache Kafka of its era and no such release broke it.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
import typer

from highwater.conformance.report import Report, TargetReport, read_report
from highwater.conformance.running.verdicts import BROKEN, CaseResult, CaseVerdict
from highwater.errors import ExitCode, UsageError

CALIBRATION: Final = Path(__file__).with_name("calibration.toml")
APACHE_KAFKA: Final = "apache-kafka"
HEAD: Final = """\
# The releases of Apache Kafka on which each clause was observed to hold or to be broken.
# Written by `python -m highwater.conformance.calibrate`. `runs` lists the finalised feature levels and broker counts.
"""

Observation = Literal["held", "broken"]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the suite on a release."""

    target: str
    started: str
    suite: str
    features: dict[str, list[int]] = {}


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of `calibration.toml`; `held` and `broken` map clauses to releases."""

    runs: dict[str, Run] = {}
    held: dict[str, list[str]] = {}
    broken: dict[str, list[str]] = {}


@cache
def read_calibration(path: Path = CALIBRATION) -> Calibration:
    return msgspec.convert(tomllib.loads(path.read_text()), Calibration) if path.exists() else Calibration()


def observe_clauses(cases: Iterable[CaseResult]) -> dict[str, Observation]:
    """Return what a run observed of each clause: held if a case passed and none failed, neither if one was flaky."""
    found: dict[str, set[CaseVerdict]] = {}
    for case in cases:
        found.setdefault(case.clause, set()).add(case.verdict)
    observations: dict[str, Observation] = {}
    for clause, verdicts in found.items():
        if verdicts & BROKEN:
            observations[clause] = "broken"
        elif CaseVerdict.PASS in verdicts and not verdicts & {CaseVerdict.FLAKY, CaseVerdict.ERROR}:
            observations[clause] = "held"
    return observations


def merge_reports(before: Calibration, reports: Iterable[Report], *, add: bool = False) -> Calibration:
    """Merge reports into a calibration; a new run of a release replaces the earlier one.

    With `add` it replaces only what was observed of the clauses that it covers, and `runs` keeps the earlier run.
    """
    runs = dict(before.runs)
    by_release: dict[str, Mapping[str, Observation]] = {}
    covered: dict[str, set[str]] = {}
    for report in reports:
        for target in report.targets:
            release = _release(target)
            run = Run(
                target=target.target, started=report.run.started, suite=report.run.suite, features=target.features
            )
            runs[release] = runs.get(release, run) if add else run
            covered[release] = {case.clause for case in target.cases} if add else {*before.held, *before.broken}
            by_release[release] = observe_clauses(target.cases)
    return Calibration(
        runs=dict(sorted(runs.items())),
        held=_merged(_without(before.held, covered), by_release, "held"),
        broken=_merged(_without(before.broken, covered), by_release, "broken"),
    )


def _release(target: TargetReport) -> str:
    if not target.target.startswith(APACHE_KAFKA):
        raise UsageError("not a run on Apache Kafka", where=target.target, hint=f"name {APACHE_KAFKA}[:VERSION][:N]")
    return target.version


def _without(rows: Mapping[str, list[str]], covered: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the observations without those of the clauses that a new run covers, by release."""
    return {
        clause: {release for release in releases if clause not in covered.get(release, ())}
        for clause, releases in rows.items()
    }


def _merged(
    kept: Mapping[str, set[str]], by_release: Mapping[str, Mapping[str, Observation]], kind: Observation
) -> dict[str, list[str]]:
    merged = {clause: set(releases) for clause, releases in kept.items()}
    for release, observations in by_release.items():
        for clause, verdict in observations.items():
            if verdict == kind:
                merged.setdefault(clause, set()).add(release)
    return {clause: sorted(merged[clause], key=_numbers) for clause in sorted(merged, key=_natural) if merged[clause]}


def _numbers(release: str) -> list[int]:
    return [int(part) for part in release.split(".")]


def _natural(clause: str) -> tuple[str, int]:
    area, _, number = clause.partition("-")
    return area, int(number)


def write_calibration(found: Calibration, path: Path = CALIBRATION) -> None:
    lines = [HEAD]
    for release, run in found.runs.items():
        lines.append(f'[runs."{release}"]')
        lines += [f'{name} = "{getattr(run, name)}"' for name in ("target", "started", "suite")]
        levels = ", ".join(f'"{name}" = {levels}' for name, levels in sorted(run.features.items()))
        lines.append(f"features = {{ {levels} }}\n")
    for kind in ("held", "broken"):
        rows = getattr(found, kind)
        lines.append(f"[{kind}]")
        lines += [f"{clause} = {json.dumps(releases)}" for clause, releases in rows.items()]
        lines.append("")
    path.write_text("\n".join(lines))


def main(
    runs: Annotated[
        list[Path], typer.Argument(help="Files with the output of `highwater conform apache-kafka:3 --json`.")
    ],
    add: Annotated[
        bool, typer.Option("--add", help="Keep what is known of other clauses of the same releases.")
    ] = False,
) -> None:
    """Record which clauses held in these runs, with the releases of Apache Kafka."""
    try:
        found = merge_reports(read_calibration(), [read_report(path) for path in runs], add=add)
    except UsageError as error:
        typer.echo(f"highwater: {error}", err=True)
        raise typer.Exit(ExitCode.USAGE) from error
    write_calibration(found)
    typer.echo(f"{len(found.held)} clauses held, {len(found.broken)} broken, on {', '.join(found.runs)}")


if __name__ == "__main__":
    typer.run(main)
