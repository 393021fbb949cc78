"""A run on a terminal: the matrix, what deviates and how to run it again, and what was not decided and why."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from highwater.conformance.report import Report, TargetReport
from highwater.conformance.reports.matrix import (
    MatrixRow,
    audited_text,
    cell_text,
    clause_of,
    left_out_text,
    rows_of,
    seconds_text,
    tally,
)
from highwater.conformance.running.verdicts import (
    BROKEN,
    DECIDED,
    NOT_TESTABLE,
    CaseResult,
    CaseVerdict,
    expected_by,
    outdated,
)

COLOUR: Final = {"pass": "green", "FAIL": "red", "flaky": "yellow", "error": "magenta", "non-strict": "yellow"}
NAMED_CASES: Final = 3
SHOWN_REASONS: Final = 5
WITHOUT_VERDICT: Final = frozenset({*NOT_TESTABLE, CaseVerdict.NOT_RUN})
KEPT_OPTIONS: Final = {
    "command_config": "--command-config",
    "kafka_version": "--kafka-version",
    "timeout_s": "--timeout",
    "guards_off": "--guard-off",
}
INDENT: Final = "    "


def show(report: Report, *, strict: bool = False, verbose: bool = False) -> None:
    """Print the run; `verbose` also prints clauses of which no case was decided, and every case."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    table = Table("clause", "level", *(escape(target.name) for target in report.targets))
    for row in rows_of(report):
        if verbose or _is_decided(row):
            level = row.clause.level if row.clause_id else ""
            table.add_row(row.clause_id or "suite", level, *(_coloured(cell_text(cell)) for cell in row.cells))
    if table.row_count:
        console.print(table)
    for target in report.targets:
        for line in _lines(report, target, strict=strict, verbose=verbose):
            console.print(line, markup=False, soft_wrap=True)


def _is_decided(row: MatrixRow) -> bool:
    return any(result.verdict in DECIDED for cell in row.cells for result in cell)


def _coloured(text: str) -> str:
    colour = COLOUR.get(text.partition(" ")[0])
    return f"[{colour}]{text}[/{colour}]" if colour else text


def _lines(report: Report, target: TargetReport, *, strict: bool, verbose: bool) -> Iterator[str]:
    """Yield what the matrix does not say of a target; its counts come last."""
    if verbose:
        yield from _every_case(target)
    yield from _expected(target)
    found = [result for result in target.cases if _deviates(result) and not expected_by(result, target.expectations)]
    yield from _deviations(found, prefix="UNEXPECTED " if target.expectations else "", strict=strict)
    yield from (f"UNEXPECTED {line}" for line in outdated(target.cases, target.expectations))
    if again := next((result for result in found if result.clause), None):
        yield _how_to_run_again(report, target, again)
    yield from _not_decided(target)
    if target.left_out:
        yield left_out_text(target)
    if audited := audited_text(target):
        yield audited
    if target.fingerprint:
        yield f"fingerprint {target.fingerprint}: another run of these cases with an equal one had the same events"
    yield f"{target.target}: {tally(target)}" + (f" ({seconds_text(target)})" if target.seconds else "")


def _deviates(result: CaseResult) -> bool:
    return result.verdict in DECIDED and result.verdict is not CaseVerdict.PASS


def _every_case(target: TargetReport) -> Iterator[str]:
    for result in target.cases:
        sentence = f"\n{INDENT}{clause_of(result.clause).sentence}" if result.clause else ""
        yield f"{result.case}: {result.verdict} {result.message}{sentence}"


def _expected(target: TargetReport) -> Iterator[str]:
    for result in target.cases:
        if known := expected_by(result, target.expectations):
            yield f"expected {result.case}: {result.verdict}: {known.reason} {known.link}".rstrip()


def _deviations(results: Sequence[CaseResult], *, prefix: str, strict: bool) -> Iterator[str]:
    """Yield a line for the cases of a clause that deviate in the same way, and the sentence of the clause once."""
    for clause_id, members in groupby(results, lambda result: result.clause):
        alike: dict[tuple[CaseVerdict, str], list[str]] = {}
        for result in members:
            alike.setdefault((result.verdict, result.message), []).append(result.case)
        for (verdict, message), cases in alike.items():
            yield f"{_label(verdict, prefix, strict=strict)} {_named(cases)}: {message}"
        if clause_id and any(verdict in BROKEN for verdict, _ in alike):
            clause = clause_of(clause_id)
            yield f"{INDENT}{clause.level}: {clause.sentence} ({clause.source})"


def _label(verdict: CaseVerdict, prefix: str, *, strict: bool) -> str:
    """Return the verdict in capitals if it fails the run, then with the prefix."""
    fails = verdict is CaseVerdict.FAIL or (strict and verdict is CaseVerdict.NON_STRICT)
    return prefix + verdict.upper() if fails else verdict.value


def _named(cases: Sequence[str]) -> str:
    more = f" and {len(cases) - NAMED_CASES} more" if len(cases) > NAMED_CASES else ""
    return ", ".join(cases[:NAMED_CASES]) + more


def _how_to_run_again(report: Report, target: TargetReport, result: CaseResult) -> str:
    """Return the command for a case: the options that change its verdict, and a page, which has the bytes."""
    given = report.run.options
    values = [(option, value) for name, option in KEPT_OPTIONS.items() for value in _as_list(given.get(name, []))]
    options = [part for option, value in [*values, ("--clause", result.case)] for part in (option, str(value))]
    command = shlex.join(["highwater", "conform", target.target, *options, "--html"])
    return f"To run one case again and see the exchanged bytes on a page: {command}"


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _not_decided(target: TargetReport) -> Iterator[str]:
    """Yield the most frequent reasons why cases have no verdict, with the number of cases."""
    reasons = Counter(_reason(result) for result in target.cases if result.verdict in WITHOUT_VERDICT)
    if not reasons:
        return
    yield f"{reasons.total():,} cases were not decided (--verbose lists them):"
    yield from (f"{INDENT}{count:,} {reason}" for reason, count in reasons.most_common(SHOWN_REASONS))
    if len(reasons) > SHOWN_REASONS:
        others = sum(count for _, count in reasons.most_common()[SHOWN_REASONS:])
        yield f"{INDENT}{others:,} for {len(reasons) - SHOWN_REASONS} other reasons"


def _reason(result: CaseResult) -> str:
    """Return why a case has no verdict, without the releases of a clause, which differ from clause to clause."""
    if result.verdict is CaseVerdict.NOT_APPLICABLE:
        return f"{result.verdict}: rules of other releases"
    return f"{result.verdict}: {result.message}"
