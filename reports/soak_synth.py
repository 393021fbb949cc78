"""`python -m reports.soak_synth [--ops N] [--rule R]...`: plant, find, and nothing else, rule by rule.

One history for each rule, of so many operations and with the anomaly in it twice, as `highwater synth` makes it. A row
says what the audit found. Exit code 1 if anything was found that was not planted, or planted and not found.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from reports.anomalies import anomalies
from reports.audit import audit
from reports.synth.plants import PLANTS
from reports.synth.write import synth_dataset
from reports.verdicts import AuditResult
from spec.formats.verdict import ExitCode

TIMES: Final = 2
ROW: Final = "{:>4}  {:<28}{:<12} {:>8} {:>6} {:>11} {:>8}  {}"


def planted(rule: int, operations: int) -> AuditResult:
    """The audit of a history that holds this rule's anomaly."""
    with tempfile.TemporaryDirectory(prefix="highwater-synth-") as folder:
        place = Path(folder) / "dataset"
        synth_dataset(place, operations=operations, seed=rule, planted={rule: TIMES})
        return audit(place)


def others(rule: int, result: AuditResult) -> str:
    """What was found that is not the rule's anomaly."""
    return ", ".join(f"{each.count} {each.name}" for each in result.findings if each.rule != rule)


def soak(
    ops: Annotated[int, typer.Option(min=100, help="Operations of each history.")] = 10_000,
    rule: Annotated[list[int] | None, typer.Option(help="Only these; repeatable.")] = None,
) -> None:
    """Plant each rule's anomaly in a large healthy history, and audit it."""
    console, wrong = Console(highlight=False, width=120), 0
    console.print(ROW.format("rule", "anomaly", "severity", "planted", "found", "operations", "seconds", "besides"))
    for number in rule or sorted(PLANTS):
        begun = time.monotonic()
        result = planted(number, ops)
        anomaly, beside = anomalies()[number], others(number, result)
        mine = [each for each in result.findings if each.rule == number and each.severity == anomaly.severity]
        count = sum(each.count for each in mine)
        wrong += count != TIMES or bool(beside)
        seconds = f"{time.monotonic() - begun:.1f}"
        console.print(
            ROW.format(
                number, anomaly.name, anomaly.severity, TIMES, count, f"{result.operations:,}", seconds, beside or "-"
            )
        )
    total = len(rule or PLANTS)
    console.print(f"{total - wrong} of {total} rules: what was planted was found, named, and nothing else with it")
    sys.exit(ExitCode.VIOLATED if wrong else ExitCode.HELD)


if __name__ == "__main__":
    typer.run(soak)
