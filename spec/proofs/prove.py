"""The proof: the invariant holds at the start, every action keeps it, and what users are promised follows from it.

z3 often fails on a quantified query with many hypotheses and succeeds with the few that matter.  Which ones do is found
in a finite instance, where the same query is pure search: its unsat core names them.  The core is only a hint; what
counts is the unbounded query, with the core's hypotheses or, where those do not do, with all.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

import z3

from spec.proofs.bounded import reached
from spec.proofs.language import Action, Claim, Not, Protocol, State, Term, hold
from spec.proofs.readings import Ground, Unbounded, conditions
from spec.proofs.telling import Picture, picture

Verdict: TypeAlias = Literal["proved", "open", "unknown"]

START: Final = "Init"
IMPLIED: Final = "follows"
FIRST_TRY_MS: Final = 1_000
LAST_TRY_MS: Final = 20_000
SEEDS: Final = (7, 42, 0)
GROUND_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Query:
    """One claim after one action: `action` may also be the start, or `follows` for what the invariant implies."""

    action: str
    claim: str
    verdict: Verdict
    seconds: float
    attempts: int = 1
    counterexample: Picture | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """All queries; and for each action how many steps from the start it can be taken, 0 if no such run was found."""

    protocol: Protocol
    off: frozenset[str]
    seed: int
    queries: tuple[Query, ...]
    reached: Mapping[str, int]
    seconds: float

    @property
    def vacuous(self) -> tuple[str, ...]:
        """Nothing was proved about an action that cannot be taken."""
        return tuple(action for action, steps in self.reached.items() if not steps)

    @property
    def verdict(self) -> Verdict:
        found = {query.verdict for query in self.queries}
        if "open" in found or self.vacuous:
            return "open"
        return "unknown" if "unknown" in found or not self.queries else "proved"

    @property
    def failed(self) -> tuple[Query, ...]:
        return tuple(query for query in self.queries if query.verdict != "proved")


Listener: TypeAlias = Callable[[Query], None]


@dataclass
class Prover:
    """Proves one protocol, with the guards in `off` dropped."""

    protocol: Protocol
    off: frozenset[str] = frozenset()
    seed: int = 0
    listener: Listener = lambda query: None
    _queries: list[Query] = field(default_factory=list)

    def prove(self) -> Proof:
        started = time.monotonic()
        unbounded = Unbounded(self.protocol, self.off)
        self._state = unbounded.state("before")
        self._hypotheses = {claim.name: hold(claim, self._state) for claim in self.protocol.invariant}
        self._start(unbounded)
        for action in self.protocol.actions_without(self.off):
            self._keeps(action, unbounded)
        self._follows()
        paths = {action.name: len(found.steps) for action, found in reached(self.protocol, self.off)}
        return Proof(self.protocol, self.off, self.seed, tuple(self._queries), paths, time.monotonic() - started)

    def _note(self, query: Query) -> None:
        self._queries.append(query)
        self.listener(query)

    def _start(self, unbounded: Unbounded) -> None:
        initial = self.protocol.init(self._state)
        for claim in self.protocol.invariant:
            self._note(self._ask(START, claim, [initial, Not(self._hypotheses[claim.name])], [[]]))

    def _follows(self) -> None:
        for claim in self.protocol.implied:
            self._note(self._ask(IMPLIED, claim, [Not(hold(claim, self._state))], [list(self._hypotheses)]))

    def _keeps(self, action: Action, unbounded: Unbounded) -> None:
        """Every claim after one action, and the claims about the step itself."""
        step = action.run(self._state, **unbounded.parameters(action))
        after = self._state.after(step)
        finite = FiniteStep(self.protocol, action, self.off)
        goals: list[tuple[Claim, tuple[State, ...]]] = [(claim, (after,)) for claim in self.protocol.invariant]
        goals += [(claim, (self._state, after)) for claim in self.protocol.steps]
        for claim, states in goals:
            started = time.monotonic()
            core = finite.core(claim)
            if isinstance(core, Query):
                self._note(core)
                continue
            plans = self._plans(finite, core, claim)
            query = self._ask(action.name, claim, [*conditions(step), Not(hold(claim, *states))], plans)
            self._note(replace(query, seconds=time.monotonic() - started))

    def _plans(self, finite: "FiniteStep", core: list[str], claim: Claim) -> Iterator[list[str]]:
        """Which hypotheses to try, in turn; the next plan is made when the one before has failed."""
        claims = [each.name for each in self.protocol.invariant]
        yield core
        yield finite.fewer(claim, core)
        shapes = {each for each in claims if each.startswith("Type")}
        yield sorted({*core, claim.name, *shapes} & set(claims))
        yield claims

    def _ask(self, action: str, claim: Claim, goal: list[Term], plans: Iterable[list[str]]) -> Query:
        """Until one plan proves it: z3 is quick or lost, so first each plan with a short limit and several seeds."""
        started = time.monotonic()
        for attempt, (names, seed, limit) in enumerate(self._tries(plans), 1):
            if unsatisfiable([*(self._hypotheses[name] for name in names), *goal], limit, seed):
                return Query(action, claim.name, "proved", time.monotonic() - started, attempt)
        return Query(action, claim.name, "unknown", time.monotonic() - started)

    def _tries(self, plans: Iterable[list[str]]) -> Iterator[tuple[list[str], int, int]]:
        """Hypotheses, seed and limit of each try."""
        made = []
        for plan in plans:
            yield plan, self.seed, FIRST_TRY_MS
            made.append(plan)
        for limit in (FIRST_TRY_MS, LAST_TRY_MS):
            yield from ((plan, seed, limit) for seed in SEEDS for plan in made)


def unsatisfiable(formulas: list[Term], limit_ms: int, seed: int) -> bool:
    """z3 says so within the limit. Its other answers, `sat` and `unknown`, prove nothing here."""
    solver = z3.Solver()
    solver.set("timeout", limit_ms)
    solver.set("random_seed", seed)
    solver.add(*formulas)
    return bool(solver.check() == z3.unsat)


class FiniteStep:
    """One action in a finite instance: a claim that breaks there is shown; of one that holds, why."""

    def __init__(self, protocol: Protocol, action: Action, off: frozenset[str]) -> None:
        self.action, self.ground = action, Ground(protocol, protocol.small, off)
        self.before = self.ground.state("before")
        self.parameters = self.ground.parameters(action)
        step = action.run(self.before, **self.parameters)
        self.after = self.before.after(step)
        self.solver = z3.SolverFor("QF_FD")
        self.solver.set("timeout", GROUND_MS)
        self.solver.add(*self.ground.bounds(self.before), *self.ground.bounds(self.after), *conditions(step))
        self.solver.add(*self.ground.parameter_bounds(action, self.parameters))
        self.literals = {claim.name: z3.Bool(f"use {claim.name}") for claim in protocol.invariant}
        for claim in protocol.invariant:
            self.solver.add(z3.Implies(self.literals[claim.name], hold(claim, self.before)))

    def core(self, claim: Claim) -> list[str] | Query:
        """The hypotheses that the finite instance needed, or what breaks it."""
        started = time.monotonic()
        self.solver.push()
        try:
            self.solver.add(Not(self._goal(claim)))
            answer = self.solver.check(*self.literals.values())
            if answer == z3.sat:
                shown = picture(self.ground, self.solver.model(), self.before, self.after, self.action, self.parameters)
                return Query(self.action.name, claim.name, "open", time.monotonic() - started, counterexample=shown)
            used = {str(literal) for literal in self.solver.unsat_core()} if answer == z3.unsat else None
        finally:
            self.solver.pop()
        return [name for name, literal in self.literals.items() if used is None or str(literal) in used]

    def fewer(self, claim: Claim, names: list[str]) -> list[str]:
        """The same without what this instance can do without."""
        self.solver.push()
        self.solver.add(Not(self._goal(claim)))
        for name in list(names):
            others = [each for each in names if each != name]
            if self.solver.check(*(self.literals[each] for each in others)) == z3.unsat:
                names = others
        self.solver.pop()
        return names

    def _goal(self, claim: Claim) -> Term:
        about_step = any(claim is each for each in self.ground.protocol.steps)
        return hold(claim, self.before, self.after) if about_step else hold(claim, self.after)


def prove(
    protocol: Protocol, *, off: frozenset[str] = frozenset(), seed: int = 0, listener: Listener | None = None
) -> Proof:
    """Prove a protocol with the guards in `off` dropped; the verdict is `proved` only if every query is."""
    return Prover(protocol, off, seed, listener or (lambda query: None)).prove()
