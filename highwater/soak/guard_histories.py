"""Check the audit witness of every guard that has one: `python -m highwater.soak.guard_histories`.

The history of a guard's kept seed (`fuzz/simulator/histories/kept_history.py`) must give the anomaly that the guard's
row names, as a violation unless the row says otherwise, and none with the guard on. Exit code 1 if any does not.
"""

import re
import sys
from pathlib import Path
from typing import Final

import typer
from rich.console import Console

from highwater.errors import ExitCode
from highwater.fuzz.simulator.histories.kept_history import record
from highwater.fuzz.simulator.kept_seeds import FOLDER, read_kept_seed
from highwater.reports.audit import audit
from highwater.results import progress
from highwater.spec.guards import load_guards
from highwater.temporary import temporary_folder

FEWEST_OPERATIONS: Final = 100
ROW: Final = re.compile(
    r"(?P<name>[\w-]+) \(rule (?P<rule>\d+)(, as (?P<severity>information))?\), "
    r"in the history of fuzz/seeds/(?P<seed>\w+)\.json"
)


def rows() -> dict[str, "re.Match[str]"]:
    """Return the audit witness of each guard that has one in the history of a seed."""
    texts = {guard: row.witnesses.audit for guard, row in load_guards().items()}
    return {guard: match for guard, text in texts.items() if (match := ROW.fullmatch(text))}


def mismatch(guard: str, row: "re.Match[str]", folder: Path) -> str:
    """Describe how the audit differs from the row; empty if it does not."""
    kept = read_kept_seed(FOLDER / f"{row['seed']}.json")
    if kept.guard != guard:
        return f"{guard}: the seed belongs to {kept.guard}"
    off, on = (audit(record(kept, folder / f"{guard}-{off}.ndjson", off=off)) for off in (True, False))
    severity = row["severity"] or "violation"
    found, still = (
        {finding.name for finding in result.findings if finding.severity == severity} for result in (off, on)
    )
    if row["name"] not in found:
        return f"{guard}: off gives {sorted(found) or 'nothing'}, not {row['name']}"
    if on.verdict != "valid" or on.operations < FEWEST_OPERATIONS or row["name"] in still:
        return f"{guard}: on is {on.verdict}, with {sorted(still) or 'nothing'} in {on.operations} operations"
    return ""


def soak() -> None:
    """Record and audit each history, with the guard off and on."""
    console, shown, bad = Console(highlight=False), rows(), list[str]()
    with temporary_folder() as folder, progress("guards", len(shown)) as step:
        for guard, row in shown.items():
            bad += filter(None, [mismatch(guard, row, folder)])
            step()
    for message in bad:
        console.print(message)
    console.print(
        f"{len(shown) - len(bad)} of {len(shown)} guards are shown by the history of their seed, only when off"
    )
    sys.exit(ExitCode.VIOLATED if bad else ExitCode.HELD)


if __name__ == "__main__":
    typer.run(soak)
