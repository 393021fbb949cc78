"""The tables of the documents and their claims (`documents.toml`)."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from highwater.experiments.conditions import Measurement, Setting

FILE: Final = Path(__file__).parent / "documents.toml"
VALUE: Final = "value"
"""The key of a figure for the only metric of its table."""
Choice = Setting | list[Setting]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a document: which measurements repeat it, and its figures (settings, and metrics as the keys)."""

    id: str
    experiment: str
    document: str
    section: str
    says: str
    metrics: list[str]
    where: dict[str, Choice] = {}
    figures: list[dict[str, float | str]] = []
    note: str = ""

    def repeated_by(self, measurement: Measurement) -> bool:
        """Return whether the measurement has the settings of this table."""
        return measurement.experiment == self.experiment and matches(measurement.settings, self.where)

    @property
    def name(self) -> str:
        return f"{self.document}, {self.section}"


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sentence about a table, and the test that decides it; see `verdicts.py` for the tests and their fields."""

    table: str
    says: str
    test: str
    along: str = ""
    order: list[Setting] = []
    within: list[str] = []
    where: dict[str, Choice] = {}
    metric: str = ""
    than: str = ""
    factor: float = 1.0
    also: str = ""
    covered: str = ""
    unless: str = ""


@cache
def tables() -> list[Table]:
    return msgspec.convert(_file()["table"], list[Table])


@cache
def claims() -> list[Claim]:
    return msgspec.convert(_file()["claim"], list[Claim])


def matches(settings: Mapping[str, object], where: Mapping[str, Choice]) -> bool:
    """Return whether the settings have the values of `where`, or one of them where there is a list."""
    return all(
        settings.get(name) in wanted if isinstance(wanted, list) else settings.get(name) == wanted
        for name, wanted in where.items()
    )


def repeats(measurement: Measurement) -> list[str]:
    """Return the names of the tables that a measurement repeats."""
    return [table.name for table in tables() if table.repeated_by(measurement)]


def document_measurements(table: Table) -> list[Measurement]:
    """Return the figures of the document as measurements, so that the same tests apply to them."""
    found = []
    for figure in table.figures:
        metrics = {name: float(figure[name]) for name in table.metrics if name in figure}
        if VALUE in figure:
            metrics[table.metrics[0]] = float(figure[VALUE])
        settings = {
            name: int(value) if isinstance(value, (int, float)) else value
            for name, value in figure.items()
            if name != VALUE and name not in table.metrics
        }
        found.append(
            Measurement(
                target=table.document, experiment=table.experiment, settings=settings, repetition=0, metrics=metrics
            )
        )
    return found


def _file() -> dict[str, object]:
    return tomllib.loads(FILE.read_text())
