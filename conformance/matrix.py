"""The `conform` object for people and machines: console table, Markdown and JUnit."""

from collections import Counter
from typing import Any, Final
from xml.etree import ElementTree

from conformance.verdicts import (
    BROKEN,
    UNDECIDED,
    CaseResult,
    CaseVerdict,
    expected_by,
    read_expectations,
    results_of,
    unexpected,
)
from spec.clauses import find_clause

SIGN: Final = {
    CaseVerdict.PASS: "pass",
    CaseVerdict.FAIL: "FAIL",
    CaseVerdict.NON_STRICT: "non-strict",
    CaseVerdict.UNSUPPORTED: "-",
    CaseVerdict.NOT_APPLICABLE: "n/a",
    CaseVerdict.FLAKY: "flaky",
    CaseVerdict.ERROR: "error",
}
COLOUR: Final = {"pass": "green", "FAIL": "red", "flaky": "yellow", "error": "magenta", "non-strict": "yellow"}
WORST_FIRST: Final = (
    CaseVerdict.FAIL, CaseVerdict.ERROR, CaseVerdict.FLAKY, CaseVerdict.NON_STRICT, CaseVerdict.PASS,
    CaseVerdict.UNSUPPORTED, CaseVerdict.NOT_APPLICABLE,
)  # fmt: skip


def clause_rows(report: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """For each clause a cell for each target: the worst verdict of its cases, with how many of them."""
    by_target = [_by_clause(results_of(target)) for target in report["targets"]]
    clauses = sorted({clause for cells in by_target for clause in cells}, key=_order)
    return [(clause, [_cell(cells.get(clause, [])) for cells in by_target]) for clause in clauses]


def _order(clause: str) -> tuple[str, int]:
    area, _, number = clause.partition("-")
    return area, int(number or 0)


def _by_clause(results: list[CaseResult]) -> dict[str, list[CaseResult]]:
    found: dict[str, list[CaseResult]] = {}
    for result in results:
        found.setdefault(result.clause, []).append(result)
    return found


def _cell(results: list[CaseResult]) -> str:
    counted = Counter(result.verdict for result in results)
    worst = next((verdict for verdict in WORST_FIRST if counted[verdict]), None)
    if worst is None:
        return ""
    decided = sum(counted[verdict] for verdict in (*BROKEN, *UNDECIDED, CaseVerdict.PASS))
    return SIGN[worst] + (f" {counted[worst]}/{decided}" if decided > 1 else "")


def show(report: dict[str, Any], *, strict: bool = False, verbose: bool = False) -> None:
    """Print the table, what was expected, and what was not."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table("clause", "level", *(f"{each['target']} {each['version']}" for each in report["targets"]))
    for clause, cells in clause_rows(report):
        level = find_clause(clause).level if clause else ""
        table.add_row(clause, level, *(_coloured(cell) for cell in cells))
    console.print(table)
    for target in report["targets"]:
        _show_target(console, target, strict, verbose)


def _coloured(cell: str) -> str:
    colour = COLOUR.get(cell.partition(" ")[0])
    return f"[{colour}]{cell}[/{colour}]" if colour else cell


def _show_target(console: Any, target: dict[str, Any], strict: bool, verbose: bool) -> None:
    results, expectations = results_of(target), read_expectations(target["target"])
    for result in results:
        known = expected_by(result, expectations)
        if known is not None:
            console.print(
                f"expected {result.case}: {result.verdict}: {known.reason} {known.link}".rstrip(), markup=False
            )
        elif verbose or result.verdict in UNDECIDED or (result.verdict is CaseVerdict.NON_STRICT and not strict):
            sentence = f"\n    {find_clause(result.clause).sentence}" if verbose and result.clause else ""
            console.print(f"{result.case}: {result.verdict} {result.message}{sentence}", markup=False)
    for line in unexpected(results, expectations, strict=strict):
        console.print(f"UNEXPECTED {line}", markup=False)
    told = ", ".join(f"{count} {verdict}" for verdict, count in target["verdicts"].items() if count)
    console.print(f"{target['target']}: {told or 'no case'}", markup=False)


def markdown(report: dict[str, Any]) -> str:
    """The matrix, and below it each deviation."""
    names = [f"{each['target']} {each['version']}" for each in report["targets"]]
    lines = ["| clause | level | " + " | ".join(names) + " |", "|---" * (2 + len(names)) + "|"]
    for clause, cells in clause_rows(report):
        lines.append(f"| {clause} | {find_clause(clause).level if clause else ''} | " + " | ".join(cells) + " |")
    for target in report["targets"]:
        broken = [result for result in results_of(target) if result.verdict in BROKEN | UNDECIDED]
        lines += ["", f"## {target['target']}", ""] if broken else []
        lines += [f"- {result.case}: {result.verdict}: {result.message}" for result in broken]
    return "\n".join(lines) + "\n"


def junit(report: dict[str, Any]) -> str:
    """A test suite for each target; an expected deviation is skipped, with its reason."""
    root = ElementTree.Element("testsuites")
    for target in report["targets"]:
        results, expectations = results_of(target), read_expectations(target["target"])
        suite = ElementTree.SubElement(root, "testsuite", name=target["target"], tests=str(len(results)))
        for result in results:
            case = ElementTree.SubElement(suite, "testcase", classname=result.clause, name=result.case)
            known = expected_by(result, expectations)
            if result.verdict is CaseVerdict.PASS:
                continue
            kind = "skipped"
            if known is None and result.verdict in BROKEN | UNDECIDED:
                kind = "failure" if result.verdict in BROKEN else "error"
            reason = known.reason if known else result.message
            ElementTree.SubElement(case, kind, message=f"{result.verdict}: {reason}")
    return ElementTree.tostring(root, encoding="unicode") + "\n"
