"""One self-contained page: the matrix, and under each clause what its cases expected, got and sent."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from highwater.conformance.exchange import KeptEvent, newest_within
from highwater.conformance.report import Report, TargetReport
from highwater.conformance.reports.matrix import DECIDED, Row, cell_text, features_text, natural, rows_of, tally, worst
from highwater.conformance.reports.sources import linked
from highwater.conformance.verdicts import CaseResult, CaseVerdict, Expectation, expected_by, read_expectations

PAGE_CHARACTERS: Final = 1_500_000
"""Of what is told of failures: what the stories themselves do not need is for their exchanges."""
STORY_CHARACTERS: Final = 400
HEXDUMP_FACTOR: Final = 2.5
"""A hexdump is so much longer than the hexadecimal digits that an event is weighed by."""
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
    """Why a target did not pass some cases of one clause: those that went wrong in the same way, the first in full."""

    anchor: str
    number: int
    target: str
    results: list[CaseResult]
    known: Expectation | None
    exchange: list[KeptEvent]

    @property
    def first(self) -> CaseResult:
        return self.results[0]

    @property
    def what(self) -> str:
        """The message without what stands below it anyway."""
        return self.first.message.removesuffix(f": expected {self.first.expected}, actual {self.first.actual}")

    @property
    def link(self) -> str:
        """Nothing but the web: an expectation file is somebody's input too."""
        return self.known.link if self.known and WEB.match(self.known.link) else ""


def page(report: Report) -> str:
    environment = Environment(
        loader=PackageLoader("highwater.conformance"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
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
    """For each clause that a target broke an equal part of the page, so that any run makes a page that opens."""
    broken = [(target.target, result.clause) for target in report.targets for result in target.cases if result.exchange]
    left = max(PAGE_CHARACTERS - STORY_CHARACTERS * len(broken), 0)
    return int(left / HEXDUMP_FACTOR / max(len(set(broken)), 1))


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
        story for number, results in enumerate(row.cells)
        for story in stories_of(number, targets[number].target, results, expectations[number], budget)
    ]  # fmt: skip
    told = {(story.number, result.case): story for story in stories for result in story.results}
    cases = sorted({result.case for results in row.cells for result in results}, key=natural)
    return {
        "id": row.clause_id or "suite",
        "area": clause.area if row.clause_id else "",
        "clause": clause,
        "source": list(linked(clause.source)),
        "era": _era(clause.since, clause.until),
        "cells": [_cell(number, results, told) for number, results in enumerate(row.cells)],
        "cases": [(case, [_cell(number, [each for each in results if each.case == case], told)
                          for number, results in enumerate(row.cells)]) for case in cases],
        "stories": stories,
        "lacking": _lacking(row, targets),
        "verdicts": " ".join(sorted({_kind(result.verdict) for results in row.cells for result in results})),
        "differs": len({tuple(sorted((r.case, r.verdict) for r in results)) for results in row.cells}) > 1,
    }  # fmt: skip


def stories_of(
    number: int, target: str, results: list[CaseResult], expectations: list[Expectation], budget: int
) -> Iterator[Story]:
    """The first tell their exchanges in full; once the budget is spent the others tell none."""
    alike: dict[tuple[str, ...], list[CaseResult]] = {}
    for result in results:
        if result.verdict in DECIDED and result.verdict is not CaseVerdict.PASS:
            known = expected_by(result, expectations)
            reason = known.reason if known else ""
            alike.setdefault((result.verdict, result.message, result.actual, reason), []).append(result)
    for group in alike.values():
        exchange = newest_within(group[0].exchange, budget) if budget > 0 else []
        budget -= sum(event.weight() for event in exchange)
        yield Story(
            _anchor(group[0].case, number), number, target, group, expected_by(group[0], expectations), exchange
        )


def _era(since: str, until: str) -> str:
    if since and until:
        return f"Kafka {since} to {until}"
    if since:
        return f"since Kafka {since}"
    return f"up to Kafka {until}" if until else "every Kafka"


def _cell(number: int, results: list[CaseResult], told: dict[tuple[int, str], Story]) -> Cell:
    """Of a case or of a whole clause, whose worst verdict it shows."""
    verdict = worst(results)
    if verdict is None:
        return Cell("", "none")
    stories = [told.get((number, result.case)) for result in results if result.verdict is verdict]
    is_known = all(story is not None and story.known for story in stories)
    kind = _kind(verdict) + (" known" if is_known else "")
    return Cell(cell_text(results, WORDS), kind, stories[0].anchor if stories[0] else "")


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
