"""Records the content of files at their last flush, so that a simulated crash can restore it.

Creations, renames and deletions are durable at once, except for files that were never flushed.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PAGE: Final = 4096


@dataclass(slots=True)
class Flushed:
    """A file at its last flush: its size, and the data overwritten since then as (offset, old data), oldest first."""

    size: int
    ever: bool = True
    overwritten: list[tuple[int, bytes]] = field(default_factory=list)


class UnflushedFiles:
    """The unflushed changes of files below `root`, by relative path. Report every change before it is made."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._flushed: dict[str, Flushed] = {}

    def real(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def created(self, path: str) -> None:
        self._flushed[path] = Flushed(0, ever=False)

    def overwriting(self, path: str, offset: int, size: int) -> None:
        """Record the data that a write, or a truncation, is about to replace."""
        flushed = self._flushed_state(path)
        old_size = min(offset + size, flushed.size) - offset
        if old_size > 0:
            with self.real(path).open("rb") as file:
                file.seek(offset)
                flushed.overwritten.append((offset, file.read(old_size)))

    def size(self, path: str) -> int:
        return self.real(path).stat().st_size

    def flush(self, path: str) -> None:
        with self.real(path).open("rb") as file:
            os.fsync(file.fileno())
        self._flushed.pop(path, None)

    def renamed(self, old: str, new: str) -> None:
        self._flushed.pop(new, None)
        for path in [known for known in self._flushed if known == old or known.startswith(f"{old}/")]:
            self._flushed[new + path.removeprefix(old)] = self._flushed.pop(path)

    def deleted(self, path: str) -> None:
        self._flushed.pop(path, None)

    def lose(self, pages: int = 0) -> None:
        """Restore every file to its last flush, but keep the first `pages` pages that were appended to it since."""
        for path, flushed in self._flushed.items():
            real = self.real(path)
            if not flushed.ever and not pages:
                real.unlink(missing_ok=True)
            elif real.exists():
                with real.open("r+b", buffering=0) as file:
                    for offset, data in reversed(flushed.overwritten):
                        file.seek(offset)
                        file.write(data)
                    file.truncate(min(self.size(path), flushed.size + pages * PAGE))
        self._flushed.clear()

    def _flushed_state(self, path: str) -> Flushed:
        """Return the state at the last flush; at the first change since then that is the current state."""
        if path not in self._flushed:
            self._flushed[path] = Flushed(self.size(path))
        return self._flushed[path]
