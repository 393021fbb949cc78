"""Clauses by targets: what the console, Markdown and the page have in common."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from highwater.conformance.report import Report, TargetReport
from highwater.conformance.verdicts import (
    BROKEN,
    UNDECIDED,
    CaseResult,
    CaseVerdict,
    Expectation,
    expected_by,
    read_expectations,
)
from highwater.spec.clauses import Clause, load_clauses

SIGN: Final = {
    CaseVerdict.PASS: "pass",
    CaseVerdict.FAIL: "FAIL",
    CaseVerdict.NON_STRICT: "non-strict",
    CaseVerdict.UNSUPPORTED: "-",
    CaseVerdict.NOT_APPLICABLE: "n/a",
    CaseVerdict.FLAKY: "flaky",
    CaseVerdict.ERROR: "error",
}
WORST_FIRST: Final = (
    CaseVerdict.FAIL, CaseVerdict.ERROR, CaseVerdict.FLAKY, CaseVerdict.NON_STRICT, CaseVerdict.PASS,
    CaseVerdict.UNSUPPORTED, CaseVerdict.NOT_APPLICABLE,
)  # fmt: skip
DECIDED: Final = frozenset({CaseVerdict.PASS, *BROKEN, *UNDECIDED})
"""What was really put to the target."""
NUMBERED: Final = re.compile(r"([^0-9]*)([0-9]*)")
UNKNOWN: Final = Clause(id="?", sentence="Not in the list of clauses.", level="MUST", source="")


@dataclass(frozen=True, slots=True)
class Row:
    """One clause: for each target its cases."""

    clause_id: str
    cells: list[list[CaseResult]]

    @property
    def clause(self) -> Clause:
        """A report may be older or newer than our list."""
        return load_clauses().get(self.clause_id, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Deviation:
    """A case that was not passed, and the expectation that covers it."""

    result: CaseResult
    known: Expectation | None


def rows_of(report: Report) -> list[Row]:
    """Areas by name, clauses by number, cases by version; what is of no clause (a suite that broke off) comes first."""
    by_target = [_by_clause(target.cases) for target in report.targets]
    clause_ids = sorted({clause_id for found in by_target for clause_id in found}, key=natural)
    return [Row(clause_id, [found.get(clause_id, []) for found in by_target]) for clause_id in clause_ids]


def natural(name: str) -> list[tuple[str, int]]:
    """A key that puts `Fetch v4` before `Fetch v12`: cases that run side by side come in any order."""
    return [(text, int(number or 0)) for text, number in NUMBERED.findall(name)]


def _by_clause(results: Sequence[CaseResult]) -> dict[str, list[CaseResult]]:
    found: dict[str, list[CaseResult]] = {}
    for result in sorted(results, key=lambda result: natural(result.case)):
        found.setdefault(result.clause, []).append(result)
    return found


def worst(results: Sequence[CaseResult]) -> CaseVerdict | None:
    seen = {result.verdict for result in results}
    return next((verdict for verdict in WORST_FIRST if verdict in seen), None)


def cell_text(results: Sequence[CaseResult], sign: Mapping[CaseVerdict, str] = SIGN) -> str:
    """The worst verdict, with how many of the decided cases have it: `FAIL 2/5`."""
    verdict = worst(results)
    if verdict is None:
        return ""
    counted = Counter(result.verdict for result in results)
    decided = sum(counted[each] for each in DECIDED)
    return sign[verdict] + (f" {counted[verdict]}/{decided}" if decided > 1 and verdict in DECIDED else "")


def deviations(target: TargetReport) -> list[Deviation]:
    """Broken and undecided cases."""
    expectations = read_expectations(target.target)
    return [
        Deviation(result, expected_by(result, expectations))
        for result in sorted(target.cases, key=lambda result: natural(result.case))
        if result.verdict in BROKEN | UNDECIDED
    ]


def tally(target: TargetReport) -> str:
    """`412 pass, 6 fail`, without what is zero."""
    return ", ".join(f"{count} {verdict}" for verdict, count in target.verdicts.items() if count) or "no case"


def features_text(target: TargetReport) -> str:
    """`metadata.version 30, transaction.version 0-2`, or nothing where the target tells none."""
    return ", ".join(
        f"{name} {'-'.join(dict.fromkeys(map(str, levels)))}" for name, levels in sorted(target.features.items())
    )
