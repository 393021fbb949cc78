"""The syntax tree of a TLA+ module, as SANY, the parser of the TLA+ tools, exports it in XML: with all places."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from highwater.errors import UsageError
from highwater.spec.models import CONTRACTS
from highwater.spec.tlc.run import Options, run_tlc
from highwater.temporary import temporary_folder
from highwater.toolchain import java, tlc_jar

ACTION: Final = 2
"""The level of an expression with primed variables; smaller levels are constants and states."""


@dataclass(frozen=True, slots=True)
class Region:
    """Part of a text. Lines and columns count from 1; the last column belongs to it."""

    line: int
    column: int
    last_line: int
    last_column: int


@dataclass(frozen=True, slots=True)
class Node:
    """An expression.

    `operator` is the name of what is applied (`$ConjList` and the like for what has no name), or of the variable,
    constant or parameter, or the text of a string; `""` for everything else. `refers` is the key of the definition that
    it uses, if any.
    """

    operator: str
    level: int
    region: Region
    operands: tuple["Node", ...] = ()
    refers: str = ""
    variable: bool = False

    def walk(self) -> Iterator["Node"]:
        """Yield this node and all below it."""
        yield self
        for operand in self.operands:
            yield from operand.walk()


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition, also one inside LET; `key` is unique, `name` need not be."""

    key: str
    name: str
    module: str
    body: Node


def read_definitions(module: Path) -> dict[str, Definition]:
    """Return the definitions of a module and of those that it extends, by key; UsageError if it does not parse."""
    done = subprocess.run(
        [
            *(str(java().executable), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", str(tlc_jar().path)),
            *("tla2sany.xml.XMLExporter", "-o", "-I", str(CONTRACTS), "-I", str(module.parent), module.name),
        ],
        cwd=module.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    start = done.stdout.find("<?xml")
    if done.returncode or start < 0:
        _parse_with_tlc(module)
        raise UsageError("the parser cannot export it", where=str(module), hint="see highwater doctor")
    return _Reader(ElementTree.fromstring(done.stdout[start:])).definitions()


def reachable(definitions: dict[str, Definition], roots: set[str], module: str) -> list[Definition]:
    """Return the definitions of one module that the roots (names) use, directly or indirectly, in their order."""
    to_visit = [key for key, each in definitions.items() if each.name in roots]
    seen = set(to_visit)
    while to_visit:
        for node in definitions[to_visit.pop()].body.walk():
            if node.refers in definitions and node.refers not in seen:
                seen.add(node.refers)
                to_visit.append(node.refers)
    found = [definitions[key] for key in seen if definitions[key].module == module]
    return sorted(found, key=lambda each: (each.body.region.line, each.body.region.column))


def _parse_with_tlc(module: Path) -> None:
    """Raise UsageError with the place of the error, which the export does not tell."""
    with temporary_folder("parse-") as folder:
        config = folder / "empty.cfg"
        config.touch()
        run_tlc(module, config, Options(small=True, library=(CONTRACTS, module.parent)))


class _Reader:
    """Reads the XML of SANY, in which nodes refer by number to operators, variables and definitions."""

    def __init__(self, root: ElementTree.Element) -> None:
        entries = root.find("context")
        assert entries is not None, "SANY exports a context"
        self.entries = {entry.findtext("UID", ""): entry[1] for entry in entries}

    def definitions(self) -> dict[str, Definition]:
        found = {}
        for key, entry in self.entries.items():
            body = entry.find("body")
            if entry.tag == "UserDefinedOpKind" and body is not None and len(body):
                module = entry.findtext("location/filename", "")
                found[key] = Definition(key, entry.findtext("uniquename", ""), module, self._node(body[0]))
        return found

    def _node(self, element: ElementTree.Element) -> Node:
        children = tuple(self._node(child) for child in _parts(element))
        level, region = int(element.findtext("level", "0")), _region(element)
        reference = element.find("operator/*")
        if element.tag == "UserDefinedOpKindRef":
            return Node("", 0, Region(0, 0, 0, 0), refers=element.findtext("UID", ""))
        if reference is None:
            return Node(element.findtext("StringValue", ""), level, region, children)
        key = reference.findtext("UID", "")
        target = self.entries[key]
        defined = key if target.tag == "UserDefinedOpKind" else ""
        variable = target.tag == "OpDeclNode" and target.findtext("kind") == "3"
        return Node(target.findtext("uniquename", ""), level, region, children, defined, variable)


def _parts(element: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """Yield the expressions directly inside one: operands first, then the sets that it quantifies over."""
    yield from (part for part in element.find("operands") or () if part.find("location") is not None)
    for bound in element.iterfind("boundSymbols/bound"):
        yield from (part for part in bound if part.find("location") is not None)
    if element.tag == "LetInNode":
        yield from element.find("body") or ()
        yield from element.find("opDefs") or ()
    if element.tag == "SubstInNode":
        yield from element.find("body") or ()


def _region(element: ElementTree.Element) -> Region:
    numbers = (
        int(element.findtext(f"location/{path}", "0"))
        for path in ("line/begin", "column/begin", "line/end", "column/end")
    )
    return Region(*numbers)
