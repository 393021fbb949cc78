"""The self-test for people: what was missed, and how many cases catch what they say."""

from collections.abc import Mapping
from typing import Any


def show(report: Mapping[str, Any], *, verbose: bool = False) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    if report["complaints"]:
        table = Table("case", "outcome", "defect", "message", box=None)
        for trial in report["complaints"]:
            table.add_row(*(_plain(trial[column]) for column in ("item", "outcome", "defect", "message")))
        console.print(table)
    if report["untested"]:
        named = f": {', '.join(report['untested'])}" if verbose else " (-v names them)"
        console.print(f"{len(report['untested'])} cases ask for what the target lacks{named}", markup=False)
    planted = ", ".join(f"{count} {kind}" for kind, count in report["planted"].items())
    console.print(f"planted: {planted}", markup=False)
    console.print(f"self-test: {report['caught']} of {report['total']} cases catch their defects", markup=False)


def _plain(text: str) -> str:
    """What stands in brackets is no style."""
    return text.replace("[", r"\[")
