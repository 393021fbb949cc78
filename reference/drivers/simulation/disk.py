"""A disk in memory with a page cache: a crash may lose data that was not flushed.

The stored data is never corrupted: bit rot changes the bytes when they are read, so that a fault can end.
"""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from highwater.reference.drivers.simulation.chance import Stream

FLUSH_MS = 5
PAGE = 512  # bytes that become durable together

Lose = Literal["nothing", "unflushed", "torn"]


@dataclass(slots=True)
class File:
    """`data` is the content in the page cache; `durable` the content after a crash that loses the page cache."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes | None = None  # None: never flushed
    flushed_size: int = 0  # data[:flushed_size] is unchanged since it was flushed
    rewrites: int = 0
    flushing: "list[Flushing]" = field(default_factory=list)
    acknowledged: bool = False  # a flush of it was acknowledged, and not stored


@dataclass(slots=True)
class Flushing:
    """A flush in progress: `size` bytes as of its begin, or `content` for a file that is replaced as a whole."""

    file: File
    size: int
    rewrites: int
    content: bytes | None


class SimulatedDisk:
    """The file-system interface on a simulated disk. A crash resets a rewritten file to its last flushed content."""

    def __init__(self) -> None:
        self._files: dict[str, File] = {}
        self._flipped: dict[str, dict[int, int]] = {}  # per file: position -> bits that are flipped on read
        self.full = False  # True: every write fails with ENOSPC
        self.flush_ms = FLUSH_MS
        self.flush_fails = False
        self.volatile: set[str] = set()  # "flushes", "names": what the disk acknowledges without storing it
        self._undo: list[Callable[[], None]] = []  # how a power failure undoes the changes of names and sizes
        self.returned: set[str] = set()
        """Files whose deletion or renaming a power failure has undone."""

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
        read = bytes(self._file(path).data[position : position + size])  # faster than a view for a few hundred bytes
        return self._corrupt(path, position, read) if path in self._flipped else read

    def _corrupt(self, path: str, position: int, read: bytes) -> bytes:
        data = bytearray(read)
        for at, bits in self._flipped[path].items():
            if position <= at < position + len(data):
                data[at - position] ^= bits
        return bytes(data)

    def append(self, path: str, data: bytes) -> None:
        if self.full:
            self._check_space(path, data)
        self._file(path).data += data

    def _check_space(self, path: str, data: bytes) -> None:
        if self.full and data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def write(self, path: str, data: bytes) -> None:
        self._check_space(path, data)
        file = self._file(path)
        self._flipped.pop(path, None)
        self._save_durable(file)
        file.data = bytearray(data)
        file.flushed_size = 0
        file.rewrites += 1

    def truncate(self, path: str, size: int) -> None:
        file = self._file(path)
        if "names" in self.volatile:
            self._undo.append(partial(_grow, file, bytes(file.data), file.flushed_size, size))
        del file.data[size:]
        file.flushed_size = min(file.flushed_size, size)
        for flushing in file.flushing:
            flushing.size = min(flushing.size, size)  # bytes written after the truncation are not part of the flush
        if path in self._flipped:
            self._keep_flipped_below(path, size)
        file.durable = None if file.durable is None else file.durable[:size]

    def _keep_flipped_below(self, path: str, size: int) -> None:
        self._flipped[path] = {at: bits for at, bits in self._flipped[path].items() if at < size}

    def rename(self, old: str, new: str) -> None:
        self._remember(old, new)
        self._files[new] = self._files.pop(old)
        self._flipped.pop(new, None)
        if old in self._flipped:
            self._flipped[new] = self._flipped.pop(old)

    def delete(self, path: str) -> None:
        self._remember(path)
        del self._files[path]
        self._flipped.pop(path, None)

    def _remember(self, *paths: str) -> None:
        """Note what these names refer to, if a power failure may undo the change that follows."""
        if "names" in self.volatile:
            self._undo.append(partial(self._restore, {path: self._files.get(path) for path in paths}))

    def _restore(self, files: dict[str, File | None]) -> None:
        for path, file in files.items():
            self._files.pop(path, None)
            if file is not None:
                self._files[path] = file
                self.returned.add(path)

    def names(self, folder: str) -> list[str]:
        prefix = f"{folder}/" if folder else ""
        return sorted({path[len(prefix) :].split("/")[0] for path in self._files if path.startswith(prefix)})

    def delete_folder(self, folder: str) -> None:
        for path in [path for path in self._files if path.startswith(f"{folder}/")]:
            self.delete(path)

    # -- for the simulator ---------------------------------------------------------------------------

    def _save_durable(self, file: File) -> None:
        """Keep flushed bytes before they are replaced: they remain durable until the next flush."""
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
        if "flushes" in self.volatile:
            file.acknowledged = flushing.size > file.flushed_size
            return
        file.acknowledged = False
        if file.rewrites != flushing.rewrites:
            file.durable = flushing.content
        else:
            file.flushed_size = max(file.flushed_size, flushing.size)
            file.durable = None if file.flushed_size else b""  # an empty file is durable, too

    def flush(self, path: str) -> None:
        """Flush a file immediately."""
        if path in self._files:
            self.end_flush(self.begin_flush(path))

    def flush_all(self) -> None:
        for path in self._files:
            self.flush(path)

    @property
    def unstored(self) -> set[str]:
        """Return what a power failure would undo although it was acknowledged: `flushes`, `names`, both or none."""
        flushes = {"flushes"} if any(file.acknowledged for file in self._files.values()) else set()
        return flushes | ({"names"} if self._undo else set())

    def lose_unflushed(self) -> None:
        """Simulate a power failure: reset every file to its last flushed content; delete files never flushed."""
        for path, file in list(self._files.items()):
            file.acknowledged = False
            if file.flushed_size:
                del file.data[file.flushed_size :]
            elif file.durable is not None:
                file.data, file.flushed_size = bytearray(file.durable), len(file.durable)
            else:
                del self._files[path]

    def lose(self, what: Lose, chance: Stream) -> None:
        """Apply the data loss of a crash: nothing, all unflushed data, or a random choice of its pages.

        With a loss, changes of names and sizes are undone that the disk has acknowledged without storing them.
        """
        if what != "nothing":
            while self._undo:
                self._undo.pop()()
        if what == "torn":
            self._tear(chance)
        elif what == "unflushed":
            self.lose_unflushed()
        for path in list(self._flipped):  # lost bytes are not flipped when they are written again
            self._keep_flipped_below(path, len(self._files[path].data) if path in self._files else 0)

    def _tear(self, chance: Stream) -> None:
        """Lose a random choice of the unflushed appended pages: lost ones before a written one become zeros."""
        written: dict[str, bytearray] = {}
        for number, (path, file) in enumerate(sorted(self._files.items())):
            if file.rewrites:
                continue
            start = file.flushed_size
            content = bytearray(file.data[:start])
            for at in range(start, len(file.data), PAGE):
                page = file.data[at : at + PAGE]
                if chance.draw(number << 32 | at, 2):
                    content += bytes(at - len(content)) + page
            written[path] = content
        self.lose_unflushed()
        for path, data in written.items():
            if data:
                self._files[path] = File(data, flushed_size=len(data))

    def rot(self, path: str, position: int, bits: int) -> None:
        """Flip these bits of a byte in every read from now on, until the byte is written again."""
        self._flipped.setdefault(path, {})[position] = bits

    def store_again(self, about: str) -> None:
        """Store what the disk acknowledges from now on, and the changes of names and sizes before."""
        self.volatile.discard(about)
        self._undo.clear()

    def heal(self) -> None:
        """End all faults; the written data is intact."""
        self._flipped.clear()
        self.volatile.clear()
        self._undo.clear()
        self.full, self.flush_fails, self.flush_ms = False, False, FLUSH_MS


def _grow(file: File, data: bytes, flushed_size: int, size: int) -> None:
    """Undo a truncation to `size`, unless the bytes after it were overwritten and flushed since."""
    if file.flushed_size <= size:
        file.data, file.flushed_size = bytearray(data), flushed_size
