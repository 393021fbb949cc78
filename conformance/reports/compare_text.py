"""A comparison as lines for a terminal and as Markdown."""

from collections import Counter
from collections.abc import Iterator

from highwater.conformance.reports.compare import RunComparison, VerdictDifference
from highwater.conformance.reports.markdown import escape, table_head, table_line


def lines(comparison: RunComparison) -> Iterator[str]:
    """Yield a line for each remark and difference, then the totals."""
    yield from comparison.remarks
    for difference in comparison.differences:
        where = f"{difference.case} ({difference.target})"
        yield f"{difference.change} {where}: {_verdicts(difference)} {difference.message}".rstrip()
    yield tally(comparison)


def markdown(comparison: RunComparison) -> str:
    found = ["# What changed", "", escape(tally(comparison)), ""]
    found += [f"- {escape(remark)}" for remark in comparison.remarks]
    if comparison.differences:
        found += ["", *table_head("change", "case", "target", "verdict", "message")]
        found += [
            table_line(difference.change, difference.case, difference.target, _verdicts(difference), difference.message)
            for difference in comparison.differences
        ]
    return "\n".join(found) + "\n"


def tally(comparison: RunComparison) -> str:
    """Return the number of each change, such as `2 broke, 1 added`."""
    counted = Counter(difference.change for difference in comparison.differences)
    return ", ".join(f"{count} {change}" for change, count in counted.items()) or "nothing changed"


def _verdicts(difference: VerdictDifference) -> str:
    return " -> ".join(verdict or "none" for verdict in (difference.before, difference.after))
