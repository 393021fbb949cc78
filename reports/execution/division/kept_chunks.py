"""A partition of a dataset in chunks: some row groups each, so that a worker holds little of it at a time."""

from collections.abc import Collection
from typing import Any, Final

import numpy as np

from highwater.reports.columns import RECORDS, Operations
from highwater.reports.dataset.reader import Partitions, partitions_of, read_groups, telling
from highwater.reports.execution.division.chunks import ALWAYS, Chosen, Rows, filled, only, some, together

CHUNK: Final = 1 << 18
"""Operations and records of a chunk, or those of one row group."""


class KeptChunks:
    """What workers read it with: they open the file by its name."""

    def __init__(self, partitions: Partitions, key: str) -> None:
        self._folder, self._part = partitions.folder.absolute(), partitions.parts[key]
        with partitions.bucket(self._part.bucket) as file:
            self._told = set(telling(file.metadata))
            rows, sizes = _sizes(file, self._part.number)
        group = np.cumsum(np.append(0, sizes))[:-1] // CHUNK
        group[rows == 0] = -1
        self._groups = [np.flatnonzero(group == each).tolist() for each in np.unique(group[rows > 0])]
        self._starts = np.cumsum([0, *(int(rows[mine].sum()) for mine in self._groups)]).tolist()

    def __len__(self) -> int:
        return len(self._groups)

    def read(self, chunk: int) -> Rows:
        ops = self._read(self._groups[chunk], self._told | set(RECORDS))
        return Rows(ops, np.arange(self._starts[chunk], self._starts[chunk + 1]))

    def columns(self, names: Collection[str], chosen: Chosen | None = None) -> Rows:
        wanted = (self._told & {*ALWAYS, *names}) | (set(RECORDS) if "record_count" in names else set())
        parts = []
        for groups, start in zip(self._groups, self._starts, strict=False):
            ops = only(self._read(groups, wanted), names)
            parts.append(some(Rows(ops, np.arange(start, start + len(ops))), chosen))
        return together(parts)

    def tells(self, *names: str) -> bool:
        return self._told.issuperset(names)

    def _read(self, groups: list[int], names: set[str]) -> Operations:
        partitions = partitions_of(self._folder)
        with partitions.bucket(self._part.bucket) as file:
            columns = read_groups(file, groups, sorted(names), {self._part.number})[self._part.number]
        return partitions.stamped(filled(columns, len(columns["kind"])))


def _sizes(file: Any, number: int) -> tuple[Any, Any]:
    """Of each row group, how many rows of the partition it holds, and about how many rows and records of it."""
    rows, sizes = [], []
    for place in range(file.num_row_groups):
        mine = int(
            np.sum(file.read_row_group(place, ["partition"], use_threads=False)["partition"].to_numpy() == number)
        )
        group = file.metadata.row_group(place)
        values = max(group.column(column).num_values for column in range(group.num_columns))
        rows.append(mine)
        sizes.append(mine + mine * values // max(1, group.num_rows))
    return np.array(rows), np.array(sizes)
