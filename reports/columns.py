"""Operations of one (run, partition) as columns: what ingest makes, the rules read, and a dataset keeps."""

from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
NEVER = np.int64(1) << 62
UNKNOWN = -1
TOMBSTONE = -(1 << 61)
"""The value of a record that deletes its key: the one value that may be written more than once."""


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
    """What became of a transaction."""

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
    """How the reader of a run came by its first position."""

    RESUMED = 1  # where its group had committed
    TOLD = 2


NOTHING: Final[Ints] = np.zeros(0, np.int64)


def _absent() -> Ints:
    return NOTHING


@dataclass(frozen=True, slots=True)
class Operations:
    """One row an operation, in the order of invocation; `UNKNOWN` where a reply did not tell.

    `invoked` and `returned` are event indices (the clock; `NEVER` when it did not return). `run` counts the
    reader's assignments and seeks, so that rows of one process and run continue each other. `position` is where
    a read began, `high_watermark` what it reported. Records of all reads stand in `record_offset` and
    `record_value`, `record_count` of them for each row. Columns from `last_stable_offset` on may be left out.

    `fate` and `ended` are those of the row's transaction `txn`: what became of it, and when its end was asked
    for. `producer` numbers (producer id, epoch), `group` the consumer's group. `at_ms` is when the operation was
    over, `calm_ms` how long no fault had begun or ended by then; both count from the start. `gave_up` is 1 for a send
    during which its client gave up on a record, this one or another.
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

    def __post_init__(self) -> None:
        """A column that was left out takes no memory: one cell stands for all rows."""
        nothing_known = np.broadcast_to(np.int64(UNKNOWN), len(self.invoked))
        for name in OPTIONAL:
            if len(getattr(self, name)) != len(self.invoked):
                object.__setattr__(self, name, nothing_known)

    def __len__(self) -> int:
        return len(self.invoked)

    def tells(self, *names: str) -> bool:
        """Does any row say something in all of these columns?"""
        return all(getattr(self, name).strides != (0,) and len(self) > 0 for name in names)


RECORDS = ("record_offset", "record_value")
ROW_COLUMNS = [each.name for each in fields(Operations) if each.name not in RECORDS]
OPTIONAL: Final = tuple(ROW_COLUMNS[ROW_COLUMNS.index("last_stable_offset") :])
STAMPED: Final = ("fate", "ended")
"""Known only when all of a history was read, and to all partitions alike: they stand with the transactions."""
STORED: Final = tuple(name for name in ROW_COLUMNS if name not in STAMPED)
NARROW: Final = dict.fromkeys(("kind", "status", "quiet", "isolation", "began", "gave_up"), np.int8) | dict.fromkeys(
    ("process", "run", "record_count", "txn", "producer", "key", "node", "group"), np.int32
)
"""Of what is counted here, and not told by a history, so that it fits; all else has 64 bits."""


def stamped(ops: Operations, fate: Ints, ended: Ints) -> Operations:
    """With what became of each row's transaction; `fate` and `ended` by number, their last cell for no transaction."""
    return replace(ops, fate=fate[ops.txn], ended=ended[ops.txn]) if ops.tells("txn") else ops


def with_isolation(ops: Operations, isolation: int) -> Operations:
    """For reads that did not tell theirs."""
    untold = (ops.isolation == UNKNOWN) & (ops.kind != Kind.SEND)
    if isolation == UNKNOWN or not np.any(untold):
        return ops
    return replace(ops, isolation=np.where(untold, np.int64(isolation), ops.isolation))


def row_of(ops: Operations, row: int) -> Operations:
    """One operation alone."""
    end = int(ops.record_count[: row + 1].sum())
    columns = {name: getattr(ops, name)[row : row + 1] for name in ROW_COLUMNS}
    records = {name: getattr(ops, name)[end - int(ops.record_count[row]) : end] for name in RECORDS}
    return Operations(**columns, **records)


def picked(ops: Operations, rows: Ints, kept: "npt.NDArray[np.bool_] | None" = None) -> Operations:
    """These rows, which ascend, and of their records those that are `kept`."""
    chosen = np.zeros(len(ops), bool)
    chosen[rows] = True
    row = np.repeat(np.arange(len(ops)), ops.record_count)
    mine = chosen[row] if kept is None else chosen[row] & kept
    columns = {name: getattr(ops, name)[rows] for name in _told(ops)}
    columns["record_count"] = np.bincount(row[mine], minlength=len(ops))[rows]
    return Operations(**columns, **{name: getattr(ops, name)[mine] for name in RECORDS})


def with_ends(ops: Operations) -> Operations:
    """Of the records of each row the first and the last alone."""
    end = np.cumsum(ops.record_count)
    kept = np.zeros(len(ops.record_offset), bool)
    some = ops.record_count > 0
    kept[end[some] - 1] = True
    kept[(end - ops.record_count)[some]] = True
    return picked(ops, np.arange(len(ops)), kept)


def joined(parts: list[Operations]) -> Operations:
    """One after the other."""
    told = {name for part in parts for name in _told(part)}
    names = [*(name for name in ROW_COLUMNS if name in told), *RECORDS]
    return Operations(**{name: _concatenated([getattr(part, name) for part in parts]) for name in names})


def _concatenated(columns: list[Ints]) -> Ints:
    """What takes no memory still takes none."""
    some = [column for column in columns if len(column)]
    if some and all(column.strides == (0,) and column[0] == some[0][0] for column in some):
        return np.broadcast_to(some[0][0], sum(map(len, some)))
    return np.concatenate(columns)


def _told(ops: Operations) -> list[str]:
    return [name for name in ROW_COLUMNS if name not in OPTIONAL or getattr(ops, name).strides != (0,)]
