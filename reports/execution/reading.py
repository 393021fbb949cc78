"""Read a history into memory or into a dataset, or open the dataset of an earlier read."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.errors import UsageError
from highwater.reports.dataset.reader import holds, is_dataset, read_dataset
from highwater.reports.dataset.writer import Writer
from highwater.reports.importers.formats import History, open_history
from highwater.reports.ingest.events import Ingest
from highwater.reports.ingest.history import Ingested
from highwater.spec.formats.history import Config

AT_ONCE: Final = 1 << 19
"""Rows plus records held in memory before they are written to a dataset: about 120 MB."""

SETTINGS_HINT: Final = 'a dict such as {"acks": "all"}; docs/audit/events.md lists the settings'


def read(
    where: Path | str,
    overrides: dict[str, Any] | None = None,
    format_: str | None = None,
    out: Path | None = None,
    opened: History | None = None,
) -> Ingested:
    """Return a history, or the dataset of one that was read before. `opened` is the history if it is open already."""
    if not is_dataset(where):
        return ingest(where, overrides, format_, out, opened)
    history = read_dataset(where)
    history.config = replaced(history.config, overrides)
    return history


def ingest(
    where: Path | str,
    overrides: dict[str, Any] | None = None,
    format_: str | None = None,
    out: Path | None = None,
    opened: History | None = None,
) -> Ingested:
    """Read a whole history; `overrides` replace keys of its header. UsageError if nothing of it can be read.

    With `out`, read into a dataset there; an existing dataset of the same source is reused.
    """
    if out is not None:
        return _kept(str(where), overrides, format_, out, opened)
    history, reading = opened or open_history(str(where), format_), Ingest()
    read_events(reading, history, str(where))
    ingested = reading.ingested(replaced(history.config, overrides))
    ingested.format, ingested.quarantine = history.format, history.quarantine
    return ingested


def replaced(config: Config, overrides: dict[str, Any] | None) -> Config:
    """Return the settings with some replaced; UsageError if one is unknown or has a wrong value."""
    if unknown := set(overrides or {}) - set(Config.__struct_fields__):
        raise UsageError(f"no such setting: {', '.join(sorted(unknown))}", where="overrides", hint=SETTINGS_HINT)
    try:
        changed = msgspec.convert(dict(overrides or {}), Config)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise UsageError(str(error), where="overrides", hint=SETTINGS_HINT) from error
    return msgspec.structs.replace(config, **{name: getattr(changed, name) for name in overrides or {}})


def _kept(
    where: str, overrides: dict[str, Any] | None, format_: str | None, out: Path, opened: History | None
) -> Ingested:
    source = _source(where)
    if not holds(out, source):
        history, reading = opened or open_history(where, format_), Ingest()
        with Writer(out) as writer:
            read_events(reading, history, where, when_full=writer.append)
            writer.finish(reading, history, source)
    ingested = read_dataset(out)
    ingested.config = replaced(ingested.config, overrides)
    return ingested


def _source(where: str) -> tuple[str, int, int]:
    """Return what identifies a file: path, bytes, mtime in ns; zeros for an address, whose content may change."""
    path = Path(where)
    if not path.exists():
        return where, 0, 0
    return str(path.absolute()), path.stat().st_size, path.stat().st_mtime_ns


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pause garbage collection: reading creates no reference cycles, and collections would scan all events."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def read_events(
    reading: Ingest, history: History, where: str, when_full: Callable[[Ingest], None] | None = None
) -> None:
    """Read all events; `when_full` is called when `AT_ONCE` rows and records wait. UsageError if no line is valid."""
    with garbage_collection_paused():
        for event in history.events:
            reading.take(event)
            if reading.pending >= AT_ONCE and when_full is not None:
                when_full(reading)
    quarantine = history.quarantine
    if not reading.has_events and quarantine.lines and quarantine.lines[0].line <= quarantine.line:
        first = quarantine.lines[0]
        raise UsageError(
            f"nothing of it can be read as {history.format}; line {first.line}: {first.reason}",
            where=where,
            hint="name another format with --format",
        )
