"""Load the protocols of `highwater spec prove`, and format results as text, Markdown rows and JSON."""

import importlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from highwater.errors import UsageError
from highwater.spec.proofs.language import Protocol
from highwater.spec.proofs.mutants import DropResult
from highwater.spec.proofs.prove import Proof, Query

PROTOCOLS: Final = (
    *("isr_commit", "hw_truncation", "controller_failover"),
    *("eager_rebalance", "cooperative_rebalance", "sequence_window", "transactions"),
)

# Takes longer, and runs only with --research (research.py).
RESEARCH: Final = "hw_truncation_with_crashes"
ESSENTIAL_CLAIM: Final = "MembersWereClean"  # research.py shows the counterexample without this claim
MODULES: Final = {
    **{name: f"highwater.spec.{name}.proof" for name in PROTOCOLS},
    RESEARCH: "highwater.spec.proofs.crashes",
}


def load(name: str) -> Protocol:
    """Return a protocol by name; raise UsageError with the known names if there is none."""
    if name not in MODULES:
        raise UsageError(f"no protocol {name!r}", hint=f"known: {', '.join(MODULES)}")
    protocol: Protocol = importlib.import_module(MODULES[name]).PROTOCOL
    return protocol


def size(protocol: Protocol) -> int:
    """Return the number of queries of a proof."""
    claims, steps = len(protocol.invariant), len(protocol.steps)
    actions = len(protocol.actions_without(frozenset()))
    return claims + actions * (claims + steps) + len(protocol.implied)


def proof_lines(proof: Proof) -> Iterator[str]:
    """Yield the result of a proof as lines of text, with the first counterexample to induction."""
    protocol = proof.protocol
    actions = len(protocol.actions_without(proof.off))
    name = " ".join([protocol.name, *(f"without {guard}" for guard in sorted(proof.off))])
    yield (
        f"{proof.verdict:8}{name:28}{' ' if proof.off else ''}{actions} actions, {len(protocol.claims)} claims, "
        f"{len(proof.queries)} queries ({proof.seconds:.1f} s)"
    )
    for action in proof.vacuous:
        yield f"    {action} cannot be taken within {protocol.depth} steps, so nothing is proved about it"
    for query in proof.failed:
        yield f"    {query.action} and {query.claim}: {query.verdict}"
    for query in proof.failed:
        if query.counterexample:
            yield f"  {query.action} breaks {query.claim}, from a state that may be unreachable:"
            yield query.counterexample.text()
            return


def drop_lines(dropped: DropResult, *, verbose: bool) -> Iterator[str]:
    """Yield the result without a guard as lines of text; `verbose` adds the steps that break the promise."""
    mark = dropped.outcome if dropped.as_expected or dropped.undecided else "FAILS"
    yield f"  {mark:10}without {dropped.drop.guard:26}{dropped.text} ({dropped.seconds:.1f} s)"
    if dropped.broken_claim:
        yield f"            not preserved by {dropped.broken_claim.action}: {dropped.broken_claim.claim}"
    if verbose and dropped.counterexample:
        yield dropped.counterexample


def summary(proofs: Sequence[Proof], drops: Sequence[tuple[Protocol, DropResult]]) -> dict[str, Any]:
    """Return all results as a JSON object."""
    return {
        "proofs": [
            {
                "protocol": proof.protocol.name,
                "without": sorted(proof.off),
                "verdict": proof.verdict,
                "seed": proof.seed,
                "actions": proof.reached,
                "claims": {claim.name: claim.sentence for claim in proof.protocol.claims.values()},
                "promises": proof.protocol.promises,
                "queries": len(proof.queries),
                "seconds": round(proof.seconds, 1),
                "vacuous": proof.vacuous,
                "failed": [_failed(query) for query in proof.failed],
            }
            for proof in proofs
        ],
        "drops": [
            {
                "protocol": protocol.name,
                "guard": dropped.drop.guard,
                "outcome": dropped.outcome,
                "expected": dropped.as_expected,
                "breaks": dropped.drop.breaks,
                "steps": [step.action for step in dropped.run.steps] if dropped.run else [],
                "seconds": round(dropped.seconds, 1),
            }
            for protocol, dropped in drops
        ],
    }


def _failed(query: Query) -> dict[str, Any]:
    counterexample = query.counterexample.text() if query.counterexample else ""
    return {"action": query.action, "claim": query.claim, "verdict": query.verdict, "counterexample": counterexample}


def table(proofs: Sequence[Proof]) -> list[str]:
    """Return the rows of the table in README.md."""
    return [
        f"| `{proof.protocol.name}` | {len(proof.reached)} | {len(proof.protocol.claims)} "
        f"| {len(proof.queries)} | {proof.seconds:.0f} | {proof.verdict} |"
        for proof in proofs
    ]
