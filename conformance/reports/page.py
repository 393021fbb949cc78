"""A self-contained HTML page: the matrix, and for each clause its cases with expected, actual and exchanged bytes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from highwater.conformance.client.exchange import ReportedEvent, newest_events
from highwater.conformance.patterns import natural_key
from highwater.conformance.report import Report, TargetReport
from highwater.conformance.reports.history import History
from highwater.conformance.reports.matrix import (
    MatrixRow,
    audited_text,
    cell_text,
    features_text,
    left_out_text,
    rows_of,
    seconds_text,
    tally,
    worst,
)
from highwater.conformance.reports.sources import link_source
from highwater.conformance.running.verdicts import (
    DECIDED,
    NOT_TESTABLE,
    CaseResult,
    CaseVerdict,
    Expectation,
    expected_by,
)
from highwater.pages import render

PAGE_CHARACTERS: Final = 1_500_000
"""Limit of the failure descriptions; what the texts leave of it is for exchanges."""
CHARACTERS_PER_FAILURE: Final = 400
HEXDUMP_FACTOR: Final = 2.5
"""Length of a rendered hexdump relative to the hexadecimal digits in `ReportedEvent.weight`."""
VERDICT_TEXT: Final = {verdict: verdict.value for verdict in CaseVerdict}
WEB: Final = re.compile(r"https?://")


@dataclass(frozen=True, slots=True)
class Cell:
    """One verdict on the page; `kind` is a CSS class, `anchor` the id of the failure group."""

    text: str
    kind: str
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Cases of one clause that failed on a target in the same way; the first one is shown in full."""

    anchor: str
    number: int
    target: str
    results: list[CaseResult]
    known: Expectation | None
    exchange: list[ReportedEvent]

    @property
    def first(self) -> CaseResult:
        return self.results[0]

    @property
    def what(self) -> str:
        """Return the message without expected and actual, which the page shows separately."""
        return self.first.message.removesuffix(f": expected {self.first.expected}, actual {self.first.actual}")

    @property
    def link(self) -> str:
        """Return the link of the expectation if it is HTTP; expectation files are untrusted input."""
        return self.known.link if self.known and WEB.match(self.known.link) else ""


def page(report: Report, history: Sequence[History] = ()) -> str:
    expectations = [target.expectations for target in report.targets]
    budget = _exchange_budget(report)
    clauses = [_clause(row, report.targets, expectations, budget) for row in rows_of(report)]
    areas = [(area, list(members)) for area, members in groupby(clauses, key=lambda clause: clause["area"])]
    return render(
        "highwater.conformance", "matrix.html.j2",
        run=report.run, areas=areas, targets=[_target(target) for target in report.targets],
        history=history, levels=("MUST", "SHOULD", "MAY"), verdicts=[verdict.value for verdict in CaseVerdict],
    )  # fmt: skip


def _exchange_budget(report: Report) -> int:
    """Return an equal share of the page for each broken clause, so that a browser can open any report."""
    broken = [(target.target, result.clause) for target in report.targets for result in target.cases if result.exchange]
    left = max(PAGE_CHARACTERS - CHARACTERS_PER_FAILURE * len(broken), 0)
    return int(left / HEXDUMP_FACTOR / max(len(set(broken)), 1))


def _target(target: TargetReport) -> dict[str, Any]:
    verdicts = [(verdict, target.verdicts.get(verdict, 0)) for verdict in CaseVerdict]
    must = [result for result in target.cases if result.level == "MUST" and result.verdict in DECIDED]
    return {
        "name": target.target,
        "version": target.version,
        "features": features_text(target),
        "fingerprint": target.fingerprint,
        "audited": audited_text(target),
        "counts": [(_kind(verdict), f"{count} {verdict}") for verdict, count in verdicts if count],
        "tally": tally(target),
        "seconds": seconds_text(target),
        "left_out": left_out_text(target),
        "kept": sum(result.verdict is CaseVerdict.PASS for result in must),
        "must": len(must),
    }


def _clause(
    row: MatrixRow, targets: Sequence[TargetReport], expectations: Sequence[list[Expectation]], budget: int
) -> dict[str, Any]:
    clause = row.clause
    failures = [
        failure for number, results in enumerate(row.cells)
        for failure in failure_groups(number, targets[number].target, results, expectations[number], budget)
    ]  # fmt: skip
    failure_by_case = {(failure.number, result.case): failure for failure in failures for result in failure.results}
    cases = sorted({result.case for results in row.cells for result in results}, key=natural_key)
    return {
        "id": row.clause_id or "suite",
        "area": clause.area if row.clause_id else "",
        "clause": clause,
        "source": list(link_source(clause.source)),
        "era": _era(clause.since, clause.until),
        "cells": [_cell(number, results, failure_by_case) for number, results in enumerate(row.cells)],
        "cases": [(case, [_cell(number, [result for result in results if result.case == case], failure_by_case)
                          for number, results in enumerate(row.cells)]) for case in cases],
        "failures": failures,
        "lacking": _lacking(row, targets),
        "verdicts": " ".join(sorted({_kind(result.verdict) for results in row.cells for result in results})),
        "differs": len({tuple(sorted((r.case, r.verdict) for r in results)) for results in row.cells}) > 1,
    }  # fmt: skip


def failure_groups(
    number: int, target: str, results: list[CaseResult], expectations: list[Expectation], budget: int
) -> Iterator[FailureGroup]:
    """Group failures by verdict, message and reason; exchanges are added until `budget` is used up."""
    groups: dict[tuple[str, ...], list[CaseResult]] = {}
    for result in results:
        if result.verdict in DECIDED and result.verdict is not CaseVerdict.PASS:
            known = expected_by(result, expectations)
            reason = known.reason if known else ""
            groups.setdefault((result.verdict, result.message, result.actual, reason), []).append(result)
    for group in groups.values():
        exchange = newest_events(group[0].exchange, budget) if budget > 0 else []
        budget -= sum(event.weight() for event in exchange)
        yield FailureGroup(
            _anchor(group[0].case, number), number, target, group, expected_by(group[0], expectations), exchange
        )


def _era(since: str, until: str) -> str:
    if since and until:
        return f"Kafka {since} to {until}"
    if since:
        return f"since Kafka {since}"
    return f"up to Kafka {until}" if until else "every Kafka"


def _cell(number: int, results: list[CaseResult], failure_by_case: dict[tuple[int, str], FailureGroup]) -> Cell:
    """Return the cell of a case or of a clause, with the worst verdict."""
    verdict = worst(results)
    if verdict is None:
        return Cell("", "none")
    failures = [failure_by_case.get((number, result.case)) for result in results if result.verdict is verdict]
    is_known = all(failure is not None and failure.known for failure in failures)
    kind = _kind(verdict) + (" known" if is_known else "")
    return Cell(cell_text(results, VERDICT_TEXT), kind, failures[0].anchor if failures[0] else "")


def _lacking(row: MatrixRow, targets: Sequence[TargetReport]) -> list[str]:
    """Return the reasons why cases were not run, each once for each target."""
    reasons = {
        f"{targets[number].target}: {result.verdict}: {result.message}"
        for number, results in enumerate(row.cells)
        for result in results
        if result.verdict in NOT_TESTABLE | {CaseVerdict.NOT_RUN}
    }
    return sorted(reasons)


def _kind(verdict: CaseVerdict) -> str:
    return verdict.value.replace(" ", "-")


def _anchor(case: str, number: int) -> str:
    """Return an HTML id that is the same in later runs."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", case).strip("-") + f"-t{number + 1}"
