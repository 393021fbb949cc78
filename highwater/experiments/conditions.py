"""What is measured: conditions, measurements, and the file that keeps them while a bench runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from highwater.errors import UsageError

Setting = int | str
MEASUREMENTS: Final = "measurements.ndjson"
UNITS: Final[Mapping[str, str]] = {
    "records_per_second": "records/s",
    "megabytes_per_second": "MB/s",
    "records_before": "records/s",
    "records_during": "records/s",
    "acknowledged": "records",
    "accepted": "records",
    "lost": "records",
    "duplicated": "records",
    "revoked": "partitions",
    "started": "members",
    "audited": "operations",
}
"""Units by the name of a metric; what is not listed is a number of milliseconds, or of errors by their names."""
MILLISECONDS: Final = "ms"
ERRORS: Final = "error "


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One row of an experiment: what is set, and how many brokers it needs."""

    experiment: str
    settings: dict[str, Setting]
    brokers: int = 1

    @property
    def key(self) -> str:
        return f"{self.experiment} " + " ".join(f"{name}={value}" for name, value in self.settings.items())

    def number(self, name: str) -> int:
        value = self.settings[name]
        assert isinstance(value, int), name
        return value


@dataclass(frozen=True, slots=True)
class Found:
    """What a measurement found: its metrics, and values within the repetition for those that have some."""

    metrics: dict[str, float]
    samples: dict[str, list[float]] = field(default_factory=dict)


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of one condition on one target in one repetition, or the reason why there are none.

    `samples`: values within the repetition, such as one for each second. `unsupported`: the target lacks something, so
    that no repetition is needed. `failed`: this repetition failed.
    """

    target: str
    experiment: str
    settings: dict[str, Setting]
    repetition: int
    metrics: dict[str, float] = {}
    samples: dict[str, list[float]] = {}
    unsupported: str = ""
    failed: str = ""

    @property
    def done(self) -> tuple[str, str, int]:
        condition = Condition(experiment=self.experiment, settings=self.settings)
        return self.target, condition.key, self.repetition


def unit_of(metric: str) -> str:
    """Return the unit of a metric."""
    return "errors" if metric.startswith(ERRORS) else UNITS.get(metric, MILLISECONDS)


class Store:
    """The measurements of a bench, one line for each, written as they come: an interrupted bench loses none."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / MEASUREMENTS
        self.measurements = list(read_measurements(folder)) if self._path.exists() else []

    def add(self, measurement: Measurement) -> None:
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(measurement) + b"\n")
        self.measurements.append(measurement)

    def finished(self) -> set[tuple[str, str, int]]:
        """Return what need not be measured again. A measurement that failed is repeated."""
        return {measurement.done for measurement in self.measurements if not measurement.failed}


def read_measurements(folder: Path) -> Iterator[Measurement]:
    """Yield the measurements of a bench. A last line that was cut off by an interruption is left out.

    Raises UsageError for a folder without measurements and for any other line that cannot be read.
    """
    path = folder / MEASUREMENTS
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(
            "no measurements in this folder", where=str(folder), hint="give a folder that highwater bench made"
        ) from error
    for number, line in enumerate(lines[:-1], 1):
        try:
            yield msgspec.json.decode(line, type=Measurement)
        except msgspec.DecodeError as error:
            raise UsageError(
                f"not a measurement ({error})", where=f"{path}:{number}", hint="delete the line"
            ) from error
