"""Compare the audit rules with plain forms: `python -m highwater.soak.rules [--histories N] [--seed S] [--jobs J]`.

Random histories of a partition, of any operations and of those that belong together, are checked by the rules and by
the second oracle (`reports/tests/oracle`), which was written from the definitions only; the last stable offset by an
exhaustive search. `--small` compares all histories of
up to three operations as well. All cores are used. Exit code 1 at a difference; the command that repeats it is printed.
"""

import os
import random
import sys
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

from highwater.errors import ExitCode
from highwater.pools import process_pool
from highwater.reports.tests import test_read_committed
from highwater.reports.tests.oracle import exhaustive
from highwater.reports.tests.oracle.comparison import differences
from highwater.reports.tests.oracle.histories import random_history
from highwater.reports.tests.oracle.mixtures import mixture
from highwater.results import progress

SEEDS_OF_A_TASK = 500
PARTS_OF_A_THEME = 20


def differs(seed: int) -> str:
    """Return the difference for this seed; empty if there is none."""
    sample = random_history(seed)
    for found in (differences(sample.ops, sample.promise), differences(*mixture(seed))):
        if found:
            return f"(only the rules, only the oracle): {found}"
    ops = test_read_committed.random_history(random.Random(seed))
    if test_read_committed.found(ops) == test_read_committed.possible(ops):
        return f"the last stable offset: {ops}"
    return ""


def first_difference(first: int, end: int) -> str:
    """Return the command that repeats the first difference of these seeds, and the difference; empty if none."""
    for seed in range(first, end):
        found = differs(seed)
        if found:
            return f"To repeat: python -m highwater.soak.rules --histories 1 --seed {seed}\n{found}"
    return ""


def small_difference(theme: str, part: int) -> str:
    """Return the first difference in a part of the small histories of a theme; empty if there is none."""
    for number, (ops, promise) in enumerate(exhaustive.histories(theme, part, PARTS_OF_A_THEME)):
        found = differences(ops, promise)
        if found:
            where = f'exhaustive.histories("{theme}", {part}, {PARTS_OF_A_THEME})'
            return f"history {number} of reports/tests/oracle/{where}\n{found}"
    return ""


def found_by(jobs: int, histories: int, seed: int, *, small: bool) -> Iterator[str]:
    """Yield the difference that each task found, or an empty text."""
    with process_pool(jobs) as pool:
        firsts = range(seed, seed + histories, SEEDS_OF_A_TASK)
        ends = [min(first + SEEDS_OF_A_TASK, seed + histories) for first in firsts]
        parts = [(theme, part) for theme in exhaustive.THEMES for part in range(PARTS_OF_A_THEME if small else 0)]
        yield from pool.map(first_difference, firsts, ends)
        yield from pool.map(small_difference, *zip(*parts, strict=True)) if parts else ()


def soak(
    histories: Annotated[int, typer.Option(min=1, help="Number of random histories of each kind.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="First seed; the others follow.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes.")] = os.cpu_count() or 1,
    small: Annotated[bool, typer.Option(help="Compare all small histories, too: some minutes.")] = False,
) -> None:
    """Compare, and stop at the first difference."""
    console = Console(highlight=False)
    tasks = -(-histories // SEEDS_OF_A_TASK) + (len(exhaustive.THEMES) * PARTS_OF_A_THEME if small else 0)
    with progress("tasks", tasks) as step:
        for found in found_by(jobs, histories, seed, small=small):
            if found:
                console.print(found)
                sys.exit(ExitCode.VIOLATED)
            step()
    console.print(f"{histories:,} histories of each kind from seed {seed}: no difference")


if __name__ == "__main__":
    typer.run(soak)
