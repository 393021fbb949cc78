"""Write a dataset while a history is read: rows go to bucket files in batches, so memory stays bounded."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from highwater.errors import UsageError
from highwater.reports.columns import RECORDS, STORED, Ints, Operations
from highwater.reports.dataset import schema
from highwater.reports.dataset.schema import Manifest, bucket_file, bucket_of
from highwater.reports.importers.formats import History
from highwater.reports.ingest.events import Ingest
from highwater.reports.ingest.incarnations import FormerPartition
from highwater.reports.ingest.inventory import Ends, Inventory
from highwater.reports.tables import Step

WAITING_BYTES: Final = 96 << 20
ROW_GROUP: Final = 1 << 18
"""Approximate maximum of rows plus records in one Parquet row group."""


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn an OSError inside the context into a UsageError about `folder`."""
    try:
        yield
    except OSError as error:
        what = f"cannot write the dataset ({os.strerror(error.errno) if error.errno else error})"
        raise UsageError(what, where=str(folder), hint="free disk space or write elsewhere") from error


class Writer:
    """A dataset under construction in a hidden folder, renamed when it is complete. Use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hidden = folder.with_name(f".{folder.name}.partial")
        self._buckets: dict[int, Any] = {}
        self._inventory, self._ends = Inventory(), Ends()
        self._waiting: dict[int, list[Any]] = {}
        self._steps: Any = None
        self._numbers: dict[str, int] = {}
        self._rows: list[int] = []
        self._records: list[int] = []
        if folder.exists() and any(folder.iterdir()) and not (folder / schema.MANIFEST).exists():
            raise UsageError("the folder holds other files", where=str(folder), hint="name a new or empty folder")

    def __enter__(self) -> "Writer":
        with disk_errors(self._folder):
            shutil.rmtree(self._hidden, ignore_errors=True)
            self._hidden.mkdir(parents=True)
            self._steps = pq.ParquetWriter(self._hidden / "steps.parquet", schema.STEPS)
        return self

    def __exit__(self, *exception: object) -> None:
        for writer in (self._steps, *self._buckets.values()):
            try:
                writer.close()
            except OSError:  # the error was reported before, or the hidden folder is removed below
                continue
        shutil.rmtree(self._hidden, ignore_errors=True)

    def append(self, reading: Ingest) -> None:
        """Write the rows and steps that were read since the last call."""
        self.add(reading.drain(), reading.tables.drain())

    def add(self, partitions: Mapping[str, Operations], steps: list[Step]) -> None:
        """Append rows and steps that follow those of all earlier calls."""
        self._inventory.add_steps({step.f for step in steps})
        for key, ops in partitions.items():
            self._inventory.add(ops)
            self._ends.add(key, ops)
            number = self._number(key)
            self._rows[number] += len(ops)
            self._records[number] += len(ops.record_offset)
            self._waiting.setdefault(bucket_of(number), []).append((number, _table(number, ops)))
        with disk_errors(self._folder):
            self._write_all_but(WAITING_BYTES)
            self._steps.write_table(_steps(steps))

    def _write_all_but(self, limit: int) -> None:
        """Write the largest buckets until at most `limit` bytes wait: reading a row group has a fixed cost."""
        sizes = {bucket: sum(table.nbytes for _, table in mine) for bucket, mine in self._waiting.items()}
        left = sum(sizes.values())
        for bucket in sorted(sizes, key=lambda bucket: (-sizes[bucket], bucket)):
            if left <= limit:
                break
            left -= sizes[bucket]
            tables = sorted(self._waiting.pop(bucket), key=itemgetter(0))  # rows of one partition must be adjacent
            together = pa.concat_tables([table for _, table in tables])
            for first, end in pairwise(_row_groups(together)):
                self._bucket(bucket).write_table(together.slice(first, end - first))

    def _number(self, key: str) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers)
            self._rows.append(0)
            self._records.append(0)
        return self._numbers[key]

    def _bucket(self, bucket: int) -> Any:
        if bucket not in self._buckets:
            path = bucket_file(self._hidden, bucket)
            self._buckets[bucket] = pq.ParquetWriter(path, schema.OPERATIONS, **schema.WRITING)
        return self._buckets[bucket]

    def inventory(self) -> Inventory:
        """Return the counts of what was added so far."""
        self._inventory.note_ends(self._ends)
        return self._inventory

    def finish(self, reading: Ingest, history: History, source: tuple[str, int, int]) -> None:
        """Complete open operations, then write the remaining rows, the tables and the manifest."""
        reading.finish()
        self.append(reading)
        reading.note(self.inventory())
        manifest = Manifest(
            source=source,
            format=history.format,
            config=history.config,
            quarantine=history.quarantine,
            operations=reading.operations,
            inventory=self.inventory(),
            faults=reading.faults,
        )
        fate, ended = reading.tables.transactions.columns()
        names = reading.tables.transactions.names
        self.close(manifest, (names, fate[:-1], ended[:-1]), reading.values.texts, reading.former)

    def close(
        self,
        manifest: Manifest,
        transactions: tuple[Iterable[str], Ints, Ints],
        texts: list[str],
        former_of: Callable[[str], FormerPartition | None],
    ) -> None:
        """Write everything that still waits, the small tables and the manifest, then rename the folder.

        `transactions` are names, fates and ends by number; `former_of` returns the deleted partition of the same name.
        """
        predecessors = [former_of(key) for key in self._numbers]
        with disk_errors(self._folder):
            self._write_all_but(0)
            for writer in (self._steps, *self._buckets.values()):
                writer.close()
            self._write("partitions", schema.PARTITIONS, (
                range(len(self._numbers)), self._numbers, self._rows, self._records,
                [former.key if former else "" for former in predecessors],
                [former.deleted if former else -1 for former in predecessors],
            ))  # fmt: skip
            self._write("transactions", schema.TRANSACTIONS, transactions)
            self._write("texts", schema.TEXTS, (texts,))
            (self._hidden / schema.MANIFEST).write_bytes(msgspec.json.encode(manifest))
            shutil.rmtree(self._folder, ignore_errors=True)
            self._hidden.rename(self._folder)

    def _write(self, name: str, columns: Any, values: tuple[Any, ...]) -> None:
        arrays = [
            pa.array(value if isinstance(value, np.ndarray) else list(value), field.type)
            for value, field in zip(values, columns, strict=True)
        ]
        pq.write_table(pa.table(arrays, schema=columns), self._hidden / f"{name}.parquet")


def _table(number: int, ops: Operations) -> Any:
    ends = pa.array(np.concatenate([[0], np.cumsum(ops.record_count)]), pa.int32())
    columns = [pa.array(np.full(len(ops), number), pa.int32())]
    columns += [pa.array(getattr(ops, name), schema.OPERATIONS.field(name).type) for name in STORED]
    for name in RECORDS:
        column_type = schema.OPERATIONS.field(name).type
        columns.append(pa.ListArray.from_arrays(ends, pa.array(getattr(ops, name)), type=column_type))
    return pa.table(columns, schema=schema.OPERATIONS)


def _row_groups(table: Any) -> list[int]:
    """Return the row-group boundaries: a reader of a large partition holds one row group at a time."""
    record_counts = np.concatenate([chunk.value_lengths().to_numpy() for chunk in table["record_offset"].chunks])
    weight = np.cumsum(1 + record_counts.astype(np.int64)) // ROW_GROUP
    return [0, *(np.flatnonzero(np.diff(weight)) + 1).tolist(), len(table)]


def _steps(steps: list[Step]) -> Any:
    columns: Mapping[str, list[Any]] = {name: [getattr(step, name) for step in steps] for name in Step._fields}
    return pa.table(
        [pa.array(columns[field.name], field.type) for field in schema.STEPS], schema=schema.STEPS
    )  # fmt: skip
