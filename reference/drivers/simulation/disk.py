"""A disk in memory with a page cache: a crash may take back what was not flushed.

Faults lie over pristine data: what rots is spoiled on its way to the reader, so that a fault can end.
"""

import errno
import os
from dataclasses import dataclass, field
from typing import Literal

from reference.drivers.simulation.chance import Stream

FLUSH_MS = 5
PAGE = 512  # bytes that reach the platter together

Lose = Literal["nothing", "unflushed", "torn"]


@dataclass(slots=True)
class File:
    """`data` is what a running node reads; `durable` is what stays after a crash that loses the page cache."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes | None = None  # None: never flushed
    flushed_size: int = 0  # data[:flushed_size] is unchanged since it was flushed
    rewrites: int = 0
    flushing: "list[Flushing]" = field(default_factory=list)


@dataclass(slots=True)
class Flushing:
    """A flush under way: `size` bytes as they were when it began, or `content` where a file is replaced whole."""

    file: File
    size: int
    rewrites: int
    content: bytes | None


class SimulatedDisk:
    """The file-system port. Only appends are cheap to lose: a rewritten file falls back to its last flush."""

    def __init__(self) -> None:
        self._files: dict[str, File] = {}
        self._rotten: dict[str, dict[int, int]] = {}  # of each file: position -> bits that are read wrong
        self.full = False  # from now on nothing more is taken
        self.flush_ms = FLUSH_MS
        self.flush_fails = False

    def exists(self, path: str) -> bool:
        return path in self._files

    def _file(self, path: str) -> File:
        found = self._files.get(path)
        if found is None:
            found = self._files[path] = File()
        return found

    def size(self, path: str) -> int:
        return len(self._file(path).data)

    def read(self, path: str, position: int, size: int) -> bytes:
        read = bytes(self._file(path).data[position : position + size])
        return self._spoiled(path, position, read) if path in self._rotten else read

    def _spoiled(self, path: str, position: int, read: bytes) -> bytes:
        data = bytearray(read)
        for at, bits in self._rotten[path].items():
            if position <= at < position + len(data):
                data[at - position] ^= bits
        return bytes(data)

    def append(self, path: str, data: bytes) -> None:
        if self.full:
            self._need_space(path, data)
        self._file(path).data += data

    def _need_space(self, path: str, data: bytes) -> None:
        if self.full and data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def write(self, path: str, data: bytes) -> None:
        self._need_space(path, data)
        file = self._file(path)
        self._keep_durable(file)
        file.data = bytearray(data)
        file.flushed_size = 0
        file.rewrites += 1

    def truncate(self, path: str, size: int) -> None:
        file = self._file(path)
        del file.data[size:]
        file.flushed_size = min(file.flushed_size, size)
        for flushing in file.flushing:
            flushing.size = min(flushing.size, size)  # what comes in its place was not there when the flush began
        if path in self._rotten:
            self._rotten[path] = {at: bits for at, bits in self._rotten[path].items() if at < size}
        file.durable = None if file.durable is None else file.durable[:size]

    def rename(self, old: str, new: str) -> None:
        self._files[new] = self._files.pop(old)

    def delete(self, path: str) -> None:
        del self._files[path]

    def names(self, folder: str) -> list[str]:
        prefix = f"{folder}/" if folder else ""
        return sorted({path[len(prefix) :].split("/")[0] for path in self._files if path.startswith(prefix)})

    def delete_folder(self, folder: str) -> None:
        for path in [path for path in self._files if path.startswith(f"{folder}/")]:
            del self._files[path]

    # -- what only the simulator does ----------------------------------------------------------------

    def _keep_durable(self, file: File) -> None:
        """Before flushed bytes are replaced, remember them: they are still on the platter."""
        if file.flushed_size:
            file.durable = bytes(file.data[: file.flushed_size])

    def begin_flush(self, path: str) -> Flushing:
        file = self._files.get(path) or File()
        content = bytes(file.data) if file.rewrites else None
        flushing = Flushing(file, len(file.data), file.rewrites, content)
        file.flushing.append(flushing)
        return flushing

    def end_flush(self, flushing: Flushing) -> None:
        file = flushing.file
        file.flushing = [other for other in file.flushing if other is not flushing]
        if file.rewrites != flushing.rewrites:
            file.durable = flushing.content
        else:
            file.flushed_size = max(file.flushed_size, flushing.size)
            file.durable = None if file.flushed_size else b""  # an empty file stays, too

    def flush(self, path: str) -> None:
        """At once."""
        if path in self._files:
            self.end_flush(self.begin_flush(path))

    def flush_all(self) -> None:
        for path in self._files:
            self.flush(path)

    def lose_unflushed(self) -> None:
        """The power went: every file is as it was when it was last flushed, or gone if it never was."""
        for path, file in list(self._files.items()):
            if file.flushed_size:
                del file.data[file.flushed_size :]
            elif file.durable is not None:
                file.data, file.flushed_size = bytearray(file.durable), len(file.durable)
            else:
                del self._files[path]

    def lose(self, what: Lose, chance: Stream) -> None:
        """What a crash takes with it: nothing, all that was not flushed, or some pages of it and not others."""
        if what == "torn":
            self._tear(chance)
        elif what == "unflushed":
            self.lose_unflushed()

    def _tear(self, chance: Stream) -> None:
        """Of appended bytes some pages were written out; the others are zeros, up to the last that was."""
        written: dict[str, bytearray] = {}
        for number, (path, file) in enumerate(sorted(self._files.items())):
            if file.rewrites:
                continue
            start = file.flushed_size
            kept = bytearray(file.data[:start])
            for at in range(start, len(file.data), PAGE):
                page = file.data[at : at + PAGE]
                if chance.draw(number << 32 | at, 2):
                    kept += bytes(at - len(kept)) + page
            written[path] = kept
        self.lose_unflushed()
        for path, data in written.items():
            if data:
                self._files[path] = File(data, flushed_size=len(data))

    def rot(self, path: str, position: int, bits: int) -> None:
        """From now on these bits of a byte are read wrong."""
        self._rotten.setdefault(path, {})[position] = bits

    def heal(self) -> None:
        """All faults end; what was written is there."""
        self._rotten.clear()
        self.full, self.flush_fails, self.flush_ms = False, False, FLUSH_MS
