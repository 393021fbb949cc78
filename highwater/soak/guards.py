"""Check what shows that a guard is missing: `python -m highwater.soak.guards histories|seeds|times [GUARD...]`.

`histories`: the history of a guard's kept seed (`fuzz/simulator/histories/kept_history.py`) gives the anomaly that the
guard's row names, as a violation unless the row says otherwise, and none with the guard on.

`seeds`: a change of the broker that sends one more request gives every message of a run another delay, so some kept
seeds no longer break the invariant of their guard, or their history shows no anomaly. For each of them the same
schedule is tried under other seeds, and the first one that does both is kept.

`times`: processor seconds on one core until the simulator finds the absence of a guard, over disjoint ranges of seeds.
A range that shows none within a minute counts as the whole minute.

Exit code 1 if a guard is not shown, has no seed, or takes a minute.
"""

import re
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Final

import typer
from msgspec import structs

from highwater.errors import ExitCode, UsageError
from highwater.fuzz.simulator.guard_focus import settings_without_guard
from highwater.fuzz.simulator.histories.kept_history import record
from highwater.fuzz.simulator.kept_seeds import FOLDER, KeptSeed, kept_seeds, read_kept_seed, write_kept_seed
from highwater.fuzz.simulator.search import run_seed
from highwater.names import unknown_name
from highwater.reports.audit import audit
from highwater.results import progress
from highwater.spec.guards import load_guards
from highwater.temporary import temporary_folder

FEWEST_OPERATIONS: Final = 100
ROW: Final = re.compile(
    r"(?P<name>[\w-]+) \(rule (?P<rule>\d+)(, as (?P<severity>information))?\), "
    r"in the history of fuzz/seeds/(?P<seed>\w+)\.json"
)
LIMIT_S: Final = 60.0
APART: Final = 100_000
Row = re.Match[str]
Guards = Annotated[list[str] | None, typer.Argument(metavar="[GUARD]...", help="Only these guards.")]
app = typer.Typer(add_completion=False, help=__doc__)


def rows() -> dict[str, Row]:
    """Return the audit witness of each guard that has one in the history of a seed."""
    texts = {guard: row.witnesses.audit for guard, row in load_guards().items()}
    return {guard: match for guard, text in texts.items() if (match := ROW.fullmatch(text))}


def check_each(guards: list[str] | None, known: Iterable[str], failure: Callable[[str], str], held: str) -> None:
    """Call `failure` with each guard, or those that are named, print what it returns, and exit with the verdict."""
    names = list(known)
    for guard in guards or ():
        if guard not in names:
            raise unknown_name("guard", guard, names, "highwater guards")
    chosen = guards or names
    failed = 0
    with progress("guards", len(chosen)) as step:
        for guard in chosen:
            message = failure(guard)
            if message:
                typer.echo(f"{guard}: {message}")
                failed += 1
            step()
    typer.echo(f"{len(chosen) - failed} of {len(chosen)} guards {held}")
    raise typer.Exit(ExitCode.VIOLATED if failed else ExitCode.HELD)


# -- histories ------------------------------------------------------------------------------------------


def mismatch(kept: KeptSeed, row: Row, folder: Path) -> str:
    """Describe how the audit of a kept seed differs from the row; empty if it does not."""
    off, on = (audit(record(kept, folder / f"{kept.guard}-{off}.ndjson", off=off)) for off in (True, False))
    severity = row["severity"] or "violation"
    found, still = (
        {finding.name for finding in result.findings if finding.severity == severity} for result in (off, on)
    )
    if row["name"] not in found:
        return f"off gives {sorted(found) or 'nothing'}, not {row['name']}"
    if on.verdict != "valid" or on.operations < FEWEST_OPERATIONS or row["name"] in still:
        return f"on is {on.verdict}, with {sorted(still) or 'nothing'} in {on.operations} operations"
    return ""


def kept_mismatch(guard: str, row: Row, folder: Path) -> str:
    """Describe how the history of the seed that a row names differs from the row; empty if it does not."""
    kept = read_kept_seed(FOLDER / f"{row['seed']}.json")
    return mismatch(kept, row, folder) if kept.guard == guard else f"the seed belongs to {kept.guard}"


@app.command()
def histories(guards: Guards = None) -> None:
    """Record and audit the history of each kept seed, with the guard off and on."""
    shown = rows()
    with temporary_folder() as folder:
        check_each(
            guards, shown, lambda guard: kept_mismatch(guard, shown[guard], folder),
            "are shown by the history of their seed, only when off",
        )  # fmt: skip


# -- seeds ----------------------------------------------------------------------------------------------


def is_shown(kept: KeptSeed, row: Row | None, folder: Path) -> bool:
    """Return whether, only with the guard off, the invariant breaks and the history shows the anomaly of the row."""
    try:
        violation = kept.run().violation
    except UsageError:  # the seed draws other clients, and the schedule names one that it does not have
        return False
    if violation is None or violation.invariant != kept.invariant or kept.run(off=False).violation is not None:
        return False
    return row is None or not mismatch(kept, row, folder)


def keep_another(kept: KeptSeed, row: Row | None, tries: int, folder: Path) -> str:
    """Keep the first seed whose run shows the guard, if the kept one does not; return what is wrong if none does."""
    if is_shown(kept, row, folder):
        return ""
    for seed in range(tries):
        other = structs.replace(kept, schedule=structs.replace(kept.schedule, seed=seed))
        if is_shown(other, row, folder):
            write_kept_seed(other)
            typer.echo(f"{kept.guard}: seed {seed}")
            return ""
    return "no seed found"


@app.command()
def seeds(
    guards: Guards = None, tries: Annotated[int, typer.Option(min=1, help="Seeds to try for each guard.")] = 1_000
) -> None:
    """Keep another seed for each guard that its kept one no longer shows."""
    shown, paths = rows(), {path.stem: path for path in kept_seeds()}
    with temporary_folder() as folder:
        check_each(
            guards, paths, lambda guard: keep_another(read_kept_seed(paths[guard]), shown.get(guard), tries, folder),
            "have a seed",
        )  # fmt: skip


# -- times ----------------------------------------------------------------------------------------------


def seconds_to_find(guard: str, first: int) -> float:
    """Return the seconds to a violation from seed `first` on; `LIMIT_S` if there is none by then."""
    settings, began = settings_without_guard(guard), time.process_time()
    seed = first
    while (spent := time.process_time() - began) < LIMIT_S:
        if run_seed(seed, settings).violation is not None:
            return time.process_time() - began
        seed += 1
    return min(spent, LIMIT_S)


def too_slow(guard: str, ranges: int) -> str:
    """Time each range, and print a row of the table; stops early once the median must reach the limit."""
    took: list[float] = []
    for number in range(ranges):
        took.append(seconds_to_find(guard, APART * number))
        if sum(seconds >= LIMIT_S for seconds in took) > ranges / 2:
            break
    median = statistics.median(took)
    typer.echo(f"| {guard} | {median:.1f} | {max(took):.1f} |")
    return "not within a minute" if median >= LIMIT_S else ""


@app.command()
def times(
    guards: Guards = None,
    ranges: Annotated[int, typer.Option(min=1, help="Number of seed ranges; the median counts.")] = 10,
) -> None:
    """Print a Markdown table of how soon the absence of each guard is found."""
    typer.echo(f"| guard | median s of {ranges} | slowest s |\n|---|---|---|")
    check_each(
        guards, [path.stem for path in kept_seeds()], lambda guard: too_slow(guard, ranges), "are found in a minute"
    )


if __name__ == "__main__":
    app()
