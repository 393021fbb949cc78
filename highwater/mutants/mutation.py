"""A mutant of a module, and how a process loads it instead of the module."""

import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any


@dataclass(frozen=True, slots=True)
class Mutant:
    """The source of a module with one mutation, or with none: the control."""

    module: str
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.before}\n    {self.after}"


def unchanged(module: str) -> Mutant:
    """Return the control: a killer that kills it cannot judge mutants of the module."""
    return Mutant(module, 0, "", "", source_of(module))


@cache
def source_of(module: str) -> str:
    """Return the source of a module, which is not imported: a trial imports it when the mutant is in its place."""
    return path_of(module).read_text()


def path_of(module: str) -> Path:
    """Return the file of a module."""
    found = find_spec(module)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin)


def with_mutation(module: str, source: str, mutated: str) -> Mutant:
    """Return the mutant whose source is `mutated`; it shows the first line that differs."""
    for number, (before, after) in enumerate(zip(source.splitlines(), mutated.splitlines(), strict=False), 1):
        if before != after:
            return Mutant(module, number, before.strip(), after.strip(), mutated)
    raise AssertionError(f"a mutation changed no line of {module}")


class _Mutated(MetaPathFinder, Loader):
    """Finds the mutant in place of its module."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant, self._path = mutant, path_of(mutant.module)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname == self._mutant.module else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._mutant.source, self._path, "exec"), vars(module))


def load_instead(mutant: Mutant, reloaded: Collection[str]) -> None:
    """Make later imports load the mutant, and the modules in `reloaded` again; only for a process of its own."""
    for name in [name for name in sys.modules if name in reloaded or name == mutant.module]:
        del sys.modules[name]
        package, _, last = name.rpartition(".")
        # `from package import module` returns the attribute of the package if it has one.
        if last in vars(sys.modules.get(package, sys)):
            delattr(sys.modules[package], last)
    sys.meta_path.insert(0, _Mutated(mutant))
