"""What `highwater spec mutate` prints: a line for each mutant, then the score of each module and what killed it."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from highwater.errors import ExitCode
from highwater.spec.mutation.changes import Change
from highwater.spec.mutation.proof_run import SHARED, mutants_of_proof, mutate_proofs
from highwater.spec.mutation.run import (
    Judged,
    Outcome,
    by_cause,
    mutable_folders,
    mutants_of,
    mutate,
    only_counted,
    score,
)
from highwater.spec.proofs.report import PROTOCOLS

SHOWN: Final = 100  # characters of the changed text


def rows(folders: Sequence[str], count: int, seed: int, *, proofs: bool = False) -> Iterator[tuple[str, str]]:
    """Yield place and change of each mutant that `run` would judge."""
    names = folders or ((*PROTOCOLS, *SHARED) if proofs else mutable_folders())
    for name in names:
        for change in (mutants_of_proof if proofs else mutants_of)(name, count, seed):
            yield f"{_place(change)}", f"{change.what} {change.old}"


def run(
    folders: Sequence[str],
    emit: Callable[[str], None],
    *,
    proofs: bool,
    count: int,
    seed: int,
    limit_s: float,
    jobs: int,
) -> list[Judged]:
    """Judge the mutants of the modules, or of the proofs, and print each as soon as it is known, then the table."""
    done = 0

    def on_outcome(change: Change, outcome: Outcome) -> None:
        nonlocal done
        done += 1
        emit(f"{done:>5} {_line(change, outcome)}")

    judge = mutate_proofs if proofs else mutate
    judged = judge(folders, on_outcome, count=count, seed=seed, limit_s=limit_s, jobs=jobs)
    for line in _table(judged):
        emit(line)
    return judged


def exit_code(judged: Sequence[Judged], at_least: float) -> ExitCode:
    """Return VIOLATED if less than `at_least` per cent were killed, UNDECIDED if none was judged."""
    killed, counted = score(judged)
    if not counted:
        return ExitCode.UNDECIDED
    return ExitCode.HELD if 100 * killed >= at_least * counted else ExitCode.VIOLATED


def summary(judged: Sequence[Judged]) -> dict[str, Any]:
    """Return the object that `--json` prints."""
    killed, counted = score(judged)
    return {
        "killed": killed,
        "counted": counted,
        "only_counts": only_counted(judged),
        "mutants": [
            {
                "module": change.module,
                "definition": change.definition,
                "line": change.line,
                "what": change.what,
                "old": change.old,
                "fate": outcome.fate,
                "why": outcome.why,
                "model": outcome.model,
                "undecided": outcome.undecided,
                "counts": outcome.counts,
            }
            for change, outcome in judged
        ],
    }


def _place(change: Change) -> str:
    file = f"{change.module}.tla" if change.module[0].isupper() else f"{change.module}/*.py"
    return f"{file}:{change.line} {change.definition}"


def _line(change: Change, outcome: Outcome) -> str:
    old = change.old if len(change.old) <= SHOWN else f"{change.old[:SHOWN]}..."
    text = f"{outcome.fate:11} {_place(change)}: {change.what} {old}"
    reasons = [f"{outcome.why} in {outcome.model}" if outcome.model else outcome.why]
    if outcome.undecided:
        reasons.append(f"no result in time: {', '.join(outcome.undecided)}")
    if outcome.counts:
        reasons.append(f"states: {', '.join(outcome.counts)}")
    reason = "; ".join(part for part in reasons if part)
    return f"{text} ({reason})" if reason else text


def _table(judged: Sequence[Judged]) -> Iterator[str]:
    yield ""
    for module, group in groupby(judged, key=lambda item: item[0].module):
        of_module = list(group)
        killed, counted = score(of_module)
        fates = [outcome.fate for _, outcome in of_module]
        more = f"{fates.count('equivalent')} equivalent, {fates.count('not counted')} that TLC cannot evaluate"
        yield f"{module}: {killed} of {counted} killed, {_counts(of_module)}; {more}"
        yield from (f"    {number:>4}  {cause}" for cause, number in by_cause(of_module))
        yield from (f"    survived: {_line(*item)[12:]}" for item in of_module if item[1].fate == "survived")
    killed, counted = score(judged)
    share = f", {100 * killed / counted:.1f} %" if counted else ""
    yield f"{killed} of {counted} mutants killed{share}; {_counts(judged)}"


def _counts(judged: Sequence[Judged]) -> str:
    return f"{only_counted(judged)} noticed only by the number of states"
