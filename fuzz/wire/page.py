"""The HTML page of a run: findings, coverage over time, and what was reached of each API."""

import math
import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

from highwater.fuzz.wire.oracles.responses import code_name
from highwater.fuzz.wire.steering.corpus import CorpusState, Coverage, read_state
from highwater.fuzz.wire.verdict import ENDS, verdict
from highwater.pages import render

NUMBER: Final = re.compile(r"-?\d+")


def page(folder: Path, summary: dict[str, Any]) -> str:
    """Render the self-contained page from the state that the run wrote to the folder of its findings."""
    state = read_state(folder) or CorpusState(seed=summary["seed"])
    coverage = Coverage.from_rows(state.points, state.growth)
    apis = sorted(coverage.by_api().items())
    for _, row in apis:
        families: Counter[str] = Counter()
        for name, count in row["mutations"].items():
            families[name.partition(" ")[0]] += count
        row["families"] = families
    mutations = sorted({name for _, row in apis for name in row["families"]})
    most = {name: max(row["families"][name] for _, row in apis) for name in mutations}
    return render(
        "highwater.fuzz.wire", "fuzz.html.j2",
        folder=folder, summary=summary, state=state, findings=state.findings, apis=apis, mutations=mutations, most=most,
        progress=_progress(coverage, state), error_names=_error_names, shade=_shade,
        ends=ENDS, verdict=verdict(summary),
    )  # fmt: skip


def _error_names(outcome: str) -> str:
    """Replace error codes by their names."""
    codes = outcome.split()
    return " ".join(map(code_name, map(int, codes))) if all(map(NUMBER.fullmatch, codes)) else outcome


def _shade(count: int, most: int) -> int:
    """Return the shade of a cell in percent, on a log scale: counts differ by orders of magnitude."""
    return round(60 * math.log1p(count) / math.log1p(most)) if most else 0


def _progress(coverage: Coverage, state: CorpusState) -> dict[str, Any]:
    """Return coverage and cases over time as polylines in a box of 1000 by 100, and the positions of findings."""
    marks = [(0.0, 0, 0), *coverage.growth]
    seconds, cases, _ = marks[-1]
    most = max(points for _, _, points in marks)

    def line(values: list[int], top: int) -> str:
        places = zip((at for at, _, _ in marks), values, strict=True)
        return " ".join(
            f"{1000 * at / (seconds or 1):.1f},{100 - 100 * value / (top or 1):.1f}" for at, value in places
        )

    found = [next((at for at, so_far, _ in marks if so_far >= row.get("case", 0)), seconds) for row in state.findings]
    return {
        "seconds": seconds, "cases": cases, "points": most,
        "coverage_line": line([points for _, _, points in marks], most),
        "cases_line": line([so_far for _, so_far, _ in marks], cases),
        "found": [round(1000 * at / (seconds or 1), 1) for at in found],
    }  # fmt: skip
