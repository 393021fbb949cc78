"""Collect the rows of a partition as packed bytes, and number values that are not small integers."""

import struct
from array import array
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from highwater.reports.columns import NARROW, OPTIONAL, STORED, TOMBSTONE, UNKNOWN, Operations

packed: Final = struct.Struct(f"={len(STORED)}q").pack
"""Pack one row in the order of `STORED`; struct.error if a cell does not fit into 64 bits."""

OWN_NUMBER: Final = 1 << 61


def text_of(value: Any) -> str:
    """Return a text that is equal for equal values; maps and sets are sorted, since their order has no meaning."""
    return repr(value if isinstance(value, str) else _in_order(value))


def _in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return dict(sorted(((key, _in_order(item)) for key, item in value.items()), key=lambda pair: repr(pair[0])))
    if isinstance(value, (set, frozenset)):
        return sorted((_in_order(item) for item in value), key=repr)
    return [*map(_in_order, value)] if isinstance(value, (list, tuple)) else value


class Values:
    """Values as integers: integers from 0 to 2^61 - 1 are themselves, other values are numbered from -2 downwards."""

    def __init__(self, texts: Sequence[str] = ()) -> None:
        self.texts = list(texts)
        self._numbers = {text: -2 - place for place, text in enumerate(self.texts)}

    def number(self, value: Any) -> int:
        if type(value) is int and 0 <= value < OWN_NUMBER:
            return value
        if value is None:
            return TOMBSTONE
        text = text_of(value)
        if text not in self._numbers:
            self._numbers[text] = -2 - len(self.texts)
            self.texts.append(text)
        return self._numbers[text]

    def text(self, number: int) -> str:
        if number == TOMBSTONE:
            return "null"
        return str(number) if number >= 0 else self.texts[-2 - number]


OTHERS: Final = 1 << 28


class Processes:
    """Cells of processes: twice their number, plus 1 for raw fetches; processes without a small number follow."""

    def __init__(self) -> None:
        self._others: dict[int | str, int] = {}

    def cell(self, process: int | str, *, raw: bool = False) -> int:
        """Return the cell of a process; a raw fetch does not move the position of a consumer of the same process."""
        if type(process) is int and 0 <= process < OTHERS:
            return 2 * process + raw
        return 2 * (OTHERS + self._others.setdefault(process, len(self._others))) + raw


class Builder:
    """Rows of one partition, packed until `take` returns them as columns."""

    __slots__ = ("_records", "_rows")

    def __init__(self) -> None:
        self._rows, self._records = bytearray(), array("q")

    def __len__(self) -> int:
        return len(self._rows) // (8 * len(STORED))

    def add(self, row: bytes, records: Sequence[tuple[int, int]] = ()) -> None:
        self._rows += row
        if records:
            self._records.extend(chain.from_iterable(records))

    def take(self) -> Operations:
        """Return the rows added since the last call; optional columns without a known value are left out."""
        rows = np.frombuffer(self._rows, np.int64).reshape(-1, len(STORED))
        columns: dict[str, Any] = {
            name: rows[:, place].astype(NARROW.get(name, np.int64)) for place, name in enumerate(STORED)
        }
        records = np.frombuffer(self._records, np.int64).reshape(-1, 2)
        present = {
            name: column for name, column in columns.items() if name not in OPTIONAL or np.any(column != UNKNOWN)
        }
        taken = Operations(**present, record_offset=records[:, 0].copy(), record_value=records[:, 1].copy())
        self.__init__()  # type: ignore[misc]
        return taken
