"""Which case executes which lines of the broker, from a run of all cases on the correct broker in virtual time.

A case that does not execute the line that a mutant changes cannot notice it. Lines are those of the world of the case:
its start, its restarts and its clients' connections are among them.
"""

import hashlib
from collections.abc import Callable, Container, Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec
import pytest
from coverage import Coverage

from highwater.conformance.runner import CASES
from highwater.power.store import digest_of

REFERENCE: Final = "highwater.reference"


class CaseLines(msgspec.Struct):
    """What one case executes: by module, the number of a set of lines. `source` identifies the module of the case."""

    source: str
    cpu_s: float
    is_passed: bool
    lines: dict[str, int] = {}


class LinesFile(msgspec.Struct):
    """The lines of all cases; most cases share the sets of lines of most modules. `source` identifies the broker."""

    source: str = ""
    cases: dict[str, CaseLines] = {}
    line_sets: list[frozenset[int]] = []

    @classmethod
    def read(cls, path: Path) -> "LinesFile":
        """Return the file, empty if it was written for another broker."""
        found = msgspec.msgpack.decode(path.read_bytes(), type=cls) if path.exists() else cls()
        return found if found.source == source_of_broker() else cls(source_of_broker())

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".new")
        temporary.write_bytes(msgspec.msgpack.encode(self))
        temporary.replace(path)

    def keep(self, cases: Container[str]) -> None:
        """Forget all other cases."""
        self.cases = {case: found for case, found in self.cases.items() if case in cases}

    def lacks(self, case: str, item: pytest.Item) -> bool:
        return case not in self.cases or self.cases[case].source != source_hash(item)

    def add(self, case: str, found: CaseLines, lines: Mapping[str, frozenset[int]]) -> None:
        known = {found: number for number, found in enumerate(self.line_sets)}
        for module, executed in lines.items():
            if executed not in known:
                known[executed] = len(self.line_sets)
                self.line_sets.append(executed)
            found.lines[module] = known[executed]
        self.cases[case] = found

    def may_notice(self, module: str, lines: Iterable[int], *, at_import: bool) -> dict[str, int]:
        """Return the cases that execute one of these lines of a module, each with the number of its set of lines.

        Lines that only an import executes, such as those of constants, concern every case that uses the module.
        """
        changed = frozenset(lines)
        using = {case: found.lines[module] for case, found in self.cases.items() if module in found.lines}
        touched = {number for number in set(using.values()) if changed & self.line_sets[number]}
        direct = {case: number for case, number in using.items() if number in touched}
        return using if not direct and at_import else direct


@cache
def source_of_broker() -> str:
    """Return a digest of the broker and of what all cases share."""
    return digest_of([Path(_root()), CASES / "support", CASES.parents[1] / "fuzz" / "virtual"])


@cache
def source_hash(item: pytest.Item) -> str:
    """Return a digest of the module of a case."""
    return hashlib.sha256(item.path.read_bytes()).hexdigest()[:12]


def _root() -> str:
    found = find_spec(REFERENCE)
    assert found is not None
    assert found.submodule_search_locations is not None
    return found.submodule_search_locations[0]


def traced(cases: Iterable[str], run: Callable[[str], None]) -> dict[str, dict[str, frozenset[int]]]:
    """Run the cases, and return the lines by case and module that each executes."""
    root = _root()
    coverage = Coverage(data_file=None, include=[f"{root}/*"], config_file=False, messages=False)
    coverage.start()
    found: dict[str, dict[str, set[int]]] = {}
    for case in cases:
        found[case] = {}
        coverage.switch_context(case)
        run(case)
    coverage.stop()
    data = coverage.get_data()
    for file in data.measured_files():
        module = ".".join((REFERENCE, *Path(file).relative_to(root).with_suffix("").parts))
        for line, contexts in data.contexts_by_lineno(file).items():
            for context in contexts:
                if context in found:
                    found[context].setdefault(module, set()).add(line)
    return {case: {name: frozenset(lines) for name, lines in modules.items()} for case, modules in found.items()}


def without_repetitions(cases: Mapping[str, tuple[str, int]]) -> list[str]:
    """Return one case of those that run the same function and execute the same lines: the last, the newest version."""
    return list({key: case for case, key in cases.items()}.values())
