"""The table of mutants: broken brokers written by hand, each with its effect on a client.

This folder has them, a file for each set; a name occurs once in all of them.
"""

import ast
import hashlib
import tomllib
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from highwater.errors import UsageError
from highwater.mutants.mutation import Mutant, source_of, with_mutation

SETS: Final = Path(__file__).parent
WIRE: Final = "wire"
"""The defects of the self-test of the wire fuzzer."""
WRITTEN: Final = "written"
"""The set of which each mutant has a killer or a reason, for the suite and for the simulator."""


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


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of a set; `file` is a path in the repository, `old` occurs in it once and is replaced by `new`.

    `kind` is the finding that the wire fuzzer promises for it, `bug` where the like of it was seen.
    """

    name: str
    file: str
    old: str
    new: str
    effect: str
    needs: Need = Need.ONE_BROKER
    kind: str = ""
    bug: str = ""

    @property
    def module(self) -> str:
        return "highwater." + self.file.removesuffix(".py").replace("/", ".")

    def applied_to(self, source: str) -> str:
        """Return the source with the replacement. Raises UsageError if it is no Python, or lacks the text."""
        if source.count(self.old) != 1:
            raise UsageError(
                f"the text of mutant {self.name!r} occurs {source.count(self.old)} times", where=self.file,
                hint="quote enough of the lines around it",
            )  # fmt: skip
        mutated = source.replace(self.old, self.new)
        try:
            compile(mutated, self.file, "exec")
        except SyntaxError as error:
            raise UsageError(f"mutant {self.name!r} is no Python: {error}", where=self.file) from error
        return mutated


def sets() -> list[str]:
    """Return the names of the sets of written mutants."""
    return sorted(path.stem for path in SETS.glob("*.toml"))


def rows(name: str = WRITTEN, folder: Path = SETS) -> dict[str, Row]:
    """Read the rows of a set, by name."""
    path = folder / f"{name}.toml"
    if not path.exists():
        raise UsageError(f"there is no set of mutants {name!r}", hint=f"known: {', '.join(sets())}")
    found = msgspec.convert(tomllib.loads(path.read_text()).get("mutant", []), list[Row])
    return {row.name: row for row in found}


def written(name: str = WRITTEN, folder: Path = SETS) -> list[NamedMutant]:
    """Return the mutants of a set; raises UsageError for one whose text is not in its file exactly once."""
    return [
        NamedMutant(planted([row])[0], row.name, row.effect, row.needs, row.kind) for row in rows(name, folder).values()
    ]


def planted(chosen: Iterable[Row]) -> list[Mutant]:
    """Return each module that rows change, with the changes of all its rows."""
    mutated: dict[str, str] = {}
    for row in chosen:
        mutated[row.module] = row.applied_to(mutated.get(row.module) or source_of(row.module))
    return [with_mutation(module, source_of(module), source) for module, source in mutated.items()]


def wire_rows(names: Sequence[str]) -> list[Row]:
    """Return rows of the self-test of the wire fuzzer. Raises UsageError for an unknown name."""
    known = rows(WIRE)
    for name in names:
        if name not in known:
            raise UsageError(f"unknown wire defect {name!r}", hint=f"use one of {', '.join(known)}")
    return [known[name] for name in names]
