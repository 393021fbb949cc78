"""Draw SVG pictures: a counterexample as a sequence diagram, and the first states of a model as a graph.

The text of a whole state is too long for a box, so both show only the changes of a step.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

from highwater.errors import UsageError, Verdict
from highwater.spec.check import ModelResult
from highwater.spec.models import CONTRACTS, Model, owners_of, with_constants
from highwater.spec.tlc.counterexample import (
    Change,
    CounterexampleStep,
    counterexample_steps,
    differences,
    plain_action,
)
from highwater.spec.tlc.messages import parse_conjuncts
from highwater.spec.tlc.run import Options, run_tlc
from highwater.temporary import temporary_folder

LINE: Final = 15  # height of a line of text, pixels
CHARACTER: Final = 6.7  # average width of a character, pixels
LANE: Final = 130
NO_ACTOR: Final = "store, messages"
STYLE: Final = """
text { font: 11px ui-monospace, Menlo, Consolas, monospace; fill: #1c2733; }
.act { font-weight: 600; } .dim { fill: #5d6b79; } .end { fill: #b3261e; font-weight: 600; }
.lane { stroke: #c4ccd4; } .box { fill: #e8f0fe; stroke: #5b8def; } .edge { stroke: #8a97a5; fill: none; }
"""


def draw_counterexample(result: ModelResult) -> str:
    """Return the SVG of a counterexample: one column per actor, one row per step, with the changes beside it."""
    steps = counterexample_steps(result.outcome.trace, owners_of(result.model))
    if not steps:
        raise UsageError(
            f"{result.model.name} has no counterexample to draw", hint="name a guard that breaks something"
        )
    actors = sorted({actor for step in steps for actor in step.actors})
    lanes = {name: 90 + LANE * n for n, name in enumerate([*actors, NO_ACTOR])}
    text_x = max(lanes.values()) + LANE // 2 + 20
    shapes: list[str] = []
    y = 50
    for step in steps:
        lines = [format_change(change) for change in step.changes]
        shapes += _step(step, lanes, y)
        shapes += [_text(text_x, y + LINE * n, line, "dim") for n, line in enumerate(lines)]
        y += LINE * max(2, len(lines)) + 12
    shapes.append(_text(20, y + LINE, f"{result.outcome.broken} is violated", "end"))
    heads = [_text(x, 24, name, "act", "middle") for name, x in lanes.items()]
    verticals = [f'<line class="lane" x1="{x}" y1="32" x2="{x}" y2="{y}"/>' for x in lanes.values()]
    widest = max((len(format_change(change)) for step in steps for change in step.changes), default=0)
    return svg(text_x + widest * CHARACTER + 20, y + 2 * LINE, [*verticals, *heads, *shapes])


def _step(step: CounterexampleStep, lanes: dict[str, int], y: float) -> Iterator[str]:
    """Draw a step: one box in the column of each actor, joined by a line."""
    columns = [lanes[actor] for actor in step.actors] or [lanes[NO_ACTOR]]
    yield _text(12, y, str(step.number), "dim")
    if len(columns) > 1:
        yield f'<line class="edge" x1="{min(columns)}" y1="{y - 4}" x2="{max(columns)}" y2="{y - 4}"/>'
    for x in columns:
        width = len(step.action) * CHARACTER + 12
        yield f'<rect class="box" x="{x - width / 2:.0f}" y="{y - 14}" width="{width:.0f}" height="20" rx="4"/>'
        yield _text(x, y, step.action, "act", "middle")


def format_change(change: Change, limit: int = 110) -> str:
    """Return a change as text of at most `limit` characters."""
    text = f"{change.path}: {change.before} → {change.after}"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'


def svg(width: float, height: float, shapes: Iterable[str]) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    body = "\n".join(shapes)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{STYLE}</style>\n{body}\n</svg>\n'


@dataclass(slots=True)
class Graph:
    """States by TLC's number, steps as (from, to, action), and `levels`, the distance of each state from the start."""

    states: dict[str, str] = field(default_factory=dict)
    steps: list[tuple[str, str, str]] = field(default_factory=list)
    levels: dict[str, int] = field(default_factory=dict)


QUOTED: Final = r'"((?:[^"\\]|\\.)*)"'
NODE: Final = re.compile(rf"^(-?\d+) \[label={QUOTED}(,style = filled)?\]", re.MULTILINE)
EDGE: Final = re.compile(r'^(-?\d+) -> (-?\d+) \[label="(\w*)"', re.MULTILINE)
DEEPEST: Final = 12
WIDEST: Final = 6  # boxes in a row


def draw_states(model: Model, limit: int = 40) -> str:
    """Return the SVG of the first states, at most `limit`, with the bounds of the mutants (the smallest)."""
    graph = first_states(model, limit)
    rows: dict[int, list[str]] = {}
    for state, level in graph.levels.items():
        rows.setdefault(level, []).append(state)
    labels = _labels(graph)
    widths = {state: max(map(len, text)) * CHARACTER + 16 for state, text in labels.items()}
    places: dict[str, tuple[float, float]] = {}
    y = 20.0
    for row in (rows[level][n : n + WIDEST] for level in sorted(rows) for n in range(0, len(rows[level]), WIDEST)):
        x = 20.0
        for state in row:
            places[state] = (x, y)
            x += widths[state] + 24
        y += max(len(labels[state]) for state in row) * LINE + 60
    shapes = [_arrow(places, widths, labels, step) for step in graph.steps if step[0] != step[1]]
    for state, (x, top) in places.items():
        height = len(labels[state]) * LINE + 8
        shapes.append(f'<rect class="box" x="{x}" y="{top}" width="{widths[state]:.0f}" height="{height}" rx="4"/>')
        shapes += [_text(x + 8, top + 14 + LINE * n, line) for n, line in enumerate(labels[state])]
    return svg(max(x + widths[state] for state, (x, _) in places.items()) + 20, y, shapes)


def _arrow(
    places: dict[str, tuple[float, float]],
    widths: dict[str, float],
    labels: dict[str, list[str]],
    step: tuple[str, str, str],
) -> str:
    (x1, y1), (x2, y2) = places[step[0]], places[step[1]]
    x1, x2 = x1 + widths[step[0]] / 2, x2 + widths[step[1]] / 2
    y1 += len(labels[step[0]]) * LINE + 8
    return f'<path class="edge" d="M{x1:.0f} {y1:.0f} L{x2:.0f} {y2:.0f}"><title>{escape(step[2])}</title></path>'


def _labels(graph: Graph) -> dict[str, list[str]]:
    """Return the lines of text of each state: the action that first led to it, and what that changed."""
    labels = {state: ["start"] for state in graph.states}
    labelled: set[str] = {state for state, level in graph.levels.items() if level == 0}
    for source, target, action in graph.steps:
        if target in labelled:
            continue
        labelled.add(target)
        before, after = (dict(parse_conjuncts(graph.states[state])) for state in (source, target))
        changes = [change for name in sorted(after) for change in differences(name, before[name], after[name])]
        labels[target] = [plain_action(action), *(format_change(change, 44) for change in changes[:4])]
    return labels


def first_states(model: Model, limit: int) -> Graph:
    """Return as many levels as fit into `limit` states, but at least the first two."""
    found = _explore(model, 2)
    for depth in range(3, DEEPEST):
        larger = _explore(model, depth)
        if len(larger.states) > limit or len(larger.states) == len(found.states):
            return found if len(larger.states) > limit else larger
        found = larger
    return found


def _explore(model: Model, depth: int) -> Graph:
    config = with_constants(model.config(), model.mutants, where=f"manifest.toml, {model.name}")
    with temporary_folder("draw-") as folder:
        module = folder / "Near.tla"
        module.write_text(
            f'---- MODULE Near ----\nEXTENDS {model.path.stem}\nNearTheStart == TLCGet("level") < {depth}\n====\n'
        )
        (folder / "Near.cfg").write_text(f"{config}\nCONSTRAINT NearTheStart\n")
        options = Options(small=True, library=(CONTRACTS, model.path.parent), dump=folder / "states")
        outcome = run_tlc(module, folder / "Near.cfg", options)
        if outcome.verdict is Verdict.UNKNOWN:
            raise UsageError(f"TLC found no states of {model.name}: {outcome.reason}", hint="run highwater spec check")
        return read_dot((folder / "states.dot").read_text())


def read_dot(text: str) -> Graph:
    """Parse the state graph that TLC writes with `-dump dot,actionlabels`."""
    nodes = NODE.findall(text)
    graph = Graph({number: _unquoted(label) for number, label, _ in nodes})
    graph.steps = list(dict.fromkeys(step for step in EDGE.findall(text) if {step[0], step[1]} <= graph.states.keys()))
    graph.levels = {number: 0 for number, _, initial in nodes if initial}
    graph.levels.update(_levels(graph.steps, graph.levels))
    return graph


def _unquoted(label: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], label)


def _levels(steps: Sequence[tuple[str, str, str]], initial: dict[str, int]) -> dict[str, int]:
    """Return the distance of each state from the start; TLC writes steps in breadth-first order."""
    levels = dict(initial)
    for source, target, _ in steps:
        if source in levels:
            levels.setdefault(target, levels[source] + 1)
    return levels
