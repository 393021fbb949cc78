"""The table of mutants: written ones, each with its effect on a client, and a random sample of cosmic-ray's.

The folder `mutants` has the written ones, a file for each set; a name occurs once in all of them.
"""

import ast
import hashlib
import random
import tomllib
from collections.abc import Iterable, Iterator
from enum import StrEnum
from importlib import import_module
from itertools import islice
from pathlib import Path
from pkgutil import iter_modules
from typing import Final

import msgspec

from highwater.errors import UsageError
from highwater.power.mutation import Mutant, mutants, source_of, with_mutation

FOLDER: Final = Path(__file__).parent
SETS: Final = FOLDER / "mutants"
WRITTEN: Final = "written"
"""The set of which each mutant has a killer or a reason, for the suite and for the simulator."""
EQUIVALENT: Final = FOLDER / "equivalent.toml"
SURVIVORS: Final = FOLDER / "survivors.toml"
PACKAGES: Final = ("replication", "groups", "transactions", "storage", "controller")
WITHOUT_BEHAVIOUR: Final = {
    "highwater.reference.groups.tracing", "highwater.reference.storage.filesystem",
    "highwater.reference.controller.steps",
}  # fmt: skip
"""Modules of traces for the specifications and of interfaces, whose mutants no client can see."""


class Need(StrEnum):
    """What a client needs to see the effect of a mutant."""

    ONE_BROKER = "one broker"
    BROKERS = "several brokers"
    RESTART = "restart"
    FAILOVER = "failover"


class NamedMutant(msgspec.Struct, frozen=True):
    """A mutant with a name; `effect` is what a client sees, empty for a generated one."""

    mutant: Mutant
    name: str
    effect: str = ""
    needs: Need = Need.ONE_BROKER
    kind: str = ""

    @property
    def key(self) -> str:
        """Return a digest of the module with the mutation: the same mutant after any other change has the same key."""
        text = "\0".join((self.mutant.module, self.mutant.source))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def identity(self) -> tuple[str, str, str]:
        """Return what still identifies the mutant after other changes of its module: both texts of its line."""
        return self.mutant.module, self.mutant.before, self.mutant.after

    def lines(self) -> range:
        """Return the line numbers of the statement that is changed; of a compound one those of its head."""
        return statement_at(source_of(self.mutant.module), self.mutant.line)

    @property
    def is_at_import(self) -> bool:
        """Return whether the changed line runs when its module is imported, as those of constants and defaults do."""
        return is_outside_of_functions(source_of(self.mutant.module), self.mutant.line)


def statement_at(source: str, line: int) -> range:
    """Return the lines of the innermost statement at a line, of a compound statement those of its head."""
    best = range(line, line + 1)
    size = len(source)
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            continue
        body = getattr(node, "body", None)
        first = node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno
        decorators = getattr(node, "decorator_list", ())
        first = min([first, *(each.lineno for each in decorators)])
        last = max(first, body[0].lineno - 1) if body else getattr(node, "end_lineno", first) or first
        if first <= line <= last and last - first < size:
            best, size = range(first, last + 1), last - first
    return best


def is_outside_of_functions(source: str, line: int) -> bool:
    """Return whether a line is in no body of a function."""
    return not any(
        node.body[0].lineno <= line <= (node.end_lineno or line)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def modules() -> list[str]:
    """Return the modules whose behaviour the generated mutants change."""
    found = []
    for package in PACKAGES:
        path = import_module(f"highwater.reference.{package}").__path__
        found += [f"highwater.reference.{package}.{each.name}" for each in iter_modules(path)]
    return sorted(set(found) - WITHOUT_BEHAVIOUR)


def generated(count: int, seed: int) -> Iterator[NamedMutant]:
    """Yield about `count` mutants of cosmic-ray; each module has a share of them by its length, at least one."""
    sizes = {name: len(source_of(name).splitlines()) for name in modules()}
    for name, size in sizes.items() if count else ():
        share = max(1, round(count * size / sum(sizes.values())))
        for mutant in islice(mutants(name, random.Random(f"{seed} {name}")), share):
            yield NamedMutant(mutant, f"{name.removeprefix('highwater.reference.')}:{mutant.line}")


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of a set; `file` is a path in the repository, `old` occurs in it once and is replaced by `new`.

    `kind` is the finding that the wire fuzzer promises for it.
    """

    name: str
    file: str
    old: str
    new: str
    effect: str
    needs: Need = Need.ONE_BROKER
    kind: str = ""


def sets() -> list[str]:
    """Return the names of the sets of written mutants."""
    return sorted(path.stem for path in SETS.glob("*.toml"))


def written(name: str = WRITTEN, folder: Path = SETS) -> list[NamedMutant]:
    """Read a set of written mutants; raises UsageError for one whose text is not in its file exactly once."""
    path = folder / f"{name}.toml"
    if not path.exists():
        raise UsageError(f"there is no set of mutants {name!r}", hint=f"known: {', '.join(sets())}")
    rows = tomllib.loads(path.read_text()).get("mutant", ())
    return [_mutant_of(msgspec.convert(row, _Row), path) for row in rows]


def _mutant_of(row: _Row, path: Path) -> NamedMutant:
    module = "highwater." + row.file.removesuffix(".py").replace("/", ".")
    source = source_of(module)
    if source.count(row.old) != 1:
        found = source.count(row.old)
        raise UsageError(
            f"the text of mutant {row.name!r} occurs {found} times in {row.file}",
            where=str(path), hint="quote enough of the lines around it",
        )  # fmt: skip
    mutated = source.replace(row.old, row.new)
    try:
        compile(mutated, row.file, "exec")
    except SyntaxError as error:
        raise UsageError(f"mutant {row.name!r} is no Python: {error}", where=str(path)) from error
    mutant = with_mutation(module, source, mutated)
    return NamedMutant(mutant, row.name, row.effect, row.needs, row.kind)


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a mutant is not killed; `name` for a written one, module and both texts of the line for a generated one.

    `judge` is empty for a mutant that is equivalent to the broker. `out_of_reach`: no run of the judge can notice it.
    """

    reason: str
    judge: str = ""
    out_of_reach: bool = False
    module: str = ""
    before: str = ""
    after: str = ""
    name: str = ""


def equivalents() -> list[Reason]:
    """Read the list of mutants that no client can distinguish from the broker."""
    return _reasons(EQUIVALENT)


def survivors(judge: str) -> list[Reason]:
    """Read the list of mutants that a client could notice and that no check of a judge kills."""
    return [reason for reason in _reasons(SURVIVORS) if reason.judge == judge]


def _reasons(path: Path) -> list[Reason]:
    return msgspec.convert(tomllib.loads(path.read_text()).get("mutant", []), list[Reason])


def reason_of(mutant: NamedMutant, known: Iterable[Reason]) -> str:
    """Return why a mutant is in the list; empty if it is not."""
    module, before, after = mutant.identity
    short = module.removeprefix("highwater.reference.")
    for reason in known:
        if reason.name == mutant.name or (
            not reason.name and (reason.module, reason.before, reason.after) == (short, before, after)
        ):
            return reason.reason
    return ""
