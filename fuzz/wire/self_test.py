"""The self-test: fuzz the reference with one row of `mutants/wire.toml` at a time; measure which is found, and when."""

import statistics
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.conformance.targets.reference import ReferenceTarget
from highwater.fuzz.wire.examination.triage import WATCHED
from highwater.fuzz.wire.oracles.responses import Oracle
from highwater.fuzz.wire.session import Bounds, Session
from highwater.fuzz.wire.target import FuzzTarget
from highwater.mutants.node import node_with
from highwater.mutants.table import Need, wire_rows

DEADLINE_S: Final = 2.0
TIME_S: Final = 60.0
COUNTED: Final = (Oracle.REFUSE, *WATCHED)
"""Oracles that must find their defects themselves; other oracles often find these first."""


class DefectRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run against one planted defect; `oracle` is the one that failed, `frames` were sent until then.

    `processor_seconds` are the fuzzer's own; the rest of `seconds` went to the target and other processes.
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


def run_defect(defect: str, seed: int, folder: Path, seconds: float = TIME_S) -> DefectRun:
    """Fuzz until the first finding that counts. The reference has none of its own, so the defect must be its cause."""
    (known,) = wire_rows([defect])
    counted = known.kind if known.kind in COUNTED else ""

    def launch() -> ReferenceTarget:
        return ReferenceTarget(1, node_program=node_with([defect]))

    # Other failures are confirmed without a second broker, whose start takes longer than finding them.
    second = launch if known.kind in WATCHED or known.needs is Need.RESTART else None
    target = launch()
    address = next(iter(target.addresses.values()))
    with closing(target), closing(FuzzTarget(address, target, "reference", launch=second)) as fuzz_target:
        session = Session(
            fuzz_target,
            folder / f"{defect}-{seed}",
            seed,
            Bounds(seconds, findings=1, counted=counted, deadline_s=DEADLINE_S, shrink_s=0),
        )
        summary = session.run()
    counting = [row for row in summary["findings"] if counted in ("", row["oracle"])]
    first: dict[str, Any] = next(iter(counting), {})
    return DefectRun(
        defect=defect, bug=known.bug, shows=known.kind, seed=seed, found=bool(first),
        oracle=first.get("oracle", ""), message=first.get("message", ""), seconds=round(session.totals.hit_s, 1),
        processor_seconds=round(session.totals.hit_processor_s, 2), frames=session.totals.hit_frames,
    )  # fmt: skip


def self_test(
    defects: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    seconds: float = TIME_S,
    on_run: Callable[[DefectRun], None] = lambda run_defect: None,
) -> dict[str, Any]:
    """Return the object that `--json` prints: defects found and planted, with the effort until the first hit."""
    wire_rows(defects)
    hunts = []
    for defect in defects:
        for seed in seeds:
            hunts.append(run_defect(defect, seed, folder, seconds))
            on_run(hunts[-1])
    return summary_of(hunts)


def summary_of(hunts: Sequence[DefectRun]) -> dict[str, Any]:
    rows = []
    for defect in dict.fromkeys(run.defect for run in hunts):
        runs = [run for run in hunts if run.defect == defect]
        hits = [run for run in runs if run.found]
        rows.append({
            "defect": defect, "bug": runs[0].bug, "shows": runs[0].shows, "found": len(hits), "runs": len(runs),
            "oracles": sorted({run.oracle for run in hits}),
            "median_seconds": statistics.median(run.seconds for run in hits) if hits else None,
            "median_processor_seconds": statistics.median(run.processor_seconds for run in hits) if hits else None,
            "median_frames": round(statistics.median(run.frames for run in hits)) if hits else None,
        })  # fmt: skip
    found = sum(row["found"] == row["runs"] for row in rows)
    return {
        "planted": len(rows),
        "found": found,
        "defects": rows,
        "hunts": [msgspec.to_builtins(run) for run in hunts],
    }
