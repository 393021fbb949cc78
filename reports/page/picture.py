"""The log around a finding: offsets across, time down, and in each row what one operation knew of them."""

from typing import Any

from reports.page.interests import UNTOLD, Place, Touch

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
