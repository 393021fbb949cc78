"""The matrix as Markdown, for an issue or a job summary, and the small table of many targets."""

import re
from collections import Counter
from typing import Final

from highwater.conformance.report import Report, TargetReport
from highwater.conformance.reports.clause_list import TITLES
from highwater.conformance.reports.matrix import (
    Deviation,
    cell_text,
    deviations,
    features_text,
    left_out_text,
    rows_of,
    seconds_text,
    tally,
)
from highwater.conformance.reports.sources import link_source
from highwater.conformance.running.verdicts import DECIDED, CaseVerdict
from highwater.spec.clauses import load_clauses

SPECIAL: Final = re.compile(r"([\\`*_\[\]<>|#~&])")
MATRIX_HEAD: Final = ("clause", "level")
NOTHING: Final = "–"
LEGEND: Final = (
    "A cell has the cases that passed, and the cases that were decided: passed, failed, or differed from run to run. "
    "– means that none was: the target does not advertise the requests, or lacks what the cases need. "
    "So compare the second numbers, too."
)


def markdown(report: Report) -> str:
    """Render the run, a line for each target, the matrix, and each deviation with its clause."""
    lines = ["# Kafka conformance", "", *_stamp(report), *_summary(report)]
    lines += table_head(*MATRIX_HEAD, *(target.name for target in report.targets))
    for row in rows_of(report):
        level = row.clause.level if row.clause_id else ""
        lines.append(table_line(row.clause_id or "suite", level, *map(cell_text, row.cells)))
    for target in report.targets:
        lines += _deviations(target)
    return "\n".join(lines) + "\n"


def table_head(*names: str) -> list[str]:
    return [table_line(*names), "|---" * len(names) + "|"]


def table_line(*cells: object) -> str:
    return "| " + " | ".join(escape(str(cell)) for cell in cells) + " |"


def escape(text: str) -> str:
    """Escape Markdown and join lines, so that text of a broker cannot become markup or break a table."""
    return SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _stamp(report: Report) -> list[str]:
    options = [f"{name} {value}" for name, value in report.run.options.items()]
    parts = [report.run.suite, report.run.schema, report.run.started, *options]
    return [escape(" · ".join(part for part in parts if part)), ""] if any(parts) else []


def _summary(report: Report) -> list[str]:
    lines = table_head("target", "version", "verdicts", "features", "time")
    lines += [
        table_line(target.target, target.version, tally(target), features_text(target), seconds_text(target))
        for target in report.targets
    ]
    left_out = [
        f"{escape(target.name)}: {escape(left_out_text(target))}" for target in report.targets if target.left_out
    ]
    return [*lines, "", *(line for text in left_out for line in (text, ""))]


def _deviations(target: TargetReport) -> list[str]:
    found = deviations(target)
    return ["", f"## {escape(target.name)}", "", *map(_deviation, found)] if found else []


def _deviation(deviation: Deviation) -> str:
    result, known = deviation.result, deviation.known
    clause = load_clauses().get(result.clause)
    line = f"- **{escape(result.case)}** {result.verdict}: {escape(result.message)}"
    if clause:
        source = "".join(
            f"[{escape(text)}]({link})" if link else escape(text) for text, link in link_source(clause.source)
        )
        line += f"  \n  {clause.level}: {escape(clause.sentence)} ({source})"
    if known:
        line += f"  \n  Expected: {escape(known.reason)}" + (f" (<{known.link}>)" if known.link else "")
    return line


def areas_markdown(report: Report) -> str:
    """Return a table with a row for each area of clauses and a column for each target: cases passed and decided."""
    counts = [_by_area(target) for target in report.targets]
    areas = [area for area in TITLES if any(area in found for found in counts)]
    lines = table_head("area", *(_title(target) for target in report.targets))
    lines += [table_line(TITLES[area], *(_cell(found.get(area, Counter())) for found in counts)) for area in areas]
    sums = [sum(found.values(), Counter[CaseVerdict]()) for found in counts]
    lines.append("| **all** | " + " | ".join(f"**{_cell(total)}**" for total in sums) + " |")
    lines.append(table_line("not decided", *(total.total() - _decided(total) for total in sums)))
    if any(total[CaseVerdict.NOT_RUN] for total in sums):
        lines.append(table_line("of these not run", *(total[CaseVerdict.NOT_RUN] for total in sums)))
    return "\n".join([*lines, "", escape(LEGEND), "", _stamps(report), ""])


def _title(target: TargetReport) -> str:
    return f"{target.target} {target.version}".strip()


def _by_area(target: TargetReport) -> dict[str, Counter[CaseVerdict]]:
    clauses, found = load_clauses(), dict[str, Counter[CaseVerdict]]()
    for result in target.cases:
        if result.clause in clauses:
            found.setdefault(clauses[result.clause].area, Counter())[result.verdict] += 1
    return found


def _decided(counts: Counter[CaseVerdict]) -> int:
    return sum(counts[verdict] for verdict in DECIDED)


def _cell(counts: Counter[CaseVerdict]) -> str:
    decided = _decided(counts)
    return f"{counts[CaseVerdict.PASS]:,} / {decided:,}" if decided else NOTHING


def _stamps(report: Report) -> str:
    parts = [f"{_title(target)}: {len(target.cases):,} cases" for target in report.targets]
    return escape(f"{report.run.suite}. " + "; ".join(parts) + ".")
