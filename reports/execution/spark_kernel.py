"""What Spark's executors run on the rows of a dataset: pack them into runs, then check a partition.

Rules rely on the order of the rows of a process, and findings name row numbers. Within a bucket the rows of a partition
are in completion order, so a run is marked with the index of its first row in the file, which Spark's Parquet reader
provides, and `check_partition` sorts the runs by it.
"""

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa

from highwater.reports.columns import (
    NARROW,
    OPTIONAL,
    RECORDS,
    UNKNOWN,
    Ints,
    Operations,
    with_transaction_outcomes,
)
from highwater.reports.dataset.reader import Folder, Part, verify_size
from highwater.reports.dataset.schema import FINDINGS, OPERATIONS
from highwater.reports.execution.division.chunks import fill_missing_columns
from highwater.reports.execution.findings import findings_table
from highwater.reports.ingest.incarnations import prepend_former_sends
from highwater.reports.rules.division import ColumnTask, FirstPass, PartitionTask
from highwater.reports.rules.findings import Promise
from highwater.reports.rules.view import View

T = TypeVar("T")
PLACES: Final = ("partition", "row")
"""The first integers of a row that is packed; the columns of the operation follow."""
RUNS: Final = pa.schema(
    [("partition", pa.int32()), ("source", pa.int32()), ("first", pa.int64()), ("run", pa.binary())]
)
"""A run of adjacent rows of partition `source` that the check of `partition` needs; `first` is its first row."""
FOUND: Final = pa.schema([("partition", pa.int32()), *zip(FINDINGS.names, FINDINGS.types, strict=True)])
RESULT: Final = pa.schema([("partition", pa.int32()), ("result", pa.binary())])
CHECKED: Final = -1
"""The `place` of a row that states that its partition was checked."""


@dataclass(frozen=True, slots=True)
class PartitionJob(Generic[T]):
    """A task on partitions, by their number, and what it needs besides the rows; sent to the executors.

    `sources` holds for each partition to read the numbers of the partitions whose check needs its rows. `outcomes` are
    fate and end of each transaction.
    """

    folder: Folder
    work: PartitionTask[T]
    promise: Promise
    parts: dict[int, Part]
    sources: dict[int, list[int]]
    names: tuple[str, ...]
    outcomes: tuple[Ints, Ints]

    @property
    def integers(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name not in RECORDS)

    @property
    def lists(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name in RECORDS)

    @property
    def stored(self) -> Any:
        """Return the schema of a run."""
        return pa.schema([OPERATIONS.field(name) for name in (*self.integers, *self.lists)])

    @property
    def is_first_pass(self) -> bool:
        work: object = self.work
        return isinstance(work, FirstPass)

    @property
    def returns(self) -> Any:
        """Return the schema of what `check_partition` returns."""
        return FOUND if self.is_first_pass else RESULT


# -- pack --------------------------------------------------------------------------------------------


def pack_runs(batches: Iterable[Any], job: PartitionJob[T]) -> Iterator[Any]:
    """Yield the runs of adjacent rows in Arrow's format, once for each partition whose check needs them."""
    for batch in batches:
        if not batch.num_rows:
            continue
        cells = batch["integers"].flatten().to_numpy().reshape(batch.num_rows, -1)
        packed = _columns(cells, batch, job)
        source, row = cells[:, 0], cells[:, 1]
        breaks = np.flatnonzero((np.diff(source) != 0) | (np.diff(row) != 1)) + 1
        runs = [
            (target, source[start], row[start], packed.slice(start, end - start).serialize().to_pybytes())
            for start, end in zip([0, *breaks.tolist()], [*breaks.tolist(), len(cells)], strict=True)
            for target in job.sources[int(source[start])]
        ]
        columns = zip(*runs, strict=True)
        yield pa.record_batch(
            [pa.array(column, field.type) for column, field in zip(columns, RUNS, strict=True)], schema=RUNS
        )


def _columns(cells: Ints, batch: Any, job: PartitionJob[T]) -> Any:
    schema = job.stored
    columns = [
        pa.array(cells[:, place].astype(NARROW.get(name, np.int64)), schema.field(name).type)
        for place, name in enumerate(job.integers, len(PLACES))
    ]
    return pa.record_batch(
        [*columns, *(batch[name].cast(schema.field(name).type) for name in job.lists)], schema=schema
    )


# -- check -------------------------------------------------------------------------------------------


def check_partition(runs: Any, job: PartitionJob[T]) -> Any:
    """Return the findings of one partition as rows, or the pickled result of another task than the first pass."""
    number = runs["partition"][0].as_py()
    part = job.parts[number]
    ops = _operations(runs, number, part, job)
    if part.former:
        (former,) = set(runs["source"].to_pylist()) - {number} or {number}
        ops = prepend_former_sends(_operations(runs, former, None, job), ops, part.former.deleted)
    result: Any = job.work(part.key, View(ops, job.promise))
    if not job.is_first_pass:
        return pa.table([[number], [pickle.dumps(result)]], schema=RESULT)
    checked = {name: [0] for name in FINDINGS.names} | {"place": [CHECKED], "weight": [0]}
    found = pa.concat_tables([pa.table(checked, schema=FINDINGS), findings_table(result)])
    return found.add_column(0, FOUND.field("partition"), pa.array(np.full(len(found), number, np.int32)))


def _operations(runs: Any, source: int, part: Part | None, job: PartitionJob[T]) -> Operations:
    """Decode the runs of a partition, in the order of its rows; UsageError if `part` has another size."""
    mine = np.flatnonzero(runs["source"].to_numpy() == source)
    order = mine[np.argsort(runs["first"].to_numpy()[mine])]
    schema, encoded = job.stored, runs["run"]
    table = pa.Table.from_batches(
        [pa.ipc.read_record_batch(encoded[place].as_buffer(), schema) for place in order.tolist()], schema
    )
    columns = {name: table[name].to_numpy() for name in job.integers}
    columns |= {name: np.concatenate([part.flatten() for part in table[name].chunks]) for name in job.lists}
    if part is not None:
        verify_size(part, len(table), len(columns["record_offset"]) if job.lists else part.records, job.folder)
    known = {name: column for name, column in columns.items() if name not in OPTIONAL or np.any(column != UNKNOWN)}
    ops = fill_missing_columns(known, len(table)) if isinstance(job.work, ColumnTask) else Operations(**known)
    return with_transaction_outcomes(ops, *job.outcomes)
