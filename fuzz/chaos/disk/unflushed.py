"""Files that remember what they were when they were last flushed, so that a crash can take back the rest.

Names, that is what was created, renamed or deleted, count as durable at once but for files that were never flushed.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PAGE: Final = 4096


@dataclass(slots=True)
class Flushed:
    """`size` at the last flush, and what was overwritten since below it, oldest first."""

    size: int
    ever: bool = True
    overwritten: list[tuple[int, bytes]] = field(default_factory=list)


class ForgetfulFiles:
    """Below `root`, by the path from there. Every change has to be told before it is made."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._flushed: dict[str, Flushed] = {}

    def real(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def created(self, path: str) -> None:
        self._flushed[path] = Flushed(0, ever=False)

    def overwriting(self, path: str, offset: int, size: int) -> None:
        """Also what a truncation cuts off."""
        flushed = self._of(path)
        kept = min(offset + size, flushed.size) - offset
        if kept > 0:
            with self.real(path).open("rb") as file:
                file.seek(offset)
                flushed.overwritten.append((offset, file.read(kept)))

    def size(self, path: str) -> int:
        return self.real(path).stat().st_size

    def flush(self, path: str) -> None:
        with self.real(path).open("rb") as file:
            os.fsync(file.fileno())
        self._flushed.pop(path, None)

    def renamed(self, old: str, new: str) -> None:
        self._flushed.pop(new, None)
        for path in [each for each in self._flushed if each == old or each.startswith(f"{old}/")]:
            self._flushed[new + path.removeprefix(old)] = self._flushed.pop(path)

    def deleted(self, path: str) -> None:
        self._flushed.pop(path, None)

    def lose(self, pages: int = 0) -> None:
        """All that was not flushed, but for the first `pages` that were added to each file."""
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

    def _of(self, path: str) -> Flushed:
        """The first change since a flush finds the file as it was then."""
        if path not in self._flushed:
            self._flushed[path] = Flushed(self.size(path))
        return self._flushed[path]
