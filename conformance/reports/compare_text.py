"""What changed, as lines for a terminal and as Markdown."""

from collections import Counter
from collections.abc import Iterator

from highwater.conformance.reports.compare import Comparison, Difference
from highwater.conformance.reports.markdown import plain, table_head, table_line


def lines(comparison: Comparison) -> Iterator[str]:
    """One line for each remark and difference, and the sum."""
    yield from comparison.remarks
    for each in comparison.differences:
        yield f"{each.change} {each.case} ({each.target}): {_verdicts(each)} {each.message}".rstrip()
    yield tally(comparison)


def markdown(comparison: Comparison) -> str:
    found = ["# What changed", "", plain(tally(comparison)), ""]
    found += [f"- {plain(remark)}" for remark in comparison.remarks]
    if comparison.differences:
        found += ["", *table_head("change", "case", "target", "verdict", "message")]
        found += [
            table_line(each.change, each.case, each.target, _verdicts(each), each.message)
            for each in comparison.differences
        ]
    return "\n".join(found) + "\n"


def tally(comparison: Comparison) -> str:
    """`2 broke, 1 mended`, in the order of `Change`."""
    counted = Counter(each.change for each in comparison.differences)
    return ", ".join(f"{count} {change}" for change, count in counted.items()) or "nothing changed"


def _verdicts(difference: Difference) -> str:
    return " -> ".join(verdict or "none" for verdict in (difference.before, difference.after))
