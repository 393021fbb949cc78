"""Reads a history: into memory, into a dataset, or the dataset that it was read into before."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.errors import UsageError
from highwater.reports.dataset.reader import holds, read_dataset
from highwater.reports.dataset.schema import MANIFEST
from highwater.reports.dataset.writer import Writer
from highwater.reports.importers.formats import History, open_history
from highwater.reports.ingest.events import Ingest
from highwater.reports.ingest.history import Ingested
from highwater.spec.formats.history import Config

AT_ONCE: Final = 1 << 19
"""Rows and records that are held before they go to a dataset: some 120 MB."""


def read(
    where: Path | str,
    overrides: dict[str, Any] | None = None,
    format_: str | None = None,
    out: Path | None = None,
    opened: History | None = None,
) -> Ingested:
    """Return a history, or the dataset of one that was read before. `opened` is the history if it is open already."""
    if not (Path(where) / MANIFEST).exists():
        return ingest(where, overrides, format_, out, opened)
    history = read_dataset(Path(where))
    history.config = replaced(history.config, overrides)
    return history


def ingest(
    where: Path | str,
    overrides: dict[str, Any] | None = None,
    format_: str | None = None,
    out: Path | None = None,
    opened: History | None = None,
) -> Ingested:
    """Read a history whole; `overrides` replace keys of its header. UsageError when nothing of it can be read.

    With `out`, into a dataset; a folder that holds the one of this history is not written again.
    """
    if out is not None:
        return _kept(str(where), overrides, format_, out, opened)
    history, reading = opened or open_history(str(where), format_), Ingest()
    read_events(reading, history, str(where))
    ingested = reading.ingested(replaced(history.config, overrides))
    ingested.format, ingested.quarantine = history.format, history.quarantine
    return ingested


def replaced(config: Config, overrides: dict[str, Any] | None) -> Config:
    return msgspec.structs.replace(config, **(overrides or {}))


def _kept(
    where: str, overrides: dict[str, Any] | None, format_: str | None, out: Path, opened: History | None
) -> Ingested:
    source = _source(where)
    if not holds(out, source):
        history, reading = opened or open_history(where, format_), Ingest()
        with Writer(out) as writer:
            read_events(reading, history, where, when_full=writer.append)
            writer.finish(reading, history, source)
    kept = read_dataset(out)
    kept.config = replaced(kept.config, overrides)
    return kept


def _source(where: str) -> tuple[str, int, int]:
    """What tells a file from another: path, bytes, when it was changed. Nothing is known of an address."""
    path = Path(where)
    if not path.exists():
        return where, 0, 0
    return str(path.absolute()), path.stat().st_size, path.stat().st_mtime_ns


@contextmanager
def uncollected() -> Iterator[None]:
    """Reading makes no circles for the collector to look for."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def read_events(
    reading: Ingest, history: History, where: str, when_full: Callable[[Ingest], None] | None = None
) -> None:
    """All events; `when_full` takes what was read whenever it is much."""
    with uncollected():
        for event in history.events:
            reading.take(event)
            if reading.pending >= AT_ONCE and when_full is not None:
                when_full(reading)
    quarantine = history.quarantine
    if not reading.touched and quarantine.lines:
        first = quarantine.lines[0]
        raise UsageError(
            f"nothing of it can be read as {history.format}; line {first.line}: {first.reason}",
            where=where,
            hint="name another format with --format",
        )
