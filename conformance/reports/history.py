"""Runs of several days as one matrix: the newest run of each target, and how each target came there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from highwater.conformance.report import Report, TargetReport
from highwater.conformance.reports.compare import VerdictChange, differences_of
from highwater.conformance.running.verdicts import DECIDED, CaseVerdict

SHOWN: Final = (VerdictChange.BROKE, VerdictChange.FAILING, VerdictChange.FIXED)
"""The changes that are named; the others are counted."""
NAMED: Final = 12
WIDTH, HEIGHT = 160, 28


@dataclass(frozen=True, slots=True)
class PastRun:
    """One run of a target: MUST cases kept and decided, and what changed since the run before it."""

    day: str
    version: str
    suite: str
    kept: int
    must: int
    named: dict[VerdictChange, list[str]]
    counted: dict[VerdictChange, int]

    @property
    def share(self) -> float:
        return self.kept / self.must if self.must else 0.0


@dataclass(frozen=True, slots=True)
class History:
    """The runs of a target, newest first."""

    target: str
    runs: list[PastRun]

    @property
    def line(self) -> str:
        """Return the share of kept MUST cases as the points of an SVG polyline, the oldest run at the left.

        Its height covers the range from the lowest share to 1, so that a single case can be seen.
        """
        shares = [run.share for run in reversed(self.runs)]
        low, step = min(shares), WIDTH / max(len(shares) - 1, 1)
        range_ = (1 - low) or 1.0
        return " ".join(
            f"{2 + number * step:.1f},{2 + (HEIGHT - 4) * (1 - share) / range_:.1f}"
            for number, share in enumerate(shares)
        )


def merge_runs(reports: Sequence[Report]) -> tuple[Report, list[History]]:
    """Return a report with the newest run of each target, in the order of the files, and the history of each."""
    runs: dict[str, list[tuple[Report, TargetReport]]] = {}
    for report in reports:
        for target in report.targets:
            runs.setdefault(target.target, []).append((report, target))
    for found in runs.values():
        found.sort(key=lambda pair: pair[0].run.started, reverse=True)
    newest = max(reports, key=lambda report: report.run.started)
    merged = Report(targets=[found[0][1] for found in runs.values()], run=newest.run)
    return merged, [_history(name, found) for name, found in runs.items()]


def _history(name: str, runs: Sequence[tuple[Report, TargetReport]]) -> History:
    before: list[TargetReport | None] = [*(target for _, target in runs[1:]), None]
    return History(name, [_past(*run, earlier) for run, earlier in zip(runs, before, strict=True)])


def _past(report: Report, target: TargetReport, before: TargetReport | None) -> PastRun:
    must = [case for case in target.cases if case.level == "MUST" and case.verdict in DECIDED]
    changes: dict[VerdictChange, list[str]] = {}
    for difference in differences_of(before, target) if before else ():
        changes.setdefault(difference.change, []).append(difference.case)
    return PastRun(
        day=report.run.started[:10], version=target.version, suite=report.run.suite,
        kept=sum(case.verdict is CaseVerdict.PASS for case in must), must=len(must),
        named={change: _named(changes[change]) for change in SHOWN if change in changes},
        counted={change: len(cases) for change, cases in changes.items() if change not in SHOWN},
    )  # fmt: skip


def _named(cases: list[str]) -> list[str]:
    more = [f"{len(cases) - NAMED} more"] if len(cases) > NAMED else []
    return [*cases[:NAMED], *more]
