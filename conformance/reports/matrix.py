"""The matrix of clauses and targets, from which console, Markdown and HTML are rendered."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from highwater.conformance.patterns import natural_key
from highwater.conformance.report import Report, TargetReport
from highwater.conformance.running.verdicts import DECIDED, CaseResult, CaseVerdict, Expectation, expected_by
from highwater.spec.clauses import Clause, load_clauses

VERDICT_SYMBOLS: Final = {
    CaseVerdict.PASS: "pass",
    CaseVerdict.FAIL: "FAIL",
    CaseVerdict.NON_STRICT: "non-strict",
    CaseVerdict.UNSUPPORTED: "-",
    CaseVerdict.NOT_APPLICABLE: "n/a",
    CaseVerdict.FLAKY: "flaky",
    CaseVerdict.ERROR: "error",
    CaseVerdict.NOT_RUN: "not run",
}
WORST_FIRST: Final = (
    CaseVerdict.FAIL, CaseVerdict.ERROR, CaseVerdict.FLAKY, CaseVerdict.NON_STRICT, CaseVerdict.NOT_RUN,
    CaseVerdict.PASS, CaseVerdict.UNSUPPORTED, CaseVerdict.NOT_APPLICABLE,
)  # fmt: skip
UNKNOWN: Final = Clause(id="?", sentence="Not in the list of clauses.", level="MUST", source="")


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One clause with its results for each target."""

    clause_id: str
    cells: list[list[CaseResult]]

    @property
    def clause(self) -> Clause:
        """Return the clause; a report of another version of the suite may have unknown ones."""
        return clause_of(self.clause_id)


def clause_of(clause_id: str) -> Clause:
    return load_clauses().get(clause_id, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Deviation:
    """A broken, flaky or failed case, and the expectation that covers it."""

    result: CaseResult
    known: Expectation | None


def rows_of(report: Report) -> list[MatrixRow]:
    """Return rows sorted by area and number; results without a clause (a run that was cut short) come first."""
    by_target = [_by_clause(target.cases) for target in report.targets]
    clause_ids = sorted({clause_id for found in by_target for clause_id in found}, key=natural_key)
    return [MatrixRow(clause_id, [found.get(clause_id, []) for found in by_target]) for clause_id in clause_ids]


def _by_clause(results: Sequence[CaseResult]) -> dict[str, list[CaseResult]]:
    found: dict[str, list[CaseResult]] = {}
    for result in sorted(results, key=lambda result: natural_key(result.case)):
        found.setdefault(result.clause, []).append(result)
    return found


def worst(results: Sequence[CaseResult]) -> CaseVerdict | None:
    verdicts = {result.verdict for result in results}
    return next((verdict for verdict in WORST_FIRST if verdict in verdicts), None)


def cell_text(results: Sequence[CaseResult], symbols: Mapping[CaseVerdict, str] = VERDICT_SYMBOLS) -> str:
    """Return the worst verdict and how many of the decided cases have it: `FAIL 2/5`."""
    verdict = worst(results)
    if verdict is None:
        return ""
    counted = Counter(result.verdict for result in results)
    decided = sum(counted[decided_verdict] for decided_verdict in DECIDED)
    return symbols[verdict] + (f" {counted[verdict]}/{decided}" if decided > 1 and verdict in DECIDED else "")


def deviations(target: TargetReport) -> list[Deviation]:
    """Return the cases that were run and did not pass, sorted."""
    expectations = target.expectations
    return [
        Deviation(result, expected_by(result, expectations))
        for result in sorted(target.cases, key=lambda result: natural_key(result.case))
        if result.verdict in DECIDED - {CaseVerdict.PASS}
    ]


def tally(target: TargetReport) -> str:
    """Return the counts above zero, such as `412 pass, 6 fail`."""
    return ", ".join(f"{count} {verdict}" for verdict, count in target.verdicts.items() if count) or "no case"


def seconds_text(target: TargetReport) -> str:
    """Return how long each part of the run took, such as `set-up 2 s, cases 94 s, tear-down 1 s`; empty if unknown."""
    return ", ".join(f"{part} {seconds:.0f} s" for part, seconds in target.seconds.items())


def left_out_text(target: TargetReport) -> str:
    """Return which cases were not run, and how to run them; empty if there are none."""
    cases = ", ".join(target.left_out)
    return f"left out, as they take minutes (--long): {cases}" if cases else ""


def audited_text(target: TargetReport) -> str:
    """Return how much of what the clients saw was audited; empty if no audit was asked for."""
    asked = [result.audited for result in target.cases if result.audited is not None]
    judged = [operations for operations in asked if operations]
    return f"audited: {sum(judged):,} operations of {len(judged):,} of {len(asked):,} passed cases" if asked else ""


def features_text(target: TargetReport) -> str:
    """Return the finalised features, such as `metadata.version 30, transaction.version 0-2`; empty without any."""
    return ", ".join(
        f"{name} {'-'.join(dict.fromkeys(map(str, levels)))}" for name, levels in sorted(target.features.items())
    )
