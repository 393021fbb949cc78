"""Mutate the audit rules: `python -m highwater.soak.rule_mutants [--mutants N] [--seed S] [--jobs J] [MODULE...]`.

The killers of the rules of a partition are the second oracle, which was written without reading the rules, on random
histories, and what the witnesses of a finding must show; those of divided partitions are the whole ones. What survives
is given to the tests of the rules, the only killer of the rules of a run. Prints the score of each module by killer,
and its survivors.
"""

import os
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from itertools import chain, groupby, islice
from pkgutil import iter_modules
from typing import Annotated, Any, Final

import pytest
import typer
from rich.console import Console

from highwater.errors import ExitCode
from highwater.pools import process_pool
from highwater.reports.columns import Operations
from highwater.reports.execution.division.chunks import InMemoryChunks
from highwater.reports.tests.oracle import comparison, exhaustive, witnesses
from highwater.reports.tests.oracle.histories import random_history
from highwater.reports.tests.oracle.history import History
from highwater.reports.tests.oracle.mixtures import mixture
from highwater.reports.tests.random_ops import random_operations
from highwater.results import progress
from highwater.soak.division import by_completion, finding_rows
from highwater.soak.mutation import Mutant, Outcome, mutants, outcome, unchanged

RULES: Final = "highwater.reports.rules"
IMPORTED: Final = re.compile(r"highwater\.(reports(\..*)?|soak\.division)")
HISTORIES: Final = 3_000
EVERY: Final = 101  # of the small histories
FIRST_SEED: Final = 5_000_000  # of no other comparison
DIVIDED: Final = 1_500
WITNESSED: Final = 5  # one of so many histories


Judged = tuple[Operations, Any, History, dict[tuple[int, int], set[Any]]]


@cache
def judged_histories() -> list[Judged]:
    """Return random histories of each kind and some of the small ones, and what the second oracle finds in them."""
    seeds = range(FIRST_SEED, FIRST_SEED + HISTORIES)
    drawn = ((sample.ops, sample.promise) for sample in map(random_history, seeds))
    small = (exhaustive.histories(theme, 0, EVERY) for theme in exhaustive.THEMES)
    return [_judged(*each) for each in chain(map(mixture, seeds), drawn, *small)]


def _judged(ops: Operations, promise: Any) -> Judged:
    history = History(ops, promise)
    return ops, promise, history, _plain(comparison.found_by_oracle(ops, promise, history))


def _plain(culprits: Any) -> dict[tuple[int, int], set[Any]]:
    return {(int(rule), int(weight)): those for (rule, weight), those in culprits.items() if those}


def agrees_with_the_oracle() -> bool:
    rules = import_module(comparison.__name__)
    return all(
        _plain(rules.found_by_rules(ops, promise, history)) == expected
        for ops, promise, history, expected in judged_histories()
    )


def names_witnesses() -> bool:
    """Return whether the witnesses of all findings show them, in some of the histories."""
    check = import_module(f"{RULES}.partition").check
    misleading = import_module(witnesses.__name__).misleading
    return not any(
        misleading(check(ops, promise), ops, promise) for ops, promise, *_ in judged_histories()[::WITNESSED]
    )


@cache
def whole_partitions() -> list[tuple[Any, Any, list[int], int, Any]]:
    """Return random histories, where they are divided, and the findings in the whole."""
    chance, found = random.Random(FIRST_SEED), []
    check = import_module(f"{RULES}.partition").check
    for _ in range(DIVIDED):
        ops, promise = random_operations(chance)
        ops = by_completion(ops)
        starts = sorted({0, *(chance.randrange(len(ops)) for _ in range(chance.randint(1, 4)))})
        found.append((ops, promise, starts, chance.randint(1, 8), finding_rows(check(ops, promise))))
    return found


def is_the_same_when_divided() -> bool:
    of = import_module("highwater.reports.execution.division.run").DividedPartition.of
    parts = ((of(InMemoryChunks(ops, at), kept, size=size), rows) for ops, kept, at, size, rows in whole_partitions())
    return all(part is None or finding_rows(part.check()) == rows for part, rows in parts)


def passes_the_tests() -> bool:
    names = (
        "run_rules",
        "step_rules",
        "pairs",
        "near_misses",
        "excuses",
        "coverage",
        "kernel",
        "promise",
        "cycles",
        "group_scenarios",
        "storage_evidence",
    )
    files = [f"reports/tests/test_{name}.py" for name in names]
    return pytest.main(["-x", "-q", "--assert=plain", "-Wignore", "-pno:cacheprovider", "-n0", *files]) == 0


Killer = Callable[[], bool]
ORACLE: Final[tuple[Killer, ...]] = (agrees_with_the_oracle, names_witnesses, passes_the_tests)
WHOLE: Final[tuple[Killer, ...]] = (is_the_same_when_divided, passes_the_tests)
BOTH: Final[tuple[Killer, ...]] = (agrees_with_the_oracle, is_the_same_when_divided, names_witnesses, passes_the_tests)
TESTS: Final[tuple[Killer, ...]] = (passes_the_tests,)
KILLERS: Final[dict[str, tuple[Killer, ...]]] = {
    **dict.fromkeys(("committed", "cycles", "findings", "log", "polls", "register", "storage"), ORACLE),
    **dict.fromkeys(("division", "merge"), WHOLE),
    **dict.fromkeys(("partition", "summary", "view"), BOTH),
    **dict.fromkeys(("group_reads", "groups", "run", "step_findings"), TESTS),
}
WITHOUT_RULES: Final = {"rule"}  # names and texts


def judge(mutant: Mutant) -> str:
    """Return by whom and how a mutant was killed; empty if it survived."""
    for killer in killers_of(mutant):
        found = outcome(mutant, IMPORTED, killer)
        if found is not Outcome.SURVIVED:
            return f"{killer.__name__}: {found.name.lower()}"
    return ""


def killers_of(mutant: Mutant) -> tuple[Killer, ...]:
    return KILLERS[mutant.module.rpartition(".")[2]]


def places() -> dict[str, str]:
    """Return the full name of each module of the rules."""
    packages = (RULES, f"{RULES}.checks")
    found = ((package, each) for package in packages for each in iter_modules(import_module(package).__path__))
    return {each.name: f"{package}.{each.name}" for package, each in found if not each.ispkg}


def drawn(modules: list[str], count: int, seed: int) -> Iterator[Mutant]:
    """Yield up to `count` mutants of each module (0: all)."""
    for module in modules:
        yield from islice(mutants(import_module(places()[module]).__name__, random.Random(seed)), count or None)


def soak(
    modules: Annotated[list[str] | None, typer.Argument(help="Modules of reports/rules; default: all.")] = None,
    count: Annotated[int, typer.Option("--mutants", min=0, help="Mutants of each module; 0: all.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the choice.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes.")] = os.cpu_count() or 1,
) -> None:
    """Print the score of each module, and its survivors."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    assert places().keys() == KILLERS.keys() | WITHOUT_RULES, "a module of the rules without a killer"
    chosen = list(drawn(modules or sorted(KILLERS), count, seed))
    judged_histories(), whole_partitions()  # once, for all forks
    for mutant in {killers_of(mutant): mutant for mutant in chosen}.values():
        if found := judge(unchanged(mutant.module)):
            console.print(f"{mutant.module} is killed without a mutation ({found}): nothing can be judged.")
            sys.exit(ExitCode.USAGE)
    survivors = 0
    with process_pool(jobs) as pool, progress("mutants", len(chosen)) as step:
        judged = zip(chosen, pool.map(judge, chosen), strict=True)
        for module, of_module in groupby(judged, lambda pair: pair[0].module):  # so that an interrupted run has scores
            counted: Counter[str] = Counter()
            for mutant, found in of_module:
                counted[found] += 1
                if not found:
                    console.print(f"survived: {mutant}")
                step()
            survivors += counted[""]
            by = ", ".join(f"{count} {how}" for how, count in counted.most_common() if how)
            console.print(f"{module}: {counted.total() - counted['']} of {counted.total()} killed ({by})")
    console.print(f"{len(chosen) - survivors} of {len(chosen)} killed")
    console.print(f"To repeat: python -m highwater.soak.rule_mutants --mutants {count} --seed {seed}")


if __name__ == "__main__":
    typer.run(soak)
