"""Mutants of a module, and processes in which they are loaded instead of it. The mutations are cosmic-ray's.

A mutant that only changes an annotation, an assertion or whether a class is frozen is none: nothing behaves
differently. Each mutant is loaded in a fork of this process, so that what the killers share is computed once.
"""

import ast
import os
import random
import re
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
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
CPU_S: Final = 120
"""CPU time of a mutant; an alarm would be cancelled by the time limits of the tests."""


class Outcome(IntEnum):
    """What happened to a mutant."""

    SURVIVED = 0
    KILLED = 1
    RAISED = 2
    TIMED_OUT = 3


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


def source_of(module: str) -> str:
    """Return the source of an imported module."""
    found = sys.modules[module].__file__
    assert found is not None
    return Path(found).read_text()


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


def load_instead(mutant: Mutant, imported: re.Pattern[str]) -> None:
    """Make later imports load the mutant, and all modules like `imported` again; only for a process of its own."""
    for name in [name for name in sys.modules if imported.fullmatch(name)]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Mutated(mutant))


def outcome(mutant: Mutant, imported: re.Pattern[str], survives: Callable[[], bool]) -> Outcome:
    """Return what `survives` says in a process that has imported the mutant, and all modules like `imported` again."""
    child = os.fork()
    if not child:
        _be_a_child(mutant, imported, survives)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return Outcome.TIMED_OUT if os.WTERMSIG(status) == signal.SIGXCPU else Outcome.RAISED
    return Outcome(os.WEXITSTATUS(status))


def _be_a_child(mutant: Mutant, imported: re.Pattern[str], survives: Callable[[], bool]) -> None:
    """Run `survives` with the mutant, and exit."""
    found = Outcome.RAISED
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 5))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        load_instead(mutant, imported)
        found = Outcome.SURVIVED if survives() else Outcome.KILLED
    finally:
        os._exit(found)
