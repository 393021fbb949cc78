"""Bounded search: a run of a finite instance from the start that ends badly, or that takes a given action.

One query asks for any run of up to so many steps, padded with idle ones in front; then shorter ones are asked for until
there is none.  A claim that breaks here is broken for good; one that does not may break in a longer run.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import z3

from spec.proofs.language import Action, Claim, Finite, Implies, Not, Or, Protocol, Term, hold
from spec.proofs.readings import Ground, conditions
from spec.proofs.telling import Picture, picture

LIMIT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Found:
    """What came out: the steps of a run, or none up to `depth`; `sure`: z3 decided within the limit.

    Of a run that was found, `sure` says that none is shorter.
    """

    steps: tuple[Picture, ...]
    depth: int
    sure: bool
    seconds: float

    def text(self, ending: str) -> str:
        lines = []
        for number, each in enumerate(self.steps, 1):
            lines.append(f"{number:3} {each.action}")
            lines += [f"      {change.path}: {change.before} -> {change.after}" for change in each.changes]
        return "\n".join([*lines, f"    {ending}"])


class Unrolled:
    """All runs of up to `depth` steps."""

    def __init__(self, protocol: Protocol, finite: Finite, depth: int, off: frozenset[str] = frozenset()) -> None:
        self.protocol, self.off, self.depth = protocol, off, depth
        self.ground = Ground(protocol, finite, off)
        self.actions = protocol.actions_without(off)
        self.solver = z3.SolverFor("QF_FD")
        self.states = [self.ground.state("0")]
        self.parameters: list[list[dict[str, Term]]] = []
        self.taken: list[list[Term]] = []
        self.solver.add(*self.ground.bounds(self.states[0]), protocol.init(self.states[0]))
        for number in range(1, depth + 1):
            self._step(number)

    def _step(self, number: int) -> None:
        """One action, or none; who has begun does not idle."""
        taken = [z3.Bool(f"{action.name}#{number}") for action in self.actions]
        self.solver.add(z3.AtMost(*taken, 1))
        if self.taken:
            self.solver.add(Implies(Or(*self.taken[-1]), Or(*taken)))
        before, after = self.states[-1], self.ground.state(str(number))
        shared = self._shared_parameters(number)
        parameters = [{word: shared[word] for word in action.parameters} for action in self.actions]
        changed: dict[str, list[tuple[Term, list[Term]]]] = {}
        for action, here, chosen in zip(self.actions, taken, parameters, strict=True):
            step = action.run(before, **chosen)
            self.solver.add(*(Implies(here, condition) for condition in conditions(step)))
            led_to = before.after(step)
            for name in step.then:
                cells = self.ground.cells(self.protocol.variables[name], led_to.variables[name])
                changed.setdefault(name, []).append((here, cells))
        for name, signature in self.protocol.variables.items():
            old, new = (self.ground.cells(signature, state.variables[name]) for state in (before, after))
            for place, cell in enumerate(old):
                for here, cells in changed.get(name, []):
                    cell = z3.If(here, cells[place], cell)  # noqa: PLW2901
                self.solver.add(new[place] == cell)
        self.solver.add(*self.ground.bounds(after))
        self.states.append(after)
        self.taken.append(taken)
        self.parameters.append(parameters)

    def _shared_parameters(self, number: int) -> dict[str, Term]:
        """A word stands for one value in a step, whichever action it is."""
        shared: dict[str, Term] = {}
        for action in self.actions:
            fresh = self.ground.parameters(action, str(number))
            chosen = {word: shared.get(word, term) for word, term in fresh.items()}
            self.solver.add(*self.ground.parameter_bounds(action, chosen))
            shared.update(chosen)
        return shared

    def search(self, goal: Term, limit_s: float = LIMIT_S, *, shortest: bool = True) -> Found:
        """A run to the goal; the shortest takes longer to find."""
        started = time.monotonic()
        best: tuple[Picture, ...] = ()
        longest = self.depth
        while True:
            left = limit_s - (time.monotonic() - started)
            answer = self._ask(goal, longest, left) if left > 0 else z3.unknown
            if answer != z3.sat:
                sure = answer == z3.unsat
                return Found(best, len(best) or self.depth, sure, time.monotonic() - started)
            best = tuple(self._told(self.solver.model()))
            longest = len(best) - 1
            if not shortest:
                return Found(best, len(best), True, time.monotonic() - started)

    def _ask(self, goal: Term, longest: int, limit_s: float) -> z3.CheckSatResult:
        """With at most `longest` steps that are not idle."""
        self.solver.set("timeout", max(1, int(limit_s * 1000)))
        idle = [Not(Or(*taken)) for taken in self.taken[: self.depth - longest]]
        return self.solver.check(goal, *map(self._literal, idle))

    def _literal(self, formula: Term) -> Term:
        """Assumptions must be literals."""
        literal = z3.FreshBool("assume")
        self.solver.add(Implies(literal, formula))
        return literal

    def _told(self, model: z3.ModelRef) -> Iterator[Picture]:
        for number, taken in enumerate(self.taken):
            for action, here, chosen in zip(self.actions, taken, self.parameters[number], strict=True):
                if z3.is_true(model.eval(here)):
                    before, after = self.states[number], self.states[number + 1]
                    yield picture(self.ground, model, before, after, action, chosen)

    def broken(self, claim: Claim) -> Term:
        """The last state breaks the claim, or the last step does."""
        states = self.states[-2:] if claim in self.protocol.steps else self.states[-1:]
        return self._literal(Not(hold(claim, *states)))

    def takes(self, action: Action) -> Term:
        return self.taken[-1][self.actions.index(action)]


def violation(
    protocol: Protocol,
    claim: str,
    *,
    off: frozenset[str],
    depth: int,
    finite: Finite | None = None,
    limit_s: float = LIMIT_S,
) -> Found:
    """The shortest run, of up to `depth` steps, that breaks a claim."""
    unrolled = Unrolled(protocol, finite or protocol.small, depth, off)
    return unrolled.search(unrolled.broken(protocol.claims[claim]), limit_s)


def reached(protocol: Protocol, off: frozenset[str] = frozenset()) -> Iterator[tuple[Action, Found]]:
    """For each action a run that ends with it."""
    unrolled = Unrolled(protocol, protocol.small, protocol.depth, off)
    for action in unrolled.actions:
        yield action, unrolled.search(unrolled.takes(action), shortest=False)
