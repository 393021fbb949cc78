"""Count what a history contains while it is read, so that a verdict can say what it covered."""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import numpy as np

from highwater.reports.columns import UNKNOWN, Began, Kind, Operations, Status


def _has(column: str) -> Callable[[Operations], bool]:
    return lambda ops: bool(np.any(getattr(ops, column) != UNKNOWN))


def _count(ops: Operations, kind: Kind, *statuses: Status) -> int:
    return int(np.count_nonzero((ops.kind == kind) & np.isin(ops.status, statuses)))


WITHOUT_OFFSET: Final = "acknowledged sends without an offset"
IN_OPERATIONS: Final[dict[str, Callable[[Operations], bool]]] = {
    "acknowledged sends": lambda ops: _count(ops, Kind.SEND, Status.OK) > 0,
    WITHOUT_OFFSET: lambda ops: bool(
        np.any((ops.kind == Kind.SEND) & (ops.status == Status.OK) & (ops.offset == UNKNOWN))
    ),
    "refused sends": lambda ops: _count(ops, Kind.SEND, Status.FAIL) > 0,
    "reads": lambda ops: bool(np.any((ops.kind == Kind.READ) & (ops.status == Status.OK))),
    "high watermarks": _has("high_watermark"),
    "high watermarks of the final phase": lambda ops: bool(
        np.any((ops.quiet == 1) & (ops.status == Status.OK) & (ops.high_watermark != UNKNOWN))
    ),
    "leader epochs": _has("leader_epoch"),
    "last stable offsets": _has("last_stable_offset"),
    "log start offsets": _has("log_start_offset"),
    "transactions": _has("txn"),
    "sequences": _has("sequence"),
    "producer epochs": _has("producer"),
    "keys": _has("key"),
    "resumed group members": lambda ops: bool(np.any(ops.began == Began.RESUMED)),
    "replica dumps": lambda ops: _count(ops, Kind.DUMP, Status.OK) > 0,
}
"""Data that some rules need, by the name that a verdict prints; each is looked for in the operations of a partition."""
IN_STEPS: Final = {
    "commit": "offset commits",
    "committed": "fetched committed offsets",
    "send_offsets": "transactional offset commits",
    "sync": "assignments",
    "assign": "assignments",
    "group": "descriptions of groups",
    "metadata": "metadata",
    "init_producer": "producer ids",
    "delete_topic": "deleted topics",
}
"""The same in the steps of a run, by the step's `f`."""
DATA: Final = {*IN_OPERATIONS, *IN_STEPS.values()}


class Inventory(msgspec.Struct, kw_only=True):
    """Counts of a history: sends by outcome, successful reads and their records, and the kinds of data in it."""

    acknowledged: int = 0
    refused: int = 0
    unknown: int = 0
    reads: int = 0
    records_read: int = 0
    ends_reached: int = 0  # partitions in which a read reached the end of what was acknowledged
    faults_met: int = 0  # faults during which an operation was open
    ended_topics: dict[str, int] = msgspec.field(default_factory=dict)  # incarnations that were certainly deleted
    data: set[str] = msgspec.field(default_factory=set)

    def add(self, ops: Operations) -> None:
        """Count the operations of a partition; each operation must be passed once."""
        self.acknowledged += _count(ops, Kind.SEND, Status.OK)
        self.refused += _count(ops, Kind.SEND, Status.FAIL)
        self.unknown += _count(ops, Kind.SEND, Status.INFO)
        read = (ops.kind == Kind.READ) & (ops.status == Status.OK)
        self.reads += int(np.count_nonzero(read))
        self.records_read += int(ops.record_count[read].sum())
        self.data |= {name for name, has in IN_OPERATIONS.items() if name not in self.data and has(ops)}

    def note_ends(self, ends: "Ends") -> None:
        self.ends_reached = sum(read >= written for written, read in ends.by_partition.values())

    def add_steps(self, names: Iterable[str]) -> None:
        """Note the kinds of steps of the run, by their `f`."""
        self.data |= {IN_STEPS[name] for name in names if name in IN_STEPS}


class Ends:
    """Ends of partitions so far: after the last acknowledged record, and after the last that a read returned."""

    def __init__(self) -> None:
        self.by_partition: dict[str, tuple[int, int]] = {}

    def add(self, key: str, ops: Operations) -> None:
        """Note operations of a partition, in parts of any size."""
        written, read = self.by_partition.get(key, (0, 0))
        acknowledged = (ops.kind == Kind.SEND) & (ops.status == Status.OK)
        good = (ops.kind == Kind.READ) & (ops.status == Status.OK)
        records = ops.record_offset[np.repeat(good, ops.record_count)]
        self.by_partition[key] = (
            max(written, int(ops.offset[acknowledged].max(initial=UNKNOWN)) + 1),
            max(read, int(records.max(initial=UNKNOWN)) + 1, int(ops.position[good].max(initial=0))),
        )
