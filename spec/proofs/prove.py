"""Proof by induction: the invariant holds initially, every action preserves it, and it implies the promises.

z3 often fails on a quantified query with many hypotheses and succeeds with the few that are relevant.  Those are found
in a finite instance, where the same query is decidable: its unsat core names them.  The core is only a hint; the proof
is the unbounded query, with the hypotheses of the core or, if that does not suffice, with all.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

import z3

from highwater.spec.proofs.bounded import runs_to_actions
from highwater.spec.proofs.language import Action, Claim, Not, Protocol, State, Term, hold
from highwater.spec.proofs.printing import StepDescription, describe_step
from highwater.spec.proofs.semantics import Ground, Unbounded, conditions

Verdict: TypeAlias = Literal["proved", "open", "unknown"]

START: Final = "Init"
IMPLIED: Final = "follows"
FIRST_TRY_MS: Final = 1_000
LAST_TRY_MS: Final = 20_000
SEEDS: Final = (7, 42, 0)
GROUND_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Query:
    """The result for one claim after one action; `action` is `Init` at the start, `follows` for implied claims."""

    action: str
    claim: str
    verdict: Verdict
    seconds: float
    attempts: int = 1
    counterexample: StepDescription | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """The results of all queries; `reached` has, by action, the length of a run that takes it, 0 if none was found."""

    protocol: Protocol
    off: frozenset[str]
    seed: int
    queries: tuple[Query, ...]
    reached: Mapping[str, int]
    seconds: float

    @property
    def vacuous(self) -> tuple[str, ...]:
        """Return the actions for which no run was found: nothing is proved about them."""
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
    """The proof of one protocol, with the guards in `off` dropped."""

    protocol: Protocol
    off: frozenset[str] = frozenset()
    seed: int = 0
    listener: Listener = lambda query: None
    _queries: list[Query] = field(default_factory=list)

    def prove(self) -> Proof:
        """Run all queries and return the proof."""
        started = time.monotonic()
        unbounded = Unbounded(self.protocol, self.off)
        self._state = unbounded.state("before")
        self._hypotheses = {claim.name: hold(claim, self._state) for claim in self.protocol.invariant}
        self._prove_initial(unbounded)
        for action in self.protocol.actions_without(self.off):
            self._prove_preserved(action, unbounded)
        self._prove_implied()
        paths = {action.name: len(found.steps) for action, found in runs_to_actions(self.protocol, self.off)}
        return Proof(self.protocol, self.off, self.seed, tuple(self._queries), paths, time.monotonic() - started)

    def _record(self, query: Query) -> None:
        self._queries.append(query)
        self.listener(query)

    def _prove_initial(self, unbounded: Unbounded) -> None:
        initial = self.protocol.init(self._state)
        for claim in self.protocol.invariant:
            self._record(self._ask(START, claim, [initial, Not(self._hypotheses[claim.name])], [[]]))

    def _prove_implied(self) -> None:
        for claim in self.protocol.implied:
            self._record(self._ask(IMPLIED, claim, [Not(hold(claim, self._state))], [list(self._hypotheses)]))

    def _prove_preserved(self, action: Action, unbounded: Unbounded) -> None:
        """Prove that one action preserves every claim, and the claims about the step itself."""
        step = action.run(self._state, **unbounded.parameters(action))
        after = self._state.after(step)
        finite = FiniteStep(self.protocol, action, self.off)
        goals: list[tuple[Claim, tuple[State, ...]]] = [(claim, (after,)) for claim in self.protocol.invariant]
        goals += [(claim, (self._state, after)) for claim in self.protocol.steps]
        for claim, states in goals:
            started = time.monotonic()
            core = finite.core(claim)
            if isinstance(core, Query):
                self._record(core)
                continue
            plans = self._plans(finite, core, claim)
            query = self._ask(action.name, claim, [*conditions(step), Not(hold(claim, *states))], plans)
            self._record(replace(query, seconds=time.monotonic() - started))

    def _plans(self, finite: "FiniteStep", core: list[str], claim: Claim) -> Iterator[list[str]]:
        """Yield sets of hypotheses to try, one after another; the next is computed only if the one before failed."""
        claims = [lemma.name for lemma in self.protocol.invariant]
        yield core
        yield finite.minimize(claim, core)
        shapes = {lemma for lemma in claims if lemma.startswith("Type")}
        yield sorted({*core, claim.name, *shapes} & set(claims))
        yield claims

    def _ask(self, action: str, claim: Claim, goal: list[Term], plans: Iterable[list[str]]) -> Query:
        """Try plans until one proves the claim: first with short limits and several seeds, as z3 is fast or fails."""
        started = time.monotonic()
        for attempt, (names, seed, limit) in enumerate(self._attempts(plans), 1):
            if unsatisfiable([*(self._hypotheses[name] for name in names), *goal], limit, seed):
                return Query(action, claim.name, "proved", time.monotonic() - started, attempt)
        return Query(action, claim.name, "unknown", time.monotonic() - started)

    def _attempts(self, plans: Iterable[list[str]]) -> Iterator[tuple[list[str], int, int]]:
        """Yield the hypotheses, the seed and the time limit (ms) of each attempt."""
        previous_plans = []
        for plan in plans:
            yield plan, self.seed, FIRST_TRY_MS
            previous_plans.append(plan)
        for limit in (FIRST_TRY_MS, LAST_TRY_MS):
            yield from ((plan, seed, limit) for seed in SEEDS for plan in previous_plans)


def unsatisfiable(formulas: list[Term], limit_ms: int, seed: int) -> bool:
    """Return True if z3 answers `unsat` within the limit; its answers `sat` and `unknown` prove nothing here."""
    solver = z3.Solver()
    solver.set("timeout", limit_ms)
    solver.set("random_seed", seed)
    solver.add(*formulas)
    return bool(solver.check() == z3.unsat)


class FiniteStep:
    """One action in a finite instance: yields a counterexample for a claim, or the hypotheses that imply it."""

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
        """Return the hypotheses in the unsat core of a claim, or an open query with a counterexample."""
        started = time.monotonic()
        self.solver.push()
        try:
            self.solver.add(Not(self._goal(claim)))
            answer = self.solver.check(*self.literals.values())
            if answer == z3.sat:
                counterexample = describe_step(
                    self.ground, self.solver.model(), self.before, self.after, self.action, self.parameters
                )
                return Query(
                    self.action.name, claim.name, "open", time.monotonic() - started, counterexample=counterexample
                )
            used = {str(literal) for literal in self.solver.unsat_core()} if answer == z3.unsat else None
        finally:
            self.solver.pop()
        return [name for name, literal in self.literals.items() if used is None or str(literal) in used]

    def minimize(self, claim: Claim, names: list[str]) -> list[str]:
        """Return a minimal subset of the hypotheses that still implies the claim in this instance."""
        self.solver.push()
        self.solver.add(Not(self._goal(claim)))
        for name in list(names):
            others = [other for other in names if other != name]
            if self.solver.check(*(self.literals[other] for other in others)) == z3.unsat:
                names = others
        self.solver.pop()
        return names

    def _goal(self, claim: Claim) -> Term:
        about_step = any(claim is step_claim for step_claim in self.ground.protocol.steps)
        return hold(claim, self.before, self.after) if about_step else hold(claim, self.after)


def prove(
    protocol: Protocol, *, off: frozenset[str] = frozenset(), seed: int = 0, listener: Listener | None = None
) -> Proof:
    """Prove a protocol with the guards in `off` dropped; the verdict is `proved` only if every query is proved."""
    return Prover(protocol, off, seed, listener or (lambda query: None)).prove()
