"""Find kept seeds again after messages got another order: `python -m highwater.soak.find_seeds [GUARD…]`.

A change of the broker that sends one more request gives every message of a run another delay, so some kept seeds no
longer break the invariant of their guard, or their history no longer shows the anomaly that the guard's row names. For
each of them the same schedule is tried under other seeds, until one does both, and nothing with the guard on. Exit code
1 if a guard is left without one.
"""

import re
import sys
from pathlib import Path
from typing import Annotated

import typer
from msgspec import structs
from rich.console import Console

from highwater.errors import ExitCode, UsageError, Verdict
from highwater.fuzz.simulator.histories.kept_history import record
from highwater.fuzz.simulator.kept_seeds import KeptSeed, kept_seeds, read_kept_seed, write_kept_seed
from highwater.reports.audit import audit
from highwater.results import progress
from highwater.soak.guard_histories import FEWEST_OPERATIONS, rows
from highwater.temporary import temporary_folder


def is_found(kept: KeptSeed, row: "re.Match[str] | None", folder: Path) -> bool:
    """Return whether, only with the guard off, the invariant breaks and the history shows the anomaly of the row."""
    violation = kept.run().violation
    if violation is None or violation.invariant != kept.invariant:
        return False
    return kept.run(off=False).violation is None and (row is None or _is_shown(kept, row, folder))


def _is_shown(kept: KeptSeed, row: "re.Match[str]", folder: Path) -> bool:
    severity = row["severity"] or "violation"
    off = audit(record(kept, folder / "off.ndjson"))
    if row["name"] not in {finding.name for finding in off.findings if finding.severity == severity}:
        return False
    on = audit(record(kept, folder / "on.ndjson", off=False))
    names = {finding.name for finding in on.findings if finding.severity == severity}
    return on.verdict is Verdict.VALID and on.operations >= FEWEST_OPERATIONS and row["name"] not in names


def find(kept: KeptSeed, row: "re.Match[str] | None", tries: int) -> KeptSeed | None:
    """Return the kept seed under the first seed from 0 on whose run shows the guard; None if none does."""
    with temporary_folder() as folder:
        for seed in range(tries):
            other = structs.replace(kept, schedule=structs.replace(kept.schedule, seed=seed))
            try:
                found = is_found(other, row, folder)
            except UsageError:  # the seed draws other clients, and the schedule names one that it does not have
                found = False
            if found:
                return other
    return None


def main(
    guards: Annotated[list[str] | None, typer.Argument(metavar="[GUARD]...", help="Only these guards.")] = None,
    tries: Annotated[int, typer.Option(min=1, help="Seeds to try for each guard.")] = 1_000,
) -> None:
    """Check every kept seed, and write another one for each that no longer shows its guard."""
    console, shown = Console(highlight=False), rows()
    paths = [path for path in kept_seeds() if not guards or path.stem in guards]
    missing = 0
    with temporary_folder() as folder, progress("guards", len(paths)) as step:
        for path in paths:
            kept, row = read_kept_seed(path), shown.get(path.stem)
            if not is_found(kept, row, folder):
                other = find(kept, row, tries)
                missing += other is None
                console.print(f"{path.stem}: {f'seed {other.schedule.seed}' if other else 'no seed found'}")
                if other is not None:
                    write_kept_seed(other)
            step()
    console.print(f"{len(paths) - missing} of {len(paths)} guards have a seed")
    sys.exit(ExitCode.VIOLATED if missing else ExitCode.HELD)


if __name__ == "__main__":
    typer.run(main)
