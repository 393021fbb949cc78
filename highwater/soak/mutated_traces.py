"""Measure the share of mutated traces that each model rejects: `python -m highwater.soak.mutated_traces [--draws N]`.

One line is dropped, two lines are swapped, or one field of one line is changed. `seq` alone exposes the first two; with
`--renumbered` the lines are numbered again, so that the models have to detect them.
"""

import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from highwater.errors import Verdict
from highwater.fuzz.simulator.kept_seeds import FOLDER, read_kept_seed
from highwater.spec.formats.trace import Step, renumber, write_trace
from highwater.spec.trace import EntityVerdict, Layout, read_layout, validate_trace
from highwater.temporary import temporary_folder

# For each model: the kept seed whose run is traced with its guard on, the entity, and the number of lines.
RUNS: Final = {
    "eager_rebalance": ("FenceStaleGeneration", "g", 200),
    "cooperative_rebalance": ("WithholdClaimed", "g", 200),
    "isr_commit": ("HwWaitsForProposed", "t-0", 300),
    "hw_truncation": ("HwWaitsForProposed", "t-0", 300),
    "controller_failover": ("MoveLeaderToTarget", "t-0", 5_000),
    "zk_rebalance": ("ClaimIfFree", "old-group", 200),
    "transactions": ("EndTxnBumpsEpoch", "producer 0", 300),
}
Mutation = Callable[[random.Random, Layout, list[Step]], str]


@cache
def traced(guard: str, entity: str, *, off: bool = False) -> tuple[Step, ...]:
    """Return the steps of a kept seed's run that concern an entity, renumbered."""
    steps = read_kept_seed(FOLDER / f"{guard}.json").run(off=off, tracing=True).steps
    return tuple(renumber(step for step in steps if step.entity in {"", entity}))


def run_of(model: str) -> list[Step]:
    guard, entity, lines = RUNS[model]
    return list(traced(guard, entity)[:lines])


def validate_steps(folder: Path, model: str, steps: Sequence[Step]) -> EntityVerdict:
    path = folder / "trace.ndjson"
    write_trace(path, steps)
    (found,) = validate_trace(path, model, explain=False).entities
    return found


def drop(draw: random.Random, layout: Layout, steps: list[Step]) -> str:
    at = draw.choice(_read_lines(layout, steps))
    return f"without line {at + 1}, {steps.pop(at).action}"


def swap(draw: random.Random, layout: Layout, steps: list[Step]) -> str:
    one, other = sorted(draw.sample(_read_lines(layout, steps), 2))
    steps[one], steps[other] = steps[other], steps[one]
    return f"lines {one + 1}, {steps[other].action}, and {other + 1}, {steps[one].action}, swapped"


def change(draw: random.Random, layout: Layout, steps: list[Step]) -> str:
    """Change the action, the node, or a choice or value that the model reads."""
    at = draw.choice(_read_lines(layout, steps))
    step = steps[at]
    fields = [path for path in layout.actions[step.action] if _value(step, path) is not None]
    path = draw.choice(["action", "node", *fields])
    if path == "action":
        changed: dict[str, Any] = {path: draw.choice(sorted(set(layout.actions) - {step.action}))}
    elif path == "node":
        changed = {path: draw.choice(sorted({other_step.node for other_step in steps} - {step.node}, key=str))}
    else:
        part, _, name = path.partition(".")
        changed = {part: {**getattr(step, part), name: _other(draw, _value(step, path))}}
    steps[at] = msgspec.structs.replace(step, **changed)
    return f"line {at + 1}, {step.action}: {changed} instead of {path} {_value(step, path)}"


def _read_lines(layout: Layout, steps: Sequence[Step]) -> list[int]:
    """Return the lines that the model reads, without the last: a trace without its last line is valid."""
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
        return value[1:] if value else ["unknown"]
    return f"{value}x"


MUTATIONS: Final[dict[str, Mutation]] = {"dropped": drop, "swapped": swap, "changed": change}


def mutated_trace(model: str, how: str, seed: int) -> tuple[list[Step], str]:
    """Return a run with one drawn mutation, and its description."""
    steps = run_of(model)
    return steps, MUTATIONS[how](random.Random(f"{model} {how} {seed}"), read_layout(model), steps)


def measure(
    draws: Annotated[int, typer.Option(min=1, help="Number of mutations of each kind for each model.")] = 10,
    seed: Annotated[int, typer.Option(help="First seed.")] = 0,
    renumbered: Annotated[
        bool, typer.Option("--renumbered", help="Renumber lines, so that seq reveals nothing.")
    ] = False,
) -> None:
    """Print how many mutated traces each model rejects; accepted traces are printed before the table row."""
    with temporary_folder("mutated-") as folder:
        for model in RUNS:
            rejected_counts = dict.fromkeys(MUTATIONS, 0)
            for how in MUTATIONS:
                for draw_seed in range(seed, seed + draws):
                    steps, words = mutated_trace(model, how, draw_seed)
                    found = validate_steps(folder, model, renumber(steps) if renumbered else steps)
                    rejected_counts[how] += found.verdict is Verdict.INVALID
                    if found.verdict is not Verdict.INVALID:
                        print(f"  {model} {how} {draw_seed}: {found.verdict} {words}", flush=True)
            rejected = " | ".join(f"{rejected_counts[how]} of {draws}" for how in MUTATIONS)
            print(f"| `{model}` | {rejected} |", flush=True)


if __name__ == "__main__":
    typer.run(measure)
