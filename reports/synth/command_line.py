"""`highwater synth`: generate histories of a healthy Kafka, with planted anomalies on request."""

from pathlib import Path
from typing import Annotated

import typer


def synth_command(
    out: Annotated[Path, typer.Option(help="Write FILE.ndjson, or a folder of Parquet buckets.")],
    ops: Annotated[int, typer.Option(min=1, help="Number of operations.")] = 10_000,
    plant: Annotated[
        list[str] | None,
        typer.Option(help="RULE[:COUNT]: plant COUNT anomalies of a rule (number or name); repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed gives the same bytes.")] = 1,
) -> None:
    """Generate a large history of a correct cluster: producers, transactions, groups, leader changes.

    Each planted anomaly occurs as often as requested, in its own topics and groups; there are no other anomalies.

    Examples: highwater synth --ops 1000000 --out history.ndjson · highwater synth --plant lost-write:3 --out planted
    """
    from highwater.reports.synth.write import synth, synth_dataset

    planted = dict(_plant(spec) for spec in plant or [])
    write = synth if out.suffix == ".ndjson" else synth_dataset
    write(out, operations=ops, seed=seed, planted=planted)
    typer.echo(str(out))


def _plant(text: str) -> tuple[int, int]:
    """Parse RULE[:COUNT], where RULE is a number or a name."""
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
