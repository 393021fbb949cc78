"""The file-system interface on a real disk: one folder, with a cache of open files."""

import errno
import fcntl
import os
import shutil
from pathlib import Path
from typing import IO

from highwater.errors import UsageError

OPEN_FILES = 512
LOCK = ".lock"
META = "meta.properties"


def read_identity(meta: Path) -> dict[str, str]:
    """Return the keys and values of a `meta.properties`, such as cluster.id and broker.id."""
    return dict(line.split("=", 1) for line in meta.read_text().splitlines() if "=" in line)


class Disk:
    """Paths are relative to `root`. Written data is in the page cache until `flush`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._open: dict[str, int] = {}
        self._lock: IO[str] | None = None

    def claim(self, identity: dict[str, str]) -> None:
        """Lock the folder and check that it belongs to this node; raise UsageError otherwise."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self._lock = (self.root / LOCK).open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._check_identity(identity)
        except BlockingIOError as error:
            self.close()
            raise UsageError(
                "another process uses this data folder", where=str(self.root), hint="stop it, or choose another folder"
            ) from error
        except OSError as error:
            self.close()
            raise UsageError(f"cannot use this data folder ({error.strerror})", where=str(self.root)) from error
        except UsageError:
            self.close()
            raise

    def _check_identity(self, identity: dict[str, str]) -> None:
        meta = self.root / META
        if not meta.exists():
            meta.write_text("".join(f"{key}={value}\n" for key, value in identity.items()))
            return
        found = read_identity(meta)
        for key, value in identity.items():
            if found.get(key) != value:
                raise UsageError(
                    f"this data folder belongs to {key} {found.get(key)}, not {value}",
                    where=str(self.root),
                    hint="choose another folder, or delete this one if its data is not needed",
                )

    def _descriptor(self, path: str) -> int:
        descriptor = self._open.pop(path, None)
        if descriptor is None:
            full = self.root / path
            try:
                descriptor = os.open(full, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            except FileNotFoundError:
                full.parent.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(full, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            if len(self._open) >= OPEN_FILES:
                oldest = next(iter(self._open))
                os.close(self._open.pop(oldest))
        self._open[path] = descriptor  # most recently used last
        return descriptor

    def _forget(self, path: str) -> None:
        descriptor = self._open.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def exists(self, path: str) -> bool:
        return (self.root / path).exists()

    def size(self, path: str) -> int:
        return os.fstat(self._descriptor(path)).st_size

    def read(self, path: str, position: int, size: int) -> bytes:
        return os.pread(self._descriptor(path), size, position)

    def append(self, path: str, data: bytes) -> None:
        descriptor = self._descriptor(path)
        written = os.write(descriptor, data)
        if written != len(data):  # the disk is full: remove the part that was written
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def write(self, path: str, data: bytes) -> None:
        self.truncate(path, 0)
        if data:
            self.append(path, data)

    def truncate(self, path: str, size: int) -> None:
        os.ftruncate(self._descriptor(path), size)

    def rename(self, old: str, new: str) -> None:
        self._forget(new)
        descriptor = self._open.pop(old, None)
        (self.root / old).replace(self.root / new)
        if descriptor is not None:  # a clean shutdown must still flush it
            self._open[new] = descriptor
        self._sync_folder(new)

    def _sync_folder(self, path: str) -> None:
        folder = os.open((self.root / path).parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def delete(self, path: str) -> None:
        self._forget(path)
        (self.root / path).unlink()

    def names(self, folder: str) -> list[str]:
        place = self.root / folder
        return sorted(entry.name for entry in place.iterdir()) if place.is_dir() else []

    def delete_folder(self, folder: str) -> None:
        for path in [path for path in self._open if path.startswith(folder + "/")]:
            self._forget(path)
        shutil.rmtree(self.root / folder, ignore_errors=True)

    def duplicates(self, paths: tuple[str, ...]) -> list[int]:
        """Return new descriptors of these files, for the caller to fsync and close; deleted files are skipped."""
        return [os.dup(self._descriptor(path)) for path in paths if path in self._open or self.exists(path)]

    def flush_all(self) -> None:
        for descriptor in self._open.values():
            os.fsync(descriptor)

    def close(self) -> None:
        for path in list(self._open):
            self._forget(path)
        if self._lock is not None:
            self._lock.close()
