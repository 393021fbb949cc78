"""Keeps the classes that a Java program has loaded in an archive (JEP 350), with which it starts in less time.

The first run without an archive writes one when it ends, if it is not killed; later ones use it. Java ignores an
archive of other jars.
"""

import fcntl
import hashlib
import os
import shutil
from pathlib import Path
from typing import Final

from highwater.artefacts import cache_folder
from highwater.toolchain import java

FIRST_WITH_ARCHIVES: Final = 13
QUIET: Final = ("-Xshare:auto", "-Xlog:disable")
"""Without these, Java prints a warning for an archive that it cannot use."""


class ClassArchive:
    """The archive of a program on this machine's Java; `identity` is different for each, such as a hash of its jar."""

    def __init__(self, program: str, identity: str) -> None:
        found = java()
        name = hashlib.sha256(f"{identity} {found.version} {found.executable}".encode()).hexdigest()[:16]
        self._path = cache_folder() / f"{program}-{name}.jsa"
        self._possible = found.major >= FIRST_WITH_ARCHIVES
        self._claimed: int | None = None

    def claim(self) -> bool:
        """Return whether this object is to write the archive: there is none, and no other object is writing it."""
        if not self._possible or self._path.exists():
            return False
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._claimed = os.open(self._path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(self._claimed, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
        return self._claimed is not None

    def release(self) -> None:
        """Give up the claim, if there is one; it also ends with this process."""
        if self._claimed is not None:
            os.close(self._claimed)
            self._claimed = None

    def using(self) -> list[str]:
        """Return the flags of a run that uses the archive; none if there is no archive yet."""
        return [f"-XX:SharedArchiveFile={self._path}", *QUIET] if self._possible and self._path.exists() else []

    def writing(self, scratch: Path) -> list[str]:
        """Return the flags of a run that writes the archive to a folder when it ends; `keep` takes it from there."""
        return [f"-XX:ArchiveClassesAtExit={scratch / self._path.name}", *QUIET]

    def keep(self, scratch: Path) -> None:
        """Put the archive that a run has written, if it has, in its place, and give up the claim."""
        assert self._claimed is not None, "only who has the claim writes"
        written = scratch / self._path.name
        if written.exists():
            beside = self._path.with_suffix(".new")
            shutil.move(written, beside)
            beside.replace(self._path)
        self.release()
