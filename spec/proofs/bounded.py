"""Bounded search in a finite instance: find a run from the start that breaks a claim, or that takes a given action.

The first query asks for any run of up to `depth` steps, padded with idle steps at the start; further queries ask for
shorter runs until there is none.  A violation found here is real; if none is found, a longer run may still have one.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import z3

from highwater.spec.proofs.language import Action, Claim, Finite, Implies, Not, Or, Protocol, Term, hold
from highwater.spec.proofs.printing import StepDescription, describe_step
from highwater.spec.proofs.semantics import Ground, conditions

LIMIT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result: the steps of a run, or no steps if none of up to `depth` steps was found.

    `decided`: z3 decided within the limit; if a run was found, that no run is shorter.
    """

    steps: tuple[StepDescription, ...]
    depth: int
    decided: bool
    seconds: float

    def text(self, ending: str) -> str:
        lines = []
        for number, step in enumerate(self.steps, 1):
            lines.append(f"{number:3} {step.action}")
            lines += [f"      {change.path}: {change.before} -> {change.after}" for change in step.changes]
        return "\n".join([*lines, f"    {ending}"])


class Unrolled:
    """All runs of up to `depth` steps, as one z3 formula."""

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
        """Add one step: at most one action; after the first action, every later step takes an action."""
        taken = [z3.Bool(f"{action.name}#{number}") for action in self.actions]
        self.solver.add(z3.AtMost(*taken, 1))
        if self.taken:
            self.solver.add(Implies(Or(*self.taken[-1]), Or(*taken)))
        before, after = self.states[-1], self.ground.state(str(number))
        shared = self._shared_parameters(number)
        parameters = [{parameter: shared[parameter] for parameter in action.parameters} for action in self.actions]
        changed: dict[str, list[tuple[Term, list[Term]]]] = {}
        for action, chosen_action, arguments in zip(self.actions, taken, parameters, strict=True):
            step = action.run(before, **arguments)
            self.solver.add(*(Implies(chosen_action, condition) for condition in conditions(step)))
            successor = before.after(step)
            for name in step.then:
                cells = self.ground.cells(self.protocol.variables[name], successor.variables[name])
                changed.setdefault(name, []).append((chosen_action, cells))
        for name, signature in self.protocol.variables.items():
            old, new = (self.ground.cells(signature, state.variables[name]) for state in (before, after))
            for place, cell in enumerate(old):
                for chosen_action, cells in changed.get(name, []):
                    cell = z3.If(chosen_action, cells[place], cell)  # noqa: PLW2901
                self.solver.add(new[place] == cell)
        self.solver.add(*self.ground.bounds(after))
        self.states.append(after)
        self.taken.append(taken)
        self.parameters.append(parameters)

    def _shared_parameters(self, number: int) -> dict[str, Term]:
        """Return the parameters of a step: actions share a variable for each parameter name, as only one is taken."""
        shared: dict[str, Term] = {}
        for action in self.actions:
            fresh = self.ground.parameters(action, str(number))
            arguments = {parameter: shared.get(parameter, term) for parameter, term in fresh.items()}
            self.solver.add(*self.ground.parameter_bounds(action, arguments))
            shared.update(arguments)
        return shared

    def search(self, goal: Term, limit_s: float = LIMIT_S, *, shortest: bool = True) -> SearchResult:
        """Search for a run that ends in the goal; the `shortest` takes longer to find."""
        started = time.monotonic()
        best: tuple[StepDescription, ...] = ()
        max_steps = self.depth
        while True:
            remaining_s = limit_s - (time.monotonic() - started)
            answer = self._ask(goal, max_steps, remaining_s) if remaining_s > 0 else z3.unknown
            if answer != z3.sat:
                decided = answer == z3.unsat
                return SearchResult(best, len(best) or self.depth, decided, time.monotonic() - started)
            best = tuple(self._steps_of(self.solver.model()))
            max_steps = len(best) - 1
            if not shortest:
                return SearchResult(best, len(best), True, time.monotonic() - started)

    def _ask(self, goal: Term, max_steps: int, limit_s: float) -> z3.CheckSatResult:
        """Ask z3 for a run with at most `max_steps` steps that are not idle."""
        self.solver.set("timeout", max(1, int(limit_s * 1000)))
        idle = [Not(Or(*taken)) for taken in self.taken[: self.depth - max_steps]]
        return self.solver.check(goal, *map(self._literal, idle))

    def _literal(self, formula: Term) -> Term:
        """Return a new literal that implies the formula: z3 accepts only literals as assumptions."""
        literal = z3.FreshBool("assume")
        self.solver.add(Implies(literal, formula))
        return literal

    def _steps_of(self, model: z3.ModelRef) -> Iterator[StepDescription]:
        for number, taken in enumerate(self.taken):
            for action, chosen_action, arguments in zip(self.actions, taken, self.parameters[number], strict=True):
                if z3.is_true(model.eval(chosen_action)):
                    before, after = self.states[number], self.states[number + 1]
                    yield describe_step(self.ground, model, before, after, action, arguments)

    def broken(self, claim: Claim) -> Term:
        """Return the goal: the last state, or the last step, violates the claim."""
        states = self.states[-2:] if claim in self.protocol.steps else self.states[-1:]
        return self._literal(Not(hold(claim, *states)))

    def takes_action(self, action: Action) -> Term:
        """Return the goal: the last step takes this action."""
        return self.taken[-1][self.actions.index(action)]


def violation(
    protocol: Protocol,
    claim: str,
    *,
    off: frozenset[str],
    depth: int,
    finite: Finite | None = None,
    limit_s: float = LIMIT_S,
) -> SearchResult:
    """Search for the shortest run of up to `depth` steps that breaks a claim."""
    unrolled = Unrolled(protocol, finite or protocol.small, depth, off)
    return unrolled.search(unrolled.broken(protocol.claims[claim]), limit_s)


def runs_to_actions(protocol: Protocol, off: frozenset[str] = frozenset()) -> Iterator[tuple[Action, SearchResult]]:
    """Yield, for each action, the search for a run that ends with it."""
    unrolled = Unrolled(protocol, protocol.small, protocol.depth, off)
    for action in unrolled.actions:
        yield action, unrolled.search(unrolled.takes_action(action), shortest=False)
