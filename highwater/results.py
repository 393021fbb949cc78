"""Create the results folder of a run: `results/<UTC time>-<what>/`."""

import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

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
# A progress bar for work that takes longer than two seconds; nothing is shown without a terminal.


@contextmanager
def progress(what: str, total: int, *, quiet: bool = False) -> Iterator[Callable[[], None]]:
    """Show a progress bar, and yield a function to call after each of `total` steps."""
    if quiet or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)
