"""Situations that random histories must contain often, with a finding and without: rare ones show no difference.

Each function returns whether the history has the situation with a finding of the rules it is for, or without one; None
if it does not have the situation.
"""

from collections.abc import Callable
from typing import Final

from highwater.reports.columns import UNKNOWN, Kind, Status
from highwater.reports.rules.findings import Weight
from highwater.reports.rules.rule import Rule
from highwater.reports.tests.oracle.findings import Findings
from highwater.reports.tests.oracle.history import UNLIMITED, History, Row
from highwater.reports.tests.oracle.log_start import (
    largest_end,
    log_start_of,
    passed,
    proved_log_starts,
    weight_of_gap,
)
from highwater.reports.tests.oracle.order import (
    known_to_clients,
    reordered_sends,
    sends_with_places,
    unknown_to_replicas,
)
from highwater.reports.tests.oracle.reads import (
    deleted_records,
    is_durable,
    lost_writes,
    silent_resets,
    skipped_records,
    torn_transactions,
)

ABSENCE: Final = (lost_writes, skipped_records, torn_transactions, silent_resets)
"""The rules in which a log start explains why a record is absent."""


def has_finding(history: History, *rules: Callable[[History, Findings], None]) -> bool:
    return bool(_found(history, *rules).culprits())


def _found(history: History, *rules: Callable[[History, Findings], None]) -> Findings:
    found = Findings()
    for rule in rules:
        rule(history, found)
    return found


def deletion_of_everything(history: History) -> bool | None:
    """A DeleteRecords(-1) without a log start in its reply, and later sends, which it did not delete."""
    deletions = [row for row in history.rows if row.kind is Kind.DELETE and row.offset == UNKNOWN and row.succeeded]
    deletions = [row for row in deletions if row.log_start_offset is None and largest_end(history, row) < UNLIMITED]
    reads = [
        row
        for row in history.rows
        if row.kind is Kind.READ and row.log_start_offset is None and not history.promise.retention
        if any(deletion.invoked < row.returned for deletion in deletions)
    ]
    if not reads:
        return None
    known = {at for at, _ in known_to_clients(history)}
    absent = [(row, at) for row in reads for at in known if passed(history, row, at)]
    proved = [row for row, at in absent if at not in row.offsets and log_start_of(history, row)[1] <= at]
    return bool(proved) and has_finding(history, *ABSENCE)


def disappeared_from_compacted(history: History) -> bool | None:
    """A record of a compacted topic was read, and is missing in a later read of its offset."""
    absent = [
        (row, at)
        for row in history.rows
        if history.promise.compaction and (row.position is not None or row.quiet)
        for read in history.reads
        if read.succeeded and read.precedes(row)
        for at, value in read.records
        if at not in row.offsets and passed(history, row, at) and is_durable(history, at, value)
        if weight_of_gap(history, row, at) is not None
    ]
    return has_finding(history, skipped_records) if absent else None


def below_log_start(history: History) -> bool | None:
    """A read has a record below a log start that was proved before."""
    below = any(
        proof.precedes(read) and read.succeeded and read.first < start
        for read in history.reads
        for proof, start in proved_log_starts(history)
    )
    return has_finding(history, deleted_records) if below else None


def below_log_start_of_epoch(history: History) -> bool | None:
    """As before, with a violation, or with replies of different leader epochs or of a follower."""
    found = _found(history, deleted_records).culprits()
    if (Rule.RESURRECTED_RECORD, Weight.VIOLATION) in found:
        return True
    return None if found else below_log_start(history)


def dump_and_clients(history: History) -> bool | None:
    """A dump, and a record below its high watermark that clients know."""
    known = list(known_to_clients(history))
    both = any(at < (dump.high_watermark or 0) for dump in history.dumps for at, _ in known)
    return has_finding(history, unknown_to_replicas) if both else None


def order_of_unknown_sends(history: History) -> bool | None:
    """A producer with two sends, one of them of unknown outcome, whose places are known."""
    sends = [send for send, _ in sends_with_places(history)]
    pairs = [(one, other) for one in sends for other in sends if _are_in_order(one, other)]
    return has_finding(history, reordered_sends) if any(Status.INFO in (a.status, b.status) for a, b in pairs) else None


def _are_in_order(one: Row, other: Row) -> bool:
    return one.producer == other.producer and (one.sequence or 0) < (other.sequence or 0)


def explained_before_its_send(history: History) -> bool | None:
    """A log start above the place of a send was proved before the send."""
    before = any(
        proof.precedes(send) and start > place
        for send in history.sends
        for place in [history.place(send)]
        if place is not None
        for proof, start in proved_log_starts(history)
    )
    return has_finding(history, lost_writes) if before else None


SITUATIONS: Final[dict[str, Callable[[History], bool | None]]] = {
    "a deletion of everything before sends": deletion_of_everything,
    "a record disappears from a compacted topic": disappeared_from_compacted,
    "a record below a log start": below_log_start,
    "a record below a log start of a known epoch": below_log_start_of_epoch,
    "a dump beside what clients know": dump_and_clients,
    "an order with sends of unknown outcome": order_of_unknown_sends,
    "a log start before a send": explained_before_its_send,
}
