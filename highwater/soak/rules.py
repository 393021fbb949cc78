"""Compare the audit rules with their plain forms: `python -m highwater.soak.rules [--histories N] [--seed S]`.

Random histories of a partition are checked by every rule and by its pair-by-pair form, and the last stable offset by an
exhaustive search. Exit code 1 at the first difference; the seed that repeats it is printed.
"""

import random
import sys
from typing import Annotated

import typer
from rich.console import Console

from highwater.errors import ExitCode
from highwater.reports.tests import test_brute, test_read_committed
from highwater.reports.tests.random_ops import random_operations
from highwater.results import progress


def differs(seed: int) -> str:
    """Return the difference for this seed; empty if there is none."""
    wrong = test_brute.disagreements(*random_operations(random.Random(seed)))
    if wrong:
        return f"rules {sorted(wrong)}: {wrong}"
    ops = test_read_committed.random_history(random.Random(seed))
    if test_read_committed.found(ops) == test_read_committed.possible(ops):
        return f"the last stable offset: {ops}"
    return ""


def soak(
    histories: Annotated[int, typer.Option(min=1, help="Number of random histories of each kind.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="First seed; the others follow.")] = 0,
) -> None:
    """Compare, and stop at the first difference."""
    console = Console(highlight=False)
    with progress("histories", histories) as step:
        for history_seed in range(seed, seed + histories):
            found = differs(history_seed)
            if found:
                console.print(f"To repeat: python -m highwater.soak.rules --histories 1 --seed {history_seed}\n{found}")
                sys.exit(ExitCode.VIOLATED)
            step()
    console.print(f"{histories:,} histories of each kind from seed {seed}: no difference")


if __name__ == "__main__":
    typer.run(soak)
