"""Counterexamples as a list of steps: the actor, the action, and the changes of state variables.

TLC prints whole states; a reader needs the differences.  The actor is found by state variables that are functions of
brokers: the broker whose own value changed is the one that acted.  A variable without such a function may belong to a
process (`owners`), and who sends a request is in the request.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from highwater.spec.tlc.messages import State
from highwater.spec.tlc.values import Function, ModelValue, Value, to_tla

# An MC or SIM module defines a bounded copy of an action as the prefix and the action's name.
PREFIXES: Final = ("MC", "SIM")
ABSENT: Final = ModelValue("nothing")
NO_OWNERS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Change:
    """A changed part of the state: `path` such as `leading[b1].isr`; the values are TLA+ text."""

    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class CounterexampleStep:
    """One step: its number from 1, the action, the actors (processes whose own state changed), and all changes."""

    number: int
    action: str
    actors: tuple[str, ...]
    changes: tuple[Change, ...]


def counterexample_steps(trace: Sequence[State], owners: Mapping[str, str] = NO_OWNERS) -> list[CounterexampleStep]:
    """Return the steps of a counterexample; the initial state is not a step. `owners`: processes by variable."""
    steps = []
    states = [state.variables for state in trace]
    for number, (before, after) in enumerate(pairwise(states), 1):
        changes = tuple(
            change
            for variable, value in sorted(after.items())
            for change in differences(variable, before.get(variable, ABSENT), value)
        )
        actors = set(_changed_processes(before, after, owners)) or set(_senders(before, after))
        steps.append(CounterexampleStep(number, plain_action(trace[number].action), tuple(sorted(actors)), changes))
    return steps


def _changed_processes(
    before: Mapping[str, Value], after: Mapping[str, Value], owners: Mapping[str, str]
) -> Iterator[str]:
    """Yield the processes whose own state a step changes."""
    for variable, value in after.items():
        if variable in owners and value != before[variable]:
            yield owners[variable]
        elif isinstance(value, Function):
            for key in value:
                if isinstance(key, ModelValue) and value[key] != before[variable][key]:
                    yield str(key)


def _senders(before: Mapping[str, Value], after: Mapping[str, Value]) -> Iterator[str]:
    """Yield the clients of requests that a step sends."""
    for variable, value in after.items():
        if isinstance(value, frozenset):
            for item in value - before[variable]:
                if isinstance(item, Function) and "client" in item:
                    yield str(item["client"])


def plain_action(name: str) -> str:
    """Return the name of the action without the prefix of a bounded copy: `MCFetch` is `Fetch`."""
    for prefix in PREFIXES:
        if name.startswith(prefix) and name[len(prefix) : len(prefix) + 1].isupper():
            return name.removeprefix(prefix)
    return name


def differences(path: str, before: Value, after: Value) -> Iterator[Change]:
    """Yield the smallest parts of a value that changed, inside functions, records, tuples and sets of records."""
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


def format_counterexample(trace: Sequence[State], broken: str) -> str:
    """Format a counterexample as text: one paragraph per step, and the broken property at the end."""
    lines = []
    for step in counterexample_steps(trace):
        actors = f" ({', '.join(step.actors)})" if step.actors else ""
        lines.append(f"{step.number:3} {step.action}{actors}")
        lines += [f"      {change.path}: {change.before} -> {change.after}" for change in step.changes]
    lines.append(f"    {broken} is violated")
    return "\n".join(lines)
