"""Describe the steps and states of a finite instance as text, for counterexamples to induction and for runs."""

from collections.abc import Mapping
from dataclasses import dataclass

import z3

from highwater.spec.proofs.language import TRUTH, Action, Choice, Number, Signature, Sort, State, Term
from highwater.spec.proofs.semantics import Ground, as_signature
from highwater.spec.tlc.counterexample import Change


@dataclass(frozen=True, slots=True)
class StepDescription:
    """One step: the action with its parameters, the state before, and the changes."""

    action: str
    before: Mapping[str, str]
    changes: tuple[Change, ...]

    def text(self) -> str:
        arguments = ", ".join(f"{path} = {value}" for path, value in self.before.items())
        changed = [f"      {change.path}: {change.before} -> {change.after}" for change in self.changes]
        return "\n".join([f"    before: {arguments}", f"    {self.action}", *changed])


def describe_step(
    ground: Ground, model: z3.ModelRef, before: State, after: State, action: Action, parameters: Mapping[str, Term]
) -> StepDescription:
    old, new = (values_of(ground, model, state) for state in (before, after))
    return StepDescription(
        format_action(ground, model, action, parameters), non_default_values(ground, old), differences(old, new)
    )


def format_action(ground: Ground, model: z3.ModelRef, action: Action, parameters: Mapping[str, Term]) -> str:
    """Return an action with its parameters, such as `Claim(controller1)`."""
    protocol = ground.protocol
    arguments = [
        text
        for parameter, term in parameters.items()
        for text in _values(ground, model, parameter, as_signature(protocol.sort_of(parameter)), term).values()
    ]
    return f"{action.name}({', '.join(arguments)})"


def values_of(ground: Ground, model: z3.ModelRef, state: State) -> dict[str, str]:
    """Return the value of every cell of every variable, such as `leader[p1]` with `b2`."""
    return {
        path: value
        for name, signature in ground.protocol.variables.items()
        for path, value in _values(ground, model, name, signature, state.variables[name]).items()
    }


def _values(ground: Ground, model: z3.ModelRef, name: str, signature: Signature, term: Term) -> dict[str, str]:
    found = {}
    for place, cell in zip(ground.places(signature), ground.cells(signature, term), strict=True):
        names = [_name(ground, sort, value) for sort, value in zip(signature.arguments, place, strict=True)]
        path = f"{name}[{', '.join(names)}]" if names else name
        found[path] = _name(ground, signature.result, model.eval(cell, model_completion=True))
    return found


def _name(ground: Ground, sort: Sort, value: Term) -> str:
    """Return the name of a value: a constant by its name, other values by sort and number."""
    if sort == TRUTH:
        return "yes" if z3.is_true(value) else "no"
    if isinstance(sort, Number):
        return str(value.as_signed_long())
    number = value.as_long()
    if isinstance(sort, Choice):
        return str(sort.values[number])
    for name, constant_sort in ground.protocol.constants.items():
        if constant_sort == sort and number == 0:
            return name
    return f"{sort.name.lower()}{number}"


def non_default_values(ground: Ground, values: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a state without default ones: `no`, zero, and constants such as `nobody`."""
    default_values = {"no", "0", *ground.protocol.constants}
    return {path: value for path, value in values.items() if value not in default_values}


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[Change, ...]:
    return tuple(Change(path, old[path], new[path]) for path in old if old[path] != new[path])
