"""Runs proofs one by one, and tells how far they are."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from spec.formats.verdict import Verdict, worst
from spec.proofs.crosscheck import compare
from spec.proofs.drops import Dropped, drop_guard
from spec.proofs.language import Protocol
from spec.proofs.prove import Listener, Proof, prove
from spec.proofs.report import CARRIES, RESEARCH, drop_lines, load, proof_lines, size
from spec.proofs.research import research, research_lines, research_summary


def run(
    protocols: Sequence[Protocol], say: Callable[[str], None], *, seed: int, drops: bool, deep: bool, told: bool
) -> tuple[list[Proof], list[tuple[Protocol, Dropped]], Verdict]:
    """All proofs, then (deep) comparisons with TLA+, then each protocol without each guard; `say` gets each line."""
    proofs: list[Proof] = []
    dropped: list[tuple[Protocol, Dropped]] = []
    for protocol in protocols:
        with _progress(protocol.name, size(protocol)) as listener:
            proofs.append(prove(protocol, seed=seed, listener=listener))
        _say_all(say, proof_lines(proofs[-1]))
    same = [_compared(protocol, say) for protocol in protocols if deep]
    for protocol in protocols if drops or deep else ():
        say(protocol.name)
        for drop in protocol.drops:
            with _progress(f"{protocol.name} without {drop.guard}", size(protocol)) as listener:
                dropped.append((protocol, drop_guard(protocol, drop, seed=seed, listener=listener)))
            _say_all(say, drop_lines(dropped[-1][1], told=told))
    verdicts = [*map(_verdict, proofs), *map(_held, same), *(_dropped(each) for _, each in dropped)]
    return proofs, dropped, worst(verdicts)


def run_research(say: Callable[[str], None], *, seed: int, asked: bool) -> dict[str, Any]:
    """Listed always, run if asked for; the exit code is that of the other proofs."""
    if not asked:
        say(f"{'not run':8}{RESEARCH:28}research: --research, four minutes")
        return {"protocol": RESEARCH, "verdict": "not run"}
    protocol = load(RESEARCH)
    with _progress(RESEARCH, size(protocol)) as listener:
        found = research(protocol, CARRIES, seed=seed, listener=listener)
    _say_all(say, research_lines(found))
    return research_summary(found)


def _compared(protocol: Protocol, say: Callable[[str], None]) -> bool:
    comparison = compare(protocol)
    say(f"{protocol.name}: {comparison.text}")
    return comparison.same


def _say_all(say: Callable[[str], None], lines: Iterator[str]) -> None:
    for line in lines:
        say(line)


def _verdict(proof: Proof) -> Verdict:
    """What is open is no violation: nobody knows yet."""
    return Verdict.VALID if proof.verdict == "proved" else Verdict.UNKNOWN


def _dropped(each: Dropped) -> Verdict:
    return Verdict.UNKNOWN if each.undecided else _held(each.as_expected)


def _held(well: bool) -> Verdict:
    return Verdict.VALID if well else Verdict.INVALID


@contextmanager
def _progress(name: str, queries: int) -> Iterator[Listener]:
    """On a terminal's standard error."""
    if not sys.stderr.isatty():
        yield lambda query: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=queries)
        yield lambda query: bar.update(task, advance=1, description=f"{name}: {query.action}")
