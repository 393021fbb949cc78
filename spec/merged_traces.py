"""The traces of a cluster's processes as one: `NODE.LIFE.ndjson` in a folder, merged by the host's monotonic clock.

A line's time was taken before anything of its step was sent, and one clock is every process's: whatever comes of a
step is later.  Steps that know nothing of each other may stand either way.  Each life counts its lines from 0.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from heapq import merge
from pathlib import Path
from typing import Final

from spec.formats.trace import Line, Step, read_lines
from spec.formats.verdict import UsageError

FILE: Final = re.compile(r"(\w+)\.(\d+)\.ndjson")


def read_lives(folder: Path) -> list[list[Line]]:
    """The lines of every life. UsageError for a file that is not one's, and for a life that is missing."""
    lives: dict[str, dict[int, list[Line]]] = defaultdict(dict)
    for path in sorted(folder.glob("*.ndjson")):
        named = FILE.fullmatch(path.name)
        if named is None:
            raise UsageError("not a trace of a process", where=str(path), mend="its name must be NODE.LIFE.ndjson")
        lives[named[1]][int(named[2])] = read_lines(path, of_process=True)
    for node, numbered in lives.items():
        gone = set(range(max(numbered))) - set(numbered)
        if gone:
            raise UsageError("a life of this node is missing", where=str(folder / f"{node}.{min(gone)}.ndjson"))
    return [lines for numbered in lives.values() for lines in numbered.values()]


def merge_lives(lives: Iterable[list[Line]]) -> list[Line]:
    """By time; where a broker begins another life, with the crash that ended the one before."""
    crashes = [[_crash(lines[0])] for lines in lives if lines and not lines[0].file.endswith(".0.ndjson")]
    return list(merge(*crashes, *lives, key=lambda line: line.step.time_ns))


def _crash(first: Line) -> Line:
    """Nobody tells of it; the others need not have noticed before the next life says something."""
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
