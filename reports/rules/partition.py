"""All rules that look at one partition at a time: called by every engine, for a partition and for a slice of it alike.

Offsets are never used as array indices: a partition may begin at any offset and have gaps.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from highwater.reports.columns import Kind, Operations, Status
from highwater.reports.rules import committed, cycles, log, polls, register, storage
from highwater.reports.rules.findings import Found, Mask, Promise
from highwater.reports.rules.merge import Piece, settled
from highwater.reports.rules.view import View


class Cut(Enum):
    """Of a partition that is too large to be looked at whole, what a family of rules must see at once."""

    OFFSETS = "all that was told of a span of offsets, and of the values there"
    ROWS = "operations one after the other, and what each process did last before them"
    TIME = "who was invoked in a time, and the largest offsets that were proved before it"
    WHOLE = "some columns of all operations"


class Family(NamedTuple):
    """A look at a partition, or at a slice; what it finds are findings of one rule or more.

    One that needs all operations names the columns that it reads, beside what they are and how they ended, and which
    `rows` if not all of them; it finds nothing in a history that tells nothing in those of `told`.
    """

    look: Callable[[View], Found | tuple[Found, ...]]
    cut: Cut
    columns: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    rows: Callable[[Operations], Mask] | None = None


def acknowledged(ops: Operations) -> Mask:
    mask: Mask = (ops.kind == Kind.SEND) & (ops.status == Status.OK)
    return mask


def fruitful(ops: Operations) -> Mask:
    """Reads that were given something."""
    mask: Mask = (ops.kind == Kind.READ) & (ops.status == Status.OK) & (ops.record_count > 0)
    return mask


def of_the_end(ops: Operations) -> Mask:
    """What tells whether the end came to what was acknowledged."""
    mask: Mask = acknowledged(ops) | (ops.quiet == 1)
    return mask


def held_back(ops: Operations) -> Mask:
    mask: Mask = ops.last_stable_offset < ops.high_watermark
    return mask


CALLS: Final = ("producer", "sequence")
READS: Final = ("invoked", "returned", "process", "run", "position", "record_count")
STUCK: Final = ("returned", "offset", "high_watermark", "leader_epoch", "quiet", "at_ms", "calm_ms")
JUMPS: Final = (*READS, "group", "began")
FAMILIES: Final = (
    Family(log.inconsistent_offsets, Cut.OFFSETS),
    Family(log.duplicates, Cut.OFFSETS),
    Family(log.phantom_reads, Cut.OFFSETS),
    Family(log.lost_and_unseen, Cut.OFFSETS),
    Family(log.producer_reorders, Cut.WHOLE, ("offset", *CALLS), CALLS, acknowledged),
    Family(log.nonmonotonic_sends, Cut.ROWS),
    Family(log.nonmonotonic_transactions, Cut.WHOLE, ("offset", "txn", "producer", "sequence"), ("txn", "sequence"),
           acknowledged),
    Family(log.append_inversions, Cut.TIME),
    Family(polls.nonmonotonic_polls, Cut.ROWS),
    Family(polls.passed_over, Cut.OFFSETS),
    Family(polls.sends_between, Cut.WHOLE, ("offset", "txn"), ("txn",), acknowledged),
    Family(polls.silent_resets, Cut.OFFSETS),
    Family(register.stale_reads, Cut.TIME),
    Family(
        register.stale_stable_ends, Cut.WHOLE,
        (*READS, "offset", "last_stable_offset", "leader_epoch", "txn"), ("last_stable_offset", "txn"),
    ),
    Family(register.future_reads, Cut.OFFSETS),
    Family(register.future_ends, Cut.TIME),
    Family(register.regressions, Cut.TIME),
    Family(committed.aborted_reads, Cut.OFFSETS),
    Family(committed.own_reads, Cut.OFFSETS),
    Family(
        committed.early_reads, Cut.WHOLE,
        (*READS, "offset", "value", "last_stable_offset", "isolation", "txn"), ("txn",),
    ),
    Family(committed.passed_over, Cut.OFFSETS),
    Family(
        committed.hanging_transactions, Cut.WHOLE,
        ("returned", "high_watermark", "last_stable_offset", "at_ms", "calm_ms"), ("last_stable_offset",),
        held_back,
    ),
    Family(cycles.backward_spans, Cut.OFFSETS),
    Family(cycles.double_processing, Cut.OFFSETS),
    Family(
        storage.early_retention, Cut.WHOLE,
        ("invoked", "returned", "offset", "timestamp_ms", "log_start_offset", "at_ms"), ("log_start_offset",),
    ),
    Family(storage.outlived_tombstones, Cut.WHOLE, told=("key",)),
    Family(storage.diverged_replicas, Cut.OFFSETS),
    Family(storage.stuck_ends, Cut.WHOLE, STUCK, ("calm_ms",), of_the_end),
)  # fmt: skip
"""Each gives findings of one or more rules."""
CANDIDATES: Final = {20, 21}
"""Rules whose findings count only when all partitions were seen (`highwater.reports.rules.run`)."""


def check(ops: Operations, promise: Promise) -> list[Found]:
    """All findings of one (run, partition)."""
    return check_view(View(ops, promise))


def check_view(view: View) -> list[Found]:
    return settled(pieces(view, *Cut)) if len(view.ops) else []


def pieces(view: View, *cuts: Cut) -> Iterator[Piece]:
    """What the families of these cuts find, unsettled."""
    for number, family in enumerate(FAMILIES):
        if family.cut in cuts:
            yield from looked(number, view)


def looked(number: int, view: View) -> Iterator[Piece]:
    """What one family finds."""
    result = FAMILIES[number].look(view)
    for place, found in enumerate((result,) if isinstance(result, Found) else result):
        if len(found.first):
            yield Piece(number, place, found)
