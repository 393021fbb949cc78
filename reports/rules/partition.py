"""The table of rules that check one partition; engines run them on whole partitions and on slices.

Offsets are never used as array indices: a partition may begin at any offset and have gaps.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from highwater.reports.columns import UNKNOWN, Kind, Operations, Status
from highwater.reports.rules.checks import committed, cycles, entries, epochs, log, polls, register, storage
from highwater.reports.rules.findings import Mask, Promise, RuleFindings
from highwater.reports.rules.merge import FamilyFindings, merge_findings
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.view import View


class Cut(Enum):
    """What a family of rules must see at once when a partition is divided into slices."""

    OFFSETS = "all observations in a span of offsets, and of the values there"
    ROWS = "consecutive operations, and the last operation of each process before them"
    TIME = "operations invoked in a time window, and the largest offsets proved before it"
    WHOLE = "some columns of all operations"


class Family(NamedTuple):
    """A function that finds anomalies of one or more rules in a partition or a slice.

    With `Cut.WHOLE`, `columns` are those that it reads beside `kind` and `status`, and `rows` masks the operations
    that it needs (None: all). It finds nothing unless all `required_columns` have values.
    """

    find: Callable[[View], RuleFindings | tuple[RuleFindings, ...]]
    cut: Cut
    columns: tuple[str, ...] = ()
    required_columns: tuple[str, ...] = ()
    rows: Callable[[Operations], Mask] | None = None


def acknowledged(ops: Operations) -> Mask:
    mask: Mask = (ops.kind == Kind.SEND) & (ops.status == Status.OK)
    return mask


def sends_not_rejected(ops: Operations) -> Mask:
    mask: Mask = (ops.kind == Kind.SEND) & (ops.status != Status.FAIL)
    return mask


def states_epoch_or_sends(ops: Operations) -> Mask:
    """Mask the operations that state a leader epoch, and all sends that were not rejected."""
    mask: Mask = (ops.leader_epoch != UNKNOWN) | sends_not_rejected(ops)
    return mask


def reads_with_records(ops: Operations) -> Mask:
    """Mask successful reads with records."""
    mask: Mask = (ops.kind == Kind.READ) & (ops.status == Status.OK) & (ops.record_count > 0)
    return mask


def sends_and_quiet_rows(ops: Operations) -> Mask:
    """Mask the operations that rule stuck needs: acknowledged sends and the quiet phase."""
    mask: Mask = acknowledged(ops) | (ops.quiet == 1)
    return mask


def sends_and_ends(ops: Operations) -> Mask:
    mask: Mask = (ops.kind == Kind.SEND) | (ops.high_watermark != UNKNOWN)
    return mask


def states_stable_offset(ops: Operations) -> Mask:
    mask: Mask = ops.last_stable_offset != UNKNOWN
    return mask


CALLS: Final = ("producer", "sequence")
READS: Final = ("invoked", "returned", "process", "run", "position", "record_count")
STUCK: Final = (
    "invoked",
    "returned",
    "offset",
    "high_watermark",
    "leader_epoch",
    "quiet",
    "at_ms",
    "calm_ms",
    "open_ms",
)
JUMPS: Final = (*READS, "log_start_offset", "group", "began", "isolation")
ENTRIES: Final = (
    *READS, "offset", "value", "high_watermark", "last_stable_offset", "log_start_offset", "isolation", "txn",
    "producer", "gave_up", "quiet", "node", "leader_epoch", "at_ms", "calm_ms", "open_ms",
)  # fmt: skip
FAMILIES: Final = (
    Family(log.inconsistent_offsets, Cut.OFFSETS),
    Family(log.duplicates, Cut.OFFSETS),
    Family(log.phantom_reads, Cut.OFFSETS),
    Family(log.phantom_tombstones, Cut.OFFSETS),
    Family(log.rejected_records, Cut.OFFSETS),
    Family(log.lost_and_unseen, Cut.OFFSETS),
    Family(log.producer_reorders, Cut.WHOLE, ("offset", "returned", *CALLS), CALLS, sends_not_rejected),
    Family(log.fenced_sends, Cut.WHOLE, ("offset", "returned", "producer", "gave_up"), ("producer",), acknowledged),
    Family(log.nonmonotonic_sends, Cut.ROWS),
    Family(log.nonmonotonic_transactions, Cut.WHOLE, ("offset", "txn", "producer", "sequence"), ("txn", "sequence"),
           acknowledged),
    Family(
        log.disordered_transactions, Cut.WHOLE, ("invoked", "process", "offset", "value", "txn", "producer", "gave_up"),
        ("txn",), sends_not_rejected,
    ),
    Family(log.append_inversions, Cut.TIME),
    Family(polls.nonmonotonic_polls, Cut.ROWS),
    Family(polls.continued_after_abort, Cut.WHOLE, (*READS, "txn"), ("txn",), reads_with_records),
    Family(polls.passed_over, Cut.OFFSETS),
    Family(polls.truncated_tails, Cut.OFFSETS),
    Family(polls.sends_between, Cut.WHOLE, ("offset", "txn"), ("txn",), acknowledged),
    Family(polls.silent_resets, Cut.OFFSETS),
    Family(register.stale_reads, Cut.TIME),
    Family(
        register.stale_counts, Cut.WHOLE, ("invoked", "returned", "high_watermark", "leader_epoch", "node"),
        rows=sends_and_ends,
    ),
    Family(
        register.stale_stable_ends, Cut.WHOLE,
        (*READS, "offset", "last_stable_offset", "leader_epoch", "node", "txn"), ("last_stable_offset", "txn"),
    ),
    Family(register.future_reads, Cut.OFFSETS),
    Family(register.future_ends, Cut.TIME),
    Family(register.regressions, Cut.TIME),
    Family(register.beyond_ends, Cut.TIME),
    Family(register.stable_offsets_beyond_ends, Cut.TIME),
    Family(register.deleted_records, Cut.TIME),
    Family(committed.aborted_reads, Cut.OFFSETS),
    Family(committed.own_reads, Cut.OFFSETS),
    Family(committed.early_reads, Cut.WHOLE, ENTRIES, ("txn",)),
    Family(committed.passed_over, Cut.OFFSETS),
    Family(
        committed.hanging_transactions, Cut.WHOLE,
        ("returned", "high_watermark", "last_stable_offset", "at_ms", "calm_ms", "open_ms"), ("last_stable_offset",),
        states_stable_offset,
    ),
    Family(cycles.backward_spans, Cut.OFFSETS),
    Family(cycles.double_processing, Cut.OFFSETS),
    Family(
        storage.early_retention, Cut.WHOLE,
        ("invoked", "returned", "offset", "timestamp_ms", "log_start_offset", "at_ms"), ("log_start_offset",),
    ),
    Family(storage.outlived_tombstones, Cut.WHOLE, required_columns=("key",)),
    Family(storage.diverged_replicas, Cut.OFFSETS),
    Family(
        epochs.decreasing_epochs, Cut.WHOLE,
        (*READS, "offset", "value", "high_watermark", "leader_epoch", "node"), rows=states_epoch_or_sends,
    ),
    Family(entries.unexplained_offsets, Cut.WHOLE, ENTRIES),
    Family(entries.crowded_sends, Cut.WHOLE, ENTRIES),
    Family(storage.stuck_ends, Cut.WHOLE, STUCK, ("calm_ms",), sends_and_quiet_rows),
)  # fmt: skip
"""All families; their positions order the findings."""
CANDIDATES: Final = {Rule.TORN_TRANSACTION, Rule.G1C}
"""Rules whose findings here are candidates, decided with all partitions in `highwater.reports.rules.run`."""


def check(ops: Operations, promise: Promise) -> list[RuleFindings]:
    """Return all findings in one partition."""
    return check_view(View(ops, promise))


def check_view(view: View) -> list[RuleFindings]:
    return merge_findings(run_families(view, *Cut), view.unplaced_tombstones) if len(view.ops) else []


def run_families(view: View, *cuts: Cut) -> Iterator[FamilyFindings]:
    """Yield the findings of the families with these cuts, not yet merged."""
    for number, family in enumerate(FAMILIES):
        if family.cut in cuts:
            yield from run_family(number, view)


def run_family(number: int, view: View) -> Iterator[FamilyFindings]:
    """Yield the findings of one family."""
    result = FAMILIES[number].find(view)
    for place, findings in enumerate((result,) if isinstance(result, RuleFindings) else result):
        if len(findings.first):
            yield FamilyFindings(number, place, findings)
