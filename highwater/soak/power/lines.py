"""Which case executes which lines of the broker, from a run of all cases on a correct cluster whose nodes are traced.

A case that does not execute the line that a mutant changes cannot notice it. Before each case the runner writes its
name to a file and signals every node; a node confirms that what it executes from then on counts for that case.
"""

import asyncio
import hashlib
import inspect
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Final

import msgspec
import pytest

from highwater.conformance.runner import CASES
from highwater.errors import UsageError
from highwater.processes import Processes

CONTEXT: Final = "context"
CONFIRM_TIMEOUT_S: Final = 5.0
POLL_S: Final = 0.002
REFERENCE: Final = "highwater.reference"


class CaseLines(msgspec.Struct):
    """What one case executes: line numbers by module. `source` identifies the function of the case."""

    source: str
    seconds: float
    lines: dict[str, list[int]]
    is_slow: bool = False
    is_supported: bool = True
    stops_brokers: bool = False

    def of(self, module: str) -> frozenset[int]:
        return frozenset(self.lines.get(module, ()))


class LinesFile(msgspec.Struct):
    """Lines by case on a cluster of one size; `start` has those of the start of the nodes."""

    cases: dict[str, CaseLines] = {}
    start: dict[str, list[int]] = {}

    @classmethod
    def read(cls, path: Path) -> "LinesFile":
        return msgspec.json.decode(path.read_bytes(), type=cls) if path.exists() else cls()

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(self))

    def only(self, cases: Container[str]) -> "LinesFile":
        """Return what is known of these cases."""
        return LinesFile({case: found for case, found in self.cases.items() if case in cases}, self.start)

    def lacks(self, case: str, item: pytest.Item) -> bool:
        return case not in self.cases or self.cases[case].source != source_hash(item)


@cache
def _framework() -> bytes:
    """Return the sources that all cases share."""
    paths = sorted([*(CASES / "support").glob("*.py"), *CASES.parent.glob("*.py")])
    return b"".join(path.read_bytes() for path in paths)


def source_hash(item: pytest.Item) -> str:
    """Return a digest of the function of a case and of what all cases share."""
    assert isinstance(item, pytest.Function)
    return hashlib.sha256(inspect.getsource(item.function).encode() + _framework()).hexdigest()[:12]


class Tracer:
    """Traces the nodes of a cluster; their files are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._set_context("")

    def _set_context(self, name: str) -> None:
        temporary = self._folder / f".{CONTEXT}"
        temporary.write_text(name)
        temporary.replace(self._folder / CONTEXT)

    def prepare(self, name: str) -> Callable[[], None]:
        """Start to trace this process, the node `name`; return the function that writes what it executed."""
        from coverage import Coverage

        root = Path(find_spec(REFERENCE).submodule_search_locations[0])  # type: ignore[union-attr, index]
        coverage = Coverage(data_file=None, include=[f"{root}/*"], config_file=False, messages=False)
        coverage.start()
        confirmation = self._folder / f"{name}.confirmed"

        def switch() -> None:
            context = (self._folder / CONTEXT).read_text()
            coverage.switch_context(context)
            confirmation.write_text(context)

        def request_switch(number: int, frame: FrameType | None) -> None:
            # In the handler itself the tracer may hold a lock that a switch needs.
            asyncio.get_running_loop().call_soon_threadsafe(switch)

        signal.signal(signal.SIGUSR1, request_switch)
        switch()

        def finish() -> None:
            coverage.stop()
            found: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
            data = coverage.get_data()
            for file in data.measured_files():
                module = ".".join((REFERENCE, *Path(file).relative_to(root).with_suffix("").parts))
                for line, contexts in data.contexts_by_lineno(file).items():
                    for context in contexts:
                        found[context][module].append(line)
            (self._folder / f"{name}-{os.getpid()}.json").write_bytes(msgspec.json.encode(found))

        return finish

    def begin(self, case: str, nodes: Processes) -> None:
        """Count what the nodes execute from now on for this case."""
        self._set_context(case)
        running = [name for name in nodes.started() if nodes.is_running(name)]
        for name in running:
            nodes.signal(name, signal.SIGUSR1)
        deadline = time.monotonic() + CONFIRM_TIMEOUT_S
        for name in running:
            confirmation = self._folder / f"{name}.confirmed"
            while not confirmation.exists() or confirmation.read_text() != case:
                if time.monotonic() > deadline:  # such as a node that is paused
                    break
                time.sleep(POLL_S)

    def collect(self, pids: Mapping[str, int]) -> dict[str, dict[str, list[int]]]:
        """Return the lines by case and module; the nodes must have ended.

        Raises UsageError unless each of `pids`, the nodes that ran to the end by name, has written its lines: without
        them a case would seem not to execute what it executes, and a mutant there would survive.
        """
        lost = sorted(name for name, pid in pids.items() if not (self._folder / f"{name}-{pid}.json").exists())
        if lost:
            raise UsageError(f"the lines that these nodes executed are lost: {', '.join(lost)}", hint="run it again")
        found: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        for path in self._folder.glob("*-*.json"):
            by_case = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, list[int]]])
            for case, modules in by_case.items():
                for module, lines in modules.items():
                    found[case][module].update(lines)
        return {case: {module: sorted(lines) for module, lines in modules.items()} for case, modules in found.items()}


def may_notice(file: LinesFile, module: str, lines: Iterable[int]) -> set[str]:
    """Return the cases that execute one of these lines of a module.

    Lines that only run when a node starts, such as those of constants, concern every case that uses the module.
    """
    changed = set(lines)
    direct = {case for case, found in file.cases.items() if changed & found.of(module)}
    if direct or not changed & set(file.start.get(module, ())):
        return direct
    return {case for case, found in file.cases.items() if found.of(module)}


def without_repetitions(cases: Mapping[str, tuple[str, frozenset[int]]]) -> list[str]:
    """Return one case of those that run the same function and execute the same lines: the last, the newest version."""
    return list({key: case for case, key in cases.items()}.values())
