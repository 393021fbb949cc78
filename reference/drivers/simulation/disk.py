"""A disk in memory with a page cache: a crash may take back what was not flushed."""

import errno
import os
from dataclasses import dataclass, field


@dataclass(slots=True)
class File:
    """`data` is what a running node reads; `durable` is what stays after a crash that loses the page cache."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes | None = None  # None: never flushed
    flushed_size: int = 0  # data[:flushed_size] is unchanged since it was flushed


class SimulatedDisk:
    """The file-system port. Only appends are cheap to lose: a rewritten file falls back to its last flush."""

    def __init__(self) -> None:
        self._files: dict[str, File] = {}
        self.full = False  # from now on nothing more is taken

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
        return bytes(self._file(path).data[position : position + size])

    def append(self, path: str, data: bytes) -> None:
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

    def truncate(self, path: str, size: int) -> None:
        file = self._file(path)
        del file.data[size:]
        file.flushed_size = min(file.flushed_size, size)
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

    def flush(self, path: str) -> None:
        if path in self._files:
            file = self._files[path]
            file.flushed_size, file.durable = len(file.data), None

    def lose_unflushed(self) -> None:
        """The power went: every file is as it was when it was last flushed, or gone if it never was."""
        for path, file in list(self._files.items()):
            if file.flushed_size:
                del file.data[file.flushed_size :]
            elif file.durable is not None:
                file.data, file.flushed_size = bytearray(file.durable), len(file.durable)
            else:
                del self._files[path]
