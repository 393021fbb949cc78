"""Columns that grow."""

import struct
from array import array
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from reports.columns import NARROW, OPTIONAL, STORED, TOMBSTONE, UNKNOWN, Ints, Operations

_PACK: Final = struct.Struct(f"={len(STORED)}q").pack

OWN_NUMBER: Final = 1 << 61


class Values:
    """Values as integers: small non-negative integers stand for themselves, everything else is numbered."""

    def __init__(self, texts: Sequence[str] = ()) -> None:
        self.texts = list(texts)
        self._numbers = {text: -2 - place for place, text in enumerate(self.texts)}

    def number(self, value: Any) -> int:
        if type(value) is int and 0 <= value < OWN_NUMBER:
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


class Builder:
    """Rows of one partition, packed, until they are taken as columns."""

    __slots__ = ("_offsets", "_rows", "_values")

    def __init__(self) -> None:
        self._rows, self._offsets, self._values = bytearray(), array("q"), array("q")

    def __len__(self) -> int:
        return len(self._rows) // (8 * len(STORED))

    def add(self, row: tuple[int, ...], records: Sequence[tuple[int, int]] = ()) -> None:
        """`row` is as `STORED` says. OverflowError for what does not fit into 64 bits."""
        try:
            self._rows += _PACK(*row)
        except struct.error as error:
            raise OverflowError(str(error)) from error
        if records:
            offsets, values = zip(*records, strict=True)
            self._offsets.extend(offsets)
            self._values.extend(values)

    def take(self) -> Operations:
        """What was added since the last time; columns that tell nothing are left out."""
        rows = np.frombuffer(self._rows, np.int64).reshape(-1, len(STORED))
        columns: dict[str, Any] = {
            name: rows[:, place].astype(NARROW.get(name, np.int64)) for place, name in enumerate(STORED)
        }
        told = {name: each for name, each in columns.items() if name not in OPTIONAL or np.any(each != UNKNOWN)}
        taken = Operations(**told, record_offset=_ints(self._offsets), record_value=_ints(self._values))
        self.__init__()  # type: ignore[misc]
        return taken


def _ints(data: "array[int]") -> Ints:
    return np.frombuffer(data, np.int64) if data else np.zeros(0, np.int64)
