"""Merge the traces of a cluster's processes, `NODE.LIFE.ndjson` in one folder, by the host's monotonic clock.

A life is one process of a node, from its start to its end, numbered from 0.  The time of a line is taken before any
message of its step is sent, and all processes share one clock, so every consequence of a step has a later time.
Concurrent steps may appear in either order.  The lines of each file are numbered from 0.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from heapq import merge
from pathlib import Path
from typing import Final

from spec.formats.trace import Line, Step, read_lines
from spec.formats.verdict import UsageError

FILE_NAME: Final = re.compile(r"(\w+)\.(\d+)\.ndjson")


def read_process_traces(folder: Path) -> list[list[Line]]:
    """Return the lines of every life; raise UsageError for a file with another name, and for a missing life."""
    lives: dict[str, dict[int, list[Line]]] = defaultdict(dict)
    for path in sorted(folder.glob("*.ndjson")):
        match = FILE_NAME.fullmatch(path.name)
        if match is None:
            raise UsageError("not a trace of a process", where=str(path), mend="its name must be NODE.LIFE.ndjson")
        lives[match[1]][int(match[2])] = read_lines(path, of_process=True)
    for node, numbered in lives.items():
        missing = set(range(max(numbered))) - set(numbered)
        if missing:
            raise UsageError("a life of this node is missing", where=str(folder / f"{node}.{min(missing)}.ndjson"))
    return [lines for numbered in lives.values() for lines in numbered.values()]


def merge_process_traces(lives: Iterable[list[Line]]) -> list[Line]:
    """Merge the lines by time, and add the crash that ended each earlier life of a node."""
    crashes = [[_crash(lines[0])] for lines in lives if lines and not lines[0].file.endswith(".0.ndjson")]
    return list(merge(*crashes, *lives, key=lambda line: line.step.time_ns))


def _crash(first: Line) -> Line:
    """Return a Crash step just before the first line of the next life; a killed process cannot record it itself."""
    node = first.file.partition(".")[0]
    step = Step(
        seq=0,
        time_ns=first.step.time_ns,
        node=int(node) if node.isdigit() else node,
        entity="",
        action="Crash",
        choices={"killed": True},
    )
    return Line(first.file, first.number, step)
