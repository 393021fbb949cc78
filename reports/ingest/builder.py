"""Columns that grow: those that few rows need cost the others nothing."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reports.columns import OPTIONAL, RECORDS, ROW_COLUMNS, TOMBSTONE, UNKNOWN, Ints, Operations

NAMES = tuple(name for name in ROW_COLUMNS if name not in OPTIONAL)


class Values:
    """Values as integers: small non-negative integers stand for themselves, everything else is numbered."""

    def __init__(self, texts: Sequence[str] = ()) -> None:
        self.texts = list(texts)
        self._numbers = {text: -2 - place for place, text in enumerate(self.texts)}

    def number(self, value: Any) -> int:
        if type(value) is int and 0 <= value < 1 << 61:
            return value
        if value is None:
            return TOMBSTONE
        text = repr(value)
        if text not in self._numbers:
            self._numbers[text] = -2 - len(self.texts)
            self.texts.append(text)
        return self._numbers[text]

    def text(self, number: int) -> str:
        if number == TOMBSTONE:
            return "null"
        return str(number) if number >= 0 else self.texts[-2 - number]


def _columns(names: Iterable[str]) -> dict[str, "array[int]"]:
    return {name: array("q") for name in names}


@dataclass(slots=True)
class Builder:
    """Grows the columns of one partition."""

    columns: dict[str, "array[int]"] = field(default_factory=lambda: _columns(NAMES))
    optional: dict[str, "array[int]"] = field(default_factory=dict)
    records: dict[str, "array[int]"] = field(default_factory=lambda: _columns(RECORDS))

    def add(
        self, row: tuple[int, ...], told: Mapping[str, int | None], records: Iterable[tuple[int, int]] = ()
    ) -> None:
        """`row` is `NAMES` but the last; of `told`, what is None was not told."""
        offsets, values = self.records["record_offset"], self.records["record_value"]
        before = len(offsets)
        for offset, value in records:
            offsets.append(offset)
            values.append(value)
        for column, each in zip(self.columns.values(), (*row, len(offsets) - before), strict=True):
            column.append(each)
        for name, cell in told.items():
            if cell is not None:
                grown = self.optional.setdefault(name, array("q"))
                self._pad(grown, less=1)
                grown.append(cell)

    def _pad(self, column: "array[int]", less: int = 0) -> None:
        short = len(self.columns["invoked"]) - less - len(column)
        if short:
            column.extend(array("q", [UNKNOWN]) * short)

    def build(self, **stamped: Ints) -> Operations:
        """`stamped` are optional columns that are known only now."""
        for column in self.optional.values():
            self._pad(column)
        made = {name: as_ints(data) for name, data in (self.columns | self.optional | self.records).items()}
        return Operations(**(made | stamped))

    def told(self, name: str) -> Ints | None:
        if name not in self.optional:
            return None
        self._pad(self.optional[name])
        return as_ints(self.optional[name])


def as_ints(data: "array[int]") -> Ints:
    return np.frombuffer(data, np.int64) if data else np.zeros(0, np.int64)
