"""The measurements as one table, CSV and Parquet: a row for each metric of each repetition."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from highwater.experiments.conditions import Measurement, unit_of
from highwater.experiments.documents import repeats

CSV: Final = "measurements.csv"
PARQUET: Final = "measurements.parquet"
FIRST: Final = ("target", "experiment", "repeats")
LAST: Final = ("repetition", "metric", "value", "unit", "unsupported", "failed")


def rows(measurements: Iterable[Measurement]) -> list[dict[str, Any]]:
    """Return a row for each metric, or one without a metric for a measurement that has none.

    `repeats` names the tables of the documents; each setting is a column.
    """
    found = []
    for one in measurements:
        base: dict[str, Any] = {
            "target": one.target, "experiment": one.experiment, "repeats": "; ".join(repeats(one)), **one.settings,
            "repetition": one.repetition, "unsupported": one.unsupported, "failed": one.failed,
        }  # fmt: skip
        found += [
            {**base, "metric": name, "value": value, "unit": unit_of(name)} for name, value in one.metrics.items()
        ] or [base]
    return found


def columns(found: Sequence[dict[str, Any]]) -> list[str]:
    """Return the names of all columns, settings in the middle."""
    settings = dict.fromkeys(name for row in found for name in row if name not in {*FIRST, *LAST})
    return [*FIRST, *settings, *LAST]


def export(measurements: Iterable[Measurement], folder: Path) -> None:
    """Write both files; without a measurement there are only their headers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = rows(measurements)
    names = columns(found)
    with (folder / CSV).open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(found)
    data = {name: _column(name, [row.get(name) for row in found]) for name in names}
    pq.write_table(pa.table(data), folder / PARQUET)


def _column(name: str, values: list[Any]) -> Any:
    """Return values of one type: a setting such as acks is a number in some rows and a word in others."""
    import pyarrow as pa

    if name == "value":
        return pa.array(values, pa.float64())
    if all(value is None or isinstance(value, int) for value in values):
        return pa.array(values, pa.int64())
    return pa.array([None if value is None else str(value) for value in values], pa.string())
