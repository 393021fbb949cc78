"""Operations of one partition as columns: ingest builds them, a dataset stores them, the rules read them."""

from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
NEVER = np.int64(1) << 62
UNKNOWN = -1
TOMBSTONE = -(1 << 61)
"""The value of a record that deletes its key; the only value that may be written more than once."""


class Kind(IntEnum):
    SEND = 0
    READ = 1
    LIST_OFFSETS = 2
    DUMP = 3  # what one replica holds
    DELETE = 4  # of records below an offset
    FORMER = 5  # a send to a deleted topic of the same name


class Status(IntEnum):
    OK = 0
    FAIL = 1
    INFO = 2


class Fate(IntEnum):
    """Outcome of a transaction."""

    COMMITTED = 1
    ABORTED = 2


class Isolation(IntEnum):
    READ_UNCOMMITTED = 1
    READ_COMMITTED = 2


ISOLATIONS: Final = {
    None: UNKNOWN,
    "read_uncommitted": int(Isolation.READ_UNCOMMITTED),
    "read_committed": int(Isolation.READ_COMMITTED),
}


class Began(IntEnum):
    """Source of the first position of a reader's run."""

    RESUMED = 1  # from the committed offset of its group
    ASSIGNED = 2


NOTHING: Final[Ints] = np.zeros(0, np.int64)


def _absent() -> Ints:
    return NOTHING


@dataclass(frozen=True, slots=True)
class Operations:
    """One row per operation, in the order of completion; `UNKNOWN` if the history does not state a cell.

    `invoked` and `returned` are event indices (the clock; `NEVER` when it did not return). `run` counts the
    reader's assignments and seeks, so that rows of one process and run continue each other. `position` is where
    a read began, `high_watermark` what it reported. Records of all reads are in `record_offset` and
    `record_value`, `record_count` of them for each row. Columns from `last_stable_offset` on may be left out.

    `fate` and `ended` are those of the row's transaction `txn`: its outcome, and the event index of its EndTxn
    request. `producer` is that of `producer_of`, `group` the consumer's group. `at_ms` is the completion time in ms
    since the start, `calm_ms` the time since the last fault began or ended, `open_ms` the time since the invocation: a
    reply may show what was true then. `gave_up` is 1 for a send during which its client gave up on a record, this one
    or another.
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
    last_stable_offset: Ints = field(default_factory=_absent)
    log_start_offset: Ints = field(default_factory=_absent)
    isolation: Ints = field(default_factory=_absent)
    txn: Ints = field(default_factory=_absent)
    fate: Ints = field(default_factory=_absent)
    ended: Ints = field(default_factory=_absent)
    producer: Ints = field(default_factory=_absent)
    sequence: Ints = field(default_factory=_absent)
    key: Ints = field(default_factory=_absent)
    timestamp_ms: Ints = field(default_factory=_absent)
    node: Ints = field(default_factory=_absent)
    group: Ints = field(default_factory=_absent)
    began: Ints = field(default_factory=_absent)
    at_ms: Ints = field(default_factory=_absent)
    calm_ms: Ints = field(default_factory=_absent)
    gave_up: Ints = field(default_factory=_absent)
    open_ms: Ints = field(default_factory=_absent)

    def __post_init__(self) -> None:
        """Replace columns that were left out by one broadcast cell, which takes no memory."""
        nothing_known = np.broadcast_to(np.int64(UNKNOWN), len(self.invoked))
        for name in OPTIONAL:
            if len(getattr(self, name)) != len(self.invoked):
                object.__setattr__(self, name, nothing_known)

    def __len__(self) -> int:
        return len(self.invoked)

    def has_values(self, *names: str) -> bool:
        """Return whether none of these columns was left out."""
        return all(getattr(self, name).strides != (0,) and len(self) > 0 for name in names)


EPOCH_BITS: Final = 16
UNKNOWN_EPOCH: Final = (1 << EPOCH_BITS) - 1


def producer_of(number: int, epoch: int | None) -> int:
    """Return the cell of a numbered producer id and its epoch: cells of one id are in the order of the epochs."""
    return (number << EPOCH_BITS) | (UNKNOWN_EPOCH if epoch is None else epoch & UNKNOWN_EPOCH)


def process_of(cell: int) -> int:
    """Return the number of the process of a cell (`ingest.builder.Processes`)."""
    return cell >> 1


RECORDS = ("record_offset", "record_value")
ROW_COLUMNS = [column.name for column in fields(Operations) if column.name not in RECORDS]
OPTIONAL: Final = tuple(ROW_COLUMNS[ROW_COLUMNS.index("last_stable_offset") :])
OUTCOME_COLUMNS: Final = ("fate", "ended")
"""Columns known only after the whole history was read; a dataset stores them with the transactions."""
STORED: Final = tuple(name for name in ROW_COLUMNS if name not in OUTCOME_COLUMNS)
NARROW: Final = dict.fromkeys(("kind", "status", "quiet", "isolation", "began", "gave_up"), np.int8) | dict.fromkeys(
    ("process", "run", "record_count", "txn", "key", "node", "group"), np.int32
)
"""Types of columns whose values ingest numbers itself; columns with values of the history have 64 bits."""


def with_transaction_outcomes(ops: Operations, fate: Ints, ended: Ints) -> Operations:
    """Fill in fate and end of each row's transaction, both by transaction number with a last cell for none."""
    return replace(ops, fate=fate[ops.txn], ended=ended[ops.txn]) if ops.has_values("txn") else ops


def with_isolation(ops: Operations, isolation: int) -> Operations:
    """Set the isolation level of reads that do not state it."""
    unknown = (ops.isolation == UNKNOWN) & (ops.kind != Kind.SEND)
    if isolation == UNKNOWN or not np.any(unknown):
        return ops
    return replace(ops, isolation=np.where(unknown, np.int64(isolation), ops.isolation))


def with_commits(ops: Operations, txns: tuple[int, ...]) -> Operations:
    """Set the outcome of these transactions to committed."""
    if not txns or not ops.has_values("txn"):
        return ops
    return replace(ops, fate=np.where(np.isin(ops.txn, txns), np.int64(Fate.COMMITTED), ops.fate))


def single_row(ops: Operations, row: int) -> Operations:
    """Return one operation, as columns of length 1."""
    end = int(ops.record_count[: row + 1].sum())
    columns = {name: getattr(ops, name)[row : row + 1] for name in ROW_COLUMNS}
    records = {name: getattr(ops, name)[end - int(ops.record_count[row]) : end] for name in RECORDS}
    return Operations(**columns, **records)


def take_rows(ops: Operations, rows: Ints, kept_records: "npt.NDArray[np.bool_] | None" = None) -> Operations:
    """Return these rows (increasing), with the records that `kept_records` masks (None: all)."""
    chosen = np.zeros(len(ops), bool)
    chosen[rows] = True
    row = np.repeat(np.arange(len(ops)), ops.record_count)
    mine = chosen[row] if kept_records is None else chosen[row] & kept_records
    columns = {name: getattr(ops, name)[rows] for name in _present_columns(ops)}
    columns["record_count"] = np.bincount(row[mine], minlength=len(ops))[rows]
    return Operations(**columns, **{name: getattr(ops, name)[mine] for name in RECORDS})


def keep_end_records(ops: Operations) -> Operations:
    """Keep only the first and the last record of each row, and the smallest at or above the position that it names."""
    end = np.cumsum(ops.record_count)
    is_end = ops.record_offset == np.repeat(smallest_due_offsets(ops), ops.record_count)
    non_empty = ops.record_count > 0
    is_end[end[non_empty] - 1] = True
    is_end[(end - ops.record_count)[non_empty]] = True
    return take_rows(ops, np.arange(len(ops)), is_end)


def smallest_due_offsets(ops: Operations) -> Ints:
    """Return for each row the smallest offset of its records at or above the position that it names, `NEVER` if none.

    A raw fetch may return whole batches, which begin below its position.
    """
    due = np.full(len(ops), NEVER)
    rows = np.flatnonzero(ops.record_count > 0)
    if len(rows):
        start = (np.cumsum(ops.record_count) - ops.record_count)[rows]
        position = np.repeat(ops.position[rows], ops.record_count[rows])
        due[rows] = np.minimum.reduceat(np.where(ops.record_offset >= position, ops.record_offset, NEVER), start)
    return due


def dump_starts(ops: Operations, dumps: Ints) -> Ints:
    """Return the log start of the replica of each dump: the position that it names, else its first record."""
    first = np.minimum(smallest_due_offsets(ops)[dumps], ops.high_watermark[dumps])
    return np.where(ops.position[dumps] == UNKNOWN, first, ops.position[dumps])


def concatenate_operations(parts: list[Operations]) -> Operations:
    """Concatenate operations; optional columns that all parts lack stay left out."""
    present = {name for part in parts for name in _present_columns(part)}
    names = [*(name for name in ROW_COLUMNS if name in present), *RECORDS]
    return Operations(**{name: _concatenated([getattr(part, name) for part in parts]) for name in names})


def _concatenated(columns: list[Ints]) -> Ints:
    """Concatenate columns; equal broadcast cells stay one cell."""
    non_empty = [column for column in columns if len(column)]
    if non_empty and all(column.strides == (0,) and column[0] == non_empty[0][0] for column in non_empty):
        return np.broadcast_to(non_empty[0][0], sum(map(len, non_empty)))
    return np.concatenate(columns)


def _present_columns(ops: Operations) -> list[str]:
    return [name for name in ROW_COLUMNS if name not in OPTIONAL or getattr(ops, name).strides != (0,)]
