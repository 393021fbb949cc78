"""One self-contained page: the matrix, and under each clause what its cases expected, got and sent."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from conformance.exchange import KeptEvent, newest_within
from conformance.report import Report, TargetReport
from conformance.reports.matrix import DECIDED, Row, cell_text, features_text, rows_of, tally, worst
from conformance.reports.sources import linked
from conformance.verdicts import CaseResult, CaseVerdict, Expectation, expected_by, read_expectations

EXCHANGE_BUDGET: Final = 1_000_000
"""Characters of all exchanges on the page; a hexdump is three times as long as what is counted of its bytes."""
HEXDUMP_FACTOR: Final = 2.5
WORDS: Final = {verdict: verdict.value for verdict in CaseVerdict}
WEB: Final = re.compile(r"https?://")


@dataclass(frozen=True, slots=True)
class Cell:
    """One verdict on the page. `kind` is a CSS class, `anchor` where its story stands."""

    text: str
    kind: str
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Story:
    """Why a case was not passed by a target."""

    anchor: str
    target: str
    result: CaseResult
    known: Expectation | None
    exchange: list[KeptEvent]

    @property
    def link(self) -> str:
        """Nothing but the web: an expectation file is somebody's input too."""
        return self.known.link if self.known and WEB.match(self.known.link) else ""


def page(report: Report) -> str:
    environment = Environment(
        loader=PackageLoader("conformance"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    expectations = [read_expectations(target.target) for target in report.targets]
    budget = _exchange_budget(report)
    clauses = [_clause(row, report.targets, expectations, budget) for row in rows_of(report)]
    areas = [(area, list(members)) for area, members in groupby(clauses, key=lambda clause: clause["area"])]
    return environment.get_template("matrix.html.j2").render(
        run=report.run, areas=areas, targets=[_target(target) for target in report.targets],
        levels=("MUST", "SHOULD", "MAY"), verdicts=[verdict.value for verdict in CaseVerdict],
    )  # fmt: skip


def _exchange_budget(report: Report) -> int:
    """For each case that has an exchange an equal part of the page, so that any run makes a page that opens."""
    told = sum(bool(result.exchange) for target in report.targets for result in target.cases)
    return int(EXCHANGE_BUDGET / HEXDUMP_FACTOR / max(told, 1))


def _target(target: TargetReport) -> dict[str, Any]:
    verdicts = [(verdict, target.verdicts.get(verdict, 0)) for verdict in CaseVerdict]
    must = [result for result in target.cases if result.level == "MUST" and result.verdict in DECIDED]
    return {
        "name": target.target,
        "version": target.version,
        "features": features_text(target),
        "counts": [(_kind(verdict), f"{count} {verdict}") for verdict, count in verdicts if count],
        "tally": tally(target),
        "kept": sum(result.verdict is CaseVerdict.PASS for result in must),
        "must": len(must),
    }


def _clause(
    row: Row, targets: Sequence[TargetReport], expectations: Sequence[list[Expectation]], budget: int
) -> dict[str, Any]:
    clause = row.clause
    stories = [
        Story(_anchor(result.case, number), targets[number].target, result, expected_by(result, expectations[number]),
              newest_within(result.exchange, budget))
        for number, results in enumerate(row.cells) for result in results
        if result.verdict not in (CaseVerdict.PASS, CaseVerdict.UNSUPPORTED, CaseVerdict.NOT_APPLICABLE)
    ]  # fmt: skip
    known = {(story.target, story.result.case) for story in stories if story.known}
    cases = list(dict.fromkeys(result.case for results in row.cells for result in results))
    return {
        "id": row.clause_id or "suite",
        "area": clause.area if row.clause_id else "",
        "clause": clause,
        "source": list(linked(clause.source)),
        "era": _era(clause.since, clause.until),
        "cells": [_clause_cell(number, results, targets[number].target, known)
                  for number, results in enumerate(row.cells)],
        "cases": [(case, [_case_cell(case, number, results, targets[number].target, known)
                          for number, results in enumerate(row.cells)]) for case in cases],
        "stories": stories,
        "lacking": _lacking(row, targets),
        "verdicts": " ".join(sorted({_kind(result.verdict) for results in row.cells for result in results})),
        "differs": len({tuple(sorted((r.case, r.verdict) for r in results)) for results in row.cells}) > 1,
    }  # fmt: skip


def _era(since: str, until: str) -> str:
    if since and until:
        return f"Kafka {since} to {until}"
    if since:
        return f"since Kafka {since}"
    return f"up to Kafka {until}" if until else "every Kafka"


def _clause_cell(number: int, results: list[CaseResult], target: str, known: set[tuple[str, str]]) -> Cell:
    verdict = worst(results)
    if verdict is None:
        return Cell("", "none")
    first = next(result for result in results if result.verdict is verdict)
    told = [result for result in results if result.verdict is verdict]
    is_known = all((target, result.case) in known for result in told)
    anchor = _anchor(first.case, number) if _has_story(verdict) else ""
    return Cell(cell_text(results, WORDS), f"{_kind(verdict)}{' known' if is_known else ''}", anchor)


def _case_cell(case: str, number: int, results: list[CaseResult], target: str, known: set[tuple[str, str]]) -> Cell:
    found = next((result for result in results if result.case == case), None)
    if found is None:
        return Cell("", "none")
    kind = _kind(found.verdict) + (" known" if (target, case) in known else "")
    return Cell(found.verdict.value, kind, _anchor(case, number) if _has_story(found.verdict) else "")


def _has_story(verdict: CaseVerdict) -> bool:
    return verdict in DECIDED and verdict is not CaseVerdict.PASS


def _lacking(row: Row, targets: Sequence[TargetReport]) -> list[str]:
    """Why cases were not tried, each reason once for each target."""
    reasons = {
        f"{targets[number].target}: {result.verdict}: {result.message}"
        for number, results in enumerate(row.cells)
        for result in results
        if result.verdict in (CaseVerdict.UNSUPPORTED, CaseVerdict.NOT_APPLICABLE)
    }
    return sorted(reasons)


def _kind(verdict: CaseVerdict) -> str:
    return verdict.value.replace(" ", "-")


def _anchor(case: str, number: int) -> str:
    """A place to link to, the same in the next run's page."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", case).strip("-") + f"-t{number + 1}"
