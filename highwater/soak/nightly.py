"""Run state machines and simulated clusters for a time: `python -m highwater.soak.nightly [--minutes M] [--seed N]`.

Ends with a table of the situations that came up. Exit codes: 0 all held, 1 something broke, 3 all held but a situation
that must come up never did, so the run says little. While such a situation is missing, the run continues for some
rounds after its time, so that the load of the machine does not decide.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Final

import typer

from highwater.errors import ExitCode
from highwater.fuzz.machines.all import MACHINES, count_events, run_machine
from highwater.fuzz.simulator.findings import SeedFinding, find_smallest
from highwater.fuzz.simulator.guard_focus import SWARM
from highwater.fuzz.simulator.steered import STEERED_SCENARIOS, steered_runs
from highwater.results import new_folder
from highwater.soak.drawn_schedules import search_for_violation

WHOLE_RUNS: Final = "whole runs"
STEERED_RUNS: Final = "steered runs"
DRAWN_A_ROUND: Final = 12
STEERED_A_ROUND: Final = 2
APART: Final = 1_000
"""Distance between the seeds of steered runs of two rounds."""

LEAST_ROUNDS: Final = 6
"""Rounds to run before a situation counts as never happening."""

MUST_HAPPEN: Final = {
    "log": ("truncation", "lost tail", "compaction", "retention"),
    "metadata store": (
        "session expired", "session began again", "fenced store write", "nothing of a multi", "lost write",
    ),
    WHOLE_RUNS: (
        "truncation", "leader change", "controller change", "isr shrink", "isr of one", "fenced write", "fenced fetch",
        "fenced store write", "write below min ISR",
    ),
    STEERED_RUNS: (*STEERED_SCENARIOS, "abort marker", "commit marker", "group Stable"),
}  # fmt: skip
"""Situations of each part that every run must cover; without them a clean run says little."""

Tallies = dict[str, Counter[str]]


def main(
    minutes: Annotated[
        float, typer.Option(min=0.1, help="Minutes to run; at least one round of every part is run.")
    ] = 30.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first round; the next rounds have the next seeds.")] = 1,
) -> None:
    """Run every state machine and whole runs, and print the situations that came up."""
    end = time.monotonic() + minutes * 60
    tallies: Tallies = {name: Counter() for name in PARTS}
    first, broken = seed, False
    while not broken and (parts := _parts_of_round(seed - first, tallies, in_time=time.monotonic() < end)):
        for name in parts:
            situations, failures = PARTS[name](name, seed)
            tallies[name].update(situations)
            for line in failures:
                typer.echo(line)
            if failures:
                typer.echo(
                    f"{name} broke in round {seed}; to repeat: "
                    f"python -m highwater.soak.nightly --minutes 0.1 --seed {seed}"
                )
                broken = True
        seed += 1
    _print_table(tallies)
    typer.echo(f"{seed - first} rounds, seeds {first} to {seed - 1}")
    missing = any(_never_happened(name, tallies) for name in PARTS)
    sys.exit(ExitCode.VIOLATED if broken else ExitCode.UNDECIDED if missing else ExitCode.HELD)


def _parts_of_round(number: int, tallies: Tallies, *, in_time: bool) -> list[str]:
    """Return all parts while there is time, then those with missing situations."""
    if in_time or number == 0:
        return list(PARTS)
    return [name for name in PARTS if _never_happened(name, tallies)] if number < LEAST_ROUNDS else []


def _never_happened(name: str, tallies: Tallies) -> list[str]:
    return [situation for situation in MUST_HAPPEN[name] if not tallies[name][situation]]


# -- one round of a part: returns its situations, and lines that describe a failure --------------------


def _machine(name: str, seed: int) -> tuple[Counter[str], list[str]]:
    failures: list[str] = []
    with count_events() as situations:
        try:
            run_machine(name, seed=seed)
        except Exception as error:  # any exception is a failure; the steps that lead to it are in its notes
            failures = [f"{name}: {type(error).__name__}: {error}", *getattr(error, "__notes__", ())]
    return situations, failures


def _drawn(name: str, seed: int) -> tuple[Counter[str], list[str]]:
    with count_events() as situations:
        finding = search_for_violation(SWARM, seed=seed, runs=DRAWN_A_ROUND)
    return situations, _save(finding) if finding is not None else []


def _steered(name: str, seed: int) -> tuple[Counter[str], list[str]]:
    situations: Counter[str] = Counter()
    for scenario in STEERED_SCENARIOS:
        for result in steered_runs(scenario, seed * APART, STEERED_A_ROUND):
            situations.update(result.situations.keys())
            if result.violation is not None:
                return situations, _save(find_smallest(result.seed, SWARM, result.schedule, result.violation.invariant))
    return situations, []


def _save(finding: SeedFinding) -> list[str]:
    folder = new_folder("nightly", seed=finding.schedule.seed)
    finding.save(folder)
    return finding.lines(folder)


PARTS: Final[dict[str, Callable[[str, int], tuple[Counter[str], list[str]]]]] = {
    **dict.fromkeys(MACHINES, _machine),
    WHOLE_RUNS: _drawn,
    STEERED_RUNS: _steered,
}


def _print_table(tallies: Tallies) -> None:
    """Print how many test cases covered each situation."""
    for name, tally in tallies.items():
        typer.echo(f"{name}:")
        for situation, count in sorted(tally.items(), key=lambda item: (-item[1], item[0])):
            typer.echo(f"  {count:>8}  {situation}")
        for situation in _never_happened(name, tallies):
            typer.echo(f"  {0:>8}  {situation}  NEVER HAPPENED")


if __name__ == "__main__":
    typer.run(main)
