"""Run proofs one after another, and show the progress."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from highwater.errors import Verdict, worst
from highwater.spec.proofs.crosscheck import Comparison, compare, compare_steps
from highwater.spec.proofs.language import Protocol
from highwater.spec.proofs.mutants import DropResult, drop_guard, prove_kept
from highwater.spec.proofs.prove import Listener, Proof, prove
from highwater.spec.proofs.report import ESSENTIAL_CLAIM, RESEARCH, drop_lines, load, proof_lines, size
from highwater.spec.proofs.research import research, research_lines, research_summary


def run(
    protocols: Sequence[Protocol], emit: Callable[[str], None], *, seed: int, drops: bool, deep: bool, verbose: bool
) -> tuple[list[Proof], list[tuple[Protocol, DropResult]], Verdict]:
    """Run all proofs, each with the comparison of its steps with TLA+; (`deep`) compare states; then drop each guard.

    A proof is followed by that of what it keeps without a guard, if it keeps something (`Drop.keeps`).
    `emit` receives each line of output; `verbose` adds the steps that break a promise without a guard.
    """
    proofs: list[Proof] = []
    same: list[bool] = []
    dropped: list[tuple[Protocol, DropResult]] = []
    for protocol in protocols:
        with _progress(protocol.name, size(protocol)) as listener:
            proofs.append(prove(protocol, seed=seed, listener=listener))
        _emit_all(emit, proof_lines(proofs[-1]))
        for drop in protocol.drops:
            if drop.keeps:
                proofs.append(prove_kept(protocol, drop, seed=seed))
                _emit_all(emit, proof_lines(proofs[-1]))
        same.append(_matches_tla(protocol, compare_steps(protocol), emit))
    same += [_matches_tla(protocol, compare(protocol), emit) for protocol in protocols if deep]
    for protocol in protocols if drops or deep else ():
        emit(protocol.name)
        for drop in protocol.drops:
            with _progress(f"{protocol.name} without {drop.guard}", size(protocol)) as listener:
                dropped.append((protocol, drop_guard(protocol, drop, seed=seed, listener=listener)))
            _emit_all(emit, drop_lines(dropped[-1][1], verbose=verbose))
    drop_verdicts = (_drop_verdict(result) for _, result in dropped)
    verdicts = [*map(_proof_verdict, proofs), *map(_as_verdict, same), *drop_verdicts]
    return proofs, dropped, worst(verdicts)


def run_research(emit: Callable[[str], None], *, seed: int, requested: bool) -> dict[str, Any]:
    """Run the research proof if `requested`, else only list it; it does not change the exit code."""
    if not requested:
        emit(f"{'not run':8}{RESEARCH:28}research; add --research to run it (four minutes)")
        return {"protocol": RESEARCH, "verdict": "not run"}
    protocol = load(RESEARCH)
    with _progress(RESEARCH, size(protocol)) as listener:
        found = research(protocol, ESSENTIAL_CLAIM, seed=seed, listener=listener)
    _emit_all(emit, research_lines(found))
    return research_summary(found)


def _matches_tla(protocol: Protocol, comparison: Comparison, emit: Callable[[str], None]) -> bool:
    emit(f"{protocol.name}: {comparison.text}")
    return comparison.same


def _emit_all(emit: Callable[[str], None], lines: Iterator[str]) -> None:
    for line in lines:
        emit(line)


def _proof_verdict(proof: Proof) -> Verdict:
    """Return the verdict of a proof; an open proof is UNKNOWN because the counterexample may be unreachable."""
    return Verdict.VALID if proof.verdict == "proved" else Verdict.UNKNOWN


def _drop_verdict(result: DropResult) -> Verdict:
    return Verdict.UNKNOWN if result.undecided else _as_verdict(result.as_expected)


def _as_verdict(holds: bool) -> Verdict:
    return Verdict.VALID if holds else Verdict.INVALID


@contextmanager
def _progress(name: str, queries: int) -> Iterator[Listener]:
    """Show a progress bar on standard error if that is a terminal; yield the listener that advances it."""
    if not sys.stderr.isatty():
        yield lambda query: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=queries)
        yield lambda query: bar.update(task, advance=1, description=f"{name}: {query.action}")
