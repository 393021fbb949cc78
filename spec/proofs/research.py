"""The research proof: it takes longer than the seven others, is reported separately, and never changes the exit code.

Three more results are reported with the proof: a counterexample to induction without its essential claim, the shortest
run that loses a record if the fault budget is exceeded, and a bounded search that does not use the invariant.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from highwater.spec.proofs.bounded import SearchResult, violation
from highwater.spec.proofs.language import Protocol
from highwater.spec.proofs.mutants import DropResult, drop_guard, first_broken_claim
from highwater.spec.proofs.prove import Listener, Proof, Query, prove
from highwater.spec.proofs.report import drop_lines, proof_lines

DEPTH: Final = 7  # the bounded search reaches this depth in about a minute
LIMIT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Research:
    """The results of the research proof.

    `broken_claim`: the query that fails without `claim`; `search`: the bounded search for a violation of the first
    promise; `budget`: the result without the first guard (the fault budget).
    """

    proof: Proof
    claim: str
    broken_claim: Query | None
    search: SearchResult
    budget: DropResult

    @property
    def protocol(self) -> Protocol:
        return self.proof.protocol


def research(
    protocol: Protocol, claim: str, *, seed: int = 0, depth: int = DEPTH, listener: Listener | None = None
) -> Research:
    """Prove the protocol; then try without one claim, search `depth` steps, and drop the first guard."""
    drop = protocol.drops[0]
    return Research(
        prove(protocol, seed=seed, listener=listener),
        claim,
        first_broken_claim(without_claim(protocol, claim), frozenset()),
        violation(protocol, protocol.promises[0], off=frozenset(), depth=depth, finite=drop.instance, limit_s=LIMIT_S),
        drop_guard(protocol, drop, seed=seed),
    )


def without_claim(protocol: Protocol, claim: str) -> Protocol:
    """Return the protocol without one claim of its invariant."""
    return replace(protocol, invariant=tuple(other for other in protocol.invariant if other.name != claim))


def search_summary(protocol: Protocol, search: SearchResult) -> str:
    """Return the outcome of the bounded search as text."""
    promise = protocol.promises[0]
    if search.steps:
        return f"{promise} broken in {len(search.steps)} steps"
    outcome = "nothing broken" if search.decided else "no answer in time"
    return f"{promise}: {outcome} within {search.depth} steps"


def research_lines(found: Research) -> Iterator[str]:
    """Yield the results as lines of text."""
    yield from proof_lines(found.proof)
    yield f"  search    {search_summary(found.protocol, found.search)} ({found.search.seconds:.1f} s)"
    if found.search.steps:
        yield found.search.text(f"{found.protocol.promises[0]} is violated")
    yield from drop_lines(found.budget, verbose=True)
    if found.broken_claim and found.broken_claim.counterexample:
        query = found.broken_claim
        yield f"  needs     {found.claim}: else {query.action} breaks {query.claim}, from an unreachable state:"
        yield found.broken_claim.counterexample.text()


def research_summary(found: Research) -> dict[str, Any]:
    """Return the results as a JSON object."""
    return {
        "protocol": found.protocol.name,
        "verdict": found.proof.verdict,
        "queries": len(found.proof.queries),
        "seconds": round(found.proof.seconds, 1),
        "searched": search_summary(found.protocol, found.search),
        "budget": found.budget.text,
        "needs": found.claim,
        "counterexample": found.broken_claim.counterexample.text()
        if found.broken_claim and found.broken_claim.counterexample
        else "",
    }
