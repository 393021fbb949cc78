"""States of a finite instance in words: a counterexample to induction, and a run as a story."""

from collections.abc import Mapping
from dataclasses import dataclass

import z3

from spec.proofs.language import TRUTH, Action, Choice, Number, Signature, Sort, State, Term
from spec.proofs.readings import Ground, as_signature
from spec.story import Change


@dataclass(frozen=True, slots=True)
class Picture:
    """One step: the action with its parameters, all that held before, and what changed."""

    action: str
    before: Mapping[str, str]
    changes: tuple[Change, ...]

    def text(self) -> str:
        told = ", ".join(f"{path} = {value}" for path, value in self.before.items())
        changed = [f"      {change.path}: {change.before} -> {change.after}" for change in self.changes]
        return "\n".join([f"    before: {told}", f"    {self.action}", *changed])


def picture(
    ground: Ground, model: z3.ModelRef, before: State, after: State, action: Action, parameters: Mapping[str, Term]
) -> Picture:
    old, new = (values_of(ground, model, state) for state in (before, after))
    return Picture(named(ground, model, action, parameters), shown(ground, old), differences(old, new))


def named(ground: Ground, model: z3.ModelRef, action: Action, parameters: Mapping[str, Term]) -> str:
    """`Claim(controller1)`."""
    protocol = ground.protocol
    told = [
        text
        for word, term in parameters.items()
        for text in _values(ground, model, word, as_signature(protocol.meaning(word)), term).values()
    ]
    return f"{action.name}({', '.join(told)})"


def values_of(ground: Ground, model: z3.ModelRef, state: State) -> dict[str, str]:
    """Every place of every variable: `leader[p1]` to `b2`."""
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
    """A constant by its name, others by sort and number."""
    if sort == TRUTH:
        return "yes" if z3.is_true(value) else "no"
    if isinstance(sort, Number):
        return str(value.as_signed_long())
    number = value.as_long()
    if isinstance(sort, Choice):
        return str(sort.values[number])
    for name, of in ground.protocol.constants.items():
        if of == sort and number == 0:
            return name
    return f"{sort.name.lower()}{number}"


def shown(ground: Ground, values: Mapping[str, str]) -> dict[str, str]:
    """What is worth telling of a state: not what is nothing, nobody or zero."""
    dull = {"no", "0", *ground.protocol.constants}
    return {path: value for path, value in values.items() if value not in dull}


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[Change, ...]:
    return tuple(Change(path, old[path], new[path]) for path in old if old[path] != new[path])
