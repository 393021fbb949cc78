"""The log around a finding: offsets across, time down, and in each row what one operation knew of them."""

import json
from typing import Any

from highwater.reports.page.interests import UNTOLD, Place, Touch
from highwater.reports.page.narrative import Story
from highwater.reports.page.operations import OUTCOMES
from highwater.reports.page.watch import Block, Watched

ROWS = 24
SENDS = 14
LEFT, CELL, ROW, TOP = 190, 62, 24, 26
VALUE_LETTERS = 8


def picture(place: Place) -> dict[str, Any] | None:
    """Geometry for the template, or None when nobody had to do with the place."""
    rows = _chosen(place)
    if not rows:
        return None
    offsets = list(range(place.low, place.high + 1))
    told_first = {offset: value for touch in reversed(rows) for offset, value in touch.cells}
    return {
        "width": LEFT + CELL * len(offsets) + 4,
        "height": TOP + ROW * len(rows) + 6,
        "partition": place.partition,
        "offset": place.offset,
        "focus": LEFT + CELL * (place.offset - place.low),
        "heads": [{"x": _x(place, offset) + CELL / 2, "text": offset} for offset in offsets],
        "rows": [_row(place, touch, TOP + ROW * number, told_first) for number, touch in enumerate(rows)],
        "left_out": place.others.offered + len(place.kept) - len(rows),
        "cell": CELL - 6,
    }


def _x(place: Place, offset: int) -> int:
    return LEFT + CELL * (offset - place.low)


def _chosen(place: Place) -> list[Touch]:
    """Witnesses, who wrote there, and the readers that are closest to the witnesses in time."""
    times = [touch.start_s for touch in place.kept] or [0.0]

    def distance(touch: Touch) -> tuple[bool, float]:
        """Who has to do with the very offset comes first."""
        beside = all(offset != place.offset for offset, _ in touch.cells)
        return beside, min(abs(touch.start_s - time) for time in times)

    near = sorted(place.others, key=distance)
    sends = [touch for touch in near if touch.what == "send"][:SENDS]
    others = [touch for touch in near if touch.what != "send"]
    room = max(0, ROWS - len(place.kept) - len(sends))
    return sorted([*place.kept, *sends, *others[:room]], key=lambda touch: touch.start_s)


def _row(place: Place, touch: Touch, y: int, told_first: dict[int, Any]) -> dict[str, Any]:
    held = {offset for offset, _ in touch.cells}
    passed = {offset for offset in range(touch.first, touch.last + 1) if touch.first != UNTOLD} - held
    if touch.invoked in place.witnesses and touch.last >= place.offset and place.offset not in held:
        passed.add(place.offset)  # a poll does not say where it began; the rule knows
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
                "other": value != told_first[offset],
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
# The interactive timeline as data: columns of numbers, small enough to stand in the page, for `timeline.js`.


US = 1_000_000
NEVER = -1


def drawing(watched: Watched, stories: list[Story]) -> dict[str, Any]:
    """Times in microseconds; starts are told as differences, since those are short."""
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
        "findings": [_finding(story) for story in stories],
    }  # fmt: skip


def _length(block: Block) -> int:
    return NEVER if block.end_s is None else round((block.end_s - block.start_s) * US)


def _finding(story: Story) -> dict[str, Any]:
    return {
        "number": story.number,
        "title": f"{story.name}, {story.place}",
        "severity": story.severity,
        "start": round(story.start_s * US),
        "end": round(story.end_s * US),
        "operations": story.indices,
    }


def sampled(watched: Watched) -> str:
    """What the timeline leaves out, in words; empty when it shows all."""
    good, bad = watched.good, watched.bad
    if good.stride == bad.stride == 1:
        return ""
    shown = len(good) + len(bad) + len(watched.witnesses)
    return (
        f"{shown:,} of {watched.operations:,} calls are drawn: {_every(good.stride)} that ended well, "
        f"{_every(bad.stride)} that did not, and all witnesses of findings. The plots count every one."
    )


def _every(stride: int) -> str:
    if stride == 1:
        return "each"
    return "every second" if stride == 2 else f"every {stride:,}th"


def embed(data: dict[str, Any]) -> str:
    """JSON that may stand in a script element."""
    return json.dumps(data, separators=(",", ":"), default=str).replace("<", "\\u003c")
