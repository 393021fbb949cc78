"""Check a protocol without one guard: find a run that breaks a promise, or prove that the guard is redundant."""

import time
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from highwater.spec.proofs.bounded import LIMIT_S, SearchResult, violation
from highwater.spec.proofs.language import Drop, Protocol
from highwater.spec.proofs.prove import FiniteStep, Listener, Proof, Query, prove

Outcome: TypeAlias = Literal["killed", "redundant", "open"]


@dataclass(frozen=True, slots=True)
class DropResult:
    """The result without a guard.

    `broken_claim` is the first claim that some action no longer preserves; that alone does not show a bug, because the
    state before may be unreachable.
    """

    drop: Drop
    outcome: Outcome
    seconds: float
    run: SearchResult | None = None
    proof: Proof | None = None
    broken_claim: Query | None = None

    @property
    def as_expected(self) -> bool:
        """True if the outcome is the expected one, and the number of steps too if z3 proved it minimal."""
        if self.drop.redundant:
            return self.outcome == "redundant"
        found = len(self.run.steps) if self.run else 0
        return found == self.drop.steps or (found > 0 and self.run is not None and not self.run.decided)

    @property
    def undecided(self) -> bool:
        """True if z3 found no run and ran out of time."""
        return self.run is not None and not self.run.steps and not self.run.decided

    @property
    def text(self) -> str:
        if self.run and self.run.steps:
            shortest = "" if self.run.decided else "at most "
            return f"{self.drop.breaks} broken in {shortest}{len(self.run.steps)} steps"
        if self.outcome == "redundant":
            more = f" (one more claim: {', '.join(each.name for each in self.drop.more)})" if self.drop.more else ""
            return f"redundant, proved without it{more}: {self.drop.redundant}"
        return f"nothing broken within {self.drop.steps} steps, nothing proved"

    @property
    def counterexample(self) -> str:
        return self.run.text(f"{self.drop.breaks} is violated") if self.run and self.run.steps else ""


def drop_guard(
    protocol: Protocol, drop: Drop, *, seed: int = 0, limit_s: float = LIMIT_S, listener: Listener | None = None
) -> DropResult:
    """Drop one guard: prove the protocol if the guard is redundant, else search for a run that breaks a promise."""
    started = time.monotonic()
    off = frozenset({drop.guard})
    if drop.redundant:
        with_lemmas = replace(protocol, invariant=(*protocol.invariant, *drop.more))
        proof = prove(with_lemmas, off=off, seed=seed, listener=listener)
        outcome: Outcome = "redundant" if proof.verdict == "proved" else "open"
        return DropResult(drop, outcome, time.monotonic() - started, proof=proof)
    broken_claim = first_broken_claim(protocol, off)
    instance = drop.instance or protocol.small
    run = violation(protocol, drop.breaks, off=off, depth=drop.steps, finite=instance, limit_s=limit_s)
    return DropResult(
        drop, "killed" if run.steps else "open", time.monotonic() - started, run=run, broken_claim=broken_claim
    )


def prove_kept(protocol: Protocol, drop: Drop, *, seed: int = 0, listener: Listener | None = None) -> Proof:
    """Prove what the protocol keeps without a guard (`Drop.keeps`), from these claims alone."""
    kept = tuple(claim for claim in protocol.invariant if claim.name in drop.keeps)
    assert len(kept) == len(drop.keeps), f"{protocol.name} has no claim {set(drop.keeps) - set(protocol.claims)}"
    return prove(replace(protocol, invariant=kept), off=frozenset({drop.guard}), seed=seed, listener=listener)


def first_broken_claim(protocol: Protocol, off: frozenset[str]) -> Query | None:
    """Return the first claim that an action breaks in a state where all claims held, or None."""
    for action in protocol.actions_without(off):
        finite = FiniteStep(protocol, action, off)
        for claim in (*protocol.invariant, *protocol.steps):
            found = finite.core(claim)
            if isinstance(found, Query):
                return found
    return None
