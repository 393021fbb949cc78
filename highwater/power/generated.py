"""Generated mutants of a module, whose mutations are cosmic-ray's, and the modules that a mutant concerns.

A mutant that only changes an annotation, an assertion or whether a class is frozen is none: nothing behaves
differently.
"""

import ast
import random
import re
import sys
from collections.abc import Collection, Iterator
from functools import cache
from importlib import import_module
from itertools import chain, islice
from pkgutil import iter_modules
from typing import Final

import parso
from cosmic_ray.ast import ast_nodes
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from highwater.mutants.mutation import Mutant, source_of, with_mutation
from highwater.mutants.table import NamedMutant

# Replacements that a person may overlook. The others, such as `+` by `<<`, mostly end in an exception.
PLAUSIBLE: Final = re.compile(
    r"core/(AddNot|NumberReplacer|Replace(AndWithOr|OrWithAnd|TrueWithFalse|FalseWithTrue|BreakWithContinue"
    r"|ContinueWithBreak)|ZeroIterationForLoop|ReplaceUnaryOperator_Delete_(Invert|Not|USub)"
    r"|ReplaceBinaryOperator_(Add_Sub|Sub_Add|BitAnd_BitOr|BitOr_BitAnd|Mul_Add|FloorDiv_Mul|Mod_FloorDiv)"
    r"|ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Lt_LtE|Lt_Gt|LtE_Lt|LtE_GtE|Gt_GtE|Gt_Lt|GtE_Gt|GtE_LtE|Is_IsNot"
    r"|IsNot_Is))"
)
WITHOUT_EFFECT: Final = {"frozen", "slots", "covariant", "strict"}  # arguments that only restrict what a program may do

PACKAGES: Final = ("replication", "groups", "transactions", "storage", "controller")
WITHOUT_BEHAVIOUR: Final = {
    "highwater.reference.groups.tracing", "highwater.reference.storage.filesystem",
    "highwater.reference.controller.steps",
}  # fmt: skip
"""Modules of traces for the specifications and of interfaces, whose mutants no client can see."""


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
