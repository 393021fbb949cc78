"""Which code of a Go broker a run has reached: its counters are read while it runs, and steer what is sent.

Go builds a program with a counter in each block of statements (`go build -cover`). The program keeps its counters in
`covcounters.*` of a folder, as of the last reading, and answers readers on `<pid>.sock` in that folder; see
`conformance/targets/programs/kfake/coverage.go`. `go tool covdata` names the lines.
"""

import os
import shutil
import socket
import struct
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from highwater.errors import UsageError

TIMEOUT_S: Final = 2.0
PATH_MAX: Final = 80
"""Bytes: the path of a socket has at most 108."""
FILE_HEADER, SEGMENT_HEADER = 32, 16
SEGMENT: Final = struct.Struct("<QII")
"""Number of functions, and the lengths of two tables, which are padded to four bytes together."""
TOOL_TIMEOUT_S: Final = 120
OWN: Final = "highwater/"
"""The package path of our own main program, which is not the target."""

Unit = tuple[int, int, int]
"""A counter: package, function, number."""


def executed_units(counters: bytes) -> set[Unit]:
    """Return the counters that are not zero in the contents of a counter file (Go's internal/coverage/defs.go)."""
    functions, names, arguments = SEGMENT.unpack_from(counters, FILE_HEADER)
    numbers = _varints(counters, FILE_HEADER + SEGMENT_HEADER + (names + arguments + 3) // 4 * 4)
    found: set[Unit] = set()
    for _ in range(functions):
        count, package, function = next(numbers), next(numbers), next(numbers)
        found.update((package, function, number) for number in range(count) if next(numbers))
    return found


def _varints(data: bytes, position: int) -> Iterator[int]:
    while True:
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield value


class Counters:
    """Reads the counters of a process, and of those that replace it after a crash."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        if len(os.fsencode(self._folder)) > PATH_MAX:
            raise UsageError("the path is too long for a socket in it", where=str(folder), hint="give a shorter --out")
        self._known: set[Unit] = set()
        self._pid, self._socket = 0, None  # type: int, socket.socket | None
        self.readings = 0

    def new_units(self, pid: int) -> int:
        """Return how many counters are not zero for the first time in any process; 0 if the process does not answer.

        `readings` counts the answers.
        """
        if pid != self._pid or self._socket is None:
            self._connect(pid)
        if self._socket is None:
            return 0
        try:
            self._socket.sendall(b"?")
            size = int.from_bytes(self._receive(4), "big")
            units = executed_units(self._receive(size)) - self._known if size else set()
            self.readings += 1
        except OSError:
            self.close()
            return 0
        self._known |= units
        return len(units)

    def _connect(self, pid: int) -> None:
        self.close()
        self._pid, self._socket = pid, socket.socket(socket.AF_UNIX)
        self._socket.settimeout(TIMEOUT_S)
        try:
            self._socket.connect(str(self._folder / f"{pid}.sock"))
        except OSError:
            self.close()

    def _receive(self, size: int) -> bytes:
        assert self._socket is not None
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionResetError("the process ended")
            parts += part
        return bytes(parts)

    def close(self) -> None:
        """Close the connection; the next call of `new_units` with another process opens one."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None


def go_line_report(folder: Path) -> dict[str, Any]:
    """Return covered and all lines with statements, in total and by file, the least covered file first."""
    profile = folder / "profile.txt"
    tool = shutil.which("go")
    if tool is None:
        raise UsageError("go is not on PATH", where=str(folder), hint="install go")
    with suppress(FileNotFoundError):
        profile.unlink()
    command = [tool, "tool", "covdata", "textfmt", f"-i={folder}", f"-o={profile}"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False, env=os.environ)
    if run.returncode or not profile.exists():
        last = (run.stderr.strip().splitlines() or ["it wrote no profile"])[-1]
        raise UsageError(f"go tool covdata: {last}", where=str(folder))
    return line_report(profile.read_text())


def line_report(profile: str) -> dict[str, Any]:
    """Return the report of a profile, whose lines are `FILE:LINE.COLUMN,LINE.COLUMN STATEMENTS COUNT`."""
    lines: dict[str, set[int]] = defaultdict(set)
    covered: dict[str, set[int]] = defaultdict(set)
    for row in profile.splitlines()[1:]:
        place, statements, count = row.rsplit(" ", 2)
        name, _, span = place.rpartition(":")
        if name.startswith(OWN) or not int(statements):
            continue
        first, last = (int(end.partition(".")[0]) for end in span.split(","))
        lines[name].update(range(first, last + 1))
        if int(count):
            covered[name].update(range(first, last + 1))
    names = sorted(lines, key=lambda name: (len(covered[name]) / len(lines[name]), name))
    files = [
        {
            "file": name.rpartition("/")[2], "covered": len(covered[name]), "all": len(lines[name]),
            "missing": sorted(lines[name] - covered[name]),
        }
        for name in names
    ]  # fmt: skip
    return {"covered": sum(map(len, covered.values())), "all": sum(map(len, lines.values())), "files": files}
