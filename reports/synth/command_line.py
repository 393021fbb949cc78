"""`highwater synth`: histories of a healthy Kafka, with anomalies where one wants them."""

from pathlib import Path
from typing import Annotated

import typer


def synth_command(
    out: Annotated[Path, typer.Option(help="FILE.ndjson, or a folder: one Parquet bucket for each partition.")],
    ops: Annotated[int, typer.Option(min=1, help="How many operations.")] = 10_000,
    plant: Annotated[
        list[str] | None, typer.Option(help="RULE[:COUNT]: an anomaly, by number or name, so often; repeatable.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Draws everything; the same seed gives the same bytes.")] = 1,
) -> None:
    """Make up a large history: producers, transactions, groups, changes of leader, all as they should be.

    What is planted is in it as often as asked, in topics and groups of its own, and nothing else is wrong.

    Examples: highwater synth --ops 1000000 --out history.ndjson · highwater synth --plant lost-write:3 --out planted
    """
    from highwater.reports.synth.write import synth, synth_dataset

    planted = dict(_plant(each) for each in plant or [])
    write = synth if out.suffix == ".ndjson" else synth_dataset
    write(out, operations=ops, seed=seed, planted=planted)
    typer.echo(str(out))


def _plant(text: str) -> tuple[int, int]:
    """RULE[:COUNT], the rule by number or name."""
    from highwater.errors import UsageError
    from highwater.names import unknown_name
    from highwater.reports.anomalies import anomalies

    rule, _, count = text.partition(":")
    numbers = {anomaly.name: number for number, anomaly in anomalies().items()}
    number = numbers.get(rule, int(rule) if rule.isdigit() else 0)
    if number not in anomalies():
        raise unknown_name("rule", rule, numbers, "highwater audit --list", where="--plant")
    if not (count or "1").isdigit():
        raise UsageError(f"expected RULE[:COUNT], not {text!r}", where="--plant", hint="COUNT is a number")
    return number, int(count or 1)
