"""Read a partition of a dataset in chunks of a few Parquet row groups, to bound the memory of a worker."""

from collections.abc import Collection
from typing import Any, Final

import numpy as np

from highwater.reports.columns import RECORDS, Operations
from highwater.reports.dataset.reader import Partitions, columns_with_values, partitions_of, read_groups
from highwater.reports.execution.division.chunks import (
    ALWAYS,
    RowFilter,
    Rows,
    concatenate_rows,
    fill_missing_columns,
    filter_rows,
    select_columns,
)

CHUNK: Final = 1 << 18
"""Rows plus records of a chunk; a chunk has at least one row group."""


class DatasetChunks:
    """Chunks of a partition of a dataset; every read opens the file by its name."""

    def __init__(self, partitions: Partitions, key: str) -> None:
        self._folder, self._part = partitions.folder.absolute(), partitions.parts[key]
        with partitions.bucket(self._part.bucket) as file:
            self._columns = set(columns_with_values(file.metadata))
            rows, sizes = _sizes(file, self._part.number)
        group = np.cumsum(np.append(0, sizes))[:-1] // CHUNK
        group[rows == 0] = -1
        self._groups = [np.flatnonzero(group == chunk).tolist() for chunk in np.unique(group[rows > 0])]
        self._starts = np.cumsum([0, *(int(rows[mine].sum()) for mine in self._groups)]).tolist()

    def __len__(self) -> int:
        return len(self._groups)

    def read(self, chunk: int) -> Rows:
        ops = self._read(self._groups[chunk], self._columns | set(RECORDS))
        return Rows(ops, np.arange(self._starts[chunk], self._starts[chunk + 1]))

    def columns(self, names: Collection[str], chosen: RowFilter | None = None) -> Rows:
        wanted = (self._columns & {*ALWAYS, *names}) | (set(RECORDS) if "record_count" in names else set())
        parts = []
        for groups, start in zip(self._groups, self._starts, strict=False):
            ops = select_columns(self._read(groups, wanted), names)
            parts.append(filter_rows(Rows(ops, np.arange(start, start + len(ops))), chosen))
        return concatenate_rows(parts)

    def has_values(self, *names: str) -> bool:
        return self._columns.issuperset(names)

    def _read(self, groups: list[int], names: set[str]) -> Operations:
        partitions = partitions_of(self._folder)
        with partitions.bucket(self._part.bucket) as file:
            columns = read_groups(file, groups, sorted(names), {self._part.number})[self._part.number]
        return partitions.with_transaction_outcomes(fill_missing_columns(columns, len(columns["kind"])))


def _sizes(file: Any, number: int) -> tuple[Any, Any]:
    """Return for each row group the rows of the partition, and an estimate of its rows plus records."""
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
