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
    """What is told apart on this seed, empty when nothing is."""
    wrong = test_brute.disagreements(*random_operations(random.Random(seed)))
    if wrong:
        return f"rules {sorted(wrong)}: {wrong}"
    ops = test_read_committed.random_history(random.Random(seed))
    if test_read_committed.found(ops) == test_read_committed.possible(ops):
        return f"the last stable offset: {ops}"
    return ""


def soak(
    histories: Annotated[int, typer.Option(min=1, help="How many random histories, of each kind.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="The first; the others follow.")] = 0,
) -> None:
    """Compare, and stop at the first difference."""
    console = Console(highlight=False)
    with progress("histories", histories) as step:
        for each in range(seed, seed + histories):
            found = differs(each)
            if found:
                console.print(f"again: python -m highwater.soak.rules --histories 1 --seed {each}\n{found}")
                sys.exit(ExitCode.VIOLATED)
            step()
    console.print(f"{histories:,} histories of each kind from seed {seed}: no difference")


if __name__ == "__main__":
    typer.run(soak)
