"""A protocol without one of its guards: a run that breaks a promise, or a proof that the guard is not needed for it."""

import time
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from spec.proofs.bounded import LIMIT_S, Found, violation
from spec.proofs.language import Drop, Protocol
from spec.proofs.prove import FiniteStep, Listener, Proof, Query, prove

Outcome: TypeAlias = Literal["killed", "redundant", "open"]


@dataclass(frozen=True, slots=True)
class Dropped:
    """What came out: `lost` is the first claim that some action no longer keeps (which alone is no bug yet)."""

    drop: Drop
    outcome: Outcome
    seconds: float
    run: Found | None = None
    proof: Proof | None = None
    lost: Query | None = None

    @property
    def as_expected(self) -> bool:
        """Killed in the number of steps that is written down, where z3 could tell that none is shorter."""
        if self.drop.redundant:
            return self.outcome == "redundant"
        found = len(self.run.steps) if self.run else 0
        return found == self.drop.steps or (found > 0 and self.run is not None and not self.run.sure)

    @property
    def undecided(self) -> bool:
        """z3 ran out of time without a run."""
        return self.run is not None and not self.run.steps and not self.run.sure

    @property
    def text(self) -> str:
        if self.run and self.run.steps:
            shortest = "" if self.run.sure else "at most "
            return f"{self.drop.breaks} broken in {shortest}{len(self.run.steps)} steps"
        if self.outcome == "redundant":
            more = f" (one more claim: {', '.join(each.name for each in self.drop.more)})" if self.drop.more else ""
            return f"redundant, proved without it{more}: {self.drop.redundant}"
        return f"nothing broken within {self.drop.steps} steps, nothing proved"

    @property
    def story(self) -> str:
        return self.run.text(f"{self.drop.breaks} is violated") if self.run and self.run.steps else ""


def drop_guard(
    protocol: Protocol, drop: Drop, *, seed: int = 0, limit_s: float = LIMIT_S, listener: Listener | None = None
) -> Dropped:
    started = time.monotonic()
    off = frozenset({drop.guard})
    if drop.redundant:
        wider = replace(protocol, invariant=(*protocol.invariant, *drop.more))
        proof = prove(wider, off=off, seed=seed, listener=listener)
        outcome: Outcome = "redundant" if proof.verdict == "proved" else "open"
        return Dropped(drop, outcome, time.monotonic() - started, proof=proof)
    lost = first_lost(protocol, off)
    instance = drop.instance or protocol.small
    run = violation(protocol, drop.breaks, off=off, depth=drop.steps, finite=instance, limit_s=limit_s)
    return Dropped(drop, "killed" if run.steps else "open", time.monotonic() - started, run=run, lost=lost)


def first_lost(protocol: Protocol, off: frozenset[str]) -> Query | None:
    """A claim that an action breaks, though all held before it."""
    for action in protocol.actions_without(off):
        finite = FiniteStep(protocol, action, off)
        for claim in (*protocol.invariant, *protocol.steps):
            found = finite.core(claim)
            if isinstance(found, Query):
                return found
    return None
