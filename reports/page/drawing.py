"""The interactive timeline as data: columns of numbers, small enough to stand in the page, for `timeline.js`."""

import json
from typing import Any

from reports.page.operations import OUTCOMES
from reports.page.story import Story
from reports.page.watch import Block, Watched

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
