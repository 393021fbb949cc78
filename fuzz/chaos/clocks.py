"""Gives each node a separate wall clock: libfaketime reads the offset of each node from a file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from highwater.faketime import faketime_environment, faketime_library
from highwater.fuzz.chaos.nemesis import Inject, Undo
from highwater.fuzz.schedule import Fault

OFFSET_CACHE_S: Final = 1
"""How long libfaketime caches the offset: reading the file for every time call would slow the process down."""


class Clocks:
    """The wall clocks of `nodes`, one file each in `folder`. A clock keeps its offset while its node is down."""

    def __init__(self, folder: Path, nodes: Iterable[str]) -> None:
        self._offset_ms = dict.fromkeys(nodes, 0)
        self._folder = folder
        for node in self._offset_ms:
            self._set(node)

    def environment(self, node: str) -> dict[str, str]:
        """Return the environment variables that make a process use the clock of `node`."""
        library = faketime_library()
        assert library is not None, "call `missing_for_clocks` first"
        own = {"FAKETIME_TIMESTAMP_FILE": str(self._file(node)), "FAKETIME_CACHE_DURATION": str(OFFSET_CACHE_S)}
        return {**faketime_environment(library), **own}

    def faults(self) -> dict[str, Inject]:
        """Return the faults, by their names in `highwater.fuzz.schedule.KINDS`."""
        return {"clock": self._jump}

    def _jump(self, fault: Fault, node: str) -> Undo:
        by_ms = -fault.number("by_ms") if fault.option("back") else fault.number("by_ms")
        self.move(node, by_ms)
        return lambda: self.move(node, -by_ms)

    def move(self, node: str, by_ms: int) -> None:
        """Move the clock of a node, within a second for a process that runs."""
        self._offset_ms[node] += by_ms
        self._set(node)

    def _set(self, node: str) -> None:
        """Write the offset file atomically, by rename: a process may read it at any moment."""
        new = self._folder / f"{node}.clock.new"
        new.write_text(f"{self._offset_ms[node] / 1000:+.3f}\n")
        new.rename(self._file(node))

    def _file(self, node: str) -> Path:
        return self._folder / f"{node}.clock"
