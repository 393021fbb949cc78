"""All rules that look at one partition at a time: called by the local engine and by the Spark job alike.

Offsets are never used as array indices: a partition may begin at any offset and have gaps.
"""

from collections.abc import Callable, Iterator
from typing import Final

from reports.columns import Operations
from reports.rules import committed, cycles, exactly_once, log, polls, register, storage
from reports.rules.found import Found, Promise
from reports.rules.view import View

FAMILIES: Final[tuple[Callable[[View], Found | tuple[Found, ...]], ...]] = (
    log.inconsistent_offsets,
    log.duplicates,
    log.phantom_reads,
    log.lost_and_unseen,
    log.producer_reorders,
    log.send_disorder,
    polls.nonmonotonic_polls,
    polls.passed_over,
    polls.sends_between,
    polls.silent_resets,
    register.stale_reads,
    register.future_reads,
    register.regressions,
    committed.aborted_reads,
    committed.own_reads,
    committed.early_reads,
    committed.passed_over,
    committed.hanging_transactions,
    cycles.backward_spans,
    exactly_once.double_processing,
    storage.early_retention,
    storage.outlived_tombstones,
    storage.diverged_replicas,
    storage.stuck_ends,
)
"""Each gives findings of one or more rules."""
CANDIDATES: Final = {20, 21}
"""Rules whose findings count only when all partitions were seen (`reports.rules.run`)."""


def check(ops: Operations, promise: Promise) -> list[Found]:
    """All findings of one (run, partition)."""
    return check_view(View(ops, promise))


def check_view(view: View) -> list[Found]:
    return list(_findings(view)) if len(view.ops) else []


def _findings(view: View) -> Iterator[Found]:
    for family in FAMILIES:
        result = family(view)
        for found in (result,) if isinstance(result, Found) else result:
            if len(found.first):
                yield found
