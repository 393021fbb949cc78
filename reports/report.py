"""Make one self-contained HTML page of a results folder: it opens offline and loads nothing."""

import json
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from highwater.errors import UsageError
from highwater.pages import render, write
from highwater.reports.dataset.schema import MANIFEST
from highwater.reports.importers.formats import open_history
from highwater.reports.importers.inputs import NAMES
from highwater.reports.page.history import OPERATIONS_DRAWN, show_history
from highwater.reports.page.words import cited
from highwater.reports.recorder.clients import FOLDER
from highwater.reports.verdicts import AuditResult
from highwater.spec.formats.history import Event

PAGE = "report.html"
AGAIN = "again.txt"
"""The command that repeats a run with faults of its own, such as one of chaos."""
PARTS = ("run", "spec", "trace", "simulate", "conform", "fuzz", "logs")


def report(folder: Path) -> Path:
    """Write `report.html` from what the folder holds: `spec.json`, `conform.json` ... and folders with a history."""
    if not folder.is_dir():
        raise UsageError("no such results folder", where=str(folder), hint="give a folder that holds a run")
    parts = {name: _read(folder / f"{name}.json") for name in PARTS}
    folders = [path for path in history_folders(folder) if (path / "verdict.json").exists()]
    histories = [_history(path, OPERATIONS_DRAWN // len(folders)) for path in folders]
    if not histories and not any(parts[name] for name in PARTS if name != "run"):
        hint = f"the page of a history is written by: highwater audit {folder} --html page.html"
        raise UsageError("holds no results of a run", where=str(folder), hint=hint)
    return _write(folder / PAGE, histories, parts)


def report_history(where: str, result: AuditResult, page: Path, settings: Sequence[str] = ()) -> Path:
    """Write the page of one history; UsageError for a dataset, which has columns but no events.

    `where` is read; the page names `result.history` and the `settings` (KEY=VALUE) as the command to repeat.
    """
    if (Path(where) / MANIFEST).exists():
        hint = "audit the history that the dataset was read from"
        raise UsageError("a dataset has no events to make a page of", where=where, hint=hint)
    shown = {
        **show_history(_events(where, result), result),
        **_notes({}, Path(result.history).name),
        "again": shlex.join(["highwater", "audit", result.history, *(f"--config={each}" for each in settings)]),
        "run_again": "",
    }
    return _write(page, [shown], dict.fromkeys(PARTS))


def _write(path: Path, histories: list[dict[str, Any]], parts: dict[str, Any]) -> Path:
    citations = cited([finding for history in histories for finding in history["result"].findings])
    return write(path, render("highwater.reports", "report.html.j2", histories=histories, cited=citations, **parts))


def _read(path: Path) -> Any:
    return json.loads(path.read_bytes()) if path.exists() else None


def history_folders(folder: Path) -> list[Path]:
    """Return the folders of a run that hold a history, the one of the user's own clients first."""
    within = sorted(path for path in folder.iterdir() if path.is_dir())
    ordered = sorted([folder, *within], key=lambda path: path != folder / FOLDER)
    return [path for path in ordered if any((path / name).exists() for name in NAMES)]


def _history(folder: Path, limit: int) -> dict[str, Any]:
    try:
        result = msgspec.json.decode((folder / "verdict.json").read_bytes(), type=AuditResult)
    except msgspec.MsgspecError as error:
        hint = f"highwater audit {folder} --json > {folder / 'verdict.json'} writes it again"
        raise UsageError(f"not a verdict of this version: {error}", where=str(folder), hint=hint) from error
    history = next(folder / name for name in NAMES if (folder / name).exists())
    notes = _read(folder / "about.json") or {}
    return {
        **show_history(_events(str(history), result), result, limit),
        **_notes(notes, folder.name),
        "again": shlex.join(["highwater", "audit", str(folder)]),
        "run_again": (folder / AGAIN).read_text() if (folder / AGAIN).exists() else "",
    }


def _events(where: str, result: AuditResult) -> Callable[[], Iterable[Event]]:
    return lambda: open_history(where, result.format).events


def _notes(notes: dict[str, Any], name: str) -> dict[str, str]:
    """Return what was known before the run: the verdict that was expected, and the words for it."""
    kept = {key: notes.get(key, "") for key in ("story", "expected", "as_expected")}
    return {"name": name, "title": notes.get("title", name), **kept}
