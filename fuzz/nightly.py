"""`python -m fuzz.nightly [--minutes M] [--seed N]`: every machine and drawn whole runs, for as long as is wanted.

Ends with a table of what came up. Exit codes as everywhere: 0 all held, 1 something broke, and 3 all held, but a
situation that must come up never did: then nothing is known about it.
"""

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Final

import typer

from fuzz.drawn import look_for_violation
from fuzz.machines.every import MACHINES, run_machine, tallied
from fuzz.simulated_cluster import Settings
from spec.formats.run import new_folder
from spec.formats.verdict import ExitCode

WHOLE_RUNS: Final = "whole runs"
PARTS: Final = (*MACHINES, WHOLE_RUNS)
RUNS_A_ROUND: Final = 20
TIMES_QUICK: Final = 1

MUST_HAPPEN: Final = {
    "log": ("truncation", "lost tail", "compaction", "retention"),
    "metadata store": (
        "session expired", "session began anew", "fenced store write", "nothing of a multi", "lost write",
    ),
    "group coordinator": (
        "rebalance", "coordinator restart", "fenced generation", "fenced instance", "forgotten member",
    ),
    "transaction coordinator": ("fenced producer", "aborted transaction", "coordinator restart"),
    "fetch sessions": ("partial news", "news of all"),
    WHOLE_RUNS: (
        "truncation", "lost tail", "leader change", "controller change", "coordinator change", "isr shrink",
        "isr of one", "no leader", "fenced write", "fenced fetch", "fenced ISR change", "fenced store write",
        "fenced producer", "fenced instance", "abort marker", "commit marker", "write below min ISR",
        "rebalance during failover", "group Stable",
    ),
}  # fmt: skip
"""Of each part the situations without which a clean night says little."""


def main(
    minutes: Annotated[float, typer.Option(min=0.1, help="At least one round of everything is run.")] = 30.0,
    seed: Annotated[int, typer.Option(help="Of the first round; the next one has the next seed.")] = 1,
) -> None:
    """Run every state machine and drawn whole runs, and say what came up."""
    end = time.monotonic() + minutes * 60
    tallies: dict[str, Counter[str]] = {name: Counter() for name in PARTS}
    first, broken = seed, False
    while not broken and (seed == first or time.monotonic() < end):
        for name, tally in tallies.items():
            with tallied() as seen:
                held = _run(name, seed)
            tally.update(seen)
            if not held:
                typer.echo(
                    f"{name} broke in round {seed}; again with: python -m fuzz.nightly --minutes 0.1 --seed {seed}"
                )
                broken = True
        seed += 1
    missing = _print_table(tallies)
    typer.echo(f"{seed - first} rounds, seeds {first} to {seed - 1}")
    sys.exit(ExitCode.VIOLATED if broken else ExitCode.UNDECIDED if missing else ExitCode.HELD)


def _run(name: str, seed: int) -> bool:
    """One round of one part; False after telling what broke."""
    if name != WHOLE_RUNS:
        try:
            run_machine(name, seed=seed, times=TIMES_QUICK)
        except Exception as error:  # whatever it is: the steps that lead there are in its notes
            typer.echo("\n".join([f"{name}: {type(error).__name__}: {error}", *getattr(error, "__notes__", ())]))
            return False
        return True
    finding = look_for_violation(Settings(swarm=True), seed=seed, runs=RUNS_A_ROUND)
    if finding is not None:
        folder: Path = new_folder("nightly", seed=finding.schedule.seed)
        finding.keep(folder)
        typer.echo("\n".join(finding.lines(folder)))
    return finding is None


def _print_table(tallies: dict[str, Counter[str]]) -> bool:
    """Test cases that saw each situation; True if one that must come up did not."""
    missing = False
    for name, tally in tallies.items():
        typer.echo(f"{name}:")
        never = [situation for situation in MUST_HAPPEN[name] if not tally[situation]]
        for situation, count in [
            *sorted(tally.items(), key=lambda item: (-item[1], item[0])),
            *((n, 0) for n in never),
        ]:
            typer.echo(f"  {count:>8}  {situation}{'' if count else '  NEVER HAPPENED'}")
        missing = missing or bool(never)
    return missing


if __name__ == "__main__":
    typer.run(main)
