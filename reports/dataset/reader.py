"""Read a dataset; each partition is loaded only when it is requested."""

import sys
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from highwater.errors import UsageError
from highwater.reports.columns import (
    NOTHING,
    OPTIONAL,
    RECORDS,
    STORED,
    TOMBSTONE,
    UNKNOWN,
    Ints,
    Operations,
    Status,
    single_row,
    with_transaction_outcomes,
)
from highwater.reports.dataset import schema
from highwater.reports.dataset.schema import Manifest, bucket_file, bucket_of
from highwater.reports.dataset.storage import RemoteFolder, folder_of
from highwater.reports.ingest.builder import Values
from highwater.reports.ingest.history import Ingested, Partitioned
from highwater.reports.ingest.incarnations import FormerPartition, prepend_former_sends
from highwater.reports.tables import Step, Tables, Transactions

Folder = Path | RemoteFolder


class Part(NamedTuple):
    """One partition of a dataset."""

    number: int
    key: str
    rows: int
    records: int
    former: FormerPartition | None

    @property
    def bucket(self) -> int:
        return bucket_of(self.number)


def read_manifest(folder: Folder) -> Manifest:
    """Return the manifest; UsageError if the folder is not a dataset or has another version."""
    try:
        manifest = msgspec.json.decode((folder / schema.MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"not a dataset: {error}", where=str(folder), hint="see highwater audit --out DIR") from error
    if manifest.version != schema.VERSION:
        what = f"a dataset of version {manifest.version}, not {schema.VERSION}"
        raise UsageError(what, where=str(folder), hint="read the history again, with highwater audit HISTORY --out DIR")
    return manifest


def is_dataset(where: Folder | str) -> bool:
    """Return whether there is a dataset; at an address that pyarrow can open too, False if Hadoop cannot say so."""
    try:
        return (folder_of(where) / schema.MANIFEST).exists()
    except UsageError:
        if str(where).startswith("s3a://"):
            raise
        return False


def holds(folder: Path, source: tuple[str, int, int]) -> bool:
    """Return whether the folder holds the complete dataset of `source` (path, bytes, mtime).

    UsageError if it holds that of another history, which would be lost.
    """
    if not (folder / schema.MANIFEST).exists():
        return False
    kept = read_manifest(folder).source
    if kept[0] != source[0]:
        what = f"holds the dataset of another history, {kept[0]}"
        raise UsageError(what, where=str(folder), hint="name another folder, or delete this one")
    return source[1] > 0 and kept == source


class Partitions(Partitioned):
    """The partitions of a dataset; every access reads from disk."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        rows = _read(folder / "partitions.parquet", schema.PARTITIONS).to_pylist()
        self.divided: dict[Any, Any] = {}  # cache of engines: surveys of large partitions
        self.parts = {row["key"]: _part(row) for row in sorted(rows, key=lambda row: str(row["key"]))}

    @cached_property
    def transaction_outcomes(self) -> tuple[Ints, Ints]:
        """Return fate and end by transaction number; the last cell is for rows without a transaction."""
        table = _read(self.folder / "transactions.parquet", schema.TRANSACTIONS, ["fate", "ended"])
        fate, ended = (table[name].to_numpy() for name in ("fate", "ended"))
        return np.append(fate, np.int8(UNKNOWN)), np.append(ended, np.int64(UNKNOWN))

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __getitem__(self, key: str) -> Operations:
        (partition,) = self.of_bucket(self.parts[key].bucket, {key})
        return partition[1]

    def buckets(self) -> dict[int, list[str]]:
        """Return the keys in each bucket, those with the most rows first."""
        keys: dict[int, list[str]] = {}
        for part in sorted(self.parts.values(), key=lambda part: -part.rows):
            keys.setdefault(part.bucket, []).append(part.key)
        return keys

    def of_bucket(self, bucket: int, keys: Collection[str]) -> Iterator[tuple[str, Operations]]:
        """Yield (key, operations) of these partitions of a bucket."""
        wanted = {self.parts[key].number: key for key in keys}
        with self.bucket(bucket) as file:
            columns = read_groups(
                file, range(file.num_row_groups), (*columns_with_values(file.metadata), *RECORDS), wanted
            )
        for number in list(columns):
            part = self.parts[wanted[number]]
            verify_size(part, len(columns[number]["invoked"]), len(columns[number]["record_offset"]), self.folder)
            yield part.key, self._complete(part, Operations(**columns.pop(number)))

    @cached_property
    def columns_with_values(self) -> tuple[str, ...]:
        """The columns that may hold a known value in any bucket."""
        names: set[str] = set()
        for bucket in self.buckets():
            with self.bucket(bucket) as file:
                names.update(columns_with_values(file.metadata))
        return tuple(name for name in STORED if name in names)

    @contextmanager
    def bucket(self, bucket: int) -> Iterator[Any]:
        """Open the Parquet file of a bucket."""
        with _opened(bucket_file(self.folder, bucket), schema.OPERATIONS) as file:
            yield file

    def with_transaction_outcomes(self, ops: Operations) -> Operations:
        """Return the operations with fate and end of their transactions."""
        return with_transaction_outcomes(ops, *self.transaction_outcomes)

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts.values())

    def _complete(self, part: Part, ops: Operations) -> Operations:
        whole = self.with_transaction_outcomes(ops)
        return prepend_former_sends(self[part.former.key], whole, part.former.deleted) if part.former else whole

    def row(self, key: str, row: int) -> Operations:
        """Return one operation, as columns of length 1; IndexError if there is no such row."""
        part = self.parts[key]
        if part.former:
            return single_row(self[key], row)
        with self.bucket(part.bucket) as file:
            for group in range(file.num_row_groups):
                numbers = file.read_row_group(group, columns=["partition"])["partition"].to_numpy()
                mine = np.flatnonzero(numbers == part.number)
                if row < len(mine):
                    table = file.read_row_group(group, use_threads=False).slice(mine[row], 1)
                    return self.with_transaction_outcomes(_operations(table))
                row -= len(mine)
        raise IndexError(row)


def _part(row: dict[str, Any]) -> Part:
    former = FormerPartition(row["former"], row["deleted"]) if row["former"] else None
    return Part(row["number"], row["key"], row["rows"], row["records"], former)


def verify_size(part: Part, rows: int, records: int, folder: Folder) -> None:
    """Raise UsageError if a bucket does not hold all rows and records of a partition."""
    if (rows, records) != (part.rows, part.records):
        what = (
            f"damaged: it holds {rows:,} of {part.rows:,} operations of {part.key}, "
            f"with {records:,} of {part.records:,} records"
        )
        raise UsageError(what, where=str(bucket_file(folder, part.bucket)), hint="read the history again")


@cache
def partitions_of(folder: Folder) -> Partitions:
    """Return the partitions of a dataset, loaded once per process."""
    return Partitions(folder)


def read_groups(
    file: Any, groups: Sequence[int], names: Iterable[str], wanted: Collection[int]
) -> dict[int, dict[str, Ints]]:
    """Return these columns of the partitions `wanted`, by partition number, from these row groups of a bucket."""
    runs = _runs(file.read_row_groups(groups, ["partition"], use_threads=False)["partition"].to_numpy(), wanted)
    columns: dict[int, dict[str, Ints]] = {number: {} for number in wanted}
    for name in names:  # column by column, so that only one column is in memory twice
        column = file.read_row_groups(groups, [name], use_threads=False)[name]
        for number, mine in runs.items():
            columns[number][name] = _ints([column.slice(*run) for run in mine])
        del column
    pa.default_memory_pool().release_unused()
    return columns


def columns_with_values(metadata: Any) -> list[str]:
    """Return the columns that may hold a known value; Parquet statistics show which others are -1 throughout."""
    names = {metadata.schema.column(place).name: place for place in range(metadata.num_columns)}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]

    def has_values(place: int) -> bool:
        statistics = (group.column(place).statistics for group in groups)
        return any(
            statistic is None or not statistic.has_min_max or (statistic.min, statistic.max) != (UNKNOWN, UNKNOWN)
            for statistic in statistics
        )

    return [name for name in STORED if name not in OPTIONAL or has_values(names[name])]


def _runs(numbers: Ints, wanted: Collection[int]) -> dict[int, list[tuple[int, int]]]:
    """Return (start, length) runs of each wanted partition; in a row group the rows of a partition are adjacent."""
    starts = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]])[: len(numbers)])
    runs: dict[int, list[tuple[int, int]]] = {number: [] for number in wanted}
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(numbers)], strict=True):
        if numbers[start] in runs:
            runs[int(numbers[start])].append((start, end - start))
    return runs


def _ints(slices: list[Any]) -> Ints:
    """Concatenate slices of a column into one array; lists are flattened."""
    chunks = [chunk for part in slices for chunk in part.chunks]
    flat = [chunk.flatten() if pa.types.is_list(chunk.type) else chunk for chunk in chunks]
    return np.concatenate([part.to_numpy() for part in flat]) if flat else NOTHING


def _operations(table: Any) -> Operations:
    return Operations(**{name: _ints([table[name]]) for name in (*STORED, *RECORDS)})


@contextmanager
def damage_errors(path: Folder) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        what = f"damaged: {str(error).splitlines()[0]}"
        raise UsageError(what, where=str(path), hint="read the history again") from error


@contextmanager
def _opened(path: Folder, columns: Any) -> Iterator[Any]:
    """Open a Parquet file; UsageError if it is damaged or its columns are not `columns`."""
    with damage_errors(path), pq.ParquetFile(path if isinstance(path, Path) else path.open()) as file:
        if not file.schema_arrow.equals(columns):
            raise UsageError("not the columns of a dataset", where=str(path), hint="read the history again")
        yield file


def _read(path: Folder, columns: Any, chosen: list[str] | None = None) -> Any:
    with _opened(path, columns) as file:
        return file.read(columns=chosen, use_threads=False)


# -- the tables of the run ---------------------------------------------------------------------------


class DatasetTransactions(Transactions):
    """Transactions of a dataset; names are loaded only when a finding is described."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        table = _read(folder / "transactions.parquet", schema.TRANSACTIONS, ["fate", "ended"])
        fate, ended = (array(code, table[name].to_numpy().tobytes()) for code, name in (("b", "fate"), ("q", "ended")))
        super().__init__(fate=fate, ended=ended, begun=array("b", bytes([1]) * len(fate)))

    @cached_property
    def _kept_names(self) -> Any:
        return _read(self._folder / "transactions.parquet", schema.TRANSACTIONS, ["name"])["name"]

    def name(self, number: int) -> str:
        return str(self._kept_names[number].as_py())


class DatasetValues(Values):
    def __init__(self, folder: Folder) -> None:
        super().__init__()
        self._kept = _read(folder / "texts.parquet", schema.TEXTS)["text"]

    def text(self, number: int) -> str:
        return str(self._kept[-2 - number].as_py()) if TOMBSTONE < number < 0 else super().text(number)


class DatasetTables(Tables):
    """Tables of a dataset; steps are loaded at first access, after the partitions, which need the most memory."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.transactions = DatasetTransactions(folder)

    @cached_property
    def steps(self) -> dict[str, list[Step]]:  # type: ignore[override]
        steps: dict[str, list[Step]] = {}
        with _opened(self._folder / "steps.parquet", schema.STEPS) as file:
            for batch in file.iter_batches():
                columns = {name: _shared(batch[name].to_pylist()) for name in Step._fields}
                columns["status"] = [STATUSES[status] for status in columns["status"]]
                for row in zip(*columns.values(), strict=True):
                    steps.setdefault(row[0], []).append(Step(*row))
        return steps


STATUSES: Final = tuple(Status)


def _shared(cells: list[Any]) -> list[Any]:
    """Intern texts: there are many steps but few distinct texts."""
    return [sys.intern(cell) for cell in cells] if cells and type(cells[0]) is str else cells


def read_dataset(where: Folder | str) -> Ingested:
    """Return the history of a dataset at a path or address; UsageError if there is none, or it is damaged."""
    folder = folder_of(where)
    manifest = read_manifest(folder)
    partitions = Partitions(folder)
    for bucket, keys in partitions.buckets().items():
        due = sum(partitions.parts[key].rows for key in keys)
        with partitions.bucket(bucket) as file:
            if file.metadata.num_rows != due:
                what = f"damaged: it holds {file.metadata.num_rows:,} of {due:,} operations"
                raise UsageError(what, where=str(bucket_file(folder, bucket)), hint="read the history again")
    return Ingested(
        manifest.config,
        partitions,
        DatasetTables(folder),
        DatasetValues(folder),
        manifest.faults,
        manifest.operations,
        partitions.rows,
        manifest.inventory,
        manifest.format,
        manifest.quarantine,
    )
