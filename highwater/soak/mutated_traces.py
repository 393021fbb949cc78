"""Measure the share of mutated traces that each model rejects: `python -m highwater.soak.mutated_traces [--draws N]`.

One line is dropped, two lines are swapped, or one field of one line is changed. `seq` alone exposes the first two; with
`--renumbered` the lines are numbered again, so that the models have to detect them.
"""

import random
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from highwater.errors import Verdict
from highwater.fuzz.simulator.kept_seeds import FOLDER, read_kept
from highwater.spec.formats.trace import Step, renumber, write_trace
from highwater.spec.trace import EntityVerdict, Layout, read_layout, validate_trace

# Of each model: the kept seed whose run is traced, with its guard on; the entity; and how many of its lines.
RUNS: Final = {
    "eager_rebalance": ("FenceStaleGeneration", "g", 200),
    "cooperative_rebalance": ("WithholdClaimed", "g", 200),
    "isr_commit": ("HwWaitsForProposed", "t-0", 300),
    "hw_truncation": ("HwWaitsForProposed", "t-0", 300),
    "controller_failover": ("MoveLeaderToTarget", "t-0", 5_000),
}
Spoil = Callable[[random.Random, Layout, list[Step]], str]


@cache
def traced(guard: str, entity: str, *, off: bool = False) -> tuple[Step, ...]:
    """The steps of a kept seed's run that concern an entity, as a trace of their own."""
    steps = read_kept(FOLDER / f"{guard}.json").run(off=off, tracing=True).steps
    return tuple(renumber(step for step in steps if step.entity in {"", entity}))


def run_of(model: str) -> list[Step]:
    guard, entity, lines = RUNS[model]
    return list(traced(guard, entity)[:lines])


def judge(folder: Path, model: str, steps: Sequence[Step]) -> EntityVerdict:
    path = folder / "trace.ndjson"
    write_trace(path, steps)
    (found,) = validate_trace(path, model, explain=False).entities
    return found


def drop(draw: random.Random, layout: Layout, steps: list[Step]) -> str:
    at = draw.choice(_telling(layout, steps))
    return f"without line {at + 1}, {steps.pop(at).action}"


def swap(draw: random.Random, layout: Layout, steps: list[Step]) -> str:
    one, other = sorted(draw.sample(_telling(layout, steps), 2))
    steps[one], steps[other] = steps[other], steps[one]
    return f"lines {one + 1}, {steps[other].action}, and {other + 1}, {steps[one].action}, swapped"


def change(draw: random.Random, layout: Layout, steps: list[Step]) -> str:
    """The action, the node, or a choice or value that the model looks at becomes another."""
    at = draw.choice(_telling(layout, steps))
    step = steps[at]
    fields = [path for path in layout.actions[step.action] if _value(step, path) is not None]
    path = draw.choice(["action", "node", *fields])
    if path == "action":
        changed: dict[str, Any] = {path: draw.choice(sorted(set(layout.actions) - {step.action}))}
    elif path == "node":
        changed = {path: draw.choice(sorted({each.node for each in steps} - {step.node}, key=str))}
    else:
        part, _, name = path.partition(".")
        changed = {part: {**getattr(step, part), name: _other(draw, _value(step, path))}}
    steps[at] = msgspec.structs.replace(step, **changed)
    return f"line {at + 1}, {step.action}: {changed} instead of {path} {_value(step, path)}"


def _telling(layout: Layout, steps: Sequence[Step]) -> list[int]:
    """Lines that the model reads, but for the last: without it, a trace is the beginning of a trace."""
    return [at for at, step in enumerate(steps) if step.action in layout.actions and step.entity][:-1]


def _value(step: Step, path: str) -> Any:
    part, _, name = path.partition(".")
    return getattr(step, part).get(name) if name else getattr(step, part)


def _other(draw: random.Random, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + draw.choice([-1, 1, 2])
    if isinstance(value, list):
        return value[1:] if value else ["nobody"]
    return f"{value}x"


SPOILT: Final[dict[str, Spoil]] = {"dropped": drop, "swapped": swap, "changed": change}


def spoilt(model: str, how: str, seed: int) -> tuple[list[Step], str]:
    """A run with one line spoilt, as drawn, and in words how."""
    steps = run_of(model)
    return steps, SPOILT[how](random.Random(f"{model} {how} {seed}"), read_layout(model), steps)


def measure(
    draws: Annotated[int, typer.Option(min=1, help="How many of each kind and model.")] = 10,
    seed: Annotated[int, typer.Option(help="The first of as many seeds.")] = 0,
    renumbered: Annotated[bool, typer.Option("--renumbered", help="Ask what the models notice without seq.")] = False,
) -> None:
    """Each line of the table says how many of the spoilt traces a model refuses; those it accepts are told before."""
    with tempfile.TemporaryDirectory(prefix="highwater-spoilt-") as folder:
        for model in RUNS:
            refused = dict.fromkeys(SPOILT, 0)
            for how in SPOILT:
                for each in range(seed, seed + draws):
                    steps, words = spoilt(model, how, each)
                    found = judge(Path(folder), model, renumber(steps) if renumbered else steps)
                    refused[how] += found.verdict is Verdict.INVALID
                    if found.verdict is not Verdict.INVALID:
                        print(f"  {model} {how} {each}: {found.verdict} {words}", flush=True)
            told = " | ".join(f"{refused[how]} of {draws}" for how in SPOILT)
            print(f"| `{model}` | {told} |", flush=True)


if __name__ == "__main__":
    typer.run(measure)
