"""Plant anomalies in generated histories and audit them: `python -m highwater.soak.planted_anomalies [--ops N]`.

One history of N operations for each rule (`--rule R`, repeatable), with the anomaly planted twice as `highwater synth`
does; with `--together` all in one history, and those that need other settings in another. Exit code 1 if an anomaly was
found that was not planted, or planted and not found.
"""

import sys
import time
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from rich.console import Console

from highwater.errors import ExitCode
from highwater.reports.anomalies import anomalies
from highwater.reports.audit import audit
from highwater.reports.synth.plants import PLANTS, SETTINGS
from highwater.reports.synth.write import synth_dataset
from highwater.reports.verdicts import AuditResult
from highwater.temporary import temporary_folder

TIMES: Final = 2
ROW: Final = "{:>4}  {:<28}{:<12} {:>8} {:>6} {:>11} {:>8}  {}"


def planted(rules: Sequence[int], operations: int) -> AuditResult:
    """Audit a generated history that holds the anomalies of these rules."""
    with temporary_folder("synth-") as folder:
        place = folder / "dataset"
        synth_dataset(place, operations=operations, seed=rules[0], planted=dict.fromkeys(rules, TIMES))
        return audit(place)


def others(rules: Sequence[int], result: AuditResult) -> str:
    """Return the findings of other rules, as text."""
    return ", ".join(f"{finding.count} {finding.name}" for finding in result.findings if finding.rule not in rules)


def histories(rules: Sequence[int], *, together: bool) -> list[list[int]]:
    """Group the rules by the history in which they are planted."""
    if not together:
        return [[rule] for rule in rules]
    return [[rule for rule in rules if rule not in SETTINGS], *([rule] for rule in rules if rule in SETTINGS)]


def soak(
    ops: Annotated[int, typer.Option(min=100, help="Operations of each history.")] = 10_000,
    rule: Annotated[list[int] | None, typer.Option(help="Plant only these rules; repeatable.")] = None,
    together: Annotated[bool, typer.Option("--together", help="Use as few histories as possible.")] = False,
) -> None:
    """Plant each rule's anomaly in a large healthy history, and audit it."""
    console, wrong, rules = Console(highlight=False, width=120), 0, sorted(rule or PLANTS)
    console.print(ROW.format("rule", "anomaly", "severity", "planted", "found", "operations", "seconds", "besides"))
    for rules_together in filter(None, histories(rules, together=together)):
        started = time.monotonic()
        result = planted(rules_together, ops)
        other_findings, seconds = others(rules_together, result), f"{time.monotonic() - started:.1f}"
        for number in rules_together:
            anomaly = anomalies()[number]
            count = sum(f.count for f in result.findings if (f.rule, f.severity) == (number, anomaly.severity))
            wrong += count != TIMES or bool(other_findings)
            console.print(
                ROW.format(
                    number, anomaly.name, anomaly.severity, TIMES, count, f"{result.operations:,}", seconds,
                    other_findings or "-",
                )
            )  # fmt: skip
    console.print(
        f"{len(rules) - wrong} of {len(rules)} rules: what was planted was found, named, and nothing else with it"
    )
    sys.exit(ExitCode.VIOLATED if wrong else ExitCode.HELD)


if __name__ == "__main__":
    typer.run(soak)
