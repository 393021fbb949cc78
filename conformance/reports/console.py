"""The matrix on a terminal, followed by expected and unexpected deviations."""

from typing import Any, Final

from highwater.conformance.report import Report, TargetReport
from highwater.conformance.reports.matrix import cell_text, left_out_text, rows_of, seconds_text, tally
from highwater.conformance.verdicts import (
    UNDECIDED,
    CaseResult,
    CaseVerdict,
    expected_by,
    unexpected,
)
from highwater.spec.clauses import find_clause

COLOUR: Final = {"pass": "green", "FAIL": "red", "flaky": "yellow", "error": "magenta", "non-strict": "yellow"}


def show(report: Report, *, strict: bool = False, verbose: bool = False) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    table = Table("clause", "level", *(escape(target.name) for target in report.targets))
    for row in rows_of(report):
        level = row.clause.level if row.clause_id else ""
        table.add_row(row.clause_id or "suite", level, *(_coloured(cell_text(cell)) for cell in row.cells))
    console.print(table)
    for target in report.targets:
        _show_target(console, target, strict, verbose)


def _coloured(text: str) -> str:
    colour = COLOUR.get(text.partition(" ")[0])
    return f"[{colour}]{text}[/{colour}]" if colour else text


def _show_target(console: Any, target: TargetReport, strict: bool, verbose: bool) -> None:
    expectations = target.expectations
    for result in target.cases:
        known = expected_by(result, expectations)
        if known is not None:
            line = f"expected {result.case}: {result.verdict}: {known.reason} {known.link}".rstrip()
            console.print(line, markup=False)
        elif verbose or _is_worth_a_line(result, strict):
            sentence = f"\n    {find_clause(result.clause).sentence}" if verbose and result.clause else ""
            console.print(f"{result.case}: {result.verdict} {result.message}{sentence}", markup=False)
    for line in unexpected(target.cases, expectations, strict=strict):
        console.print(f"UNEXPECTED {line}", markup=False)
    if target.left_out:
        console.print(left_out_text(target), markup=False)
    console.print(
        f"{target.target}: {tally(target)}" + (f" ({seconds_text(target)})" if target.seconds else ""), markup=False
    )


def _is_worth_a_line(result: CaseResult, strict: bool) -> bool:
    """Return whether to print a line; with --strict a broken SHOULD is printed as unexpected instead."""
    return result.verdict in UNDECIDED or (result.verdict is CaseVerdict.NON_STRICT and not strict)
