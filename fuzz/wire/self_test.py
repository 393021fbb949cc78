"""Our own house: the reference with one planted wire defect after the other; is each found, and how soon?"""

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.conformance.targets.reference import ReferenceTarget
from highwater.fuzz.wire.defects.node import defective
from highwater.fuzz.wire.defects.table import WIRE_DEFECTS, check_defects
from highwater.fuzz.wire.session import Bounds, Session
from highwater.fuzz.wire.target import Lab

DEADLINE_S: Final = 2.0
TIME_S: Final = 60.0


class Hunt(msgspec.Struct, frozen=True, kw_only=True):
    """One run on one planted defect; `oracle` is the one that broke, `frames` were sent until then.

    `processor_seconds` are the fuzzer's own: what is left of `seconds` went to the target, and to whoever else runs.
    """

    defect: str
    bug: str
    shows: str
    seed: int
    found: bool
    oracle: str = ""
    message: str = ""
    seconds: float = 0.0
    processor_seconds: float = 0.0
    frames: int = 0


def hunt(defect: str, seed: int, folder: Path, seconds: float = TIME_S) -> Hunt:
    """Until the first finding. The reference has none of its own, so whatever is found is the defect's doing."""
    target = ReferenceTarget(1, node_program=defective([defect]))
    try:
        lab = Lab(next(iter(target.addresses.values())), target, "reference")
        session = Session(
            lab, folder / f"{defect}-{seed}", seed, Bounds(seconds, findings=1, deadline_s=DEADLINE_S, shrink_s=0)
        )
        summary = session.run()
    finally:
        target.close()
    first: dict[str, Any] = next(iter(summary["findings"]), {})
    known = WIRE_DEFECTS[defect]
    return Hunt(
        defect=defect, bug=known.bug, shows=known.shows, seed=seed, found=bool(first),
        oracle=first.get("oracle", ""), message=first.get("message", ""), seconds=round(session.totals.hit_s, 1),
        processor_seconds=round(session.totals.hit_processor_s, 2), frames=session.totals.hit_frames,
    )  # fmt: skip


def self_test(
    defects: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    seconds: float = TIME_S,
    on_hunt: Callable[[Hunt], None] = lambda hunt: None,
) -> dict[str, Any]:
    """The object that `--json` prints: found of planted, with seconds and frames to the first hit of each."""
    check_defects(defects)
    hunts = []
    for defect in defects:
        for seed in seeds:
            hunts.append(hunt(defect, seed, folder, seconds))
            on_hunt(hunts[-1])
    return summary_of(hunts)


def summary_of(hunts: Sequence[Hunt]) -> dict[str, Any]:
    rows = []
    for defect in dict.fromkeys(each.defect for each in hunts):
        runs = [each for each in hunts if each.defect == defect]
        hits = [each for each in runs if each.found]
        rows.append({
            "defect": defect, "bug": runs[0].bug, "shows": runs[0].shows, "found": len(hits), "runs": len(runs),
            "oracles": sorted({each.oracle for each in hits}),
            "median_seconds": statistics.median(each.seconds for each in hits) if hits else None,
            "median_processor_seconds": statistics.median(each.processor_seconds for each in hits) if hits else None,
            "median_frames": round(statistics.median(each.frames for each in hits)) if hits else None,
        })  # fmt: skip
    found = sum(row["found"] == row["runs"] for row in rows)
    return {
        "planted": len(rows),
        "found": found,
        "defects": rows,
        "hunts": [msgspec.to_builtins(each) for each in hunts],
    }
