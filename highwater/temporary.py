"""Temporary folders that disappear even if the process that made them is killed.

Python removes a temporary folder when its block ends, which SIGKILL prevents.  So all temporary folders of a process
are in one, which it holds locked while it runs; the first one that a later process makes also removes those
of processes that have ended.
"""

import atexit
import ctypes
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

LOCK: Final = "lock"
MOUNTS: Final = Path("/proc/self/mounts")
MNT_DETACH: Final = 2
MEMORY: Final = "/dev/shm"
MIN_FREE: Final = 2 << 30
TMPDIR: Final = "TMPDIR"

# By process, since a fork has folders of its own, and by place: the folder and its locked file.
_owned: dict[tuple[int, Path], tuple[Path, IO[str]]] = {}


@contextmanager
def temporary_folder(prefix: str = "", place: Path | None = None) -> Iterator[Path]:
    """Yield a new, empty folder that is removed when the block ends.

    It is in the folder `place`, for example because its content is moved to a place of the same file system.
    """
    folder = make_folder(prefix, place)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_folder(prefix: str = "", place: Path | None = None) -> Path:
    """Return a new, empty folder that is removed when this process ends, unless the caller removes it before."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=_folder_of_this_process(place or Path(tempfile.gettempdir()))))


def temporary_in_memory() -> dict[str, str]:
    """Return the environment variable for temporary folders on a file system in memory; empty without room on one.

    It is empty as well if the environment names a folder already.

    A broker for a test of minutes waits a third of its time for a disk, although its data is never read again.
    """
    with suppress(OSError):
        if TMPDIR not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MIN_FREE:
            return {TMPDIR: MEMORY}
    return {}


def _folder_of_this_process(place: Path) -> Path:
    owner = os.getpid(), place
    if owner not in _owned:
        for pid, inherited in [key for key in _owned if key[0] != os.getpid()]:
            _owned.pop((pid, inherited))[1].close()  # the parent still holds it locked
        root = place / f"highwater-{os.getuid()}"
        root.mkdir(mode=0o700, exist_ok=True)
        with (root / LOCK).open("w") as all_folders:
            fcntl.flock(all_folders, fcntl.LOCK_EX)  # another process must not see ours before it is locked
            _remove_abandoned(root)
            folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=root))
            lock = (folder / LOCK).open("w")
            fcntl.flock(lock, fcntl.LOCK_EX)
        _owned[owner] = folder, lock
        atexit.register(_remove_own, owner)
    return _owned[owner][0]


def _remove_own(owner: tuple[int, Path]) -> None:
    if os.getpid() == owner[0] and owner in _owned:
        folder, lock = _owned.pop(owner)
        _remove(folder)
        lock.close()


def _remove_abandoned(root: Path) -> None:
    """Remove the folders whose owner was killed."""
    for folder in root.iterdir():
        # An OSError: it is locked, or has just been removed.
        with suppress(OSError), (folder / LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder, after unmounting what is mounted in it."""
    with suppress(OSError):
        places = [line.split()[1] for line in MOUNTS.read_text().splitlines()]
        for place in places:
            if Path(place).is_relative_to(folder):
                ctypes.CDLL(None).umount2(os.fsencode(place), MNT_DETACH)
    shutil.rmtree(folder, ignore_errors=True)
