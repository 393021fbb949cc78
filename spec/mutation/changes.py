"""The mutants of a module: every way to change one expression of what its steps use, once each.

A changed text keeps its columns, because the layout of a list of conjuncts or disjuncts is part of its meaning: what is
removed becomes blanks.  A rule that `guards.toml` can switch off is not dropped again.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from highwater.spec.mutation.syntax import ACTION, Definition, Node, Region, reachable, read_definitions

Edit = tuple[Region, str]
# Operators between two operands: as SANY names them, and as they are written.
WRITTEN: Final = {"\\geq": ">=", "\\leq": "<=", "/=": "#"}
INSTEAD: Final = {
    "=": "#",
    "#": "=",
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    r"\in": r"\notin",
    r"\notin": r"\in",
}
AND: Final = ("$ConjList", r"\land")
OR: Final = ("$DisjList", r"\lor")
RECORDS: Final = ("$RcdConstructor", "$SetOfRcds")
VERSION: Final = re.compile(r"epoch|version|generation", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Change:
    """A mutant: `what` was done to the text `old` in a definition; `text` is the whole mutated module."""

    module: str
    definition: str
    line: int
    what: str
    old: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.module} {self.definition}, line {self.line}: {self.what} {self.old}"


def changes(module: Path, bounded: Path, roots: set[str], guards: set[str]) -> list[Change]:
    """Return the mutants of `module`, in the order of its text.

    `bounded` is the module that extends it and defines `roots`, the specifications that TLC checks.
    """
    text = module.read_text()
    definitions = read_definitions(bounded)
    guard_keys = {key for key, each in definitions.items() if each.name in guards}
    writer = _Writer(text, guard_keys, _versions(definitions, module.stem))
    found: dict[str, Change] = {re.sub(r"\s+", "", text): Change(module.stem, "", 0, "nothing", "", text)}
    for definition in reachable(definitions, roots, module.stem):
        if definition.key in guard_keys:
            continue
        for node, what, edits in writer.edits_of(definition):
            mutated = edited(text, edits)
            old = " ".join(excerpt(text, node.region).split())
            change = Change(module.stem, definition.name, node.region.line, what, old, mutated)
            found.setdefault(re.sub(r"\s+", "", mutated), change)
    return list(found.values())[1:]


def edited(text: str, edits: Sequence[Edit]) -> str:
    """Return the text with each region blanked, and its replacement at its beginning."""
    lines = text.split("\n")
    for region, replacement in sorted(edits, key=lambda edit: (edit[0].line, edit[0].column), reverse=True):
        for number in range(region.last_line, region.line - 1, -1):
            line = lines[number - 1]
            first = region.column - 1 if number == region.line else len(line) - len(line.lstrip())
            last = region.last_column if number == region.last_line else len(line)
            width = max(last - first, 0)
            filling = replacement.ljust(width) if number == region.line else " " * width
            lines[number - 1] = line[:first] + filling + line[last:]
    return "\n".join(lines)


def excerpt(text: str, region: Region) -> str:
    """Return the text of a region."""
    lines = text.split("\n")[region.line - 1 : region.last_line]
    lines[-1] = lines[-1][: region.last_column]
    lines[0] = lines[0][region.column - 1 :]
    return "\n".join(lines)


def _versions(definitions: dict[str, Definition], module: str) -> dict[str, list[str]]:
    """Return the fields with an epoch, a version or a generation, each with those that are in a record with it."""
    nodes = (node for each in definitions.values() if each.module == module for node in each.body.walk())
    records = [
        {field for pair in node.operands if VERSION.search(field := pair.operands[0].operator)}
        for node in nodes
        if node.operator in RECORDS
    ]
    return {
        name: sorted(set().union(*(each - {name} for each in records if name in each)))
        for name in set().union(*records)
    }


Found = tuple[Node, str, list[Edit]]


class _Writer:
    """Finds the changes of each expression, by its operator."""

    def __init__(self, text: str, guard_keys: set[str], versions: dict[str, list[str]]) -> None:
        self.text, self.guard_keys, self.versions = text, guard_keys, versions
        self.table: dict[str, Callable[[Node], Iterator[Found]]] = {
            **dict.fromkeys(AND, self._conjuncts),
            **dict.fromkeys(OR, self._disjuncts),
            **dict.fromkeys(("=", "/=", "<", r"\leq", ">", r"\geq", r"\in", r"\notin"), self._comparison),
            **dict.fromkeys((r"\union", r"\intersect"), self._either_operand),
            **dict.fromkeys(("\\", "+", "-"), self._first_operand),
            "=>": self._premise,
            "$IfThenElse": self._branches,
            "$BoundedForall": self._one_suffices,
            r"\lnot": self._negation,
            "$SetEnumerate": self._elements,
            "$SubsetOf": self._filter,
            "$RcdSelect": self._other_version,
            "$Except": self._kept_parts,
        }

    def edits_of(self, definition: Definition) -> Iterator[Found]:
        to_visit = [definition.body]
        while to_visit:
            node = to_visit.pop()
            if node.operator in self.table and node.region.line and not (self._never(node) or self._always(node)):
                yield from self.table[node.operator](node)
            to_visit += self._used(node)

    def _used(self, node: Node) -> Iterator[Node]:
        """Yield the operands that are evaluated when all guards are on; the others cannot change anything."""
        if node.operator == "$IfThenElse" and self._is_guard(node.operands[0]):
            yield node.operands[2 if self._never(node.operands[0]) else 1]
        elif not (self._never(node) or self._always(node)):
            yield from node.operands

    def _is_guard(self, node: Node) -> bool:
        return node.refers in self.guard_keys or self._never(node)

    def _never(self, node: Node) -> bool:
        """Return whether an expression is true only when a guard is off."""
        if node.operator in AND:
            return any(map(self._never, node.operands))
        return node.operator == r"\lnot" and node.operands[0].refers in self.guard_keys

    def _always(self, node: Node) -> bool:
        """Return whether an expression is true because a guard is on."""
        if node.operator == "=>":
            return self._never(node.operands[0])
        return node.operator in OR and any(part.refers in self.guard_keys for part in node.operands)

    def _conjuncts(self, node: Node) -> Iterator[Found]:
        for part in node.operands:
            switched = part.operator == "=>" and self._is_guard(part.operands[0])
            if part.level < ACTION and not (switched or self._is_guard(part) or self._always(part)):
                yield part, "drop the conjunct", [(part.region, "TRUE")]

    def _disjuncts(self, node: Node) -> Iterator[Found]:
        for part in node.operands:
            if not self._is_guard(part):
                yield part, "drop the disjunct", [(part.region, "FALSE")]

    def _comparison(self, node: Node) -> Iterator[Found]:
        left, right = node.operands
        if left.operator == "'":
            variable = left.operands[0].operator
            if right.operator != variable:
                yield node, "keep the variable in", [(right.region, variable)]
            return
        written = WRITTEN.get(node.operator, node.operator)
        symbol = self._symbol(node, written)
        if symbol:
            yield node, f"{INSTEAD[written]} instead of {written} in", [(symbol, INSTEAD[written])]

    def _premise(self, node: Node) -> Iterator[Found]:
        if not self._is_guard(node.operands[0]):
            yield node, "drop the premise of", [(node.operands[0].region, "TRUE")]

    def _either_operand(self, node: Node) -> Iterator[Found]:
        yield from self._first_operand(node)
        symbol = self._symbol(node, node.operator)
        if symbol:
            yield node, "only the second of", [(_join(node.region, symbol), "")]

    def _first_operand(self, node: Node) -> Iterator[Found]:
        symbol = self._symbol(node, node.operator)
        if symbol:
            rest = Region(symbol.line, symbol.column, node.region.last_line, node.region.last_column)
            yield node, "only the first of", [(rest, "")]

    def _branches(self, node: Node) -> Iterator[Found]:
        condition = node.operands[0]
        if not self._is_guard(condition):
            yield node, "always THEN in", [(condition.region, "TRUE")]
            yield node, "always ELSE in", [(condition.region, "FALSE")]

    def _one_suffices(self, node: Node) -> Iterator[Found]:
        start = Region(node.region.line, node.region.column, node.region.line, node.region.column + 1)
        if excerpt(self.text, start) == r"\A":
            yield node, "some instead of all in", [(start, r"\E")]

    def _negation(self, node: Node) -> Iterator[Found]:
        start = Region(node.region.line, node.region.column, node.region.line, node.region.column)
        if excerpt(self.text, start) == "~" and not self._is_guard(node.operands[0]):
            yield node, "drop the negation of", [(start, "")]

    def _elements(self, node: Node) -> Iterator[Found]:
        for skipped in node.operands if len(node.operands) > 1 else ():
            kept = ", ".join(excerpt(self.text, each.region) for each in node.operands if each is not skipped)
            yield skipped, "skip in a set the element", [(node.region, f"{{{kept}}}")]

    def _filter(self, node: Node) -> Iterator[Found]:
        yield node, "drop the filter of", [(node.operands[0].region, "TRUE")]

    def _other_version(self, node: Node) -> Iterator[Found]:
        field = node.operands[1]
        for other in self.versions.get(field.operator, ()):
            yield node, f".{other} instead of .{field.operator} in", [(field.region, other)]

    def _kept_parts(self, node: Node) -> Iterator[Found]:
        pairs = [part for part in node.operands if part.operator == "$Pair"]
        for pair in pairs if len(pairs) > 1 else ():
            yield pair, "keep the part", [(pair.operands[1].region, "@")]

    def _symbol(self, node: Node, written: str) -> Region | None:
        """Return where the operator between two operands stands, or None if it is not on one line with either."""
        left, right = node.operands[0].region, node.operands[1].region
        between = Region(left.last_line, left.last_column + 1, right.line, right.column - 1)
        for offset, part in enumerate(excerpt(self.text, between).split("\n")):
            found = re.search(rf"(?<![<>=\\/#]){re.escape(written)}(?![=>\w])", part.split(r"\*")[0])
            if found:
                column = found.start() + (between.column if offset == 0 else 1)
                return Region(between.line + offset, column, between.line + offset, column + len(written) - 1)
        return None


def _join(whole: Region, symbol: Region) -> Region:
    """Return the region from the beginning of an expression to the end of the operator in it."""
    return Region(whole.line, whole.column, symbol.last_line, symbol.last_column)
