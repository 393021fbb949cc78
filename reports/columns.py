"""Operations of one (run, partition) as columns: what ingest makes, the kernel reads, and Parquet carries."""

from dataclasses import dataclass, fields
from enum import IntEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Ints = npt.NDArray[np.int64]
NEVER = np.int64(1) << 62
UNKNOWN = -1


class Kind(IntEnum):
    SEND = 0
    READ = 1
    LIST_OFFSETS = 2


class Status(IntEnum):
    OK = 0
    FAIL = 1
    INFO = 2


@dataclass(frozen=True, slots=True)
class Operations:
    """One row an operation, in the order of invocation; `UNKNOWN` where a reply did not tell.

    `invoked` and `returned` are event indices (the clock; `NEVER` when it did not return). `run` counts the
    reader's assignments and seeks, so that rows of one process and run continue each other. `position` is where
    a read began, `covers_to` the offset up to which it proves to have seen everything (exclusive).
    Records of all reads stand in `record_offset`, `record_value`, `record_count` of them for each row.
    """

    invoked: Ints
    returned: Ints
    process: Ints
    run: Ints
    kind: Ints
    status: Ints
    offset: Ints
    value: Ints
    position: Ints
    high_watermark: Ints
    leader_epoch: Ints
    quiet: Ints
    record_count: Ints
    record_offset: Ints
    record_value: Ints

    def __len__(self) -> int:
        return len(self.invoked)


ROW_COLUMNS = [field.name for field in fields(Operations) if field.name not in {"record_offset", "record_value"}]


def to_table(operations: Operations) -> pa.Table:
    """One Arrow table; records as list columns."""
    ends = np.concatenate([[0], np.cumsum(operations.record_count)])
    columns = {name: pa.array(getattr(operations, name)) for name in ROW_COLUMNS}
    for name in ("record_offset", "record_value"):
        columns[name] = pa.LargeListArray.from_arrays(pa.array(ends), pa.array(getattr(operations, name)))
    return pa.table(columns)


def from_table(table: pa.Table) -> Operations:
    columns = {name: table[name].to_numpy() for name in ROW_COLUMNS}
    for name in ("record_offset", "record_value"):
        flat = (
            pa.concat_arrays([chunk.flatten() for chunk in table[name].chunks])
            if table.num_rows
            else pa.array([], pa.int64())
        )
        columns[name] = flat.to_numpy(zero_copy_only=False)
    return Operations(**columns)


def write_bucket(path: Path, operations: Operations) -> None:
    pq.write_table(to_table(operations), path)


def read_bucket(path: Path) -> Operations:
    return from_table(pq.read_table(path))
