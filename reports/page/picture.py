"""Draw the log around a finding: offsets across, time down, one row for each operation."""

import json
from typing import Any

from highwater.reports.page.interests import UNKNOWN_OFFSET, Place, Touch
from highwater.reports.page.narrative import FindingNarrative
from highwater.reports.page.operations import OUTCOMES
from highwater.reports.page.watch import Block, Watched

ROWS = 24
SENDS = 14
LEFT, CELL, ROW, TOP = 190, 62, 24, 26
VALUE_LETTERS = 8


def picture(place: Place) -> dict[str, Any] | None:
    """Return geometry for the template, or None if no operation touched the place."""
    rows = _chosen(place)
    if not rows:
        return None
    offsets = list(range(place.low, place.high + 1))
    first_values = {offset: value for touch in reversed(rows) for offset, value in touch.cells}
    return {
        "width": LEFT + CELL * len(offsets) + 4,
        "height": TOP + ROW * len(rows) + 6,
        "partition": place.partition,
        "offset": place.offset,
        "focus": LEFT + CELL * (place.offset - place.low),
        "heads": [{"x": _x(place, offset) + CELL / 2, "text": offset} for offset in offsets],
        "rows": [_row(place, touch, TOP + ROW * number, first_values) for number, touch in enumerate(rows)],
        "left_out": place.others.offered + len(place.kept) - len(rows),
        "cell": CELL - 6,
    }


def _x(place: Place, offset: int) -> int:
    return LEFT + CELL * (offset - place.low)


def _chosen(place: Place) -> list[Touch]:
    """Return the witnesses, the sends, and the reads closest to the witnesses in time."""
    times = [touch.start_s for touch in place.kept] or [0.0]

    def distance(touch: Touch) -> tuple[bool, float]:
        """Sort operations on the offset itself first."""
        beside = all(offset != place.offset for offset, _ in touch.cells)
        return beside, min(abs(touch.start_s - time) for time in times)

    near = sorted(place.others, key=distance)
    sends = [touch for touch in near if touch.what == "send"][:SENDS]
    others = [touch for touch in near if touch.what != "send"]
    capacity = max(0, ROWS - len(place.kept) - len(sends))
    return sorted([*place.kept, *sends, *others[:capacity]], key=lambda touch: touch.start_s)


def _row(place: Place, touch: Touch, y: int, first_values: dict[int, Any]) -> dict[str, Any]:
    held = {offset for offset, _ in touch.cells}
    passed = {offset for offset in range(touch.first, touch.last + 1) if touch.first != UNKNOWN_OFFSET} - held
    shows = touch.last >= place.offset or not held  # a read without records may prove the end of the log
    if touch.invoked in place.witnesses and shows and place.offset not in held:
        passed.add(place.offset)  # a poll does not state its position, but the rule has derived it
    end = "never returned" if touch.end_s is None else f"to {touch.end_s:.3f} s"
    return {
        "y": y,
        "label": f"{touch.start_s:.3f} s  {touch.process} {touch.what}{'' if touch.outcome == 'ok' else ' ?'}",
        "title": f"process {touch.process}, {touch.what}, {touch.start_s:.3f} s {end}, {touch.outcome}",
        "witness": touch.invoked in place.witnesses,
        "kind": f"{'send' if touch.what == 'send' else 'read'} {touch.outcome}",
        "cells": [
            {
                "x": _x(place, offset),
                "text": _short(value),
                "title": f"offset {offset}: {value!r}"[:200],
                "other": value != first_values[offset],
            }
            for offset, value in touch.cells
            if place.low <= offset <= place.high
        ],
        "passed": [_x(place, offset) + CELL / 2 - 3 for offset in sorted(passed)] if touch.what != "send" else [],
    }


def _short(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= VALUE_LETTERS else text[: VALUE_LETTERS - 1] + "…"


# --------------------------------------------------------------------------------------------------
# Data of the interactive timeline (`timeline.js`): columns of numbers, compact enough to embed.


US = 1_000_000
NEVER = -1


def drawing(watched: Watched, narratives: list[FindingNarrative]) -> dict[str, Any]:
    """Return the timeline data; times in microseconds, starts as differences to save space."""
    blocks = sorted([*watched.good, *watched.bad, *watched.witnesses], key=lambda block: block.start_s)
    order = {lane: place for place, lane in enumerate(watched.lanes.in_order())}
    fs = sorted({block.f for block in blocks})
    keys = sorted({block.key for block in blocks})
    starts = [round(block.start_s * US) for block in blocks]
    slots = [slot.operations for slot in watched.series.slots]
    return {
        "duration": round(watched.duration_s * US),
        "lanes": [watched.lanes.lanes[lane].name for lane in watched.lanes.in_order()],
        "fs": fs,
        "keys": keys,
        "outcomes": OUTCOMES,
        "start": [start - before for before, start in zip([0, *starts], starts, strict=False)],
        "length": [_length(block) for block in blocks],
        "lane": [order[block.lane] for block in blocks],
        "f": [fs.index(block.f) for block in blocks],
        "outcome": [OUTCOMES.index(block.outcome) for block in blocks],
        "key": [keys.index(block.key) for block in blocks],
        "first": [block.first for block in blocks],
        "more": [block.last - block.first for block in blocks],
        "process": [block.process for block in blocks],
        "index": [block.invoked for block in blocks],
        "density": {"width": round(watched.series.width_s * US), "counts": slots},
        "faults": [
            {"kind": window.kind, "words": window.words, "start": round(window.start_s * US),
             "end": round(window.end_s * US)} for window in watched.windows
        ],
        "findings": [_finding(narrative) for narrative in narratives],
    }  # fmt: skip


def _length(block: Block) -> int:
    return NEVER if block.end_s is None else round((block.end_s - block.start_s) * US)


def _finding(narrative: FindingNarrative) -> dict[str, Any]:
    return {
        "number": narrative.number,
        "title": f"{narrative.name}, {narrative.place}",
        "severity": narrative.severity,
        "start": round(narrative.start_s * US),
        "end": round(narrative.end_s * US),
        "operations": narrative.indices,
    }


def sampled(watched: Watched) -> str:
    """Describe what the timeline leaves out; empty if it shows everything."""
    good, bad = watched.good, watched.bad
    if good.stride == bad.stride == 1:
        return ""
    shown = len(good) + len(bad) + len(watched.witnesses)
    return (
        f"{shown:,} of {watched.operations:,} operations are drawn: {_every(good.stride)} successful one, "
        f"{_every(bad.stride)} other one, and all witnesses of findings. The plots count all operations."
    )


def _every(stride: int) -> str:
    if stride == 1:
        return "every"
    return "every second" if stride == 2 else f"every {stride:,}th"


def embed(data: dict[str, Any]) -> str:
    """Return JSON that is safe inside a script element."""
    return json.dumps(data, separators=(",", ":"), default=str).replace("<", "\\u003c")
