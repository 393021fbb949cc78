"""A pass over the partitions of a dataset as a Spark DataFrame job: scan, pack, exchange, check.

    spark.read.parquet(buckets)      only the needed columns; `partition IN (...)` is pushed down to Parquet
      .mapInArrow(pack)              a row for each run of adjacent rows of one partition
      .repartition(n, "partition")   the exchange; n grows with the data
      .groupBy("partition")
      .applyInArrow(check, ...)      the rules on one partition; findings are rows

Executors read the files, and no row of the history reaches the driver. Two things make this faster, as measured on ten
million operations: the integers of a row travel to Python as one array, since Spark writes them to Arrow in half the
time that 25 columns take, and the exchange moves runs of rows, since Spark would exchange and sort single rows in more
time than all rules need.
"""

import io
import pickle
from collections.abc import Collection, Iterator
from contextlib import redirect_stdout
from typing import Any, Final, cast

import numpy as np

from highwater.reports.columns import RECORDS, UNKNOWN
from highwater.reports.dataset.reader import Part, Partitions, verify_size
from highwater.reports.dataset.schema import bucket_file
from highwater.reports.execution.division.chunks import ALWAYS
from highwater.reports.execution.findings import findings_of
from highwater.reports.execution.partitions import T, size_of
from highwater.reports.execution.spark_kernel import CHECKED, PLACES, RUNS, PartitionJob, check_partition, pack_runs
from highwater.reports.rules.division import ColumnTask, PartitionTask
from highwater.reports.rules.findings import Promise

TASK_BYTES: Final = 64 << 20
"""Memory for the partitions of a task, as `size_of` estimates it; a larger partition is a task of its own."""
SQL_TYPES: Final = {"int32": "int", "int64": "long", "binary": "binary", "bool": "boolean"}


def job_of(partitions: Partitions, promise: Promise, work: PartitionTask[T], keys: Collection[str]) -> PartitionJob[T]:
    """Return the job that runs `work` on these partitions; it reads only columns with values that `work` needs."""
    names = partitions.columns_with_values
    if isinstance(work, ColumnTask):
        names = tuple(name for name in names if name in {*ALWAYS, *work.columns})
    parts = {part.number: part for part in map(partitions.parts.__getitem__, keys)}
    sources: dict[int, list[int]] = {number: [number] for number in parts}
    for number, part in parts.items():
        if part.former:
            sources.setdefault(partitions.parts[part.former.key].number, []).append(number)
    nothing = np.array([UNKNOWN])
    return PartitionJob(
        folder=partitions.folder,
        work=work,
        promise=promise,
        parts=parts,
        sources=sources,
        names=(*names, *(RECORDS if "record_count" in names else ())),
        outcomes=partitions.transaction_outcomes if "txn" in names else (nothing, nothing),
    )


def plan(session: Any, partitions: Partitions, job: PartitionJob[T]) -> Any:
    """Return the DataFrame whose rows are the findings, or the results of another task than the first pass."""

    def pack(batches: Iterator[Any]) -> Iterator[Any]:
        return pack_runs(batches, job)

    def check(runs: Any) -> Any:
        return check_partition(runs, job)

    tasks = number_of_tasks(list(job.parts.values()))
    runs = _scan(session, partitions, job).mapInArrow(pack, _sql(RUNS)).repartition(tasks, "partition")
    return runs.groupBy("partition").applyInArrow(check, _sql(job.returns))


def explained(frame: Any) -> str:
    """Return what `frame.explain("formatted")` prints."""
    with redirect_stdout(io.StringIO()) as printed:
        frame.explain("formatted")
    return printed.getvalue().strip()


def number_of_tasks(parts: list[Part]) -> int:
    """Return the number of tasks that check these partitions: at most one for each, of about `TASK_BYTES`."""
    return max(1, min(len(parts), -(-sum(map(size_of, parts)) // TASK_BYTES)))


def _scan(session: Any, partitions: Partitions, job: PartitionJob[T]) -> Any:
    """Return the rows of the partitions to read: their integers as one array, and the lists of records."""
    from pyspark.sql import functions as sql

    wanted = [part for part in partitions.parts.values() if part.number in job.sources]
    files = [str(bucket_file(partitions.folder, bucket)) for bucket in sorted({part.bucket for part in wanted})]
    rows = session.read.parquet(*files)
    if len(wanted) < len(partitions.parts):
        rows = rows.filter(rows["partition"].isin([part.number for part in wanted]))
    columns = {"row": "_metadata.row_index"}
    integers = [sql.col(columns.get(name, name)).cast("long") for name in (*PLACES, *job.integers)]
    return rows.select(sql.array(*integers).alias("integers"), *job.lists)


def _sql(schema: Any) -> str:
    return ", ".join(f"{field.name} {SQL_TYPES[str(field.type)]}" for field in schema)


def collect(frame: Any, job: PartitionJob[T]) -> Iterator[tuple[str, T]]:
    """Run the job; yield (key, result) for each partition. UsageError if a partition has no rows in the files."""
    rows = frame.toArrow()
    numbers = rows["partition"].to_numpy()
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    slices = dict(zip(numbers[starts].tolist(), zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True),
                      strict=True))  # fmt: skip
    for number, part in job.parts.items():
        if number not in slices:
            verify_size(part, 0, 0, job.folder)
        elif job.is_first_pass:
            first, end = slices[number]
            assert rows["place"][first].as_py() == CHECKED, part
            yield part.key, cast("T", findings_of(rows.slice(first + 1, end - first - 1)))
        else:
            yield part.key, pickle.loads(rows["result"][slices[number][0]].as_py())
