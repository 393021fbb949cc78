"""Measure how soon the simulator detects the absence of each guard: `python -m highwater.soak.guard_times [GUARD...]`.

For each guard, over `--ranges N` disjoint ranges of seeds: processor seconds until the first violation, on one core. A
range that shows none within a minute counts as the whole minute. The table goes to standard output.
"""

import statistics
import time
from typing import Annotated, Final

import typer

from highwater.errors import ExitCode
from highwater.fuzz.simulator.guard_focus import settings_without_guard
from highwater.fuzz.simulator.kept_seeds import kept_seeds
from highwater.fuzz.simulator.search import run_seed
from highwater.results import progress

LIMIT_S: Final = 60.0
APART: Final = 100_000


def seconds_to_find(guard: str, first: int) -> float:
    """Return the seconds to a violation from seed `first` on; `LIMIT_S` if there is none by then."""
    settings, began = settings_without_guard(guard), time.process_time()
    seed = first
    while (spent := time.process_time() - began) < LIMIT_S:
        if run_seed(seed, settings).violation is not None:
            return time.process_time() - began
        seed += 1
    return min(spent, LIMIT_S)


def times_to_find(guard: str, ranges: int) -> list[float]:
    """Time each range; stops early once the median must reach the limit."""
    took: list[float] = []
    for number in range(ranges):
        took.append(seconds_to_find(guard, APART * number))
        if sum(seconds >= LIMIT_S for seconds in took) > ranges / 2:
            break
    return took


def guard_times(
    guards: Annotated[
        list[str] | None, typer.Argument(help="Guards to measure; default: all with a kept seed.")
    ] = None,
    ranges: Annotated[int, typer.Option(min=1, help="Number of seed ranges; the median counts.")] = 10,
) -> None:
    """Print a Markdown table; exit code 1 if a median reaches a minute."""
    known = [path.stem for path in kept_seeds()]
    unknown = set(guards or ()) - set(known)
    if unknown:
        raise typer.BadParameter(
            f"there is no kept seed for {', '.join(sorted(unknown))}; choose from {', '.join(known)}"
        )
    chosen = guards or known
    slow = []
    typer.echo(f"| guard | median s of {ranges} | slowest s |\n|---|---|---|")
    with progress("guards", len(chosen)) as step:
        for guard in chosen:
            took = times_to_find(guard, ranges)
            median = statistics.median(took)
            typer.echo(f"| {guard} | {median:.1f} | {max(took):.1f} |")
            if median >= LIMIT_S:
                slow.append(guard)
            step()
    if slow:
        typer.echo(f"not within a minute: {', '.join(slow)}")
    raise typer.Exit(ExitCode.VIOLATED if slow else ExitCode.HELD)


if __name__ == "__main__":
    typer.run(guard_times)
