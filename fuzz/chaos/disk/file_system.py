"""A FUSE file system that can lose unflushed data: `python -m highwater.fuzz.chaos.disk.file_system BACKING MOUNT`.

It reads one command a line from standard input and answers `ok`: `lose PAGES`, `full 0|1`, `fail 0|1`, `slow MS`. It
unmounts itself at the end of its input, and therefore also when the parent process ends.
"""

import contextlib
import ctypes
import errno
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from highwater.fuzz.chaos.disk.unflushed import UnflushedFiles

MNT_DETACH: Final = 2


def unmount(mount: Path) -> None:
    """Unmount lazily, also while files are open; do nothing if it is not mounted."""
    ctypes.CDLL(None).umount2(os.fsencode(mount), MNT_DETACH)


class DiskState:
    """The faults that commands have set."""

    full = fail = slow_ms = 0


def operations(files: UnflushedFiles, state: DiskState) -> Any:
    """Return the implementation of `mfusepy.Operations`; every path begins with a slash."""
    import mfusepy

    class Operations(mfusepy.Operations):  # type: ignore[misc]
        use_ns = True

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            found = files.real(path).lstat()
            times = {f"st_{name}": getattr(found, f"st_{name}_ns") for name in ("atime", "mtime", "ctime")}
            names = ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid", "st_blocks")
            return {**times, **{name: getattr(found, name) for name in names}}

        def readdir(self, path: str, fh: int) -> list[str]:
            return [".", "..", *os.listdir(files.real(path))]  # noqa: PTH208

        def mkdir(self, path: str, mode: int) -> int:
            files.real(path).mkdir(mode)
            return 0

        def rmdir(self, path: str) -> int:
            files.real(path).rmdir()
            return 0

        def create(self, path: str, mode: int, fi: Any = None) -> int:
            _need_space()
            files.created(path)
            return os.open(files.real(path), os.O_RDWR | os.O_CREAT, mode)

        def open(self, path: str, flags: int) -> int:
            return os.open(files.real(path), flags & ~os.O_APPEND)

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            return os.pread(fh, size, offset)

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            _need_space()
            files.overwriting(path, offset, len(data))
            return os.pwrite(fh, data, offset)

        def truncate(self, path: str, length: int, fh: int | None = None) -> int:
            files.overwriting(path, length, max(0, files.size(path) - length))
            os.truncate(files.real(path), length)
            return 0

        def fsync(self, path: str, datasync: int, fh: int) -> int:
            time.sleep(state.slow_ms / 1000)
            if state.fail:
                raise mfusepy.FuseOSError(errno.EIO)
            files.flush(path)
            return 0

        def flush(self, path: str, fh: int) -> int:
            return 0

        def release(self, path: str, fh: int) -> int:
            os.close(fh)
            return 0

        def rename(self, old: str, new: str) -> int:
            files.real(old).rename(files.real(new))
            files.renamed(old, new)
            return 0

        def unlink(self, path: str) -> int:
            files.real(path).unlink()
            files.deleted(path)
            return 0

        def chmod(self, path: str, mode: int) -> int:
            files.real(path).chmod(mode)
            return 0

        def utimens(self, path: str, times: Any = None) -> int:
            return 0

        def statfs(self, path: str) -> dict[str, int]:
            found = os.statvfs(files.real(path))
            return {name: getattr(found, name) for name in dir(found) if name.startswith("f_")}

    def _need_space() -> None:
        if state.full:
            raise mfusepy.FuseOSError(errno.ENOSPC)

    return Operations()


def serve(files: UnflushedFiles, state: DiskState, mount: Path) -> None:
    """Execute commands from standard input until its end; then unmount."""
    with contextlib.suppress(ValueError):
        for line in sys.stdin:
            name, number = line.split()
            if name == "lose":
                files.lose(int(number))
            else:
                setattr(state, "slow_ms" if name == "slow" else name, int(number))
            print("ok", flush=True)
    unmount(mount)


def main() -> None:
    """Mount the file system and serve it until it is unmounted."""
    import mfusepy

    backing, mount = map(Path, sys.argv[1:])
    files, state = UnflushedFiles(backing), DiskState()
    threading.Thread(target=serve, args=(files, state, mount), daemon=True).start()
    mfusepy.FUSE(operations(files, state), str(mount), foreground=True, nothreads=True, attr_timeout=0)


if __name__ == "__main__":
    main()
