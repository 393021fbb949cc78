"""Why the spec has no step that a line of a trace describes: the conjuncts without which it would have one.

Each conjunct of the action is dropped in turn, in a copy of its module, and the trace is validated again up to that
line.  More than one may be named: each alone would be enough.  None is, if two are false at once.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from highwater.spec.mutation.changes import AND, edited, excerpt
from highwater.spec.mutation.syntax import ACTION, Definition, Node, read_definitions
from highwater.spec.tlc.parallel import in_parallel

# In each trace module a TraceStep explains a line: what Explained says, which has an arm for each action, and more.
STEP: Final = "TraceStep"
EXPLAINED: Final = "Explained"
CASE: Final = "$Case"


@dataclass(frozen=True, slots=True)
class Conjunct:
    """A conjunct of an action: where it is, and its module's text without it."""

    module: Path
    line: int
    text: str
    without: str

    def __str__(self) -> str:
        return f"{self.module.name}:{self.line}: {self.text}"


def false_conjuncts(trace_module: Path, action: str, accepts: Callable[[Conjunct], bool]) -> list[str]:
    """Return the conjuncts of an action without which `accepts`, each with its file and line."""
    tried = list(conjuncts(trace_module, action))
    enough = in_parallel(accepts, tried)
    return [str(conjunct) for conjunct, accepted in zip(tried, enough, strict=True) if accepted]


def conjuncts(trace_module: Path, action: str) -> Iterator[Conjunct]:
    """Yield the conjuncts of an action, of what the trace module adds to it, and of the actions that it uses."""
    definitions = _definitions(trace_module)
    own = {each.name: each for each in definitions.values() if each.module == trace_module.stem}
    found = list(_Conjuncts(definitions, {own[EXPLAINED].key}).of(trace_module.stem, own[STEP].body))
    for arm in _arms(own.values(), action):
        found += _Conjuncts(definitions, set()).of(trace_module.stem, arm)
    for module, node in dict.fromkeys(found):
        path = trace_module.with_name(f"{module}.tla")
        if path.exists():
            text = path.read_text()
            old = " ".join(excerpt(text, node.region).split())
            yield Conjunct(path, node.region.line, old, edited(text, [(node.region, "TRUE")]))


_definitions: Final = cache(read_definitions)


def _arms(definitions: Iterable[Definition], action: str) -> Iterator[Node]:
    """Yield what a CASE has for an action: each arm whose condition compares with its name."""
    cases = (node for each in definitions for node in each.body.walk() if node.operator == CASE)
    for arm in (arm for case in cases for arm in case.operands):
        *conditions, then = arm.operands
        names = (part.operator for condition in conditions for part in condition.walk())
        if then.level == ACTION and action in names:
            yield then


class _Conjuncts:
    """The conjuncts of an expression and of the actions that it uses, but for those that give a variable its value."""

    def __init__(self, definitions: dict[str, Definition], visited: set[str]) -> None:
        self.definitions, self.visited = definitions, visited

    def of(self, module: str, node: Node) -> Iterator[tuple[str, Node]]:
        for part in node.operands:
            if node.operator in AND and part.operator not in AND and not self._assigns(part):
                yield module, part
            if part.level == ACTION or part.operator in AND:
                yield from self.of(module, part)
        used = self.definitions.get(node.refers)
        if used is not None and used.body.level == ACTION and node.refers not in self.visited:
            self.visited.add(node.refers)
            yield from self.of(used.module, used.body)

    def _assigns(self, node: Node) -> bool:
        if node.operator == "=" and node.operands[0].operator == "'":
            return True
        used = self.definitions.get(node.refers)
        inside = (*node.operands, used.body) if used is not None else node.operands
        return node.operator == "UNCHANGED" or any(part.level == ACTION and self._assigns(part) for part in inside)
