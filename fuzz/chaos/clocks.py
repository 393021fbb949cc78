"""A wall clock of its own for each node, which faults move: libfaketime reads from a file how far it is off."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from highwater.faketime import faketime_environment, faketime_library
from highwater.fuzz.chaos.nemesis import Inject, Undo
from highwater.fuzz.schedule import Fault

LOOKS_EVERY_S: Final = 1
"""So late a process may see a jump; to read the file whenever it asks for the time would slow it down."""


class Clocks:
    """Those of `nodes`, in `folder`; each keeps what it is off while its node is down."""

    def __init__(self, folder: Path, nodes: Iterable[str]) -> None:
        self._off_ms = dict.fromkeys(nodes, 0)
        self._folder = folder
        for node in self._off_ms:
            self._set(node)

    def environment(self, node: str) -> dict[str, str]:
        library = faketime_library()
        assert library is not None, "`missing_for_clocks` was not asked"
        own = {"FAKETIME_TIMESTAMP_FILE": str(self._file(node)), "FAKETIME_CACHE_DURATION": str(LOOKS_EVERY_S)}
        return {**faketime_environment(library), **own}

    def faults(self) -> dict[str, Inject]:
        """By the names of `highwater.fuzz.schedule.KINDS`."""
        return {"clock": self._jump}

    def _jump(self, fault: Fault, node: str) -> Undo:
        by_ms = -fault.number("by_ms") if fault.option("back") else fault.number("by_ms")
        self._move(node, by_ms)
        return lambda: self._move(node, -by_ms)

    def _move(self, node: str, by_ms: int) -> None:
        self._off_ms[node] += by_ms
        self._set(node)

    def _set(self, node: str) -> None:
        """Put in place whole: a process may read it at any moment."""
        new = self._folder / f"{node}.clock.new"
        new.write_text(f"{self._off_ms[node] / 1000:+.3f}\n")
        new.rename(self._file(node))

    def _file(self, node: str) -> Path:
        return self._folder / f"{node}.clock"
