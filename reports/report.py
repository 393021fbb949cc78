"""One self-contained page from a results folder: it opens offline and asks nobody for anything."""

import json
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined

from reports.audit import AuditResult
from reports.plots import plots
from reports.timeline import Timeline, read_timeline
from spec.formats.verdict import UsageError

PAGE = "report.html"
PARTS = ("run", "spec", "trace", "simulate", "conform", "fuzz")
WIDTH, LEFT, LANE_HEIGHT, TOP = 960, 170, 18, 14


def report(folder: Path) -> Path:
    """Write `report.html` from what the folder holds: `spec.json`, `conform.json` ... and folders with a history."""
    if not folder.is_dir():
        raise UsageError("no such results folder", where=str(folder), mend="give a folder that holds a run")
    parts = {name: _read(folder / f"{name}.json") for name in PARTS}
    histories = [_history(each) for each in [folder, *sorted(p for p in folder.iterdir() if p.is_dir())]]
    shown = [history for history in histories if history is not None]
    if not shown and not any(parts[name] for name in PARTS if name != "run"):
        raise UsageError("holds no verdict and no results", where=str(folder), mend="run highwater demo or audit first")
    environment = Environment(
        loader=PackageLoader("reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["thousands"] = lambda number: f"{number:,}"
    page = environment.get_template("report.html.j2").render(histories=shown, **parts)
    path = folder / PAGE
    hidden = folder / f".{PAGE}"
    hidden.write_text(page)
    hidden.replace(path)
    return path


def _read(path: Path) -> Any:
    return json.loads(path.read_bytes()) if path.exists() else None


def _history(folder: Path) -> dict[str, Any] | None:
    """What the page says of one history, or None when the folder has none."""
    path, verdict = folder / "history.ndjson", folder / "verdict.json"
    if not path.exists() or not verdict.exists():
        return None
    result = msgspec.json.decode(verdict.read_bytes(), type=AuditResult)
    timeline = read_timeline(path)
    notes = _read(folder / "about.json") or {}
    return {
        "name": folder.name,
        "title": notes.get("title", folder.name),
        "story": notes.get("story", ""),
        "result": result,
        "timeline": timeline,
        "chart": _chart(timeline, result),
        "plots": plots(timeline),
        "serious": [f for f in result.findings if f.severity != "information"],
        "notes": [f for f in result.findings if f.severity == "information"],
    }


def _chart(timeline: Timeline, result: AuditResult) -> dict[str, Any]:
    """Geometry of the timeline in SVG units; markers stand where the first witness of a finding was invoked."""
    scale = (WIDTH - LEFT - 10) / max(timeline.duration_s, 1e-9)
    height = TOP + LANE_HEIGHT * len(timeline.lanes) + 24

    def x(seconds: float) -> float:
        return round(LEFT + seconds * scale, 1)

    def wide(start_s: float, end_s: float) -> float:
        return round(max((end_s - start_s) * scale, 1.2), 1)

    lanes = [
        {
            "y": TOP + LANE_HEIGHT * number,
            "name": lane.name,
            "blocks": [
                {"x": x(b.start_s), "w": wide(b.start_s, b.end_s), "outcome": b.outcome,
                 "title": f"{b.count} × {b.f} {b.outcome}, {b.start_s:.2f} to {b.end_s:.2f} s"}
                for b in lane.blocks
            ],
        }
        for number, lane in enumerate(timeline.lanes)
    ]  # fmt: skip
    windows = [
        {"x": x(w.start_s), "w": wide(w.start_s, w.end_s), "kind": w.kind,
         "title": f"broker {w.node} {'down' if w.kind == 'kill' else 'paused'} {w.start_s:.2f} to {w.end_s:.2f} s"}
        for w in timeline.windows
    ]  # fmt: skip
    ticks = [{"x": x(second), "label": f"{second} s"} for second in range(0, int(timeline.duration_s) + 1, 2)]
    return {
        "height": height,
        "lanes": lanes,
        "windows": windows,
        "ticks": ticks,
        "markers": _markers(timeline, result, x),
    }


def _markers(timeline: Timeline, result: AuditResult, x: Any) -> list[dict[str, Any]]:
    markers = []
    for finding in result.findings:
        if finding.severity != "violation":
            continue
        for evidence in finding.witnesses[:4]:
            for witness in evidence.operations:
                second = timeline.event_times_s[min(witness.invoked, len(timeline.event_times_s) - 1)]
                markers.append({"x": x(second), "title": f"{finding.name}: {witness.role}: {witness.words}"})
    return markers
