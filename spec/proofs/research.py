"""What goes beyond the five proofs: takes longer, is told apart, and never changes the exit code.

Beside the proof stand what makes it necessary and what checks it: a counterexample to induction without the claim
that carries it, the shortest loss beyond the fault budget, and a bounded search that knows no invariant.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from spec.proofs.bounded import Found, violation
from spec.proofs.drops import Dropped, drop_guard, first_lost
from spec.proofs.language import Protocol
from spec.proofs.prove import Listener, Proof, Query, prove
from spec.proofs.report import drop_lines, proof_lines

DEPTH: Final = 7  # as deep as the bounded search comes in about a minute
LIMIT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Research:
    """`lost`: what breaks without `claim`; `search`: the first promise, bounded; `budget`: without the first guard."""

    proof: Proof
    claim: str
    lost: Query | None
    search: Found
    budget: Dropped

    @property
    def protocol(self) -> Protocol:
        return self.proof.protocol


def research(
    protocol: Protocol, claim: str, *, seed: int = 0, depth: int = DEPTH, listener: Listener | None = None
) -> Research:
    """The proof; then without one claim, within `depth` steps, and without the first guard."""
    drop = protocol.drops[0]
    return Research(
        prove(protocol, seed=seed, listener=listener),
        claim,
        first_lost(without(protocol, claim), frozenset()),
        violation(protocol, protocol.promises[0], off=frozenset(), depth=depth, finite=drop.instance, limit_s=LIMIT_S),
        drop_guard(protocol, drop, seed=seed),
    )


def without(protocol: Protocol, claim: str) -> Protocol:
    return replace(protocol, invariant=tuple(each for each in protocol.invariant if each.name != claim))


def searched(protocol: Protocol, search: Found) -> str:
    promise = protocol.promises[0]
    if search.steps:
        return f"{promise} broken in {len(search.steps)} steps"
    sure = "nothing broken" if search.sure else "no answer in time"
    return f"{promise}: {sure} within {search.depth} steps"


def research_lines(found: Research) -> Iterator[str]:
    yield from proof_lines(found.proof)
    yield f"  searched  {searched(found.protocol, found.search)} ({found.search.seconds:.1f} s)"
    if found.search.steps:
        yield found.search.text(f"{found.protocol.promises[0]} is violated")
    yield from drop_lines(found.budget, told=True)
    if found.lost and found.lost.counterexample:
        yield f"  needs     {found.claim}: else {found.lost.action} breaks {found.lost.claim}, out of reach:"
        yield found.lost.counterexample.text()


def research_summary(found: Research) -> dict[str, Any]:
    return {
        "protocol": found.protocol.name,
        "verdict": found.proof.verdict,
        "queries": len(found.proof.queries),
        "seconds": round(found.proof.seconds, 1),
        "searched": searched(found.protocol, found.search),
        "budget": found.budget.text,
        "needs": found.claim,
        "counterexample": found.lost.counterexample.text() if found.lost and found.lost.counterexample else "",
    }
