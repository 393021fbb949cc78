"""A counterexample as a story: who did what, and what that changed.

TLC prints whole states; a reader wants the difference.  A state variable that is a function of brokers tells who acted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from spec.tla_values import Function, ModelValue, Value, to_tla
from spec.tlc_messages import State

# MC modules bound an action under its own name with a prefix.
PREFIXES: Final = ("MC", "SIM")
ABSENT: Final = ModelValue("nothing")


@dataclass(frozen=True, slots=True)
class Change:
    """`path` such as `leading[b1].isr`; the values are TLA+ text."""

    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Beat:
    """One step: its number, who acted (those whose own state changed), the action, and all changes."""

    number: int
    action: str
    actors: tuple[str, ...]
    changes: tuple[Change, ...]


def story(trace: Sequence[State]) -> list[Beat]:
    """One beat for each step of a counterexample; the initial state is where it starts, not a beat."""
    beats = []
    states = [state.variables for state in trace]
    for number, (before, after) in enumerate(pairwise(states), 1):
        changes = tuple(
            change
            for variable, value in sorted(after.items())
            for change in differences(variable, before.get(variable, ABSENT), value)
        )
        actors = dict.fromkeys(
            str(key)
            for variable, value in after.items()
            if isinstance(value, Function)
            for key in value
            if isinstance(key, ModelValue) and value[key] != before[variable][key]
        )
        beats.append(Beat(number, plain_action(trace[number].action), tuple(sorted(actors)), changes))
    return beats


def plain_action(name: str) -> str:
    """`MCFetch` is the action Fetch, bounded."""
    for prefix in PREFIXES:
        if name.startswith(prefix) and name[len(prefix) : len(prefix) + 1].isupper():
            return name.removeprefix(prefix)
    return name


def differences(path: str, before: Value, after: Value) -> Iterator[Change]:
    """The smallest parts of a value that changed: into functions and records, tuples and sets of records."""
    if before == after:
        return
    if isinstance(before, Function) and isinstance(after, Function) and before.keys() == after.keys():
        for key in sorted(after, key=str):
            step = f"[{key}]" if isinstance(key, ModelValue | int) else f".{key}"
            yield from differences(path + step, before[key], after[key])
    elif isinstance(before, tuple) and isinstance(after, tuple) and _holds_records(before + after):
        for slot in range(max(len(before), len(after))):
            old, new = (items[slot] if slot < len(items) else ABSENT for items in (before, after))
            yield from differences(f"{path}[{slot}]", old, new)
    elif isinstance(before, frozenset) and isinstance(after, frozenset) and _holds_records(tuple(before | after)):
        yield from (Change(path, to_tla(item), str(ABSENT)) for item in sorted(before - after, key=str))
        yield from (Change(path, str(ABSENT), to_tla(item)) for item in sorted(after - before, key=str))
    else:
        yield Change(path, to_tla(before), to_tla(after))


def _holds_records(items: tuple[Value, ...]) -> bool:
    return any(isinstance(item, Function) for item in items)


def tell(trace: Sequence[State], broken: str) -> str:
    """The story as text, a step a paragraph, ending with what it broke."""
    lines = []
    for beat in story(trace):
        who = f" ({', '.join(beat.actors)})" if beat.actors else ""
        lines.append(f"{beat.number:3} {beat.action}{who}")
        lines += [f"      {change.path}: {change.before} -> {change.after}" for change in beat.changes]
    lines.append(f"    {broken} is violated")
    return "\n".join(lines)
