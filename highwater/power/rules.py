"""The judge `rules`: mutants of the audit rules, judged by a second implementation and by the tests.

The checks of the rules of a partition are the second oracle, which was written without reading the rules, on random
histories, and what the witnesses of a finding must show; those of divided partitions are the whole ones. What survives
is given to the tests of the rules, the only check of the rules of a run.
"""

import random
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Final

import pytest

from highwater import reports
from highwater.mutants.mutation import Mutant
from highwater.mutants.table import NamedMutant
from highwater.power.generated import loaded, mutants
from highwater.power.store import digest_of
from highwater.power.trial import Judge
from highwater.reports.columns import Operations
from highwater.reports.execution.division.chunks import InMemoryChunks
from highwater.reports.tests.oracle import comparison, exhaustive, witnesses
from highwater.reports.tests.oracle.histories import random_history
from highwater.reports.tests.oracle.history import History
from highwater.reports.tests.oracle.mixtures import mixture
from highwater.reports.tests.random_ops import random_operations
from highwater.soak.division import by_completion, finding_rows

RULES: Final = "highwater.reports.rules"
RELOADED: Final = re.compile(r"highwater\.(reports(\..*)?|soak\.division)")
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


Check = Callable[[], bool]
ORACLE: Final[tuple[Check, ...]] = (agrees_with_the_oracle, names_witnesses, passes_the_tests)
WHOLE: Final[tuple[Check, ...]] = (is_the_same_when_divided, passes_the_tests)
BOTH: Final[tuple[Check, ...]] = (agrees_with_the_oracle, is_the_same_when_divided, names_witnesses, passes_the_tests)
TESTS: Final[tuple[Check, ...]] = (passes_the_tests,)
CHECKS: Final[dict[str, tuple[Check, ...]]] = {
    **dict.fromkeys(("committed", "cycles", "entries", "findings", "log", "polls", "register", "storage"), ORACLE),
    **dict.fromkeys(("division", "merge"), WHOLE),
    **dict.fromkeys(("partition", "summary", "view"), BOTH),
    **dict.fromkeys(("epochs", "group_reads", "groups", "outcomes", "run", "step_findings"), TESTS),
}
WITHOUT_RULES: Final = {"rule"}  # names and texts


LIMIT_S: Final = 60.0


class RulesJudge(Judge):
    """The functions above as checks."""

    name = "rules"

    def session(self, work: Callable[[], None]) -> None:
        judged_histories(), whole_partitions()  # once, for all forks
        work()

    def version(self) -> str:
        return digest_of([Path(reports.__path__[0])])

    def mutants(self, mutant_set: str, count: int, seed: int) -> Iterator[NamedMutant]:
        """Yield up to `count` mutants of each module of the rules (0: all)."""
        for mutant in drawn(sorted(CHECKS), count, seed):
            yield NamedMutant(mutant, f"{mutant.module.rpartition('.')[2]}:{mutant.line}")

    def plan(self, mutant: NamedMutant) -> list[str]:
        return [check.__name__ for check in checks_of(mutant.mutant.module)]

    def reloaded(self, module: str) -> set[str]:
        return loaded(RELOADED)

    def begin(self, mutant: NamedMutant) -> None:
        """Do nothing: the checks import the rules."""

    def check(self, name: str) -> str:
        return "" if NAMED[name]() else "a difference"

    def limit_s(self, name: str) -> float:
        return LIMIT_S


NAMED: Final = {check.__name__: check for checks in CHECKS.values() for check in checks}


def checks_of(module: str) -> tuple[Check, ...]:
    return CHECKS[module.rpartition(".")[2]]


def places() -> dict[str, str]:
    """Return the full name of each module of the rules."""
    packages = (RULES, f"{RULES}.checks")
    found = ((package, each) for package in packages for each in iter_modules(import_module(package).__path__))
    return {each.name: f"{package}.{each.name}" for package, each in found if not each.ispkg}


def drawn(modules: list[str], count: int, seed: int) -> Iterator[Mutant]:
    """Yield up to `count` mutants of each module (0: all)."""
    for module in modules:
        yield from islice(mutants(import_module(places()[module]).__name__, random.Random(seed)), count or None)
