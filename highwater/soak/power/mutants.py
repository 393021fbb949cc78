"""The mutants: those of cosmic-ray, drawn by chance, and written ones in a file, each with its effect on a client."""

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
from highwater.soak.mutation import Mutant, mutants, source_of, with_mutation

FOLDER: Final = Path(__file__).parent
WRITTEN: Final = FOLDER / "mutants.toml"
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


class BehaviourMutant(msgspec.Struct, frozen=True):
    """A mutant of the broker; `effect` is what a client sees, empty for a generated one."""

    mutant: Mutant
    name: str
    effect: str = ""
    needs: Need = Need.ONE_BROKER

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


def modules() -> list[str]:
    """Return the modules whose behaviour the generated mutants change."""
    found = []
    for package in PACKAGES:
        path = import_module(f"highwater.reference.{package}").__path__
        found += [f"highwater.reference.{package}.{each.name}" for each in iter_modules(path)]
    return sorted(set(found) - WITHOUT_BEHAVIOUR)


def generated(count: int, seed: int) -> Iterator[BehaviourMutant]:
    """Yield about `count` mutants of cosmic-ray; each module has a share of them by its length, at least one."""
    sizes = {name: len(source_of(import_module(name).__name__).splitlines()) for name in modules()}
    for name, size in sizes.items() if count else ():
        share = max(1, round(count * size / sum(sizes.values())))
        for mutant in islice(mutants(name, random.Random(f"{seed} {name}")), share):
            yield BehaviourMutant(mutant, f"{name.removeprefix('highwater.reference.')}:{mutant.line}")


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of the file; `file` is a path in the repository, `old` occurs in it once and is replaced by `new`."""

    name: str
    file: str
    old: str
    new: str
    effect: str
    needs: Need = Need.ONE_BROKER


def written(path: Path = WRITTEN) -> list[BehaviourMutant]:
    """Read the written mutants; raises UsageError for one whose text is not in its file, or there more than once."""
    document = tomllib.loads(path.read_text()) if path.exists() else {}
    return [_from_file(msgspec.convert(entry, _Written), path) for entry in document.get("mutant", ())]


def _from_file(entry: _Written, path: Path) -> BehaviourMutant:
    module = import_module("highwater." + entry.file.removesuffix(".py").replace("/", "."))
    source = source_of(module.__name__)
    if source.count(entry.old) != 1:
        found = source.count(entry.old)
        raise UsageError(
            f"the text of mutant {entry.name!r} occurs {found} times in {entry.file}",
            where=str(path), hint="quote enough of the lines around it",
        )  # fmt: skip
    mutated = source.replace(entry.old, entry.new)
    try:
        compile(mutated, entry.file, "exec")
    except SyntaxError as error:
        raise UsageError(f"mutant {entry.name!r} is no Python: {error}", where=str(path)) from error
    mutant = with_mutation(module.__name__, source, mutated)
    return BehaviourMutant(mutant, entry.name, entry.effect, entry.needs)


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mutant that is equivalent to the broker, or a known survivor, with the reason; `name` for a written one."""

    reason: str
    module: str = ""
    before: str = ""
    after: str = ""
    name: str = ""


def equivalents(path: Path = EQUIVALENT) -> list[Known]:
    """Read the list of mutants that no client can distinguish from the broker."""
    return msgspec.convert(tomllib.loads(path.read_text()).get("mutant", []), list[Known]) if path.exists() else []


def survivors(path: Path = SURVIVORS) -> list[Known]:
    """Read the list of mutants that a client could notice and that no case kills."""
    return equivalents(path)


def reason_of(mutant: BehaviourMutant, known: Iterable[Known]) -> str:
    """Return why a mutant is in the list; empty if it is not."""
    module, before, after = mutant.identity
    short = module.removeprefix("highwater.reference.")
    for each in known:
        if each.name == mutant.name or (each.module, each.before, each.after) == (short, before, after):
            return each.reason
    return ""
