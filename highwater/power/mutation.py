"""Mutants of a module, and how a process loads one instead of the module. The mutations are cosmic-ray's.

A mutant that only changes an annotation, an assertion or whether a class is frozen is none: nothing behaves
differently.
"""

import ast
import random
import re
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import parso
from cosmic_ray.ast import ast_nodes
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

# Replacements that a person may overlook. The others, such as `+` by `<<`, mostly end in an exception.
PLAUSIBLE: Final = re.compile(
    r"core/(AddNot|NumberReplacer|Replace(AndWithOr|OrWithAnd|TrueWithFalse|FalseWithTrue|BreakWithContinue"
    r"|ContinueWithBreak)|ZeroIterationForLoop|ReplaceUnaryOperator_Delete_(Invert|Not|USub)"
    r"|ReplaceBinaryOperator_(Add_Sub|Sub_Add|BitAnd_BitOr|BitOr_BitAnd|Mul_Add|FloorDiv_Mul|Mod_FloorDiv)"
    r"|ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Lt_LtE|Lt_Gt|LtE_Lt|LtE_GtE|Gt_GtE|Gt_Lt|GtE_Gt|GtE_LtE|Is_IsNot"
    r"|IsNot_Is))"
)
WITHOUT_EFFECT: Final = {"frozen", "slots", "covariant", "strict"}  # arguments that only restrict what a program may do


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


def mutants(module: str, chance: random.Random) -> Iterator[Mutant]:
    """Yield all mutants of a module that behave differently from it, or may, in random order."""
    source = source_of(module)
    behaviour, nodes = _behaviour(source), list(ast_nodes(parso.parse(source)))
    places = [
        (name, place)
        for name in sorted(filter(PLAUSIBLE.fullmatch, operator_names()))
        for place, _ in enumerate(chain(*map(get_operator(name)().mutation_positions, nodes)))
    ]
    chance.shuffle(places)
    for name, place in places:
        mutated = mutate_code(source, get_operator(name)(), place)
        if mutated is not None and _behaviour(mutated) not in {behaviour, None}:
            yield with_mutation(module, source, mutated)


def unchanged(module: str) -> Mutant:
    """Return the control: a killer that kills it cannot judge mutants of the module."""
    return Mutant(module, 0, "", "", source_of(module))


@cache
def source_of(module: str) -> str:
    """Return the source of a module, which is not imported: a trial imports it when the mutant is in its place."""
    found = find_spec(module)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).read_text()


def with_mutation(module: str, source: str, mutated: str) -> Mutant:
    """Return the mutant whose source is `mutated`; it shows the first line that differs."""
    for number, (before, after) in enumerate(zip(source.splitlines(), mutated.splitlines(), strict=False), 1):
        if before != after:
            return Mutant(module, number, before.strip(), after.strip(), mutated)
    raise AssertionError(f"a mutation changed no line of {module}")


class _Behaviour(ast.NodeTransformer):
    """Removes what has no effect on a correct program."""

    def visit_Assert(self, node: ast.Assert) -> ast.Pass:
        return ast.Pass()

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.keyword | None:
        return None if node.arg in WITHOUT_EFFECT else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(value=None)
        return self.generic_visit(node)


def _behaviour(source: str) -> str | None:
    """Return what a source does, as text; None if it is no Python, such as a parameter `+` instead of `*`."""
    try:
        return ast.dump(_Behaviour().visit(ast.parse(source)))
    except SyntaxError:
        return None


class _Mutated(MetaPathFinder, Loader):
    """Finds the mutant in place of its module."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname == self._mutant.module else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._mutant.source, self._mutant.module, "exec"), vars(module))


def load_instead(mutant: Mutant, reloaded: Collection[str]) -> None:
    """Make later imports load the mutant, and the modules in `reloaded` again; only for a process of its own."""
    for name in [name for name in sys.modules if name in reloaded or name == mutant.module]:
        del sys.modules[name]
        package, _, last = name.rpartition(".")
        # `from package import module` returns the attribute of the package if it has one.
        if last in vars(sys.modules.get(package, sys)):
            delattr(sys.modules[package], last)
    sys.meta_path.insert(0, _Mutated(mutant))


def loaded(pattern: re.Pattern[str]) -> set[str]:
    """Return the names of the imported modules that a pattern matches."""
    return {name for name in sys.modules if pattern.fullmatch(name)}


def importers_of(module: str, names: Collection[str]) -> set[str]:
    """Return those of the imported modules `names` that import a module, or one that does, and so on."""
    found, new = {module}, {module}
    imports = {name: _imports(name) for name in names}
    while new:
        new = {name for name, imported in imports.items() if imported & new} - found
        found |= new
    return found


@cache
def _imports(name: str) -> frozenset[str]:
    """Return the modules that a module names in import statements, at any depth of its source."""
    found = set[str]()
    for node in ast.walk(ast.parse(source_of(name))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)
