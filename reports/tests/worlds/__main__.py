"""Run `python -m highwater.reports.tests.worlds [--histories N] [--seed S] [--out FOLDER]`.

Prints how the oracle's answers (rows) meet the auditor's verdicts (columns), and the reasons that the auditor gives for
unknown verdicts where the oracle decides, with their shares. Wrong is `possible` but invalid, or `impossible` but
valid; the first history of each kind is printed in its smallest form. Timid, which is no error, is an unknown verdict
where the oracle decides. Exit code 1 if a verdict is wrong.
"""

import re
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from highwater.errors import ExitCode, Verdict
from highwater.reports.tests.worlds.campaign import Campaign, ndjson, shrunk
from highwater.reports.tests.worlds.oracle import Decision
from highwater.results import progress

console = Console(highlight=False, width=140, soft_wrap=True)


def compare(
    histories: Annotated[int, typer.Option(min=1, help="Number of seeds: a history and two changed ones each.")] = 5000,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write the smallest histories here, timid ones too.")] = None,
) -> None:
    """Compare the auditor with the exhaustive search."""
    campaign = Campaign()
    with progress("histories", histories) as advance:
        for number in range(seed, seed + histories):
            campaign.take(number)
            advance()
    _print_tables(campaign)
    for kind, count in campaign.kinds.most_common():
        if kind[1] == Verdict.UNKNOWN and out is None:
            continue
        first, history = campaign.first[kind]
        console.print(f"\n{count:,} of kind: {', '.join(kind)}")
        console.print(f"replay: python -m highwater.reports.tests.worlds --histories 1 --seed {first}")
        if out is None:
            console.print(ndjson(shrunk(history)), markup=False)
            continue
        out.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"[^a-z0-9]+", "-", "-".join(kind).lower())[:120]
        (out / f"{name}.ndjson").write_text(ndjson(shrunk(history)))
    sys.exit(ExitCode.VIOLATED if campaign.wrong else ExitCode.HELD)


def _print_tables(campaign: Campaign) -> None:
    verdicts = (Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN)
    table = Table("", *verdicts)
    for decision in Decision:
        table.add_row(decision, *(f"{campaign.table[decision, verdict]:,}" for verdict in verdicts))
    console.print(table)
    decided = sum(count for (decision, _), count in campaign.table.items() if decision != Decision.OPEN)
    reasons = Table("unknown where the oracle decides, because of", "possible", "impossible", "of those decided")
    for why in sorted({why for _, why in campaign.unknown}, key=lambda why: -_count(campaign, why)):
        counts = [campaign.unknown[decision, why] for decision in (Decision.POSSIBLE, Decision.IMPOSSIBLE)]
        if sum(counts):
            reasons.add_row(why, *(f"{count:,}" for count in counts), f"{sum(counts) / decided:.2%}")
    console.print(reasons)
    console.print(f"{campaign.table.total():,} histories compared, {campaign.wrong:,} wrong verdicts")


def _count(campaign: Campaign, why: str) -> int:
    return sum(campaign.unknown[decision, why] for decision in (Decision.POSSIBLE, Decision.IMPOSSIBLE))


if __name__ == "__main__":
    typer.run(compare)
