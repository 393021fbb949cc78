"""Create the results folder of a run: `results/<UTC time>-<what>/`."""

import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.errors import UsageError
from highwater_kafka import installed_version

RESULTS = Path("results")


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `run.json`: the data needed to repeat the run."""

    what: str
    started: str
    command: list[str]
    target: str = ""
    seed: int | None = None
    highwater: str = ""
    python: str = ""
    versions: dict[str, str] = {}


def new_folder(what: str, *, root: Path = RESULTS, target: str = "", seed: int | None = None) -> Path:
    """Create a results folder with its `run.json`; raise UsageError if that cannot be written."""
    now = datetime.now(UTC)
    stem = root / f"{now:%Y%m%dT%H%M%SZ}-{what}"
    folder, attempt = stem, 1
    while folder.exists():
        attempt += 1
        folder = stem.with_name(f"{stem.name}-{attempt}")
    run = Run(
        what=what,
        started=now.isoformat(timespec="seconds"),
        command=["highwater", *sys.argv[1:]],
        target=target,
        seed=seed,
        highwater=installed_version(),
        python=platform.python_version(),
    )
    try:
        folder.mkdir(parents=True)
        write_json(folder / "run.json", run)
    except OSError as error:
        raise UsageError(
            f"cannot write results ({error.strerror})",
            where=str(folder),
            hint="free disk space, or run in another folder",
        ) from error
    return folder


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically: write another file, then rename it."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(value)) + b"\n")
    temporary.replace(path)


# --------------------------------------------------------------------------------------------------
# The progress of long work: a bar on a terminal, else a line every ten seconds in which something ended.

LINE_EVERY_S: Final = 10.0


class Steps:
    """The steps of long work; call it after each. `what` and `total` may change meanwhile; a total of 0 is unknown."""

    def __init__(self, what: str, total: int, show: Callable[["Steps"], None] = lambda steps: None) -> None:
        self.what, self.total, self.done, self._show = what, total, 0, show
        self._began = time.monotonic()

    def __call__(self) -> None:
        self.done += 1
        self._show(self)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def line(self) -> str:
        """Return what is done after which time, and how long the rest takes at the same pace."""
        if not self.total:
            return f"{self.what}: {self.done:,} after {self.seconds:.0f} s"
        rest = self.seconds / max(self.done, 1) * (self.total - self.done)
        return f"{self.what}: {self.done:,} of {self.total:,} after {self.seconds:.0f} s, about {rest:.0f} s more"


@contextmanager
def progress(what: str, total: int, *, quiet: bool = False) -> Iterator[Steps]:
    """Show the progress of work on standard error, and yield the object to call after each of `total` steps."""
    if quiet:
        yield Steps(what, total)
        return
    if not sys.stderr.isatty():
        yield Steps(what, total, _Lines())
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total or None)
        yield Steps(
            what,
            total,
            lambda steps: bar.update(task, completed=steps.done, total=steps.total or None, description=steps.what),
        )


class _Lines:
    """Prints a line when the last one is ten seconds old."""

    def __init__(self) -> None:
        self._printed_s = 0.0

    def __call__(self, steps: Steps) -> None:
        if steps.seconds >= self._printed_s + LINE_EVERY_S:
            self._printed_s = steps.seconds
            print(steps.line(), file=sys.stderr, flush=True)
