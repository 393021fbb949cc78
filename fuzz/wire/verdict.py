"""How a run ended, and what follows from that and from its findings: the verdict and the exit code."""

from typing import Any, Final

from highwater.errors import ExitCode

INTERRUPTED: Final = "interrupted"
ENDS: Final = {
    "time": "ended by --seconds",
    "cases": "ended by --cases",
    "findings": "ended by the number of findings",
    "the target is dead": "ended because the target is dead",
    INTERRUPTED: INTERRUPTED,
}
"""By `ended` of the summary: what the last line says."""


def verdict(summary: dict[str, Any]) -> str:
    """Return the last words about a run; one that was interrupted, or that left failures unexamined, is not clean."""
    if summary["findings"]:
        return f"{len(summary['findings'])} findings"
    if summary["ended"] == INTERRUPTED:
        return "undecided"
    return "not clean" if summary.get("unexamined") else "clean"


def exit_code(summary: dict[str, Any]) -> ExitCode:
    """Return 1 for findings, else 3 for an interrupted run, else 1 for failures that were not examined, else 0."""
    if summary["findings"]:
        return ExitCode.VIOLATED
    if summary["ended"] == INTERRUPTED:
        return ExitCode.UNDECIDED
    return ExitCode.VIOLATED if summary.get("unexamined") else ExitCode.HELD
