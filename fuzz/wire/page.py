"""The page of a run: findings, coverage over time, and what was reached of each API."""

from collections import Counter
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fuzz.wire.corpus import State, read_state
from fuzz.wire.coverage import Coverage


def page(folder: Path, summary: dict[str, Any]) -> str:
    """Self-contained, from the state that the run left in the folder of its findings."""
    state = read_state(folder) or State(seed=summary["seed"])
    coverage = Coverage.of(state.points, state.growth)
    apis = sorted(coverage.by_api().items())
    for _, row in apis:
        families: Counter[str] = Counter()
        for name, count in row["mutations"].items():
            families[name.partition(" ")[0]] += count
        row["families"] = families
    mutations = sorted({name for _, row in apis for name in row["families"]})
    environment = Environment(loader=PackageLoader("fuzz.wire"), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("fuzz.html.j2").render(
        target=folder.name, folder=folder, summary=summary, state=state, findings=state.findings, apis=apis,
        mutations=mutations, curve=_curve(coverage),
    )  # fmt: skip


def _curve(coverage: Coverage) -> str:
    """Points of a polyline in a box of 1000 by 100."""
    marks = [(0.0, 0, 0), *coverage.growth]
    seconds, most = marks[-1][0] or 1.0, max(mark[2] for mark in marks) or 1
    return " ".join(f"{1000 * at / seconds:.1f},{100 - 100 * points / most:.1f}" for at, _, points in marks)
